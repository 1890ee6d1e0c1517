# SPDX-License-Identifier: Apache-2.0
"""The contract of every kind on the largest machines: its answers fit all limits between the SUT and the page.

The machine has 504 CPUs and 16 nodes, the profile is the fullest, with as many pairs of CPUs as it may have. Answers
are recorded ones, repeated for every CPU, node or pair that a step asks for (``tests/machines.py``). A kind added later
is held to it without a change here.
"""

import cProfile
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pstats import Stats
from typing import Final

import pytest
from click.testing import CliRunner

from calibration.audit.kinds import read_items
from calibration.base.bounds import MEMORY_SPARE_BYTES, PARSE_FACTOR
from calibration.cli import calibration
from calibration.context.loader import load
from calibration.context.model import Context
from calibration.finish import finish
from calibration.measurements import registry
from calibration.measurements.base import Step
from calibration.preflight.agreement import Known
from calibration.preflight.examination import evaluate
from calibration.preflight.expectations import Expectations
from calibration.profiles import Profile, load_profile
from calibration.report.page import render
from calibration.results.documents import MAX_DOCUMENT_BYTES
from calibration.results.layout import RUN
from calibration.results.store import open_run, read_run
from calibration.run.attempts import outstanding
from calibration.run.plan import make_plan, plan_text
from calibration.run.records import MAX_RECORDS_BYTES
from calibration.run.remote import RECORD_BYTES
from calibration.runner import capture, settings
from calibration.runner.directory import STEP_BYTES
from calibration.sutprobe.document import MAX_PARTS
from tests.machines import CORES_PER_LLC, GROWN, NODE_BYTES, Machine, answer
from tests.rounds import first_round
from tests.unit.machines import machine
from tests.unit.test_large_machines import NOW, Made, made

LARGEST: Final = Machine(cpus=504, cpu_nodes=12, memory_only_nodes=4, lines=2000)

FULLEST: Final = frozenset({"wakeup"})
"""Kinds whose made answer is the longest that sutprobe can print; those of others vary with the machine."""

SPARE: Final = 2
"""How many times as long the answers of other kinds may be."""

NOT_HERE: Final = {"counted_volume", "regulation"}
"""Kinds that need hardware counters, which a tree of files does not have; they measure one place each."""

ASSEMBLY_BYTES: Final = 2 << 30
"""Memory in which a run is assembled on the controller; with the longest answers possible it takes three quarters."""

MAX_GROWTH: Final = 2.5
"""What the second doubling of CPUs may add, as a multiple of what the first one adds: 2 if linear, 4 if quadratic."""


def context_of(cpus: int) -> Context:
    """Return the context of the largest machine with so many CPUs, isolated but for the first core of each node."""
    nodes, threads = LARGEST.cpu_nodes, LARGEST.threads
    found = machine(
        packages=2,
        nodes=nodes,
        cores=cpus // nodes // threads,
        threads=threads,
        node_bytes=NODE_BYTES,
        llc_bytes=32 << 20,
        llc_cores=CORES_PER_LLC,
        memory_only_bytes=(NODE_BYTES,) * LARGEST.memory_only_nodes,
    )
    kept = {cpu for node in found.nodes if node.cpus for cpu in found.siblings(node.cpus[0])}
    isolated = tuple(cpu for cpu in found.online_cpus if cpu not in kept)
    return found.model_copy(update={"isolation": found.isolation.model_copy(update={"isolated": isolated})})


def with_pairs(**pairs: int) -> Profile:
    """Return the profile ``full`` with other numbers of pairs in the matrix of CPUs, and a burn-in."""
    full = load_profile("full")
    burn_in = load_profile("burn_in").measurements
    matrix = full.measurements["c2c_matrix"].model_copy(update=pairs)
    return full.model_copy(update={"measurements": {**full.measurements, **burn_in, "c2c_matrix": matrix}})


MOST_PAIRS: Final = {"row_pairs": 8 * (LARGEST.cpus - 1), "pairs_per_class": 46}
"""Nearly as many as a run of the machine may have; with two rows more they are refused."""


def planned(context: Context) -> dict[str, Step]:
    return {step.id: step for step in make_plan(context, with_pairs(**MOST_PAIRS), prefetchers_ok=True).steps}


