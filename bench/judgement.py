# SPDX-License-Identifier: Apache-2.0
"""False alarms and detected changes of the judgement, on simulated nights: ``python -m bench.judgement CHECK``.

``drift`` walks through single series night by night, ``homogeneity`` judges single nights of testbeds. Each prints a
table in reStructuredText, as in docs/development/benchmarks.rst.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import click
import numpy as np
from scipy.special import gammaincinv

from bench.tables import table
from calibration.judge.drift import DriftChange, analyse
from tests.unit import simulated_nights as nights

LENGTH = 180  # nights per series for counting false alarms
AFTER = 60  # nights before a planted change
EXCURSION_NIGHTS = 6
HEADS = {
    "drift": ("Noise", "False alarms per 1000", "Shifts, %", "Drifts, %", "Excursions, %", "Spreads, %"),
    "homogeneity": ("Nights", "Vary 0.3 %: 5 %/10 %", "1 %: 5 %/10 %", "3 %: 5 %/10 %", "Wrong"),
}


def drift_rows(series: int) -> Iterator[tuple[str, ...]]:
    """Yield by noise: false alarms per 1000 metric-nights with their 95 % interval, and what is found, in per cent.

    A shift is to be found by the third night, a drift within two weeks, a spread three times as large within a month,
    and both ends of a shift for six nights when it has been back for as many.
    """
    for name, noise in nights.NOISES.items():
        values = nights.generate(name, 0, 5 * series, LENGTH)
        alarms, count = nights.count_false_alarms(values, flips=noise.flips), int(np.isfinite(values).sum())
        low = gammaincinv(alarms, 0.025) if alarms else 0.0
        rates = [1000.0 * float(item) / count for item in (alarms, low, gammaincinv(alarms + 1, 0.975))]
        quiet = nights.generate(name, AFTER, series, AFTER + nights.RISE_NIGHTS)
        shifted = nights.with_shift(quiet, AFTER, nights.SHIFT * noise.deviation)
        drifting = nights.with_drift(quiet, AFTER, nights.RISE * noise.deviation)
        end = AFTER + EXCURSION_NIGHTS
        away = nights.with_shift(quiet, AFTER, nights.SHIFT * noise.deviation)
        away[:, end:] = quiet[:, end:]
        away = away[:, : end + EXCURSION_NIGHTS]
        wide = nights.generate(name, 9, series, 120)
        wide[:, 90:] = nights.LEVEL + 3.0 * (wide[:, 90:] - nights.LEVEL)
        found = (
            nights.detected(shifted, AFTER, nights.SHIFT_NIGHTS),
            nights.detected(drifting, AFTER, nights.RISE_NIGHTS),
            [_dates(one.changes, AFTER, end) for one in analyse(away)],
            [any(change.kind == "spread" and change.night > 80 for change in one.changes) for one in analyse(wide)],
        )
        yield name, "{:.2f} [{:.2f}, {:.2f}]".format(*rates), *(f"{100.0 * float(np.mean(item)):.0f}" for item in found)


def _dates(changes: Sequence[DriftChange], *planted: int) -> bool:
    """Return whether *changes* are of the level, on the *planted* nights."""
    return len(changes) == len(planted) and all(
        change.kind == "level" and abs(change.night - night) <= nights.DATE_TOLERANCE
        for change, night in zip(changes, planted, strict=True)
    )


def homogeneity_rows(count: int) -> Iterator[tuple[str, ...]]:
    """Yield how often one of four servers, off by 5 % and by 10 %, is found, by nights and their spread.

    The last column is how often any equal server is called an outlier without a tolerance.
    """
    trials = partial(nights.trials, np.random.default_rng(1), count, suts=4, noise="t3")
    for number in (3, 5, 10, 30, 90):
        odd = partial(trials, nights=number, odd=1, tolerances=(0.03,))
        cells = [
            " / ".join(f"{100 * odd(spread=(spread, spread), off=off)[0].found:.0f} %" for off in (0.05, 0.1))
            for spread in (0.003, 0.01, 0.03)
        ]
        (equal,) = trials(nights=number, spread=(0.003, 0.03), tolerances=(0.0,))
        yield str(number), *cells, f"{100 * equal.false:.1f} %"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("check", type=click.Choice(tuple(HEADS)))
@click.option("--number", type=click.IntRange(1), help="Series per noise (2000), or nights per cell (200).")
def judgement(check: str, number: int | None) -> None:
    """Measure false alarms and detected changes of CHECK on simulated nights."""
    rows = drift_rows(number or 2000) if check == "drift" else homogeneity_rows(number or 200)
    click.echo("\n".join(table(HEADS[check], list(rows))))


if __name__ == "__main__":
    judgement()
