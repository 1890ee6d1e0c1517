# SPDX-License-Identifier: Apache-2.0
"""How often noise is called a change, and how soon changes are found: labelled series, night by night.

Every series is noise around 100 with a standard deviation of 1, with or without memory of the night before and a weekly
cycle on top. What is planted in it is known only here. ``python bench/drift.py --json bench/drift.json`` makes the
document of docs/development/benchmarks.rst, and bench/drift_page.py its tables.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.peers import write_json
from calibration import __version__
from calibration.errors import INTERRUPTED, CalibrationError, InputError
from calibration.judge.detector import Walk, two_levels
from calibration.judge.drift import analyse

Floats = NDArray[np.float64]

SCHEMA = "drift/2"

LENGTH = 180
"""Nights of the series that false alarms are counted on."""

AFTER = (20, 30, 60, 120)
"""Nights before a planted change."""

SHIFT = 4.0
"""Standard deviations of a night, the weekly cycle included, by which a level shifts."""

SHIFTS = 3
"""Series with a shift, per series of other questions: its share is to be known best."""

WITHIN = 3
"""Nights within which a shift is to be found."""

RISE = 0.15
"""The same by which a drift moves it every night."""

RISE_WITHIN = 14
"""Nights within which a drift is to be found."""

CYCLE = 0.3
"""Amplitude of a weekly cycle, in standard deviations of the noise."""

LEVEL = 100.0

NEAR = 10
"""Nights by which a change may be dated again and be the same."""

CLOSE = 3
"""Nights by which the date of a planted shift may be off."""


class Noise(NamedTuple):
    """Noise with a mean of 0 and a standard deviation of 1, its correlation from night to night, and a weekly cycle."""

    draw: Callable[[np.random.Generator, tuple[int, int]], Floats]
    correlation: float = 0.0
    cycle: float = 0.0
    flips: bool = False

    @property
    def deviation(self) -> float:
        """The standard deviation of a night."""
        return float(np.sqrt(1.0 + self.cycle**2 / 2.0))

    def made(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        """Return series of so many nights, each with a phase of its own."""
        figures = self.draw(rng, shape)
        for night in range(1, shape[1] if self.correlation else 0):
            inherited = self.correlation * figures[:, night - 1]
            figures[:, night] = inherited + np.sqrt(1.0 - self.correlation**2) * figures[:, night]
        phase = rng.random((shape[0], 1))
        return np.asarray(figures + self.cycle * np.sin(2.0 * np.pi * (np.arange(shape[1]) / 7.0 + phase)))


def _two(share: float, apart: float = 20.0) -> Callable[[np.random.Generator, tuple[int, int]], Floats]:
    """Return noise that flips between two levels night by night, each with a noise of its own."""

    def noise(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        figures = rng.standard_normal(shape) + apart * (rng.random(shape) < share)
        return np.asarray((figures - apart * share) / np.sqrt(1.0 + apart**2 * share * (1.0 - share)))

    return noise


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.standard_normal(shape)


def _student(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return np.asarray(rng.standard_t(3, shape) / np.sqrt(3.0))


def _lognormal(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    figures = np.exp(0.5 * rng.standard_normal(shape))
    return np.asarray((figures - np.exp(0.125)) / np.sqrt((np.exp(0.25) - 1.0) * np.exp(0.25)))


def _outliers(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    figures = rng.standard_normal(shape)
    figures += 10.0 * (rng.random(shape) < 0.02) * np.where(rng.random(shape) < 0.5, -1.0, 1.0)
    return np.asarray(figures / np.sqrt(3.0))


def _missing(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return np.where(rng.random(shape) < 0.2, np.nan, rng.standard_normal(shape))


DEPENDENT: Mapping[str, Noise] = {
    f"autocorrelation {correlation:g}{', weekly cycle' if cycle else ''}": Noise(_normal, correlation, cycle)
    for correlation in (0.0, 0.1, 0.2, 0.3)
    for cycle in (0.0, CYCLE)
}
"""Normal noise that the targets are for."""

OTHERS: Mapping[str, Noise] = {
    "Student t, 3 df": Noise(_student),
    "log-normal": Noise(_lognormal),
    "outliers, 2 %": Noise(_outliers),
    "two levels, 50/50": Noise(_two(0.5), flips=True),
    "two levels, 80/20": Noise(_two(0.2), flips=True),
    "two levels, 90/10": Noise(_two(0.1), flips=True),
    "normal, 20 % missing": Noise(_missing),
}

NOISES: Mapping[str, Noise] = {**DEPENDENT, **OTHERS}


def made(noise: str, seed: int, series: int, nights: int) -> Floats:
    """Return *series* of *noise* over *nights* around the level, of which nothing changes."""
    rng = np.random.default_rng([seed, tuple(NOISES).index(noise)])
    return LEVEL + NOISES[noise].made(rng, (series, nights))


def _signs(figures: Floats) -> Floats:
    return np.where(np.arange(len(figures)) % 2 == 0, 1.0, -1.0)[:, None]


def shifted(figures: Floats, after: int, size: float) -> Floats:
    """Return *figures* with a level that shifts *after* so many nights: up in every other series, down in the rest."""
    return np.asarray(figures + size * _signs(figures) * (np.arange(figures.shape[1]) >= after))


def drifting(figures: Floats, after: int, size: float) -> Floats:
    """Return *figures* with a level that drifts by *size* every night *after* so many, up or down."""
    return np.asarray(figures + size * _signs(figures) * np.clip(np.arange(figures.shape[1]) - after + 1, 0, None))


def false_alarms(figures: Floats, *, flips: bool) -> int:
    """Return how many alarms begin on *figures*, which have no change, walked through night by night.

    An alarm is a change of the level or of the spread that was not named the night before within ten nights of the same
    place; and flips between two levels, where *flips* are not what the noise does.
    """
    counts = np.isfinite(figures).sum(axis=1)
    packed = np.take_along_axis(figures, np.argsort(~np.isfinite(figures), axis=1, kind="stable"), axis=1) - LEVEL
    walk = Walk(np.ascontiguousarray(packed.T), counts)
    alarms, flipping = 0, np.zeros(len(figures), np.bool_)
    named: list[list[int]] = [[] for _ in figures]
    for night in range(figures.shape[1]):
        walk.step(night)
        now = [[at for at, _ in begins] for begins in walk.begins]
        alarms += sum(
            all(abs(at - old) > NEAR for old in before)
            for before, after in zip(named, now, strict=True)
            if after != before
            for at in after
        )
        named = now
        if not flips and night % 7 == 6:
            first = np.array([begins[-1] if begins else 0 for begins in now])
            seen = np.where(np.arange(night + 1) >= first[:, None], packed[:, : night + 1], np.nan)
            found = two_levels(seen).found
            alarms += int((found & ~flipping).sum())
            flipping = found
    return alarms


def found(figures: Floats, after: int, within: int) -> NDArray[np.bool_]:
    """Return in which of *figures* the change *after* so many nights is named on one of the nights *within* it."""
    hit = np.zeros(len(figures), np.bool_)
    for night in range(after + 1, after + within + 1):
        left = np.flatnonzero(~hit)
        hit[left] = [
            any(each.kind == "level" and each.night >= after - CLOSE for each in analysis.changes)
            for analysis in analyse(figures[left, :night])
        ]
    return hit


def t_test_alarms(figures: Floats) -> int:
    """Return how many alarms begin where the newest three figures differ from all before by Student's test at 0.0008.

    That is what a lab without this project might do: noise is taken for independent and normal.
    """
    packed = np.take_along_axis(figures, np.argsort(~np.isfinite(figures), axis=1, kind="stable"), axis=1) - LEVEL
    alarms, last = 0, np.full(len(packed), -NEAR - 1)
    for night in range(13, packed.shape[1] + 1):
        new, old = packed[:, night - 3 : night], packed[:, : night - 3]
        error = old.std(axis=1, ddof=1) * np.sqrt(1.0 / 3.0 + 1.0 / old.shape[1])
        alarm = 2.0 * stdtr(old.shape[1] - 1, -np.abs(new.mean(axis=1) - old.mean(axis=1)) / error) < 0.0008
        alarms += int((alarm & (night - last > NEAR)).sum())
        last[alarm] = night
    return alarms


def known_noise_drifts(correlation: float, series: int) -> float:
    """Return the share of drifts that are found where all of the noise is known, and only drifts are looked for.

    The newest nights are weighed as a drift is in them. The bound is the one at which one false alarm in 1000 nights
    begins: nothing that is this seldom wrong and looks at so many nights finds many more.
    """
    rng = np.random.default_rng(20)
    weights = np.arange(RISE_WITHIN, 0, -1.0)

    def weighed(figures: Floats) -> Floats:
        fresh = figures[:, 1:] - correlation * figures[:, :-1]
        signal = weights * (1.0 - correlation) + correlation
        return np.asarray(np.abs(np.apply_along_axis(np.convolve, 1, fresh, signal, "valid")))

    quiet = weighed(Noise(_normal, correlation).made(rng, (series, LENGTH)))
    bounds = np.quantile(quiet, np.linspace(0.99, 0.99999, 100))
    for bound in bounds:
        beyond = quiet > bound
        begun = beyond.copy()
        for back in range(1, NEAR + 1):
            begun[:, back:] &= ~beyond[:, :-back]
        if begun.sum() <= quiet.size / 1000.0:
            break
    planted = drifting(Noise(_normal, correlation).made(rng, (series, 40)), 40 - RISE_WITHIN, RISE)
    return float((weighed(planted)[:, -RISE_WITHIN:] > bound).any(axis=1).mean())


def measured(noise: str, series: int) -> dict[str, Any]:
    """Return the false alarms on *noise*, and the shifts and drifts that were found in it."""
    alarms = tested = nights = 0
    for seed in range(0, 5 * series, 1000):
        figures = made(noise, seed, 1000, LENGTH)
        alarms += false_alarms(figures, flips=NOISES[noise].flips)
        tested += t_test_alarms(figures)
        nights += int(np.isfinite(figures).sum())
    shifts, drifts, deviation = {}, {}, NOISES[noise].deviation
    for after in AFTER:
        quiet = made(noise, after, SHIFTS * series, after + RISE_WITHIN)
        shifts[str(after)] = int(found(shifted(quiet, after, SHIFT * deviation), after, WITHIN).sum())
        drifts[str(after)] = int(found(drifting(quiet[:series], after, RISE * deviation), after, RISE_WITHIN).sum())
    return {"nights": nights, "alarms": alarms, "t_test_alarms": tested, "shifts": shifts, "drifts": drifts}


def own_coverage(series: int) -> list[dict[str, Any]]:
    """Return how often the interval of a shift's size has the true size, by nights after it."""
    rows = []
    for noise in ("autocorrelation 0", "autocorrelation 0.3", "Student t, 3 df", "log-normal"):
        for nights in (3, 10, 30):
            figures = shifted(made(noise, 8, series, 60 + nights), 60, SHIFT)
            inside, tries = 0, 0
            for true, analysis in zip((SHIFT / LEVEL * _signs(figures))[:, 0], analyse(figures), strict=True):
                near = [each for each in analysis.changes if each.kind == "level" and abs(each.night - 60) <= CLOSE]
                inside += sum(each.interval[0] <= true <= each.interval[1] for each in near)
                tries += len(near)
            rows.append({"noise": noise, "nights": nights, "hits": int(inside), "tries": tries})
    return rows