@pytest.fixture(scope="module")
def largest() -> Context:
    return context_of(LARGEST.cpus)


@pytest.fixture(scope="module")
def steps(largest: Context) -> dict[str, Step]:
    return planned(largest)


@pytest.fixture(scope="module")
def answers(steps: dict[str, Step]) -> dict[str, str]:
    """What each step prints in one round."""
    return {
        name: json.dumps(first_round(answer(step), step.rounds), separators=(",", ":")) for name, step in steps.items()
    }


def test_every_kind_is_planned(steps: dict[str, Step]) -> None:
    assert {step.kind for step in steps.values()} | NOT_HERE == registry().keys()


@pytest.mark.parametrize(("pairs", "asked"), [
    ({"full_pairs": LARGEST.cpus * LARGEST.cpus}, LARGEST.cpus * (LARGEST.cpus - 1)),
    (MOST_PAIRS | {"row_pairs": 10 * (LARGEST.cpus - 1)}, 10 * (LARGEST.cpus - 1)),
    ({"pairs_per_class": 1000}, 4 * 2 * 1000),
])  # fmt: skip
def test_more_pairs_of_cpus_than_fit_are_refused(largest: Context, pairs: dict[str, int], asked: int) -> None:
    plan = make_plan(largest, with_pairs(**pairs), prefetchers_ok=True)
    assert not [step for step in plan.steps if step.kind == "c2c_matrix"]
    *_, refused = [skipped for skipped in plan.not_planned if skipped.kind == "c2c_matrix"]
    assert int(refused.what.split()[0]) >= asked
    found = re.fullmatch(r"at most (\d+) pairs fit into a run's answers; lower full_pairs, .*", refused.reason)
    assert found is not None
    assert int(found[1]) < asked


