# SPDX-License-Identifier: Apache-2.0
"""Devices and their links, CXL memory, allocations and profiles, of captured and of made machines."""

import base64
import io
import tarfile

import pytest

from calibration.context.devices import link_text, narrowed_links, speed_gt_s
from calibration.context.facts import NOT_KNOWN, facts, text_of
from calibration.context.loader import load
from calibration.context.resctrl import allocation_text, narrowing_group
from calibration.context.tree import Tree
from calibration.context.tuned import is_met
from calibration.measurements.sut import machine_flags
from calibration.report.devices import rows
from calibration.runner import capture, devices
from tests.captures import captured

BASE = {
    "/sys/devices/system/cpu/online": "0-7\n",
    "/sys/devices/system/cpu/possible": "0-7\n",
    "/proc/meminfo": "MemTotal: 100 kB\n",
    "/proc/cpuinfo": "vendor_id : GenuineIntel\n",
}
ROOT = "/sys/devices/pci0000:80"


def function(path, klass, *, width="8", speed="16.0 GT/s PCIe", most="16", fastest="16.0 GT/s PCIe", **more):
    """Return the files of a PCI function; *more* are files below it."""
    files = {
        "class": klass, "vendor": "0x8086", "device": "0x1592", "subsystem_vendor": "0x8086",
        "subsystem_device": "0x0002", "numa_node": "1", "current_link_width": width, "current_link_speed": speed,
        "max_link_width": most, "max_link_speed": fastest, **more,
    }  # fmt: skip
    return {f"{ROOT}/{path}/{name}": f"{text}\n" for name, text in files.items()}


def link(root, path, target):
    """Make a link of sysfs."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def machine(make_root, files, **links):
    """Return a root with *files* and, for each PCI address, a link to its directory below the root port's bus."""
    root = make_root({**BASE, **files})
    for path in {name.rsplit("/", 1)[0] for name in files if name.endswith("/class")}:
        link(
            root,
            f"/sys/bus/pci/devices/{path.rsplit('/', 1)[1]}",
            f"../../../devices/{path.removeprefix('/sys/devices/')}",
        )
    for path, target in links.get("links", {}).items():
        link(root, path, target)
    return root


def both(root):
    """Return the context of a root, read live, which must be that of its capture."""
    live = load(root)
    archive = base64.b64decode(capture.capture(str(root), sleep=lambda _: None)["archive"])
    captured = load(root, archive)
    assert captured.devices == (live.devices or ())
    names = ("cxl", "interleaving", "resctrl", "tuned")
    assert {name: getattr(captured, name) for name in names} == {name: getattr(live, name) for name in names}
    return captured


PORT, NIC = "0000:80:00.0", "0000:80:00.0/0000:81:00.0"


def test_captured_guest_with_a_root_port_on_node_1_and_a_narrowed_link(unpack):
    context = captured("x86_64-devices")
    nic = next(device for device in context.devices if device.address == "0000:81:00.0")
    assert (nic.node, nic.driver, nic.iommu_group, nic.name) == (1, "virtio-pci", 7, "eth1")
    assert (nic.link.width, nic.link.possible_width, nic.link.port) == (1, 8, "0000:80:00.0")
    assert nic.local_cpus == context.node(1).cpus == (2, 3)
    assert nic.firmware is None
    assert nic.firmware_reason == "its driver does not publish it in sysfs"
    disk = next(device for device in context.devices if device.driver == "nvme")
    assert (disk.node, disk.link.narrowed, disk.firmware) == (1, False, "7.2.22")
    assert disk.isolated_cpus == (3,)
    (raised,) = [flag for flag in machine_flags(context) if flag.code == "LINK_NARROWED"]
    assert raised.reason.startswith("eth1: x1 of x8 negotiated with port 0000:80:00.0")
    stored = b"".join(path.read_bytes() for path in unpack("x86_64-devices").rglob("*") if path.is_file())
    assert b"SECRET" not in stored
    assert b"52:54:00" not in stored


