# SPDX-License-Identifier: Apache-2.0
"""Texts made to be slow, for every parser of what a SUT, a page or another program says.

Each parser reads or refuses them, and reads the largest that it accepts: a MiB may cost 6 s of CPU time, and a text
little more than sixteen times what a sixteenth of it costs. The quick test uses short texts, where only what is
quadratic is slow at all; the thorough one finds the worst texts and tries 16 MiB of them. A parser that is not in the
table fails a test.
"""

import copy
import gc
import importlib
import inspect
import io
import json
import pkgutil
import re
import reprlib
import signal
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import calibration
from calibration import comparisons, cpulists, mlc, text, tuning
from calibration.context import (
    cmdline,
    cpuinfo,
    cxl,
    devices,
    event_sources,
    firmware,
    isolation,
    loader,
    memory,
    topology,
    tree,
    tuned,
    tuned_variables,
    vulnerabilities,
)
from calibration.context.cpu_load import parse_cpu_counts, parse_used
from calibration.counters import encoding
from calibration.errors import CalibrationError, InputError
from calibration.formats import csit_page, csit_topology, lines, meltdown_checker, mlc_sections
from calibration.formats import mlc as mlc_format
from calibration.measurements import declaration
from calibration.measurements.base import Step
from calibration.preflight import facts as preflight_facts
from calibration.preflight import sut_checks
from calibration.results import answers, documents, health
from calibration.results.layout import SCHEMA_VERSION
from calibration.runner import cpusets
from calibration.sutprobe.document import MAX_PARTS, SCHEMA, read_document, read_result
from calibration.sutprobe.jitter import JitterResult

FIXTURES = Path(__file__).parents[1] / "fixtures"
CONTEXT = FIXTURES / "context" / "x86_64-two-nodes-smt.tar.gz"

MIB = 1 << 20
SIZE = 16 * MIB
PART = MIB
"""Size for functions that are given parts of what a parser reads, and the most that a module may answer."""

SHORT = MIB // 16
"""Size of the quick test's texts: a linear parser reads them in a fraction of :data:`COMPARED_S`. YAML is slower."""

FIRST, LAST = MIB // 32, 2 * MIB
"""Sizes between which every text is tried; the worst texts of each parser are tried at larger ones."""

SEEN_S = 0.03
"""A time that is long enough to tell by how much twice the text takes longer."""

MAX_S_PER_MIB = 6.0
"""Most CPU time for each MiB begun: three times what the slowest needs on a crowded host."""

SPAN = 16
"""A text is compared with one that is so many times shorter: over one doubling, caches look like half a power."""

MAX_GROWTH = 64.0
"""Most that the longer text may cost of the shorter: linear time is 16, caches and noise make 30, quadratic is 256."""

MAX_DOUBLING = 3.0
"""Texts of which twice costs more are tried as the worst are."""

COMPARED_S = 0.5
"""Shorter times are not compared: noise is larger."""

MAX_REASON = 5000
"""Longest text of a refusal, in characters."""

TRIES = 6
"""The least of so many times counts where the first is over a limit."""

FRAMES = 9
"""Frames between the calls of one try and of the next."""

Make = Callable[[int], Any]


