# SPDX-License-Identifier: Apache-2.0
"""The role preflight: reading a SUT's facts, and the reasons for which a playbook fails.

tests/unit/test_preflight.py tests the checks of given facts.
"""

import ctypes
import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import Ended, Lab, inventory_of, load_plugin

from calibration.base.errors import CalibrationError, EnvironmentLacksError, InputError
from calibration.preflight.facts import read_facts
from calibration.runner import facts, files, lock

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: calibration.harness.preflight}
    - ansible.builtin.copy:
        dest: "{{ kept }}/{{ inventory_hostname }}.json"
        mode: "0600"
        content: >-
          {{ {'known': preflight_result.known, 'machine': preflight_result.machine,
          'limits': preflight_result.limits, 'testbeds': preflight_testbeds.identities} | to_json }}
"""

LIMIT = {"metric": "idle_latency.latency_ns", "upper": 500, "unit": "ns", "reason": "as it was"}

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "ansible": ({"preflight_ansible_minimum": "99.0"}, " is older than 99.0: start the calibration"),
    "profile": ({"calibration_profile": "quickly"}, "invalid profile: "),
    "results-space": (
        {"preflight_results_free_bytes": 1 << 60},
        "of 1152921504606846976 required: free some space",
    ),
    "no-python": (
        {"ansible_python_interpreter": "/no/such/python"},
        "The SUT's Python: expected 3.8 or newer, found no answer: ",
    ),
    "old-python": ({"preflight_sut_python_minimum": "99"}, "The SUT's Python: expected 99 or newer, found 3."),
    "machine": ({"preflight_architectures": ["vax"]}, "Architecture: expected one of vax, found "),
    "remote": (
        {"calibration_remote_base": "/no/such/directory"},
        f"expected a directory at /no/such/directory that user id {os.geteuid()} can write, found nothing.",
    ),
    "remote-space": (
        {"preflight_remote_free_bytes": 1 << 60},
        "Space for the run's directory: expected at least 1152921504606846976 bytes free at ",
    ),
    "declared": (
        {"preflight_severity": {"time": "blocking", "time_synchronised": "off"}, "preflight_time_offset_max_s": -1},
        "preflight_time_offset_max_s must be a number from 0 to 1e+09, not -1",
    ),
    "severity": (
        {"preflight_severity": {"kernel": "flag"}},
        "preflight_severity has no check 'kernel', only kernel_arguments, kernel_argument_values, kernel_release,",
    ),
    "limits": (
        {"calibration_limits": [{**LIMIT, "unit": "us"}]},
        "calibration_limits: the unit of idle_latency.latency_ns is ns, not us",
    ),
    "acceptance": (
        {"calibration_acceptance": "no_such_file"},
        "unknown acceptance file 'no_such_file'",
    ),
    "testbed": (
        {"calibration_testbed": "../elsewhere"},
        "not a valid testbed name: '../elsewhere'; use letters, digits, '.', '_' and '-', at most 128, the first a",
    ),
}


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "kernel": (
        {"preflight_kernel_release": "1.0.*"},
        f"Kernel release: expected 1.0.*, found {os.uname().release}. Boot that kernel",
    ),
    "isolated": ({"preflight_isolated_cpus": "4000-4001"}, "Isolated CPUs: expected 4000-4001, found "),
    "arguments": (
        {"preflight_kernel_arguments": "calibration.test=7"},
        "Kernel arguments: expected in this order: calibration.test=7, found calibration.test=7: missing",
    ),
    "sysctl": (
        {"preflight_sysctl": {"vm.max_map_count": "..1"}, "preflight_severity": {"sysctl": "blocking"}},
        "sysctl vm.max_map_count: expected ..1, found ",
    ),
    "state": (
        {"calibration_expected_state": "{lab}/expected.yml", "preflight_severity": {"sysfs": "blocking"}},
        "sysfs /sys/kernel/mm/ksm/sleep_millisecs: expected ..0, found ",
    ),
    "load": (
        {"preflight_background_load_max": 0, "preflight_severity": {"background_load": "blocking"}},
        "Other load on the CPUs to be measured: expected at most 0 % of ",
    ),
    "memory": (
        {"preflight_node_free_bytes": 1 << 60, "preflight_severity": {"free_memory": "blocking"}},
        f"Memory available on each node: expected at least {1 << 40} MiB available on node 0",
    ),
    "reserved": ({}, "the SUT is reserved by run unknown of unknown for unknown since unknown"),
    "silent": ({}, "a process has taken the SUT's lock and says nothing: find it with ss -xap | grep calibration-"),
}
"""SUTs that no run would measure, though they answer the first question as they should."""


@contextmanager
def busy_cpus() -> Iterator[None]:
    """Keep the first CPUs busy, one of which the smallest profile measures."""
    with ExitStack() as stack:
        for cpu in sorted(os.sched_getaffinity(0))[:8]:
            spin = f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"
            load = stack.enter_context(subprocess.Popen([sys.executable, "-c", spin]))
            stack.callback(load.kill)
        yield


@pytest.fixture(scope="module")
def checked(module_lab: Lab) -> Ended:
    good = {"calibration_testbed": "t1", "calibration_limits": [LIMIT]}
    own = {"preflight_kernel_release": os.uname().release[:1] + "*", "preflight_sysctl": {"vm.max_map_count": "1.."}}
    hosts = {name: variables for name, (variables, _) in CASES.items()}
    lab = str(module_lab.directory)
    hosts |= {name: json.loads(json.dumps(variables).replace("{lab}", lab)) for name, (variables, _) in UNFIT.items()}
    hosts |= {"good": good, "good-too": {**good, **own, "preflight_severity": {"bios": False, "microcode": "off"}}}
    (module_lab.directory / "expected.yml").write_text("sysfs: {/sys/kernel/mm/ksm/sleep_millisecs: ..0}\n")
    play = module_lab.directory / "play.yml"
    play.write_text(PLAY)
    kept = ("-e", f"kept={module_lab.directory}")
    with (
        closing(lock.take(f"{module_lab.lock}-reserved")),
        closing(socket.socket(socket.AF_UNIX)) as silent,
        busy_cpus(),
    ):
        silent.bind(f"\0{module_lab.lock}-silent")
        return module_lab.ansible("playbook", str(play), "-i", str(inventory_of(module_lab, hosts)), *kept)


@pytest.mark.parametrize("case", [*CASES, *UNFIT])
def test_a_check_fails_for_its_own_reason(checked: Ended, case: str) -> None:
    lines = [line for line in checked.text.splitlines() if line.startswith(f"{case}:")]
    words = {**CASES, **UNFIT}[case][1]
    assert sum(words in line for line in lines) == 1, checked.text
    assert len(lines) == 1 or case in UNFIT, checked.text


def test_a_good_sut_passes_with_details(checked: Ended, module_lab: Lab) -> None:
    assert checked.rc == 2
    paths = [path for path in module_lab.directory.glob("*.json") if path.name != "hosts.json"]
    found = {path.stem: json.loads(path.read_text()) for path in paths}
    assert set(found) == {"good", "good-too"}, checked.text
    good = found["good"]
    assert good["machine"] == os.uname().machine
    assert {check["name"]: check["outcome"] for check in good["known"]["checks"]}["time"] == "met"
    assert {check["severity"] for check in good["known"]["checks"]} == {"blocking", "flag"}
    assert [limit.items() >= LIMIT.items() for limit in good["limits"]] == [True]
    assert set(good["testbeds"]["t1"]) == {"good", "good-too"}
    assert good["testbeds"]["t1"]["good-too"]["off"] == ["microcode", "bios"]


# The controller

GOOD = {"ansible_minimum": "2.19", "profile": "quick", "results_dir": "/srv/results", "results_free_bytes": 10}
PLACE = {"path": "/srv/results", "existing": "/srv", "directory": True, "writable": True, "free_bytes": 10}


@pytest.mark.parametrize(
    ("found", "state", "error", "words"),
    [
        ("2.18.9", {}, EnvironmentLacksError, "ansible-core 2.18.9 is older than 2.19"),
        ("2.19.0", {"writable": False}, EnvironmentLacksError, "/srv/results: /srv is not writable;"),
        (
            "2.19.0",
            {"writable": False, "directory": False},
            EnvironmentLacksError,
            "/srv/results: /srv is not a directory; set calibration_results_dir",
        ),
        (
            "2.19.0",
            {"free_bytes": 9},
            EnvironmentLacksError,
            "only 9 bytes are free for the results at /srv/results, of 10 required",
        ),
    ],
)
def test_reports_a_fault_of_the_controller(
    found: str, state: dict[str, Any], error: type[CalibrationError], words: str
) -> None:
    action = load_plugin("action", "preflight")
    action.check_controller(GOOD, "2.19.0", lambda _: PLACE)
    with pytest.raises(error) as refused:
        action.check_controller(GOOD, found, lambda _: {**PLACE, **state})
    assert words in str(refused.value)


def test_an_unusable_profile_is_bad_input() -> None:
    action = load_plugin("action", "preflight")
    with pytest.raises(InputError, match=r"invalid profile: .*; correct it or calibration_profile"):
        action.check_controller({**GOOD, "profile": "none"}, "2.19.0", lambda _: PLACE)


def test_does_not_compare_suts_without_facts() -> None:
    action = load_plugin("action", "compare_testbeds")
    answers = [
        {"known": {"testbed": "t1", "identities": {"a": {"bios": "1"}}}},
        {"known": {"testbed": "t1", "identities": {"b": {"bios": "2"}}}},
        {"known": {"testbed": "t2", "identities": {"c": {"bios": "3"}}}},
        {"failed": True},
        None,
    ]
    assert action.by_testbed(answers) == {"t1": {"a": {"bios": "1"}, "b": {"bios": "2"}}, "t2": {"c": {"bios": "3"}}}


# The SUT's facts


def test_reads_the_state_of_a_directory_without_writing(tmp_path: Path) -> None:
    state = facts.directory_state(str(tmp_path))
    assert state["exists"]
    assert state["directory"]
    assert state["writable"]
    assert state["free_bytes"] > 0
    missing = facts.directory_state(str(tmp_path / "none"))
    assert (missing["exists"], missing["writable"], missing["free_bytes"]) == (False, False, None)
    assert list(tmp_path.iterdir()) == []


def test_finds_other_calibrations_below_the_same_directory(tmp_path: Path) -> None:
    for pid, program in (
        ("10", "/base/calibration-r-s-00000000/sutprobe"),
        ("11", "/elsewhere/sutprobe"),
        ("12", "/base/x"),
    ):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "exe").symlink_to(program)
    (tmp_path / "13").mkdir()
    proc = str(tmp_path)
    assert facts.running_kernels("/base", proc) == [{"pid": 10, "path": "/base/calibration-r-s-00000000/sutprobe"}]


def places(**modes: tuple[int, int, int]) -> Any:
    """Return an lstat of directories given as name=(mode, user, group); ``root`` is the root's."""

    def lstat(path: str) -> os.stat_result:
        mode, uid, gid = modes.get(Path(path).name or "root", (0o755, 0, 0))
        kind = stat.S_IFLNK if mode == 0o777 and uid < 0 else stat.S_IFDIR
        return os.stat_result((kind | mode, 0, 0, 1, max(uid, 0), gid, 0, 0, 0, 0))

    return lstat


