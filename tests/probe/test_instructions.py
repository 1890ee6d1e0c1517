# SPDX-License-Identifier: Apache-2.0
"""The instructions of every loop that is timed, read from the bytes that are shipped.

Time cannot show what a loop is made of: a compiler that splits a load, spills a sum or drops a store moves a value by
a few per cent. So each loop is disassembled and its loads, stores and their widths are compared with what is declared,
and kernels are run on an emulated processor that counts the bytes.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path

import pytest
from unicorn import arm64_const, x86_const

from calibration.build import SYMBOLS, Target, build, compiled, strip
from tests.probe.binary import Access, Elf, Function, Instruction, disassemble, loops
from tests.probe.emulation import LineStore, emulate, emulate_chains

DISASSEMBLED: tuple[Target, ...] = ("x86_64", "aarch64")
"""Targets whose loops are written in instructions; elsewhere they are C, and the compiler's."""

LINE_BYTES = 64
HINTS: dict[Target, dict[str, str]] = {
    "x86_64": {"T0": "prefetcht0", "T1": "prefetcht1", "NTA": "prefetchnta", "W": "prefetchw"},
    "aarch64": {"T0": "pldl1keep", "T1": "pldl2keep", "NTA": "pldl1strm", "W": "pstl1keep"},
}
"""What a hint is in instructions; with W, that of a line that will be written, and T0's for others."""
STEPS_PER_DELAY = 4
DELAY_BLOCK = 32
READS = {"READS": 1, "3_1": 3, "2_1": 2, "1_1": 1, "STREAM_TRIAD": 2, "WRITE": 0, "WRITE_NT": 0, "COPY": 1,
         "COPY_NT": 1, "TRIAD": 2}  # fmt: skip
"""Lines that a step of each mix reads, as the declared accounting says."""
WRITES = {mix: int(mix != "READS") for mix in READS}
NON_TEMPORAL = {"STREAM_TRIAD", "WRITE_NT", "COPY_NT"}
UPDATES = {"3_1", "2_1", "1_1"}
"""Mixes whose written line is one of those read."""
PREFETCHED_UNREAD: dict[Target, set[str]] = {"x86_64": {"WRITE", "COPY", "TRIAD"}, "aarch64": set()}
"""Mixes whose written line is prefetched although it is not read: a store reads it anyway, if it does."""
WIDTHS: dict[Target, dict[str, tuple[int, ...]]] = {
    "x86_64": {"sse2": (16,), "avx2": (32,), "avx512": (64,)},
    # Two registers make one NEON vector, moved one by one or as a pair.
    "aarch64": {"neon": (16, 32)},
}
STORES_PAST_THE_CACHE = re.compile(r"v?movnt(dq|ps|pd)|stnp|stnt1[bhwd]")
PREFETCHES = re.compile(r"prefetch\w*|prfu?m")
CLOCKS: dict[Target, tuple[str, str]] = {"x86_64": ("rdtsc", ""), "aarch64": ("mrs", "cntvct_el0")}
ADDRESSES_HELD = 9
"""So many addresses stay in general registers on both architectures, beside counters and the distance of prefetches."""
SPILLED = {("aarch64", "2_1", 8), ("aarch64", "3_1", 8)}
"""Kernels, with prefetch, in which the compiler also keeps sums on the stack; nothing else may."""
SPILLED_VISITS = {("aarch64", "2_1", 4), ("aarch64", "3_1", 4)}
"""The same of visits, with four lines in flight at once."""
CALLS = {"call", "bl", "blr", "syscall", "svc"}
STACK = {"rsp", "rbp", "sp", "x29", "fp"}


class _Named(dict[Target, Path]):
    def __missing__(self, target: Target) -> Path:
        self[target] = compiled(target).path.with_name(SYMBOLS)
        return self[target]


@pytest.fixture(scope="session")
def named() -> dict[Target, Path]:
    """The programs with their symbols, from which those that are shipped were stripped; built when asked for."""
    return _Named()


