# SPDX-License-Identifier: Apache-2.0
"""What would be opened on machines of every family, and why not the rest."""

import json
from functools import cache

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from calibration.commands.counters import counters_command, numbered, table_text
from calibration.context.loader import load
from calibration.counters.assignment import SAMPLES, assign
from calibration.counters.encoding import encode
from calibration.counters.event_choice import choose_events
from calibration.counters.event_roles import EVENT_ROLES
from tests.event_trees import FIXTURES, archive_of, context_of, described, names_of

MACHINES = sorted(FIXTURES.glob("*.yml"))
NAMES = [path.stem for path in MACHINES]
UNPRIVILEGED = "0" * 16
PERFMON = f"{1 << 38:016x}"


@cache
def as_described(name):
    return context_of(described(FIXTURES / f"{name}.yml"))


def machine(name, files=None, **changed):
    """Return the context of a machine by its name; what is given replaces what is described."""
    if files or changed:
        return context_of(described(FIXTURES / f"{name}.yml") | changed, files)
    return as_described(name)


def words(choice, role):
    """Return {words: number of sources} of a role."""
    found = {}
    for event in choice.events:
        if event.name == role:
            key = tuple(event.words.get(word, 0) for word in ("config", "config1"))
            found[key] = found.get(key, 0) + 1
    return found


def reasons(choice):
    return {item.role: item.reason for item in choice.missing}


@pytest.mark.parametrize("name", NAMES)
def test_every_role_is_opened_or_missing_with_a_reason(name):
    choice = choose_events(machine(name))
    opened, missing = {event.name for event in choice.events}, reasons(choice)
    assert not opened & set(missing)
    left = set(EVENT_ROLES) - opened - set(missing)
    assert left <= {"dram.reads_and_writes"}
    assert not left or opened & {"dram.reads", "dram.writes"} or {"dram.reads", "dram.writes"} <= set(missing)
    assert (choice.sampling is None) == (SAMPLES in missing)
    assert all(reason.strip() for reason in missing.values())
    for event in choice.events:
        assert (event.cpus is None) == (EVENT_ROLES[event.name] == "thread") == event.user
        assert event.source
        assert event.event


@pytest.mark.parametrize(("name", "reads", "writes", "of_each"), [
    ("haswell_ep", {(0x304, 0): 4}, {(0xC04, 0): 4}, (64, (0, 18))),
    ("broadwell_ep", {(0x304, 0): 4}, {(0xC04, 0): 4}, (64, (0, 22))),
    ("skylake_sp", {(0x304, 0): 6}, {(0xC04, 0): 6}, (64, (0, 28))),
    ("cascade_lake_sp", {(0x304, 0): 6}, {(0xC04, 0): 6}, (64, (0, 28))),
    ("ice_lake_sp", {(0xF04, 0): 12}, {(0x3004, 0): 12}, (64, (0, 40))),
    ("ice_lake_sp_free_running", {(0x20FF, 0): 4}, {(0x21FF, 0): 4}, (64, (0, 40))),
    ("sapphire_rapids", {(0xCF05, 0): 8}, {(0xF005, 0): 8}, (64, (0, 56))),
    ("sapphire_rapids_without_names", {(0xCF05, 0): 8}, {(0xF005, 0): 8}, (64, (0, 56))),
    ("emerald_rapids", {(0xCF05, 0): 8}, {(0xF005, 0): 8}, (64, (0, 64))),
    ("granite_rapids", {(0xCF05, 0): 12, (0xCF06, 0): 12}, {(0xF005, 0): 12, (0xF006, 0): 12}, (64, (0, 128))),
    ("zen_4", {(0x10A, 0): 24}, {(0x20A, 0): 24}, (64, None)),
    ("zen_5", {(0x10A, 0): 24}, {(0x20A, 0): 24}, (64, None)),
    ("neoverse_v2", {(0x1A5, 0): 2}, {(0x1DB, 0): 2}, (32, None)),
])  # fmt: skip
def test_memory_controllers_are_found_with_their_encodings(name, reads, writes, of_each):
    bytes_each, cpus = of_each
    choice = choose_events(machine(name))
    assert (words(choice, "dram.reads"), words(choice, "dram.writes")) == (reads, writes)
    found = [event for event in choice.events if event.name == "dram.reads"]
    assert {item.scale_bytes for item in found} == {bytes_each}
    assert cpus is None or {item.cpus for item in found} == {cpus}


