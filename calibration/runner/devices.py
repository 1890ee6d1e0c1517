# SPDX-License-Identifier: Apache-2.0
"""Which PCI devices, cache allocations, CXL memory and tuned profiles a capture describes, and their files.

Devices are found in sysfs alone. Links of sysfs are kept as links: they say where a device is attached, its driver and
its IOMMU group. Addresses, serial numbers and GUIDs of devices are not read.
"""

from __future__ import annotations

import os
import re
from typing import Iterator, Literal

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
RESCTRL_OWN = frozenset(["info", "mon_groups", "mon_data"])
"""Directories that are not groups."""

MAX_GROUPS = 256
"""Groups of resctrl described; processors have at most 128."""

MEMORY_PATTERNS = (
    "/sys/kernel/mm/mempolicy/weighted_interleave/*",
    "/sys/bus/dax/devices/*/{target_node,size}",
    "/sys/bus/cxl/devices/mem[0-9]*/{numa_node,firmware_version}",
    "/sys/bus/cxl/devices/mem[0-9]*/ram/size",
    "/sys/bus/cxl/devices/mem[0-9]*/pmem/size",
    "/sys/bus/cxl/devices/region[0-9]*/{size,interleave_ways,interleave_granularity,mode,commit}",
)

TUNED = "/etc/tuned"
PROFILES = (TUNED + "/profiles", TUNED, "/usr/lib/tuned/profiles", "/usr/lib/tuned")
"""Where tuned looks for a profile, in this order."""

MAX_PROFILES = 32
"""Profiles of a chain of includes; the deepest that are shipped have about six."""

MAX_SETTINGS = 500
"""Settings of profiles that are looked up."""


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
    groups = [name for name in collector.names(RESCTRL) if name not in RESCTRL_OWN]
    for name in groups[:MAX_GROUPS]:
        for file in ("schemata", "cpus_list", "mode"):
            collector.copy("%s/%s/%s" % (RESCTRL, name, file))


def collect_memory(collector):
    """Copy what says which memory is CXL's, and how pages are interleaved."""
    for pattern in MEMORY_PATTERNS:
        collector.collect(pattern)
    for device in collector.names("/sys/bus/dax/devices"):
        collector.link("/sys/bus/dax/devices/" + device)


def sections(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the section, name and value of each setting of a tuned profile."""
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif line and line[0] not in "#;" and "=" in line:
            name, _, value = line.partition("=")
            yield section, name.strip(), value.strip()


def profile_text(collector, name):
    """Copy the file of the tuned profile *name*, and return its text; empty if there is none."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        for directory in PROFILES:
            path = "%s/%s/tuned.conf" % (directory, name)
            if collector.copy(path):
                return collector.text(path)
    return ""


def setting_path(section: str, name: str) -> str | None:
    """Return the file that holds a setting of a profile; None if it has none that can be named."""
    if "$" in name or ".." in name:
        return None
    if section == "sysctl":
        # As sysctl(8): of a name with both, the first separator counts.
        first = re.search(r"[./]", name)
        if first is not None and first.group(0) == ".":
            name = name.translate(str.maketrans("./", "/."))
        return "/proc/sys/" + name
    return name if section == "sysfs" and name.startswith("/sys/") and not re.search(r"[*?\[{]", name) else None


def collect_tuned(collector):
    """Copy the active profile of tuned with those it includes, and the files that hold what they set."""
    for name in ("active_profile", "profile_mode"):
        collector.copy("%s/%s" % (TUNED, name))
    waiting = collector.text(TUNED + "/active_profile").split()
    seen: list[str] = []
    looked_up = 0
    while waiting and len(seen) < MAX_PROFILES:
        profile = waiting.pop(0)
        if profile in seen:
            continue
        seen.append(profile)
        for section, name, value in sections(profile_text(collector, profile)):
            if section == "main" and name == "include":
                waiting += [word for word in re.split(r"[,;\s]+", value) if word]
            elif looked_up < MAX_SETTINGS:
                setting = setting_path(section, name)
                if setting is not None:
                    looked_up += 1
                    collector.copy(setting)


def collect(collector):
    """Copy all of it."""
    collect_devices(collector)
    collect_resctrl(collector)
    collect_memory(collector)
    collect_tuned(collector)
