# SPDX-License-Identifier: Apache-2.0
"""sutprobe in control groups: it keeps to its CPUs, and says when a quota stopped its threads."""

import json
from pathlib import Path
from typing import Any

from tests.confined import control_groups, run_in
from tests.tools import require_two


def answer(native: Path, groups: tuple[Path, ...], *arguments: str) -> tuple[int, dict[str, Any]]:
    done = run_in(groups, str(native), *arguments)
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def test_threads_stopped_by_a_quota_are_reported(native: Path, cpus: list[int]) -> None:
    jitter = ("jitter", "--cpus", str(cpus[-1]), "--view", "gaps", "--gap-s", "1")
    with control_groups({"cpu.max": "10000 100000"}) as groups:
        code, document = answer(native, groups, *jitter)
        _, info = answer(native, groups, "info")
    assert code == 0
    (warning,) = [warning for warning in document["warnings"] if warning["code"] == "CPU_QUOTA"]
    assert "stopped its threads in" in warning["message"]
    quota = next(row for row in info["result"]["privileges"] if row["name"] == "all_cpu_time")
    assert not quota["present"]
    assert quota["found"].endswith("is 0.1 CPUs")


def test_a_quota_that_suffices_stops_nothing(native: Path, cpus: list[int]) -> None:
    with control_groups({"cpu.max": "200000 100000"}) as groups:
        _, document = answer(native, groups, "jitter", "--cpus", str(cpus[-1]), "--view", "gaps", "--gap-s", "0.5")
    assert not [warning for warning in document["warnings"] if warning["code"] == "CPU_QUOTA"]


def test_a_cpu_outside_the_cpuset_is_refused(native: Path, cpus: list[int]) -> None:
    require_two(cpus)
    with control_groups({"cpuset.mems": "0", "cpuset.cpus": str(cpus[0])}) as groups:
        code, document = answer(native, groups, "jitter", "--cpus", str(cpus[-1]), "--view", "gaps", "--gap-s", "0.2")
    assert code == 3
    assert document["error"]["code"] == "pin_failed"