def test_answers_of_kinds_that_grow_are_made_large(steps: dict[str, Step]) -> None:
    small = planned(context_of(LARGEST.cpus // 4))
    growing = {step.kind for name, step in steps.items() if name not in small or len(step.cpus) > len(small[name].cpus)}
    assert growing <= GROWN.keys()


def test_answers_fit_what_the_sut_may_print(steps: dict[str, Step], answers: dict[str, str]) -> None:
    spare = {name: 1 if steps[name].kind in FULLEST else SPARE for name in steps}
    assert [name for name, text in answers.items() if spare[name] * len(text) > STEP_BYTES] == []
    parts = {name: text.count("{") + text.count("[") for name, text in answers.items()}
    assert [name for name, count in parts.items() if SPARE * count > MAX_PARTS] == []


def test_answers_fit_what_the_controller_takes(steps: dict[str, Step], answers: dict[str, str]) -> None:
    assert [name for name, text in answers.items() if len(json.dumps({"stdout": text})) > RECORD_BYTES] == []
    commands = {name: step.rounds + step.more_rounds for name, step in steps.items()}
    assert sum(commands[name] * len(text) for name, text in answers.items()) < MAX_RECORDS_BYTES


READS: Final = """
import sys
from pathlib import Path
from calibration.run.answers import judge_answer, read_record
for path in map(Path, sys.argv[1:]):
    answer = read_record(path.read_text(encoding="utf-8"))
    outcome, reason, document = judge_answer(answer, None)
    assert document is not None, (path.name, outcome, reason)
"""


def test_answers_are_read_in_the_memory_of_a_worker(
    steps: dict[str, Step], answers: dict[str, str], tmp_path: Path
) -> None:
    assert PARSE_FACTOR * STEP_BYTES + MEMORY_SPARE_BYTES < 1 << 30
    longest = {steps[name].kind: name for name in sorted(answers, key=lambda name: len(answers[name]))}
    for name in longest.values():
        record = {"record": "step", "id": name, "rc": 0, "stdout": answers[name]}
        (tmp_path / name).write_text(json.dumps(record), "utf-8")
    paths = map(str, sorted(tmp_path.iterdir()))
    done = subprocess.run([sys.executable, "-c", READS, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Thorough: the run of every kind, from its records to every page


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    """Runs of a machine, and of those with twice and four times its CPUs."""
    counts = (LARGEST.cpus // 4, LARGEST.cpus // 2, LARGEST.cpus)
    return [made(replace(LARGEST, cpus=cpus), tmp_path_factory.mktemp(str(cpus)), "full") for cpus in counts]


ASSEMBLES: Final = """
import resource, sys
from datetime import UTC, datetime
from pathlib import Path
from calibration.finish import finish
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[2]), int(sys.argv[2])))
document = finish(Path(sys.argv[1]), now=datetime(2026, 1, 2, tzinfo=UTC))
assert document.run.status == "complete", document.not_measured
"""


@pytest.mark.thorough
def test_the_largest_run_is_assembled_in_bounded_memory(sizes: list[Made]) -> None:
    command = [sys.executable, "-c", ASSEMBLES, str(sizes[-1].run), str(ASSEMBLY_BYTES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert SPARE * (sizes[-1].run / RUN).stat().st_size < MAX_DOCUMENT_BYTES


def command(*words: str) -> Callable[[Made], object]:
    """Return what runs a command; ``RUN`` is the run's directory, ``RESULTS`` that of all."""

    def ran(on: Made) -> None:
        results = on.run.parent.parent.parent
        given = [{"RUN": str(on.run), "RESULTS": str(results)}.get(word, word) for word in words]
        done = CliRunner().invoke(calibration, given)
        assert done.exit_code in (0, 1), done.output

    return ran


def restored(on: Made) -> None:
    """Plan changes of every CPU's frequency policy, and put back what cannot be: the CPUs are offline."""
    here = settings.Machine(str(on.root))
    entries = settings.plan_governor(here, "powersave")
    entries += [
        settings.Entry("prefetchers", f"/dev/cpu/{cpu}/msr:0x1a4", "0x0", "0xf") for cpu in settings.processors(here)
    ]
    changes, faults = settings.restore_all(here, [settings.Entry.of_line(entry.line()) for entry in entries], "run")
    assert len(faults) == on.machine.cpus
    settings.group_changes(changes)


def short_of(context: Context) -> Context:
    """Return *context* with too little memory available on every node for anything."""
    nodes = tuple(node.model_copy(update={"available_bytes": 128 << 20}) for node in context.nodes)
    return context.model_copy(update={"nodes": nodes})


EXPECTED: Final = Expectations(
    state=read_items({"isolated_cpus": "1-3", "governor": "performance", "deepest_idle_state": "C1"}, "")
)

LINEAR: Final[dict[str, Callable[[Made], object]]] = {
    "capture": lambda on: capture.capture(str(on.root), sleep=lambda _seconds: None),
    "settings restored": restored,
    "context": lambda on: load(on.root),
    "plan": lambda on: plan_text(make_plan(on.context, load_profile("full"))),
    "preflight": lambda on: evaluate(on.context, Known(), EXPECTED),
    "too little memory": lambda on: make_plan(short_of(on.context), load_profile("quick")),
    "what is left": lambda on: outstanding(on.run),
    "assembled and judged": lambda on: finish(on.run, now=NOW),
    "read": lambda on: read_run(on.run),
    "page": lambda on: render(open_run(on.run / RUN)),
    "show": command("show", "RUN"),
    "text": command("report", "RUN", "--text"),
    "compare": command("compare", "RUN", "RUN"),
    "judge": command("judge", "--results", "RESULTS"),
    "OpenMetrics": command("export", "openmetrics", "--results", "RESULTS"),
    "line protocol": command("export", "influx", "--results", "RESULTS"),
}


def calls(work: Callable[[Made], object], on: Made) -> int:
    """Return how many functions *work* calls: the same on every machine, however busy."""
    profile = cProfile.Profile()
    profile.enable()
    try:
        work(on)
    finally:
        profile.disable()
    found: int = Stats(profile).total_calls  # type: ignore[attr-defined]
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("name", LINEAR)
def test_work_grows_linearly_with_cpus(name: str, sizes: list[Made]) -> None:
    LINEAR[name](sizes[0])  # what is read once per process is read
    one, two, four = (calls(LINEAR[name], on) for on in sizes)
    assert four - two <= MAX_GROWTH * max(two - one, one // 20), f"{one}, {two} and {four} calls"
