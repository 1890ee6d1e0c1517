# SPDX-License-Identifier: Apache-2.0
"""Files that an inventory asks for: read only below /proc/sys and /sys, and without secrets, whatever links say."""

import base64
import os
from pathlib import Path

import pytest

from calibration.audit.files import open_files
from calibration.runner import capture, requested_files
from tests.captures import ARCHIVE, unpacked_names

CPU = "/sys/devices/system/cpu"


def captured(root: Path, *patterns: str) -> tuple[bytes, dict[str, str]]:
    """Return the capture of *root* with *patterns*, and what was unreadable."""
    found = capture.capture(str(root), sleep=lambda _: None, patterns=patterns)
    reasons = {item["path"]: item["reason"] for item in found["capture"]["unreadable"]}
    return base64.b64decode(found["archive"]), reasons


def test_files_that_were_asked_for_are_captured(make_root) -> None:
    root = make_root(
        {
            "/proc/sys/vm/max_map_count": "65530\n",
            "/proc/sys/net/ipv4/conf/eth0.1/rp_filter": "2\n",
            **{f"{CPU}/cpu{cpu}/power/energy_perf_bias": f"{cpu % 2}\n" for cpu in range(12)},
            "/sys/kernel/mm/ksm/run": "1\n",
        }
    )
    bias = f"{CPU}/cpu*/power/energy_perf_bias"
    patterns = ("/proc/sys/vm/max_map_count", "/proc/sys/net/ipv4/conf/*/rp_filter", bias, "/proc/sys/vm/nothing")
    archive, reasons = captured(root, *patterns)
    assert reasons == {}
    files = open_files(ARCHIVE, archive)
    assert files.asked == {*patterns, *requested_files.OF_STATES}
    assert files.find("/proc/sys/vm/max_map_count").values == {"/proc/sys/vm/max_map_count": "65530"}
    assert list(files.find(patterns[1]).values.values()) == ["2"]
    assert len(files.find(bias).values) == 12
    assert files.find("/proc/sys/vm/nothing") == ({}, None, True)
    assert files.find("/proc/sys/vm/other") == ({}, None, False)
    # Every capture has it, though nobody asked for it.
    assert files.find("/sys/kernel/mm/ksm/run").values == {"/sys/kernel/mm/ksm/run": "1"}


REFUSED = [
    "/etc/passwd", "/proc/1/environ", "/proc/kallsyms", "/proc/sys/../kcore", "/proc/sys//vm/swappiness",
    "/proc/sys/./vm/swappiness", "/sys/kernel/debug/x", "/sys/kernel/tracing/trace", "/sys/kernel/security/lockdown",
    "/sys/kernel/btf/vmlinux", "/sys/kernel/slab/x/cpu_slabs", "/sys/firmware/dmi/tables/DMI",
    "/sys/firmware/efi/efivars/x", "/sys/module/kvm/sections/.text", "/sys/module/kvm/notes/x",
    "/sys/class/dmi/id/board_serial", "/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/chassis_asset_tag",
    "/sys/class/net/eth0/address", "/sys/bus/pci/devices/0000:18:00.0/config", "/sys/bus/pci/devices/0000:18:00.0/rom",
    "/sys/bus/pci/devices/0000:18:00.0/resource0", "/sys/bus/pci/devices/0000:18:00.0/vpd", "/sys/block/nvme0n1/wwid",
    "/proc/sys/kernel/random/boot_id", "/proc/sys/net/ipv6/conf/all/stable_secret",
    "/proc/sys/net/ipv4/tcp_fastopen_key", "/sys/*/x", "/sys/devices/**/x", "/sys/devices/*/*/*/*",
    "/sys/devices/{a,b}", "/sys/devices/[ab]/x", "/sys/devices/a\nb", "/sys/" + "a" * 300, "",
]  # fmt: skip


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_may_be_secret_is_refused_on_both_sides(make_root, pattern: str) -> None:
    assert requested_files.fault(pattern) is not None
    place = pattern if pattern.startswith(("/proc", "/sys")) and "\n" not in pattern and len(pattern) < 200 else "/x"
    root = make_root({place: "secret\n", "/proc/cpuinfo": ""})
    archive, reasons = captured(root, pattern)
    assert place not in unpacked_names(archive) or place == "/sys/firmware/dmi/tables/DMI"  # masked
    assert any(reason.startswith("not read: ") for reason in reasons.values())


