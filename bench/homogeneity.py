# SPDX-License-Identifier: Apache-2.0
"""How often servers that are the same are called different, and how often an odd one is found: made nights, judged.

``python bench/homogeneity.py`` prints the rates that docs/method/homogeneity.rst gives. Each trial is one night of one
testbed of 150 metrics, judged together as calibration.judge.homogeneity does. Nights are normal, or Student's t with
three degrees of freedom, scaled to the same standard deviation; their levels and spreads are those that the analysis of
drift finds in them.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from calibration.judge.drift import analyse
from calibration.judge.homogeneity import FAMILY_WISE, Floats, Levels, compare_levels, holm, levels_of

METRICS = 150
Noise = Literal["normal", "t3"]


class Found(NamedTuple):
    """Shares of trials: any equal server called an outlier, the odd ones all found; and of equal figures that pass."""

    false: float
    found: float
    passed: float


def trials(
    chance: np.random.Generator,
    count: int,
    *,
    suts: int,
    nights: int,
    spread: tuple[float, float],
    noise: Noise,
    off: float = 0.0,
    odd: int = 0,
    tolerances: Sequence[float] = (0.02,),
) -> list[Found]:
    """Return what *count* nights find: the first *odd* servers are *off* in the first metric, all else is equal.

    *spread* bounds the relative standard deviation of nights, drawn for each server and metric. The same nights are
    judged with each of *tolerances*.
    """
    shares = np.zeros((count, len(tolerances), 3))
    for trial in range(count):
        deviation = np.exp(chance.uniform(math.log(spread[0]), math.log(spread[1]), size=(suts, METRICS)))
        levels = _levels(chance, deviation, nights, noise)
        levels.level[:odd, 0] += np.log1p(off)
        for at, tolerance in enumerate(tolerances):
            compared = compare_levels(levels, np.full(METRICS, tolerance))
            named = holm(compared.p.ravel(), FAMILY_WISE).reshape(compared.p.shape)
            equal = np.ones_like(named)
            equal[:, 0] = odd == 0 or 2 * odd < suts
            equal[:odd, 0] = False
            within = np.abs(compared.difference) + compared.half <= np.log1p(tolerance)
            shares[trial, at] = named[equal].any(), named[:odd, 0].all(), within[equal].mean()
    return [Found(*each) for each in shares.mean(axis=0).tolist()]


def _levels(chance: np.random.Generator, deviation: Floats, nights: int, noise: Noise) -> Levels:
    """Return levels of made nights; each figure's own interval knows half of how much nights differ."""
    size = (nights, *deviation.shape)
    drawn = chance.standard_normal(size) if noise == "normal" else chance.standard_t(3, size) / np.sqrt(3)
    figures = np.exp(deviation * drawn).reshape(nights, -1).T
    levels = levels_of(analyse(figures), (deviation / 2).ravel() ** 2)
    return Levels(*(each.reshape(deviation.shape) for each in levels))


def main() -> None:
    """Print the tables."""
    chance = np.random.default_rng(1)
    kinds: tuple[Noise, ...] = ("normal", "t3")
    click.echo(
        "Equal servers: SUTs, nights, noise; any outlier at a tolerance of 2 %, at none; figures that pass at 2 %"
    )
    for suts in (2, 4, 20):
        for nights in (1, 3, 5, 10, 30):
            for noise in kinds:
                found, none = trials(
                    chance, 300, suts=suts, nights=nights, spread=(0.003, 0.03), noise=noise, tolerances=(0.02, 0.0)
                )
                click.echo(f"{suts} {nights} {noise} {found.false:.1%} {none.false:.1%} {found.passed:.0%}")
    click.echo("One of four off by 5 %, by 10 %, at a tolerance of 3 %: nights, spread, found")
    for nights in (3, 5, 10, 30, 90):
        for spread in (0.003, 0.01, 0.03):
            found_by = [
                trials(
                    chance,
                    200,
                    suts=4,
                    nights=nights,
                    spread=(spread, spread),
                    noise="t3",
                    off=off,
                    odd=1,
                    tolerances=(0.03,),
                )[0]
                for off in (0.05, 0.1)
            ]
            click.echo(f"{nights} {spread} {' '.join(f'{each.found:.0%}' for each in found_by)}")
    click.echo(
        "Groups, 10 % apart, 1 % spread, 30 nights: odd of SUTs, all of the smaller group named, any other named"
    )
    for odd, suts in ((1, 2), (1, 3), (2, 4), (2, 5), (3, 6), (9, 20)):
        (group,) = trials(
            chance, 200, suts=suts, nights=30, spread=(0.01, 0.01), noise="t3", off=0.1, odd=odd, tolerances=(0.03,)
        )
        click.echo(f"{odd} {suts} {group.found:.0%} {group.false:.1%}")


if __name__ == "__main__":
    main()
