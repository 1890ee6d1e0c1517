# SPDX-License-Identifier: Apache-2.0
"""What reading counters costs: texts of the kernel in linear time, and less often where they take long."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from calibration.build import BASELINE, CACHE_DIRECTORY, COMMON_FLAGS, SOURCES_DIRECTORY
from calibration.sutprobe.document import read_document
from tests.probe.conftest import Probe
from tests.tools import require_root

SHARE = 0.03
ROUNDS = 3
"""Of each timing the least of so many counts."""
ROWS = (256, 4096)
LINEAR = 64
"""Sixteen times the work takes 16 times as long if it is linear and 256 times if it is quadratic: a factor of four."""

ALONE = (
    "affinity", "allocate", "cgroup", "counter_budget", "demand", "error", "files", "hugetlb", "interference", "json",
    "mappings", "memory", "pages", "text", "warning",
)  # fmt: skip
"""Sources that need no others."""

TABLE = """
#include <stdio.h>
#include <stdlib.h>
#include "clock.h"
#include "files.h"
#include "interference.h"
#include "smi.h"
bool smi_count(unsigned cpu, int64_t *count, char text[SMI_TEXT_BYTES])
{
    (void)cpu, (void)count, (void)text;
    return false;
}
int main(int count, char **arguments)
{
    struct cpu_list cpus;
    struct error error = {0};
    struct counter_table table;
    char *text = file_read(arguments[1]);
    if (count != 3 || !text || !cpu_list_parse(&cpus, arguments[2], &error))
        return 2;
    uint64_t began = clock_cpu_ns();
    counter_table_parse(&table, text, &cpus);
    printf("%llu\\n", (unsigned long long)(clock_cpu_ns() - began));
    for (size_t row = 0; row < table.count; row++)
        if (table.rows[row].values) {
            printf("%s %d", table.rows[row].label, table.rows[row].timer);
            for (size_t i = 0; i < cpus.count; i++)
                printf(" %llu", (unsigned long long)table.rows[row].values[i]);
            printf("\\n");
        }
    return 0;
}
"""

MAPPINGS = """
#include "files.h"
static char *counted(const char *path);
#define file_read counted
#include "mappings.c"
#undef file_read
#include <stdio.h>
#include "memory.h"
#include "smi.h"
bool smi_count(unsigned cpu, int64_t *value, char text[SMI_TEXT_BYTES])
{
    (void)cpu, (void)value, (void)text;
    return false;
}
static struct region *regions;
static size_t count, failed, readings;
static char *counted(const char *path)
{
    __atomic_add_fetch(&readings, 1, __ATOMIC_RELAXED);
    return file_read(path);
}
static pthread_barrier_t mapped;
static void *prove(void *number)
{
    struct error error = {0};
    struct pages pages = {0}, again = {0};
    struct region *region = &regions[(size_t)number];
    /* In turn of two kinds, so that neighbours are not merged. */
    struct page_choice kind = {(size_t)number % 2 ? PAGES_BASE : PAGES_THP, memory_base_page_bytes()};
    bool good = region_map(region, 1 << 16, 0, kind, &error);
    pthread_barrier_wait(&mapped);
    if (good && pages_read_back(&pages, region, 1, PAGES_AUTO, &error))
        good = pages.on_node == pages.total && pages.total == region->bytes / memory_base_page_bytes();
    pthread_barrier_wait(&mapped);
    if ((size_t)number == 0)
        mappings_forget();
    pthread_barrier_wait(&mapped);
    if (!good || !pages_read_back(&again, region, 1, PAGES_AUTO, &error))
        __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
    return NULL;
}
int main(int arguments, char **argument)
{
    count = (size_t)atoi(argument[arguments - 1]);
    regions = calloc(count, sizeof(*regions));
    pthread_t *threads = calloc(count, sizeof(*threads));
    pthread_barrier_init(&mapped, NULL, (unsigned)count);
    for (size_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, prove, (void *)i) != 0)
            return 2;
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%zu failed, list read %zu times\\n", failed, readings);
    return 0;
}
"""

AVOID = """
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "affinity.h"
static long faked(long number, ...);
#define syscall faked
#include "affinity.c"
#undef syscall
/* A machine of 8 CPUs, of which neighbours in number share a core. */
char *file_read(const char *path)
{
    unsigned cpu;
    char text[8];
    if (sscanf(path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", &cpu) != 1)
        return NULL;
    snprintf(text, sizeof(text), "%u-%u\\n", cpu & ~1u, cpu | 1);
    return strdup(text);
}
bool file_line(const char *path, char *line, size_t size)
{
    (void)path, (void)line, (void)size;
    return false;
}
static long faked(long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    (void)va_arg(arguments, int);
    size_t bytes = va_arg(arguments, size_t);
    unsigned long *mask = va_arg(arguments, unsigned long *);
    va_end(arguments);
    if (number == SYS_sched_getaffinity)
        *mask = 0xff;
    else if (number == SYS_sched_setaffinity)
        printf("%lx\\n", *mask);
    return (long)bytes * (number == SYS_sched_getaffinity);
}
int main(int count, char **arguments)
{
    struct error error = {0};
    struct cpu_list measured;
    if (!affinity_begin(&error))
        return 2;
    for (int i = 1; i < count; i++) {
        if (!cpu_list_parse(&measured, arguments[i], &error))
            return 2;
        affinity_avoid(0, &measured);
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile a main function with the sources that stand alone, by the pinned compiler and its C library."""
    place, cache = tmp_path_factory.mktemp("counter_budget"), str(CACHE_DIRECTORY / "zig")

    def compiled(name: str, text: str, sources: Sequence[str] = ALONE) -> Path:
        (place / f"{name}.c").write_text(text)
        files = [place / f"{name}.c", *(f"{source}.c" for source in sources)]
        subprocess.run(
            [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-musl", *COMMON_FLAGS, BASELINE["x86_64"],
             "-I.", "-o", place / name, *files, "-lm"],
            cwd=SOURCES_DIRECTORY, check=True,
            env=os.environ | dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), cache),
        )  # fmt: skip
        return place / name

    return compiled


def made_table(cpus: int, rows: int, present: list[int] | None = None) -> str:
    """Give a table of interrupts of *cpus* CPUs, those *present* among them, and so many rows."""
    names = range(cpus) if present is None else [*present, *range(1000, 1000 + cpus - len(present))]
    lines = [" " * 12 + "".join(f"CPU{name:<8d}" for name in names)]
    for row in range(rows - 2):
        counts = "".join(f"{(row * cpus + cpu) % 7 // 6 * (row + cpu):>10} " for cpu in range(cpus))
        lines.append(f"{row:>4}: {counts} IR-PCI-MSIX-0000:3b:00.0 {row}-edge      nic-{row}")
    lines.append(" LOC: " + "".join(f"{1000 + cpu:>10} " for cpu in range(cpus)) + "  Local timer interrupts")
    lines.append(" ERR:          7")
    return "\n".join(lines) + "\n"


def parsed(program: Path, table: Path, cpus: str) -> tuple[int, dict[str, tuple[bool, list[int]]]]:
    """Give the CPU time in ns, and the rows with a count."""
    done = subprocess.run([program, table, cpus], capture_output=True, text=True, check=True)
    time, *rows = done.stdout.splitlines()
    words = [row.split() for row in rows]
    return int(time), {label: (timer == "1", [int(count) for count in counts]) for label, timer, *counts in words}


def test_a_table_is_parsed_in_linear_time(program: Callable[..., Path], tmp_path: Path) -> None:
    reader = program("table", TABLE)
    tables = [tmp_path / str(rows) for rows in ROWS]
    for table in tables:
        table.write_text(made_table(256, int(table.name)))
    for watched in ("0", "255", "0-255"):
        short_ns, long_ns = (min(parsed(reader, table, watched)[0] for _ in range(ROUNDS)) for table in tables)
        assert long_ns < LINEAR * short_ns


def test_a_table_is_read_by_its_columns(program: Callable[..., Path], tmp_path: Path) -> None:
    """CPU 3 is offline and has no column; ERR has one number, which is not CPU 1's."""
    table = tmp_path / "table"
    table.write_text(
        "            CPU1       CPU2       CPU4       \n"
        "   8:          0         12          3  IO-APIC   8-edge      rtc0\n"
        "   9:          0          0          0  IO-APIC   9-edge      acpi\n"
        "  10:          5          0 4294967295  timer-like device\n"
        " LOC:          1          2          3\n"
        " ERR:          7\n"
    )
    reader = program("table", TABLE)
    assert parsed(reader, table, "2,4")[1] == {
        "8": (False, [12, 3]),
        "10": (True, [0, 4294967295]),
        "LOC": (False, [2, 3]),
    }
    assert parsed(reader, table, "1")[1] == {"10": (True, [5]), "LOC": (False, [1])}
    assert parsed(reader, table, "3")[1] == {}


def test_mappings_are_read_once_for_all_threads(program: Callable[..., Path]) -> None:
    """512 threads prove their pages, twice: the list of mappings is read once before and once after."""
    maps = program("proof", MAPPINGS, [name for name in ALONE if name != "mappings"])
    done = subprocess.run([maps, "512"], capture_output=True, text=True, check=True)
    assert done.stdout == "0 failed, list read 2 times\n"


def test_the_supervisor_is_on_no_measured_core(program: Callable[..., Path]) -> None:
    """Beside CPUs 0 and 5 it has cores 2-3 and 6-7; where each core is measured, what is not; else nothing."""
    avoid = program("avoid", AVOID, ("allocate", "error", "json", "text"))
    done = subprocess.run([avoid, "0,5", "0,2,4,6", "0-7"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cc", "aa"]


def with_table(probe: Path, table: Path | None, *arguments: str) -> dict[str, Any]:
    command = [str(probe), *arguments]
    if table:
        laid = 'mount --bind "$1" /proc/interrupts && shift && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", laid, "sh", str(table), *command]
    return Probe(*command)().document


def test_a_table_that_takes_long_is_read_less_often(native: Path, cpus: list[int], tmp_path: Path) -> None:
    """The same is measured with a table of 256 CPUs and 1000 lines, and reading counters stays within its share."""
    require_root()
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no permission: this root may not have a mount namespace of its own")
    table = tmp_path / "interrupts"
    table.write_text(made_table(256, 1000, cpus))
    step = (
        "bandwidth", "--group", f"{cpus[-1]}@0", "--mix", "reads", "--buffer-bytes", "16384,65536,4194304",
        "--placements", "4", "--windows", "5", "--window-s", "0.01",
    )  # fmt: skip
    plain, laid = (read_document(with_table(native, item, *step)) for item in (None, table))
    results = [json.loads(document.result or "null") for document in (plain, laid)]
    placements = [[point["placements"] for point in result["points"]] for result in results]
    assert [len(point) for point in placements[0]] == [len(point) for point in placements[1]] == [4, 4, 4]
    for document in (plain, laid):
        assert document.counter_budget
        assert document.counter_budget.measurements == 12
        assert document.counter_budget.share <= SHARE
    assert laid.counter_budget
    unknown = [item for point in placements[1] for item in point if item["interference"]["interrupts"] is None]
    assert len(unknown) == laid.counter_budget.left_out["interrupts"] > 0
    assert "COUNTERS_SAMPLED_LESS" in {warning.code for warning in laid.warnings}


def test_numa_balancing_passes_over_the_program(native: Path, cpus: list[int]) -> None:
    """No mapping has the default policy: balancing scans those, in the thread that is measured."""
    if not Path("/proc/self/numa_maps").exists():
        pytest.skip("this machine has a kernel without NUMA")
    command = [str(native), "jitter", "--cpus", str(cpus[-1]), "--view", "gaps", "--gap-s", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        maps = Path(f"/proc/{running.pid}/numa_maps")
        try:
            while len(list(Path(f"/proc/{running.pid}/task").iterdir())) < 3:
                time.sleep(0.01)
            policies = {line.split()[1] for line in maps.read_text(encoding="ascii").splitlines()}
        finally:
            running.kill()
    assert "local" in policies
    assert "default" not in policies
