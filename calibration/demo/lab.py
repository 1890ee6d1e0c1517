# SPDX-License-Identifier: Apache-2.0
"""The lab of ``calibration demo``: ten testbeds, a month of nights, and what is planted in them."""

import csv
import gzip
import shutil
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np

from calibration.base.errors import InputError
from calibration.base.files import able_to, locked
from calibration.base.places import CACHE
from calibration.demo.nights import Change, MadeSut, Template, accept, write
from calibration.results.index import index_of
from calibration.results.model import RunDocument

Base = Literal["server", "lost_module"]
"""The documents that are varied: a server, and the same with one memory module that its firmware does not find."""

BASES: Final[tuple[Base, ...]] = get_args(Base)

DOCUMENTS: Final = Path(__file__).parent

PARTIAL: Final = ".partial"
"""Folder of a lab that is being written."""

FIRST_NIGHT: Final = date(2026, 6, 1)
NIGHTS: Final = 30

ACCEPTED: Final = 12
"""The night accepted as baseline: ten nights are needed for bounds, and thirteen for drift."""

BEFORE: Final = 15
"""Nights of the testbed with throughput before the first of the others: ``explain`` needs more than a month."""

SUTS: Final = (3, 1, 1, 2, 4, 2, 1, 2, 2, 2)
"""SUTs of each testbed: ``explain`` needs three where throughput is measured, and homogeneity where one fails."""

OTHER_PROCESSOR: Final = {"Demo Processor 8416": "Demo Processor 9116", "0x2b000603": "0xa101148"}
NEW_MICROCODE: Final = Change(NIGHTS - 1, texts={"0xa101148": "0xa101154"})
RENEWED_FROM: Final = 4
"""Testbeds after this one have the new microcode, if their processor has."""
NEW_BIOS: Final = {"demo-2.1": "demo-2.2"}

SLOWER_SINCE: Final = 0
"""The night from which a SUT has another BIOS, less throughput, and more latency, by less than its tolerance."""
THROUGHPUT: Final = "throughput.csv"
TESTS: Final = {"ip4-64b-2t1c": 12.4, "l2-64b-2t1c": 17.9}
"""Tests of the testbed with throughput, and their results in Mpps."""

EQUAL: Final = "equal.csv"
EQUAL_TESTS: Final = {"l2xcbase-64b-1c": 30.9, "ip4ipsec-64b-1c": 9.6}
"""Tests of the first SUT of every testbed with the other processor, and their results in Mpps."""

SLOW_MEMORY: Final = {'"configured_mt_s":4800': '"configured_mt_s":4400', "at 4800 MT/s": "at 4400 MT/s"}
SLOW_ALL_ALONG: Final = 0.966
"""Its part of the throughput of equal SUTs: as in FDio/csit#3997."""

IN_BANDS: Final = ("demo10", "sut1")
LOWER_NIGHTS: Final = frozenset({2, 3, 5, 8, 9, 13, 16, 17, 20, 22, 25, 26})
"""Nights on which a service did not turn off NUMA balancing, after the restart before each: two bands, as in
FDio/csit#1480."""
LOWER_BAND: Final = 0.93
BALANCING: Final = {
    on: {
        '"numa_balancing":null': f'"numa_balancing":{value}',
        '"NUMA balancing":"not known"': f'"NUMA balancing":"{word}"',
    }
    for on, value, word in ((False, 0, "off"), (True, 1, "on"))
}

SLOWER: Final = ("demo1", "sut2")
REPAIRED: Final = ("demo3", "sut1")
SLOW: Final = ("demo2", "sut1")
FAILING: Final = ("demo5", "sut2")
UNMEASURED: Final = ("demo7", "sut1")
NEW: Final = ("demo9", "sut2")

NODE_1: Final = "bandwidth_matrix.1.1.bandwidth_mb_s"
"""What a lost module slows down most."""

PLANTED: Final = {
    SLOWER: (Change(SLOWER_SINCE, factors={"idle_latency|latency_matrix": 1.027}, texts=NEW_BIOS),),
    REPAIRED: (Change(NIGHTS - 12, NIGHTS - 6, template="lost_module"),),
    FAILING: (Change(NIGHTS - 3, template="lost_module"),),
    SLOW: (Change(0, factors={".*bandwidth.*": 0.93, "idle_latency|latency_matrix": 1.04}, texts=SLOW_MEMORY),),
    IN_BANDS: tuple(Change(night, night + 1, texts=BALANCING[night in LOWER_NIGHTS]) for night in range(NIGHTS)),
}
"""What changes at a SUT."""