@pytest.mark.parametrize(
    ("modes", "unsafe"),
    [
        ({}, {}),
        ({"tmp": (0o1777, 0, 0)}, {}),
        ({"tmp": (0o777, 0, 0)}, {"/var/tmp": "writable by all"}),
        ({"var": (0o775, 0, 0)}, {}),
        ({"var": (0o775, 0, 27)}, {"/var": "writable by group 27"}),
        ({"var": (0o755, 1000, 1000)}, {}),
        ({"var": (0o755, 1001, 0)}, {"/var": "owned by user id 1001"}),
        ({"tmp": (0o1777, 1001, 0)}, {"/var/tmp": "owned by user id 1001"}),
        ({"root": (0o757, 0, 0)}, {"/": "writable by all"}),
    ],
)
def test_reports_parent_directories_that_others_can_change(
    modes: dict[str, tuple[int, int, int]], unsafe: dict[str, str]
) -> None:
    found = files.unsafe_places("/var/tmp", 1000, places(**modes))
    assert {file["path"]: file["reason"] for file in found} == unsafe


def test_follows_symbolic_links_through_all_directories() -> None:
    lstat = places(link=(0o777, -1, 0), other=(0o777, -1, 0), shared=(0o777, 0, 0), pool=(0o775, 0, 27))
    targets = {"/srv/link": "/shared/other", "/shared/other": "../pool/runs"}
    found = files.unsafe_places("/srv/link", 0, lstat, targets.__getitem__)
    assert [file["path"] for file in found] == ["/pool", "/shared"]