@pytest.mark.parametrize(
    ("name", "pmus", "config"),
    [("zen_2", 8, 0x3807), ("zen_3", 8, 0x3807), ("neoverse_n1", 16, 0), ("neoverse_n2", 2, 0xD0005)],
)
def test_combined_reads_and_writes(name, pmus, config):
    choice = choose_events(machine(name))
    found = [event for event in choice.events if event.name == "dram.reads_and_writes"]
    assert (len(found), found[0].words["config"], found[0].scale_bytes) == (pmus, config, 64)
    assert found[0].caution
    assert {"dram.reads", "dram.writes"} <= set(reasons(choice))


def test_channels_that_share_counters_are_reported():
    choice = choose_events(machine("zen_2"))
    caution = next(event.caution for event in choice.events if event.name == "dram.reads_and_writes")
    assert "8 events are multiplexed on 4 counters" in caution
    assert reasons(choice)["link.bytes"] == "the counters of amd_df are in use by dram.reads_and_writes"
    alone = choose_events(machine("zen_2"), ["link.bytes"])
    assert words(alone, "link.bytes") == {
        (event, 0): 1 for event in (0x7000002C7, 0x800000207, 0x800000247, 0x800000287)
    }


@pytest.mark.parametrize(("name", "config", "scale"), [
    ("haswell_ep", 0x200, 8),
    ("skylake_sp", 0xF02, 64 / 9),
    ("granite_rapids", 0xF02, 64 / 9),
    ("zen_4", 0xB003E5F, 64),
])  # fmt: skip
def test_links(name, config, scale):
    found = [event for event in choose_events(machine(name)).events if event.name == "link.bytes"]
    assert found[0].scale_bytes == pytest.approx(scale)
    if name != "zen_4":
        assert {item.words["config"] for item in found} == {config}
    else:
        assert found[0].words["config"] == encode_of("event=0xb5f,umask=0xf3e", found[0].pmu, machine(name))


def encode_of(terms, pmu, context):
    return encode(next(source for source in context.event_sources if source.name == pmu), terms)["config"]


@pytest.mark.parametrize(("name", "offcore"), [
    ("haswell_ep", (0x1B7, 0x6004007F7)),
    ("broadwell_ep", (0x1B7, 0x6040007F7)),
    ("skylake_sp", (0x1B7, 0x604000491)),
    ("cascade_lake_sp", (0x1B7, 0x3F840007F7)),
    ("ice_lake_sp", (0x1B7, 0x104000477)),
    ("sapphire_rapids", (0x12A, 0x104004477)),
    ("granite_rapids", (0x12A, 0x104004477)),
    ("zen_4", (0x844, 0)),
    ("neoverse_v1", (0x37, 0)),
])  # fmt: skip
def test_offcore_reads_have_cautions(name, offcore):
    choice = choose_events(machine(name))
    assert words(choice, "core.offcore_reads") == {offcore: 1}
    caution = next(event.caution for event in choice.events if event.name == "core.offcore_reads")
    assert "prefetcher" in caution or "any node" in caution


def test_latency_by_counters_is_one_group():
    choice = choose_events(machine("haswell_ep"))
    group = [(event.name, event.argument()) for event in choice.events if event.group == 0]
    assert group == [
        ("core.cycles", "core.cycles=hardware/config=0x0,group=0,user/"),
        ("core.l1d_pending", "core.l1d_pending=cpu/config=0x148,group=0,user/"),
        ("core.l1_miss", "core.l1_miss=cpu/config=0x8d1,group=0,user/"),
        ("core.fb_hit", "core.fb_hit=cpu/config=0x40d1,group=0,user/"),
    ]


