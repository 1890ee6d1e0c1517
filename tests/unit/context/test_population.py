# SPDX-License-Identifier: Apache-2.0
"""Memory channels from the names that vendors' firmware gives to slots, and what must stay unknown."""

import pytest

from calibration.context.model import Dimm, MemoryArray, Unreadable
from calibration.context.population import Population, UnknownPopulation, population
from tests.unit.machines import GIB, MACHINES

ONE, TWO, EIGHT = "1x128-aarch64-4-nodes", "2x32-smt-2-nodes", "2x64-smt-8-nodes"


def dimm(locator, bank=None, size=32 * GIB, **changes):
    fields = {
        "type": "DDR5", "form_factor": "DIMM", "data_width_bits": 64, "total_width_bits": 80, "ranks": 2,
        "speed_mt_s": 4800, "configured_mt_s": 4800, "manufacturer": None, "part": None,
    }  # fmt: skip
    return Dimm(locator=locator, bank=bank, size_bytes=size, **{**fields, **changes})


def found(machine, dimms, **changes):
    context = MACHINES[machine]
    firmware = context.firmware.model_copy(update={"dimms": tuple(dimms)})
    virtualization = context.virtualization.model_copy(update={"guest": False})
    updates = {"firmware": firmware, "virtualization": virtualization, "unreadable": (), **changes}
    return population(context.model_copy(update=updates))


def slots(form, sockets, channels, per_channel=1, first=0):
    """Return names of slots by *form*: a locator and a bank with s(ocket), c(hannel), l(etter), n(umber of channel)."""
    return [
        tuple(
            text and text.format(s=s, c=c, l=chr(65 + c), a=chr(65 + c + channels * (s - first)), d=d) for text in form
        )
        for s in range(first, first + sockets)
        for c in range(channels)
        for d in range(per_channel)
    ]


