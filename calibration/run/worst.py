# SPDX-License-Identifier: Apache-2.0
"""The longest times that a run has seen so far, for those who watch it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from calibration.base import units
from calibration.measurements import declaration
from calibration.measurements.base import Step
from calibration.runner.fields import EVERY


class Seen(NamedTuple):
    """A time, and the CPU that had it."""

    ns: float
    cpu: int


class Worst:
    """The longest time of each kind that names one, in the answers of its steps."""

    def __init__(self) -> None:
        self._found: dict[str, Seen | None] = {}

    def take(self, step: Step, document: Mapping[str, Any] | None) -> None:
        """Take the answer of *step* in *document*; what is not in its form has no time."""
        longest = declaration(step.kind).longest
        if longest is None or step.part_of is not None or document is None:
            return
        name, path = longest
        for seen in _seen(document.get("result"), path, None):
            self._found[name] = max(filter(None, (seen, self._found.get(name))), default=None)

    def __str__(self) -> str:
        """Return them in a line, empty without any."""
        return ", ".join(
            f"{name} none" if seen is None else f"{name} {units.time_ns(seen.ns)} on CPU {seen.cpu}"
            for name, seen in self._found.items()
        )


def _seen(value: Any, path: Sequence[str], cpu: int | None) -> Iterator[Seen | None]:
    """Yield the times at *path* in *value*, those of CPUs whose thread stayed; ``None`` if a list of them is empty."""
    if isinstance(value, dict):
        cpu = value.get("cpu", cpu)
        if not value.get("cpu_verified", True):
            return
    if not path:
        if isinstance(value, int | float) and isinstance(cpu, int):
            yield Seen(value, cpu)
        return
    key, *rest = path
    if value == [] and key.isdecimal():
        yield None
    for part in _parts(value, key):
        yield from _seen(part, rest, cpu)


def _parts(value: Any, key: str) -> Iterable[Any]:
    if isinstance(value, list):
        return value if key == EVERY else value[int(key) :][:1] if key.isdecimal() else ()
    return (value[key],) if isinstance(value, dict) and key in value else ()