def test_facts_of_devices_take_part_in_what_changed():
    context = captured("x86_64-devices")
    found = facts(context, None)
    assert "1 x 1af4:1041 virtio-pci 1 on node 1 x1 at 2.5 GT/s at 0000:81:00.0" in found["network devices"]
    assert "firmware 7.2.22" in found["storage controllers"]
    moved = tuple(device.model_copy(update={"interrupt_cpus": (0,), "isolated_cpus": ()}) for device in context.devices)
    assert facts(context.model_copy(update={"devices": moved}), None) == found  # irqbalance moves them all the time
    nic = next(device for device in context.devices if device.address == "0000:81:00.0")
    for change in ({"driver": "other"}, {"firmware": "2"}, {"node": 0}, {"virtual_functions": 8}):
        others = tuple(device.model_copy(update=change) if device is nic else device for device in context.devices)
        assert facts(context.model_copy(update={"devices": others}), None) != found, change
    for width, speed in ((8, 2.5), (1, 16.0)):
        links = (nic.links[0].model_copy(update={"width": width, "speed_gt_s": speed}),)
        others = tuple(
            device.model_copy(update={"links": links}) if device is nic else device for device in context.devices
        )
        assert facts(context.model_copy(update={"devices": others}), None) != found


def test_captures_from_before_know_no_devices():
    context = captured("x86_64-isolated")
    found = facts(context, None)
    names = (
        "network devices", "storage controllers", "CXL memory", "allocation", "tuned profile", "interleave weights",
    )  # fmt: skip
    assert context.devices is None
    assert {found[name] for name in names} == {NOT_KNOWN}


@pytest.mark.parametrize(("port", "device", "narrowed", "text"), [
    ({}, {}, True, "x8 of x16, 16 of 16 GT/s"),
    ({"most": "8"}, {}, False, "x8 of x8, 16 of 16 GT/s (the device can x16, 16 GT/s)"),
    ({}, {"most": "8"}, False, "x8 of x8, 16 of 16 GT/s"),
    ({}, {"most": "8", "speed": "8.0 GT/s PCIe"}, False, "x8 of x8, 8 of 16 GT/s"),
    ({"most": "255"}, {}, False, "x8, 16 of 16 GT/s"),
    ({}, {"width": "0", "speed": "Unknown"}, False, None),
], ids=["narrowed", "narrow slot", "narrow card", "slow", "port unknown", "no link"])  # fmt: skip
def test_links_against_what_both_ends_can(make_root, port, device, narrowed, text):
    files = {**function(PORT, "0x060400", **port), **function(NIC, "0x020000", **device)}
    context = both(machine(make_root, files))
    (found,) = context.devices
    assert link_text(found) == text
    assert bool(list(narrowed_links([found]))) is narrowed
    assert any(flag.code == "LINK_NARROWED" for flag in machine_flags(context)) is narrowed


def test_a_switch_above_that_is_narrower_is_named(make_root):
    up = f"{PORT}/0000:81:00.0"
    down = f"{up}/0000:82:01.0"
    files = {
        **function(PORT, "0x060400"),
        **function(up, "0x060400", width="4"),
        **function(down, "0x060400", width="16"),
        **function(f"{down}/0000:83:00.0", "0x020000", width="16"),
    }
    context = both(machine(make_root, files))
    (nic,) = context.devices
    assert [item.port for item in nic.links] == ["0000:82:01.0", "0000:80:00.0"]
    assert link_text(nic).endswith(", behind a switch with x4, 16 GT/s")
    assert [item.port for item, _ in narrowed_links([nic])] == ["0000:80:00.0"]


def test_speeds_of_all_kernels():
    assert [speed_gt_s(text) for text in ("2.5 GT/s", "8 GT/s", "32.0 GT/s PCIe", "Unknown speed")] == [
        2.5,
        8,
        32,
        None,
    ]
    with pytest.raises(ValueError, match="not a link speed"):
        speed_gt_s("fast")


