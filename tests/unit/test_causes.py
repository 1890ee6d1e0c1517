# SPDX-License-Identifier: Apache-2.0
"""Causes: which facts changed, and which of them can affect a metric."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import get_args

import pytest

import calibration.context.facts as facts_module
from calibration.context.facts import Aspect, facts
from calibration.context.loader import load
from calibration.judge.causes import CAUSES, context_changes, differences_from, likely, place_of
from calibration.measurements import registry
from calibration.results.history import NightRun

CAPTURE = Path(__file__).parents[1] / "fixtures" / "context" / "x86_64-isolated.tar.gz"

FACTS = {
    "kernel": "Linux 6.1.0 #1 SMP x86_64", "kernel command line": "ro isolcpus=2-7", "microcode": "0x1",
    "BIOS": "Maker 1.0", "DIMMs": "8 x 32 GB at 4800 MT/s", "turbo": "on", "sutprobe build": "0123456789ab",
}  # fmt: skip


def run(facts: Mapping[str, str], *, sut: str = "sut1", night: date = date(2026, 1, 2)) -> NightRun:
    run_id = f"{night:%Y%m%d}T220000Z-00000000"
    return NightRun("testbed1", sut, run_id, night, "complete", f"testbed1/{sut}/{run_id}", facts, ())


def test_changes_have_both_values_and_the_night_in_order_of_facts() -> None:
    before = run(FACTS, night=date(2026, 1, 1))
    after = run({**FACTS, "DIMMs": "7 x 32 GB at 4800 MT/s", "microcode": "0x2"})
    changes = context_changes(before, after)
    assert [(change.fact, change.before, change.after) for change in changes] == [
        ("microcode", "0x1", "0x2"),
        ("DIMMs", "8 x 32 GB at 4800 MT/s", "7 x 32 GB at 4800 MT/s"),
    ]
    assert {change.night for change in changes} == {date(2026, 1, 2)}
    assert context_changes(before, run(FACTS)) == ()


def test_only_facts_whose_texts_differ_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    value = facts_module.fact_value
    monkeypatch.setattr(facts_module, "fact_value", lambda name, text: read.append(name) or value(name, text))
    assert context_changes(run(FACTS), run({**FACTS, "microcode": "0x2"})) != ()
    assert read == ["microcode", "microcode"]


def test_unknown_fact_is_listed_last_with_none() -> None:
    without = {name: text for name, text in FACTS.items() if name != "DIMMs"}
    changes = context_changes(run(FACTS), run({**without, "microcode": "0x2"}))
    assert [(change.fact, change.after) for change in changes] == [("microcode", "0x2"), ("DIMMs", None)]
    assert [change.fact for change in likely(changes, "max_bandwidth.reads.bandwidth_mb_s")] == ["microcode", "DIMMs"]
    assert context_changes(run(without), run(FACTS))[0].before is None
    assert context_changes(run({**FACTS, "DIMMs": "not known"}), run(FACTS))[0].before is None
    assert context_changes(run({**FACTS, "DIMMs": "not known"}), run(without)) == ()


@pytest.mark.parametrize(("metric", "order"), [
    ("max_bandwidth.reads.bandwidth_mb_s", ["DIMMs", "microcode", "BIOS", "turbo"]),
    ("latency_matrix.0.1.latency_ns", ["DIMMs", "microcode", "BIOS", "turbo"]),
    ("latency_ladder.L2.latency_ns", ["turbo", "microcode", "BIOS", "DIMMs"]),
    ("bandwidth_ladder.one_CPU.reads.L1.program_mb_s", ["turbo", "microcode", "BIOS", "DIMMs"]),
    ("jitter.cpu3.inst_jitter_ns", ["turbo", "microcode", "BIOS", "DIMMs"]),
    ("core_frequency.scalar.all.median_hz", ["turbo", "microcode", "BIOS", "DIMMs"]),
])  # fmt: skip
def test_the_most_likely_cause_comes_first(metric: str, order: list[str]) -> None:
    changes = context_changes(run(FACTS), run({**FACTS, "microcode": "2", "BIOS": "2", "DIMMs": "2", "turbo": "off"}))
    assert [change.fact for change in likely(changes, metric)] == order


def test_a_new_sutprobe_is_the_first_suspect() -> None:
    changes = context_changes(run(FACTS), run({**FACTS, "DIMMs": "7", "sutprobe build": "ba9876543210"}))
    for metric in ("idle_latency.latency_ns", "jitter.cpu1.gaps.max_ns", "core_frequency.scalar.all.spread"):
        assert likely(changes, metric)[0].fact == "sutprobe build"


def test_only_relevant_facts_are_causes() -> None:
    assert place_of("DIMMs", "jitter.cpu1.inst_jitter_ns") is None
    place = place_of("DIMMs", "idle_latency.latency_ns")
    assert place is not None
    assert "channels" in CAUSES[place].effect.reason


def test_every_aspect_has_metrics_and_causes() -> None:
    aspects = set(get_args(Aspect))
    assert {aspect for item in registry().values() for row in item.metric_rows for aspect in row.depends} == aspects
    assert {aspect for cause in CAUSES for aspect in cause.effect.aspects} == aspects


def test_sut_is_compared_with_the_majority() -> None:
    others = [run(FACTS, sut="sut2"), run(FACTS, sut="sut3"), run({**FACTS, "BIOS": "Maker 0.9"}, sut="sut4")]
    (found,) = differences_from(run({**FACTS, "microcode": "0x2"}), others)
    assert (found.fact, found.before, found.after) == ("microcode", "0x1", "0x2")


def test_common_and_unknown_facts_are_no_difference() -> None:
    others = [run(FACTS, sut="sut2"), run({**FACTS, "BIOS": "Maker 2.0"}, sut="sut3")]
    assert list(differences_from(run({**FACTS, "BIOS": "Maker 2.0"}), others)) == []
    assert list(differences_from(run({**FACTS, "governor": "performance"}), others)) == []
    assert list(differences_from(run({**FACTS, "DIMMs": "not known"}), others)) == []
    unknown = [run({**FACTS, "DIMMs": "not known"}, sut="sut2"), run({**FACTS, "DIMMs": "16 x 32 GB"}, sut="sut3")]
    assert [change.before for change in differences_from(run(FACTS), unknown)] == ["16 x 32 GB"]
    assert list(differences_from(run(FACTS), [])) == []


def test_a_fact_in_other_words_is_no_difference() -> None:
    own = {**FACTS, "governor": "performance, powersave", "kernel command line": "ro isolcpus=2-7 audit=0"}
    alike = {**own, "governor": "powersave, performance", "kernel command line": "audit=off ro isolcpus=2,3-7"}
    assert context_changes(run(own), run(alike)) == ()
    assert list(differences_from(run(alike), [run(own, sut="sut2"), run(own, sut="sut3")])) == []
    odd = [run(own, sut="sut2"), run(alike, sut="sut3"), run({**own, "governor": "x"}, sut="sut4")]
    assert [change.before for change in differences_from(run({**own, "governor": "x"}), odd)] == [own["governor"]]


def test_every_fact_has_an_effect() -> None:
    for fact in facts(load(CAPTURE), None):
        assert any(cause.fact == fact for cause in CAUSES), fact
