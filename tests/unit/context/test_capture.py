# SPDX-License-Identifier: Apache-2.0
"""The runner's part that captures a SUT: what it copies, what it blanks, and what it does not trip over."""

import base64
import errno
import io
import json
import mmap
import os
import tarfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from calibration.context.facts import text_of
from calibration.context.firmware import memory_devices, parse_structures
from calibration.context.loader import load
from calibration.runner import capture
from tests.unit.context.test_firmware import END, dimm, structure


def members(archive):
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive))) as opened:
        return {member.name: opened.extractfile(member).read() for member in opened}


def test_capture_of_this_machine_equals_live(tmp_path):
    result = capture.capture(uname_a="Linux here")
    archive = tmp_path / "context.tar.gz"
    archive.write_bytes(base64.b64decode(result["archive"]))
    captured, live = load(archive), load(Path("/"))
    assert captured.capture.uname == "Linux here"
    assert live.capture.uname == " ".join([*os.uname(), "GNU/Linux"])
    assert captured.capture.captured_at.endswith("Z")
    for name in ("topology", "distances", "caches", "processor", "mitigations", "clocksource", "cmdline", "firmware"):
        assert getattr(captured, name) == getattr(live, name), name
    assert captured.online_cpus == live.online_cpus
    assert captured.isolation.isolated == live.isolation.isolated
    assert captured.cpus.allowed == tuple(sorted(os.sched_getaffinity(0)))
    assert captured.memory.base_page_bytes == live.memory.base_page_bytes == mmap.PAGESIZE
    assert [(n.id, n.cpus) for n in captured.nodes] == [(n.id, n.cpus) for n in live.nodes]


def test_run_directory_is_read_through_its_archive(tmp_path):
    (tmp_path / "context.tar.gz").write_bytes(base64.b64decode(capture.capture()["archive"]))
    assert load(tmp_path).online_cpus == load(Path("/")).online_cpus


def test_copies_are_verbatim_and_oddities_listed(make_root):
    root = make_root({"/proc/meminfo": b"MemTotal:\x80 1 kB\n", "/sys/devices/system/cpu/online": "0-1\n"})
    os.mkfifo(root / "proc/cpuinfo")
    (root / "proc/version").symlink_to("/dev/zero")
    (root / "proc/stat").mkdir()
    (root / "proc/loadavg").symlink_to("nowhere")
    result = capture.capture(str(root))
    files = members(result["archive"])
    assert files["proc/meminfo"] == b"MemTotal:\x80 1 kB\n"
    assert {item["path"]: item["reason"] for item in result["capture"]["unreadable"]} == {
        "/proc/cpuinfo": "not a regular file",
        "/proc/version": "not a regular file",
    }
    assert json.loads(files["capture.json"]) == result["capture"]
    assert set(files) == {"proc/meminfo", "sys/devices/system/cpu/online", "capture.json"}


def test_size_number_and_time_are_bounded(make_root, monkeypatch):
    files = {"/proc/meminfo": "m" * 100, "/proc/cpuinfo": "c" * 300, "/proc/stat": "s" * 100, "/proc/uptime": "u" * 60}
    root = str(make_root(files))
    monkeypatch.setattr(capture, "MAX_FILE_BYTES", 200)
    monkeypatch.setattr(capture, "MAX_TOTAL_BYTES", 200)
    collector = capture.collect(root)
    assert sorted(collector.files) == ["/proc/meminfo", "/proc/stat"]
    assert collector.unreadable["/proc/cpuinfo"] == "larger than 200 bytes"
    assert "full" in collector.unreadable["/proc/uptime"]
    ticks = iter(range(0, 100_000, 40))
    collector = capture.collect(root, clock=lambda: next(ticks))
    assert list(collector.files) == ["/proc/cpuinfo"] or not collector.files
    assert any("longer than" in reason for reason in collector.unreadable.values())


def test_vanished_files_are_absent_and_unreadable_ones_listed(make_root, monkeypatch):
    root = make_root({"/proc/meminfo": "m", "/proc/stat": "s", "/proc/uptime": "u"})
    really_open = os.open

    def opened(path, *arguments):
        if str(path).endswith("meminfo"):
            raise OSError(3, "No such process")
        if str(path).endswith("proc/stat"):
            raise OSError(13, "Permission denied")
        return really_open(path, *arguments)

    monkeypatch.setattr(capture.os, "open", opened)
    collector = capture.collect(str(root))
    assert list(collector.files) == ["/proc/uptime"]
    assert collector.unreadable == {"/proc/stat": "Permission denied"}


