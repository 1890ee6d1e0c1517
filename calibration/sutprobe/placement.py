# SPDX-License-Identifier: Apache-2.0
"""A placement of buffers, and what else happened while it was measured: common to all memory measurements."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AliasChoices, Field

from calibration.base.errors import InputError
from calibration.base.flags import FLAG_OF_ERROR
from calibration.base.model import Model
from calibration.sutprobe.document import Part, ProbeError, Result, Surroundings


class Interference(Model):
    """Interference on the measured CPUs: differences of counters, summed over CPUs.

    ``None`` if the SUT does not report it, or if reading it would have taken too long.
    """

    involuntary_switches: int
    voluntary_switches: int
    minor_faults: int
    major_faults: int
    steal_ms: float | None
    interrupts: dict[str, int] | None
    softirqs: dict[str, int] | None
    smi: int | None
    core_throttle: int | None
    package_throttle: int | None
    pages_migrated: int | None

    @classmethod
    def summed(cls, counts: Sequence[Self]) -> Self:
        """Return the sums of *counts*, each of those that are known."""
        sums: dict[str, Any] = {}
        for name in cls.model_fields:
            known = [value for count in counts if (value := getattr(count, name)) is not None]
            if known and isinstance(known[0], dict):
                keys = dict.fromkeys(key for value in known for key in value)
                sums[name] = {key: sum(value.get(key, 0) for value in known) for key in keys}
            else:
                sums[name] = sum(known) if known else None
        return cls(**sums)


class Pages(Model):
    """The pages of a buffer, read back: how many of those checked lie on the wanted node.

    ``obtained`` names hugetlb pages by their size (``hugetlb_64k``, ``hugetlb_1g``). The buffer has ``total`` pages of
    base size; all are checked, or none if the kernel does not report their nodes.
    """

    wanted: str
    obtained: Annotated[str, Field(pattern=r"^(thp|base|mixed|hugetlb_[0-9]+[kmg])$")]
    base_bytes: int
    huge_bytes: int | None
    huge_fraction: float
    total: int
    checked: int
    on_node: int
    elsewhere: int


class Placement(Model):
    """Common fields of memory placements; ``cpus_verified``: each thread was on its CPU to the end.

    ``round`` is the round that it belongs to, ``around`` what was around it; ``None`` if it was measured once.
    """

    round: int | None = None
    around: Surroundings | None = None
    seed: int
    pages: Pages
    core_hz_before: float
    core_hz_after: float
    interference: Interference
    cpus_verified: bool = Field(validation_alias=AliasChoices("cpus_verified", "cpu_verified"))


Stopped = Literal["placements", "interrupted"]
"""Why no further placement was made: all that were asked for, or ``interrupted`` by a signal or the deadline."""


class Repeated(Model):
    """What has a value, or the error that replaces it, in each round.

    It is the same in other rounds if its ``IDENTITY``, or its place, is. ``lost`` has the errors of rounds without a
    value, where others have one.
    """

    IDENTITY: ClassVar[tuple[str, ...]]
    VALUE: ClassVar[str]
    """Name of the field that is ``None`` without a value."""

    error: ProbeError | None
    lost: tuple[ProbeError, ...] = ()

    @classmethod
    def combined(cls, parts: Sequence[tuple[Part, Self]]) -> dict[str, Any]:
        """Return the fields that depend on more than the first of *parts*, the rounds with a value."""
        raise NotImplementedError


P = TypeVar("P", bound=Repeated)


class Point(Repeated):
    """A point with placements, and why it has no more of them.

    Fields that are ``PROVED`` hold if they hold in each round.
    """

    VALUE = "placements"
    PROVED: ClassVar[tuple[str, ...]] = ("checked",)

    stopped: Stopped | None
    placements: tuple[Any, ...] | None

    @classmethod
    def combined(cls, parts: Sequence[tuple[Part, Self]]) -> dict[str, Any]:
        """Return the placements of all *parts*, each with its round, what all prove, and why the last has no more."""
        placed = (
            placement.model_copy(update={"round": part.round, "around": part.around})
            for part, point in parts
            for placement in point.placements or ()
        )
        proved = {name: all(getattr(point, name) for _, point in parts) for name in cls.PROVED}
        return {"placements": tuple(placed), "stopped": parts[-1][1].stopped, **proved}


def merged_points(rounds: Sequence[tuple[Part, Sequence[P]]]) -> tuple[P, ...]:
    """Return the points of *rounds*, each with the values of all of them, in order of first appearance.

    A point has an error if no round has a value of it, or if a round found that it was measured elsewhere than asked.
    Raises ``InputError`` if a point appears twice in one round.
    """
    found: dict[tuple[Any, ...], list[tuple[Part, P]]] = {}
    for part, points in rounds:
        keys = [
            tuple(getattr(point, name) for name in point.IDENTITY) or (place,) for place, point in enumerate(points)
        ]
        if len(set(keys)) < len(keys):
            raise InputError(f"the same point appears twice: {next(key for key in keys if keys.count(key) > 1)}")
        for key, point in zip(keys, points, strict=True):
            found.setdefault(key, []).append((part, point))
    return tuple(map(_merged_point, found.values()))


class CpuView(Model):
    """Base of what a thread saw of one CPU: whether it was there to the end, and why not, or why it never ran there."""

    cpu: int
    cpu_verified: bool
    error: ProbeError | None = None


def verified_in_rounds(parts: Sequence[CpuView]) -> tuple[bool, ProbeError | None]:
    """Return whether the *parts* of one CPU are of that CPU, and the first error of any.

    As with points: it must be verified in one round, and found elsewhere in none.
    """
    errors = [part.error for part in parts if part.error is not None]
    elsewhere = next((error for error in errors if error.code in FLAG_OF_ERROR), None)
    unnamed = any(not part.cpu_verified and part.error is None for part in parts)
    verified = any(part.cpu_verified for part in parts) and elsewhere is None and not unnamed
    return verified, elsewhere or next(iter(errors), None)


def _merged_point(parts: Sequence[tuple[Part, P]]) -> P:
    errors = tuple(point.error for _, point in parts if point.error is not None)
    refused = next((error for error in errors if error.code in FLAG_OF_ERROR), None)
    first = parts[0][1]
    good = [(part, point) for part, point in parts if getattr(point, point.VALUE) and point.error is None]
    if refused or not good:
        return first.model_copy(update={first.VALUE: None, "error": refused or next(iter(errors), None)})
    return good[0][1].model_copy(update={"error": None, "lost": errors, **first.combined(good)})


class PointsResult(Result):
    """Base of the results that are a list of points."""

    points: tuple[Any, ...]

    @classmethod
    def merged(cls, rounds: Sequence[tuple[Part, Self]]) -> Self:
        """Return the results of *rounds* as one."""
        points = merged_points([(part, result.points) for part, result in rounds])
        return rounds[0][1].model_copy(update={"points": points})
