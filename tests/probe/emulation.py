# SPDX-License-Identifier: Apache-2.0
"""Runs one bandwidth kernel of a built binary on an emulated processor, and counts what it does with its arrays."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import unicorn
from unicorn import arm64_const, x86_const

from tests.probe.binary import X86_64, Elf, Function

PAGE = 4096
LINE = 64
STACK, STACK_BYTES = 0x7000_0000, 1 << 16
CALL = 0x7100_0000
ARRAYS, ARRAY_APART = 0x7200_0000, 1 << 20
END = 0x7300_0000
"""Where the kernel returns to: nothing is ever executed there."""

SIMD_ALLOWED = 3 << 20
"""CPACR_EL1.FPEN: no trap for vector instructions."""


@dataclass
class Counted:
    """Bytes that loads and stores moved, and how many different bytes of the arrays they touched."""

    read_bytes: int = 0
    written_bytes: int = 0
    touched_bytes: int = 0
    executed: int = 0
    """Instructions within *watched*."""


@dataclass(frozen=True)
class LineStore:
    """An instruction of *size* bytes that stores a whole line, at the address in the emulator's *register*."""

    address: int
    size: int
    register: int


@cache
def engine_of(elf: Elf) -> unicorn.Uc:
    """Return a processor with the program loaded, and with room for a stack, the arguments and the arrays."""
    if elf.machine == X86_64:
        engine = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
    else:
        engine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        engine.reg_write(arm64_const.UC_ARM64_REG_CPACR_EL1, SIMD_ALLOWED)
    for address, offset, stored, held in elf.segments():
        first, last = address // PAGE * PAGE, -(-(address + held) // PAGE) * PAGE
        engine.mem_map(first, last - first)
        engine.mem_write(address, elf.data[offset : offset + stored])
    for start, size in ((STACK, STACK_BYTES), (CALL, PAGE), (ARRAYS, 4 * ARRAY_APART), (END, PAGE)):
        engine.mem_map(start, size)
    return engine


def emulate_chains(
    elf: Elf, function: Function, links: list[int], starts: list[int], turns: int
) -> tuple[list[int], list[int], int]:
    """Run a loop of several chains over lines that link to *links*, by number, from lines *starts*.

    Return the lines where each is after *turns*, those that it loaded, and the bytes written outside of the stack.
    """
    x86, engine = elf.machine == X86_64, engine_of(elf)
    for line, link in enumerate(links):
        engine.mem_write(ARRAYS + 64 * line, struct.pack("<Q", 64 * link))
    engine.mem_write(CALL, struct.pack(f"<{len(starts)}Q", *(64 * line for line in starts)))
    loaded: list[int] = []
    written = 0

    def count(_engine: object, kind: int, address: int, size: int, _value: int, _data: object) -> None:
        nonlocal written
        if kind == unicorn.UC_MEM_WRITE:
            inside = STACK <= address < STACK + STACK_BYTES or CALL <= address < CALL + 8 * len(starts)
            written += 0 if inside else size
        elif ARRAYS <= address < ARRAYS + 64 * len(links):
            loaded.append((address - ARRAYS) // 64)

    hook = engine.hook_add(unicorn.UC_HOOK_MEM_READ | unicorn.UC_HOOK_MEM_WRITE, count)
    top = STACK + STACK_BYTES - PAGE
    arguments = (ARRAYS, CALL, turns)
    if x86:
        engine.mem_write(top - 8, struct.pack("<Q", END))
        engine.reg_write(x86_const.UC_X86_REG_RSP, top - 8)
        registers = (x86_const.UC_X86_REG_RDI, x86_const.UC_X86_REG_RSI, x86_const.UC_X86_REG_RDX)
    else:
        engine.reg_write(arm64_const.UC_ARM64_REG_SP, top)
        engine.reg_write(arm64_const.UC_ARM64_REG_X30, END)
        registers = (arm64_const.UC_ARM64_REG_X0, arm64_const.UC_ARM64_REG_X1, arm64_const.UC_ARM64_REG_X2)
    for register, value in zip(registers, arguments, strict=True):
        engine.reg_write(register, value)
    engine.emu_start(function.address, END)
    engine.hook_del(hook)
    ends = struct.unpack(f"<{len(starts)}Q", engine.mem_read(CALL, 8 * len(starts)))
    return [end // 64 for end in ends], loaded, written


def emulate(
    elf: Elf,
    function: Function,
    *,
    arrays: int,
    steps: int,
    passes: int,
    prefetch_bytes: int,
    delay: int,
    streams: int = 1,
    watched: tuple[int, int] | None = None,
    line_stores: Sequence[LineStore] = (),
) -> Counted:
    """Return what *function* does in *passes* of *steps* lines in each of *streams* of its *arrays* arrays.

    *line_stores* are carried out here, because the emulator lacks some and does not report others.

    *watched*: addresses of the first and last of the instructions whose executions are counted.
    """
    x86, engine = elf.machine == X86_64, engine_of(elf)
    # struct load_call: arrays, stream_bytes, offset, steps, passes, prefetch_bytes, delay, mark, carry, streams
    places = [ARRAYS + index * ARRAY_APART for index in range(3)]
    call = struct.pack("<12Q", *places, steps * 64, 0, steps, passes, prefetch_bytes, delay, 1, 0, streams)
    engine.mem_write(CALL, call)
    counted = Counted()
    touched: set[int] = set()

    def count(_engine: object, kind: int, address: int, size: int, _value: int, _data: object) -> None:
        if not ARRAYS <= address < ARRAYS + 4 * ARRAY_APART:
            return
        touched.update(range(address, address + size))
        if kind == unicorn.UC_MEM_WRITE:
            counted.written_bytes += size
        else:
            counted.read_bytes += size

    def count_executed(_engine: object, _address: int, _size: int, _data: object) -> None:
        counted.executed += 1

    stores = {store.address: store for store in line_stores}

    def store_line(engine: unicorn.Uc, address: int, _size: int, _data: object) -> None:
        to = engine.reg_read(stores[address].register)
        assert to % LINE == 0
        count(engine, unicorn.UC_MEM_WRITE, to, LINE, 0, None)
        counter = x86_const.UC_X86_REG_RIP if x86 else arm64_const.UC_ARM64_REG_PC
        engine.reg_write(counter, address + stores[address].size)

    hooks = [engine.hook_add(unicorn.UC_HOOK_MEM_READ | unicorn.UC_HOOK_MEM_WRITE, count)]
    hooks += [
        engine.hook_add(unicorn.UC_HOOK_CODE, store_line, begin=store.address, end=store.address)
        for store in line_stores
    ]
    if watched:
        hooks.append(engine.hook_add(unicorn.UC_HOOK_CODE, count_executed, begin=watched[0], end=watched[1]))
    top = STACK + STACK_BYTES - PAGE
    if x86:
        engine.mem_write(top - 8, struct.pack("<Q", END))
        engine.reg_write(x86_const.UC_X86_REG_RSP, top - 8)
        engine.reg_write(x86_const.UC_X86_REG_RDI, CALL)
    else:
        engine.reg_write(arm64_const.UC_ARM64_REG_SP, top)
        engine.reg_write(arm64_const.UC_ARM64_REG_X30, END)
        engine.reg_write(arm64_const.UC_ARM64_REG_X0, CALL)
    engine.emu_start(function.address, END)
    for hook in hooks:
        engine.hook_del(hook)
    counted.touched_bytes = len({byte for byte in touched if (byte - ARRAYS) // ARRAY_APART < arrays})
    assert counted.touched_bytes == len(touched), f"{function.name} touched memory beyond its {arrays} arrays"
    return counted
