# SPDX-License-Identifier: Apache-2.0
"""The rounds of a run: which step is measured when, and when there were enough of them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from calibration.runner import fields
from calibration.runner.intervals import MOMENTS, median_ranks, middle


class Rounds:
    """The steps of *plan*: searches, then rounds, each shuffled by the plan's seed, then what is measured once."""

    def __init__(self, plan):
        self.seed = plan.get("seed", 0)
        self.steps = [step for step in plan["steps"] if step.get("rounds", 1) != 1]
        once = [step for step in plan["steps"] if step.get("rounds", 1) == 1]
        choices = [step["choice"] for step in plan["steps"] if step.get("choice")]
        self.fields = {choice["step"]: choice["field"] for choice in choices}
        self.searches = [step for step in once if step["id"] in self.fields]
        self.once = [step for step in once if step["id"] not in self.fields]
        self.left = {step["id"]: rounds_of(step) for step in self.steps}
        self.last = max((number for left in self.left.values() for number in left), default=0)
        self.chosen: dict[str, list[int]] = {}
        self.figures: dict[str, list[list[float | None]]] = {step["id"]: [] for step in self.steps}

    def __iter__(self):
        """Yield each step to run: its round (None if it is measured once), what to call that, and the step."""
        for place, step in enumerate(self.searches, 1):
            yield None, "before the rounds, step %d of %d" % (place, len(self.searches)), step
        number = 0
        while True:
            number += 1
            further = number > self.last
            steps = [step for step in self.steps if number in self.left[step["id"]]]
            if further:
                steps = list(filter(self.wants_more, self.steps))
            if further and not steps:
                break
            word = "round %d %s %d" % (number, "beyond the planned" if further else "of", self.last)
            for place, step in enumerate(self.shuffled(steps, number), 1):
                yield number, "%s, step %d of %d" % (word, place, len(steps)), step
        word = "after the rounds, step" if self.last else "step"
        for place, step in enumerate(self.once, 1):
            yield None, "%s %d of %d" % (word, place, len(self.once)), step

    def shuffled(self, steps, number):
        """Return *steps* in the order of a round; those with the prefetchers off last, to switch them once."""
        steps = list(steps)
        self.random(number).shuffle(steps)
        return sorted(steps, key=lambda step: step.get("prefetchers") == "off")

    def random(self, *what):
        """Return the random numbers of a round, or of something in it."""
        return random.Random(":".join(map(str, (self.seed, *what))))  # noqa: S311 - an order, no secret

    def obstacle(self, step):
        """Return why *step* is not measured, None if it is."""
        choice = step.get("choice")
        if choice is None or choice["step"] in self.chosen:
            return None
        return "its search, %s, failed" % choice["step"]

    def argv(self, step, number):
        """Return the command of *step* in round *number*."""
        words, choice = list(step["argv"]), step.get("choice")
        if choice is not None:
            words += chosen_words(choice, self.chosen[choice["step"]])
        if step.get("seeded"):
            words += ["--seed", str(self.random(number or 0, step["id"]).getrandbits(31))]
        return words

    def keep(self, step, found):
        """Keep what the answer of *step* that was *found* says for later commands.

        Return what a record of it needs to say besides: the field that the plan names and the answer lacks.
        """
        searched = self.fields.get(step["id"])
        figures = step.get("figures") if step["id"] in self.figures else None
        if not (searched or figures) or found["rc"] != 0:
            return {}
        try:
            answer = json.loads(found["stdout"])
        except (ValueError, RecursionError):
            return {}  # whoever reads the record sees that
        try:
            if searched:
                self.chosen[step["id"]] = fields.chosen(answer, searched)
            if figures:
                self.figures[step["id"]].append(fields.figures(answer, figures))
        except fields.Lacking as lacking:
            return {"lacks": str(lacking)}
        return {}

    def wants_more(self, step):
        """Return whether a further round may bring a figure of *step* to its target."""
        rounds = self.figures[step["id"]]
        more = step.get("more_rounds", 0)
        target = step.get("target_half_width")
        planned = step["rounds"]
        if target is None or not isinstance(planned, int) or not planned <= len(rounds) < planned + more:
            return False  # of a resumed run only what was missing is measured
        for values in zip(*rounds):  # noqa: B905 - Python 3.8
            known = [value for value in values if value is not None]
            if known and half_width(known) > target:
                return True
        return False


def rounds_of(step):
    """Return the rounds in which *step* is still to be measured: all of them, or those listed."""
    rounds = step["rounds"]
    return range(1, rounds + 1) if isinstance(rounds, int) else rounds


def chosen_words(choice: Mapping[str, Any], numbers: Sequence[int]) -> list[str]:
    """Return the words by which a command measures the *numbers* of its *choice*."""
    return [choice["option"], ",".join(map(str, numbers))]


def half_width(values):
    """Return half the width of the interval of *values*, one of each round, relative to their median."""
    ordered = sorted(values)
    low, high, _ = median_ranks(len(ordered))
    return MOMENTS * (ordered[high - 1] - ordered[low - 1]) / 2 / abs(middle(ordered) or 1)
