# SPDX-License-Identifier: Apache-2.0
"""The start of a run on the controller: begin or resume it on a captured SUT."""

import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from calibration import __version__
from calibration.acceptance import AcceptanceFile
from calibration.acceptance.limits import Limit
from calibration.base.errors import EnvironmentLacksError
from calibration.base.tuning import SettingChange
from calibration.context.facts import differences
from calibration.context.loader import load
from calibration.context.model import Context
from calibration.measurements.plan import Plan
from calibration.preflight.checks import Check, refusal
from calibration.profiles import load_profile
from calibration.results.kept_shapes import kept_references
from calibration.results.layout import CAPTURE, run_directory
from calibration.run.attempts import record_attempt, remaining_plan, start_of
from calibration.run.plan import make_plan
from calibration.run.records import (
    NotBegunRecord,
    NoteRecord,
    ResumeRecord,
    StartRecord,
    append_record,
    read_kept,
)

CheckSut = Callable[[Context, Plan, bytes], Iterable[Check]]
"""Returns the checks of the SUT of a context, with its plan and the capture that it is from."""


def no_checks(_context: Context, _plan: Plan, _capture: bytes) -> Iterable[Check]:
    """Make no checks."""
    return ()


class NotBegunError(EnvironmentLacksError):
    """The SUT is not as expected; the run is recorded as not begun."""


class BegunRun(NamedTuple):
    """A run that has begun: its directory, and the plan of the remaining steps."""

    directory: Path
    plan: Plan


def plan_only(
    results: Path, *, profile: str, capture: bytes, examine: CheckSut, prefetchers_ok: bool
) -> tuple[Plan, tuple[Check, ...]]:
    """Return the plan that a run would begin with, and the checks, without storing anything.

    Raises like ``begin``, except for checks.
    """
    context, plan = _planned(results, profile, capture, prefetchers_ok=prefetchers_ok, seed=0)
    return plan, tuple(examine(context, plan, capture))


def _planned(results: Path, profile: str, capture: bytes, *, prefetchers_ok: bool, seed: int) -> tuple[Context, Plan]:
    wanted = load_profile(profile)
    context = load(Path(CAPTURE), capture)
    kept = kept_references(results, context)
    return context, make_plan(context, wanted, *kept, prefetchers_ok=prefetchers_ok, seed=seed)


def begin(
    results: Path,
    *,
    testbed: str,
    sut: str,
    run_id: str,
    profile: str,
    capture: bytes,
    now: datetime,
    boot_id: str | None = None,
    session: str | None = None,
    examine: CheckSut = no_checks,
    changes: Iterable[SettingChange] = (),
    limits: Iterable[Limit] = (),
    acceptance: Iterable[AcceptanceFile] = (),
    prefetchers_ok: bool = False,
) -> BegunRun:
    """Plan a run on the SUT of *capture* (a ``.tar.gz``), and record its start.

    *prefetchers_ok* is the consent to switch the prefetchers off. If a blocking check of *examine* fails, the run is
    recorded as not begun and ``NotBegunError`` raised. Leaves nothing behind if the capture, the profile or a reference
    is unusable (``InputError``), or nothing can be measured or the directory cannot be written
    (``EnvironmentLacksError``).
    """
    directory = run_directory(results, testbed, sut, run_id)
    seed = crc32(f"{testbed}/{sut}/{run_id}".encode())
    context, plan = _planned(results, profile, capture, prefetchers_ok=prefetchers_ok, seed=seed)
    checks = tuple(examine(context, plan, capture))
    known: dict[str, Any] = {
        "id": run_id,
        "testbed": testbed,
        "sut": sut,
        "profile": plan.profile,
        "started_at": now,
        "harness_version": __version__,
        "boot_id": boot_id,
        "session": session,
        "capture": CAPTURE,
        "capture_sha256": hashlib.sha256(capture).hexdigest(),
        "checks": checks,
        "changes": tuple(changes),
    }
    if refused := refusal(checks):
        record_attempt(directory, NotBegunRecord(**known, reason=refused), capture)
        raise NotBegunError(refused)
    start = StartRecord(**known, limits=tuple(limits), acceptance=tuple(acceptance), plan=plan)
    record_attempt(directory, start, capture)
    return BegunRun(directory, plan)


def resume(
    directory: Path,
    *,
    capture: bytes,
    now: datetime,
    boot_id: str | None = None,
    session: str | None = None,
    examine: CheckSut = no_checks,
    changes: Iterable[SettingChange] = (),
) -> BegunRun:
    """Continue the run in *directory*, and return it with the steps of its plan without a result.

    Raises ``NotBegunError``, with the attempt recorded, if the SUT of *capture* has changed since the run began, or a
    blocking check of *examine* fails; ``InputError`` if the capture is unusable, ``EnvironmentLacksError`` if nothing
    can be written.
    """
    start = start_of(directory)
    context = load(Path(CAPTURE), capture)
    checks = tuple(examine(context, start.plan, capture))
    attempt = ResumeRecord(
        started_at=now,
        boot_id=boot_id,
        session=session,
        capture=CAPTURE,
        capture_sha256=hashlib.sha256(capture).hexdigest(),
        checks=checks,
        changes=tuple(changes),
    )
    record_attempt(directory, attempt, capture)
    before = read_kept(directory, start.capture, start.capture_sha256, "the raw capture of the start")
    other = differences(load(directory / start.capture, before), context)
    refused = f"the SUT has changed since the run began: {'; '.join(other)}" if other else refusal(checks)
    if refused is not None:
        append_record(directory, NoteRecord(reason=refused))
        raise NotBegunError(refused)
    return BegunRun(directory, remaining_plan(directory))