def test_firmware_comes_from_where_drivers_publish_it(make_root):
    nic, disk, raid = NIC, NIC.replace(":81:", ":82:"), NIC.replace(":81:", ":83:")
    files = {
        **function(PORT, "0x060400"),
        **function(
            nic, "0x020000", **{"infiniband/mlx5_0/fw_ver": "22.39.2048", "infiniband/mlx5_0/hca_type": "MT4125"}
        ),
        **function(disk, "0x010802", **{"nvme/nvme0/firmware_rev": "GDC7", "nvme/nvme0/model": "Fast disk"}),
        **function(raid, "0x010400", **{"host0/scsi_host/host0/version_fw": "8.1"}),
    }
    found = both(machine(make_root, files)).devices
    assert [(device.firmware, device.model) for device in found] == [
        ("22.39.2048", "MT4125"),
        ("GDC7", "Fast disk"),
        ("8.1", None),
    ]


def test_interrupts_are_those_of_the_device(make_root):
    files = {
        **function(PORT, "0x060400"),
        **function(NIC, "0x020000", **{"msi_irqs/40": "msix", "msi_irqs/41": "msix"}),
        "/proc/irq/40/effective_affinity_list": "2\n",
        "/proc/irq/41/effective_affinity_list": "5\n",
        "/proc/irq/42/effective_affinity_list": "7\n",
        "/sys/devices/system/cpu/isolated": "4-7\n",
    }
    (nic,) = both(machine(make_root, files)).devices
    assert (nic.interrupts, nic.interrupt_cpus, nic.isolated_cpus) == (2, (2, 5), (5,))


def test_virtual_functions_are_counted_at_their_device(make_root):
    files = {**function(PORT, "0x060400"), **function(NIC, "0x020000", sriov_numvfs="3")}
    for number in (1, 2, 3):
        files |= function(f"{PORT}/0000:81:00.{number}", "0x020000")
    files |= {f"{ROOT}/{NIC}/net/eth1/operstate": "up\n", f"{ROOT}/{PORT}/0000:81:00.1/net/eth1v0/operstate": "up\n"}
    root = machine(make_root, files)
    link(root, f"{ROOT}/{NIC}/virtfn0", "../0000:81:00.1")
    for number in (1, 2, 3):
        link(root, f"{ROOT}/{PORT}/0000:81:00.{number}/physfn", "../0000:81:00.0")
    live = load(root)
    assert [(device.address, device.virtual_functions) for device in live.devices] == [("0000:81:00.0", 3)]
    assert [interface.name for interface in live.devices[0].interfaces] == ["eth1"]
    assert [device.address for device in both(root).devices] == ["0000:81:00.0"]


def test_equal_devices_share_a_row(make_root):
    files = function(PORT, "0x060400")
    for number in range(40):
        files |= function(f"{PORT}/0000:{0x90 + number:02x}:00.0", "0x010802", **{"nvme/nvme0/model": "Disk"})
    (row,) = rows(both(machine(make_root, files)))
    assert row.devices.endswith(" and 36 more")
    assert row.link == "x8 of x16, 16 of 16 GT/s"


def test_thousands_of_functions_cost_little(make_root):
    """2000 functions and interrupts: bounded files, and work that grows with them."""
    files = function(PORT, "0x060400")
    for number in range(300):
        irqs = {f"msi_irqs/{1000 + 8 * number + irq}": "msix" for irq in range(8)}
        files |= function(f"{PORT}/{number + 1:04x}:90:00.0", "0x020000", **irqs)
        files |= {f"/proc/irq/{1000 + 8 * number + irq}/effective_affinity_list": "1\n" for irq in range(8)}
    files |= {f"{ROOT}/{PORT}/{number:04x}:91:00.0/class": "0x088000\n" for number in range(1000)}
    root = machine(make_root, files)
    collector = capture.FileCapture(str(root))
    devices.collect_devices(collector)
    assert (
        len({path.rsplit("/", 1)[0] for path in collector.files if path.endswith("/numa_node")}) == devices.MAX_DEVICES
    )
    assert len([path for path in collector.unreadable if "not described" in collector.unreadable[path]]) == 44
    reads: list[str] = []
    text = Tree.raw
    counted = pytest.MonkeyPatch()
    counted.setattr(Tree, "raw", lambda self, path: reads.append(path) or text(self, path))
    try:
        context = load(root, base64.b64decode(capture.capture(str(root), sleep=lambda _: None)["archive"]))
    finally:
        counted.undo()
    assert len(context.devices) == devices.MAX_DEVICES
    assert len([path for path in reads if path.startswith("/proc/irq/")]) <= 4 * 8 * devices.MAX_DEVICES


