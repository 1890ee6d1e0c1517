# SPDX-License-Identifier: Apache-2.0
"""Every parser of what a SUT, a page or another program says reads or refuses whatever it is given, and ends.

Each has units that are slow to read many times over, and pieces of them are mixed. Nothing is timed: what takes
quadratic time for the thorough size does not end before the test's time is over. A parser that is not in the tables
fails a test.
"""

import copy
import importlib
import inspect
import json
import operator
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import calibration
from calibration.base import comparisons, cpulists, text, tuning
from calibration.base.errors import CalibrationError, InputError
from calibration.context import (
    cmdline,
    cpuinfo,
    cxl,
    devices,
    event_sources,
    firmware,
    isolation,
    memory,
    topology,
    tree,
    tuned,
    tuned_variables,
    vulnerabilities,
)
from calibration.context.cpu_load import parse_cpu_counts, parse_used
from calibration.counters import encoding
from calibration.formats import csit_page, csit_topology, lines, meltdown_checker, mess, mlc_sections, opendcdiag
from calibration.formats import mlc as mlc_format
from calibration.measurements import declaration
from calibration.measurements import mlc_program as mlc
from calibration.measurements.base import Step
from calibration.measurements.sut import Sut
from calibration.preflight import facts as preflight_facts
from calibration.preflight import sut_checks
from calibration.results import health, store
from calibration.results.layout import SCHEMA_VERSION
from calibration.run import answers
from calibration.runner import cpusets
from calibration.sutprobe.document import MAX_PARTS, SCHEMA, ProbeDocument, read_document, read_result
from calibration.sutprobe.jitter_rounds import JitterResult
from tests.captures import captured
from tests.recorded import PATHS, read, whole_of
from tests.walk import places

FIXTURES = Path(__file__).parents[1] / "fixtures"

THOROUGH = hypothesis.settings.default.max_examples > 100
SIZE = (256 if THOROUGH else 16) << 10
"""Length of a text, in characters."""

LEVELS, MANY = 50, 256
"""Levels of two, and values, that are put into a document: JSON has 200 levels at most."""

MAX_REASON = 5000
"""Longest text of a refusal, in characters."""

Text = str | tuple[str, ...]
"""A unit that a text has over and over, or what is before it, the unit, and what is behind. ``%d`` is a number."""

ANY: tuple[Text, ...] = ("\n", " ", "9", "x\n", "é")
"""Units of nothing in particular."""