def test_an_argument_names_the_cpus_of_a_box():
    first = choose_events(machine("granite_rapids")).events[0]
    assert first.argument() == "dram.reads=uncore_imc_0/config=0xcf05/@0,128"


def test_choice_fits_the_hardware_counters():
    both = {"core.local_reads", "core.remote_reads"}
    with_smt = choose_events(machine("haswell_ep"))
    assert both <= set(reasons(with_smt))
    assert "no free counter beside core.cycles" in reasons(with_smt)["core.local_reads"]
    assert not both & set(reasons(choose_events(machine("haswell_ep"), both | {"core.cycles"})))
    watched = reasons(choose_events(machine("haswell_ep", nmi_watchdog=1)))
    assert "NMI watchdog" in watched["core.offcore_reads"]
    assert "core.l1d_pending" not in watched
    assert "core.offcore_reads" not in reasons(
        choose_events(machine("emerald_rapids"))
    )  # it has counters for others than loads


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), max_size=6))
def test_assignment_finds_every_possible_counter(possible):
    def reachable(left, used):
        return not left or any(reachable(left[1:], {*used, item}) for item in left[0] if item not in used)

    found = assign(possible)
    assert (found is not None) == reachable(possible, set())
    if found is not None:
        assert sorted(found.values()) == list(range(len(possible)))
        assert all(counter in possible[event] for counter, event in found.items())


@pytest.mark.parametrize(("name", "argument"), [
    ("broadwell_ep", "pebs=cpu/config=0x1cd,config1=0x20,period=10007/"),
    ("sapphire_rapids", "pebs=cpu/config=0x1cd,config1=0x20,aux=0x8203,period=10007/"),
    ("zen_3", "ibs=ibs_op/config=0x80000,period=20000/"),
    ("zen_5", "ibs=ibs_op/config=0x90000,period=20000/"),
    ("neoverse_n2", "spe=arm_spe_0/config=0x200010000,config2=0x20,period=10007/"),
])  # fmt: skip
def test_samples(name, argument):
    assert choose_events(machine(name)).sampling.argument() == argument


def test_samples_take_a_counter_of_the_core():
    haswell = machine("haswell_ep")
    assert "multiplexed" in choose_events(haswell).sampling.caution
    group = {"core.cycles", "core.l1d_pending", "core.l1_miss", "core.fb_hit"}
    assert choose_events(haswell, group).sampling.caution is None
    assert choose_events(machine("sapphire_rapids")).sampling.caution is None


def test_samples_need_precision_and_a_source():
    sources = described(FIXTURES / "ice_lake_sp.yml")["event_sources"]
    imprecise = sources | {"cpu": sources["cpu"] | {"caps": {"max_precise": 0}}}
    assert "max_precise is 0" in reasons(choose_events(machine("ice_lake_sp", event_sources=imprecise)))[SAMPLES]
    sources = described(FIXTURES / "neoverse_n2.yml")["event_sources"]
    sources.pop("arm_spe_0")
    assert "no arm_spe_N" in reasons(choose_events(machine("neoverse_n2", event_sources=sources)))[SAMPLES]