CONTROL = "/sys/fs/resctrl"


def schemata(*, group="", l3="ffff", mb="100", cpus="0-7", cpu_file=True):
    files = {f"{CONTROL}{group}/schemata": f"    L3:0={l3};1=ffff\n    MB:0={mb};1=100\n"}
    if cpu_file:
        files[f"{CONTROL}{group}/cpus_list"] = f"{cpus}\n"
    return {**files, f"{CONTROL}{group}/mode": "shareable\n", f"{CONTROL}/info/L3/cbm_mask": "ffff\n"}


def test_a_group_with_fewer_ways_narrows_what_its_cpus_measure(make_root):
    files = {**schemata(cpus="0-3"), **schemata(group="/pods", l3="f", mb="50", cpus="4-7")}
    root = make_root({**BASE, **files, "/sys/bus/pci/devices/none/class": "0x060000\n"})
    both(root)
    context = load(root)  # a capture has the affinity of the test
    ((group, cpus),) = narrowing_group(context.resctrl, context.usable_cpus)
    assert (group.name, cpus) == ("pods", {4, 5, 6, 7})
    assert allocation_text(group) == "4 of 16 ways of L3, 50 of 100 parts of memory bandwidth"
    (raised,) = [flag for flag in machine_flags(context) if flag.code == "ALLOCATION_NARROWED"]
    assert "resctrl group pods gives CPUs 4-7 4 of 16 ways of L3" in raised.reason
    assert facts(context, None)["allocation"] == f"pods on CPUs 4-7: {allocation_text(group)}"


def caches(*domains):
    """Return the files of third-level caches, each with the number of its domain and its CPUs."""
    place = "/sys/devices/system/cpu/cpu%d/cache/index3/%s"
    return {
        place % (cpu, name): f"{text}\n"
        for number, cpus in domains
        for cpu in cpus
        for name, text in (("level", 3), ("type", "Unified"), ("id", number))
    }


@pytest.mark.parametrize(("group_cpus", "narrow", "text"), [
    ("2-7", {2, 3}, "4 of 16 ways of L3, 50 of 100 parts of memory bandwidth"),
    ("2,3", {2, 3}, "4 of 16 ways of L3, 50 of 100 parts of memory bandwidth"),
    ("4-7", set(), ""),
])  # fmt: skip
def test_a_domain_narrows_the_cpus_of_its_cache_only(make_root, group_cpus, narrow, text):
    files = {**schemata(cpus="0-1"), **schemata(group="/pods", l3="f", mb="50", cpus=group_cpus)}
    ids = caches((0, range(4)), (1, range(4, 8)))
    root = make_root({**BASE, **files, **ids, "/sys/bus/pci/devices/none/class": "0x060000\n"})
    both(root)
    context = load(root)
    found = list(narrowing_group(context.resctrl, context.usable_cpus))
    assert [(cpus, allocation_text(group)) for group, cpus in found] == ([(narrow, text)] if narrow else [])


def test_numbers_of_caches_are_read_only_where_something_is_allocated(make_root):
    root = make_root({**BASE, **caches((0, range(8)))})
    archive = base64.b64decode(capture.capture(str(root), sleep=lambda _: None)["archive"])
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        names = files.getnames()
    assert any(name.endswith("/cache/index3/level") for name in names)
    assert not any(name.endswith("/id") for name in names)


def test_of_several_domains_the_one_with_the_least_is_named(make_root):
    files = {**schemata(), f"{CONTROL}/schemata": "    L3:0=ff;1=f;2=fff\n    MB:0=60;1=40;2=50\n"}
    (group,) = both(make_root({**BASE, **files})).resctrl.groups
    assert allocation_text(group) == "4 of 16 ways of L3, 40 of 100 parts of memory bandwidth"