@pytest.mark.parametrize("pattern", [
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/net/ipv4/conf/eth0.1/rp_filter",
    f"{CPU}/cpu*/power/energy_perf_bias",
    "/sys/block/nvme?n1/queue/scheduler",
    "/sys/bus/pci/devices/0000:18:00.0/numa_node",
    "/sys/class/net/eth0/queues/rx-0/rps_cpus",
    "/sys/module/kvm_intel/parameters/nested",
    "/proc/sys/kernel/keys/maxkeys",
    "/sys/devices/virtual/workqueue/cpumask",
])  # fmt: skip
def test_ordinary_settings_are_not_refused(pattern: str) -> None:
    assert requested_files.fault(pattern) is None


def test_links_lead_to_nothing_that_is_refused(make_root) -> None:
    root = make_root(
        {
            "/etc/shadow": "secret\n",
            "/sys/kernel/debug/keys": "secret\n",
            "/sys/devices/virtual/dmi/id/board_serial": "secret\n",
            "/sys/devices/pci0/0000:18:00.0/numa_node": "1\n",
            "/sys/devices/pci0/0000:18:00.0/class": "0x020000\n",
            "/proc/sys/vm/swappiness": "60\n",
        }
    )
    (root / "sys/devices/a").symlink_to(root / "etc/shadow")
    (root / "sys/devices/b").symlink_to("../kernel/debug/keys")
    (root / "sys/devices/c").symlink_to("virtual/dmi/id")
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    (root / "sys/bus/pci/devices/0000:18:00.0").symlink_to("../../../devices/pci0/0000:18:00.0")
    os.mkfifo(root / "sys/devices/fifo")
    node = "/sys/bus/pci/devices/*/numa_node"
    archive, reasons = captured(
        root, "/sys/devices/a", "/sys/devices/b", "/sys/devices/c/*", "/sys/devices/fifo", "/sys/devices/virtual", node
    )
    assert b"secret" not in archive
    assert not {name for name in unpacked_names(archive) if name.startswith(("/sys/devices/a", "/sys/devices/c"))}
    assert reasons["/sys/devices/a"] == "not read: only files below /proc/sys and /sys are read"
    assert "secrets" in reasons["/sys/devices/b"]
    assert "secrets" in reasons["/sys/devices/c/board_serial"]
    assert reasons["/sys/devices/fifo"] == "not a regular file"
    # The link of a device is kept, and leads to the file.
    assert open_files(ARCHIVE, archive).find(node).values == {"/sys/bus/pci/devices/0000:18:00.0/numa_node": "1"}


def test_what_is_asked_for_is_bounded(make_root, monkeypatch) -> None:
    root = make_root(
        {**{f"{CPU}/cpu{cpu}/x": "1\n" for cpu in range(30)}, "/sys/devices/large": "x" * 5000, "/sys/devices/y": "1"}
    )
    archive, reasons = captured(root, "/sys/devices/large")
    assert reasons == {"/sys/devices/large": "larger than 4096 bytes"}
    monkeypatch.setattr(requested_files, "MAX_FILES", 20)
    archive, reasons = captured(root, f"{CPU}/cpu*/x")
    assert len([name for name in unpacked_names(archive) if name.endswith("/x")]) == 20
    assert set(reasons.values()) == {"not read: more than 20 files were asked for"}
    monkeypatch.setattr(requested_files, "MAX_PATTERNS", 2)
    archive, reasons = captured(root, "/sys/devices/a", "/sys/devices/b", "/sys/devices/y")
    assert reasons == {"/sys/devices/y": "not read: more than 2 patterns"}


def test_a_capture_full_of_lies_is_bounded(make_root) -> None:
    root = make_root({"/sys/devices/a/x": "1\n"})
    found = capture.collect(str(root), patterns=["/sys/devices/*/x"])
    lies = {"asked": ["/sys/devices/*/x", None, 7, ["x"]] * 1000, "unreadable": []}
    files = open_files(ARCHIVE, capture.pack(found.files, lies, 0))
    assert files.asked == {"/sys/devices/*/x"}
    assert files.find("/sys/devices/*/x").values == {"/sys/devices/a/x": "1"}
