# SPDX-License-Identifier: Apache-2.0
"""What the kernel was built with, and the errors that it logged: on the SUT, and as facts."""

import errno
import gzip
import json
import os
import socket
from pathlib import Path

import pytest

from calibration.acceptance.limits import kernel_kind
from calibration.context.facts import facts, shown
from calibration.judge.words import changed_fact
from calibration.runner import capture, kernel
from tests.captures import captured, changed, machine_of

RELEASE = "6.12.6-amd64"
CONFIGURATION = """\
# Linux/x86 6.12.6 Kernel Configuration
CONFIG_HZ=250
CONFIG_PREEMPT_VOLUNTARY=y
# CONFIG_NO_HZ_FULL is not set
CONFIG_DEFAULT_HOSTNAME="secret"
"""
OTHER_ORDER = 'CONFIG_DEFAULT_HOSTNAME="secret"\n# another comment\nCONFIG_PREEMPT_VOLUNTARY=y\nCONFIG_HZ=250\n'


def built(make_root, files):
    collector = capture.FileCapture(str(make_root({"/proc/sys/kernel/osrelease": f"{RELEASE}\n", **files})))
    return kernel.build(collector), collector.unreadable


@pytest.mark.parametrize("path", ["/proc/config.gz", f"/boot/config-{RELEASE}", f"/lib/modules/{RELEASE}/config"])
def test_a_build_is_the_hash_of_its_options_and_those_that_explain(make_root, path):
    def pack(text):
        return gzip.compress(text.encode()) if path.endswith(".gz") else text

    found, unreadable = built(make_root, {path: pack(CONFIGURATION)})
    assert not unreadable
    assert (found["path"], found["options"]) == (path, {"HZ": "250", "PREEMPT_VOLUNTARY": "y"})
    assert built(make_root, {path: pack(OTHER_ORDER)})[0] == found
    other, _ = built(make_root, {path: pack(CONFIGURATION.replace("secret", "other"))})
    assert other["options"] == found["options"]
    assert other["sha256"] != found["sha256"]


@pytest.mark.parametrize(("content", "reason"), [
    (b"no gzip", "incorrect header check"),
    (gzip.compress(b"#" * (kernel.MAX_CONFIGURATION_BYTES + 1)), "larger than"),
])  # fmt: skip
def test_an_unusable_configuration_is_listed_and_the_next_one_read(make_root, content, reason):
    files = {"/proc/config.gz": content, f"/boot/config-{RELEASE}": CONFIGURATION}
    found, unreadable = built(make_root, files)
    assert found["path"] == f"/boot/config-{RELEASE}"
    assert reason in unreadable["/proc/config.gz"]
    assert built(make_root, {f"/boot/config-{RELEASE}0": CONFIGURATION}) == (None, {})


MESSAGES = [
    ("mce: [Hardware Error]: Machine check events logged", "machine check", None),
    ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010090", "machine check", "CPU 3"),
    ("{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4", "firmware report", None),
    ("EDAC MC1: 2 CE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0 slot:0)", "memory", "MC1"),
    ("EDAC MC0: UE page 0x0, offset 0x0, grain 0, row 7", "memory", "MC0"),
    ("Memory failure: 0x3a5f21: recovery action for dirty LRU page: Recovered", "memory", None),
    ("pcieport 0000:00:1c.0: AER: Corrected error received: 0000:01:00.0", "PCIe", "0000:00:1c.0"),
    ("pcieport 10000:00:01.1: AER: Multiple Uncorrectable (Non-Fatal) error message received from 10000:01:00.0",
     "PCIe", "10000:00:01.1"),
    ("pci 0000:04:00.0: broken device, retraining non-functional downstream link at 2.5GT/s", "PCIe link",
     "0000:04:00.0"),
    ("pcieport 0000:17:01.0: pciehp: Slot(21): Link Down", "PCIe link", "0000:17:01.0"),
    ("mce: CPU12: Core temperature above threshold, cpu clock throttled (total events = 4)", "throttling", "CPU12"),
    ("CPU7: Package temperature is above threshold, cpu clock is throttled (total events = 1)", "throttling", "CPU7"),
    ("watchdog: BUG: soft lockup - CPU#5 stuck for 22s! [secretd:4711]", "lockup or stall", "CPU#5"),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 9", "lockup or stall", "cpu 9"),
    ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "lockup or stall", None),
    ("INFO: task secretd:4711 blocked for more than 120 seconds.", "lockup or stall", None),
    ("sched: RT throttling activated", "lockup or stall", None),
    ("hrtimer: interrupt took 23141 ns", "long interrupt", None),
    ("INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.523 msecs", "long interrupt", None),
    ("clocksource: timekeeping watchdog on CPU3: Marking clocksource 'tsc' as unstable because the skew is too large:",
     "unstable clock", "tsc"),
    ("I/O error, dev nvme0n1, sector 1465149168 op 0x0:(READ) flags 0x0", "I/O", "nvme0n1"),
    ("nvme nvme1: I/O 12 QID 3 timeout, aborting", "I/O", "nvme1"),
    ("ata3.00: failed command: READ FPDMA QUEUED", "I/O", "ata3"),
    ("WARNING: CPU: 3 PID: 4711 at kernel/sched/core.c:1 secret+0x1/0x2", "kernel fault", None),
    ("BUG: unable to handle page fault for address: ffffc90000000000", "kernel fault", None),
]  # fmt: skip