def test_full_groups_and_those_of_other_cpus_raise_nothing(make_root):
    full = both(make_root({**BASE, **schemata()}))
    assert full.resctrl.groups[0].narrowed == ()
    assert not [flag for flag in machine_flags(full) if flag.code == "ALLOCATION_NARROWED"]
    other = both(make_root({**BASE, **schemata(), **schemata(group="/pods", l3="f", cpus="")}))
    assert not [flag for flag in machine_flags(other) if flag.code == "ALLOCATION_NARROWED"]


def test_the_group_of_the_process_counts_on_all_cpus(make_root):
    files = {
        **schemata(),
        **schemata(group="/pods", l3="f", cpus=""),
        "/proc/self/cpu_resctrl_groups": "res:/pods\nmon:\n",
    }
    root = make_root({**BASE, **files, "/sys/bus/pci/devices/none/class": "0x060000\n"})
    both(root)
    context = load(root)  # a capture has the affinity of the test
    ((group, cpus),) = narrowing_group(context.resctrl, context.usable_cpus)
    assert (group.name, len(cpus)) == ("pods", 8)


MOUNT = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 24 0:27 / /sys/fs/resctrl rw - resctrl resctrl rw%s\n"


@pytest.mark.parametrize(("values", "mounted", "narrowed", "unchecked"), [
    ("0=100;1=70", "", [(1, 70, 100)], ()),
    ("0=500;1=70", "", [], ("MB",)),
    ("0=4294967295;1=70", "", [(1, 70, 0xFFFFFFFF)], ()),
    ("0=500;1=70", ",cdp,mba_MBps", [(0, 500, 0xFFFFFFFF), (1, 70, 0xFFFFFFFF)], ()),
    ("0=100;1=70", ",mba_MBps,debug", [(0, 100, 0xFFFFFFFF), (1, 70, 0xFFFFFFFF)], ()),
    ("0=100;1=0x46", "", [], ("MB",)),
])  # fmt: skip
def test_bandwidth_is_in_percent_or_in_mb_s(make_root, values, mounted, narrowed, unchecked):
    files = {f"{CONTROL}/schemata": f"MB:{values}\n", "/proc/self/mountinfo": MOUNT % mounted}
    resctrl = both(make_root({**BASE, **files})).resctrl
    assert [(item.domain, item.part, item.whole) for item in resctrl.groups[0].narrowed] == narrowed
    assert resctrl.unchecked == unchecked
    if narrowed:
        least = "70 of 100 parts" if narrowed[0][2] == 100 else "70 MB/s"
        assert allocation_text(resctrl.groups[0]) == f"{least} of memory bandwidth"


@pytest.mark.parametrize("case", [
    ("6.8.0-57-generic", "2048", "100", 2048),
    ("6.8.0-57-generic", "8192", "1024", 8192),
    ("6.18.1", "1024", "4096", 4096),
    ("6.18.1", "1024", "512", None),
    ("6.18.1", "3000", "512", None),
    ("6.7.12", "1024", "512", 2048),
    ("5.15.0-100-generic", "1024", "512", 2048),
    ("5.14.0-503.11.1.el9_5.x86_64", "1024", "512", None),
])  # fmt: skip
@pytest.mark.parametrize("resource", ["MB", "SMBA"])
def test_the_whole_bandwidth_of_amd_is_what_a_group_has_that_is_not_narrowed(make_root, resource, case):
    release, default, other, whole = case
    files = {
        "/proc/cpuinfo": "vendor_id : AuthenticAMD\n",
        "/proc/sys/kernel/osrelease": f"{release}\n",
        f"{CONTROL}/schemata": f"{resource}:0={default};1={default}\n",
        f"{CONTROL}/slow/schemata": f"{resource}:0={other};1={other}\n",
        "/sys/bus/pci/devices/none/class": "0x060000\n",
    }
    context = both(make_root({**BASE, **files}))
    resctrl = context.resctrl
    assert {item.whole for group in resctrl.groups for item in group.narrowed} == ({whole} if whole else set())
    assert resctrl.unchecked == (() if whole else (resource,))
    text = facts(context, None)["allocation"]
    if whole:
        assert f"{min(int(default), int(other))} of {whole} parts of" in text
    else:
        assert text == f"not checked, as the whole is unknown: {resource}"


