# SPDX-License-Identifier: Apache-2.0
"""Recorded documents of one command as those of the rounds of a run."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from calibration.measurements.base import Step


def in_rounds(document: dict[str, Any], rounds: int) -> list[dict[str, Any]]:
    """Return *rounds* documents, of which each has one of the placements of each point of *document*."""
    return [document] if rounds == 1 else [_of_round(document, number) for number in range(rounds)]


def first_round(document: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Return the first of the documents of ``in_rounds``."""
    found: dict[str, Any] = document if rounds == 1 else _of_round(document, 0)
    return found


def numbered(step: Step, document: dict[str, Any] | None) -> list[tuple[int | None, dict[str, Any] | None]]:
    """Return round and document of each of the records that *step* leaves."""
    if step.rounds == 1:
        return [(None, document)]
    made = [None] * step.rounds if document is None else in_rounds(document, step.rounds)
    return list(enumerate(made, 1))


def all_rounds(
    steps: Iterable[Step], answer: Callable[[Step], dict[str, Any]]
) -> Iterator[tuple[Step, int | None, dict[str, Any] | None]]:
    """Yield each step of a plan with the round and the document of each of its records, made from its *answer*."""
    for step in steps:
        for number, document in numbered(step, answer(step)):
            yield step, number, document


def _of_round(value: Any, number: int) -> Any:
    if isinstance(value, list):  # long ones are of numbers
        return value if value and isinstance(value[0], int | float) else [_of_round(item, number) for item in value]
    if not isinstance(value, dict):
        return value
    found = {name: _of_round(item, number) for name, item in value.items()}
    if isinstance(placements := value.get("placements"), list) and placements:
        found["placements"] = [placements[number % len(placements)]]
    return found
