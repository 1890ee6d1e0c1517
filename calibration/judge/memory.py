# SPDX-License-Identifier: Apache-2.0
"""What was known of all series on an earlier night, kept beside the index, so that a night is judged from there.

It is no truth: it can be deleted at any time, and what does not fit the figures any more, or was made by another
version of the analysis, is made again.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from calibration.judge import drift, noise
from calibration.judge.drift import Analysis, Walked, analyse_on
from calibration.results.history import History
from calibration.results.index import index_of, locked, unusable

FILE: Final = "walked.npz"

NAMES: Final = "names"
FIGURES: Final = "figures"
NIGHT: Final = "night"
VERSION: Final = "version"
"""Arrays of the file beside those of ``Walked``."""


def analyse_history(results: Path, history: History) -> list[Analysis]:
    """Return what ``analyse`` says of all of *history*, which is all there is below *results* up to its last night.

    Raises ``EnvironmentLacksError`` where what is known now cannot be kept for the next night.
    """
    path = index_of(results) / FILE
    names = np.array(["\n".join((each.testbed, each.sut, each.metric)) for each in history.series], dtype=np.str_)
    kept = _read(path)
    before = None
    if kept is not None:
        places = {name: place for place, name in enumerate(kept[NAMES].tolist())}
        wanted = np.array([places.get(name, -1) for name in names.tolist()], dtype=np.intp)
        before = Walked(kept[FIGURES], {name: kept[name] for name in drift.ARRAYS})
        if not np.array_equal(wanted, np.arange(len(places))):
            before = before.of(wanted)
    analyses, walked = analyse_on(history.values, before)
    if not history.series:
        return analyses
    night = history.nights[-1].isoformat()
    # What is known of an earlier night is of no use on a later one.
    newer = before is None or kept is None or str(kept[NIGHT]) <= night
    if newer and (before is None or not np.array_equal(before.figures, walked.figures, equal_nan=True)):
        own = {NAMES: names, FIGURES: walked.figures, NIGHT: np.array(night), VERSION: np.array(_version())}
        _write(path, {**walked.arrays, **own})
    return analyses


@cache
def _version() -> str:
    """Return what tells the analysis that wrote a file from all others."""
    sources = b"".join(inspect.getsource(module).encode() for module in (drift, noise))
    return hashlib.sha256(sources + np.__version__.encode()).hexdigest()


def _read(path: Path) -> dict[str, NDArray[Any]] | None:
    """Return the arrays at *path*; ``None`` where there are none, or none that can be used."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if str(file[VERSION]) != _version():
                return None
            return {name: file[name] for name in (NAMES, FIGURES, NIGHT, *drift.ARRAYS)}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None  # it was never written, or is damaged


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    pending = path.with_name(f".{path.name}")  # of a process that was killed: it is overwritten
    with locked(path.parent):
        try:
            with pending.open("wb") as file:
                save: Callable[..., None] = np.savez  # typed as if a name could be one of its options
                save(file, **arrays)
            pending.replace(path)
        except OSError as error:
            raise unusable(path.parent, error) from error
        finally:
            with suppress(OSError):
                pending.unlink(missing_ok=True)
