# SPDX-License-Identifier: Apache-2.0
"""The benchmark of growth: exponents, and that its commands run."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import growth
from bench.meter import Usage


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("fixed", [0.0, 3.0])
def test_the_exponent_is_that_of_what_grows(power: float, fixed: float) -> None:
    sizes = (1, 10, 100, 1000)
    found = growth.exponent(sizes, [fixed + size**power for size in sizes])
    assert found == pytest.approx(power, abs=0.03)


def test_noise_has_no_exponent_and_what_starts_late_has_that_of_the_whole() -> None:
    assert growth.exponent((1, 30, 365), (10.0, 9.0, 10.9)) is None
    assert growth.exponent((1, 10, 100), (50.0, 50.0, 500.0)) == pytest.approx(1.0)
    assert growth.exponent((1, 10, 100), (492.0, 563.0, 1574.0)) == pytest.approx(0.45, abs=0.01)
    assert growth.exponent((1, 10, 100, 1000), (0.486, 0.442, 0.559, 1.8)) == pytest.approx(1.02, abs=0.01)


def test_steep_growth_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def made(results: Path, suts: int) -> Path:
        (results / f"{suts}").mkdir(parents=True)
        return results / f"{suts}"

    def squared(command: Sequence[str], *_: object) -> Usage:
        return Usage(cpu_s=float(command[-1]) ** 2, peak_pss_bytes=1 << 20)

    one = growth.Dimension((1, 10, 100), made, (growth.Command("square", ("ID",)),))
    monkeypatch.setattr(growth, "DIMENSIONS", {"suts": one})
    monkeypatch.setattr(growth, "metered", squared)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = CliRunner().invoke(growth.growth_command, [])
    assert done.exit_code == 1
    assert "square: CPU time grows with suts to the power of 1.92" in done.output
    assert "memory grows" not in done.output
    assert re.search(r"square +1/1 +100/1 +10000/1 +1.92/none\n", done.output)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sizes"), [("suts", (1, 2)), ("nights", (1, 2)), ("cpus", (2, 3))])
def test_every_command_runs(name: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dimension = replace(growth.DIMENSIONS[name], sizes=sizes)
    monkeypatch.setattr(growth, "DIMENSIONS", {name: dimension})
    monkeypatch.setattr(growth, "MOST", math.inf)  # of so small sizes, the growth is noise
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = CliRunner().invoke(growth.growth_command, [])
    assert done.exit_code == 0, done.output
    for command in dimension.commands:
        assert done.output.count(f"{command.title}: ") == len(sizes)
