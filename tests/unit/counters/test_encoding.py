# SPDX-License-Identifier: Apache-2.0
"""Formats, terms and words of event sources, and how a tree of them is read and captured."""

import base64
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.base.errors import InputError
from calibration.context.event_sources import parse_format
from calibration.context.loader import load
from calibration.context.model import EventAlias, EventSource
from calibration.counters.encoding import encode, parse_terms
from calibration.runner import capture

DEVICES = "/sys/bus/event_source/devices"


def source(**formats: str) -> EventSource:
    return EventSource(name="box", type=9, cpumask=(0,), cpus=None, formats=formats, aliases={}, caps={})


def test_bits_of_a_format():
    assert parse_format("config:0-7\n") == ("config", tuple(range(8)))
    assert parse_format("config1:0-2,40") == ("config1", (0, 1, 2, 40))
    assert parse_format("config:0-7,32-35,59-60")[1] == (*range(8), *range(32, 36), 59, 60)
    assert parse_format("config3:63") == ("config3", (63,))
    assert parse_format("config4:0-1") == ("config4", (0, 1))


@pytest.mark.parametrize("text", ["", "config", "config5:0", "config:7-0", "config:64", "config:0-3,2", "config:0-"])
def test_rejects_invalid_formats(text):
    with pytest.raises(ValueError, match=r"not bits|not ascending|twice"):
        parse_format(text)


def test_terms_are_numbers_and_a_bare_term_is_one():
    assert parse_terms("event=0x04,umask=0x03,edge,ldlat=30\n") == {"event": 4, "umask": 3, "edge": 1, "ldlat": 30}


@pytest.mark.parametrize(("terms", "what"), [
    ("event=?", "with a parameter, event"),
    ("event=0x4,core=?", "with a parameter, core"),
    ("event=four", "event of .* is not a number"),
    ("event=0x1,event=0x2", "event is given twice"),
    ("", "not terms"),
    ("event=1,,umask=2", "not terms"),
    ("event=-1", "not a number"),
])  # fmt: skip
def test_rejects_invalid_terms(terms, what):
    with pytest.raises(InputError, match=what):
        parse_terms(terms)


def test_a_split_value_is_placed_low_bits_first():
    amd = source(event="config:0-7,32-37", umask="config:8-15,24-27")
    assert encode(amd, "event=0x11f,umask=0x7fe") == {"config": 0x1_0700_FE1F}
    assert encode(source(event="config:0-7,21"), "event=0x102") == {"config": 0x20_0002}


def test_terms_go_to_their_words():
    intel = source(event="config:0-7", umask="config:8-15", offcore_rsp="config1:0-63")
    words = encode(intel, "event=0xb7,umask=0x01,offcore_rsp=0x6004007f7")
    assert words == {"config": 0x1B7, "config1": 0x6004007F7}
    assert encode(source(), "config=0x9,config2=0x1") == {"config": 9, "config2": 1}


@pytest.mark.parametrize(
    ("terms", "what"),
    [("event=0x100", "does not fit the 8 bits of box"), ("thresh=1", r"box has no term thresh \(it has event\)")],
)
def test_rejects_terms_unknown_to_the_source(terms, what):
    with pytest.raises(InputError, match=what):
        encode(source(event="config:0-7"), terms)
    with pytest.raises(InputError, match=r"filter of filter=1 is in config4 of the kernel's interface"):
        encode(source(filter="config4:0-63"), "filter=1")
    with pytest.raises(InputError, match=r"\(it has none\)"):
        encode(source(), terms.replace("event", "thresh"))


@given(bits=st.permutations(range(64)).map(lambda order: order[:20]), value=st.integers(0, 2**20 - 1))
def test_encoding_keeps_every_bit(bits, value):
    ordered = sorted(bits)
    words = encode(source(x="config1:" + ",".join(map(str, ordered))), f"x={value:#x}")
    found = sum((words.get("config1", 0) >> bit & 1) << position for position, bit in enumerate(ordered))
    assert (found, words["config"]) == (value, 0)
    assert words.get("config1", 0) & ~sum(1 << bit for bit in ordered) == 0


