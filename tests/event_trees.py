# SPDX-License-Identifier: Apache-2.0
"""Machines with event sources, described in tests/fixtures/event_sources, as archives of /proc and /sys.

A description lists the sources with their files; common parts are written once: ``uncore_imc_[0-7]`` stands for eight
names, ``uncore_imc_{0,1,4,5}`` for four. The rest of ``/proc`` and ``/sys`` is generated from the numbers of packages,
cores and threads.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from calibration.context.loader import load
from calibration.context.model import Context
from calibration.runner.capture import tar_header

FIXTURES = Path(__file__).resolve().parent / "fixtures" / "event_sources"
DEVICES = "sys/bus/event_source/devices"
CPU = "sys/devices/system/cpu"


def described(path: Path) -> dict[str, Any]:
    """Return the description in *path*."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def names_of(pattern: str) -> list[str]:
    """Return the names that *pattern* expands to."""
    match = re.fullmatch(r"(.*?)(?:\[([0-9]+)-([0-9]+)\]|\{([^}]*)\})(.*)", pattern)
    if match is None:
        return [pattern]
    before, first, last, listed, after = match.groups()
    middles = listed.split(",") if listed is not None else [str(number) for number in range(int(first), int(last) + 1)]
    return [before + middle + rest for middle in middles for rest in names_of(after)]


def _sources(sources: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    kinds = 0
    for pattern, source in sources.items():
        for name in names_of(pattern):
            kinds += 1
            yield f"{DEVICES}/{name}/type", f"{source.get('type', 20 + kinds)}\n"
            for key, value in source.items():
                if isinstance(value, Mapping):
                    yield from ((f"{DEVICES}/{name}/{key}/{item}", f"{text}\n") for item, text in value.items())
                elif key != "type":
                    yield f"{DEVICES}/{name}/{key}", f"{value}\n"


def _processors(description: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    packages, cores, threads = description["packages"], description["cores"], description["threads"]
    rows = []
    nodes: dict[int, list[int]] = {}
    for cpu in range(packages * cores * threads):
        core = cpu % (packages * cores)
        package = core // cores
        nodes.setdefault(package, []).append(cpu)
        siblings = ",".join(str(core + thread * packages * cores) for thread in range(threads))
        about = {"processor": cpu, **description["cpuinfo"]}
        if "vendor_id" in about:
            about |= {"physical id": package, "core id": core % cores}
        rows.append("".join(f"{key}\t: {value}\n" for key, value in about.items()))
        topology = f"{CPU}/cpu{cpu}/topology"
        yield f"{topology}/core_id", f"{core % cores}\n"
        yield f"{topology}/physical_package_id", f"{package}\n"
        yield f"{topology}/core_cpus_list", f"{siblings}\n"
    yield "proc/cpuinfo", "\n".join(rows)
    yield f"{CPU}/online", f"0-{packages * cores * threads - 1}\n"
    for node, cpus in nodes.items():
        yield f"sys/devices/system/node/node{node}/cpulist", ",".join(map(str, cpus)) + "\n"
        yield (
            f"sys/devices/system/node/node{node}/distance",
            " ".join("10" if n == node else "21" for n in nodes) + "\n",
        )
    yield "sys/devices/system/node/online", f"0-{packages - 1}\n"


def archive_of(description: Mapping[str, Any], files: Mapping[str, str | None] | None = None) -> bytes:
    """Return the files of the described machine as an archive; those in *files* are others, None omits one."""
    made = {
        **dict(_processors(description)),
        **dict(_sources(description["event_sources"])),
        "proc/sys/kernel/arch": f"{description['machine']}\n",
        "proc/sys/kernel/perf_event_paranoid": f"{description['perf_event_paranoid']}\n",
        "proc/sys/kernel/nmi_watchdog": f"{description['nmi_watchdog']}\n",
        "proc/self/status": f"Name:\tpython3\nCapEff:\t{description['CapEff']}\n",
        **(files or {}),
    }
    contents = {path: text.encode() for path, text in made.items() if text is not None}
    members = (tar_header(path, len(text), 0) + text + b"\0" * (-len(text) % 512) for path, text in contents.items())
    return b"".join(members) + b"\0" * 1024


def context_of(description: Mapping[str, Any], files: Mapping[str, str | None] | None = None) -> Context:
    """Return what the described machine is parsed to, with other *files*."""
    return load(Path("machine.tar"), archive_of(description, files))