BANDWIDTHS = (
    "Measuring Memory Bandwidths between nodes within system\n"
    "Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)\n"
    "Numa node            0       1\n"
)
LATENCIES = "Measuring idle latencies (in ns)...\nCPU 0 1\n"
MIXES = "Measuring Peak Injection Memory Bandwidths\nBandwidths are in MB/sec\n"
LOADED = "Measuring Loaded Latencies for the system\nInject Latency Bandwidth\nDelay (ns) MB/sec\n"
JITTER = (
    "Jitter testing program version 1.9\n"
    "Inst_Min,Inst_Max,Inst_jitter,last_Exec,Abs_min,Abs_max,tmp,Interval,Sample No\n"
)
PAGE = "Title\n=====\n\n::\n\n  $ uname -a\n  Linux s1-t1-sut1 6.1.0\n\n"
CMDLINE = "::\n\n  $ cat /proc/cmdline\n  "
JITTER_BLOCK = f"{JITTER}affinity will be set to core_id:1\n1,2,1,1,1,2,0,9,1\n".replace("\n", "\n  ")
OUTPUTS: tuple[Text, ...] = (
    "x" * 79 + "\n",
    (BANDWIDTHS, "%d 1.0 2.0\n"),
    (BANDWIDTHS, "Numa node 0 %d\n0 1.0 2.0\n"),
    (BANDWIDTHS, "%d\n"),
    (f"{BANDWIDTHS}Numa node {' '.join(map(str, range(256)))}\n", "%d 1.0\n"),
    BANDWIDTHS,
    (BANDWIDTHS, "1 " * 1999 + "\n"),
    (f"{LATENCIES}0 1.0 2.0\n", "note %d\n"),
    (LATENCIES, "%d 1.0 2.0\n"),
    (LOADED, "%d 1.0 2.0\n"),
    (MIXES, "ALL Reads : 1.0\n"),
    (MIXES, "x%d : 1.0\n"),
    ("Measuring cache-to-cache transfer latency (in ns)...\n", "homed in writer socket\nNuma node 0 1\n"),
    "Each iteration took 221.8 core clocks ( 96.7 ns)\n",
    "x Each iteration took ",
    "Intel(R) Memory Latency Checker - v3.9\n",
    "Measuring Loaded Latencies\n",
    "$ mlc x\n",
)
PAGES: tuple[Text, ...] = (
    (JITTER, "1,2,1,1,1,2,0,9,%d\n"),
    (JITTER, "5,2,1,9,1,2,0,9,5\n"),
    JITTER,
    "Inst_Min,Inst_Max,x\n",
    (JITTER + "1,2,1,1,1,2,0,9,1\n", "reset\n"),
    (JITTER, "1 2 ,"),
    "a::\n\n  $ mlc --c2c_latency\n\n",
    ("::\n\n", " x\n"),
    ("::\n\n", "  $ x\n"),
    "::\n",
    ("::\n\n", "  $ ./jitter\n"),
    *(
        (PAGE, unit)
        for unit in ("a\n===\n", "`a ", "`a%d`_ ", "all other servers ", "TBC\n", "s1-t1-sut1 ", "t1-", "\t")
    ),
    (PAGE, "\n", "y"),
    (CMDLINE, "p%d=1 "),
    (CMDLINE, "isolcpus=0-8191,"),
    (f"{CMDLINE}{'a=b ' * 1000}isolcpus=2\n\n::\n\n  $ ./jitter\n  ", JITTER_BLOCK),
    ("Title\n", "  .. code:: x\n"),
)
TOPOLOGIES: tuple[Text, ...] = (
    "nodes:\n",
    ("nodes:\n", "  a: {type: DUT, host: x, username: y}\n"),
    ("nodes:\n", "  a%d: {type: DUT, host: x, username: y}\n"),
    ("nodes:\n  a: &a {type: DUT, host: x, username: y}\n", "  a%d: *a\n"),
    "[",
    ("[" * 200, "a,"),
    ("nodes:\n", "{{a}} "),
    ("nodes:\n", "{{a"),
)
LISTS: tuple[Text, ...] = ("0-65535,", "0-8191,", "0-8191:1/2,", ",", "%d,")
FLAGS: tuple[Text, ...] = (*LISTS, "a,", "domain,", "a")
STRUCTURE = "\x11\x04\0\0"
DCDIAG: tuple[Text, ...] = (
    "exit: pass\nversion: x\ntests:\n",
    ("tests: [", "{test: a, result: pass}, ", "]"),
    ("version: x\ntests:\n", "- test: a\n  result: fail\n"),
    "exit: pass\n",
)
NUMBERS: tuple[Text, ...] = (("1", " ", "x"), "0x", ("0x", "0"), "1.", "-")
JSON: tuple[Text, ...] = ("[", ("[", "[],"), ("[", "[1],", "1]"), ("{", '"a":1,'), ("{", '"a%d":1,'), ("[", "9"))
MEASURED = f'{{"schema_version": "{SCHEMA_VERSION}", "measurements": ['