def test_a_pseudo_locked_region_narrows_nothing(make_root):
    files = {
        **schemata(),
        **schemata(group="/locked", cpus="4-7"),
        f"{CONTROL}/locked/schemata": "L3:0=3\n",
        f"{CONTROL}/locked/mode": "pseudo-locked\n",
        f"{CONTROL}/next/schemata": "L3:uninitialized\n",
        f"{CONTROL}/next/mode": "pseudo-locksetup\n",
    }
    context = both(make_root({**BASE, **files}))
    assert [group.narrowed for group in context.resctrl.groups] == [(), (), ()]
    assert not [file for file in context.unreadable if "resctrl" in file.path]


@pytest.mark.parametrize("switch", ["auto", "__auto_type"])  # the second on Linux 6.18 to 7.0
def test_cxl_memory_and_weights(make_root, switch):
    bus = "/sys/bus/cxl/devices"
    files = {
        f"{bus}/mem0/ram/size": "0x4000000000\n",
        f"{bus}/mem0/numa_node": "0\n",
        f"{bus}/mem0/firmware_version": "1.4\n",
        f"{bus}/mem0/serial": "0xSECRET\n",
        f"{bus}/region0/size": "0x4000000000\n",
        f"{bus}/region0/interleave_ways": "2\n",
        f"{bus}/region0/interleave_granularity": "256\n",
        "/sys/devices/platform/region0/dax_region0/dax0.0/target_node": "2\n",
        "/sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 100 kB\n",
        "/sys/devices/system/node/node2/meminfo": "Node 2 MemTotal: 100 kB\n",
        f"{bus}/region1/size": "0x4000000000\n",
        f"{bus}/region1/interleave_ways": "4\n",
        "/sys/devices/platform/region1/dax_region1/dax1.0/target_node": "3\n",  # a device of its own, no node
        "/sys/devices/system/node/node0/cpulist": "0\n",
        "/sys/kernel/mm/mempolicy/weighted_interleave/node0": "5\n",
        "/sys/kernel/mm/mempolicy/weighted_interleave/node2": "2\n",
        "/sys/kernel/mm/mempolicy/weighted_interleave/node3": "1\n",  # possible, not online
        f"/sys/kernel/mm/mempolicy/weighted_interleave/{switch}": "true\n",
        "/sys/bus/pci/devices/nothing/class": "0x060000\n",
    }
    root = make_root({**BASE, **files})
    for number in range(2):
        target = f"../../../devices/platform/region{number}/dax_region{number}/dax{number}.0"
        link(root, f"/sys/bus/dax/devices/dax{number}.0", target)
    context = both(root)
    assert (context.cxl.nodes, context.cxl.regions[0].node, context.cxl.regions[0].ways) == ((2,), 2, 2)
    assert context.cxl.regions[1].node is None
    assert context.cxl.devices[0].volatile_bytes == 256 << 30
    assert context.interleaving.weights == {0: 5, 2: 2}
    assert context.interleaving.automatic is True
    found = facts(context, None)
    assert found["CXL memory"] == "1 x 256 GiB, region0 of 2 devices, region1 of 4 devices, node 2"
    assert found["interleave weights"] == "node 0: 5, node 2: 2 (automatic)"
    collector = capture.collect(str(root))
    assert "/sys/bus/dax/devices/dax0.0" in collector.links
    assert not [path for path in collector.files if "serial" in path]


TUNED = {
    "/etc/tuned/active_profile": "own\n",
    "/etc/tuned/profile_mode": "manual\n",
    "/etc/tuned/own/tuned.conf": "[main]\ninclude=base\n[variables]\nx=1\n[sysctl]\nvm.swappiness=10\nkernel.x=${x}\n"
    "net.core.rmem_max=>1000\n[sysfs]\n/sys/kernel/mm/ksm/run=0\n[bootloader]\ncmdline=a\n",
    "/usr/lib/tuned/base/tuned.conf": "[main]\nsummary=s\n[sysctl]\nvm.swappiness=60\nkernel.numa_balancing=0\n"
    "[vm]\ntransparent_hugepages=never\n[cpu]\ngovernor=performance\n",
    "/proc/sys/vm/swappiness": "10\n",
    "/proc/sys/kernel/numa_balancing": "1\n",
    "/proc/sys/net/core/rmem_max": "2000\n",
    "/sys/kernel/mm/ksm/run": "0\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
}


