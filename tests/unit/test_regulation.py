# SPDX-License-Identifier: Apache-2.0
"""The plan of the experiment: threads, probe, counters and prefetchers."""

from pathlib import Path

import pytest

from calibration.context.model import Context
from calibration.measurements.base import Step
from calibration.measurements.counted_volume import CountedVolume, CountedVolumeSettings
from calibration.measurements.counting import served_nodes, uncounted
from calibration.measurements.regulation import NOPS, Regulation, RegulationSettings, counts
from calibration.measurements.sut import Sut
from calibration.profiles import load_profile
from calibration.run.plan import make_plan
from tests.captures import captured
from tests.event_trees import context_of, described
from tests.walk import estimates

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.fixture(scope="module")
def guest() -> Context:
    """A machine of two nodes, each of two cores with two threads, captured before event sources were."""
    return captured("x86_64-two-nodes-smt")


@pytest.fixture(scope="module")
def server() -> Context:
    """A described machine with counters: two packages of 22 cores."""
    return context_of(described(FIXTURES / "event_sources" / "broadwell_ep.yml"))


def steps(context: Context, settings: RegulationSettings | None = None) -> list[Step]:
    found = list(Regulation().steps(Sut(context), settings or RegulationSettings()))
    assert all(isinstance(item, Step) for item in found)
    return [item for item in found if isinstance(item, Step)]


def options(step: Step, name: str) -> list[str]:
    return [step.argv[place + 1] for place, word in enumerate(step.argv) if word == f"--{name}"]


def test_numbers_of_threads() -> None:
    assert counts(1, every=False) == [1]
    assert counts(2, every=False) == [1, 2]
    assert counts(22, every=False) == [1, 2, 4, 8, 16, 21, 22]
    assert counts(5, every=True) == [1, 2, 3, 4, 5]


def test_probe_has_its_own_core_while_available(guest: Context) -> None:
    one, both, one_off, both_off = steps(guest)
    assert [one.id, both.id, one_off.id, both_off.id] == [
        "regulation-1",
        "regulation-2",
        "regulation-1-off",
        "regulation-2-off",
    ]
    assert (one.argv[1], both.argv[1]) == ("loaded", "bandwidth")
    (probe,) = options(one, "probe")
    (loading,) = options(one, "load")
    assert int(loading.partition("@")[0]) not in guest.siblings(int(probe.partition("@")[0]))
    assert options(both, "group") == ["0,2@0"]
    for item in (one, both):
        assert options(item, "mix") == ["line_reads"]
        assert (options(item, "streams"), options(item, "prefetch-bytes")) == (["1"], ["0"])
        assert options(item, "delay") == [",".join(map(str, NOPS))]
        assert (options(item, "event"), options(item, "sample")) == ([], [])
    assert [item.prefetchers for item in (one, both, one_off, both_off)] == [None, None, "off", "off"]


def test_prefetchers_need_consent(guest: Context) -> None:
    profile = load_profile("counters")
    without, agreed = make_plan(guest, profile), make_plan(guest, profile, prefetchers_ok=True)
    assert {step.prefetchers for step in without.steps} == {None}
    off = [step.id for step in agreed.steps if step.prefetchers == "off"]
    assert off == ["prefetcher_effect-off", "regulation-1-off", "regulation-2-off"]
    assert [step.id for step in agreed.steps][-3:] == off
    refused = [omitted for omitted in without.not_planned if "tune_prefetchers_ok" in omitted.reason]
    assert [item.kind for item in refused] == ["prefetcher_effect", "regulation", "regulation"]


def test_opens_all_countable_events(server: Context) -> None:
    first, *_, last = steps(server, RegulationSettings(prefetchers=("as_found",)))
    for item in (first, last):
        opened = options(item, "event")
        assert {event.partition("=")[0] for event in opened} >= {
            "dram.reads",
            "dram.writes",
            "core.l1d_pending",
            "core.l1_miss",
            "core.fb_hit",
            "core.cycles",
        }
        assert not [event for event in opened if event.startswith("probe.")]
        assert options(item, "background-s") == ["1.0"]
        assert [option.partition("=")[0] for option in options(item, "sample")] == ["pebs"]
    assert (first.argv[1], last.argv[1]) == ("loaded", "bandwidth")
    bare = RegulationSettings(counters=False, sampling=False)
    assert not any(options(step, name) for step in steps(server, bare) for name in ("event", "sample"))


def test_other_kinds_have_their_counters_in_the_profile(server: Context) -> None:
    plan = make_plan(server, load_profile("counters"))
    by_kind = {step.kind: options(step, "event") for step in plan.steps}
    assert {event.partition("=")[0] for event in by_kind["idle_latency"]} == {
        "core.cycles",
        "core.l1d_pending",
        "core.l1_miss",
        "core.fb_hit",
    }
    assert {event.partition(".")[0] for event in by_kind["counted_volume"]} == {"dram", "link", "core"}
    assert by_kind["peak_injection_bandwidth"]
    loaded = make_plan(server, load_profile("quick"))
    (sweep,) = (step for step in loaded.steps if step.kind == "loaded_latency" and step.part_of is None)
    assert any(event.startswith("probe.core.l1_miss=") for event in options(sweep, "event"))
    assert any(event.startswith("dram.reads=") for event in options(sweep, "event"))
    gate = make_plan(server, load_profile("sentinel"))
    assert not any(options(step, "event") for step in gate.steps), "the quick gate counts nothing"


def test_controllers_serve_the_nodes_of_their_package(server: Context) -> None:
    serves = served_nodes(server)
    assert (serves(0), serves(22)) == ((0,), (1,))


def test_controllers_serve_all_emulated_parts_of_their_nodes(server: Context) -> None:
    parts = (node.model_copy(update={"id": node.id + 2 * part}) for part in range(2) for node in server.nodes)
    emulating = server.model_copy(update={"nodes": tuple(parts)})
    serves = served_nodes(emulating)
    assert (serves(0), serves(22)) == ((0, 2), (1, 3))


def test_uncounted_roles_are_grouped_by_reason(guest: Context) -> None:
    found = list(uncounted(guest))
    assert len(found) == len({item.reason for item in found})
    assert "dram.reads" in found[0].what
    assert {item.kind for item in found} == {"counters"}
    plan = make_plan(guest, load_profile("quick"))
    assert [omitted for omitted in plan.not_planned if omitted.kind == "counters"] == found


def test_arrays_are_divided_among_threads(guest: Context) -> None:
    (each,) = CountedVolume().steps(Sut(guest), CountedVolumeSettings(array_bytes=8 * 4096 * 100))
    assert isinstance(each, Step)
    assert options(each, "array-bytes") == [str(4096 * 100)]
    assert not list(estimates(each))