def test_the_archive_is_a_standard_tar():
    files = {"/proc/a": b"x" * 513, "/sys/" + "d" * 120 + "/é": b"", "/proc/b": b"y" * 512}
    archive = capture.pack(files, {"schema": capture.SCHEMA}, 1_700_000_000.9)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        found = {member.name: (opened.extractfile(member).read(), member.mode, member.mtime) for member in opened}
    assert found.pop("capture.json")[0] == b'{\n "schema": "sut-context/1"\n}'
    assert found == {name[1:]: (content, 0o644, 1_700_000_000) for name, content in files.items()}
    assert archive == capture.pack(files, {"schema": capture.SCHEMA}, 1_700_000_000.9)


def test_frequency_policies_of_offline_cpus_are_absent(tmp_path, monkeypatch):
    def busy(path):
        raise OSError(errno.EBUSY, "Device or resource busy", path)

    monkeypatch.setattr(capture, "read_file", busy)
    collector = capture.FileCapture(str(tmp_path))
    policy, other = f"{capture.CPU}/cpufreq/policy3/boost", f"{capture.CPU}/online"
    assert (collector.copy(policy), collector.copy(other)) == (False, False)
    assert list(collector.unreadable) == [other]


def test_files_of_the_first_cpu_are_read_once(make_root):
    base = "/sys/devices/system/cpu"
    files = {}
    for cpu in (2, 3):
        files[f"{base}/cpu{cpu}/cpuidle/state0/name"] = "C1"
        files[f"{base}/cpu{cpu}/cpuidle/state0/disable"] = "0"
    once = capture.collect(str(make_root({**files, f"{base}/online": "2-3"}))).files
    assert f"{base}/cpu2/cpuidle/state0/name" in once
    assert f"{base}/cpu3/cpuidle/state0/name" not in once
    assert f"{base}/cpu3/cpuidle/state0/disable" in once
    assert capture.collect(str(make_root(files))).files.keys() == files.keys()


def test_threads_are_copied_only_if_cpus_are_isolated(make_root):
    files = {"/proc/7/task/7/status": "Name: x\n", "/proc/7/task/8/status": "Name: y\n"}
    isolated = "/sys/devices/system/cpu/isolated"
    assert not capture.collect(str(make_root({**files, isolated: "\n"}))).files.keys() & files.keys()
    assert capture.collect(str(make_root({**files, isolated: "1\n"}))).files.keys() >= files.keys()
    assert capture.collect(str(make_root({**files, f"{isolated[:-8]}nohz_full": "1\n"}))).files.keys() >= files.keys()
    for line in ("isolcpus=1", "rcu_nocbs", "quiet rcu-nocbs=1"):
        assert capture.collect(str(make_root({**files, "/proc/cmdline": line}))).files.keys() >= files.keys()


def test_lists_are_preferred_to_masks(make_root):
    base = "/sys/devices/system/cpu/cpu0/topology"
    both = capture.collect(str(make_root({f"{base}/thread_siblings": "1", f"{base}/thread_siblings_list": "0"})))
    assert list(both.files) == [f"{base}/thread_siblings_list"]
    old = capture.collect(str(make_root({f"{base}/thread_siblings": "1"})))
    assert list(old.files) == [f"{base}/thread_siblings"]


def system_table():
    area = bytearray(23)
    area[0], area[3] = 1, 2
    area[4:20] = bytes(range(0xA0, 0xB0))
    vendor = structure(200, b"MAC:001122", "00:11:22:33:44:55")
    slot = bytearray(dimm(1024))
    slot[0x18], slot[0x19] = 5, 6
    slot = bytes(slot[:-1]) + b"DIMM-SERIAL\0DIMM-TAG\0\0"
    return structure(1, bytes(area), "Maker", "BOX-SERIAL") + slot + vendor + structure(11, b"\1", "OEM-SECRET") + END


def test_dmi_identity_is_blanked_and_the_structure_kept():
    table = system_table()
    masked = capture.mask_dmi(table)
    assert len(masked) == len(table)
    for secret in (b"SERIAL", b"TAG", b"SECRET", b"00:11", b"001122", bytes(range(0xA0, 0xB0))):
        assert secret in table
        assert secret not in masked
    before, after = parse_structures(table).structures, parse_structures(masked).structures
    assert memory_devices(after) == memory_devices(before)
    assert [s.type for s in after] == [1, 17, 200, 11, 127]
    assert capture.mask_dmi(masked) == masked


