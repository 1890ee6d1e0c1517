# SPDX-License-Identifier: Apache-2.0
"""A lab of many SUTs over some nights with a baseline: most are as they were, and what is not is known by name."""

import re
import sys
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from calibration.judge.baseline_files import add_acceptance
from calibration.judge.baselines import propose
from tests.report.made_documents import BANDWIDTHS, FIRST_NIGHT, START, Base, Event, State, make, names, template
from tests.report.made_machines import lab_document

Sut = tuple[str, str]


class Lab:
    """What is odd in a lab of *suts* SUTs over *nights* nights, and how to write it.

    Tonight is the last night; the baseline is that of three nights before. ``slower`` lost an eighth of its bandwidth
    two nights ago, all of ``renewed`` have new microcode tonight, ``missing`` has no run of tonight, and ``unknown`` no
    baseline.
    """

    def __init__(self, suts: int = 100, nights: int = 14) -> None:
        if suts < 4 or nights < 4:
            raise ValueError(f"expected at least 4 SUTs and 4 nights, found {suts} and {nights}")
        everyone = names(suts)
        self.suts, self.nights = suts, nights
        self.slower: Sut = everyone[suts * 4 // 10]
        self.missing: Sut = everyone[suts * 6 // 10]
        self.unknown: Sut = everyone[suts * 8 // 10]
        self.renewed: tuple[Sut, ...] = tuple(everyone[: min(14, suts * 3 // 10)])

    def events(self, base: Base) -> list[Event]:
        """Return what is planted."""
        slowed = tuple(
            metric
            for group in template(State(), base).metrics.values()
            for metric in group
            if re.fullmatch(BANDWIDTHS, metric)
        )
        tonight = self.nights - 1
        return [
            Event("level", *self.slower, tonight - 2, slowed, -0.12),
            Event("no_run", *self.missing, tonight),
            *(Event("microcode", *sut, tonight) for sut in self.renewed),
        ]

    def write(self, results: Path, *, base: Base = lab_document, seed: int = 1) -> None:
        """Write runs and baselines into *results*, which must not exist; *base* is what the runs are variations of."""
        make(results, suts=self.suts, nights=self.nights, seed=seed, events=self.events(base), base=base)
        accepted = self.nights - 4
        night = FIRST_NIGHT + timedelta(days=accepted)
        run_id = f"{night:%Y%m%d}{START}{accepted:04x}"
        runs = [results / testbed / sut / run_id for testbed, sut in names(self.suts) if (testbed, sut) != self.unknown]
        now = datetime.combine(night, time(12), UTC)
        for item in propose(runs, scope="sut", by="ann@example.org", reason="as delivered", metrics=(), now=now):
            if item.acceptance is not None:
                add_acceptance(results, item.place, item.acceptance)


if __name__ == "__main__":  # python -m tests.report.made_lab RESULTS [SUTS [NIGHTS]]
    Lab(*map(int, sys.argv[2:4])).write(Path(sys.argv[1]))