HARMLESS = [
    "Command line: isolcpus=2-3", "mce: CPU0: Thermal monitoring enabled (TM1)", "MCE: In-kernel MCE decoding enabled.",
    "pcieport 0000:00:1c.0: AER: enabled with IRQ 24", "EDAC MC: Ver: 3.0.0", "NMI watchdog: Enabled. Permanently",
    "EDAC MC0: Giving out device to module skx_edac controller", "clocksource: Switched to clocksource tsc",
    "Speculative Return Stack Overflow: WARNING: See https://kernel.org/", "ata3.00: configured for UDMA/133",
    "pcieport 0000:17:01.0: pciehp: Slot(21): Link Up", "thermal_sys: Registered thermal governor 'step_wise'",
]  # fmt: skip


def record(message, number=0, priority=3):
    return f"{priority},{number},{number * 1000},-;{message}\n SUBSYSTEM=secret\n".encode()


@pytest.mark.parametrize(("message", "kind", "place"), MESSAGES)
def test_a_message_is_counted_under_its_kind_with_its_place_alone(message, kind, place):
    found = kernel.errors([record("quiet"), record(message, 1), record(message, 2)])
    assert found["errors"] == {kind: {"count": 2, "places": [place] if place else []}}
    assert "secret" not in json.dumps(found)


def test_every_kind_has_a_message():
    assert {kind for _, kind, _ in MESSAGES} == set(kernel.ERRORS)


@pytest.mark.parametrize("message", HARMLESS)
def test_usual_messages_are_no_errors(message):
    assert kernel.errors([record(message)])["errors"] == {}


def test_messages_of_processes_and_broken_records_do_not_count_and_places_are_bounded():
    forged = record("hrtimer: interrupt took 1 ns", priority=(1 << 3) | 3)
    found = kernel.errors([b"\xff\xff", b"1;x", record("a", 7), forged])
    assert found == {"records": 2, "first": 7, "first_s": 0.007, "errors": {}}
    many = [record(f"nvme nvme{number}: I/O 1 QID 1 timeout", number) for number in range(100)]
    found = kernel.errors(many)["errors"]["I/O"]
    assert (found["count"], len(found["places"])) == (100, kernel.MAX_PLACES)


def test_records_end_where_the_log_does_and_overwritten_ones_are_left_out(monkeypatch):
    log, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with log, writer:
        log.setblocking(False)
        for number in range(3):
            writer.send(record("x", number))
        really_read, overwritten = os.read, iter([True])

        def read(descriptor, size):
            if next(overwritten, False):
                raise OSError(errno.EPIPE, "Broken pipe")
            return really_read(descriptor, size)

        monkeypatch.setattr(os, "read", read)
        assert list(kernel.records(log.fileno())) == [record("x", number) for number in range(3)]
        monkeypatch.setattr(kernel, "MAX_RECORDS", 2)
        for number in range(3):
            writer.send(record("x", number))
        assert len(list(kernel.records(log.fileno()))) == 2