TEXTS: dict[Callable[..., object], tuple[Text, ...]] = {
    cmdline.split_words: ("a ", '"', '" '),
    cmdline.parse_cmdline: ("a ", '"', "--"),
    cmdline.parse_isolcpus: FLAGS,
    cpulists.split_isolcpus: FLAGS,
    cpulists.parse_cpulist: LISTS,
    cpulists.parse_cpumask: ("ffffffff,", "f", "0,"),
    isolation.parse_kernel_list: LISTS,
    cpuinfo.parse_cpuinfo: ("processor : %d\n", "k%d : v\n", "cache0 : level=1\n", ":", "processor 1: a=b,c=d\n"),
    firmware.parse_structures: (STRUCTURE + "\0\0", (STRUCTURE, "a\0", "\0"), (STRUCTURE, "a", "\0\0"), STRUCTURE),
    firmware.parse_entry_point: ("_SM_",),
    cpusets.mounts: ("1 1 0:1 / / rw - cgroup2 a b\n", " - cgroup2 ", ("1 1 0:1 / / rw - cgroup a ", ",")),
    isolation.parse_interrupts: ("CPU0 ", ("CPU0\n", "%d: 0 x\n"), " : 0", ("CPU0\n", "1: 0 \x1b\n")),
    isolation.status_capabilities: ("f",),
    isolation.status_allowed: LISTS,
    isolation.parse_status: ("a:b\n", "a%d:b\n", ":"),
    parse_cpu_counts: (("cpu0", " ", "x"), ("cpu0", " 1"), "cpu%d 1 2 3\n"),
    parse_used: ("(", ") ", ("1 (x) S", " 1")),
    memory.parse_meminfo: (("Node", " ", "x"), ("x:", " ", "y"), "x%d: 1 kB\n", "Node 1 x: 1 kB\n"),
    memory.parse_choice: ("[", ("[", "a"), "[a "),
    memory.parse_distances: ("10 ",),
    topology.parse_size: NUMBERS,
    tree.follow: ("/a", "/", "/.."),
    tree.printable_line: (),
    tree.integer: NUMBERS,
    tree.count: NUMBERS,
    cxl.size: (*NUMBERS, ("", "0x", "g")),
    devices.hexadecimal: NUMBERS,
    devices.speed_gt_s: (*NUMBERS, " GT/s PCIe"),
    devices.lanes: NUMBERS,
    tuned_variables.searched: ("CPU part ",),
    tuned.is_met: ("a|", ">", (">", "9")),
    vulnerabilities.state_of: ("Mitigation",),
    vulnerabilities.left_open: (";", "vulnerable,"),
    answers.read_json: JSON,
    answers.read_record: (*JSON, ('{"record":"x","changes":[', '{"a":"b"},', "{}]}")),
    event_sources.parse_format: (("config:", "0-63,"), ("config:", "1,")),
    encoding.parse_terms: ("a%d,", "a="),
    lines.lines_of: ("\r", "x" * 5000 + "\n"),
    lines.split: ("\r",),
    lines.plain: ("\x1b[", "\x1b]", "<p ", "<p>", "&gt", "&gt;"),
    lines.has_number: ("1,", "|:"),
    lines.command_after_prompt: ("$ ", "[a", "a@", "(a) "),
    lines.shortened: (),
    lines.number: NUMBERS,
    lines.whole_number: NUMBERS,
    mlc_sections.section_kind: ("measuring ", "measuring:"),
    mlc_sections.parse_mix: (" :", "1:", "reads : 1 MB/s "),
    mlc_sections.mlc_command: ("$ mlc ", "mlc ", "/"),
    mlc_format.read_output: OUTPUTS,
    csit_page.read_published: PAGES,
    csit_topology.is_topology: TOPOLOGIES,
    csit_topology.read_topology: TOPOLOGIES,
    mess.curves_of_mess: (
        "read_pct_rounded,",
        ("read_pct_rounded,bandwidth_mean,latency_mean\n", "50,1.0,%d\n"),
    ),
    opendcdiag.read_output: DCDIAG,
    opendcdiag.read_ended: DCDIAG,
    meltdown_checker.read_output: (*JSON, "CVE-2017-5754: OK (x)\n"),
    sut_checks.version: NUMBERS,
    store.read_run: (
        "[",
        ("[", "[],", "[]]"),
        (MEASURED, "[],", "[]]}"),
        (MEASURED, "{},", "{}]}"),
        (f"{MEASURED}{{", '"k%d":1,', '"k":1}]}'),
    ),
    comparisons.chosen: ("[", "[a", ("[", "a")),
    comparisons.command_line: ("hugepages=1 ", "hugepagesz=1 ", "a%d=1 ", '"'),
    comparisons.mask: ("0", "0,"),
    comparisons.port_set: ("1,", "%d,"),
    comparisons.schemata: ("L3:0=f ", ("L3:", "0=f;")),
    text.decode_base64: ("AAAA",),
    text.visible: ("\x1b", "".join(map(chr, range(0xA0, 0xD800)))),
    text.message: ("é\n",),
}
"""Every parser of a text with its units."""

ARGUMENTS: dict[Callable[..., object], tuple[Any, ...]] = {
    tree.follow: (lambda _path: None,),
    tuned_variables.searched: (r"CPU part\s+:\s+(0x0?516)|(0x0?af)",),
    tuned.is_met: ("[" * SIZE,),
    mlc_format.read_output: ((),),
    csit_topology.read_topology: ("t1",),
}
"""What a parser takes besides."""

HEALTH = {"elapsed_s": 1.0, "counters": {}, "temperatures_c": {}, "energy": {}, "unreadable": {}}

DOCUMENTS: dict[Callable[..., object], Any] = {
    health.read_health: HEALTH,
    mlc.read_prefetchers: {"places": [{"where": "x", "before": "1"}]},
    read_document: {"schema": SCHEMA, "warnings": [], "argv": [], "parameters": {}},
    preflight_facts.read_facts: {"running": [], "identity": {}, "time": {"1": 1}},
    tuning.read_changes: [{"setting": "x"}],
    tuning.read_unrestored: [{"error": "x"}],
}
"""Every parser of a document with a part of one."""

