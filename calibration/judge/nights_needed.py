# SPDX-License-Identifier: Apache-2.0
"""After how many nights what works: one table for the judgement, the commands and the guide."""

from typing import Final, NamedTuple

from calibration.judge.detector import MIN_VALUES
from calibration.judge.explanation import MIN_TESTED
from calibration.judge.outliers import MIN_NIGHTS
from calibration.judge.prediction import ENOUGH_NIGHTS


class Needed(NamedTuple):
    """What works from how many nights of a SUT on, and why not earlier."""

    nights: int
    what: str
    why: str


NEEDED: Final = (
    Needed(1, "limits of the inventory, cross-checks, checks of the run, references", "each run is judged by itself"),
    Needed(2, "``compare``", "two runs are compared, with the interval of each"),
    Needed(MIN_NIGHTS, "SUTs of a testbed are compared", "fewer nights do not tell a SUT from its noise"),
    Needed(
        ENOUGH_NIGHTS,
        "``accept``, and with the baseline limits and the quick gate",
        "bounds from fewer nights are too wide to notice a change",
    ),
    Needed(MIN_VALUES, "drift, spread and flips", "the first nights are the reference of a level"),
    Needed(MIN_TESTED, "``explain``", "fewer nights with throughput and calibration do not tell a cause from chance"),
)
"""By number of nights."""
