# SPDX-License-Identifier: Apache-2.0
"""Reads the functions of a built sutprobe: an ELF file with its symbols, and the instructions of its loops."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import capstone
from capstone import arm64_const, x86_const

SYMTAB, LOAD = 2, 1
FUNCTION, FILE = 2, 4
ACCESS_READ, ACCESS_WRITE = 1, 2
X86_64, AARCH64 = 62, 183
UPDATES = {"add", "sub", "inc", "dec", "and", "or", "xor"}


@dataclass(frozen=True)
class Function:
    """One function: the source file and the name that the linker kept, and its bytes."""

    file: str
    name: str
    address: int
    code: bytes


class Elf:
    """A static 64-bit little-endian ELF file."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        assert self.data[:6] == b"\x7fELF\x02\x01", f"{path} is no 64-bit little-endian ELF file"
        self.machine = struct.unpack_from("<H", self.data, 18)[0]

    def segments(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield address, file offset, bytes in the file and bytes in memory of everything that is loaded."""
        offset, size, count = self._header(32, 54)
        for index in range(count):
            kind, _, start, address, _, stored, held = struct.unpack_from("<IIQQQQQ", self.data, offset + index * size)
            if kind == LOAD:
                yield address, start, stored, held

    def bytes_at(self, address: int, count: int) -> bytes:
        """Return what is loaded at *address*."""
        for start, offset, stored, _ in self.segments():
            if start <= address and address + count <= start + stored:
                return self.data[offset + address - start : offset + address - start + count]
        raise ValueError(f"no {count} bytes are loaded at {address:#x}")

    def functions(self) -> list[Function]:
        """Return all functions of the table of symbols, local ones with the file that they are of."""
        offset, size, count = self._header(40, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", self.data, offset + index * size) for index in range(count)]
        found = []
        for _, kind, _, _, start, length, link, _, _, _ in sections:
            if kind != SYMTAB:
                continue
            names = sections[link][4]
            file = ""
            for at in range(start, start + length, 24):
                name_at, info, _, _, value, extent = struct.unpack_from("<IBBHQQ", self.data, at)
                end = self.data.index(b"\0", names + name_at)
                name = self.data[names + name_at : end].decode()
                if info & 15 == FILE:
                    file = name
                elif info & 15 == FUNCTION and extent:
                    found.append(Function(file if info >> 4 == 0 else "", name, value, self.bytes_at(value, extent)))
        return found

    def _header(self, offset_at: int, size_at: int) -> tuple[int, int, int]:
        (offset,) = struct.unpack_from("<Q", self.data, offset_at)
        size, count = struct.unpack_from("<HH", self.data, size_at)
        return offset, size, count


@dataclass(frozen=True)
class Access:
    """What one instruction does with memory: bytes read and written, and through which registers."""

    read_bytes: int
    written_bytes: int
    registers: tuple[str, ...]


@dataclass(frozen=True)
class Instruction:
    """One instruction as the tests look at it."""

    address: int
    mnemonic: str
    operands: str
    access: Access
    target: int | None

    def __str__(self) -> str:
        return f"{self.address:x}: {self.mnemonic} {self.operands}"


def disassemble(function: Function, machine: int) -> list[Instruction]:
    """Return the instructions of *function*, all of them: bytes that are none are an error."""
    if machine == X86_64:
        engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    else:
        engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    engine.detail = True
    raw = list(engine.disasm(function.code, function.address))
    done = sum(item.size for item in raw)
    assert done == len(function.code), f"{function.name}: {done} of {len(function.code)} bytes are code"
    return [read_instruction(item, machine) for item in raw]


def read_instruction(instruction: Any, machine: int) -> Instruction:
    """Return what the tests look at of an instruction of capstone's."""
    jump = instruction.group(capstone.CS_GRP_JUMP)
    immediate = x86_const.X86_OP_IMM if machine == X86_64 else arm64_const.ARM64_OP_IMM
    targets = [operand.imm for operand in instruction.operands if operand.type == immediate] if jump else []
    access = _x86_access(instruction) if machine == X86_64 else _arm_access(instruction)
    return Instruction(
        instruction.address, instruction.mnemonic, instruction.op_str, access, targets[-1] if targets else None
    )


def _x86_access(instruction: Any) -> Access:
    read = written = 0
    registers: list[str] = []
    if instruction.mnemonic.startswith(("prefetch", "lea", "nop", "clflush")):
        return Access(0, 0, ())
    for operand in instruction.operands:
        if operand.type != x86_const.X86_OP_MEM:
            continue
        registers += [instruction.reg_name(reg) for reg in (operand.mem.base, operand.mem.index) if reg]
        stores = instruction.mnemonic.startswith(("mov", "vmov")) and operand is instruction.operands[0]
        # An operation on memory reads and writes it; a move to memory writes it; all else reads it.
        if stores:
            written += operand.size
        else:
            read += operand.size
            if operand is instruction.operands[0] and instruction.mnemonic in UPDATES:
                written += operand.size
    if instruction.mnemonic.startswith(("push", "call")):
        written, registers = written + 8, [*registers, "rsp"]
    if instruction.mnemonic.startswith(("pop", "ret")):
        read, registers = read + 8, [*registers, "rsp"]
    return Access(read, written, tuple(registers))


ARM_BYTES = {"q": 16, "d": 8, "s": 4, "x": 8, "w": 4}


def _arm_access(instruction: Any) -> Access:
    name = instruction.mnemonic
    memory = [operand for operand in instruction.operands if operand.type == arm64_const.ARM64_OP_MEM]
    if not memory or name in {"prfm", "prfum"}:
        return Access(0, 0, ())
    registers = tuple(instruction.reg_name(reg) for reg in (memory[0].mem.base, memory[0].mem.index) if reg)
    moved = 0
    for operand in instruction.operands:
        if operand.type == arm64_const.ARM64_OP_REG:
            register = instruction.reg_name(operand.reg)
            moved += 16 if register[0] == "v" else ARM_BYTES.get(register[0], 8)
    writes = name.startswith("st")
    return Access(0 if writes else moved, moved if writes else 0, registers)


def loops(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Return the bodies of all loops, from the target of a jump back to that jump, in the order of their ends."""
    place = {instruction.address: index for index, instruction in enumerate(instructions)}
    return [
        list(instructions[place[instruction.target] : index + 1])
        for index, instruction in enumerate(instructions)
        if instruction.target is not None and instruction.target <= instruction.address and instruction.target in place
    ]


def innermost(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Return the bodies of those loops that hold no other."""
    found = loops(instructions)
    return [
        body
        for body in found
        if not any(
            other is not body and body[0].address <= other[0].address and other[-1].address <= body[-1].address
            for other in found
        )
    ]