def tree(make_root):
    return make_root(
        {
            "/proc/cpuinfo": "processor : 0\n",
            f"{DEVICES}/uncore_imc_0/type": "20\n",
            f"{DEVICES}/uncore_imc_0/cpumask": "0,28\n",
            f"{DEVICES}/uncore_imc_0/format/event": "config:0-7\n",
            f"{DEVICES}/uncore_imc_0/format/strange": "config:event\n",
            f"{DEVICES}/uncore_imc_0/events/cas_count_read": "event=0x04,umask=0x03\n",
            f"{DEVICES}/uncore_imc_0/events/cas_count_read.scale": "6.103515625e-5\n",
            f"{DEVICES}/uncore_imc_0/events/cas_count_read.unit": "MiB\n",
            f"{DEVICES}/uncore_imc_0/events/clockticks": "event=0xff\n",
            f"{DEVICES}/uncore_imc_0/events/clockticks.scale": "-1\n",
            f"{DEVICES}/uncore_imc_0/events/clockticks.snapshot": "1\n",
            f"{DEVICES}/armv8_pmuv3_0/type": "8\n",
            f"{DEVICES}/armv8_pmuv3_0/cpus": "0-3\n",
            f"{DEVICES}/armv8_pmuv3_0/caps/slots": "0x00000008\n",
            f"{DEVICES}/armv8_pmuv3_0/power/control": "auto\n",
        }
    )


def test_lists_oddities_of_event_sources(make_root):
    context = load(tree(make_root))
    core, box = context.event_sources
    assert (core.name, core.cpus, core.cpumask, core.caps) == (
        "armv8_pmuv3_0",
        (0, 1, 2, 3),
        None,
        {"slots": "0x00000008"},
    )
    assert (box.type, box.cpumask, box.formats) == (20, (0, 28), {"event": "config:0-7"})
    assert box.aliases == {
        "cas_count_read": EventAlias(terms="event=0x04,umask=0x03", scale=6.103515625e-5, unit="MiB"),
        "clockticks": EventAlias(terms="event=0xff", scale=None, unit=None),
    }
    listed = {item.path.rsplit("/", 1)[1]: item.reason for item in context.unreadable if DEVICES in item.path}
    assert "not bits" in listed["strange"]
    assert "not a positive number" in listed["clockticks.scale"]
    assert len(listed) == 2


def test_capture_without_event_sources(make_root):
    assert load(make_root({"/proc/cpuinfo": "processor : 0\n"})).event_sources is None


def test_effective_capabilities_are_those_of_the_capturing_process(make_root):
    root = make_root({"/proc/cpuinfo": "", "/proc/self/status": "Name:\tpython\nCapEff:\t0000004000000000\n"})
    assert load(root).capture.effective_capabilities == 1 << 38
    broken = load(make_root({"/proc/cpuinfo": "", "/proc/self/status": "Name:\tpython\nCapEff:\tall\n"}))
    assert broken.capture.effective_capabilities is None
    assert any("capabilities" in item.reason for item in broken.unreadable)


def captured(root):
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(capture.capture(str(root))["archive"]))) as archive:
        return {member.name for member in archive if "event_source" in member.name}


def test_the_capture_follows_the_links_to_the_sources_and_no_others(make_root, tmp_path):
    root = tree(make_root)
    devices, real = root / DEVICES[1:], root / "sys/devices"
    real.mkdir(parents=True)
    for name in ("uncore_imc_0", "armv8_pmuv3_0"):
        (devices / name).rename(real / name)
        (devices / name).symlink_to(f"../../../devices/{name}")
        (real / name / "subsystem").symlink_to("../../bus/event_source")
        (real / name / "device").symlink_to(f"../{name}")
    found = captured(root)
    assert {name.removeprefix(DEVICES[1:]) for name in found} == {
        *(f"/uncore_imc_0/{name}" for name in ("type", "cpumask", "format/event", "format/strange")),
        *(f"/uncore_imc_0/events/cas_count_read{suffix}" for suffix in ("", ".scale", ".unit")),
        *(f"/uncore_imc_0/events/clockticks{suffix}" for suffix in ("", ".scale", ".snapshot")),
        *(f"/armv8_pmuv3_0/{name}" for name in ("type", "cpus", "caps/slots")),
    }
    archive = tmp_path / "context.tar.gz"
    archive.write_bytes(base64.b64decode(capture.capture(str(root))["archive"]))
    assert load(archive).event_sources == load(root).event_sources


def test_the_files_of_event_sources_are_bounded(make_root, monkeypatch):
    monkeypatch.setattr(capture, "MAX_EVENT_SOURCE_FILES", 3)
    collector = capture.collect(str(tree(make_root)))
    assert sum(DEVICES in path for path in collector.files) == 3
    assert any(DEVICES in path and "full" in reason for path, reason in collector.unreadable.items())


def test_reads_the_sources_of_this_machine():
    if not os.path.isdir(DEVICES):  # noqa: PTH112 - the path is the kernel's
        pytest.skip("this machine has no event sources")
    assert {"software", "tracepoint"} <= {item.name for item in load(Path("/")).event_sources}
