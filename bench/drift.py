# SPDX-License-Identifier: Apache-2.0
"""Methods that find changes in nightly figures, compared on labelled series, night by night as a lab would meet them.

Every series is noise around 100 with a standard deviation of 1, and what is planted in it is known only here. A method
is a function of the figures so far; it returns the nights on which something changed. Night by night it is asked anew:

* *found*: a level shifted by three standard deviations, up or down, after 60, 120 or 240 nights; a method found it
  when, on one of the first three nights of the new level, it names a change at most three nights off.
* *false alarm*: on noise without any change, a change that is named on a night and was not named the night before,
  within ten nights of the same place. Figures that flip between two levels are such noise.
* *date*: how many nights off the change is that is named nearest to the planted one, ten nights after it.

Ours are all of calibration.judge.drift, with flips between two levels as they are reported: not as changes. Contenders
are used as their authors use them, and where they are not installed they are said to be not compared
(requirements/bench.txt has them).
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaincinv, stdtr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.peers import write_json
from calibration import __version__
from calibration.errors import INTERRUPTED, CalibrationError, InputError
from calibration.judge.drift import Analysis, analyse, analyse_on

Floats = NDArray[np.float64]
Method = Callable[[Floats], list[list[int]]]
"""From figures of the shape (series, nights) to the nights on which each series changed."""

SCHEMA = "drift/1"

LENGTH = 180
"""Nights of the series that false alarms are counted on."""

AFTER = (60, 120, 240)
"""Nights before a planted shift."""

LEVEL = 100.0

NEAR = 10
"""Nights by which a change may be dated anew and be the same."""

LARGEST = 500
"""Series that a method is asked of together."""

OURS = "this project"

OURS_LONGER = 5.0
"""Times the CPU time of the others that ours gets: its false alarms are to be known best."""

CLOSE = 3
"""Nights by which the date of a planted change may be off."""


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


def _autocorrelated(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    figures = rng.standard_normal(shape)
    for night in range(1, shape[1]):
        figures[:, night] = 0.3 * figures[:, night - 1] + np.sqrt(1.0 - 0.09) * figures[:, night]
    return figures


NOISES: Mapping[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "normal": _normal,
    "Student t, 3 df": _student,
    "log-normal": _lognormal,
    "outliers, 2 %": _outliers,
    "two levels, 50/50": _two(0.5),
    "two levels, 80/20": _two(0.2),
    "two levels, 90/10": _two(0.1),
    "normal, 20 % missing": _missing,
    "AR(1), 0.3": _autocorrelated,
}
"""Noise with a mean of 0 and a standard deviation of 1. The last is not independent from night to night."""

MAJOR = tuple(NOISES)[:-1]
"""Noises that the targets are for."""


def made(noise: str, seed: int, series: int, nights: int) -> Floats:
    """Return *series* of *noise* over *nights* around the level, of which nothing changes."""
    return LEVEL + NOISES[noise](np.random.default_rng([seed, tuple(NOISES).index(noise)]), (series, nights))


def shifted(figures: Floats, after: int, size: float) -> Floats:
    """Return *figures* with a level that shifts *after* so many nights: up in every other series, down in the rest."""
    signs = np.where(np.arange(len(figures)) % 2 == 0, size, -size)
    return np.asarray(figures + signs[:, None] * (np.arange(figures.shape[1]) >= after))


def ours(figures: Floats) -> list[list[int]]:
    """Return the nights of all changes that this project reports."""
    return _changes(analyse(figures))


def _changes(analyses: Sequence[Analysis]) -> list[list[int]]:
    return [[change.night for change in each.changes] for each in analyses]


def _row_by_row(fewest: int, find: Callable[[Floats], Iterable[int]]) -> Method:
    """Return the method that asks *find* for the places of changes in each row's figures, of which there are *fewest*.

    Nights without a figure are left out.
    """

    def nights(row: Floats) -> list[int]:
        known = np.flatnonzero(np.isfinite(row))
        return [int(known[at]) for at in find(row[known])] if known.size >= fewest else []

    return lambda figures: [nights(row) for row in figures]


def _jumpavg(module: Any) -> Method:
    """Return jumpavg as CSIT's dashboard calls it, but for missing figures: those are left out, not taken for 0."""

    def find(figures: Floats) -> Iterable[int]:
        sizes = [len(group.run_list) for group in module.classify(figures.tolist()).group_list]
        return list(accumulate(sizes))[:-1]

    return _row_by_row(1, find)