FORMS = {
    "Supermicro, bank wrong": slots(("P{s}-DIMM{l}1", "P0_Node0_Channel0_Dimm{d}"), 2, 8, first=1),
    "Supermicro Skylake": slots(("P{s}-DIMM{l}{d}", "P{s}_Node0_Channel{c}_Dimm{d}"), 2, 8, 2, first=1),
    "bank only": slots(("DIMM {d}", "P{s}_Node0_Channel{c}_Dimm{d}"), 2, 8, 2),
    "AMD reference": slots(("DIMM {d}", "P{s} CHANNEL {l}"), 2, 8, 2),
    "Gigabyte": slots(("DIMM_P{s}_{a}{d}", "BANK {d}"), 2, 8, 2),
    "Intel reference": slots(("CPU{s}_DIMM_{l}{d}", "NODE {s}"), 2, 8, 2),
    "Intel, one slot per channel": slots(("CPU{s}_DIMM_{l}", "BANK {c}"), 2, 8),
    "Intel, channel and slot": slots(("CPU{s} CH{c}/D{d}", "BANK {c}"), 2, 8, 2),
    "Inspur": slots(("CPU{s}_C{c}D{d}", "NODE {s}"), 2, 8, 2),
    "Cisco": slots(("DIMM_{a}{d}", "NODE {s} CHANNEL {c} DIMM {d}"), 2, 8, 2),
    "Huawei": slots(("DIMM{s}{c}{d} J11", "SOCKET {s} CHANNEL {c} DIMM {d}"), 2, 8, 2),
    "letters over both sockets": slots(("DIMM_{a}{d}", "NODE {s}"), 2, 8, 2, first=1),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_channels_of_two_sockets(form):
    seen = found(
        TWO, [dimm(*names, size=0 if index == 17 * len(form) // 32 else 32 * GIB) for index, names in enumerate(form)]
    )
    assert isinstance(seen, Population), seen
    missing = len(form) == 16  # with two slots per channel the other one still populates it
    assert (seen.machine.channels, seen.machine.populated) == (16, 16 - missing)
    assert seen.machine.peak_mb_s == (16 - missing) * 4800 * 8
    assert [package.populated for package in seen.packages.values()] == [8, 8 - missing]
    assert seen.nodes == dict(enumerate(seen.packages.values()))


@pytest.mark.parametrize("names", [
    [("ChannelA-DIMM0", "BANK 0"), ("ChannelB-DIMM0", "BANK 2")],
    [("Controller0-ChannelA-DIMM0", "BANK 0"), ("Controller1-ChannelA-DIMM0", "BANK 0")],
    [("SODIMM0", "CHANNEL A DIMM0"), ("SODIMM1", "CHANNEL B DIMM0")],
    [("DIMM 1", "P0 CHANNEL A"), ("DIMM 1", "P0 CHANNEL B")],
    [("DIMMA1", "P0_Node0_Channel0_Dimm0"), ("DIMMB1", "P0_Node0_Channel1_Dimm0")],
])  # fmt: skip
def test_channels_of_one_socket(names):
    seen = found(ONE, [dimm(*name) for name in names])
    assert isinstance(seen, Population), seen
    assert (seen.machine.populated, seen.machine.peak_mb_s) == (2, 2 * 4800 * 8)


def test_an_empty_slot_shows_in_the_memory_of_its_node():
    form = FORMS["Supermicro, bank wrong"]
    nodes = tuple(
        node.model_copy(update={"memory_bytes": (31 if node.id == 5 else 63) * GIB}) for node in MACHINES[EIGHT].nodes
    )
    dimms = [dimm(*names, size=0 if names[0] == "P2-DIMMD1" else 32 * GIB) for names in form]
    seen = found(EIGHT, dimms, nodes=nodes)
    assert isinstance(seen, Population)
    assert [seen.nodes[node].populated for node in range(8)] == [2, 2, 2, 2, 2, 1, 2, 2]
    assert (seen.nodes[5].channels, seen.nodes[5].peak_mb_s, seen.nodes[5].empty_slots) == (2, 38400, ("P2-DIMMD1",))
    assert not seen.nodes[4].empty_slots
    assert found(EIGHT, dimms).nodes == {}  # memory of nodes that does not fit the modules


def test_sockets_are_packages_in_the_order_of_their_numbers():
    topology = MACHINES[TWO].topology
    cores = tuple(core.model_copy(update={"package_id": 1 + 7 * core.package_id}) for core in topology.cores)
    names = FORMS["Intel, one slot per channel"]
    dimms = [dimm(*name, size=0 if name[0] == "CPU0_DIMM_A" else 32 * GIB) for name in names]
    seen = found(TWO, dimms, topology=topology.model_copy(update={"cores": cores}))
    assert isinstance(seen, Population)
    assert {package: peak.empty_slots for package, peak in seen.packages.items()} == {1: ("CPU0_DIMM_A",), 8: ()}


def test_the_slowest_module_and_the_width_decide():
    names = FORMS["Intel reference"]
    dimms = [dimm(*name, configured_mt_s=4400 if name[0] == "CPU0_DIMM_A1" else 4800) for name in names]
    seen = found(TWO, dimms)
    assert isinstance(seen, Population)
    assert seen.packages[0].peak_mb_s == (7 * 4800 + 4400) * 8
    narrow = found(ONE, [dimm("DIMM 0", "P0 CHANNEL A", data_width_bits=32)])
    assert isinstance(narrow, Population)
    assert narrow.machine.peak_mb_s == 4800 * 4


def test_only_dram_counts_as_populated():
    flash = dimm("SYSTEM ROM", size=4 << 20, type="Flash", configured_mt_s=None)
    persistent = [dimm(f"CPU0_DIMM_{letter}2", type="Logical non-volatile device") for letter in "AB"]
    seen = found(ONE, [dimm("CPU0_DIMM_A1"), *persistent, flash])
    assert isinstance(seen, Population)
    assert (seen.machine.channels, seen.machine.populated) == (1, 1)


UNKNOWN = {
    "Dell: the letter is the processor": ([dimm(f"{side}{slot}") for side in "AB" for slot in range(1, 17)], "'A1'"),
    "HPE: slots by number": ([dimm(f"PROC {s} DIMM {n}") for s in (1, 2) for n in range(1, 17)], "name its channel"),
    "HPE: letters by order of filling": ([dimm("PROC 1 DIMM 1D"), dimm("PROC 1 DIMM 2A")], "name its channel"),
    "one name for all": ([dimm("DIMM 0", "BANK 0")] * 2, "have one name"),
    "slots under one letter": ([dimm(f"DIMM_A{slot}") for slot in range(8)], "more slots"),
    "no speed": ([dimm("DIMM_A1", configured_mt_s=None)], "no configured speed"),
    "no width": ([dimm("DIMM_A1", data_width_bits=None)], "no width"),
    "clock in place of the rate": ([dimm("DIMM_A1", speed_mt_s=2133, configured_mt_s=1067)], "half the rated"),
    "HBM": ([dimm("CPU0_DIMM_A1"), dimm("CPU0_HBM_A", type="HBM2")], "HBM"),
    "nothing populated": ([dimm("DIMM_A1", size=0)], "only root"),
    "no table": ([], "only root"),
}


@pytest.mark.parametrize(("dimms", "reason"), UNKNOWN.values(), ids=UNKNOWN)
def test_unclear_population_is_unknown(dimms, reason):
    seen = found(TWO, dimms)
    assert isinstance(seen, UnknownPopulation)
    assert reason in seen.reason


def test_guest_and_unread_table_have_reasons():
    guest = MACHINES[TWO].virtualization.model_copy(update={"guest": True})
    assert "virtual" in found(TWO, [dimm("DIMM_A1")], virtualization=guest).reason
    refused = (Unreadable(path="/sys/firmware/dmi/tables/DMI", reason="Permission denied"),)
    assert "Permission denied" in found(TWO, [], unreadable=refused).reason


def test_a_broken_table_counts_if_no_memory_is_missing_in_it():
    broken = (Unreadable(path="/sys/firmware/dmi/tables/DMI", reason="unparsable from byte 9"),)
    eight = [dimm(f"P0-DIMM{letter}1") for letter in "ABCDEFGH"]
    memory = MACHINES[TWO].memory.model_copy(update={"total_bytes": 8 * 32 * GIB - 1})
    assert isinstance(found(TWO, eight, unreadable=broken, memory=memory), Population)
    for dimms, total in ((eight[:7], memory), (eight, memory.model_copy(update={"total_bytes": 8 * 32 * GIB + 1}))):
        seen = found(TWO, dimms, unreadable=broken, memory=total)
        assert seen.reason == "the SMBIOS table is broken: unparsable from byte 9"
        assert isinstance(found(TWO, dimms, memory=total), Population)
    arrays = (MemoryArray(use="System Memory", error_correction=None, maximum_bytes=None, slots=9),)
    firmware = MACHINES[TWO].firmware.model_copy(update={"dimms": tuple(eight), "memory_arrays": arrays})
    assert "broken" in found(TWO, eight, unreadable=broken, memory=memory, firmware=firmware).reason


def test_slots_without_a_socket():
    seen = found(TWO, [dimm(f"DIMM_{letter}1") for letter in "ABCDEFGH"])
    assert isinstance(seen, Population)
    assert (seen.machine.populated, seen.packages, seen.nodes) == (8, {}, {})


def test_emulated_parts_of_a_node_have_all_its_channels():
    modules = [dimm(f"P{socket}-DIMM{letter}1") for socket in (1, 2) for letter in "ABCDEFGH"]
    nodes = MACHINES[TWO].nodes
    parts = [nodes[number % 2].model_copy(update={"id": number, "memory_bytes": 128 * GIB}) for number in range(4)]
    whole, divided = found(TWO, modules), found(TWO, modules, nodes=tuple(parts))
    assert isinstance(divided, Population)
    assert [divided.nodes[node] for node in range(4)] == [whole.nodes[0], whole.nodes[1]] * 2
