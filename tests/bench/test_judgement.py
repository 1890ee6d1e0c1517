# SPDX-License-Identifier: Apache-2.0
"""The tables of the judgement."""

import pytest
from click.testing import CliRunner

from bench import judgement
from tests.unit import simulated_nights as nights


def test_the_tables_have_a_row_per_noise_and_number_of_nights(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = "normal, 20 % missing"
    monkeypatch.setattr(nights, "NOISES", {noise: nights.NOISES[noise]})
    monkeypatch.setattr(judgement, "LENGTH", 40)
    done = CliRunner().invoke(judgement.judgement, ["drift", "--number", "10"])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[3].startswith(noise)
    assert next(judgement.homogeneity_rows(1))[0] == "3"