def _otava(module: Any) -> Method:
    """Return E-divisive as Apache Otava calls it by default: windows of 50, probability below 0.001."""

    def find(figures: Floats) -> Iterable[int]:
        points, _weak = module.compute_change_points(figures.tolist(), window_len=50, max_pvalue=0.001)
        return [point.index for point in points]

    return _row_by_row(3, find)


def _pelt(module: Any) -> Method:
    """Return PELT of ruptures: least squares, at least three figures, penalty 3 log n of a robust variance."""

    def find(figures: Floats) -> Iterable[int]:
        scale = 1.4826 * np.median(np.abs(np.diff(figures) - np.median(np.diff(figures)))) / np.sqrt(2.0) or 1.0
        found = module.Pelt(model="l2", min_size=3, jump=1).fit(figures / scale)
        return list(found.predict(pen=3.0 * np.log(figures.size))[:-1])

    return _row_by_row(6, find)


def _newest_three(figures: Floats) -> Iterable[int]:
    new, old = figures[-3:], figures[:-3]
    spread = old.std(ddof=1)
    if spread > 0.0:
        off = abs(new.mean() - old.mean()) / (spread * np.sqrt(1.0 / 3.0 + 1.0 / old.size))
        if 2.0 * stdtr(old.size - 1, -off) < 0.0008:
            return [figures.size - 3]
    return []


newest_three = _row_by_row(13, _newest_three)
"""Student's test of the newest three figures against all before, two-sided at 0.0008: no memory at all."""


CONTENDERS: Mapping[str, tuple[str, str, Callable[[Any], Method]]] = {
    "jumpavg": ("jumpavg", "jumpavg", _jumpavg),
    "E-divisive (Otava)": ("apache-otava", "otava.analysis", _otava),
    "PELT (ruptures)": ("ruptures", "ruptures", _pelt),
}
"""Name, distribution and module of what others have, and how it is used."""


def find_methods() -> tuple[dict[str, Method], dict[str, str], dict[str, str]]:
    """Return methods by name, the versions of those that are of others, and the reasons of those not there."""
    methods: dict[str, Method] = {OURS: ours, "t test of three": newest_three}
    versions, absent = {}, {}
    for name, (distribution, module, made_of) in CONTENDERS.items():
        try:
            methods[name] = made_of(import_module(module))
        except ImportError as error:
            absent[name] = f"it is not installed here ({error})"
            continue
        versions[name] = version(distribution)
    return methods, versions, absent


def rate(hits: int, tries: int) -> dict[str, Any]:
    """Return a share with its exact binomial interval (Clopper and Pearson), 95 %."""
    low = betaincinv(hits, tries - hits + 1, 0.025) if hits else 0.0
    high = betaincinv(hits + 1, tries - hits, 0.975) if hits < tries else 1.0
    return {"hits": hits, "tries": tries, "share": hits / tries, "interval": [float(low), float(high)]}


def per_thousand(alarms: int, nights: int) -> dict[str, Any]:
    """Return alarms per 1000 metric-nights with the exact Poisson interval, 95 %."""
    low = gammaincinv(alarms, 0.025) if alarms else 0.0
    high = gammaincinv(alarms + 1, 0.975)
    scale = 1000.0 / nights
    interval = [float(low * scale), float(high * scale)]
    return {"alarms": alarms, "nights": nights, "per_1000": alarms * scale, "interval": interval}


def new_alarms(before: Sequence[int], now: Sequence[int]) -> int:
    """Return how many of the changes named *now* were not named *before*."""
    return sum(all(abs(night - other) > NEAR for other in before) for night in now)


def every_night(method: Method, figures: Floats) -> Iterator[list[list[int]]]:
    """Yield what *method* names on each night of *figures*; ours goes on from the night before, which is faster."""
    walked = None
    for night in range(1, figures.shape[1] + 1):
        if method is not ours:
            yield method(figures[:, :night])
            continue
        analyses, walked = analyse_on(figures[:, :night], walked)
        yield _changes(analyses)


