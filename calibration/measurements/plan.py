# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: the steps on one SUT, and what is left out and why."""

from collections.abc import Iterable, Sequence
from typing import Self

from calibration.base.model import Model
from calibration.measurements.base import NotPlanned, Step
from calibration.measurements.mlc_program import MlcCommand
from calibration.measurements.platform import CacheReference, ShapeReference


class Plan(Model):
    """The steps of one run, and what is skipped and why.

    They are measured in rounds, each in another order, which the SUT shuffles by ``seed``; those measured once follow.
    ``full_memory_bytes`` is the most memory of each node that a step takes if there is enough; with less, buffers are
    smaller. ``mlc`` are the commands of Intel MLC that follow the steps if available, and opendcdiag runs for
    ``opendcdiag_s``; durations exclude both.
    """

    profile: str
    seed: int = 0
    steps: tuple[Step, ...]
    not_planned: tuple[NotPlanned, ...]
    expected_duration_s: float
    longest_duration_s: float
    full_memory_bytes: dict[int, int]
    traffic_shape: ShapeReference | None
    last_level_cache: CacheReference | None = None
    mlc: tuple[MlcCommand, ...] = ()
    opendcdiag_s: float | None = None

    def with_steps(self, steps: Iterable[Step]) -> Self:
        """Return this plan with other *steps*, and their durations."""
        steps = tuple(steps)
        return self.model_copy(update={"steps": steps, **durations(steps)})


def durations(steps: Sequence[Step]) -> dict[str, float]:
    """Return the expected and the longest time of *steps*, in seconds, as fields of their plan."""
    return {
        name: round(sum(getattr(step, name) for step in steps), 1)
        for name in ("expected_duration_s", "longest_duration_s")
    }
