# SPDX-License-Identifier: Apache-2.0
"""``sutprobe burn``: sound memory and arithmetic pass, and a bit that is flipped behind its back is found."""

import json
import os
import re
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.probe.conftest import Finished, Probe
from tests.suts import wait_until

MIB = 1 << 20
SIZE_BYTES = 32 * MIB
FACTORS = struct.pack("<4f", 209 / 128, 29 / 16, 391 / 256, 31 / 16)
"""What the vector arithmetic multiplies; ``work.h`` has it."""


class Burning:
    """A process that burns for minutes, and its memory while it stands still."""

    def __init__(self, native: Path, *words: str) -> None:
        command = [str(native), "burn", "--seconds", "300", "--pages", "base", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def mappings(self, least_bytes: int) -> list[tuple[int, int]]:
        """Return begin and end of what is mapped for writing, of so many bytes at least."""
        lines = Path(f"/proc/{self.process.pid}/maps").read_text().splitlines()
        found = [re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line) for line in lines]
        ends = [(int(match[1], 16), int(match[2], 16)) for match in found if match]
        return [(begin, end) for begin, end in ends if end - begin >= least_bytes]

    def loads(self) -> bool:
        """Return whether memory is filled and the load has used a second of processor time."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") > 1

    @contextmanager
    def stopped(self) -> Iterator[int]:
        """Stop all threads meanwhile, and give the file of their memory."""
        self.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: self.states() == {"T"})
        memory = os.open(f"/proc/{self.process.pid}/mem", os.O_RDWR)
        try:
            yield memory
        finally:
            os.close(memory)
            self.process.send_signal(signal.SIGCONT)

    def states(self) -> set[str]:
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks}

    def ended(self) -> Finished:
        """End it as an operator does, and return what it says."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=60)
        return Finished(self.process.returncode, json.loads(out), err)


@contextmanager
def burning(native: Path, *words: str) -> Iterator[Burning]:
    found = Burning(native, *words)
    try:
        wait_until(found.loads)
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
            found.process.communicate()


def sums(result: dict[str, Any], name: str) -> int:
    return sum(cpu[name] for cpu in result["cpus"])


def test_sound_memory_and_arithmetic_pass(probe: Probe, cpus: list[int]) -> None:
    both = ",".join(map(str, sorted({cpus[0], cpus[-1]})))
    done = probe(
        "burn",
        "--group",
        f"{both}@0:{SIZE_BYTES}",
        "--group",
        f"{cpus[0]}@0:{2 * MIB}",
        "--seconds",
        "1",
        "--windows",
        "4",
    )
    assert done.code == 0, done.stderr
    result = done.document["result"]
    assert result["stopped"] == "time"
    assert [cpu["cpu"] for cpu in result["cpus"]] == sorted({cpus[0], cpus[-1]})
    assert result["cpus"][0]["bytes"] == SIZE_BYTES + 2 * MIB
    assert len(result["windows"]) == 4
    for cpu in result["cpus"]:
        assert cpu["cpu_verified"]
        assert cpu["verified_bytes"] >= (cpu["passes"] + 1) * cpu["bytes"]  # and once more at the end
        assert cpu["blocks"] > 0
        assert cpu["highest_hz"] >= cpu["lowest_hz"] > 0
    assert [node["verified_bytes"] for node in result["nodes"]] == [sums(result, "verified_bytes")]
    for name in ("wrong_words", "wrong_bits", "wrong_sums", "wrong_lanes"):
        assert sums(result, name) == 0
    assert result["mismatches"] == []
    assert result["pages"]["on_node"] == result["pages"]["checked"] == result["pages"]["total"] > 0
    assert "DATA_WRONG" not in str(done.document["warnings"])


def test_every_byte_is_verified_however_short_the_load(probe: Probe, cpus: list[int]) -> None:
    done = probe("burn", "--group", f"{cpus[0]}@0:{4 * SIZE_BYTES}", "--seconds", "0.001", "--windows", "1")
    assert done.code == 0, done.stderr
    (cpu,) = done.document["result"]["cpus"]
    assert cpu["passes"] == 0
    assert 2 * cpu["bytes"] > cpu["verified_bytes"] > cpu["bytes"]


def test_flipped_bits_are_found_and_outlive_the_end(native: Path, cpus: list[int]) -> None:
    flips = {8 * 1001: 1 << 3, 8 * 70_007: 1 << 60, SIZE_BYTES - 8: 0b11}
    with burning(native, "--group", f"{cpus[0]}@0:{SIZE_BYTES}", "--listed", "2") as process:
        with process.stopped() as memory:
            (place, _), *more = process.mappings(SIZE_BYTES)
            assert not more
            values = {}
            for offset, bits in flips.items():
                (values[offset],) = struct.unpack("<Q", os.pread(memory, 8, place + offset))
                os.pwrite(memory, struct.pack("<Q", values[offset] ^ bits), place + offset)
        used_s = process_s(process.process.pid)
        wait_until(lambda: process_s(process.process.pid) > used_s + 2)
        done = process.ended()
    assert done.code == 4
    result = done.document["result"]
    (cpu,) = result["cpus"]
    assert result["stopped"] == "interrupted"
    assert (cpu["wrong_words"], cpu["wrong_bits"]) == (3, 4)
    assert [node["wrong_words"] for node in result["nodes"]] == [3]
    assert len(result["mismatches"]) == 2  # as many as are to be listed
    for found in result["mismatches"]:
        offset = found["offset_bytes"]
        assert (found["cpu"], found["node"]) == (cpus[0], 0)
        assert int(found["expected"], 16) == values[offset]
        assert int(found["found"], 16) == values[offset] ^ flips[offset]
        assert found["found_again"] == found["found"]
        assert abs(found["at_unix_ns"] / 1e9 - time.time()) < 600
        assert found["physical_address"] is None or int(found["physical_address"], 16) % 4096 == offset % 4096
    (warned,) = (warning for warning in done.document["warnings"] if warning["code"] == "DATA_WRONG")
    assert warned["message"] == "wrong: 3 words of memory, 0 results of arithmetic; found by 1 of 1 CPUs"
    assert warned["message"] in done.stderr


def process_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_wrong_arithmetic_is_found(native: Path, cpus: list[int]) -> None:
    flags = Path("/proc/cpuinfo").read_text().split()
    work = next((work for flag, work in (("avx2", "avx2"), ("asimd", "neon")) if flag in flags), None)
    if work is None:
        pytest.skip("this processor has no vector work")
    words = ("--group", f"{cpus[0]}@0:{2 * MIB}", "--work", work)
    with burning(native, *words) as process:
        with process.stopped() as memory:
            places = [
                begin + match.start()
                for begin, end in process.mappings(4096)
                if end - begin < SIZE_BYTES
                for match in re.finditer(re.escape(FACTORS), os.pread(memory, end - begin, begin))
                if begin + match.start() & 63 == 0
            ]
            assert places
            for place in places:
                os.pwrite(memory, struct.pack("<f", 1.5), place)
        used_s = process_s(process.process.pid)
        wait_until(lambda: process_s(process.process.pid) > used_s + 1)
        done = process.ended()
    (cpu,) = done.document["result"]["cpus"]
    assert cpu["wrong_lanes"] >= 1
    assert cpu["wrong_at_unix_ns"] > 0
    assert cpu["wrong_words"] == 0
    assert "DATA_WRONG" in str(done.document["warnings"])
