# SPDX-License-Identifier: Apache-2.0
"""Gaps under the housekeeping load: it is there, it lasts, and it ends."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.jitter_rounds import JitterResult
from tests.probe.conftest import Probe
from tests.suts import wait_until
from tests.tools import require_two

WARM_NS = 300_000_000
"""More CPU time than a measuring thread takes before it watches."""

SHORT = ("--loops", "1000", "--executions", "50", "--intervals", "1", "--gap-s", "0.3")


def test_gaps_are_looked_for_under_a_load_that_ends(
    probe: Probe, cpus: list[int], forkers: Callable[[], list[int]]
) -> None:
    require_two(cpus)
    measured = ("jitter", "--cpus", str(cpus[-1]), *SHORT)
    for words, loaded in (((), False), (("--housekeeping-cpus", str(cpus[0])), True)):
        result = read_result(read_document(probe(*measured, *words).document), JitterResult)
        assert (result.forks_per_s is not None) is loaded
        assert result.forks_per_s is None or result.forks_per_s > 1
        assert not forkers()


@pytest.mark.parametrize(("cpu", "code"), [(0, "usage"), (1000, "cpu_offline")])
def test_a_load_that_cannot_be_made_is_an_error(probe: Probe, cpus: list[int], cpu: int, code: str) -> None:
    done = probe("jitter", "--cpus", str(cpus[0]), *SHORT, "--housekeeping-cpus", str(cpus[0] + cpu))
    assert (done.document["error"]["code"], done.document["result"]) == (code, None)


def watched_ns(process: int) -> int:
    """Return how long the threads of a *process* but the first have run."""
    paths = Path(f"/proc/{process}/task").glob("[0-9]*/schedstat")
    return sum(int(path.read_text(encoding="ascii").split()[0]) for path in paths if path.parent.name != str(process))


@pytest.mark.parametrize("killed", [True, False])
def test_a_load_that_did_not_last_costs_the_answer_and_a_signal_does_not(
    native: Path, cpus: list[int], forkers: Callable[[], list[int]], killed: bool
) -> None:
    require_two(cpus)
    words = ("jitter", "--cpus", str(cpus[-1]), "--view", "gaps", "--gap-s", "600" if not killed else "2")
    with subprocess.Popen([native, *words, "--housekeeping-cpus", str(cpus[0])], stdout=subprocess.PIPE) as process:
        wait_until(forkers)
        if killed:
            os.kill(min(forkers()), signal.SIGKILL)
        else:
            wait_until(lambda: watched_ns(process.pid) > WARM_NS)
            process.send_signal(signal.SIGTERM)
        stdout, _ = process.communicate(timeout=60)
    document = json.loads(stdout)
    wait_until(lambda: not forkers())
    if killed:
        assert document["result"] is None
        assert "housekeeping load on CPU" in document["error"]["message"]
    else:
        assert document["result"]["cpus"][0]["gaps"]["stopped"] == "interrupted"
