# SPDX-License-Identifier: Apache-2.0
"""Runs sutprobe under a virtual clock: each read of the time-stamp counter traps and is answered here.

Work takes no virtual time, so values are exact whatever else the machine does. Every measuring thread has a clock of
its own, which its n-th read advances by ``steps(n)`` ticks. Supervising threads are as far as the slowest measuring
thread; while none runs, their sleeps advance the clock. Instructions executed between two reads can be counted.
"""

import ctypes
import json
import os
import re
import signal
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import capstone
import pytest

from tests.probe.binary import X86_64, Instruction, read_instruction
from tests.probe.conftest import refuse

PR_SET_TSC, PR_TSC_SIGSEGV = 26, 2
TRACEME, SINGLESTEP, GETREGS, SETREGS, TO_SYSCALL, SETOPTIONS = 0, 9, 12, 13, 24, 0x4200
TRACESYSGOOD, TRACECLONE, EXITKILL = 1, 8, 1 << 20
WALL: Final = 0x40000000
SYSCALL_STOP = signal.SIGTRAP | 0x80
AUXV_VDSO, AUXV_IGNORED = 33, 1
RDTSC, RDTSCP = b"\x0f\x31", b"\x0f\x01\xf9"
POLL, NANOSLEEP, FUTEX, CLOCK_GETTIME, PPOLL = 7, 35, 202, 228, 271
FUTEX_COMMAND, FUTEX_WAIT = 127, 0
MONOTONIC_RAW = 4

REGISTERS: Final = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs gs ds es f g"
)
RAX, RCX, RDX, RSI, RDI, SYSCALL, RIP, RSP = (
    REGISTERS.split().index(name) for name in ("rax", "rcx", "rdx", "rsi", "rdi", "orig_rax", "rip", "rsp")
)

TICKS_PER_NS = 3
"""Of the virtual counter against CLOCK_MONOTONIC_RAW: a value in the wrong one of the two is wrong by this factor."""

READ_COST = 60
"""Ticks between two reads of a supervising thread, which measures what a read costs."""

AHEAD = 100
"""Reads of a measuring thread while a supervising one has something to do; more than it needs to reach a barrier."""

LOOP = 8
"""Instructions executed at least so often between two reads are the work; the others lead to it."""

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
libc.ptrace.restype = ctypes.c_long


def ptrace(request: int, thread: int, address: int = 0, data: object = None) -> None:
    if libc.ptrace(request, thread, address, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request}")


def be_traced() -> None:
    os.setpgid(0, 0)
    ptrace(TRACEME, 0)
    if libc.prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl PR_SET_TSC")


@dataclass
class Thread:
    """One thread of the process."""

    measures: bool
    now: int
    running: bool = True
    """Not in a system call."""
    waits: bool = False
    """In a system call that waits for another thread."""
    steps_singly: bool = False
    reads: list[int] = field(default_factory=list)
    """Values of the counter that it read."""