def test_unknown_structures_are_blanked():
    broken = dimm(1) + b"\x01\xff\0\0SERIAL-AT-THE-END"
    masked = capture.mask_dmi(broken)
    assert masked == dimm(1) + b"\xff" * (len(broken) - len(dimm(1)))
    assert b"SECRET" not in capture.mask_dmi(system_table() + b"after the end: SECRET")


def test_strings_that_no_kept_field_names_are_blanked():
    """Behind a vendor's structure of a wrong length, bytes of a serial number may look like a structure of any type."""
    table = structure(200, b"\0") + b"\0\4\0\0SERIAL-1\0SERIAL-2\0\0"
    shared = bytearray(dimm(1))
    shared[0x18] = shared[0x10]  # the locator is the serial number
    for content in (table, bytes(shared).replace(b"A1", b"SERIAL")):
        assert b"SERIAL" not in capture.mask_dmi(content)
    assert b"A1" in capture.mask_dmi(dimm(1))


@given(st.binary(max_size=200))
def test_a_masked_dmi_table_keeps_its_length(table):
    assert len(capture.mask_dmi(table)) == len(table)


def test_serial_numbers_in_text_files_are_blanked(make_root):
    root = make_root(
        {
            "/proc/cpuinfo": "Serial\t\t: 00000000deadbeef\n"
            "processor 0: version = FF,  identification = 279F25,  machine = 2817\n",
            "/proc/sysinfo": "Type: 8561\nSequence Code:        00000000000829E8\nVM00 UUID:            aa-bb\n",
        }
    )
    collector = capture.collect(str(root))
    text = collector.text("/proc/cpuinfo") + collector.text("/proc/sysinfo")
    assert not any(secret in text for secret in ("deadbeef", "279F25", "829E8", "aa-bb"))
    assert "machine = 2817" in text
    assert sorted(collector.masked) == ["/proc/cpuinfo", "/proc/sysinfo"]


def test_serial_numbers_are_read_with_consent_only(make_root, tmp_path):
    names = {"product_serial": "ABC123", "board_serial": "B-7", "chassis_serial": "C 9"}
    files = {f"/sys/class/dmi/id/{name}": f"{text}\n" for name, text in names.items()}
    root = make_root({"/sys/devices/system/cpu/online": "0\n"} | files)
    without = members(capture.capture(str(root))["archive"])
    assert not [name for name in without if "serial" in name]
    archive = tmp_path / "with.tar.gz"
    archive.write_bytes(base64.b64decode(capture.capture(str(root), serials=True)["archive"]))
    context = load(archive)
    found = context.firmware
    assert (found.system_serial, found.board_serial, found.chassis_serial) == ("ABC123", "B-7", "C 9")
    assert text_of("serial numbers", context) == "system ABC123, board B-7, chassis C 9"
    live = load(Path("/")).firmware  # as root they could be read
    assert live.system_serial is live.board_serial is live.chassis_serial is None


def test_secrets_are_blanked_and_named_wherever_the_command_line_is_copied(make_root):
    line = "quiet netroot=iscsi:u:hunter2@192.0.2.1::::iqn rd.iscsi.password=hunter2 isolcpus=1"
    root = make_root(
        {
            "/proc/cmdline": f"{line}\n",
            "/etc/tuned/active_profile": "own\n",
            "/etc/tuned/own/tuned.conf": f"[bootloader]\ncmdline_x=+{line}\n",
        }
    )
    collector = capture.collect(str(root))
    assert collector.text("/proc/cmdline") == (
        "quiet netroot=iscsi:<blanked>@192.0.2.1::::iqn rd.iscsi.password=<blanked> isolcpus=1"
    )
    assert not any(b"hunter2" in content for content in collector.files.values())
    what = "passwords, tokens, credentials"
    assert collector.masked == dict.fromkeys(("/proc/cmdline", "/etc/tuned/own/tuned.conf"), what)
    assert "hunter2" not in load(root).model_dump_json(), "a tree that nothing blanked"


def test_no_pattern_captures_identity():
    patterns = capture.PATTERNS + capture.OLD_FREQUENCY_PATTERNS + capture.DEVICE_TREE_PATTERNS
    for word in ("serial", "uuid", "asset", "address", "system-id"):
        assert not [pattern for pattern in patterns if word in pattern]
