# SPDX-License-Identifier: Apache-2.0
"""Known answers of code that needs no SUT: parsers and arithmetic of sutprobe, asked by programs of this machine."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess, run
from typing import Final

import pytest

from calibration.build import SOURCES_DIRECTORY
from tests.probe.sanitized import HOST, link
from tests.tools import sweep

PROGRAMS: Final = sorted(path.stem for path in HOST.glob("*.c"))


@pytest.fixture
def answers(tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """Run a program, with sources of *other* in front of sutprobe's own."""

    def ran(name: str, *other: Path) -> CompletedProcess[str]:
        program = link("address", tmp_path / name, [HOST / f"{name}.c", *other])
        return run([program], capture_output=True, text=True, check=False)

    return ran


@pytest.mark.parametrize("name", PROGRAMS)
def test_answers_are_known(name: str, answers: Callable[..., CompletedProcess[str]]) -> None:
    done = answers(name)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"ok"}


SABOTAGE: Final = {
    "gap_period": ("gaps", "periods.c", "best.period = best.followed;\n\t\tstruct train whole", "struct train whole"),
    "gap_longest": ("gaps", "gaps.c", "gaps->ring[k].ticks >= ticks", "gaps->ring[k].ticks > ticks"),
    "slices": ("sliced", "slices.c", "at[slices + 1] <= known", "at[slices] <= known"),
    "most_slices": ("sliced", "jitter_watch.c", "SLICES_OF_ALL_MAX 30000u", "SLICES_OF_ALL_MAX 300000u"),
    "trace_lost": ("tracing", "tracing.c", "lost += strtoll", "lost = strtoll"),
    "trace_osnoise": ("tracing", "osnoise.c", "off && option_set(instances, WORKLOAD)",
                      "option_set(instances, WORKLOAD) && off"),
    "trace_text": ("tracing", "causes.c", "\treader->last = at > reader->last ? at : reader->last;\n", ""),
    "trace_hwlat": ("tracing", "hwlat.c", "off && settings_put(instances, &before)", "off"),
    "trace_hwlat_text": ("tracing", "hwlat.c", "inner > outer ? inner : outer", "inner"),
    "json": ("text", "json.c", " || *c == 0x7f", ""),
    "samples": ("samples", "decode.c", "now.events & SPE_TLB_WALK", "now.events & 2 * SPE_TLB_WALK"),
    "counters": ("arithmetic", "pmu_counts.c", "((double)enabled / (double)running)",
                 "((double)running / (double)enabled)"),
    "threads": ("arithmetic", "pmu_counts.c", "\tevent.wall_ticks /= (double)event.threads;\n", ""),
    "order": ("chain", "chain.c", "chi_square <= ORDER", "chi_square <= 10 * ORDER"),
    "cursors": ("chain", "chain_cursors.c", "turn < turns", "turn + 1 < turns"),
    "reached": ("shares", "shares.c", "double time = 1 / share,", "double time = share,"),
    "disturbed": ("shares", "shares.c", "#define LOOKS_MIN 2u", "#define LOOKS_MIN 1u"),
    "out_of_reach": ("shares", "shares.c", "FIRST_DELAY), SHARES_DELAY_MAX);", "FIRST_DELAY), 1e6);"),
    "memory": ("memory", "demand.c", "*bytes += cached;", "*bytes -= cached;"),
    "spread": ("chain", "chain.c", "(((uint64_t)hash * lines) >> 32)", "(((uint64_t)hash * lines / 2) >> 32)"),
    "buckets": ("histogram", "histogram.c", "% HISTOGRAM_PARTS) << ", "% HISTOGRAM_PARTS + 1) << "),
    "written": ("histogram", "histogram.c", "if (count)", "if (count > 1)"),
    "singles": ("histogram", "single.c", "loads - done < BLOCK ? loads - done : BLOCK", "BLOCK"),
    "throttled": ("realtime", "realtime.c", "served(cpus->cpus[i]", "served(cpus->cpus[0]"),
    "files": ("text", "files.c", "\tclose(descriptor);\n", ""),
    "flip": ("march", "march.c", "any |= wrong[i]", "any = wrong[i]"),
    "stuck": ("march", "march.c", "pass % 2 ? UINT64_MAX : 0", "0"),
    "address": ("march", "march.c", "return line * MARCH_LINE_BYTES;", "return 0;"),
    "patterns": ("march", "march.c", "random_derive(seed, pass / 2, 1)", "pattern.key"),
    "control_groups": ("memory", "cgroup.c", "room < question->least", "room > question->least"),
}  # fmt: skip
"""By case: the program, a file of sutprobe, what it says, and a fault."""


def sources(case: str) -> str:
    _, name, right, _ = SABOTAGE[case]
    text = (SOURCES_DIRECTORY / name).read_text(encoding="utf-8")
    assert right in text, f"{name} no longer says {right!r}"
    return text


def test_every_fault_has_its_place() -> None:
    for case in SABOTAGE:
        sources(case)


@sweep
@pytest.mark.parametrize("case", SABOTAGE)
def test_a_fault_is_found_by_its_case(case: str, answers: Callable[..., CompletedProcess[str]], tmp_path: Path) -> None:
    program, name, right, wrong = SABOTAGE[case]
    (tmp_path / name).write_text(sources(case).replace(right, wrong, 1), encoding="utf-8")
    is_included = f'#include "{name}"' in (HOST / f"{program}.c").read_text(encoding="utf-8")
    done = answers(program, *([] if is_included else [tmp_path / name]))
    assert done.returncode == 1
    assert f"failed {case}:" in done.stdout