@cache
def functions_of(path: Path) -> tuple[int, tuple[Function, ...]]:
    elf = Elf(path)
    return elf.machine, tuple(elf.functions())


@cache
def elf_of(path: Path) -> Elf:
    return Elf(path)


def code_of(named: dict[Target, Path], target: Target, name: str, file: str = "") -> list[Instruction]:
    machine, functions = functions_of(named[target])
    (function,) = (function for function in functions if function.name == name and function.file == file)
    return disassemble(function, machine)


def on_stack(instruction: Instruction) -> bool:
    return bool(STACK & set(instruction.access.registers))


def vector_loop(body: Sequence[Instruction], widths: tuple[int, ...]) -> bool:
    return any(
        max(instruction.access.read_bytes, instruction.access.written_bytes) in widths and not on_stack(instruction)
        for instruction in body
    )


def hot_loop(instructions: Sequence[Instruction], widths: tuple[int, ...]) -> list[Instruction]:
    """Return the shortest loop that moves vectors."""
    return min((body for body in loops(instructions) if vector_loop(body, widths)), key=len)


def arrays(mix: str) -> int:
    return READS[mix] + WRITES[mix] - (mix in UPDATES)


def fetched(target: Target, mix: str) -> int:
    """Return how many lines of a step are prefetched: all that memory gives to the core in any case."""
    return READS[mix] + (mix in PREFETCHED_UNREAD[target])


def faults(
    body: Sequence[Instruction],
    shape: tuple[Target, str],
    mix: str,
    streams: int,
    prefetch: bool,
    *,
    spilled: bool = False,
) -> list[str]:
    """Say what the loop of a kernel does that its mix does not declare, or does not that it does."""
    target, width = shape
    widths = WIDTHS[target][width]
    addresses = streams * (arrays(mix) + (fetched(target, mix) if prefetch else 0))
    found = []
    accesses = [instruction for instruction in body if instruction.access != Access(0, 0, ())]
    for instruction in (access for access in accesses if on_stack(access)):
        vector = re.search(r"\b([xyz]mm|[qvz])\d", instruction.operands)
        if addresses <= ADDRESSES_HELD or (vector and not spilled):
            found.append(f"stack: {instruction}")
    moves = [access for access in accesses if not on_stack(access)]
    found += [
        f"width: {move}" for move in moves if {move.access.read_bytes, move.access.written_bytes} - {0} - set(widths)
    ]
    read = sum(move.access.read_bytes for move in moves)
    written = sum(move.access.written_bytes for move in moves)
    lines = max(STEPS_PER_DELAY, streams)
    for what, moved, declared in (("read", read, READS[mix]), ("written", written, WRITES[mix])):
        if moved != declared * LINE_BYTES * lines:
            found.append(f"{moved} bytes are {what} in {lines} steps, {declared * LINE_BYTES * lines} are declared")
    past = [bool(STORES_PAST_THE_CACHE.fullmatch(move.mnemonic)) for move in moves if move.access.written_bytes]
    if set(past) - {mix in NON_TEMPORAL}:
        found.append(f"{sum(past)} of {len(past)} stores are non-temporal")
    asked = sum(bool(PREFETCHES.fullmatch(instruction.mnemonic)) for instruction in body)
    wanted = lines * fetched(target, mix) if prefetch else 0
    if asked != wanted:
        found.append(f"{asked} lines are prefetched, {wanted} are wanted")
    return found


def kernels(path: Path, width: str) -> list[tuple[Function, str, int, bool, bool]]:
    """Return the kernels of a width with what their names say: mix, streams, prefetch and delay."""
    found = []
    for function in functions_of(path)[1]:
        parts = re.fullmatch(r"MIX_(\w+?)_([1248])_([01])_([01])", function.name)
        if parts and function.file == f"streams_{width}.c":
            mix, streams, prefetch, delay = parts.groups()
            found.append((function, mix, int(streams), prefetch == "1", delay == "1"))
    return found


SHAPES = [(target, width) for target in DISASSEMBLED for width in WIDTHS[target]]


