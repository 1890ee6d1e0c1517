# SPDX-License-Identifier: Apache-2.0
"""Which PCI devices, cache allocations and CXL memory a capture describes, and their files.

Devices are found in sysfs alone. Links of sysfs are kept as links: they say where a device is attached, its driver and
its IOMMU group. Addresses, serial numbers and GUIDs of devices are not read.
"""

from __future__ import annotations

import os
import re
from typing import Literal

from calibration.runner import profiles

PCI = "/sys/bus/pci/devices"

CLASSES: dict[str, Literal["network", "storage", "accelerator"]] = {
    "0x01": "storage",
    "0x02": "network",
    "0x0302": "accelerator",
    "0x12": "accelerator",
}
"""Kinds of devices by the digits that their PCI class begins with. GPUs without a display are 3D controllers."""

MAX_DEVICES = 256
"""Devices described. The largest servers have a few dozen; virtual functions are counted at their physical one."""

MAX_HOPS = 16
"""Bridges between a device and its root port."""

DEVICE_FILES = (
    *("class", "vendor", "device", "subsystem_vendor", "subsystem_device", "numa_node", "irq"),
    *("current_link_speed", "current_link_width", "max_link_speed", "max_link_width"),
    *("local_cpulist", "sriov_numvfs", "sriov_totalvfs"),
)
PORT_FILES = ("class", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width")

# Classes of which a device's own directory has entries: a link leads to each, and only these files are read there.
CLASS_FILES = {
    "net": ("operstate", "mtu", "phys_port_name"),
    "nvme": ("model", "firmware_rev", "transport"),
    "infiniband": ("fw_ver", "hca_type"),
    "scsi_host": ("proc_name", "version_fw", "fwrev", "fw_version"),
}

LINK_FILES = ("speed", "duplex")
"""Files of a network interface that refuse to be read without a link; some drivers wait for seconds first."""

RESCTRL = "/sys/fs/resctrl"
RESCTRL_PATTERNS = (
    RESCTRL + "/{schemata,cpus_list,mode}",
    RESCTRL + "/info/*/{cbm_mask,min_cbm_bits,min_bandwidth,bandwidth_gran,shareable_bits}",
)
CACHE_NUMBERS = "/sys/devices/system/cpu/cpu[0-9]*/cache/index[2-9]/id"
"""Numbers of the caches, which are those of the domains."""

RESCTRL_OWN = frozenset(["info", "mon_groups", "mon_data"])
"""Directories that are not groups."""

MAX_GROUPS = 256
"""Groups of resctrl described; processors have at most 128."""

NODES = "/sys/devices/system/node/node[0-9]*"
INITIATORS = NODES + "/access[01]/initiators"
RATED = "/{read_latency,write_latency,read_bandwidth,write_bandwidth}"
MEMORY_PATTERNS = (
    INITIATORS + RATED,
    NODES + "/memory_side_cache/index[0-9]*/{size,line_size,indexing,write_policy,address_mode}",
    "/sys/kernel/mm/mempolicy/weighted_interleave/*",
    "/sys/bus/dax/devices/*/{target_node,size}",
    "/sys/bus/cxl/devices/mem[0-9]*/{numa_node,firmware_version}",
    "/sys/bus/cxl/devices/mem[0-9]*/ram/size",
    "/sys/bus/cxl/devices/mem[0-9]*/pmem/size",
    "/sys/bus/cxl/devices/region[0-9]*/{size,interleave_ways,interleave_granularity,mode,commit}",
    "/sys/bus/cxl/devices/region[0-9]*/extended_linear_cache_size",
    "/sys/bus/cxl/devices/region[0-9]*/access[01]" + RATED,
)


def addresses(collector):
    """Return the PCI addresses of the devices described, without virtual functions of this machine's own devices."""
    found = []
    for address in collector.names(PCI):
        text = collector.read("%s/%s/class" % (PCI, address)) or b""
        kind = text.strip().decode("ascii", "replace")
        if kind.startswith(tuple(CLASSES)) and not os.path.lexists("%s%s/%s/physfn" % (collector.root, PCI, address)):
            found.append(address)
    for address in found[MAX_DEVICES:]:
        collector.unreadable["%s/%s" % (PCI, address)] = "not described: more than %d devices" % MAX_DEVICES
    return found[:MAX_DEVICES]


def upstream(collector, address):
    """Return the directories of a device and of the bridges above it, the device's first.

    Empty if it has no link to a directory below /sys/devices.
    """
    target = collector.link("%s/%s" % (PCI, address))
    if target is None:
        return []
    path = os.path.normpath(os.path.join(PCI, target))
    found: list[str] = []
    while re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", os.path.basename(path)) and (
        len(found) < MAX_HOPS
    ):
        found.append(path)
        path = os.path.dirname(path)
    return found


def collect_devices(collector):
    """Copy what describes the chosen devices and the ports that they are attached to."""
    drivers = set()
    found = addresses(collector)
    collector.devices = len(found)
    for address in found:
        chain = upstream(collector, address)
        for number, directory in enumerate(chain):
            for name in PORT_FILES if number else DEVICE_FILES:
                collector.copy(directory + "/" + name)
        if not chain:
            continue
        own = chain[0]
        collector.link(own + "/iommu_group")
        driver = collector.link(own + "/driver")
        if driver is not None:
            drivers.add(os.path.basename(driver))
        for name in collector.names(own + "/msi_irqs"):
            collector.copy(own + "/msi_irqs/" + name)
        inner = [own + "/" + name for name in collector.names(own) if re.fullmatch("(virtio|host)[0-9]+", name)]
        for directory in [own, *inner]:
            for kind, files in CLASS_FILES.items():
                for entry in collector.names(directory + "/" + kind):
                    place = "%s/%s/%s" % (directory, kind, entry)
                    for name in files:
                        collector.copy(place + "/" + name)
                    for name in LINK_FILES if collector.text(place + "/operstate") == "up" else ():
                        collector.copy(place + "/" + name)
    for driver in sorted(drivers):
        collector.copy("/sys/module/%s/version" % driver.replace("-", "_"))


def collect_resctrl(collector):
    """Copy the allocations of cache and memory bandwidth, and the process's own group."""
    collector.copy("/proc/self/cpu_resctrl_groups")
    for pattern in RESCTRL_PATTERNS:
        collector.collect(pattern)
    names = collector.names(RESCTRL)
    if names:
        collector.collect(CACHE_NUMBERS)
    groups = [name for name in names if name not in RESCTRL_OWN]
    for name in groups[:MAX_GROUPS]:
        for file in ("schemata", "cpus_list", "mode"):
            collector.copy("%s/%s/%s" % (RESCTRL, name, file))


def collect_memory(collector):
    """Copy what says which memory is CXL's, how the firmware rates accesses of which nodes, and weights of pages."""
    for pattern in MEMORY_PATTERNS:
        collector.collect(pattern)
    for device in collector.names("/sys/bus/dax/devices"):
        collector.link("/sys/bus/dax/devices/" + device)
    for directory in collector.directories(INITIATORS):
        for name in collector.names(directory):
            if name.startswith("node"):
                collector.link(directory + "/" + name)


def collect(collector):
    """Copy all of it."""
    collect_devices(collector)
    collect_resctrl(collector)
    collect_memory(collector)
    profiles.collect(collector)
