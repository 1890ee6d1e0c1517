# SPDX-License-Identifier: Apache-2.0
"""Find runs and SUTs by names that people type. Reads directory names only, no documents."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from calibration.base.commandline import calibration_command, near
from calibration.base.errors import InputError
from calibration.base.names import not_one, pick
from calibration.results.layout import RECORDS, REFERENCES, RUN, directories
from calibration.results.nights import misdated, night_of

RUN_ID: Final = re.compile(r"\d{8}T\d{6}Z")
"""Form of the identifiers of runs made here, which sort by time. Imports have other names."""


def suts_of(results: Path) -> list[str]:
    """Return the SUTs in *results*, each as ``testbed/sut``. Raises ``InputError`` if it cannot be read."""
    testbeds = (name for name in _within(results) if name != REFERENCES and not (results / name / RUN).is_file())
    return sorted(f"{testbed}/{sut}" for testbed in testbeds for sut in _within(results / testbed))


def pick_sut(given: str, suts: Sequence[str]) -> str:
    """Return the one of *suts* named by *given*: ``testbed/sut`` or ``sut``, or a unique prefix of it.

    Raises ``InputError`` with the nearest names if there is none, or several.
    """
    found = _matching(given, suts)
    if len(found) != 1:
        names = suts if "/" in given else dict.fromkeys(sut.partition("/")[2] for sut in suts)
        raise not_one(given, found, names, "SUT")
    return found[0]


def find_run(results: Path, given: str | None = None) -> Path:
    """Return the directory of the run named by *given*; a path to a file is returned unchanged.

    *given* is a path (of a run, of a SUT's directory, of a file) or a name in *results*: ``testbed/sut`` or ``sut``
    (its newest run), ``testbed/sut/run`` or ``run``, or a unique prefix of it. A run without a testbed's directory, as
    the example is, has the name of its own directory. ``None`` is the newest run of all.
    Raises ``InputError`` if there is none, or several.
    """
    if given is None:
        return _newest(results, suts_of(results))
    path = Path(given)
    if path.is_file() or (path / RUN).is_file():
        return path
    for directory in (path, results / given):
        if (directory / RECORDS).is_file() and not (directory / RUN).exists():
            command = calibration_command("assemble", near(directory), "--interrupted")
            raise InputError(f"{directory} is not a finished run; if nothing continues it: {command}")
    if path.is_absolute() or (path.is_dir() and any(path.glob(f"*/{RUN}"))):
        return _newest(path.parent, [path.name])
    if (results / given.partition("/")[0] / RUN).is_file():
        return results / given.partition("/")[0]
    suts = suts_of(results)
    if given.count("/") == 2:
        testbed, sut, run = given.split("/")
        sut = pick_sut(f"{testbed}/{sut}", suts)
        return results / sut / pick(run, _runs(results, sut), f"run of {sut}")
    found = _matching(given, suts)
    if not found and "/" not in given:
        runs = [f"{sut}/{run}" for sut in suts for run in _runs(results, sut) if run.startswith(given)]
        if len(runs) > 1:
            raise not_one(given, runs, runs, "run")
        if runs:
            return results / runs[0]
    return _newest(results, [pick_sut(given, suts)])


def _matching(given: str, suts: Sequence[str]) -> list[str]:
    """Return the *suts* that match *given*; an exact match excludes the others."""
    testbed, slash, own = given.rpartition("/")
    pairs = [(name, name.partition("/")[0], name.partition("/")[2]) for name in suts]
    if slash:
        exact = any(testbed == first for _, first, _ in pairs)
        pairs = [pair for pair in pairs if pair[1] == testbed or (not exact and pair[1].startswith(testbed))]
    whole = [name for name, _, sut in pairs if sut == own]
    return whole or [name for name, first, sut in pairs if sut.startswith(own) or (not slash and first == own)]


def _newest(results: Path, suts: Sequence[str]) -> Path:
    """Return the directory of the newest run of *suts* in *results*; an import only if nothing was measured."""
    names = [(night_of(run), run, sut) for sut in suts for run in _within(results / sut)]
    wrong = misdated((night for night, _, _ in names if night is not None))
    known = [(RUN_ID.match(run) is not None, night not in wrong, run, sut) for night, run, sut in names]
    for *_, run, sut in sorted(known, reverse=True):
        if (results / sut / run / RUN).is_file():
            return results / sut / run
    raise InputError(f"no run below {results / suts[0] if len(suts) == 1 else results}")


def _runs(results: Path, sut: str) -> list[str]:
    """Return the runs of *sut* with a document, newest first."""
    return [run for run in sorted(_within(results / sut), reverse=True) if (results / sut / run / RUN).is_file()]


def _within(parent: Path) -> list[str]:
    try:
        return directories(parent)
    except OSError as error:
        raise InputError(f"cannot read the directory {parent}: {error.strerror}") from error