@pytest.mark.parametrize(("paranoid", "capabilities", "machine_wide", "threads"), [
    (-1, UNPRIVILEGED, True, True),
    (0, UNPRIVILEGED, True, True),
    (1, UNPRIVILEGED, False, True),
    (2, UNPRIVILEGED, False, True),
    (3, UNPRIVILEGED, False, False),
    (4, PERFMON, True, True),
    (2, f"{1 << 21:016x}", True, True),
])  # fmt: skip
def test_predicts_missing_permissions(paranoid, capabilities, machine_wide, threads):
    choice = choose_events(machine("ice_lake_sp", perf_event_paranoid=paranoid, CapEff=capabilities))
    missing = reasons(choice)
    for role, allowed, needed in (("dram.reads", machine_wide, 0), ("core.cycles", threads, 2)):
        assert (role not in missing) == allowed
        if not allowed:
            assert f"perf_event_paranoid is {paranoid}" in missing[role]
            assert f"needs {needed} or less" in missing[role]
            assert "CAP_PERFMON" in missing[role]
    assert (SAMPLES not in missing) == threads


def test_capabilities_of_a_user_namespace_do_not_count():
    def missing(mapped):
        files = {"proc/self/uid_map": f"{mapped}\n"}
        return reasons(choose_events(machine("ice_lake_sp", files, perf_event_paranoid=4, CapEff=PERFMON)))

    assert "perf_event_paranoid is 4" in missing("0 1000 1")["core.cycles"]
    assert "core.cycles" not in missing("0 0 4294967295")


def test_unknown_capabilities_predict_nothing():
    unknown = machine("ice_lake_sp", {"proc/self/status": None}, perf_event_paranoid=3)
    assert "core.cycles" not in reasons(choose_events(unknown))


def test_ibs_samples_the_kernel_without_swfilt():
    unprivileged = {"perf_event_paranoid": 2, "CapEff": UNPRIVILEGED}
    assert "needs 1 or less" in reasons(choose_events(machine("zen_5", **unprivileged)))[SAMPLES]
    sources = described(FIXTURES / "zen_5.yml")["event_sources"]
    sources["ibs_op"]["format"]["swfilt"] = "config2:0"
    filtered = choose_events(machine("zen_5", event_sources=sources, **unprivileged))
    assert filtered.sampling.words == {"config": 0x90000, "config2": 1}


def test_a_guest_without_a_pmu():
    missing = reasons(choose_events(machine("guest_without_pmu")))
    assert set(missing) == {*EVENT_ROLES, SAMPLES} - {"dram.reads_and_writes"}
    assert all("the hypervisor exposes none" in reason for reason in missing.values())
    assert "no core PMU" in missing["core.cycles"]


def test_guest_with_a_pmu_has_a_caution():
    core = described(FIXTURES / "emerald_rapids.yml")["event_sources"]["cpu"]
    choice = choose_events(machine("guest_without_pmu", event_sources={"cpu": core}))
    caution = next(event.caution for event in choice.events if event.name == "core.offcore_reads")
    assert "a hypervisor may not pass this event on" in caution
    assert "no PMU counts it (uncore_imc_N" in reasons(choice)["dram.reads"]


def test_a_capture_without_event_sources():
    choice = choose_events(machine("haswell_ep", event_sources={}))
    assert choice.events == ()
    assert choice.sampling is None
    assert set(reasons(choice)) == {*EVENT_ROLES, SAMPLES}
    assert all("capture the machine again" in reason for reason in reasons(choice).values())
    without = machine("haswell_ep", {"proc/sys/kernel/perf_event_paranoid": None}, event_sources={})
    assert "built without performance events" in reasons(choose_events(without))["dram.reads"]


def test_unknown_processor_has_the_kernels_generic_events():
    processor = {"vendor_id": "GenuineIntel", "cpu family": 6, "model": 250, "stepping": 1}
    choice = choose_events(machine("sapphire_rapids", cpuinfo=processor))
    assert choice.microarchitecture is None
    assert {event.name for event in choice.events} == {"dram.reads", "dram.writes", "core.cycles", "core.instructions"}
    assert words(choice, "dram.reads") == {(0xCF05, 0): 8}
    assert "no table" in choice.events[0].caution
    assert reasons(choice)["core.l1_miss"] == "no event table for GenuineIntel family 6 model 250"
    unnamed = choose_events(machine("sapphire_rapids_without_names", cpuinfo=processor))
    assert reasons(unnamed)["dram.reads"] == "uncore_imc_0 has no event cas_count_read, and no table has its encoding"