CPUINFO = """processor\t: {0}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8462Y+
stepping\t: 8
microcode\t: {1}

"""


def test_reads_the_identity_of_a_sut(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    dmi = tmp_path / "sys/class/dmi/id"
    dmi.mkdir(parents=True)
    (tmp_path / "proc/cpuinfo").write_text("".join(CPUINFO.format(cpu, f"0x{cpu // 2}") for cpu in range(4)))
    for name, text in (("sys_vendor", "Example"), ("product_name", "Server"), ("bios_version", "1.2")):
        (dmi / name).write_text(text + "\n")
    assert facts.identity(str(tmp_path)) == {
        "cpu_model": "GenuineIntel 6/143/8 Intel(R) Xeon(R) Platinum 8462Y+",
        "microcode": ["0x0", "0x1"],
        "product": "Example Server",
        "bios": "1.2",
    }


def test_identifies_an_arm_processor_by_its_ids(tmp_path: Path) -> None:
    assert facts.identity(str(tmp_path)) == {"cpu_model": None, "microcode": [], "product": None, "bios": None}
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\n"
        "CPU part\t: 0xd0c\nCPU revision\t: 1\n"
    )
    assert facts.identity(str(tmp_path))["cpu_model"] == "0x41/8/0x3/0xd0c/1"


