# SPDX-License-Identifier: Apache-2.0
"""The detector's walks over all series of some results, kept beside their index: a new night is one step more.

A walk is kept under a digest of all values that it has seen, for the program that walked. A late, changed or removed
document changes the values, and the series is walked from its first night again. The file can be deleted at any time.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from calibration.base.files import replacing
from calibration.judge import detector
from calibration.judge.detector import MIN_VALUES, Flags, Floats, Integers, Kind, Walk
from calibration.results.index import index_of, unusable

FILE: Final = "walks.npz"

DIGEST_BYTES: Final = 16

BEGUN: Final[tuple[Kind, ...]] = ("level", "spread")
"""What may have begun, as numbered in the file; excursions have the next number."""


class _Walks(NamedTuple):
    """The ends of walks: ``digests`` of the values they have seen, ``counts`` of these, and the parts of ``Walk``.

    ``state`` has a row per walk, ``before`` one per walk on trial, and ``events`` one for each thing that began or
    returned: the number of the walk and of the kind, the first value, and the first one back.
    """

    digests: NDArray[np.uint8]
    counts: Integers
    state: Floats
    before: Floats
    trial: Flags
    events: Integers


class KeptWalks:
    """The walks of *results* as they were after a night, and as they are after the parts that have been run."""

    def __init__(self, results: Path) -> None:
        self._file = index_of(results) / FILE
        program = [Path(path).read_bytes() for path in (detector.__file__, __file__)]
        self._program = hashlib.sha256(b"".join([np.__version__.encode(), *program])).hexdigest()
        self._night, self._old = _read(self._file, self._program)
        raw = self._old.digests.tobytes()
        self._places = {raw[at : at + DIGEST_BYTES]: place for place, at in enumerate(range(0, len(raw), DIGEST_BYTES))}
        self._new: list[_Walks] = []
        self._moved = False

    def run(self, walk: Walk) -> None:
        """Run *walk* from where it has been before."""
        digests = list(self._digests(walk))
        places = [self._places.get(now, self._places.get(before, -1)) for before, now in digests]
        self._resume(walk, np.array(places, np.intp))
        long = np.flatnonzero(walk.counts >= MIN_VALUES)  # shorter ones have no state yet
        self._moved |= bool((walk.done < walk.counts)[long].any())
        walk.run()
        self._new.append(_ends(walk, long, b"".join(digests[row][1] for row in long)))

    def save(self, night: date) -> None:
        """Keep the walks that have been run, which end with *night*, unless those of a later one are kept.

        Raises ``EnvironmentLacksError`` if they cannot be written.
        """
        if not self._moved or night < self._night:
            return
        firsts = np.cumsum([0, *(len(walks.counts) for walks in self._new)])
        for walks, first in zip(self._new, firsts.tolist(), strict=False):
            walks.events[:, 0] += first
        whole = {name: np.concatenate([getattr(walks, name) for walks in self._new]) for name in _Walks._fields}
        try:
            with replacing(self._file) as path, path.open("wb") as stream:
                state = {"program": np.array(self._program), "night": np.array(night.toordinal())}
                np.savez(stream, allow_pickle=False, **state, **whole)
        except OSError as error:
            raise unusable(self._file.parent, error) from error

    def _digests(self, walk: Walk) -> Iterator[tuple[bytes, bytes]]:
        """Yield for each series the digest of what it had before its newest value, and of all."""
        for values, count in zip(np.ascontiguousarray(walk.values.T), walk.counts.tolist(), strict=True):
            digest = hashlib.blake2b(values[: max(count - 1, 0)], digest_size=DIGEST_BYTES)
            before = digest.digest()
            digest.update(values[max(count - 1, 0) : count])
            yield before, digest.digest()

    def _resume(self, walk: Walk, places: Integers) -> None:
        """Let the series of *walk* begin where the walks at *places* ended; -1 is none."""
        old, rows = self._old, np.flatnonzero(places >= 0)
        at = places[rows]
        walk.done[rows], walk.trial[rows] = old.counts[at], old.trial[at]
        walk.state[:, rows] = old.state[at].T
        trial = np.flatnonzero(walk.trial)
        walk.before[:, trial] = old.before[(np.cumsum(old.trial) - 1)[places[trial]]].T
        first = np.searchsorted(old.events[:, 0], at)
        last = np.searchsorted(old.events[:, 0], at, side="right")
        for row, begin, end in zip(rows.tolist(), first.tolist(), last.tolist(), strict=True):
            for _, kind, value, back in old.events[begin:end].tolist():
                if kind < len(BEGUN):
                    walk.begins[row].append((value, BEGUN[kind]))
                else:
                    walk.left_out(row, value, back)


def _ends(walk: Walk, rows: Integers, digests: bytes) -> _Walks:
    """Return the ends of the series of *walk* at *rows*, which have the *digests*."""
    events = [
        event
        for place, row in enumerate(rows.tolist())
        for event in (
            *((place, BEGUN.index(kind), value, 0) for value, kind in walk.begins[row]),
            *((place, len(BEGUN), value, back) for value, back in walk.excursions[row]),
        )
    ]
    trial = walk.trial[rows]
    return _Walks(
        digests=np.frombuffer(digests, np.uint8),
        counts=walk.counts[rows],
        state=walk.state[:, rows].T,
        before=walk.before[:, rows[trial]].T,
        trial=trial,
        events=np.array(events, np.intp).reshape(-1, 4),
    )


def _read(file: Path, program: str) -> tuple[date, _Walks]:
    """Return the night of the walks that *program* kept, and these.

    There are none in a missing or damaged file, or in that of another program; it will be replaced.
    """
    damaged = suppress(OSError, EOFError, KeyError, ValueError, BadZipFile)
    with damaged, file.open("rb") as stream, np.load(stream, allow_pickle=False) as kept:
        if kept["program"] == program:
            return date.fromordinal(int(kept["night"])), _Walks(*(kept[name] for name in _Walks._fields))
    none = np.empty(0, np.intp)
    return date.min, _ends(Walk(np.empty((0, 0)), none), none, b"")