def test_a_log_that_may_not_be_read_is_listed(make_root, monkeypatch):
    def refused(path, *_):
        raise PermissionError(errno.EPERM, "Operation not permitted", path)

    collector = capture.FileCapture(str(make_root({})))
    assert kernel.log(collector) is None
    assert collector.unreadable == {}
    monkeypatch.setattr(os, "open", refused)
    assert kernel.log(collector) is None
    assert collector.unreadable == {kernel.KMSG: "Operation not permitted"}


def described(**told):
    """Return the facts of a captured machine whose capture *told* more, and those shown."""
    context = machine_of(changed("x86_64-isolated", {}, told=told)).context
    return facts(context, None), dict(shown(context)), context


BUILD = {"path": "/proc/config.gz", "sha256": "0123456789abcdef" * 4, "options": {"HZ": "250", "NO_HZ_FULL": "y"}}
LOG = {"records": 900, "first": 0, "first_s": 0.0, "errors": {"PCIe": {"count": 12, "places": ["0000:17:00.0"]}}}


def test_builds_that_differ_name_their_options():
    one, page, _ = described(kernel_build=BUILD)
    other, _, _ = described(kernel_build={**BUILD, "options": {"HZ": "1000"}})
    assert page["Kernel build configuration"] == "SHA-256 0123456789ab (/proc/config.gz)"
    assert one["kernel options"] == "SHA-256: 0123456789ab; HZ: 250; NO_HZ_FULL"
    assert changed_fact(one["kernel options"], other["kernel options"]) == "HZ: 250 -> 1000, -NO_HZ_FULL"


def test_errors_are_compared_by_kind_and_shown_with_counts_and_places():
    few, page, _ = described(kernel_log=LOG)
    more = {**LOG, "errors": {"PCIe": {"count": 99, "places": []}}, "first": 5, "first_s": 86400.4}
    assert few["errors in the kernel log"] == described(kernel_log=more)[0]["errors in the kernel log"] == "PCIe"
    label = "Messages of errors in the kernel log"
    assert page[label] == "12 x PCIe (0000:17:00.0)"
    assert described(kernel_log=more)[1][label] == "99 x PCIe; before 86400 s after boot unknown"
    clean, page, _ = described(kernel_log={**LOG, "errors": {}})
    assert clean["errors in the kernel log"] == "none"
    assert label not in page


@pytest.mark.parametrize("told", [
    {"kernel_build": {**BUILD, "sha256": "short"}},
    {"kernel_build": {**BUILD, "options": {"HZ": "\x1b[2J"}}},
    {"kernel_build": {**BUILD, "options": {f"A{number}": "y" for number in range(1000)}}},
    {"kernel_log": {**LOG, "errors": {"PCIe": {"count": -1, "places": []}}}},
    {"kernel_log": {**LOG, "errors": {"x": {"count": 1, "places": ["\u202e"]}}}},
    {"kernel_log": [1]},
])  # fmt: skip
def test_what_a_capture_says_of_them_is_checked(told):
    found, _, context = described(**told)
    assert found["kernel options"] == found["errors in the kernel log"] == "not known"
    assert [item.path for item in context.unreadable if "unparsable" in item.reason] == ["/capture.json"]


@pytest.mark.parametrize(("version", "file", "kind"), [
    ("#1 SMP PREEMPT_RT Debian 6.12.6-1", None, "real_time"),
    ("#1 SMP PREEMPT RT Debian 4.19.289-2", None, "real_time"),
    ("#1 SMP PREEMPT_DYNAMIC Debian 6.12.6-1", "1\n", "real_time"),
    ("#1 SMP PREEMPT_DYNAMIC Debian 6.12.6-1", None, "other"),
    (None, None, None),
])  # fmt: skip
def test_a_kernel_for_real_time_says_so(version, file, kind):
    files = {"/sys/kernel/realtime": file, "/proc/sys/kernel/version": version, "/proc/version": None}
    archive = changed("x86_64-isolated", files, told={"uname": None})
    assert kernel_kind(machine_of(archive).context) == kind


def test_the_capture_of_this_machine_has_both():
    described = capture.capture()["capture"]
    listed = {item["path"] for item in described["unreadable"]}
    assert described["kernel_log"] is not None or kernel.KMSG in listed or not Path(kernel.KMSG).exists()
    assert captured("x86_64-isolated").kernel.build is None
