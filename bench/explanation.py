# SPDX-License-Identifier: Apache-2.0
"""False claims and found causes of ``calibration explain``, on generated labs: ``python -m bench.explanation COMMAND``.

``false`` generates labs whose throughput and calibration both change, but never together for a reason; ``dates`` the
same without series, for many labs. ``power`` plants causes in labs where other things change too, and coincidences.
``cost`` times a whole lab. The others print a table in reStructuredText for docs/method/explanation.rst.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from bench.tables import table
from calibration.formats.throughput import Measured, Throughput
from calibration.judge.association import Occurrence, associate
from calibration.judge.candidates import Calibration, candidates_of
from calibration.judge.explanation import Explanation, explained
from calibration.judge.tolerances import Tolerances
from calibration.results.history import History, NightRun, Series

Floats = NDArray[np.float64]

FIRST: Final = date(2026, 1, 1)
NIGHTS: Final = 180
SUTS: Final = 8
TESTS: Final = 6
METRICS: Final = 16
"""Size of a generated lab."""

NOISE: Final = 0.01
"""Relative standard deviation of a night, of tests and of metrics."""

TESTBED: Final = "lab"


@dataclass
class Lab:
    """A generated lab. ``tests`` has the shape (tests, SUTs, nights), ``metrics`` (metrics, SUTs, nights).

    ``facts`` are changes: fact, SUT, night and new text. Changes come on one night of ``every``.
    """

    chance: np.random.Generator
    suts: int = SUTS
    nights: int = NIGHTS
    every: int = 1
    tests: Floats = field(default_factory=lambda: np.zeros(0))
    metrics: Floats = field(default_factory=lambda: np.zeros(0))
    facts: list[tuple[str, int, int, str]] = field(default_factory=list)

    def night(self) -> int:
        """Return a random night, not too near the ends to be found."""
        night = int(self.chance.integers(20, self.nights - 10))
        return night - night % self.every

    def move_test(self, sut: int, night: int, size: float, tests: int = TESTS) -> None:
        """Change the level of the first *tests* of *sut*."""
        self.tests[:tests, sut, night:] *= 1.0 + size

    def move_metric(self, sut: int, night: int, size: float, metric: int, metrics: int = 3) -> None:
        """Change the level of so many *metrics* of *sut* from *metric* on."""
        self.metrics[metric : metric + metrics, sut, night:] *= 1.0 + size

    def size(self, low: float = 0.03, high: float = 0.12) -> float:
        """Return a random size of a change, up or down."""
        return float(self.chance.uniform(low, high) * self.chance.choice((-1.0, 1.0)))


class Noise(NamedTuple):
    """Noise of a night: its autocorrelation, degrees of freedom of Student's t (0 is normal), and a random walk."""

    correlation: float = 0.0
    degrees: int = 0
    walk: float = 0.0

    def generate(self, chance: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Return values around 100."""
        drawn = chance.standard_t(self.degrees, shape) / np.sqrt(3.0) if self.degrees else chance.standard_normal(shape)
        for night in range(1, shape[-1] if self.correlation else 0):
            drawn[..., night] *= np.sqrt(1.0 - self.correlation**2)
            drawn[..., night] += self.correlation * drawn[..., night - 1]
        walk = np.cumsum(chance.standard_normal(shape), axis=-1) * self.walk
        return np.asarray(100.0 * (1.0 + NOISE * (drawn + walk)))


def quiet_lab(chance: np.random.Generator, noise: Noise, *, suts: int = SUTS, nights: int = NIGHTS) -> Lab:
    """Return a lab without a change."""
    lab = Lab(chance, suts, nights)
    lab.tests = noise.generate(chance, (TESTS, suts, nights)) * chance.uniform(0.8, 1.2, (TESTS, suts, 1))
    lab.metrics = noise.generate(chance, (METRICS, suts, nights))
    return lab


def busy_lab(
    chance: np.random.Generator,
    noise: Noise,
    *,
    rate: float = 1.0,
    every: int = 1,
    suts: int = SUTS,
    nights: int = NIGHTS,
) -> Lab:
    """Return a lab in which tests, metrics and facts of each SUT change independently, *rate* times each on average."""
    lab = quiet_lab(chance, noise, suts=suts, nights=nights)
    lab.every = every
    for sut in range(suts):
        for _ in range(chance.poisson(rate)):
            lab.move_test(sut, lab.night(), lab.size(), int(chance.integers(1, TESTS + 1)))
        for _ in range(chance.poisson(rate)):
            lab.move_metric(sut, lab.night(), lab.size(), int(chance.integers(METRICS - 3)))
        for number in range(chance.poisson(rate)):
            lab.facts.append((f"fact {chance.integers(4)}", sut, lab.night(), f"version {number + 2}"))
    return lab


def with_software(lab: Lab) -> Lab:
    """Return *lab* with new software under test every month, which moves all SUTs."""
    for night in range(20, lab.nights - 10, 30):
        lab.tests[:, :, night:] *= 1.0 + lab.size()
    return lab


def with_rollout(lab: Lab) -> Lab:
    """Return *lab* with a kernel rolled out to all SUTs on one night, and faults of a part shared by three of them."""
    night, other = lab.night(), lab.night()
    lab.facts += [("kernel", sut, night, "6.2") for sut in range(lab.suts)]
    for sut in range(3):
        lab.move_test(sut, other, -0.05)
    return lab


NORMAL: Final = Noise(0.2)


def _same(lab: Lab) -> Lab:
    return lab


class Null(NamedTuple):
    """A kind of lab in which nothing follows the calibration."""

    noise: Noise = NORMAL
    rate: float = 1.0
    every: int = 1
    more: Callable[[Lab], Lab] = _same


FALSE: Final[Mapping[str, Null]] = {
    "nothing changes": Null(rate=0.0),
    "one change of tests, metrics, facts per SUT": Null(),
    "the same, and new software every month": Null(more=with_software),
    "the same, and a rollout and a shared fault": Null(more=with_rollout),
    "three changes of each per SUT": Null(rate=3.0),
    "autocorrelation 0.5": Null(Noise(0.5)),
    "Student t, 3 df": Null(Noise(0.0, 3)),
    "random walks": Null(Noise(0.0, 0, 0.3), 0.5),
    "changes on one weekday only": Null(every=7),
}


def answered(lab: Lab) -> Explanation:
    """Return the explanation of *lab*, by everything but the files and the index."""
    throughput = Throughput()
    days = [FIRST.toordinal() + night for night in range(lab.nights)]
    for test, rows in enumerate(lab.tests):
        for sut, values in enumerate(rows):
            name, host = f"test{test}", (f"sut{sut}",)
            throughput.series[host, name] = Measured(host, name, "Mpps", "generated", days, values.tolist())
    places: dict[tuple[str, ...], tuple[tuple[str, str], ...]] = {
        (f"sut{sut}",): ((TESTBED, f"sut{sut}"),) for sut in range(lab.suts)
    }
    return explained(throughput, places, calibration_of(lab))


def calibration_of(lab: Lab) -> Calibration:
    """Return the changes in the calibration of *lab*."""
    nights = tuple(FIRST + timedelta(days=night) for night in range(lab.nights))
    runs: dict[tuple[str, str], dict[date, NightRun]] = {}
    for sut in range(lab.suts):
        name, facts = f"sut{sut}", {fact: "version 1" for fact, *_ in lab.facts}
        changes = {(at, fact): text for fact, own, at, text in lab.facts if own == sut}
        for number, night in enumerate(nights):
            new = {fact: text for (at, fact), text in changes.items() if at == number}
            facts = {**facts, **new} if new else facts
            run = NightRun(TESTBED, name, f"{number}", night, "complete", "", facts, ())
            runs.setdefault((TESTBED, name), {})[night] = run
    series = [
        Series(TESTBED, f"sut{sut}", f"kind{metric // 3}.metric{metric}.bandwidth_mb_s", "MB/s", "higher")
        for metric in range(len(lab.metrics))
        for sut in range(lab.suts)
    ]
    values = lab.metrics.reshape(-1, lab.nights)
    history = History(nights, tuple(series), values, values, values, runs, {})
    found = candidates_of(history, {f"sut{sut}" for sut in range(lab.suts)}, Tolerances())
    return Calibration(found, dict.fromkeys(found, (nights[0], nights[-1])))


def claims(found: Explanation, sut: str | None = None, night: int | None = None) -> int:
    """Return the number of changes that follow the calibration: of one *sut*, near one *night* if given."""
    return sum(
        change.outcome == "follows"
        for test in found.tests
        for row in test.suts
        for change in row.changes
        if (sut is None or row.suts == (f"{TESTBED}/{sut}",))
        and (night is None or abs((change.night - FIRST).days - night) <= 2)
    )


def false_rows(labs: int) -> Iterator[tuple[str, ...]]:
    """Yield by kind of lab how many of the *labs* have any claim, which is false, and how many changes are found."""
    for name, null in FALSE.items():
        wrong, moved = 0, 0
        for seed in range(labs):
            chance = np.random.default_rng([seed, len(name)])
            found = answered(null.more(busy_lab(chance, null.noise, rate=null.rate, every=null.every)))
            wrong += claims(found) > 0
            moved += sum(len(row.changes) for test in found.tests for row in test.suts)
        yield name, f"{100.0 * wrong / labs:.1f}", f"{moved / labs:.1f}"


class Dates(NamedTuple):
    """A lab of which only the dates of changes are drawn, without the series: thousands of labs take a minute.

    ``rate`` is the number of changes of the throughput, of metrics and of facts per SUT. With ``shared``, a rollout
    changes a fact of every SUT on one night, and a fault the throughput of a third of them. With ``phases``, all
    changes are in the first third of the nights; with ``every``, on one night in so many.
    """

    suts: int = SUTS
    nights: int = NIGHTS
    rate: float = 1.0
    shared: bool = False
    phases: bool = False
    every: int = 1

    def claimed(self, chance: np.random.Generator) -> bool:
        """Return whether anything is claimed in one lab."""

        def night() -> int:
            drawn = int(chance.integers(self.nights // 3 if self.phases else self.nights))
            return drawn - drawn % self.every

        def sign() -> int:
            return int(chance.choice((-1, 1)))

        changes = {sut: [(night(), sign()) for _ in range(chance.poisson(self.rate))] for sut in range(self.suts)}
        occurrences: list[Occurrence] = []
        for sut in range(self.suts):
            for _ in range(chance.poisson(self.rate)):
                at, direction, strength = night(), sign(), float(chance.uniform(1.5, 6.0))
                for metric in range(first := int(chance.integers(METRICS - 3)), first + 3):
                    occurrences.append(Occurrence(metric, sut, at, at, direction, strength * chance.uniform(0.9, 1.1)))
            for number in range(chance.poisson(self.rate)):
                at = night()
                occurrences.append(Occurrence((f"fact {chance.integers(4)}", number), sut, at, at, 1, 0.0))
        if self.shared:
            at, fault = night(), night()
            occurrences += [Occurrence("kernel", sut, at, at, 1, 0.0) for sut in range(self.suts)]
            for sut in range(self.suts // 3):
                changes[sut].append((fault, -1))
        found = associate([self.nights] * self.suts, changes, occurrences)
        return any(evidence.claimed for evidence in found.evidence.values())


DATES: Final[Mapping[str, Dates]] = {
    "8 SUTs, one change of each": Dates(),
    "8 SUTs, three of each": Dates(rate=3.0),
    "3 SUTs and 60 nights, one of each": Dates(3, 60),
    "30 SUTs, one of each": Dates(30),
    "8 SUTs, a rollout and a fault of three": Dates(shared=True),
    "8 SUTs, all in the first third": Dates(phases=True),
    "8 SUTs, on one weekday": Dates(every=7),
}


def dates_rows(labs: int) -> Iterator[tuple[str, str]]:
    """Yield by kind of lab how many of the *labs* have any claim, in %, with the 95 % interval of that share."""
    for name, dates in DATES.items():
        wrong = sum(dates.claimed(np.random.default_rng([seed, len(name)])) for seed in range(labs))
        low = betaincinv(wrong, labs - wrong + 1, 0.025) if wrong else 0.0
        high = betaincinv(wrong + 1, labs - wrong, 0.975) if wrong < labs else 1.0
        yield name, "{:.1f} [{:.1f}, {:.1f}]".format(*(100.0 * item for item in (wrong / labs, low, high)))


class Planted(NamedTuple):
    """What is planted in a lab: where the throughput changes, and whether it follows the calibration."""

    places: tuple[tuple[int, int], ...]


def _one_metric(lab: Lab, size: float = -0.12, effect: float = -0.06) -> Planted:
    night = lab.night()
    lab.move_metric(0, night, size, 0)
    lab.move_test(0, night, effect)
    return Planted(((0, night),))


def _small_metric(lab: Lab) -> Planted:
    return _one_metric(lab, -0.03, -0.02)


def _one_fact(lab: Lab) -> Planted:
    night = lab.night()
    lab.facts.append(("BIOS", 0, night, "2.2"))
    lab.move_test(0, night, -0.05)
    return Planted(((0, night),))


def _fact_everywhere(lab: Lab) -> Planted:
    places = tuple((sut, lab.night()) for sut in range(lab.suts))
    for sut, night in places:
        lab.facts.append(("BIOS", sut, night, "2.2"))
        lab.move_test(sut, night, -0.03)
    return Planted(places)


def _fact_coincides(lab: Lab) -> Planted:
    places = tuple((sut, lab.night()) for sut in range(lab.suts))
    lab.facts += [("BIOS", sut, night, "2.2") for sut, night in places]
    lab.move_test(0, places[0][1], -0.05)
    return Planted(places[:1])


def _metric_coincides(lab: Lab) -> Planted:
    places = tuple((sut, lab.night()) for sut in range(3))
    for sut, night in places:
        lab.move_metric(sut, night, -0.08, 0)
    lab.move_test(0, places[0][1], -0.05)
    return Planted(places[:1])


def _neither(lab: Lab) -> Planted:
    night = lab.night()
    lab.move_test(0, night, -0.05)
    return Planted(((0, night),))


PLANTED: Final = {
    "cause: bandwidth -12 %, tests -6 % on one SUT": _one_metric,
    "cause: bandwidth -3 %, tests -2 % on one SUT": _small_metric,
    "cause: BIOS on one SUT, tests -5 %": _one_fact,
    "cause: BIOS on every SUT in turn, tests -3 %": _fact_everywhere,
    "coincidence: BIOS on every SUT in turn, tests -5 % on one": _fact_coincides,
    "coincidence: bandwidth -8 % on three SUTs, tests -5 % on one": _metric_coincides,
    "neither: tests -5 % on one SUT": _neither,
}
RATES: Final = (0.0, 0.5)
"""Other changes of tests, of metrics and of facts per SUT, for the causes."""


def power_rows(labs: int) -> Iterator[tuple[str, ...]]:
    """Yield what is planted, and by what else changes in the lab in how many of the *labs* it is claimed, in %."""
    for name, plant in PLANTED.items():
        cells = []
        for rate in RATES:
            claimed = places = 0
            for seed in range(labs):
                lab = busy_lab(np.random.default_rng([seed, len(name)]), NORMAL, rate=rate)
                planted = plant(lab)
                found = answered(lab)
                claimed += sum(claims(found, f"sut{sut}", night) > 0 for sut, night in planted.places)
                places += len(planted.places)
            cells.append(f"{100.0 * claimed / places:.0f}")
        yield name, *cells


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def explanation() -> None:
    """Measure false claims, found causes and the cost of ``calibration explain`` on generated labs."""


LABS = click.option("--labs", type=click.IntRange(1), default=200, show_default=True, help="Labs per row.")


@explanation.command("false")
@LABS
def false_command(labs: int) -> None:
    """Count labs with a false claim."""
    click.echo("\n".join(table(("Lab", "With a claim, %", "Changes"), list(false_rows(labs)))))


@explanation.command("dates")
@click.option("--labs", type=click.IntRange(1), default=1000, show_default=True, help="Labs per row.")
def dates_command(labs: int) -> None:
    """Count labs with a false claim by the dates of their changes alone, without the series."""
    click.echo("\n".join(table(("Lab", "With a claim, %"), list(dates_rows(labs)))))


@explanation.command("power")
@LABS
def power_command(labs: int) -> None:
    """Count planted causes and coincidences that are claimed."""
    head = ("Planted, claimed in %", *(f"{rate:g} others per SUT" for rate in RATES))
    click.echo("\n".join(table(head, list(power_rows(labs)))))


@explanation.command("cost")
@click.option("--suts", type=click.IntRange(1), default=100, show_default=True)
@click.option("--nights", type=click.IntRange(30), default=365, show_default=True)
@click.option("--tests", type=click.IntRange(1), default=50, show_default=True)
@click.option("--metrics", type=click.IntRange(3), default=500, show_default=True)
def cost_command(suts: int, nights: int, tests: int, metrics: int) -> None:
    """Time the answer for a lab, without reading its files and its index."""
    lab = busy_lab(np.random.default_rng(1), NORMAL, suts=suts, nights=nights)
    lab.tests = np.resize(lab.tests, (tests, suts, nights)) * lab.chance.normal(1.0, NOISE, (tests, suts, nights))
    lab.metrics = np.resize(lab.metrics, (metrics, suts, nights))
    started = time.process_time()
    found = answered(lab)
    click.echo(f"{time.process_time() - started:.1f} s CPU, {claims(found)} claims")


if __name__ == "__main__":
    explanation()