IN_PROJECT = "a text that this project or its operator wrote"
OPERATOR = "what the operator gives"
ELSEWHERE = "bounded by its caller, or by the parser that it calls"
NO_PARSER = "makes or compares what a parser read"
EXEMPT: dict[str, str] = {
    "context.loader.load": "in test_hostile_archives.py",
    **dict.fromkeys(
        ("sutprobe.document.read_result", "sutprobe.document.validated"),
        "in test_a_damaged_answer_of_sutprobe_is_read_or_refused"),
    **dict.fromkeys(
        ("gates.night.read_night", "counters.tables.parse_table", "judge.candidates.read_calibration",
         "judge.comparison.read_compared", "judge.trend.read_trend", "measurements.traffic.read_group",
         "measurements.traffic.read_sizes", "quick.checks.read_checks", "judge.night.read_nights",
         "results.documents.read_reference", "results.index.read_history"), IN_PROJECT),
    **dict.fromkeys(
        ("gates.live.read_inventory", "formats.csit_topology.name_of_testbed", "formats.throughput.read_throughput",
         "acceptance.limits.read_limits", "acceptance.load_acceptance", "judge.baseline_files.read_baseline_file",
         "judge.entries.read_entries",
         "judge.tolerances.read_tolerances", "judge.waivers.read_waivers", "measurements.mlc_program.read_commands",
         "measurements.mlc_program.check_licence", "measurements.mlc_program.read_program", "audit.kinds.read_items",
         "preflight.expectations.read_again", "preflight.expectations.read_expectations",
         "audit.states.read_state", "profiles.load_profile", "profiles.parse_profile",
         "references.library.read_file"), OPERATOR),
    **dict.fromkeys(
        ("gates.live.read_file", "base.files.read_regular", "base.files.read_given", "base.parsers.parse_json",
         "base.parsers.read_yaml", "base.parsers.parse_json_sparingly", "preflight.agreement.read_known",
         "preflight.examination.read_examination", "results.documents.parse_json", "results.imports.read_file",
         "run.records.read_kept"), ELSEWHERE),
    **dict.fromkeys(
        ("context.boot_rules.note", "context.boot_rules.behaviour", "formats.lines.not_understood",
         "context.facts.dimm_groups", "context.facts.fact_value", "context.facts.same_fact", "context.facts.text_of",
         "formats.readings.inconsistency", "formats.readings.table_reading", "judge.sentinels.read",
         "base.text.cut", "base.text.sentence_case",
         "formats.lines.bare_prompt"), NO_PARSER),
}  # fmt: skip
"""Functions that look like parsers, and why they are not in the tables."""

PARSERS = re.compile(r"(?:parse|read|load|decode)(?:_|$)")
PLACES = (
    "context", "formats", "counters.encoding", "measurements.mlc_program", "sutprobe.document", "base.text",
    "base.archives",
)  # fmt: skip
"""Modules whose every function of a text counts as a parser; anywhere else its name tells."""