def test_a_profile_is_compared_with_the_machine(make_root):
    context = both(make_root({**BASE, **TUNED}))
    tuned = context.tuned
    assert (tuned.active, tuned.mode, tuned.profiles) == ("own", "manual", ("own", "base"))
    assert tuned.met == 3  # swappiness as the profile that includes the other sets it, rmem_max, ksm
    assert [(item.name, item.wanted, item.found) for item in tuned.differing] == [
        ("kernel.numa_balancing", "0", "1"),
        ("transparent huge pages", "never", "madvise"),
    ]
    assert sorted(tuned.unchecked) == ["governor", "kernel.x"]
    assert text_of("tuned settings", context) == (
        "3 of 5 met, 2 not checked; kernel.numa_balancing is 1, not 0, transparent huge pages is madvise, not never"
    )


def test_profiles_that_include_each_other_or_nothing(make_root):
    loop = {
        "/etc/tuned/a/tuned.conf": "[main]\ninclude=b\n",
        "/etc/tuned/b/tuned.conf": "[main]\ninclude=a, ../x, gone\n",
    }
    tuned = both(make_root({**BASE, **loop, "/etc/tuned/active_profile": "a\n"})).tuned
    assert (tuned.profiles, tuned.absent) == (("a", "b"), ("../x", "gone"))


def test_long_profiles_are_counted_whole_and_bounded(make_root):
    settings = "".join(f"kernel.a{number}=1\nkernel.b{number}=1\nkernel.c{number}=${{x}}\n" for number in range(100))
    files = {f"/proc/sys/kernel/a{number}": "0" * 1000 + "\n" for number in range(100)}
    files |= {f"/proc/sys/kernel/b{number}": "1\n" for number in range(100)}
    include = " ".join(f"gone{number}" for number in range(5000))
    profile = {"/etc/tuned/a/tuned.conf": f"[main]\ninclude={include}\n[sysctl]\n{settings}"}
    context = both(make_root({**BASE, **files, **profile, "/etc/tuned/active_profile": "a\n"}))
    text = text_of("tuned settings", context)
    assert text.startswith("100 of 200 met, 100 not checked; kernel.a0 is 000")
    assert " and 96 more; no file of gone0, gone1" in text
    assert len(text) < 2000


def test_a_profile_reads_nothing_but_settings(make_root):
    evil = "[sysctl]\n../../etc/shadow=1\n[sysfs]\n/etc/shadow=1\n/sys/../etc/shadow=1\n/sys/kernel/*=1\n"
    files = {"/etc/tuned/active_profile": "a\n", "/etc/tuned/a/tuned.conf": evil, "/etc/shadow": "secret\n"}
    collector = capture.collect(str(make_root({**BASE, **files})))
    assert not [path for path in collector.files if "shadow" in path]


@pytest.mark.parametrize(("wanted", "found", "met"), [
    ("10", "10", True),
    ("10", "11", False),
    (">10", "10", True),
    (">10", "9", False),
    ("<10", "9", True),
    ("<10", "11", False),
    ("4096 87380 16777216", "4096\t87380\t16777216", True),
    ("schedutil|performance", "performance", True),
    ("schedutil|performance", "powersave", False),
    ("madvise", "always [madvise] never", True),
    ("always", "always [madvise] never", False),
    ('"3 4 1 3"', "3\t4\t1\t3", True),
])  # fmt: skip
def test_values_of_profiles(wanted, found, met):
    assert is_met(wanted, found) is met


def test_no_identity_of_devices_is_captured():
    names = [
        *devices.DEVICE_FILES,
        *devices.PORT_FILES,
        *(name for names in devices.CLASS_FILES.values() for name in names),
    ]
    for word in ("serial", "address", "guid", "uuid", "wwn", "phys_switch", "vpd"):
        assert not [name for name in (*names, *devices.MEMORY_PATTERNS) if word in name.replace("address_mode", "")]