def own_spread(series: int) -> list[dict[str, Any]]:
    """Return how soon a standard deviation is found that became three times as large, or a third, after 90 nights."""
    rows = []
    for noise in ("autocorrelation 0", "autocorrelation 0.3", "Student t, 3 df", "log-normal"):
        for factor in (3.0, 1.0 / 3.0):
            figures = made(noise, 9, series, 120)
            figures[:, 90:] = LEVEL + factor * (figures[:, 90:] - LEVEL)
            within = {}
            for nights in (10, 15, 20, 30):
                analyses = analyse(figures[:, : 90 + nights])
                within[str(nights)] = sum(any(c.kind == "spread" and c.night > 80 for c in a.changes) for a in analyses)
            rows.append({"noise": noise, "factor": factor, "hits": within, "tries": series})
    return rows


def own_flips(series: int) -> list[dict[str, Any]]:
    """Return in how many series flips between two levels are reported, by nights of them; also where there are none."""
    rows = []
    for noise in ("autocorrelation 0", "autocorrelation 0.3", *OTHERS):
        figures = made(noise, 10, series, 90)
        within = {
            str(nights): sum(each.flips is not None for each in analyse(figures[:, :nights]))
            for nights in (20, 30, 60, 90)
        }
        rows.append({"noise": noise, "hits": within, "tries": series})
    return rows