def of(unit: str, head: str = "", tail: str = "") -> Make:
    """Return what makes a text of a size: *head*, *unit* over and over, and *tail*."""
    return lambda size: head + unit * ((size - len(head) - len(tail)) // len(unit)) + tail


def numbered(unit: str, head: str = "") -> Make:
    """Return what makes a text of a size: *head*, and *unit* with another number each time."""
    return lambda size: (head + "".join(unit % number for number in range((size - len(head)) // len(unit))))[:size]


def binary(make: Make) -> Make:
    return lambda size: make(size).encode("latin-1")


ANY = (of("\n"), of(" "), of("9"), of("x\n"))
"""Texts of nothing in particular."""


class Case(NamedTuple):
    """The worst texts of a parser, its other arguments, and the texts' size in the thorough and in the quick test."""

    texts: tuple[Make, ...]
    arguments: tuple[Any, ...] = ()
    size: int = SIZE
    short: int = SHORT


BANDWIDTHS = (
    "Measuring Memory Bandwidths between nodes within system\n"
    "Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)\n"
    "Numa node            0       1\n"
)
LATENCIES = "Measuring idle latencies (in ns)...\nCPU 0 1\n"
MIXES = "Measuring Peak Injection Memory Bandwidths\nBandwidths are in MB/sec\n"
LOADED = "Measuring Loaded Latencies for the system\nInject Latency Bandwidth\nDelay (ns) MB/sec\n"
C2C = "Measuring cache-to-cache transfer latency (in ns)...\n"
HEADING = "Inst_Min,Inst_Max,Inst_jitter,last_Exec,Abs_min,Abs_max,tmp,Interval,Sample No\n"
JITTER = f"Jitter testing program version 1.9\n{HEADING}"
PAGE = "Title\n=====\n\n::\n\n  $ uname -a\n  Linux s1-t1-sut1 6.1.0\n\n"
OUTPUTS = (
    *ANY,
    of("x" * 79 + "\n"),
    of("0 57929.6 30301.6\n", BANDWIDTHS),
    numbered("%d 1.0 2.0\n", BANDWIDTHS),
    numbered("Numa node 0 %d\n0 1.0 2.0\n", BANDWIDTHS),
    lambda size: BANDWIDTHS + "".join(f"{node}\n" for node in range(2, size // 7)),
    numbered("%d 1.0\n", f"{BANDWIDTHS}Numa node {' '.join(map(str, range(256)))}\n"),
    of(BANDWIDTHS),
    of("1 " * 1999 + "\n", BANDWIDTHS),
    lambda size: numbered("%d 1.0 2.0\n", LATENCIES)(size // 2) + numbered("note %d\n")(size // 2),
    numbered("%d 1.0 2.0\n", LOADED),
    of("ALL Reads : 1.0\n", MIXES),
    numbered("x%d : 1.0\n", MIXES),
    of("homed in writer socket\nNuma node 0 1\n", C2C),
    of("Each iteration took 221.8 core clocks ( 96.7 ns)\n"),
    of("x Each iteration took "),
    of("Intel(R) Memory Latency Checker - v3.9\n"),
    of("Measuring Loaded Latencies\n"),
    of("$ mlc x\n"),
)
JITTERS = (
    numbered("1,2,1,1,1,2,0,9,%d\n", JITTER),
    of("5,2,1,9,1,2,0,9,5\n", JITTER),
    of(JITTER),
    of("Inst_Min,Inst_Max,x\n"),
    of("reset\n", JITTER + "1,2,1,1,1,2,0,9,1\n"),
    of("1 2 ,", JITTER),
)
PAGES = (
    of("a::\n\n  $ mlc --c2c_latency\n\n"),
    of(" x\n", "::\n\n"),
    of("  $ x\n", "::\n\n"),
    of("::\n"),
    of("  $ ./jitter\n", "::\n\n"),
    of("a\n===\n", PAGE),
    of("`a ", PAGE),
    numbered("`a%d`_ ", PAGE),
    of("all other servers ", PAGE),
    of("\n", PAGE, "y"),
    of("TBC\n", PAGE),
    of("s1-t1-sut1 ", PAGE),
    of("t1-", PAGE),
    of("\t", PAGE),
    numbered("p%d=1 ", "::\n\n  $ cat /proc/cmdline\n  "),
    of("isolcpus=0-8191,", "::\n\n  $ cat /proc/cmdline\n  "),
    of(
        f"{JITTER}affinity will be set to core_id:1\n1,2,1,1,1,2,0,9,1\n".replace("\n", "\n  "),
        f"::\n\n  $ cat /proc/cmdline\n  {'a=b ' * 10_000}isolcpus=2\n\n::\n\n  $ ./jitter\n  ",
    ),
    of("  .. code:: x\n", "Title\n"),
)
TOPOLOGIES = (
    *ANY,
    of("nodes:\n"),
    of("  a: {type: DUT, host: x, username: y}\n", "nodes:\n"),
    numbered("  a%d: {type: DUT, host: x, username: y}\n", "nodes:\n"),
    numbered("  a%d: *a\n", "nodes:\n  a: &a {type: DUT, host: x, username: y}\n"),
    of("["),
    of("a,", "[" * 200),
    of("{{a}} ", "nodes:\n"),
    of("{{a", "nodes:\n"),
)
LISTS = (*ANY, of("0-65535,"), of("0-8191,"), of("0-8191:1/2,"), of(","), numbered("%d,"))
STRUCTURE = "\x11\x04\0\0"


def tar(make: Callable[[tarfile.TarFile, int], None]) -> Make:
    """Return what makes an archive of a size."""

    def made(size: int) -> Any:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as archive:
            last = min(8191, size // 64)
            add(archive, "sys/devices/system/cpu/online", f"0-{last}".encode())
            add(archive, "sys/devices/system/cpu/isolated", f"1-{last}".encode())
            number = 0
            while content.tell() < size:
                make(archive, number)
                number += 1
        return content.getvalue()

    return made


def add(archive: tarfile.TarFile, name: str, content: bytes = b"", target: str | None = None) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    if target is not None:
        member.type, member.linkname = tarfile.SYMTYPE, target
    archive.addfile(member, io.BytesIO(content))


CPU = "sys/devices/system/cpu"
ARCHIVES = (
    tar(lambda archive, _number: add(archive, "proc/cpuinfo", b"processor : 0\n")),
    tar(lambda archive, number: add(archive, f"{number}/" + "a/" * 60 + "b")),
    tar(lambda archive, number: add(archive, f"proc/irq/{number}/smp_affinity_list", b"0-8191")),
    tar(lambda archive, number: add(archive, f"{CPU}/cpu0/cpuidle/state{number}/name", b"x")),
    tar(lambda archive, number: add(archive, f"sys/devices/system/node/node{number}/x")),
    tar(lambda archive, number: add(archive, f"proc/{number}/task" if number else "proc/0/task/1/x", target="/proc")),
    tar(lambda archive, number: add(archive, f"l{number}", target="a/../" * 20 + f"l{number + 1}")),
    tar(
        lambda archive, number: (
            add(archive, "text", b"x" * 65536)
            if not number
            else add(archive, f"{CPU}/vulnerabilities/{number}", target="/text")
        )
    ),
)
CAPTURES = (
    lambda size: tar(
        lambda archive, number: (
            add(archive, "capture.json", b"[" + b"[]," * (size // 3) + b"1]") if not number else None
        )
    )(1),
)


def nested(size: int) -> Any:
    value: Any = 1
    for _ in range(size // 8):
        value = {"a": [value]}
    return value


def of_document(unit: Any, name: str) -> Make:
    """Return what makes an answer of a size, with *unit* in the list *name* over and over."""
    return lambda size: {"schema": SCHEMA, name: [unit] * (size // (len(json.dumps(unit)) + 2))}


def told(name: str, value: Any) -> Make:
    """Return what makes a record of a SUT's health of a size, with many of *value* in the table *name*."""
    empty = {"elapsed_s": 1.0, "counters": {}, "temperatures_c": {}, "energy": {}, "unreadable": {}}
    return lambda size: {**empty, name: {str(number): value for number in range(size // 16)}}


MEASURED = f'{{"schema_version": "{SCHEMA_VERSION}", "measurements": ['

DOCUMENTS = (of("["), of("[],", "["), of("[1],", "[", "1]"), of('"a":1,', "{"), numbered('"a%d":1,', "{"), of("9", "["))

CASES: dict[Callable[..., object], Case] = {
    cmdline.split_words: Case((*ANY, of("a "), of('"'), of('" '))),
    cmdline.parse_cmdline: Case((*ANY, of("a "), of('"'), of("--"))),
    cmdline.parse_isolcpus: Case((*LISTS, of("a,"), of("domain,"), of("a"))),
    cpulists.split_isolcpus: Case((*LISTS, of("a,"), of("domain,"), of("a"))),
    cpulists.parse_cpulist: Case(LISTS),
    cpulists.parse_cpumask: Case((*ANY, of("ffffffff,"), of("f"), of("0,"))),
    isolation.parse_kernel_list: Case(LISTS),
    cpuinfo.parse_cpuinfo: Case(
        (
            *ANY,
            numbered("processor : %d\n"),
            numbered("k%d : v\n"),
            of("cache0 : level=1\n"),
            of(":"),
            of("processor 1: a=b,c=d\n"),
        )
    ),
    firmware.parse_structures: Case(
        tuple(
            map(
                binary,
                (*ANY, of(STRUCTURE + "\0\0"), of("a\0", STRUCTURE, "\0"), of("a", STRUCTURE, "\0\0"), of(STRUCTURE)),
            )
        )
    ),
    firmware.parse_entry_point: Case((binary(of("_SM_")), binary(of(" ")))),
    cpusets.mounts: Case(
        (*ANY, of("1 1 0:1 / / rw - cgroup2 a b\n"), of(" - cgroup2 "), of(",", "1 1 0:1 / / rw - cgroup a "))
    ),
    isolation.parse_interrupts: Case(
        (*ANY, of("CPU0 "), numbered("%d: 0 x\n", "CPU0\n"), of(" : 0"), of("1: 0 \x1b\n", "CPU0\n"))
    ),
    isolation.parse_status: Case((*ANY, of("a:b\n"), numbered("a%d:b\n"), of(":"))),
    isolation.status_capabilities: Case((lambda size: {"CapEff": "f" * size},), size=PART),
    isolation.status_allowed: Case((lambda size: {"Cpus_allowed_list": "0-8191," * (size // 7)},), size=PART),
    parse_cpu_counts: Case((*ANY, of(" ", "cpu0", "x"), of(" 1", "cpu0"), numbered("cpu%d 1 2 3\n"))),
    parse_used: Case((*ANY, of("("), of(") "), of(" 1", "1 (x) S"))),
    memory.parse_meminfo: Case(
        (*ANY, of(" ", "Node", "x"), of(" ", "x:", "y"), numbered("x%d: 1 kB\n"), of("Node 1 x: 1 kB\n"))
    ),
    memory.parse_choice: Case((*ANY, of("["), of("a", "["), of("[a "))),
    memory.parse_distances: Case((*ANY, of("10 "))),
    topology.parse_size: Case((*ANY, of(" ", "1", "x")), size=PART),
    tree.follow: Case((of("/a"), of("/"), of("/..")), (lambda _path: None,), size=PART),
    tree.printable_line: Case((*ANY, of("é")), size=PART),
    tree.integer: Case((*ANY, of(" ", "1", "x")), size=PART),
    cxl.size: Case((*ANY, of("0x", tail="g"), of("9")), size=PART),
    devices.hexadecimal: Case((*ANY, of("0x"), of("0", "0x")), size=PART),
    devices.speed_gt_s: Case((*ANY, of("1"), of(" GT/s PCIe")), size=PART),
    devices.lanes: Case((*ANY, of(" ", "1", "x")), size=PART),
    tuned_variables.searched: Case(
        (*ANY, of("CPU part "), of("\n")), (r"CPU part\s+:\s+(0x0?516)|(0x0?af)",), size=PART
    ),
    tuned.is_met: Case((*ANY, of("a|"), of(">"), of("9", ">")), ("[" * PART,), size=PART),
    tree.count: Case((*ANY, of(" ", "1", "x")), size=PART),
    vulnerabilities.state_of: Case((*ANY, of("Mitigation")), size=PART),
    vulnerabilities.left_open: Case((*ANY, of(";"), of("vulnerable,")), size=PART),
    loader.load: Case((*ARCHIVES, *CAPTURES)),
    health.read_health: Case((told("temperatures_c", [1.0, 2.0]), told("unreadable", "x"), told("counters", 1))),
    answers.read_json: Case((*ANY, *DOCUMENTS)),
    answers.read_record: Case((*ANY, *DOCUMENTS, of('{"a":"b"},', '{"record":"x","changes":[', "{}]}"))),
    event_sources.parse_format: Case((*ANY, of("0-63,", "config:"), of("1,", "config:"))),
    encoding.parse_terms: Case((*ANY, numbered("a%d,"), of("a="))),
    lines.lines_of: Case((*ANY, of("\r"), of("x" * 5000 + "\n")), size=PART),
    lines.split: Case((*ANY, of("\r")), size=PART),
    lines.plain: Case((*ANY, of("\x1b["), of("\x1b]"), of("<p "), of("<p>"), of("&gt"), of("&gt;")), size=PART),
    lines.has_number: Case((*ANY, of("1,"), of("|:")), size=PART),
    lines.command_after_prompt: Case((*ANY, of("$ "), of("[a"), of("a@"), of("(a) ")), size=PART),
    lines.bare_prompt: Case((of("9"), of("x\n"), of("$")), size=PART),
    lines.shortened: Case(ANY, size=PART),
    lines.number: Case((*ANY, of("9", "1.")), size=PART),
    lines.whole_number: Case(ANY, size=PART),
    mlc_sections.section_kind: Case((*ANY, of("measuring "), of("measuring:")), size=PART),
    mlc_sections.parse_mix: Case((*ANY, of(" :"), of("1:"), of("reads : 1 MB/s ")), size=PART),
    mlc_sections.mlc_command: Case((*ANY, of("$ mlc "), of("mlc "), of("/")), size=PART),
    mlc_format.read_output: Case(tuple(map(binary, OUTPUTS)), ((),)),
    csit_page.read_published: Case((*ANY, *JITTERS, *PAGES)),
    csit_topology.is_topology: Case(TOPOLOGIES, short=SHORT // 4),
    csit_topology.read_topology: Case(TOPOLOGIES, ("t1",), short=SHORT // 4),
    meltdown_checker.read_output: Case(
        tuple(
            map(binary, (*ANY, of("["), of("[],", "["), of("CVE-2017-5754: OK (x)\n"), of("9", "["), of('"a":1,', "{")))
        ),
    ),
    mlc.read_prefetchers: Case(
        (of_document({}, "places"), of_document({"where": "x", "before": "1"}, "places")), size=PART
    ),
    read_document: Case(
        (
            of_document({}, "warnings"),
            of_document("x", "argv"),
            lambda size: {"schema": SCHEMA, "parameters": nested(size)},
        )
    ),
    sut_checks.version: Case((*ANY, of("1.")), size=PART),
    preflight_facts.read_facts: Case(
        (
            of_document({}, "running"),
            lambda size: {"identity": nested(size)},
            lambda size: {"time": {str(n): n for n in range(size // 16)}},
        ),
        size=PART,
    ),
    tuning.read_changes: Case((lambda size: [{}] * (size // 4), lambda size: [{"setting": "x" * size}]), size=PART),
    tuning.read_unrestored: Case((lambda size: [{}] * (size // 4), lambda size: [{"error": "x" * size}]), size=PART),
    documents.read_document: Case(
        tuple(
            map(
                binary,
                (
                    of("["),
                    of("[],", "[", "[]]"),
                    of("[],", MEASURED, "[]]}"),
                    of("{},", MEASURED, "{}]}"),
                    lambda size: numbered('"k%d":1,', f"{MEASURED}{{")(size - 20).rpartition(",")[0] + "}]}",
                ),
            )
        )
    ),
    comparisons.chosen: Case((*ANY, of("["), of("[a"), of("a", "["))),
    comparisons.command_line: Case((*ANY, of("hugepages=1 "), of("hugepagesz=1 "), numbered("a%d=1 "), of('"'))),
    comparisons.mask: Case((*ANY, of("0"), of("0,")), size=PART),
    comparisons.port_set: Case((*ANY, of("1,"), numbered("%d,"))),
    comparisons.schemata: Case((*ANY, of("L3:0=f "), of("L3:", "0=f;"))),
    text.decode_base64: Case((*ANY, of("AAAA"), of("é"))),
    text.visible: Case((*ANY, of("\x1b"), of("é"), of("".join(map(chr, range(0xA0, 0xD800))))), size=PART),
    text.shown: Case((lambda _size: "\u202e",), size=PART),
    text.message: Case((*ANY, of("é\n")), size=PART),
}
"""Every parser with its worst texts."""

TEXT_OF_PROJECT = "a text that this project or its operator wrote"
OPERATOR = "what the operator gives"
EXEMPT: dict[str, str] = {
    "calibration.context.boot_rules.note": "makes a sentence of what a parser read",
    "calibration.context.boot_rules.behaviour": "a topic of the declared rules",
    "calibration.gates.live.read_inventory": OPERATOR,
    "calibration.gates.live.read_file": "bounded in what it reads; what is read is compared",
    "calibration.gates.night.read_night": TEXT_OF_PROJECT,
    "calibration.counters.tables.parse_table": TEXT_OF_PROJECT,
    "calibration.files.read_regular": "bounded by its caller",
    "calibration.files.read_given": "bounded by its caller",
    "calibration.formats.csit_topology.name_of_testbed": OPERATOR,
    "calibration.formats.lines.not_understood": "makes a message",
    "calibration.formats.readings.inconsistency": "makes a message",
    "calibration.formats.throughput.read_throughput": OPERATOR,
    "calibration.judge.candidates.read_calibration": TEXT_OF_PROJECT,
    "calibration.judge.comparison.read_compared": TEXT_OF_PROJECT,
    "calibration.judge.limits.read_limits": OPERATOR,
    "calibration.judge.baseline_files.read_baseline_file": OPERATOR,
    "calibration.judge.entries.read_entries": OPERATOR,
    "calibration.judge.sentinels.read": "compares numbers",
    "calibration.judge.tolerances.read_tolerances": OPERATOR,
    "calibration.judge.trend.read_trend": TEXT_OF_PROJECT,
    "calibration.judge.waivers.read_waivers": OPERATOR,
    "calibration.parsers.parse_json": "called by parse_json of documents",
    "calibration.parsers.parse_json_sparingly": "called by read_output, read_facts and load",
    "calibration.parsers.read_yaml": "called by read_topology",
    "calibration.measurements.traffic.read_group": TEXT_OF_PROJECT,
    "calibration.measurements.loaded_latency.load_shape": "makes options",
    "calibration.mlc.read_commands": OPERATOR,
    "calibration.mlc.check_licence": OPERATOR,
    "calibration.mlc.read_program": OPERATOR,
    "calibration.audit.kinds.read_items": OPERATOR,
    "calibration.preflight.expectations.read_again": OPERATOR,
    "calibration.preflight.expectations.read_expectations": OPERATOR,
    "calibration.preflight.expectations.read_state": OPERATOR,
    "calibration.preflight.agreement.read_known": "facts that read_facts has bounded",
    "calibration.preflight.examination.read_examination": "facts that read_facts has bounded",
    "calibration.profiles.load_profile": OPERATOR,
    "calibration.profiles.parse_profile": OPERATOR,
    "calibration.quick.checks.read_checks": TEXT_OF_PROJECT,
    "calibration.references.library.read_file": OPERATOR,
    "calibration.report.tonight.read_nights": TEXT_OF_PROJECT,
    "calibration.results.documents.parse_json": "called by read_document",
    "calibration.results.documents.read_reference": TEXT_OF_PROJECT,
    "calibration.results.imports.read_file": "a file for read_published",
    "calibration.results.index.read_history": TEXT_OF_PROJECT,
    "calibration.results.records.read_kept": "bounded in what it reads; what is read is compared",
    "calibration.results.store.read_run": TEXT_OF_PROJECT,
    "calibration.sutprobe.document.read_result": "in test_long_sutprobe_documents_take_linear_time",
    "calibration.text.cut": "makes a line for the terminal",
}
"""Functions that look like parsers, and why they are not in the table."""

PARSERS = re.compile(r"(?:parse|read|load|decode)(?:_|$)")
PLACES = ("context", "formats", "counters.encoding", "mlc", "sutprobe.document", "text", "archives")
"""Modules whose every function of a text counts as a parser; anywhere else its name tells."""


def parsers() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield all public functions that take what somebody said, by their names."""
    for found in pkgutil.walk_packages(calibration.__path__, "calibration."):
        if found.name.endswith("__main__") or found.name.startswith("calibration.runner."):
            continue  # a runner reads its own machine and its own files, of limited sizes
        module = importlib.import_module(found.name)
        place = found.name.removeprefix("calibration.")
        reading = any(place == item or place.startswith(f"{item}.") for item in PLACES)
        for name, function in vars(module).items():
            if name.startswith("_") or not inspect.isfunction(function) or function.__module__ != found.name:
                continue
            given = next(iter(inspect.signature(function).parameters.values()), None)
            said = "" if given is None else str(getattr(given.annotation, "__name__", given.annotation))
            if said != "Tree" and (PARSERS.match(name) or (reading and said in {"str", "bytes", "dict"})):
                yield f"{found.name}.{name}", function


def test_every_parser_has_its_worst_texts() -> None:
    found = dict(parsers())
    assert [name for name, parser in found.items() if parser not in CASES and name not in EXEMPT] == []
    assert EXEMPT.keys() <= found.keys()
    assert [name for name in EXEMPT if found[name] in CASES] == []


class Spent(NamedTuple):
    """The CPU time of a call, and whether it refused what it was given for its size."""

    seconds: float
    refused: bool


class StoppedError(BaseException):
    """It took more than twice the CPU time that is allowed."""


def stopped(_number: int, _frame: object) -> None:
    raise StoppedError


def spent(call: Callable[[Any], object], given: Any, size: int) -> Spent:
    """Return what *call* cost for what is *given*, of a *size*; what it raises must be a refusal, and short.

    The collector of cycles is off: when it walks through all objects depends on those that other tests left.
    """
    reason: str | None = None
    gc.disable()
    signal.signal(signal.SIGPROF, stopped)
    signal.setitimer(signal.ITIMER_PROF, 2 * MAX_S_PER_MIB * max(1, size // MIB))
    started = time.thread_time()
    try:
        call(given)
    except StoppedError:
        pass  # the time tells
    except (CalibrationError, ValueError, OSError) as error:
        reason = str(error)
    finally:
        took = time.thread_time() - started
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.enable()
    assert reason is None or len(reason) < MAX_REASON
    return Spent(took, reason is not None and "at most" in reason)


def deeper(call: Callable[[Any], object], frames: int, given: Any) -> object:
    """Call from *frames* further down: CPython takes ten times as long where a piece of its stack ends at each call."""
    return deeper(call, frames - 1, given) if frames else call(given)


def hold(call: Callable[[Any], object], make: Make, size: int) -> bool:
    """Fail if *call* takes too long for a text of *size*, or grows too fast from a part of it.

    Returns whether the text was refused for its size.
    """
    whole = make(size)
    first = second = float("inf")
    for tried in range(TRIES):
        below = partial(deeper, call, FRAMES * tried)
        after = spent(below, whole, size)
        second = min(second, after.seconds)
        if second <= COMPARED_S:
            return after.refused
        first = min(first, spent(below, make(size // SPAN), size // SPAN).seconds)
        if second <= min(MAX_S_PER_MIB * max(1, size // MIB), MAX_GROWTH * first):
            return after.refused
    raise AssertionError(f"{size} of {reprlib.repr(whole)} took {second:.2f} s of CPU time, 1/{SPAN} {first:.4f} s")


class Rated(NamedTuple):
    """What a text costs for each byte, and by how much twice of it costs more."""

    rate: float
    growth: float


def rated(call: Callable[[Any], object], make: Make, most: int) -> Rated:
    """Rate a text where it takes :data:`SEEN_S`, or the longest of at most *most* bytes that is not refused."""
    size = FIRST
    before, now = (spent(call, make(tried), tried) for tried in (size // 2, size))
    while now.seconds < SEEN_S and size < most:
        twice = spent(call, make(2 * size), 2 * size)
        if twice.refused:
            break
        size, before, now = 2 * size, now, twice
    return Rated(now.seconds / size, now.seconds / max(before.seconds, 0.001))


def hold_worst(texts: Sequence[tuple[Callable[[Any], object], Make]], size: int = SIZE) -> None:
    """Hold the texts of the highest cost and of the fastest growth, at *size* and as large as they are accepted."""
    found = [rated(call, make, min(size, LAST)) for call, make in texts]
    worst = {max(range(len(texts)), key=lambda place: found[place][by]) for by in range(len(Rated._fields))}
    grown = {place for place, item in enumerate(found) if item.growth > MAX_DOUBLING}
    for place in worst | grown:
        hold_accepted(*texts[place], size)


def hold_accepted(call: Callable[[Any], object], make: Make, size: int) -> None:
    """Hold a text of *size*, and shorter ones until one is not refused for its size."""
    while hold(call, make, size) and size > FIRST:
        size //= 2


def caller(parser: Callable[..., object], case: Case, path: Path) -> Callable[[Any], object]:
    """Return what calls *parser* with a text, and reads all that it yields; files are read at *path*."""

    def call(given: Any) -> object:
        if parser in {loader.load, documents.read_document}:
            path.write_bytes(given)
            return parser(path)
        found = parser(given, *case.arguments)
        return list(found) if inspect.isgenerator(found) else found

    return call


each_parser = pytest.mark.parametrize("parser", CASES, ids=lambda parser: f"{parser.__module__}.{parser.__name__}")


@each_parser
def test_short_texts_take_linear_time(parser: Callable[..., object], tmp_path: Path) -> None:
    call = caller(parser, CASES[parser], tmp_path / "given")
    for make in CASES[parser].texts:
        hold_accepted(call, make, CASES[parser].short)


@pytest.mark.thorough
@each_parser
def test_the_worst_texts_take_linear_time(parser: Callable[..., object], tmp_path: Path) -> None:
    call = caller(parser, CASES[parser], tmp_path / "given")
    hold_worst([(call, make) for make in CASES[parser].texts], CASES[parser].size)


def lists(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where lists are in *value*; of a list's own, those of its first element."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from lists(item, (*path, name))
    elif isinstance(value, list) and value:
        yield path
        yield from lists(value[0], (*path, 0))


def longer(raw: dict[str, Any], place: tuple[Any, ...]) -> Make:
    """Return what makes the document *raw* of a size, by repeating the list at *place* of its result."""

    def made(size: int) -> dict[str, Any]:
        document = copy.deepcopy(raw)
        found = document["result"]
        for step in place:
            found = found[step]
        found *= max(1, size // len(json.dumps(found)))
        return document

    return made


def of_kernel(path: Path) -> Iterator[tuple[Callable[[Any], object], Make]]:
    """Yield, for each list in the recorded document at *path*, what makes it long, and what reads the document."""
    raw = json.loads(path.read_bytes())
    machine = loader.load(CONTEXT)
    kind = path.stem.partition("-")[0]
    times = {"expected_duration_s": 1.0, "longest_duration_s": 1.0, "deadline_s": 1.0}
    step = Step(id=path.stem, kind=kind, title="", argv=("sutprobe",), cpus=(1,), nodes=(0,), **times)

    def call(given: dict[str, Any]) -> object:
        try:
            return list(declaration(kind).parse(read_document(given), step, machine))
        except (ArithmeticError, LookupError) as error:  # as the assembly of a run does
            raise InputError(str(error)) from error

    for place in lists(raw["result"]):
        yield call, longer(raw, place)


@pytest.mark.thorough
@pytest.mark.parametrize("path", sorted((FIXTURES / "sutprobe").glob("*.json")), ids=lambda path: path.stem)
def test_long_sutprobe_documents_take_linear_time(path: Path) -> None:
    hold_worst(list(of_kernel(path)))


def test_rejects_documents_of_many_parts() -> None:
    many: list[dict[str, Any]] = [{}] * MAX_PARTS
    with pytest.raises(InputError, match="objects and lists, at most 300000"):
        read_document({"schema": SCHEMA, "warnings": many})
    good = json.loads(next((FIXTURES / "sutprobe").glob("jitter*.json")).read_bytes())
    document = read_document({**good, "result": {**good["result"], "points": many}})
    with pytest.raises(InputError, match="objects and lists, at most 300000"):
        read_result(document, JitterResult)