def parsers() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield all public functions that take what somebody said, by their names."""
    for found in pkgutil.walk_packages(calibration.__path__, "calibration."):
        place = found.name.removeprefix("calibration.")
        if place.endswith("__main__") or place.startswith("runner."):
            continue  # a runner reads its own machine and its own files, of limited sizes
        reading = any(place == item or place.startswith(f"{item}.") for item in PLACES)
        for name, function in vars(importlib.import_module(found.name)).items():
            if name.startswith("_") or not inspect.isfunction(function) or function.__module__ != found.name:
                continue
            said = type_read(function)
            if said != "Tree" and (PARSERS.match(name) or (reading and said in {"str", "bytes", "dict"})):
                yield f"{place}.{name}", function


def type_read(function: Callable[..., object]) -> str:
    """Return the name of the type of the first argument of *function*."""
    given = next(iter(inspect.signature(function).parameters.values()), None)
    return "" if given is None else str(getattr(given.annotation, "__name__", given.annotation))


def test_every_parser_is_in_a_table() -> None:
    found = dict(parsers())
    tried = TEXTS.keys() | DOCUMENTS.keys()
    assert [name for name, parser in found.items() if parser not in tried and name not in EXEMPT] == []
    assert EXEMPT.keys() <= found.keys()
    assert [name for name in EXEMPT if found[name] in tried] == []


def is_read_or_refused(parser: Callable[..., object], given: Any, path: Path) -> None:
    """Have *parser* read what is *given*, all that it yields, too; what it raises is a refusal, and a short one."""
    reason = ""
    try:
        if type_read(parser) in {"bytes", "Path"}:
            given = given.encode("utf-8", errors="replace")
        if type_read(parser) == "Path":
            path.write_bytes(given)
            given = path
        if type_read(parser).startswith("dict"):
            given = dict.fromkeys(("CapEff", "Cpus_allowed_list"), given)
        found = parser(given, *ARGUMENTS.get(parser, ()))
        if inspect.isgenerator(found):
            list(found)
    except (CalibrationError, ValueError, OSError) as error:
        reason = str(error)
    assert len(reason) < MAX_REASON


def many(of: Text, size: int = SIZE) -> str:
    """Return a text of about *size* with the unit of *of* over and over, once at least."""
    head, unit, tail = ("", of, "") if isinstance(of, str) else (*of, "")[:3]
    count = max(1, (size - len(head) - len(tail)) // len(unit))
    return head + ("".join(unit % number for number in range(count)) if "%d" in unit else unit * count) + tail


each_parser = pytest.mark.parametrize("parser", TEXTS, ids=lambda parser: f"{parser.__module__}.{parser.__name__}")


@each_parser
def test_a_unit_many_times_over_is_read_or_refused(parser: Callable[..., object], tmp_path: Path) -> None:
    for of in (*ANY, *TEXTS[parser]):
        is_read_or_refused(parser, many(of), tmp_path / "given")


@each_parser
@hypothesis.settings(max_examples=min(100, hypothesis.settings.default.max_examples))
@hypothesis.given(data=st.data())
def test_any_pieces_are_read_or_refused(parser: Callable[..., object], data: st.DataObject, path_given: Path) -> None:
    sizes = st.sampled_from((1, 100, SIZE // 8))
    pieces = st.builds(many, st.sampled_from((*ANY, *TEXTS[parser])), sizes) | st.text(max_size=20)
    is_read_or_refused(parser, "".join(data.draw(st.lists(pieces, min_size=1, max_size=5))), path_given)


@pytest.fixture(scope="module")
def path_given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any") / "given"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("9" * SIZE),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> Any:
    """Return *document* with some values replaced, repeated or nested deeply."""
    whole = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(whole))
        if not found:
            break
        *way, last = draw(st.sampled_from(found))
        inside = reduce(operator.getitem, way, whole)
        how = draw(st.sampled_from(("replaced", "repeated", "nested", "many")))
        if how == "replaced":
            inside[last] = draw(VALUES)
        elif how == "nested":
            inside[last] = reduce(lambda value, _: {"a": [value]}, range(LEVELS), inside[last])
        elif how == "many" and isinstance(inside, dict):
            inside |= {str(number): inside[last] for number in range(MANY)}
        elif isinstance(inside[last], list | str):
            inside[last] = inside[last] * MANY
    return whole


@pytest.mark.parametrize("parser", DOCUMENTS, ids=lambda parser: f"{parser.__module__}.{parser.__name__}")
@hypothesis.given(data=st.data())
def test_any_document_is_read_or_refused(parser: Callable[..., object], data: st.DataObject, path_given: Path) -> None:
    is_read_or_refused(parser, data.draw(damaged(DOCUMENTS[parser])), path_given)


@hypothesis.given(st.sampled_from(sorted(PATHS)), st.booleans(), st.data())
def test_a_damaged_answer_of_sutprobe_is_read_or_refused(name: str, in_rounds: bool, data: st.DataObject) -> None:
    kind = name.partition("-")[0]
    times = {"expected_duration_s": 1.0, "longest_duration_s": 1.0, "setup_s": 0.0, "deadline_s": 1.0}
    step = Step(
        id=whole_of(name), kind=kind, title="", argv=("sutprobe",), cpus=(1,), memory_bytes={}, tasks=1, **times
    )
    reason = ""
    try:
        document = read_document(data.draw(damaged(read(name))))
        if whole_of(name) != name:
            document = read_document(read(whole_of(name))).with_parts([document])
        elif in_rounds:
            document = ProbeDocument.merged([(1, read_document(read(name)), None), (2, document, None)])
        list(declaration(kind).parse(document, step, Sut(captured("x86_64-two-nodes-smt"))))
    except (CalibrationError, ValueError, ArithmeticError, LookupError) as error:  # as the assembly of a run expects
        reason = str(error)
    assert len(reason) < MAX_REASON


def test_rejects_documents_of_many_parts() -> None:
    parts: list[dict[str, Any]] = [{}] * MAX_PARTS
    with pytest.raises(InputError, match="objects and lists, at most 300000"):
        read_document({"schema": SCHEMA, "warnings": parts})
    good = json.loads(next((FIXTURES / "sutprobe").glob("jitter*.json")).read_bytes())
    document = read_document({**good, "result": {**good["result"], "points": parts}})
    with pytest.raises(InputError, match="objects and lists, at most 300000"):
        read_result(document, JitterResult)