def false_alarms(method: Method, figures: Floats) -> int:
    """Return how many changes *method* names anew, asked on each night of *figures*, which have none."""
    named: list[list[int]] = [[] for _ in figures]
    alarms = 0
    for now in every_night(method, figures):
        alarms += sum(new_alarms(old, new) for old, new in zip(named, now, strict=True))
        named = now
    return alarms


def found(method: Method, figures: Floats, after: int, within: int) -> NDArray[np.bool_]:
    """Return in which of *figures* the change *after* so many nights is named on one of the nights *within* it."""
    hit = np.zeros(len(figures), np.bool_)
    for night in range(after + 1, after + within + 1):
        left = np.flatnonzero(~hit)
        named = method(figures[left, :night])
        hit[left] = [any(abs(each - after) <= CLOSE for each in nights) for nights in named]
    return hit


def date_errors(method: Method, figures: Floats, after: int) -> list[int]:
    """Return how many nights off the nearest change is, in those of *figures* where one is named close by."""
    errors = [min((abs(each - after) for each in nights), default=NEAR + 1) for nights in method(figures)]
    return [error for error in errors if error <= NEAR]


def batches(seconds: float, most: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the seed and the size of batches of series, growing, until the next would need more CPU time or series."""
    begun, last, size, done = time.process_time(), 0.0, size // 2, 0
    for seed in count():
        spent = time.process_time() - begun
        if done >= most or (seed and spent + (2.0 if size < LARGEST else 1.0) * (spent - last) > seconds):
            return
        last, size = spent, min(2 * size, LARGEST, most - done)
        done += size
        yield seed, size


def compared(method: Method, noise: str, seconds: float) -> dict[str, Any]:
    """Return what *method* does on *noise*, on as many series as *seconds* allow for each question."""
    alarms = nights = tries = 0
    few = 4 if method is not ours else LARGEST  # ours takes many series about as long as few
    for seed, size in batches(seconds, 10000, few):
        alarms += false_alarms(method, made(noise, 2 * seed, size, LENGTH))
        nights += size * LENGTH
    hits, errors = dict.fromkeys(AFTER, 0), []
    for seed, size in batches(seconds, 4000, few):
        for after in AFTER:
            figures = shifted(made(noise, 2 * seed + 1, size, after + NEAR), after, 3.0)
            hits[after] += int(found(method, figures, after, 3).sum())
            errors += date_errors(method, figures, after)
        tries += size
    year = made(noise, 1, 2000 if method is ours else 2, 365)
    begun = time.process_time()
    method(year)
    return {
        "found": {str(after): rate(hits[after], tries) for after in AFTER},
        "false": per_thousand(alarms, nights),
        "date_error_nights": float(np.median(errors)) if errors else None,
        "date_exact": sum(error == 0 for error in errors) / len(errors) if errors else None,
        "ms_per_series": (time.process_time() - begun) / len(year) * 1000.0,
    }


def _kinds(analyses: Sequence[Analysis], kind: str, after: int) -> int:
    return sum(any(c.kind == kind and abs(c.night - after) <= NEAR for c in each.changes) for each in analyses)


def own_sizes(series: int) -> list[dict[str, Any]]:
    """Return how soon this project finds shifts of several sizes after histories of several lengths, normal noise."""
    rows = []
    for after in (20, 30, 60, 120, 240):
        for size in (1.0, 2.0, 3.0, 5.0):
            figures = shifted(made("normal", 7, series, after + 30), after, size)
            within = {}
            for nights in (3, 7, 14, 30):
                named = ours(figures[:, : after + nights])
                within[str(nights)] = rate(sum(any(abs(n - after) <= NEAR for n in each) for each in named), series)
            rows.append({"after": after, "size": size, "within": within})
    return rows


def own_coverage(series: int) -> list[dict[str, Any]]:
    """Return how often the interval of a shift's size has the true size, by nights after it."""
    rows = []
    for noise in ("normal", "Student t, 3 df", "log-normal"):
        for nights in (3, 10, 30):
            figures = shifted(made(noise, 8, series, 60 + nights), 60, 3.0)
            inside = tries = 0
            for at, each in enumerate(analyse(figures)):
                true = 0.03 if at % 2 == 0 else -0.03
                near = [c for c in each.changes if c.kind == "level" and abs(c.night - 60) <= CLOSE]
                inside += sum(c.interval[0] <= true <= c.interval[1] for c in near)
                tries += len(near)
            rows.append({"noise": noise, "nights": nights, "inside": rate(inside, tries)})
    return rows


def own_spread(series: int) -> list[dict[str, Any]]:
    """Return how soon this project finds a spread that became three times as large, or a third, after 90 nights."""
    rows = []
    for noise in ("normal", "Student t, 3 df", "log-normal"):
        for factor in (3.0, 1.0 / 3.0):
            figures = made(noise, 9, series, 120)
            figures[:, 90:] = LEVEL + factor * (figures[:, 90:] - LEVEL)
            within = {
                str(nights): rate(_kinds(analyse(figures[:, : 90 + nights]), "spread", 90), series)
                for nights in (10, 15, 20, 30)
            }
            rows.append({"noise": noise, "factor": factor, "within": within})
    return rows


def own_flips(series: int) -> list[dict[str, Any]]:
    """Return in how many series flips between two levels are reported, by nights of them; also where there are none."""
    rows = []
    for noise in NOISES:
        figures = made(noise, 10, series, 90)
        within = {
            str(nights): rate(sum(each.flips is not None for each in analyse(figures[:, :nights])), series)
            for nights in (20, 30, 60, 90)
        }
        rows.append({"noise": noise, "within": within})
    return rows


def own_ramps(series: int) -> list[dict[str, Any]]:
    """Return in how many series a level that rises by a total over 30 nights, after 60, is found by then and later."""
    rows = []
    for total in (2.0, 3.0, 5.0):
        figures = made("normal", 11, series, 120)
        figures += total * np.clip((np.arange(120) - 60) / 30.0, 0.0, 1.0)
        within = {}
        for nights in (15, 30, 60):
            named = ours(figures[:, : 60 + nights])
            within[str(nights)] = rate(sum(any(n >= 60 - NEAR for n in each) for each in named), series)
        rows.append({"total": total, "within": within})
    return rows


def own_time(series: int) -> dict[str, Any]:
    """Return how long this project takes for a store of many series of a year."""
    figures = made("normal", 12, series, 365)
    begun, spent = time.perf_counter(), time.process_time()
    analyse(figures)
    wall, cpu = time.perf_counter() - begun, time.process_time() - spent
    return {"series": series, "nights": 365, "wall_s": wall, "cpu_s": cpu}


def document_of(
    seconds: float, series: int, noises: Sequence[str], say: Callable[[str], None], largest: int = 20000
) -> dict[str, Any]:
    """Compare all methods on *noises* and return the document."""
    methods, versions, absent = find_methods()
    table: dict[str, dict[str, Any]] = {}
    for noise in noises:
        table[noise] = {}
        for name, method in methods.items():
            table[noise][name] = each = compared(method, noise, seconds * OURS_LONGER if name == OURS else seconds)
            shares = ", ".join(f"{each['found'][str(after)]['share']:.3f}" for after in AFTER)
            say(f"{noise:22}{name:20} found {shares}; {each['false']['per_1000']:.2f} false per 1000 nights")
    return {
        "schema": SCHEMA,
        "version": __version__,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__},
        "seconds": seconds,
        "length": LENGTH,
        "after": list(AFTER),
        "versions": versions,
        "not_compared": absent,
        "noises": table,
        "sizes": own_sizes(series),
        "coverage": own_coverage(series),
        "spread": own_spread(series),
        "flips": own_flips(series),
        "ramps": own_ramps(series),
        "time": own_time(largest),
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the document here.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=10.0,
    show_default=True,
    help="CPU time for each question, noise and method of others: a slow method is asked of fewer series.",
)
@click.option("--series", type=click.IntRange(10), default=2000, show_default=True, help="For the tables of our own.")
@click.option("--noise", "noises", multiple=True, help=f"One of {'; '.join(NOISES)}. Without it, all.")
def drift_command(json_file: Path | None, seconds: float, series: int, noises: tuple[str, ...]) -> None:
    """Compare methods that find changes in nightly figures, on labelled series."""
    try:
        for noise in noises:
            if noise not in NOISES:
                raise InputError(f"expected --noise to be one of {'; '.join(NOISES)}; found {noise!r}")
        if json_file is not None and not json_file.absolute().parent.is_dir():
            raise InputError(f"expected --json in a directory that is there, found {json_file}")
        document = document_of(seconds, series, noises or tuple(NOISES), lambda text: click.echo(text, err=True))
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
