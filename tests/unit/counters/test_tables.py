# SPDX-License-Identifier: Apache-2.0
"""The tables of events: whole, of one processor each, and refused if they are not."""

import pytest

from calibration.base.errors import InputError
from calibration.counters.event_roles import EVENT_ROLES
from calibration.counters.tables import ANY, parse_table, table_of, tables

TABLE = """
microarchitecture: Example
processors: [{vendor: GenuineIntel, family: "6", models: ["0x10-0x1f"]}]
sources: {core: {list: a list, version: "1", date: "2026-01-01"}}
core:
  - {role: core.cycles, event: CYCLES, source: core, terms: "event=0x3c"}
"""
BOX = """{role: dram.reads, pmus: imc, scale_bytes: 1, counters: 1, events: [{event: R, source: core, alias: r}]}"""


@pytest.mark.parametrize(("vendor", "family", "model", "stepping", "name"), [
    ("GenuineIntel", "6", "63", "2", "Haswell-EP"),
    ("GenuineIntel", "6", "79", "1", "Broadwell-EP"),
    ("GenuineIntel", "6", "85", "4", "Skylake-SP"),
    ("GenuineIntel", "6", "85", "7", "Cascade Lake-SP"),
    ("GenuineIntel", "6", "106", "6", "Ice Lake-SP"),
    ("GenuineIntel", "6", "143", "8", "Sapphire Rapids"),
    ("GenuineIntel", "6", "207", "2", "Emerald Rapids"),
    ("GenuineIntel", "6", "173", "1", "Granite Rapids"),
    ("AuthenticAMD", "23", "49", "0", "Zen 2"),
    ("AuthenticAMD", "25", "1", "1", "Zen 3"),
    ("AuthenticAMD", "25", "17", "1", "Zen 4"),
    ("AuthenticAMD", "25", "97", "2", "Zen 4"),
    ("AuthenticAMD", "26", "2", "1", "Zen 5"),
    ("ARM", "8", "0xd0c", "r3p1", "Neoverse-N1"),
    ("ARM", "8", "0xd49", "r0p0", "Neoverse-N2"),
    ("ARM", "8", "0xd40", "r1p1", "Neoverse-V1"),
    ("ARM", "8", "0xd4f", "r0p1", "Neoverse-V2"),
])  # fmt: skip
def test_table_of_the_microarchitecture(vendor, family, model, stepping, name):
    assert table_of(vendor, family, model, stepping).microarchitecture == name
    assert (
        sum(any(one.has(vendor, family, model, stepping) for one in table.processors) for table in tables().values())
        == 1
    )


@pytest.mark.parametrize("processor", [
    ("GenuineIntel", "6", "85", None),
    ("GenuineIntel", "15", "63", "2"),
    ("AuthenticAMD", "23", "1", "2"),
    ("ARM", "8", "0xd4e", "r0p0"),
    ("ARM", "8", None, None),
    ("GenuineIntel", "6", "many", "2"),
    (None, None, None, None),
])  # fmt: skip
def test_other_processors_have_no_table(processor):
    assert table_of(*processor) is None


@pytest.mark.parametrize("name", sorted(tables()))
def test_every_role_has_an_event_or_a_reason(name):
    known = tables()[name]
    given = {box.role for box in (*known.core, *known.boxes)} | set(known.absent)
    needed = {role for role, scope in EVENT_ROLES.items() if scope == "thread"} - {"core.cycles", "core.instructions"}
    assert name == ANY or needed <= given
    assert known.sampling is not None or name == ANY


@pytest.mark.parametrize(("was", "becomes", "what"), [
    ("role: core.cycles", "role: core.clock", "unknown role"),
    ("event=0x3c", "event=?", "with a parameter"),
    ("source: core,", "source: other,", "rows name the sources"),
    ('"0x10-0x1f"', '"0x1f-0x10"', "ascending span"),
    ("processors:", "processor:", "Extra inputs"),
    ("core:\n", "absent: {core.cycles: why}\ncore:\n", "both an event and a reason for its absence: core.cycles"),
    ("core:\n", f"absent: {{dram.reads: why}}\nboxes: [{BOX}]\ncore:\n",
     "both an event and a reason for its absence: dram.reads"),
    ("core:\n", "boxes: [{role: dram.reads, pmus: '(', events: [], scale_bytes: 1, counters: 1}]\ncore:\n", "regular"),
    ("sources:", "sources: [", "not a table"),
    ("microarchitecture:", "like: none_such\nmicroarchitecture:", "not a table"),
])  # fmt: skip
def test_invalid_table_is_refused(was, becomes, what):
    parse_table(TABLE, "example.yml")
    assert was in TABLE
    with pytest.raises(InputError, match=what):
        parse_table(TABLE.replace(was, becomes, 1), "example.yml")


def test_an_event_of_a_box_is_named_or_encoded():
    boxes = "boxes: [{role: dram.reads, pmus: box, events: [{event: E, source: core}], scale_bytes: 1, counters: 1}]\n"
    with pytest.raises(InputError, match="E has neither an alias nor terms"):
        parse_table(TABLE + boxes, "example.yml")


def test_derived_table_changes_only_its_own_rows():
    own, other = tables()["broadwell_ep"], tables()["haswell_ep"]
    changed = {row.role: row.terms for row in own.core if row not in other.core}
    assert changed == {"core.offcore_reads": "event=0xb7,umask=0x01,offcore_rsp=0x6040007f7"}
    assert (own.microarchitecture, own.boxes, own.sampling) == ("Broadwell-EP", other.boxes, other.sampling)
    assert tables()["ice_lake_sp"].without_smt is None


def test_a_series_of_events_is_numbered():
    channels = tables()["zen_3"].boxes[0].events
    assert len(channels) == 8
    assert (channels[7].event, channels[7].terms) == ("dram_channel_data_controller_7", "event=0x1c7,umask=0x38")