def test_units_without_online_cpus_and_unsupported_terms_are_reported():
    sources = described(FIXTURES / "skylake_sp.yml")["event_sources"]
    sources["uncore_imc_[0-5]"]["cpumask"] = "500"
    del sources["uncore_upi_[0-2]"]["format"]["umask"]
    del sources["cpu"]["format"]["offcore_rsp"]
    missing = reasons(choose_events(machine("skylake_sp", event_sources=sources)))
    assert missing["dram.reads"] == "no online CPU in the cpumask of uncore_imc_0"
    assert "uncore_upi_0 has no term umask" in missing["link.bytes"]
    assert "cpu has no term offcore_rsp" in missing["core.offcore_reads"]


def test_names_an_uncounted_package():
    sources = described(FIXTURES / "skylake_sp.yml")["event_sources"]
    sources["uncore_imc_[0-5]"]["cpumask"] = "0"
    choice = choose_events(machine("skylake_sp", event_sources=sources))
    cautions = {event.name: event.caution for event in choice.events}
    assert cautions["dram.reads"] == "not counted on package 1"
    assert cautions["link.bytes"] is None


def test_hybrid_cores():
    sources = described(FIXTURES / "sapphire_rapids.yml")["event_sources"]
    core = sources.pop("cpu")
    sources |= {"cpu_core": core | {"cpus": "0-7"}, "cpu_atom": core | {"type": 10, "cpus": "8-31"}}
    choice = choose_events(machine("sapphire_rapids", event_sources=sources))
    cycles = next(event for event in choice.events if event.name == "core.cycles")
    assert (cycles.pmu, cycles.words) == ("hardware", {"config": 4 << 32})
    assert cycles.caution == "cpu_core counts on CPUs 0-7 only"
    arm = described(FIXTURES / "neoverse_n2.yml")["event_sources"]
    cluster = arm.pop("armv8_pmuv3_0")
    arm |= {"armv8_pmuv3_0": cluster | {"cpus": "0-3"}, "armv8_pmuv3_1": cluster | {"cpus": "4-127"}}
    found = {
        event.pmu
        for event in choose_events(machine("neoverse_n2", event_sources=arm)).events
        if event.name == "core.remote_reads"
    }
    assert found == {"armv8_pmuv3_1"}


@pytest.mark.parametrize("name", ["guest_without_pmu", "zen_2", "neoverse_n1"])
def test_command_prints_the_choice(tmp_path, name):
    path = tmp_path / "machine.tar"
    path.write_bytes(archive_of(described(FIXTURES / f"{name}.yml") | {"nmi_watchdog": 1}))
    choice = choose_events(load(path))
    ran = CliRunner().invoke(counters_command, [str(path)])
    assert ran.exit_code == 0
    assert ran.output == table_text(choice) + "\n"
    for event in choice.events:
        assert event.source in ran.output
        assert event.caution is None or event.caution in ran.output
    for item in choice.missing:
        assert f"{item.role:<21} missing: {item.reason}" in ran.output
    as_json = CliRunner().invoke(counters_command, [str(path), "--json"])
    assert json.loads(as_json.output) == choice.model_dump(mode="json")


def test_numbered_names_are_grouped():
    assert numbered(f"uncore_imc_{n}" for n in (0, 1, 2, 4)) == "uncore_imc_0-2,4"
    assert numbered(["arm_dmc620_10008c000", "arm_dmc620_1000a4000"]) == "arm_dmc620_10008c000, arm_dmc620_1000a4000"
    assert numbered(["cpu"]) == "cpu"
    assert names_of("box_[8-10]") == ["box_8", "box_9", "box_10"]
    assert names_of("box_{a,b}_[0-1]") == ["box_a_0", "box_a_1", "box_b_0", "box_b_1"]
