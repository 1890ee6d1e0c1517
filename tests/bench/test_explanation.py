# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the explanation: generated labs, planted causes, false claims."""

import numpy as np
import pytest
from click.testing import CliRunner

from bench import explanation
from bench.explanation import NIGHTS, NORMAL, PLANTED, Lab, Planted, answered, busy_lab, claims, quiet_lab


def lab(seed: int = 1) -> Lab:
    return quiet_lab(np.random.default_rng(seed), NORMAL)


def test_a_quiet_lab_has_the_stated_noise_and_nothing_to_explain() -> None:
    quiet = lab()
    relative = quiet.tests / np.median(quiet.tests, axis=2, keepdims=True)
    assert float(relative.std()) == pytest.approx(explanation.NOISE, rel=0.05)
    assert claims(answered(quiet)) == 0


def test_a_busy_lab_changes_as_often_as_stated() -> None:
    facts = [len(busy_lab(np.random.default_rng(seed), NORMAL, rate=2.0, nights=40).facts) for seed in range(20)]
    assert np.mean(facts) == pytest.approx(16.0, rel=0.15)
    weekly = busy_lab(np.random.default_rng(1), NORMAL, rate=2.0, every=7)
    assert {night % 7 for _, _, night, _ in weekly.facts} == {0}


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_change_is_claimed_if_it_is_a_cause(name: str) -> None:
    made = lab()
    planted = PLANTED[name](made)
    found = answered(made)
    claimed = [claims(found, f"sut{sut}", night) > 0 for sut, night in planted.places]
    assert all(claimed) == name.startswith("cause")
    assert any(claimed) == name.startswith("cause")


def test_the_tables_count_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(one: Lab) -> Planted:
        return PLANTED["cause: bandwidth -12 %, tests -6 % on one SUT"](one)

    def related(one: Lab) -> Lab:
        always(one)
        return one

    monkeypatch.setattr(explanation, "FALSE", {"related": explanation.Null(rate=0.0, more=related)})
    monkeypatch.setattr(explanation, "PLANTED", {"cause": always})
    monkeypatch.setattr(explanation, "RATES", (0.0,))
    rows = [CliRunner().invoke(explanation.explanation, [name, "--labs", "1"]).output for name in ("false", "power")]
    assert rows[0].splitlines()[3].split() == ["related", "100.0", "6.0"]
    assert rows[1].splitlines()[3].split() == ["cause", "100"]


def test_dates_alone_are_claimed_falsely_in_at_most_a_twentieth_of_labs() -> None:
    rows = dict(explanation.dates_rows(60))
    assert list(rows) == list(explanation.DATES)
    shares = [float(cell.split()[0]) for name, cell in rows.items() if "weekday" not in name]
    assert np.mean(shares) < 5.0
    assert {cell.count(",") for cell in rows.values()} == {1}


def test_the_cost_is_that_of_a_lab_of_the_given_size() -> None:
    words = ["cost", "--suts", "2", "--nights", "60", "--tests", "2", "--metrics", "3"]
    done = CliRunner().invoke(explanation.explanation, words)
    assert done.exit_code == 0
    assert "s CPU" in done.output
    assert NIGHTS > 60
