# SPDX-License-Identifier: Apache-2.0
"""The rounds of a run on the SUT: order, choices that are repeated, and when there are enough."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from calibration.runner.fields import Lacking, figures
from calibration.runner.rounds import Rounds, half_width
from calibration.runner.settings import Machine
from calibration.runner.surroundings import Surroundings, sensors

LATENCY = ["result", "points", "*", "placements", "*", "windows_ns"]
BANDWIDTH = ["result", "points", "*", "placements", "*", "windows_mb_s"]


def step(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "argv": ["sutprobe", name], "rounds": 6, "figures": LATENCY, **more}


def latency(*medians_ns: float) -> dict[str, Any]:
    points = [{"placements": [{"windows_ns": [ns, ns + 1, ns - 1]}]} for ns in medians_ns]
    return {"result": {"points": points}}


def run(plan: dict[str, Any], answers: Any = lambda _step, _number: None) -> list[tuple[int | None, str, list[str]]]:
    """Return round, step and command of each record of a run with these *answers*; None is a command that failed."""
    rounds = Rounds(plan)
    done = []
    for number, _, each in rounds:
        if rounds.obstacle(each) is None:
            done.append((number, each["id"], rounds.argv(each, number)))
        answer = answers(each, number)
        rounds.keep(each, {"rc": 0 if answer else 1, "stdout": json.dumps(answer)})
    return done


def test_each_round_has_every_step_in_an_order_of_its_own_which_the_seed_decides() -> None:
    names = list("abcdefgh")
    plan = {"seed": 7, "steps": [step(name) for name in names]}
    done = run(plan)
    orders = [[name for number, name, _ in done if number == wanted] for wanted in range(1, 7)]
    assert all(sorted(order) == names for order in orders)
    assert len({tuple(order) for order in orders}) == 6
    assert run(plan) == done
    assert run({**plan, "seed": 8}) != done


def test_what_is_measured_once_follows_the_rounds() -> None:
    done = run({"steps": [step("once", rounds=1), step("a"), step("b")]})
    assert [name for _, name, _ in done].index("once") == len(done) - 1
    assert done[-1][0] is None


def test_prefetchers_are_switched_once_in_a_round() -> None:
    names = [*"abcdef"]
    done = run({"steps": [step(name, prefetchers="off" if name in "bd" else None) for name in names]})
    for wanted in range(1, 7):
        order = [name for number, name, _ in done if number == wanted]
        assert set(order[-2:]) == {"b", "d"}


SEARCH = {"step": "search", "field": ["result", "chosen"], "option": "--only"}


def test_a_search_comes_before_the_rounds_which_measure_what_it_chose() -> None:
    plan = {"steps": [step("a"), step("b", choice=SEARCH), step("once", rounds=1), step("search", rounds=1)]}
    rounds = Rounds(plan)
    places = {each["id"]: place for _, place, each in rounds}
    assert (places["search"], places["once"]) == ("before the rounds, step 1 of 1", "after the rounds, step 1 of 1")
    done = run(plan, lambda each, _: {"result": {"chosen": [3, 17]}} if each["id"] == "search" else None)
    assert [name for _, name, _ in done].index("search") == 0
    assert {name: argv[2:] for _, name, argv in done} == {
        "search": [],
        "a": [],
        "b": ["--only", "3,17"],
        "once": [],
    }


@pytest.mark.parametrize(
    ("answer", "lacks"),
    [
        (None, None),
        ({"result": None}, "result.chosen"),
        ({"result": {"chosen": None}}, "result.chosen"),
        ({"result": {"chosen": []}}, "result.chosen"),
        ({"result": {"chosen": [3, True]}}, "result.chosen.1"),
        ({"result": {"chosen": [3, 0.5]}}, "result.chosen.1"),
        ({"result": {"chosen": ["--deadline-s"]}}, "result.chosen.0"),
    ],
)
def test_nothing_is_measured_without_a_choice(answer: Any, lacks: str | None) -> None:
    search, measured = step("search", rounds=1), step("a", choice=SEARCH)
    rounds = Rounds({"steps": [search, measured]})
    found = rounds.keep(search, {"rc": 0 if answer else 1, "stdout": json.dumps(answer)})
    assert found == ({} if lacks is None else {"lacks": lacks})
    assert rounds.obstacle(search) is None
    assert rounds.obstacle(measured) == "its search, search, failed"


def test_an_interval_as_wide_as_its_target_meets_it() -> None:
    values_ns = [100.0, 101, 102, 103, 104, 105]
    target = half_width(values_ns)
    for wanted, rounds in ((target, 6), (target * 0.999, 7)):
        plan = {"steps": [step("a", more_rounds=1, target_half_width=wanted)]}
        answers = iter([*values_ns, 100.0])
        assert len(run(plan, lambda *_, answers=answers: latency(next(answers)))) == rounds


def test_each_round_shuffles_differently_in_each_run() -> None:
    once = step("once", rounds=1, seeded=True)
    plan = {"seed": 3, "steps": [step("a", seeded=True), step("b", seeded=True), step("c"), once]}
    seeds = {argv[3] for _, name, argv in run(plan) if name != "c" and argv[2] == "--seed"}
    assert len(seeds) == 13
    assert seeds.isdisjoint(argv[3] for _, name, argv in run({**plan, "seed": 4}) if name != "c")
    assert all(argv == ["sutprobe", "c"] for _, name, argv in run(plan) if name == "c")


def test_a_resumed_run_has_the_missing_rounds_only() -> None:
    done = run({"steps": [step("a", rounds=[5, 6], more_rounds=3, target_half_width=0.01)]})
    assert done == [(number, "a", ["sutprobe", "a"]) for number in (5, 6)]


@pytest.mark.parametrize(("spread", "rounds"), [(0.001, 6), (0.2, 9)])
def test_rounds_are_added_while_an_interval_misses_its_target(spread: float, rounds: int) -> None:
    plan = {"steps": [step("a", more_rounds=3, target_half_width=0.01), step("b")]}
    seen: Counter[str] = Counter()

    def answer(each: dict[str, Any], _number: int | None) -> dict[str, Any]:
        seen[each["id"]] += 1
        return latency(100.0, 200 * (1 + spread * (seen[each["id"]] % 3)))

    run(plan, answer)
    assert seen == {"a": rounds, "b": 6}


def test_a_figure_that_a_round_lacks_is_compared_with_itself() -> None:
    plan = {"steps": [step("a", more_rounds=3, target_half_width=0.01)]}

    def answer(_step: dict[str, Any], number: int | None) -> dict[str, Any]:
        document = latency(100.0, 200.0, 300.0)
        if number == 4:
            document["result"]["points"][0] = {"placements": None}
        return document

    assert len(run(plan, answer)) == 6


def test_rounds_stop_when_the_interval_has_met_its_target() -> None:
    plan = {"steps": [step("a", more_rounds=9, target_half_width=0.01)]}
    values = iter([100.0, 120, 100, 100, 100, 100, 100, 100, 100, 100, 100])
    done = run(plan, lambda *_: latency(next(values)))
    assert len(done) == 9  # the second-largest of nine ends the interval


@pytest.mark.parametrize(
    ("path", "result", "found"),
    [
        ("points.*.windows_hz", {"points": [{"windows_hz": [1.0, 3.0, 2.0]}, {"windows_hz": None}]}, [2.0, None]),
        (
            "pairs.*.placements.*.windows_ns",
            {"pairs": [{"placements": [{"windows_ns": [5.0]}, {"windows_ns": [7.0]}]}]},
            [6.0],
        ),
        ("cells.*.placements.*", {"cells": [{"placements": [[5.0, 6.0], [9.0]]}, {"placements": None}]}, [6.0, None]),
        (
            "points.*.placements.*.probes.0.windows_ns",
            {"points": [{"placements": [{"probes": [{"windows_ns": [4.0]}, {"windows_ns": [9.0]}]}]}]},
            [4.0],
        ),
    ],
)
def test_the_figures_with_a_target(path: str, result: dict[str, Any], found: list[float]) -> None:
    assert figures({"result": result}, ["result", *path.split(".")]) == found


POINT = {"placements": [{"windows_mb_s": [8.0]}]}


@pytest.mark.parametrize(
    ("answer", "lacks"),
    [
        ([], "result"),
        ({"result": None}, "result.points"),
        ({"result": {"points": []}}, "result.points"),
        ({"result": {"points": {}}}, "result.points"),
        ({"result": {"points": [POINT, {"placement": []}]}}, "result.points.1.placements"),
        ({"result": {"points": [{"placements": []}]}}, "result.points.0.placements"),
        ({"result": {"points": [POINT, 7]}}, "result.points.1.placements"),
        ({"result": {"points": [{"placements": [{"windows": [8]}]}]}}, "result.points.0.placements.0.windows_mb_s"),
        (
            {"result": {"points": [{"placements": [{"windows_mb_s": [8, "8"]}]}]}},
            "result.points.0.placements.0.windows_mb_s.1",
        ),
        (
            {"result": {"points": [{"placements": [{"windows_mb_s": True}]}]}},
            "result.points.0.placements.0.windows_mb_s",
        ),
    ],
)
def test_a_missing_field_is_named(answer: Any, lacks: str) -> None:
    with pytest.raises(Lacking, match=f"^{re.escape(lacks)}$"):
        figures(answer, BANDWIDTH)
    asked = step("a", figures=BANDWIDTH, more_rounds=3, target_half_width=0.01)
    rounds = Rounds({"steps": [asked]})
    assert rounds.keep(asked, {"rc": 0, "stdout": json.dumps(answer)}) == {"lacks": lacks}


@pytest.mark.parametrize("stdout", ["", "nonsense", "[" * 10**5])
def test_output_that_is_no_json_never_ends_the_run(stdout: str) -> None:
    asked = step("a", more_rounds=3, target_half_width=0.01)
    assert Rounds({"steps": [asked]}).keep(asked, {"rc": 0, "stdout": stdout}) == {}


def test_surroundings_are_read_before_and_after_a_step(tmp_path: Any) -> None:
    (tmp_path / "proc").mkdir()
    stat = tmp_path / "proc" / "stat"
    stat.write_text("cpu  1 2 3 4 5 6 7 100 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nprocs_running 4\n")
    chips = tmp_path / "sys/class/hwmon"
    for number, (name, degrees) in enumerate([("nvme", 80000), ("k10temp", 41500), ("k10temp", 45250)]):
        (chips / f"hwmon{number}").mkdir(parents=True)
        (chips / f"hwmon{number}" / "name").write_text(f"{name}\n")
        (chips / f"hwmon{number}" / "temp1_input").write_text(f"{degrees}\n")
    machine = Machine(str(tmp_path))
    around = Surroundings(machine, sensors(machine))
    stat.write_text("cpu  1 2 3 4 5 6 7 150 0 0\nprocs_running 9\n")
    assert around.since() == {"temperature_c": 45.25, "running": 3, "steal_s": 0.5}
    stat.write_text("nonsense\n")
    assert around.since() == {"temperature_c": 45.25, "running": 3, "steal_s": None}
    assert json.dumps(around.since())
