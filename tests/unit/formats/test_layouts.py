# SPDX-License-Identifier: Apache-2.0
"""Layouts in which outputs of Intel MLC are published: versions, terminals, logs, web pages and Markdown.

All texts and numbers are composed here.
"""

import textwrap
from pathlib import Path
from typing import Any

import pytest

from calibration.formats.csit_page import MAX_LISTED, read_published
from calibration.results.imports import read_file

MATRIX = """\
Measuring idle latencies (in ns)...
                Numa node
Numa node            0       1
       0          71.5   130.2
       1         131.4    72.6
"""
IDLE = {"latency_ns": ((71.5, 130.2), (131.4, 72.6))}
MIXES = """\
ALL Reads        :      40321.5
3:1 Reads-Writes :      38111.2
2:1 Reads-Writes :      37002.4
1:1 Reads-Writes :      35555.6
Stream-triad like:      36123.4
"""
PEAK = {"reads": 40321.5, "3:1": 38111.2, "2:1": 37002.4, "1:1": 35555.6, "stream_triad": 36123.4}
UNIT = "Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)\n"
SWEEP = """\
Inject  Latency Bandwidth
Delay   (ns)    MB/sec
==========================
 00000  251.41    40111.5
 00100  140.12    30111.5
"""
POINTS = [(0, 251.41, 40111.5), (100, 140.12, 30111.5)]


