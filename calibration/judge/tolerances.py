# SPDX-License-Identifier: Apache-2.0
"""How far figures of a machine, or of two, may be apart before it matters."""

import re
from typing import Final

from calibration.model import Model

LEAST_COVERAGE: Final = 0.9
"""An interval that covers the true value less often decides nothing; three placements reach 0.75, five 0.94."""


class Tolerance(Model):
    """How far two figures of a family may be apart before it matters, relative to the first, and why so far."""

    names: str
    fraction: float
    reason: str


TOLERANCES: Final = (
    Tolerance(
        names=r"jitter\..*",
        fraction=0.25,
        reason="how much a core is disturbed differs from one minute to the next",
    ),
    Tolerance(
        names=r"core_frequency\..*",
        fraction=0.01,
        reason="a clock that is not throttled repeats within parts in 1000",
    ),
    Tolerance(
        names=r"c2c_.*", fraction=0.05, reason="a transfer depends on which slice of the cache an address belongs to"
    ),
    Tolerance(
        names=r".*bandwidth_mb_s|.*program_mb_s", fraction=0.02, reason="bandwidth of one machine repeats within 1 %"
    ),
    Tolerance(
        names=r".*latency_ns",
        fraction=0.03,
        reason="latency of one machine moves by up to 3 % from boot to boot, because its memory lies elsewhere",
    ),
)
"""The first whose names match a metric is its tolerance."""

ANY_OTHER: Final = Tolerance(names=r".*", fraction=0.05, reason="nothing is known of how well this figure repeats")


def tolerance_of(metric: str) -> Tolerance:
    """Return how far figures named *metric* may be apart."""
    return next((each for each in TOLERANCES if re.fullmatch(each.names, metric)), ANY_OTHER)