def suts() -> Iterator[MadeSut]:
    """Yield the SUTs of the lab: every other testbed has another processor, and most of those new microcode."""
    for number, count in enumerate(SUTS, 1):
        testbed, other = f"demo{number}", number % 2 == 0
        for name in [f"sut{place}" for place in range(1, count + 1)]:
            key = (testbed, name)
            nights = range(-BEFORE if testbed == SLOWER[0] else 0, NIGHTS - (key == UNMEASURED))
            changes = (*PLANTED.get(key, ()), *((NEW_MICROCODE,) if other and number > RENEWED_FROM else ()))
            texts = {"demo-sut": f"{testbed}-{name}", **(OTHER_PROCESSOR if other else {})}
            yield MadeSut(testbed, name, nights, None if key == NEW else ACCEPTED, changes, texts)


def write_demo(directory: Path) -> str:
    """Write the lab into *directory*: runs, baselines and throughput. Return how many.

    What is not finished stays in a hidden folder of *directory*, where no command looks for runs, and which the next
    start replaces. Raises ``InputError`` if *directory* is not empty, ``EnvironmentLacksError`` if it is not writable.
    """
    partial = directory / PARTIAL
    lab = list(suts())
    remedy = ". Give a directory that you may write, with 200 MB free"
    with able_to(f"write {directory}", remedy), locked(CACHE / "demo.lock"):
        if directory.exists() and (not directory.is_dir() or any(path != partial for path in directory.iterdir())):
            raise InputError(f"{directory} is not an empty directory")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            templates: dict[str, Template] = {base: Template(base_document(base)) for base in BASES}
            write(partial, lab, templates, FIRST_NIGHT)
            accept(partial, lab, FIRST_NIGHT, by="demo", reason="thirteen made nights")
            _write_throughput(partial, lab)
            for path in sorted(partial.iterdir()):
                path.rename(directory / path.name)
            shutil.rmtree(index_of(directory), ignore_errors=True)
            index_of(partial).rename(index_of(directory))  # of the runs just moved; to read them again takes longest
        finally:
            for folder in (partial, index_of(partial)):
                shutil.rmtree(folder, ignore_errors=True)
    return f"{len(SUTS)} testbeds, {len(lab)} SUTs, {sum(len(sut.nights) for sut in lab)} runs"


def base_document(base: Base) -> RunDocument:
    """Return the stored document of *base*."""
    return RunDocument.model_validate_json(gzip.decompress((DOCUMENTS / f"{base}.json.gz").read_bytes()))


def _write_throughput(directory: Path, lab: list[MadeSut]) -> None:
    """Write the results of two groups of SUTs: of a testbed, and of the first ones with the other processor."""
    testbed = [sut for sut in lab if sut.testbed == SLOWER[0]]
    equal = [sut for sut in lab if sut.name == "sut1" and sut.texts.keys() >= OTHER_PROCESSOR.keys()]
    for name, tests, suts in ((THROUGHPUT, TESTS, testbed), (EQUAL, EQUAL_TESTS, equal)):
        chance = np.random.default_rng(1)
        with (directory / name).open("w", encoding="utf-8", newline="") as stream:
            rows = csv.writer(stream, lineterminator="\n")
            rows.writerow(("sut", "test", "time", "value", "unit"))
            for sut in suts:
                for test, level in tests.items():
                    for night in sut.nights:
                        value = level * _slowness((sut.testbed, sut.name), night) * chance.normal(1, 0.002)
                        day = FIRST_NIGHT + timedelta(days=night)
                        rows.writerow((f"{sut.testbed}/{sut.name}", test, f"{day}T06:00:00Z", f"{value:.4f}", "Mpps"))


def _slowness(sut: tuple[str, str], night: int) -> float:
    """Return the part of its throughput that a SUT has on *night*."""
    if sut == SLOWER and night >= SLOWER_SINCE:
        return 0.95
    if sut == IN_BANDS and night in LOWER_NIGHTS:
        return LOWER_BAND
    return SLOW_ALL_ALONG if sut == SLOW else 1.0