def values(text: str, kind: str, *, listed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the values of the only reading of *kind* in *text*; the inconsistencies must have the codes *listed*."""
    read = read_published(text).read
    assert tuple(inconsistency.code for inconsistency in read.inconsistencies) == listed, read.inconsistencies
    (reading,) = [reading for reading in read.readings if reading.values.kind == kind]
    return reading.values.fields()


def reasons(text: str) -> list[str]:
    """Return the reasons of the inconsistencies of *text*."""
    return [inconsistency.reason for inconsistency in read_published(text).read.inconsistencies]


TITLE, COLUMNS = MATRIX.splitlines()[0], MATRIX.splitlines()[2]


@pytest.mark.parametrize(("usual", "other"), [
    (TITLE, "Measuring idle latencies for random access (in ns)..."),
    (TITLE, "Measuring idle latencies for sequential access (in ns)..."),
    (TITLE, "measuring IDLE latency (in nanoseconds)"),
    (TITLE, "Measuring Idle Memory Latencies (ns)"),
    (TITLE, "Idle latencies between nodes (in ns):"),
    (TITLE, "# Measuring idle latencies (in ns)..."),
    (COLUMNS, "NUMA node 0 1"),
    (COLUMNS, " Socket\t     0\t     1\t"),
    (COLUMNS, "Memory node  0  1"),
    (COLUMNS, "NumaNode 0 1"),
    ("130.2", "130.2"),
])  # fmt: skip
def test_headings_of_a_latency_matrix(usual: str, other: str) -> None:
    assert values(MATRIX.replace(usual, other), "latency_matrix").items() >= IDLE.items()


@pytest.mark.parametrize(("heading", "kind"), [
    ("Measuring Peak Memory Bandwidths for the system", "peak_injection_bandwidth"),
    ("Measuring Peak Injection Memory Bandwidths for the system", "peak_injection_bandwidth"),
    ("Measuring peak injection memory bandwidth", "peak_injection_bandwidth"),
    ("Measuring Peak Memory Bandwidths for the system\nMeasuring Peak Injection Memory Bandwidths",
     "peak_injection_bandwidth"),
    ("Measuring Maximum Memory Bandwidths for the system\nWill take several minutes", "max_bandwidth"),
    ("Measuring max memory bandwidth of the system", "max_bandwidth"),
])  # fmt: skip
def test_headings_of_mixes(heading: str, kind: str) -> None:
    found = values(f"{heading}\n{UNIT}Using traffic with the following read-write ratios\n{MIXES}", kind)
    assert found["bandwidth_mb_s"] == PEAK


@pytest.mark.parametrize(("unit", "mb_s"), [
    ("KB/sec", 1e-3),
    ("MB/sec", 1.0),
    ("GB/sec", 1e3),
    ("KiB/sec", 1024 / 1e6),
    ("MiB/sec", 1024**2 / 1e6),
    ("GiB/sec", 1024**3 / 1e6),
])  # fmt: skip
def test_rates_are_in_units_of_a_million_bytes(unit: str, mb_s: float) -> None:
    text = f"Measuring Peak Injection Memory Bandwidths for the system\nBandwidths are in {unit}\n{MIXES}"
    found = values(text, "peak_injection_bandwidth")["bandwidth_mb_s"]
    assert found == pytest.approx({name: value * mb_s for name, value in PEAK.items()}, rel=1e-12)


@pytest.mark.parametrize(
    ("label", "name"),
    [("4:1 Reads-Writes :", "4:1"), ("All NT writes    :", "write_nt"), ("1:1 Read-NT write:", "copy_nt")],
)
def test_mixes_of_internal_versions(label: str, name: str) -> None:
    text = f"Measuring Peak Injection Memory Bandwidths for the system\n{UNIT}{MIXES}{label}      31234.5\n"
    assert values(text, "peak_injection_bandwidth")["bandwidth_mb_s"] == {**PEAK, name: 31234.5}


@pytest.mark.parametrize(
    "heading",
    ["Measuring Memory Bandwidths between nodes within system ", "Measuring memory bandwidth between sockets"],
)
def test_headings_of_a_bandwidth_matrix(heading: str) -> None:
    table = MATRIX.partition("\n")[2].replace("130.2", "30.2").replace("131.4", "31.4")
    found = values(f"{heading}\n{UNIT}Using Read-only traffic type\n{table}", "bandwidth_matrix")
    assert found["bandwidth_mb_s"] == ((71.5, 30.2), (31.4, 72.6))


@pytest.mark.parametrize("table", [
    SWEEP,
    "Measuring Loaded Latencies for the system\nUsing Read-only traffic type\n" + SWEEP,
    "Measuring loaded latency\n" + SWEEP.replace("MB/sec", "MB/s"),
    SWEEP.replace("   ", "\t"),
])  # fmt: skip
def test_headings_of_a_sweep(table: str) -> None:
    points = values(f"Command line parameters: --loaded_latency -d0\n{table}", "loaded_latency")["points"]
    assert [(point["inject_delay"], point["latency_ns"], point["bandwidth_mb_s"]) for point in points] == POINTS


@pytest.mark.parametrize(
    "heading", ["Inject $Latency Bandwidth", "Inject a/Latency Bandwidth/b", "Inject Latency/Bandwidth"]
)
def test_damaged_heading_of_a_sweep(heading: str) -> None:
    read = read_published(SWEEP.replace("Inject  Latency Bandwidth", heading)).read
    assert read.readings or read.inconsistencies


def test_markdown_tables() -> None:
    text = """\
Measuring Idle Latencies (ns)
| Numa Node | 0 | 1 |
|----|----|----|
| 0 | 71.5 | 130.2 |
| 1 | 131.4 | 72.6 |

Measuring Peak Injection Memory Bandwidths for the system (MB/sec)
|Read/Write Ratios | Bandwidth |
|-----|-----|
| ALL Reads | 40321.5 |
|3:1 Reads-Writes | 38111.2 |
| 2:1 Reads-Writes | 37002.4 |
| 1:1 Reads-Writes | 35555.6 |
| Stream-triad like | 36123.4 |

Measuring Loaded Latencies for the system
| Inject Delay | Latency (ns) | Bandwidth (MB/sec) |
|-----|------|------|
| 00000 | 251.41 | 40111.5 |
| 00100 | 140.12 | 30111.5 |
"""
    read = read_published(text).read
    assert read.inconsistencies == ()
    matrix, peak, sweep = (reading.values.fields() for reading in read.readings)
    assert matrix["latency_ns"] == IDLE["latency_ns"]
    assert peak["bandwidth_mb_s"] == PEAK
    assert [
        (point["inject_delay"], point["latency_ns"], point["bandwidth_mb_s"]) for point in sweep["points"]
    ] == POINTS


@pytest.mark.parametrize("prefix", [
    "> ", "#> ", "# ", "[2031-08-09 23:43:50] ", "2031-08-09T23:43:50.123456Z ", "Aug 09 23:43:50 ",
    "Aug  9 23:43:50 sut mlc-run[2143]: ", "23:43:50 ", "[   12.345678] ", "1945612345.123456 ", "\x1b[0m\x1b[1;32m",
])  # fmt: skip
def test_removes_prefixes_of_every_line(prefix: str) -> None:
    text = textwrap.indent(f"Intel(R) Memory Latency Checker - v3.9a\n{MATRIX}", prefix, lambda _line: True)
    assert values(text, "latency_matrix").items() >= IDLE.items()


def test_escape_sequences_entities_and_tags() -> None:
    text = (
        "<pre>Measuring cache-to-cache transfer latency (in ns)...<br>"
        "\x1b[32mLocal Socket L2-&gt;L2 HIT  latency\x1b[0m\t41.5<br/>Local Socket L2-&gt;L2 HITM latency\t46.5</pre>\n"
    )
    found = values(text, "c2c_latency")
    assert (found["local_hit_ns"], found["local_hitm_ns"]) == (41.5, 46.5)


@pytest.mark.parametrize(("prompt", "command"), [
    ("$ sudo ./mlc --latency_matrix", "sudo ./mlc --latency_matrix"),
    ("[root@sut ~]# ./mlc --latency_matrix -e", "./mlc --latency_matrix -e"),
    ("lab@sut:/opt/mlc/Linux$ sudo ./mlc --latency_matrix -r", "sudo ./mlc --latency_matrix -r"),
    ("(base) lab@sut:Linux$ ./mlc_avx512 --latency_matrix", "./mlc_avx512 --latency_matrix"),
    ("\u276f mlc --latency_matrix -X", "mlc --latency_matrix -X"),
    ("#./mlc --latency_matrix", "./mlc --latency_matrix"),
    ("$: ./mlc --latency_matrix", "./mlc --latency_matrix"),
    ("PS C:\\mlc> .\\mlc.exe --latency_matrix", ".\\mlc.exe --latency_matrix"),
    ("> sudo ./tools/mlc --latency_matrix", "sudo ./tools/mlc --latency_matrix"),
    ("sudo ./mlc --latency_matrix", "sudo ./mlc --latency_matrix"),
])  # fmt: skip
def test_prompts(prompt: str, command: str) -> None:
    read = read_published(f"{prompt}\nIntel(R) Memory Latency Checker - v3.11b\n{MATRIX}lab@sut:~$ \n").read
    (reading,) = read.readings
    assert (reading.command, reading.instrument, read.inconsistencies) == (command, "Intel MLC 3.11b", ())


def test_lines_wrapped_by_a_terminal() -> None:
    text = """\
Measuring idle latencies for random access (in ns)...
                Numa node
Numa node            0       1       2       3       4       5       6       7
       8       9
       0          95.4   106.3   111.9   123.2   188.3   188.4   188.1   188.3
   351.2       -
       1         103.5    96.3   118.9   113.4   187.4   187.6   186.9   187.6
   352.3   361.4
"""
    found = values(text, "latency_matrix")
    assert found["memory_nodes"] == tuple(range(10))
    assert found["latency_ns"][0][7:] == (188.3, 351.2, None)
    assert found["latency_ns"][1][7:] == (187.6, 352.3, 361.4)


@pytest.mark.parametrize(
    ("cell", "value"), [("71,5", 71.5), ("71,52", 71.52), ("1,071.5", 1071.5), ("1,101,071.5", 1101071.5)]
)
def test_local_number_formats(cell: str, value: float) -> None:
    (reading,) = read_published(MATRIX.replace("71.5", cell)).read.readings
    assert reading.values.fields()["latency_ns"][0][0] == value


def test_truncated_number_with_thousands_separator_is_ignored() -> None:
    text = f"Measuring Maximum Memory Bandwidths for the system\n{UNIT}ALL Reads        :      115,474.01\n"
    assert values(text, "max_bandwidth", listed=("TRUNCATED",))["bandwidth_mb_s"] == {"reads": 115474.01}
    assert read_published(text[:-5]).read.readings == ()
    two = f"{text}3:1 Reads-Writes :      57,92"
    assert values(two, "max_bandwidth", listed=("TRUNCATED",))["bandwidth_mb_s"] == {"reads": 115474.01}


def test_memory_only_nodes_and_missing_cells() -> None:
    text = MATRIX.replace("       1         131.4    72.6\n", "       1             -    72.6\n")
    assert values(text, "latency_matrix")["latency_ns"] == ((71.5, 130.2), (None, 72.6))


@pytest.mark.parametrize("fence", ["```", "```console", "   ```bash"])
def test_blocks_of_markdown(fence: str) -> None:
    text = f"""\
# A lab of 3 servers

Each has 2 sockets and 12 modules.

**$ sudo /opt/mlc --latency_matrix**
{fence}
Intel(R) Memory Latency Checker - v3.5
Command line parameters: --latency_matrix

{MATRIX}```

and then

{fence}
lab@sut:~$ sudo ./mlc --loaded_latency -d0,100
{SWEEP}```
"""
    published = read_published(text)
    matrix, sweep = published.read.readings
    assert published.format == "mlc"
    assert published.read.inconsistencies == ()
    assert (matrix.command, sweep.command) == ("sudo /opt/mlc --latency_matrix", "sudo ./mlc --loaded_latency -d0,100")
    assert matrix.values.fields().items() >= IDLE.items()


PAGE = f"""\
A server
~~~~~~~~

Measured on t9-sut1.

Linux uname
^^^^^^^^^^^

::

    $ uname -a
    Linux t9-sut1 6.1.0-9-amd64 #1 SMP x86_64 GNU/Linux

Memory
^^^^^^

::

{{block}}

Next
^^^^

::

{textwrap.indent("$ sudo ./mlc --loaded_latency -d0" + chr(10) + SWEEP, "    ")}
"""


@pytest.mark.parametrize("indent", ["", "  ", "    ", "\t"])
@pytest.mark.parametrize("marker", ["::", ".. code-block:: console\n   :linenos:", ".. code::", "As measured::"])
def test_reads_literal_blocks_with_and_without_indentation(indent: str, marker: str) -> None:
    block = textwrap.indent(
        f"$ sudo ./mlc --latency_matrix\nIntel(R) Memory Latency Checker - v3.5\n\n{MATRIX}", indent
    )
    text = PAGE.replace("::\n\n{block}", f"{marker}\n\n{block}")
    read = read_published(text).read
    assert [inconsistency.code for inconsistency in read.inconsistencies] == []
    matrix, sweep = (reading.values.fields() for reading in read.readings)
    assert matrix.items() >= IDLE.items()
    assert len(sweep["points"]) == 2


def test_block_with_only_the_command_indented() -> None:
    text = PAGE.replace("{block}", f"    $ sudo ./mlc --latency_matrix\n{MATRIX}")
    assert values(text, "latency_matrix").items() >= IDLE.items()


def test_unindented_sweep_is_not_a_title() -> None:
    block = f"$ sudo ./mlc --loaded_latency -d0\nMeasuring Loaded Latencies for the system\n{SWEEP}"
    published = read_published(PAGE.replace("{block}", block))
    assert [reading.id for reading in published.read.readings] == ["loaded_latency", "loaded_latency-2"]
    assert published.read.readings[0].values == published.read.readings[1].values


def test_prose_after_two_colons_is_not_a_block() -> None:
    published = read_published(PAGE.replace("{block}", "What follows was measured in 2031 on 4 machines."))
    assert [reading.id for reading in published.read.readings] == ["loaded_latency"]
    assert published.read.inconsistencies == ()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "mlc.txt"
    path.write_text(MATRIX, encoding=encoding)
    (reading,) = read_file(path)[1].read.readings
    assert reading.values.fields().items() >= IDLE.items()


def test_names_an_unknown_column() -> None:
    text = SWEEP.replace("Bandwidth\n", "Bandwidth  Errors\n").replace("111.5\n", "111.5   7\n")
    found = read_published(f"Command line parameters: --loaded_latency -d0\n{text}").read
    assert [inconsistency.reason for inconsistency in found.inconsistencies] == ["no reader knows the column 'errors'"]
    assert [reading.complete for reading in found.readings] == [True]


def test_rows_with_an_extra_column_have_a_value_each() -> None:
    text = (
        MATRIX.replace("0       1\n", "0       1   Mean\n", 1)
        .replace("130.2", "130.2  100.8")
        .replace("72.6", "72.6  102.0")
    )
    found = read_published(text).read
    (reading,) = found.readings
    assert reading.values.fields().items() >= IDLE.items()
    assert reasons(text) == ["no reader knows the column 'Mean'"]
    short = read_published(text.replace("  100.8", "")).read
    assert [inconsistency.code for inconsistency in short.inconsistencies] == ["NOT_UNDERSTOOD", "TRUNCATED"]
    assert short.readings[0].values.fields()["cpu_nodes"] == (1,)


@pytest.mark.parametrize(
    "word", ["TBC", "tbd", "TBA", "XXXX", "n/a", "pending", "(pending)", "to be measured", "- TBC -"]
)
def test_names_a_placeholder(word: str) -> None:
    read = read_published(PAGE.replace("{block}", f"    $ sudo ./mlc --max_bandwidth\n    {word}")).read
    reason = f"the page says {word} in place of its output"
    assert [(inconsistency.code, inconsistency.reason) for inconsistency in read.inconsistencies] == [
        ("PLACEHOLDER", reason)
    ]
    assert ("max_bandwidth", reason) in [(item.kind, item.reason) for item in read.not_read]


def test_lists_output_of_unknown_options() -> None:
    text = """\
Intel(R) Memory Latency Checker - v3.12
Command line parameters: --memory_bandwidth_scan

Running memory bandwidth scan using 8 threads on numa node 0 accessing memory on numa node 0

Histogram report of BW in MB/sec across each 1GB region on NUMA node 0
BW_range(MB/sec)        #_of_1GB_regions
----------------        ----------------
[40000-44999]   3
[45000-49999]   4
"""
    found = read_published(text).read
    assert found.readings == ()
    (listed,) = found.inconsistencies
    assert listed.reason.startswith("no reader knows 'Running memory bandwidth scan using 8 threads on numa node 0")
    assert listed.reason.endswith("...' and 4 more lines")


def test_lists_output_of_other_commands() -> None:
    text = (
        f"$ ./mlc --latency_matrix\n{MATRIX}$ numactl -H\nnode distances:\nnode   0   1\n  0:  10  21\n  1:  21  10\n"
    )
    assert read_published(text).read.readings[0].values.fields().items() >= IDLE.items()
    assert reasons(text) == ["no reader knows '$ numactl -H' and 4 more lines"]
    page = PAGE.replace("{block}", "    $ numactl -H\n    node   0   1\n      0:  10  21\n      1:  21  10")
    assert reasons(page) == ["no reader knows 'numactl -H' and 3 more lines"]


@pytest.mark.parametrize(("blocks", "rest"), [(MAX_LISTED, []), (MAX_LISTED + 2, ["and 2 more"])])
def test_lists_some_and_counts_the_rest(blocks: int, rest: list[str]) -> None:
    text = "\n::\n\n".join(f"    $ numactl -N {number}\n    node   0   1\n" for number in range(1, blocks + 1))
    found = reasons(PAGE.replace("{block}", text))
    assert found[MAX_LISTED:] == rest


def test_lists_blocks_of_our_own_pages() -> None:
    page = PAGE.replace("{block}", f"    $ sutprobe latency --nodes 0,1\n{textwrap.indent(MATRIX, '    ')}")
    assert [reading.id for reading in read_published(page).read.readings] == ["loaded_latency"]
    assert reasons(page) == ["no reader knows 'sutprobe latency --nodes 0,1' and 5 more lines"]


def test_lists_tables_outside_literal_blocks() -> None:
    for table in (MATRIX, "| 0 | 71.5 | 130.2 |\n", "0, 71.5, 130.2\n1, 131.4, 72.6\n"):
        found = read_published(PAGE.replace("::\n\n{block}", table)).read
        assert [inconsistency.where for inconsistency in found.inconsistencies] == ["text outside literal blocks"]
    assert read_published(PAGE.replace("{block}", "In 2031 we had 4 servers, 3 of them with 2 sockets.")).read == (
        read_published(PAGE.replace("{block}", "")).read
    )


def test_two_programs_in_one_text() -> None:
    jitter = """\
Linux Jitter testing program version 1.9
   Inst_Min   Inst_Max   Inst_jitter last_Exec  Abs_min    Abs_max      tmp       Interval     Sample No
        100        150            50       100      100        150        0     3000000000          1
"""
    for text in (f"{MATRIX}\n{jitter}", f"{jitter}\n{MATRIX}", f"{MATRIX}{jitter}"):
        read = read_published(text).read
        assert read.inconsistencies == ()
        assert {reading.values.kind for reading in read.readings} == {"latency_matrix", "jitter"}
        assert all(reading.complete for reading in read.readings)