class VirtualRun:
    """One run of a command under a virtual clock."""

    def __init__(self, *command: str, steps: Callable[[int], int], count: tuple[int, int] = (0, 0)) -> None:
        self.steps = steps
        self.places: Counter[int] = Counter()
        """How often measuring threads read the counter, by the address of the instruction."""
        self.count = count
        self.executions: Counter[int] = Counter()
        """How often each instruction was executed between the k-th read at *count*'s place and the next read."""
        self._now = 10**9  # of the supervising threads
        self._sleeper: tuple[int, int] | None = None  # a supervising thread, and when it wakes
        self._woken = False
        self._ahead: Counter[int] = Counter()  # reads of measuring threads meanwhile
        self._threads: dict[int, Thread] = {}
        self._code: dict[int, bytes] = {}
        self._regs = (ctypes.c_ulonglong * len(REGISTERS.split()))()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(command, stdout=out, stderr=err, preexec_fn=be_traced)  # noqa: PLW1509 - one thread
            self._main = process.pid
            try:
                process.returncode = self._trace()
            finally:
                if process.returncode is None:
                    process.kill()
            out.seek(0)
            err.seek(0)
            self.code, self.stdout, self.stderr = process.returncode, out.read().decode(), err.read().decode()

    def document(self) -> dict[str, Any]:
        """Return the document of a successful run on the time-stamp counter."""
        assert self.code == 0, self.stderr
        document: dict[str, Any] = json.loads(self.stdout, parse_constant=refuse)
        if document["clock"]["source"] != "tsc":
            pytest.skip(f"this machine has no trusted time-stamp counter: {document['clock']['reason']}")
        return document

    def reads(self) -> list[list[int]]:
        """Return the reads of each measuring thread, in the order in which the threads started."""
        return [thread.reads for thread in self._threads.values() if thread.measures]

    def places_of(self, reads: int) -> list[int]:
        """Return the places with so many reads, in the order of their first."""
        return [place for place, count in self.places.items() if count == reads]

    def executed(self, least: int = LOOP) -> list[tuple[Instruction, int]]:
        """Return the counted instructions that were executed at least *least* times, and how often."""
        engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        engine.detail = True
        return [
            (read_instruction(next(engine.disasm(self._code[at], at)), X86_64), count)
            for at, count in sorted(self.executions.items())
            if count >= least
        ]

    def vector_bytes(self) -> tuple[int, int]:
        """Return the bytes that the counted vector loads and vector stores moved."""
        moves = [
            (instruction.access, count)
            for instruction, count in self.executed()
            if re.search("[xyz]mm", instruction.operands)
        ]
        return sum(a.read_bytes * count for a, count in moves), sum(a.written_bytes * count for a, count in moves)

    def _trace(self) -> int:
        os.waitpid(self._main, WALL)  # the stop at its exec
        self._threads[self._main] = Thread(measures=False, now=0)
        ptrace(SETOPTIONS, self._main, 0, TRACESYSGOOD | TRACECLONE | EXITKILL)
        with Path(f"/proc/{self._main}/mem").open("r+b", buffering=0) as memory:
            self._memory = memory.fileno()
            self._hide_vdso()
            ptrace(TO_SYSCALL, self._main)
            while True:
                number, status = os.waitpid(-self._main, WALL)
                if os.WIFSTOPPED(status):
                    self._stopped(number, status)
                elif number == self._main:
                    return os.waitstatus_to_exitcode(status)
                else:
                    self._threads[number].running, self._threads[number].waits = False, True
                    self._release()
                self._wake()

    def _stopped(self, number: int, status: int) -> None:
        """Answer what a thread stopped for and resume it, unless it has to wait for others."""
        stopped_by = os.WSTOPSIG(status)
        if number not in self._threads:
            # main() starts the working thread, which starts the measuring ones.
            self._threads[number] = Thread(measures=len(self._threads) > 1, now=self._latest())
            self._go_on(number)
            return
        thread = self._threads[number]
        if not thread.measures:
            self._release()
        ptrace(GETREGS, number, 0, ctypes.addressof(self._regs))
        if stopped_by == signal.SIGTRAP:  # an instruction executed, or a thread created
            if thread.steps_singly:
                self._count()
            self._go_on(number)
        elif stopped_by == signal.SIGSEGV and self._code_at(self._regs[RIP]).startswith((RDTSC, RDTSCP)):
            self._answer_read(number, thread)
        elif stopped_by == SYSCALL_STOP:
            self._answer_syscall(number, thread)
        else:
            self._go_on(number, stopped_by)

    def _go_on(self, number: int, delivered: int = 0) -> None:
        ptrace(SINGLESTEP if self._threads[number].steps_singly else TO_SYSCALL, number, 0, delivered)

    def _answer_read(self, number: int, thread: Thread) -> None:
        regs, code = self._regs, self._code_at(self._regs[RIP])
        if thread.measures:
            thread.now = now = thread.now + self.steps(len(thread.reads))
            thread.reads.append(now)
            self.places[regs[RIP]] += 1
            thread.steps_singly = (regs[RIP], self.places[regs[RIP]]) == self.count
        else:
            now = self._supervising() + READ_COST
            self._now = now
        regs[RAX], regs[RDX] = now & 0xFFFFFFFF, now >> 32
        length = len(RDTSC)
        if code.startswith(RDTSCP):
            regs[RCX], length = 0, len(RDTSCP)
        regs[RIP] += length
        ptrace(SETREGS, number, 0, ctypes.addressof(regs))
        if thread.steps_singly:
            self._count()
        if thread.measures and self._due(now):
            self._ahead[number] += 1
        if self._ahead[number] <= AHEAD:
            self._go_on(number)

    def _count(self) -> None:
        """Count the instruction that is executed next."""
        at = self._regs[RIP]
        self._code_at(at)
        self.executions[at] += 1

    def _answer_syscall(self, number: int, thread: Thread) -> None:
        regs = self._regs
        thread.running = not thread.running
        waits_by_futex = regs[SYSCALL] == FUTEX and regs[RSI] & FUTEX_COMMAND == FUTEX_WAIT
        thread.waits = not thread.running and (waits_by_futex or regs[SYSCALL] == POLL)
        if not thread.running:
            wanted_at = {NANOSLEEP: regs[RDI], PPOLL: regs[RDX]}.get(regs[SYSCALL], 0)
            if wanted_at and not thread.measures:
                seconds, ns = struct.unpack("<qq", os.pread(self._memory, 16, wanted_at))
                os.pwrite(self._memory, bytes(16), wanted_at)
                self._sleeper = number, self._supervising() + (seconds * 10**9 + ns) * TICKS_PER_NS
                self._woken = False
                return
        elif self._sleeper and self._sleeper[0] == number:
            self._sleeper = None
        elif regs[SYSCALL] == FUTEX:
            thread.now = max(thread.now, self._latest())
        elif regs[SYSCALL] == CLOCK_GETTIME and regs[RDI] == MONOTONIC_RAW:
            now = thread.now if thread.measures else self._supervising()
            os.pwrite(self._memory, struct.pack("<qq", *divmod(now // TICKS_PER_NS, 10**9)), regs[RSI])
        self._go_on(number)

    def _running(self) -> list[int]:
        """Return the clocks of the running measuring threads, the slowest first."""
        return sorted(thread.now for thread in self._threads.values() if thread.measures and thread.running)

    def _supervising(self) -> int:
        self._now = max([self._now, *self._running()[:1]])
        return self._now

    def _latest(self) -> int:
        return max([self._now, *(thread.now for thread in self._threads.values() if thread.measures)])

    def _due(self, now: int) -> bool:
        """Whether a supervising thread has something to do at *now*, or is doing it."""
        acts = any(not thread.waits and not thread.measures for thread in self._threads.values())
        return now >= self._sleeper[1] if self._sleeper else acts

    def _wake(self) -> None:
        """Wake the sleeping supervising thread once every running measuring thread has reached its time."""
        if self._sleeper and not self._woken and all(now >= self._sleeper[1] for now in self._running()):
            number, self._now = self._sleeper
            self._woken = True
            self._go_on(number)

    def _release(self) -> None:
        """Resume the measuring threads that waited for a supervising thread to act."""
        if self._sleeper is None:
            for number in [key for key, reads in self._ahead.items() if reads > AHEAD]:
                self._go_on(number)
            self._ahead.clear()

    def _code_at(self, at: int) -> bytes:
        if at not in self._code:
            self._code[at] = os.pread(self._memory, 15, at)
        return self._code[at]

    def _hide_vdso(self) -> None:
        """Have clock_gettime enter the kernel, if it can be answered."""
        regs = self._regs
        ptrace(GETREGS, self._main, 0, ctypes.addressof(regs))
        at = regs[RSP] + 8
        for _ in ("arguments", "environment"):
            while struct.unpack("<Q", os.pread(self._memory, 8, at))[0]:
                at += 8
            at += 8
        while key := struct.unpack("<Q", os.pread(self._memory, 8, at))[0]:
            if key == AUXV_VDSO:
                os.pwrite(self._memory, struct.pack("<Q", AUXV_IGNORED), at)
            at += 16