@pytest.mark.parametrize(
    ("state", "status", "expected"), [(0, 0x2001, True), (0, 0x40, False), (5, 0x40, False), (5, 0, False)]
)
def test_reads_clock_synchronisation_from_the_kernel(state: int, status: int, *, expected: bool) -> None:
    def adjtimex(pointer: Any) -> int:
        asked = pointer._obj
        assert asked.modes == 0
        asked.status, asked.maxerror = status, 2500
        return state

    assert facts.synchronisation(adjtimex) == {"synchronised": expected, "maximum_error_s": 0.0025, "reason": None}


def test_reports_why_clock_synchronisation_is_unknown() -> None:
    def adjtimex(_: Any) -> int:
        ctypes.set_errno(1)
        return -1

    assert facts.synchronisation(adjtimex)["reason"] == "adjtimex: Operation not permitted"
    assert ctypes.sizeof(facts.timex(ctypes)) == 208
    clock = facts.synchronisation()
    assert (clock["synchronised"] is None) == (clock["reason"] is not None)


def test_the_answer_of_a_sut_is_readable(tmp_path: Path) -> None:
    name = f"calibration-{os.getpid()}"
    with closing(lock.take(name)):
        answer = json.loads(json.dumps(facts.facts(str(tmp_path), name, time.time())))
    assert "run unknown of unknown for unknown" in answer["holder"]
    known = read_facts({**answer, "holder": None})
    assert known.remote_base.path == str(tmp_path)
    assert known.time.began_s <= known.time.ended_s
    assert known.remote_base.unsafe == ()