@pytest.mark.parametrize("target", DISASSEMBLED)
def test_the_shipped_program_is_the_one_read_here(named: dict[Target, Path], target: Target) -> None:
    assert build(target).path.read_bytes() == strip(named[target].read_bytes())
    kernel = re.compile(
        r"(visit_)?MIX_\w+|(fill|triad)_doubles|(line|random)_reads\w*|walk_\d+|run_(avx2|avx512|neon|sve)"
    )
    checked = [function for function in functions_of(named[target])[1] if kernel.fullmatch(function.name)]
    assert len(checked) >= (160 + 120 + 2) * len(WIDTHS[target]) + 2 * 2 + 32 + 2


def by_stack_pointer(instruction: Instruction) -> bool:
    """Return whether that is on the stack; the frame pointer is one register more for addresses here."""
    return bool({"rsp", "sp"} & set(instruction.access.registers))


def visits(path: Path, width: str) -> list[tuple[Function, str, int, str]]:
    """Return the kernels of any number of streams with what their names say: mix, lines at a turn and hint."""
    found = []
    for function in functions_of(path)[1]:
        parts = re.fullmatch(r"visit_MIX_(\w+?)_([124])_HINT_(\w+)", function.name)
        if parts and function.file == f"streams_{width}.c":
            found.append((function, parts[1], int(parts[2]), parts[3]))
    return found


def visit_faults(body: Sequence[Instruction], shape: tuple[Target, str], mix: str, lines: int, hint: str) -> list[str]:
    """Say what the loop over streams of a kernel does that its mix and hint do not declare, or does not."""
    target, width = shape
    moves = [item for item in body if item.access != Access(0, 0, ()) and not by_stack_pointer(item)]
    kept = [item for item in body if by_stack_pointer(item) and re.search(r"\b([xyz]mm|[qvz])\d", item.operands)]
    found = [] if (target, mix, lines) in SPILLED_VISITS else [f"stack: {item}" for item in kept]
    for what, moved, declared in (
        ("read", sum(move.access.read_bytes for move in moves), READS[mix]),
        ("written", sum(move.access.written_bytes for move in moves), WRITES[mix]),
    ):
        if moved != declared * LINE_BYTES * lines:
            found.append(f"{moved} bytes are {what} in {lines} lines, {declared * LINE_BYTES * lines} are declared")
    if {move.access.read_bytes + move.access.written_bytes for move in moves} - set(WIDTHS[target][width]):
        found.append("other widths are moved")
    past = {bool(STORES_PAST_THE_CACHE.fullmatch(move.mnemonic)) for move in moves if move.access.written_bytes}
    if past - {mix in NON_TEMPORAL}:
        found.append("stores are of the other kind")
    words = Counter(
        item.mnemonic if target == "x86_64" else item.operands.partition(",")[0]
        for item in body
        if PREFETCHES.fullmatch(item.mnemonic)
    )
    wanted: Counter[str] = Counter()
    if hint != "NONE":
        owned = int(mix in UPDATES or mix in PREFETCHED_UNREAD[target])
        wanted[HINTS[target][hint]] += lines * (owned if hint == "W" else fetched(target, mix))
        wanted[HINTS[target]["T0"]] += lines * (fetched(target, mix) - owned) if hint == "W" else 0
    if words != +wanted:
        found.append(f"{dict(words)} are prefetched, {dict(+wanted)} are wanted")
    return found


def visit_loop(instructions: Sequence[Instruction], widths: tuple[int, ...]) -> list[Instruction]:
    """Return the shortest loop that moves vectors, without the additions of a delay."""
    return [item for item in hot_loop(instructions, widths) if item.mnemonic != "add"]


