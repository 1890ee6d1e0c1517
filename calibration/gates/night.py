# SPDX-License-Identifier: Apache-2.0
"""Input of a night's gates: the SUTs, tonight's run of each, and the verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from calibration.base.errors import InputError
from calibration.base.files import read_given
from calibration.base.gc_pause import paused_collector
from calibration.base.model import fault_of
from calibration.base.names import pick
from calibration.judge.answer import Answer
from calibration.judge.verdicts import NightVerdict
from calibration.results.history import Sut
from calibration.results.layout import run_directory

if TYPE_CHECKING:
    from calibration.judge.night import Judgement


class _Judged(BaseModel):
    """The verdicts and answers in the output of ``calibration judge --json``."""

    verdicts: tuple[NightVerdict, ...]
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Night:
    """The verdicts of one night by SUT, sorted by testbed and name, and the answers on these SUTs."""

    results: Path
    night: date
    verdicts: Mapping[Sut, Sequence[NightVerdict]]
    answers: Mapping[Sut, Answer]

    def run_of(self, sut: Sut) -> Path | None:
        """Return the directory of tonight's run of *sut*; ``None`` if there is none."""
        run_id = next((verdict.run_id for verdict in self.verdicts[sut] if verdict.run_id is not None), None)
        return None if run_id is None else run_directory(self.results, *sut, run_id)


@paused_collector()
def read_night(
    results: Path,
    *,
    night: date | None = None,
    verdicts: Path | None = None,
    testbed: str | None = None,
    sut: str | None = None,
) -> Night:
    """Return *night* (default: the newest) below *results*, for all SUTs or those asked for.

    *testbed* and *sut* may be unique prefixes.

    The verdicts come from the file *verdicts*, the output of ``calibration judge --json``, or are computed here. Raises
    ``InputError`` if there are none, or the file is invalid or of another night.
    """
    judged = _judged(results, night) if verdicts is None else _read(verdicts, night)
    found = judged.verdicts
    if not found:
        raise InputError(f"no verdicts {'tonight' if night is None else f'on {night}'}")
    if testbed is not None:
        testbed = pick(testbed, dict.fromkeys(run.testbed for run in found), "testbed")
    if sut is not None:
        sut = pick(sut, dict.fromkeys(run.sut for run in found if testbed in {None, run.testbed}), "SUT")
    kept: dict[Sut, list[NightVerdict]] = {}
    for run in found:
        if testbed in {None, run.testbed} and sut in {None, run.sut}:
            kept.setdefault((run.testbed, run.sut), []).append(run)
    answers = {(answer.testbed, answer.sut): answer for answer in judged.answers}
    return Night(results, found[0].night, dict(sorted(kept.items())), answers)


def _judged(results: Path, night: date | None) -> "Judgement":
    from calibration.judge.night import judge_night  # noqa: PLC0415 - slow, and not needed for a given file

    return judge_night(results, night)


def _read(path: Path, night: date | None) -> _Judged:
    try:
        found = _Judged.model_validate_json(read_given(path))
    except ValidationError as error:
        raise InputError(f"{path}: not the output of calibration judge --json: {fault_of(error)}") from error
    nights = sorted({verdict.night for verdict in found.verdicts})
    if len(nights) > 1 or (night is not None and nights not in ([], [night])):
        wanted = "one night" if night is None else night
        raise InputError(f"{path}: verdicts of {', '.join(map(str, nights))}, expected those of {wanted}")
    return found
