# SPDX-License-Identifier: Apache-2.0
"""Machines that people reported to other projects: small trees of the files in question, each with what is right.

``reported.yml`` names the report of each. Trees are our own, with the values of the report; each is read live and as
its capture.
"""

import base64
import errno
import fnmatch
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from calibration.base.errors import EnvironmentLacksError
from calibration.context.facts import facts
from calibration.context.loader import load
from calibration.context.vulnerabilities import vulnerabilities
from calibration.measurements.sut import Sut, confined, machine_flags
from calibration.profiles import parse_profile
from calibration.run.plan import make_plan
from calibration.runner import capture, health

SITUATIONS = yaml.safe_load(Path(__file__).with_name("reported.yml").read_text(encoding="utf-8"))


def structure(kind, area, strings=()):
    """Return an SMBIOS structure of a type, its formatted area after the header in hexadecimal, and its strings."""
    content = bytes.fromhex(area)
    texts = b"\0".join(text.encode() for text in strings) + b"\0" if strings else b"\0"
    return bytes([kind, len(content) + 4, kind, 0]) + content + texts + b"\0"


def contents(files):
    """Return the files of a situation; a list is a table of SMBIOS structures."""
    return {
        path: b"".join(structure(*row) for row in content) if isinstance(content, list) else content
        for path, content in files.items()
    }


def value_at(described, path):
    """Return what is at a dotted *path*; a part ``*`` gives the list of all."""
    first, _, rest = path.partition(".")
    if first == "*":
        return [value_at(item, rest) if rest else item for item in described]
    found = described[int(first)] if isinstance(described, list) else described[first]
    return value_at(found, rest) if rest else found


def _left_out(context):
    """Return why measurements on pages of some sizes are not planned."""
    profile = parse_profile("title: made\nmeasurements:\n  page_sizes: {}\n", "made", "made.yml")
    try:
        return {item.what: item.reason for item in make_plan(context, profile).not_planned}
    except EnvironmentLacksError as error:
        return {"everything": str(error)}


def described(root, archive=None):
    """Return the context of a root or its archive with what is derived from it, as plain values."""
    context, machine = load(root, archive), SimpleNamespace(root=str(root))
    sut = Sut(context)
    return {
        **context.model_dump(mode="json"),
        "unreadable": {item.path: item.reason for item in context.unreadable if item.path != "/load"},
        "facts": facts(context, None),
        "flags": [flag.code for flag in machine_flags(context)],
        "vulnerabilities": {item.file: item.state for item in vulnerabilities(context)},
        "sut": {
            "cpus": sorted(sut.cpus),
            "llc_bytes": sut.llc_bytes,
            "llc_is_private": sut.llc_is_private,
            "memory_nodes": sut.memory_nodes,
        },
        "limits": dict(confined(sut)),
        "left_out": _left_out(context),
        "interrupts": context.isolation.interrupts and [item.irq for item in context.isolation.interrupts],
        "counters": {kind: counts for kind, counts in health.Health(machine).counters.items() if counts},
        "energy": list(health.Energy(machine).joules),
    }


@pytest.fixture
def refuse(monkeypatch):
    """Return a function after which files of a root are refused, by pattern and name of the error."""
    opened = os.open

    def refuse(root, refused):
        def open_unless_refused(path, *arguments, **keywords):
            for pattern, name in refused.items():
                if fnmatch.fnmatchcase(str(path), f"{root}{pattern}"):
                    code = getattr(errno, name)
                    raise OSError(code, os.strerror(code), path)
            return opened(path, *arguments, **keywords)

        monkeypatch.setattr(os, "open", open_unless_refused)

    return refuse


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda row: row["source"])
def test_reported_machine_is_read_as_its_files_say(situation, make_root, refuse, monkeypatch):
    files = contents(situation["files"])
    root = make_root(files)
    for path, target in situation.get("links", {}).items():
        place = root / path.lstrip("/")
        place.rename(place.with_name("moved"))
        place.symlink_to(target)
        (place.parent / target).parent.mkdir(parents=True)
        place.with_name("moved").rename(place.parent / target)
    refuse(root, situation.get("refused", {}))
    uname = os.uname()
    machine = files.get("/proc/sys/kernel/arch", "x86_64").strip()
    made = {name: getattr(uname, name) for name in ("sysname", "nodename", "release", "version")}
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(**made, machine=machine))
    monkeypatch.setattr(capture, "namespaces", dict)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: (_ for _ in ()).throw(OSError()))
    captured = described(root, base64.b64decode(capture.capture(str(root), sleep=lambda _: None)["archive"]))
    expected = situation["expected"]
    assert {path: value_at(captured, path) for path in expected} == expected
    if "load" not in {path.split(".")[0] for path in expected}:
        live = described(root)
        assert {path: value_at(live, path) for path in expected} == expected