@pytest.mark.parametrize(("target", "width"), SHAPES)
def test_visits_move_and_prefetch_what_is_declared(named: dict[Target, Path], target: Target, width: str) -> None:
    machine = functions_of(named[target])[0]
    found = visits(named[target], width)
    owned = UPDATES | PREFETCHED_UNREAD[target]
    assert Counter(mix for _, mix, _, _ in found) == {mix: 15 if mix in owned else 12 for mix in READS}
    wrong = {}
    for function, mix, lines, hint in found:
        body = visit_loop(disassemble(function, machine), WIDTHS[target][width])
        if bad := visit_faults(body, (target, width), mix, lines, hint):
            wrong[function.name] = bad
    assert wrong == {}


def test_faults_of_a_visit_are_found(named: dict[Target, Path]) -> None:
    shape: tuple[Target, str] = ("x86_64", "avx2")
    body = visit_loop(code_of(named, "x86_64", "visit_MIX_1_1_2_HINT_W", "streams_avx2.c"), (32,))
    assert visit_faults(body, shape, "1_1", 2, "W") == []
    assert visit_faults(body, shape, "1_1", 2, "T0")
    assert visit_faults(body, shape, "1_1", 4, "W")
    assert visit_faults(body, shape, "2_1", 2, "W")
    for mnemonic in ("prefetcht0", "nop"):
        spoilt = [replace(item, mnemonic=mnemonic) if item.mnemonic == "prefetchw" else item for item in body]
        assert visit_faults(spoilt, shape, "1_1", 2, "W")


@pytest.mark.parametrize(("target", "width"), [("x86_64", "sse2"), ("aarch64", "neon")])
@pytest.mark.parametrize("streams", [1, 4])
def test_an_emulated_processor_counts_the_bytes_of_visits(
    named: dict[Target, Path], target: Target, width: str, streams: int
) -> None:
    steps, passes = 8, 3
    for function, mix, _, hint in visits(named[target], width):
        counted = emulate(
            elf_of(named[target]),
            function,
            arrays=arrays(mix),
            steps=steps,
            passes=passes,
            prefetch_bytes=512 * (hint != "NONE"),
            delay=0,
            streams=streams,
        )
        lines = streams * steps * passes
        assert counted.read_bytes == READS[mix] * LINE_BYTES * lines, function.name
        assert counted.written_bytes == WRITES[mix] * LINE_BYTES * lines, function.name
        assert counted.touched_bytes == arrays(mix) * streams * steps * LINE_BYTES, function.name


LINES: dict[str, tuple[Target, str, int]] = {
    "clzero": ("x86_64", "clzero", 8),
    "movdir64b": ("x86_64", "movdir64b", 0),
    "rep_stosb": ("x86_64", "rep stosb", 0),
    "dc_zva": ("aarch64", "dc", 8),
    "ldnp": ("aarch64", "ldnp", 0),
}
"""Kernels of whole lines: architecture, mnemonic, and bytes of the number that is left in each stream after a pass."""


@pytest.mark.parametrize(("name", "target"), [(name, line[0]) for name, line in LINES.items()])
def test_whole_lines_are_moved_once_in_every_pass(named: dict[Target, Path], name: str, target: Target) -> None:
    _, mnemonic, canary_bytes = LINES[name]
    instructions = code_of(named, target, name, "lines.c")
    found = [item for item in instructions if item.mnemonic == mnemonic]
    assert len(found) == (2 if name == "ldnp" else 1)
    stores = []
    for item, after in pairwise(instructions):
        if item in found and name not in {"rep_stosb", "ldnp"}:
            word = "rax" if name == "clzero" else item.operands.split(",")[1 if name == "dc_zva" else 0].strip()
            constants = x86_const if target == "x86_64" else arm64_const
            prefix = "UC_X86_REG_" if target == "x86_64" else "UC_ARM64_REG_"
            register = getattr(constants, f"{prefix}{word.upper()}")
            stores.append(LineStore(item.address, after.address - item.address, register))
    (function,) = (item for item in functions_of(named[target])[1] if (item.name, item.file) == (name, "lines.c"))
    steps, passes, streams = 8, 3, 1 if name == "rep_stosb" else 4
    counted = emulate(
        elf_of(named[target]), function, arrays=1, steps=steps, passes=passes, prefetch_bytes=0, delay=0,
        streams=streams, line_stores=stores,
    )  # fmt: skip
    moved = streams * steps * passes * LINE_BYTES
    assert counted.written_bytes == (0 if name == "ldnp" else moved) + canary_bytes * streams * passes
    assert counted.read_bytes == (moved if name == "ldnp" else 0)
    assert counted.touched_bytes == streams * steps * LINE_BYTES
    if stores:
        half = emulate(
            elf_of(named[target]), function, arrays=1, steps=steps, passes=passes, prefetch_bytes=0, delay=0,
            streams=streams // 2, line_stores=stores,
        )  # fmt: skip
        assert 2 * half.written_bytes == counted.written_bytes, "what is counted follows what is asked for"


