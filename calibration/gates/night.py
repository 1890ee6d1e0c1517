# SPDX-License-Identifier: Apache-2.0
"""Input of a night's gates: the SUTs, tonight's run of each, and the verdicts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from pydantic import BaseModel, ValidationError

from calibration.base.errors import InputError
from calibration.base.files import read_given
from calibration.base.gc_pause import paused_collector
from calibration.base.model import fault_of
from calibration.base.names import pick
from calibration.gates.rules import Told, told
from calibration.judge.answer import Answer
from calibration.judge.verdicts import NightVerdict
from calibration.results.history import Sut
from calibration.results.layout import run_directory


class _Judged(BaseModel):
    """The verdicts and answers in the output of ``calibration judge --json``."""

    verdicts: tuple[NightVerdict, ...]
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Night:
    """What gates need of the verdicts of one night, by SUT, sorted by testbed and name, and the answers on these SUTs.

    ``run_ids`` are tonight's runs; a SUT may have none.
    """

    results: Path
    night: date
    verdicts: Mapping[Sut, Sequence[Told]]
    run_ids: Mapping[Sut, str]
    answers: Mapping[Sut, Answer]

    def run_of(self, sut: Sut) -> Path | None:
        """Return the directory of tonight's run of *sut*; ``None`` if there is none."""
        return run_directory(self.results, *sut, self.run_ids[sut]) if sut in self.run_ids else None

    def of(self, testbed: str | None, sut: str | None) -> "Night":
        """Return the night of one *testbed* or *sut*, by its name or a unique prefix. Raises ``InputError``."""
        if testbed is not None:
            testbed = pick(testbed, dict.fromkeys(testbed for testbed, _ in self.verdicts), "testbed")
        kept = {names: told for names, told in self.verdicts.items() if testbed in {None, names[0]}}
        if sut is not None:
            sut = pick(sut, dict.fromkeys(sut for _, sut in kept), "SUT")
        return replace(self, verdicts={names: told for names, told in kept.items() if sut in {None, names[1]}})


class Gathered:
    """Gathers what gates need of verdicts as they come."""

    def __init__(self) -> None:
        self.verdicts: dict[Sut, list[Told]] = {}
        self._run_ids: dict[Sut, str] = {}

    def add(self, verdicts: Iterable[NightVerdict]) -> None:
        """Add *verdicts*."""
        for verdict in verdicts:
            sut = verdict.testbed, verdict.sut
            self.verdicts.setdefault(sut, []).append(told(verdict))
            if verdict.run_id is not None:
                self._run_ids[sut] = verdict.run_id

    def night(self, results: Path, night: date, answers: Iterable[Answer]) -> Night:
        """Return the *night* of *results*, with the *answers*. Raises ``InputError`` if there is no verdict."""
        if not self.verdicts:
            raise InputError(f"no verdicts on {night}")
        of_sut = {(answer.testbed, answer.sut): answer for answer in answers}
        return Night(results, night, dict(sorted(self.verdicts.items())), self._run_ids, of_sut)


@paused_collector()
def read_night(results: Path, *, night: date | None = None, verdicts: Path | None = None) -> Night:
    """Return *night* (default: the newest) below *results*.

    The verdicts come from the file *verdicts*, the output of ``calibration judge --json``, or are computed here. Raises
    ``InputError`` if there are none, or the file is invalid or of another night.
    """
    gathered = Gathered()
    if verdicts is None:
        from calibration.judge.night import judge_night  # noqa: PLC0415 - slow, and not needed for a given file

        judgement = judge_night(results, night, gathered.add)
        return gathered.night(results, judgement.night, judgement.answers)
    judged = _read(verdicts, night)
    gathered.add(judged.verdicts)
    return gathered.night(results, judged.verdicts[0].night, judged.answers)


def _read(path: Path, night: date | None) -> _Judged:
    try:
        found = _Judged.model_validate_json(read_given(path))
    except ValidationError as error:
        raise InputError(f"{path}: not the output of calibration judge --json: {fault_of(error)}") from error
    nights = sorted({verdict.night for verdict in found.verdicts})
    if len(nights) > 1 or (night is not None and nights not in ([], [night])):
        wanted = "one night" if night is None else night
        raise InputError(f"{path}: verdicts of {', '.join(map(str, nights))}, expected those of {wanted}")
    if not nights:
        raise InputError(f"{path}: no verdicts tonight")
    return found