def own_time(series: int) -> dict[str, Any]:
    """Return how long it takes for a store of many series of a year."""
    figures = made("autocorrelation 0", 12, series, 365)
    begun, spent = time.perf_counter(), time.process_time()
    analyse(figures)
    wall, cpu = time.perf_counter() - begun, time.process_time() - spent
    return {"series": series, "nights": 365, "wall_s": round(wall, 2), "cpu_s": round(cpu, 2)}


def document_of(series: int, say: Callable[[str], None], largest: int = 8000) -> dict[str, Any]:
    """Measure everything and return the document."""
    noises = {}
    for noise in NOISES:
        noises[noise] = row = measured(noise, series)
        say(f"{noise:30} {1000.0 * row['alarms'] / row['nights']:.2f} false alarms; {row['shifts']} {row['drifts']}")
    return {
        "schema": SCHEMA,
        "version": __version__,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__},
        "series": series,
        "noises": noises,
        "known_noise": {str(rho): known_noise_drifts(rho, 4 * series) for rho in (0.0, 0.1, 0.2, 0.3)},
        "coverage": own_coverage(series),
        "spread": own_spread(series),
        "flips": own_flips(series),
        "time": own_time(largest),
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the document here.")
@click.option("--series", type=click.IntRange(10), default=2000, show_default=True, help="For each question and noise.")
def drift_command(json_file: Path | None, series: int) -> None:
    """Measure how changes in nightly figures are found, on labelled series."""
    try:
        if json_file is not None and not json_file.absolute().parent.is_dir():
            raise InputError(f"no such directory for --json: {json_file.parent}")
        document = document_of(series, lambda text: click.echo(text, err=True))
        if json_file is not None:
            write_json(json_file, document)
        else:
            click.echo(json.dumps(document, indent=1))
    except CalibrationError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    drift_command()
