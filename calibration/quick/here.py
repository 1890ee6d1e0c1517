# SPDX-License-Identifier: Apache-2.0
"""The quick gate around a benchmark on one machine: sentinels of a run before it are compared with those of one after.

Without an inventory, a baseline and Ansible: the runner measures this machine as it does without a controller.
"""

import sys
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from platform import machine
from tempfile import TemporaryDirectory
from typing import Final

from calibration.base.errors import EnvironmentLacksError
from calibration.base.parsers import parse_json
from calibration.base.text import visible
from calibration.build import TARGETS
from calibration.context.loader import load
from calibration.finish import finish
from calibration.judge.tolerances import OwnTolerance, Tolerances
from calibration.preflight.agreement import Known
from calibration.preflight.checks import MOMENTARY
from calibration.preflight.examination import evaluate
from calibration.preflight.expectations import Expectations
from calibration.profiles import load_profile
from calibration.quick.checks import QuickCheck, check_sut, saved_state
from calibration.quick.measure import PROFILE, run_to_end
from calibration.results.layout import CAPTURE, THIS_MACHINE
from calibration.results.model import RunDocument
from calibration.run.plan import make_plan
from calibration.run.session import import_standalone_run
from calibration.run.standalone import standalone_runner
from calibration.runner.alone import GOOD, INCOMPLETE
from calibration.runner.directory import PLAN

ROUNDS: Final = 12
"""Twice those of the profile, in 20 s: without nights, each run must tell by itself how much it varies."""


def check_here(
    results: Path, before: RunDocument | None, change: float, say: Callable[[str], None]
) -> list[QuickCheck]:
    """Measure this machine into *results*, and return its checks against the run *before*: a *change* is to be found.

    What is outside, or too noisy to decide, is measured a second time. Without *before*, the checks are whether the
    machine is quiet enough for it. Raises ``EnvironmentLacksError`` if it cannot be measured.
    """
    state = None if before is None else saved_state(before)
    tolerances = Tolerances([OwnTolerance(metrics="*", fraction=change, reason="chosen for this machine")])
    documents = [measure_here(results)]
    checks = list(check_sut(documents, state, tolerances))
    kinds = {kind for check in checks for kind in check.repeat}
    if state is not None and kinds:
        say(f"Measuring {', '.join(sorted(kinds))} again")
        documents.append(measure_here(results, kinds))
        checks = list(check_sut(documents, state, tolerances))
    return checks


def measure_here(results: Path, kinds: Collection[str] | None = None) -> RunDocument:
    """Measure the sentinels, or only *kinds*, into *results*; return the document. Raises ``EnvironmentLacksError``."""
    target = next((name for name in TARGETS if name == machine()), None)
    if target is None:
        raise EnvironmentLacksError(f"there is no sutprobe for {machine()}")
    profile = load_profile(PROFILE)
    wanted = {kind: settings for kind, settings in profile.measurements.items() if kinds is None or kind in kinds}
    plan = make_plan(load(Path("/")), profile.model_copy(update={"rounds": ROUNDS, "measurements": wanted}))
    with TemporaryDirectory() as folder:
        (Path(folder) / "runner.pyz").write_bytes(standalone_runner([target]))
        (Path(folder) / PLAN).write_text(plan.model_dump_json(), encoding="utf-8")
        with (Path(folder) / "output").open("w+b") as output:
            code = run_to_end([sys.executable, "runner.pyz", PLAN], output, Path(folder))
            output.seek(0)
            told = output.read().decode("utf-8", "replace").splitlines()
        left = [path for path in Path(folder).iterdir() if path.is_dir()]
        if code not in {GOOD, INCOMPLETE} or not left:
            raise EnvironmentLacksError(f"this machine was not measured: {_reason(told)}")
        capture = (left[0] / CAPTURE).read_bytes()
        checks = evaluate(load(Path(CAPTURE), capture), Known(), Expectations(), plan=plan)
        directory = import_standalone_run(
            left[0],
            results,
            testbed=THIS_MACHINE,
            sut=THIS_MACHINE,
            checks=[check for check in checks if check.name in MOMENTARY],
        )
    return finish(directory, now=datetime.now(UTC))


def _reason(told: list[str]) -> str:
    """Return why the runner did not measure, from the last line that it *told*: its refusal, or an error of Python."""
    last = told[-1] if told else "no output"
    try:
        return visible(str(parse_json(last)["refused"]))
    except (ValueError, TypeError, KeyError):
        return visible(last)