@pytest.mark.parametrize(("target", "width"), SHAPES)
def test_bandwidth_loops_move_what_is_declared(named: dict[Target, Path], target: Target, width: str) -> None:
    machine = functions_of(named[target])[0]
    found = kernels(named[target], width)
    assert Counter(mix for _, mix, _, _, _ in found) == dict.fromkeys(READS, 16)
    wrong = {}
    for function, mix, streams, prefetch, delay in found:
        body = hot_loop(disassemble(function, machine), WIDTHS[target][width])
        spilled = prefetch and (target, mix, streams) in SPILLED
        if bad := faults(body, (target, width), mix, streams, prefetch, spilled=spilled):
            wrong[function.name] = bad
        inner = [loop for loop in loops(body) if len(loop) < len(body)]
        assert len(inner) == (max(STEPS_PER_DELAY, streams) // STEPS_PER_DELAY if delay else 0), function.name
        for item in inner:
            assert len(item) == DELAY_BLOCK + 2, function.name
            assert {one.mnemonic for one in item[:DELAY_BLOCK]} == {"add"}
            assert len({one.operands for one in item[:DELAY_BLOCK]}) == 1, "one register only, or they do not wait"
    assert wrong == {}


def test_faults_of_a_loop_are_found(named: dict[Target, Path]) -> None:
    shape: tuple[Target, str] = ("x86_64", "avx2")
    body = hot_loop(code_of(named, "x86_64", "MIX_COPY_NT_4_1_0", "streams_avx2.c"), WIDTHS["x86_64"]["avx2"])
    assert faults(body, shape, "COPY_NT", 4, True) == []
    load = next(index for index, instruction in enumerate(body) if instruction.access.read_bytes)
    store = next(index for index, instruction in enumerate(body) if instruction.access.written_bytes)
    fetch = next(index for index, instruction in enumerate(body) if PREFETCHES.fullmatch(instruction.mnemonic))
    for index, change, words in (
        (load, {"access": Access(32, 0, ("rsp",)), "operands": "ymm0, ymmword ptr [rsp]"}, "stack"),
        (load, {"access": Access(16, 0, ("rax",))}, "width"),
        (load, {"access": Access(0, 0, ())}, "are read"),
        (store, {"access": Access(0, 0, ())}, "are written"),
        (store, {"mnemonic": "vmovdqa"}, "non-temporal"),
        (fetch, {"mnemonic": "nop"}, "prefetched"),
    ):
        spoilt = list(body)
        spoilt[index] = replace(body[index], **change)
        assert any(words in fault for fault in faults(spoilt, shape, "COPY_NT", 4, True)), words
    assert faults(body, shape, "COPY", 4, True)
    assert faults(body, shape, "COPY_NT", 8, True)


@pytest.mark.parametrize("target", DISASSEMBLED)
def test_a_chase_is_64_loads_that_wait_for_one_another(named: dict[Target, Path], target: Target) -> None:
    chases = [body for body in loops(code_of(named, target, "chain_walk")) if any(e.access.read_bytes for e in body)]
    assert len(chases) == 2, "one over addresses, one over offsets"
    for body in chases:
        loads = [instruction for instruction in body if instruction.access.read_bytes]
        assert len(loads) == 64
        assert len(body) == 66, "what is not a load counts blocks"
        assert len({str(load).partition(": ")[2] for load in loads}) == 1
        assert all(load.access == Access(8, 0, load.access.registers) for load in loads)
        target_register = loads[0].operands.split(",")[0]
        assert target_register in loads[0].access.registers, "the address is what the load before gave"
        assert not STACK & set(loads[0].access.registers)
    assert sorted(len(body[1].access.registers) for body in chases) == [1, 2]


def additions(body: Sequence[Instruction]) -> list[Instruction]:
    """Return the additions of registers of which each waits for the one before."""
    sums = [
        instruction
        for instruction in body
        if instruction.mnemonic == "add" and "#" not in instruction.operands and "[" not in instruction.operands
    ]
    for instruction in sums:
        words = [word.strip() for word in instruction.operands.split(",")]
        assert not words[-1].isdigit()
        assert words[0] == words[-2] or len(words) == 2
    assert len({instruction.operands for instruction in sums}) <= 1, "one register only, or they do not wait"
    return sums


@pytest.mark.parametrize("target", DISASSEMBLED)
def test_the_core_clock_is_64_additions_that_wait_for_one_another(named: dict[Target, Path], target: Target) -> None:
    (body,) = (
        body
        for body in loops(code_of(named, target, "corefreq_per_tick"))
        if len(body) == 66 and len(additions(body)) == 64
    )
    assert not [instruction for instruction in body if instruction.access != Access(0, 0, ())]


@pytest.mark.parametrize(
    ("target", "work", "letter"),
    [("x86_64", "avx2", "ymm"), ("x86_64", "avx512", "zmm"), ("aarch64", "neon", "v"), ("aarch64", "sve", "z")],
)
def test_vector_work_is_the_same_chain_with_vectors_beside_it(
    named: dict[Target, Path], target: Target, work: str, letter: str
) -> None:
    body = max(loops(code_of(named, target, f"run_{work}", "work.c")), key=len)
    vectors = [instruction for instruction in body if re.fullmatch(r"vfn?madd231ps|fml[as]", instruction.mnemonic)]
    assert len(additions(body)) == 64
    assert len(vectors) == 48
    assert len(body) == 64 + 48 + 2
    assert not [instruction for instruction in body if instruction.access != Access(0, 0, ())]
    index = -1 if target == "x86_64" else 0
    accumulators = Counter(vector.operands.split(",")[0 if target == "x86_64" else index].strip() for vector in vectors)
    assert len(accumulators) == 12
    assert set(accumulators.values()) == {4}
    assert all(name.startswith(letter) for name in accumulators)


@pytest.mark.parametrize("target", DISASSEMBLED)
def test_the_gap_loop_reads_the_clock_and_nothing_else(named: dict[Target, Path], target: Target) -> None:
    mnemonic, operand = CLOCKS[target]

    def clock_reads(body: Sequence[Instruction]) -> int:
        return sum(instruction.mnemonic == mnemonic and operand in instruction.operands for instruction in body)

    quiet = min((body for body in loops(code_of(named, target, "gaps_run")) if clock_reads(body)), key=len)
    assert clock_reads(quiet) == 1
    assert not [str(instruction) for instruction in quiet if instruction.access != Access(0, 0, ())]
    assert not [str(instruction) for instruction in quiet if instruction.mnemonic in CALLS]
    assert len(quiet) <= 16, "a longer turn sees shorter gaps less well"


@pytest.mark.parametrize(("target", "width"), [("x86_64", "sse2"), ("aarch64", "neon")])
def test_an_emulated_processor_counts_the_declared_bytes(named: dict[Target, Path], target: Target, width: str) -> None:
    steps, passes = 8, 3
    elf = Elf(named[target])
    for function, mix, streams, prefetch, delay in kernels(named[target], width):
        stream_bytes = steps * LINE_BYTES
        counted = emulate(
            elf,
            function,
            arrays=arrays(mix),
            steps=steps,
            passes=passes,
            prefetch_bytes=512 * prefetch,
            delay=int(delay),
            streams=streams,
        )
        lines = streams * steps * passes
        assert counted.read_bytes == READS[mix] * LINE_BYTES * lines, function.name
        assert counted.written_bytes == WRITES[mix] * LINE_BYTES * lines, function.name
        assert counted.touched_bytes == arrays(mix) * streams * stream_bytes, function.name


SLED = 1024
"""No-ops of the sled of line_reads, into which a delay jumps."""


def is_no_op(instruction: Instruction) -> bool:
    return instruction.mnemonic == "nop" and not instruction.operands


def sled_of(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Return the longest run of no-ops without a gap; alignment pads with a few elsewhere."""
    runs = [list(run) for no_op, run in groupby(instructions, is_no_op) if no_op]
    return max((run for run in runs if len(run) > SLED // 2), key=len, default=[])


FLUSHES: dict[Target, re.Pattern[str]] = {"x86_64": re.compile("clflush(opt)?"), "aarch64": re.compile("dc civac")}


@pytest.mark.parametrize("target", DISASSEMBLED)
def test_a_paced_reader_takes_every_line_that_it_read_out_of_the_caches(
    named: dict[Target, Path], target: Target
) -> None:
    def flushes(body: Sequence[Instruction]) -> int:
        return sum(bool(FLUSHES[target].match(f"{item.mnemonic} {item.operands}")) for item in body)

    def reads(body: Sequence[Instruction]) -> int:
        return sum(
            (item.access.read_bytes, item.access.written_bytes) == (8, 0)
            and item.mnemonic in {"mov", "ldr"}
            and not on_stack(item)
            and "rip" not in item.operands
            for item in body
        )

    bodies = [body for body in loops(code_of(named, target, "run", "paced_reader.c")) if flushes(body)]
    assert bodies, "no loop flushes a line"
    body = min(bodies, key=len)
    assert flushes(body) == 8
    assert reads(body) == 8 + 1, "eight lines, and where the buffer begins"


@pytest.mark.parametrize("target", DISASSEMBLED)
def test_a_line_is_read_by_one_load_of_eight_bytes(named: dict[Target, Path], target: Target) -> None:
    for name in ("line_reads", "line_reads_delayed", "random_reads", "random_reads_delayed"):
        instructions = code_of(named, target, name)
        reading = [loop for loop in loops(instructions) if any(e.access.read_bytes and not on_stack(e) for e in loop)]
        body = min(reading, key=len)
        moves = [instruction for instruction in body if instruction.access != Access(0, 0, ())]
        lines = [move for move in moves if not on_stack(move)]
        assert [(move.access.read_bytes, move.access.written_bytes) for move in lines] in ([(8, 0)] * 4, [(16, 0)] * 2)
        beside = [str(move) for move in moves if on_stack(move) and ("random" not in name or move.access.written_bytes)]
        assert not beside, "the four loads wait for nothing; constants of an order may lie on the stack"
        others = [item for item in body if not is_no_op(item) and item not in moves]
        assert len(others) <= (56 if "random" in name else 16), "what is no load and no no-op is little"
        assert len(sled_of(instructions)) == (SLED if name.endswith("delayed") else 0)


@pytest.mark.parametrize("target", DISASSEMBLED)
@pytest.mark.parametrize("no_ops", [0, 1, 7, SLED - 1, SLED, SLED + 1, 2 * SLED])
@pytest.mark.parametrize("mix", ["line_reads", "random_reads"])
def test_a_delay_executes_the_requested_no_ops(
    named: dict[Target, Path], target: Target, no_ops: int, mix: str
) -> None:
    steps, passes = 8, 2
    elf, name = Elf(named[target]), f"{mix}_delayed" if no_ops else mix
    (function,) = (item for item in functions_of(named[target])[1] if item.name == name)
    sled = sled_of(code_of(named, target, name))
    watched = (sled[0].address, sled[-1].address) if sled else None
    counted = emulate(
        elf, function, arrays=1, steps=steps, passes=passes, prefetch_bytes=0, delay=no_ops, watched=watched
    )
    assert counted.executed == no_ops * steps // STEPS_PER_DELAY * passes
    assert counted.read_bytes == 8 * steps * passes
    assert counted.touched_bytes == 8 * steps
    assert counted.written_bytes == 0


CURSORS: dict[Target, int] = {"x86_64": 12, "aarch64": 26}
"""Chains whose places all stay in registers."""


def chain_loops(named: dict[Target, Path], target: Target) -> list[tuple[int, Function, list[Instruction]]]:
    """Return the loop of each number of chains, with its function."""
    machine, functions = functions_of(named[target])
    found = []
    for function in functions:
        if name := re.fullmatch(r"walk_(\d+)", function.name):
            count, code = int(name[1]), disassemble(function, machine)
            body = max((loop for loop in loops(code) if any(item.access.read_bytes for item in loop)), key=len)
            found.append((count, function, body))
    return sorted(found, key=lambda item: item[0])


@pytest.mark.parametrize("target", DISASSEMBLED)
def test_chains_keep_their_places_in_registers_or_on_the_stack(named: dict[Target, Path], target: Target) -> None:
    found = chain_loops(named, target)
    assert [count for count, *_ in found] == list(range(1, 33))
    for count, function, body in found:
        moves = [instruction for instruction in body if instruction.access != Access(0, 0, ())]
        loads = [move for move in moves if len(move.access.registers) == 2]
        turns = len(loads) // count  # the compiler unrolls short loops
        assert [(move.access.written_bytes, len(move.access.registers)) for move in loads] == [
            (0, 2)
        ] * count * turns, f"{function.name}: one load from the origin and a place, for each chain"
        kept = [move for move in moves if move not in loads]
        assert all(map(on_stack, kept))
        read, written = (
            sum(getattr(move.access, name) for move in kept) // 8 for name in ("read_bytes", "written_bytes")
        )
        assert read == written, f"{function.name}: what is loaded from the stack is stored there"
        assert written <= (count if count > CURSORS[target] else 0), function.name


@pytest.mark.parametrize("target", DISASSEMBLED)
def test_an_emulated_processor_walks_each_chain_in_its_own_arc(named: dict[Target, Path], target: Target) -> None:
    lines, turns = 32 * 8, 5
    elf, order = Elf(named[target]), [line * 77 % lines for line in range(lines)]
    links = [0] * lines
    for line, after in zip(order, [*order[1:], order[0]], strict=True):
        links[line] = after
    for count, function, _ in chain_loops(named, target):
        arc = lines // count
        starts = [order[arc * chain] for chain in range(count)]
        ends, loaded, written = emulate_chains(elf, function, links, starts, turns)
        assert ends == [order[arc * chain + turns] for chain in range(count)]
        assert loaded == [order[arc * chain + turn] for turn in range(turns) for chain in range(count)], "in turns"
        assert written == 0


@pytest.mark.parametrize(("target", "width"), SHAPES)
def test_a_volume_is_moved_by_regular_stores_and_nothing_else(
    named: dict[Target, Path], target: Target, width: str
) -> None:
    for name, read in (("fill_doubles", 0), ("triad_doubles", 2)):
        instructions = code_of(named, target, name, f"streams_{width}.c")
        assert not [
            str(instruction)
            for instruction in instructions
            if instruction.mnemonic in CALLS or "rep" in instruction.mnemonic
        ]
        moved = [body for body in loops(instructions) if vector_loop(body, WIDTHS[target][width])]
        assert moved
        for body in moved:
            moves = [instruction for instruction in body if instruction.access != Access(0, 0, ())]
            assert not [str(move) for move in moves if on_stack(move)]
            assert not [str(move) for move in moves if STORES_PAST_THE_CACHE.fullmatch(move.mnemonic)]
            written = sum(move.access.written_bytes for move in moves)
            assert written > 0
            assert written % LINE_BYTES == 0
            assert sum(move.access.read_bytes for move in moves) == read * written
