# SPDX-License-Identifier: Apache-2.0
"""What a command asks for is what it takes: with that much it runs, with less it is refused, nothing is killed.

Each command runs in a control group with a memory limit, on each size of page. What it asks for is read from its
refusal; then the limit is moved to the boundary between running and being refused.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.probe.conftest import NOBODYS, Probe
from tests.suts import wait_until
from tests.tools import require, require_two, sweep

MIB: Final = 1 << 20
GIB: Final = 1 << 30

LITTLE: Final = 3 * MIB
"""A limit under which the program starts, and every command is refused."""

STEP: Final = MIB // 4
"""The kernel accounts for memory in batches, so what is available at one limit differs by a fraction of a MiB."""

TRIES: Final = 40

REFUSED: Final = re.compile(r"needs (\d+) MiB, (\d+) MiB available under the memory limit of control group (\S+);")

POOLS: Final = Path("/sys/kernel/mm/hugepages")
NODE_POOLS: Final = Path("/sys/devices/system/node/node0/hugepages")
THP_BYTES: Final = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"

RESERVED: Final = 72
"""Pages of 2 MiB that hold the buffers of any command here."""


class Kind(NamedTuple):
    """A kind of page that a machine may have, and what buffers of a few MiB must be made of then."""

    pages: str
    obtained: frozenset[str]
    thp_bytes: int = 0
    """Of transparent huge pages, if it is not the machine's own size."""
    default_kib: int = 0
    """Of the machine's default hugetlb pages, of which some are free."""
    reserved: int = 0
    """Pages of 2 MiB."""


KINDS: Final = {
    "base": Kind("base", frozenset({"base"})),
    "thp": Kind("thp", frozenset({"thp", "mixed", "base"})),
    "thp-512m": Kind("thp", frozenset({"base"}), thp_bytes=512 * MIB),
    "hugetlb-2m": Kind("hugetlb", frozenset({"hugetlb_2m"}), reserved=RESERVED),
    "default-1g": Kind("auto", frozenset({"thp", "mixed", "base"}), default_kib=GIB // 1024),
}

BUFFER: Final = str(8 * MIB)
LATENCY: Final = ("--size-bytes", str(24 * MIB), "--stride-bytes", "8", "--placements", "2", "--windows", "2", "--hops",
                  "64000")  # fmt: skip
"""The order of so many nodes takes half of what the buffer takes: more than what is asked for the program itself."""

COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "latency": ("latency", "--at", "{0}@0", *LATENCY),
    "latency-window": ("latency", "--at", "{0}@0", "--order", "window", "--window-bytes", "4096", *LATENCY),
    "latency-together": ("latency", "--at", "{0}@0", "--at", "{1}@0", "--together", *LATENCY),
    "latency-matrix": ("latency", "--at", "{0}@0", "--at", f"{{1}}@0:{10 * MIB}", *LATENCY),
    "latency-keep-awake": ("latency", "--at", "{0}@0", "--keep-awake", "{1}@0", *LATENCY),
    "latency-single": ("latency", "--at", "{0}@0", "--single-loads", "100000", *LATENCY),
    "latency-interleaved": ("latency", "--at", "{0}@0+1", *LATENCY),
    "bandwidth": ("bandwidth", "--group", "{0}@0+{1}@0", "--mix", "triad,reads", "--buffer-bytes", BUFFER,
                  "--placements", "2", "--windows", "2", "--window-s", "0.02"),
    "bandwidth-search": ("bandwidth", "--group", "{0}@0+{1}@0", "--mix", "copy", "--buffer-bytes", BUFFER, "--streams",
                         "1,4", "--keep-best", "1"),
    "loaded": ("loaded", "--probe", "{0}@0", "--load", "{1}@0", "--delay", "0,500", "--probe-size-bytes", str(96 * MIB),
               "--buffer-bytes", BUFFER, "--placements", "2", "--windows", "2", "--window-s", "0.02"),
    "burn": ("burn", "--group", f"{{0}},{{1}}@0:{BUFFER}", "--seconds", "0.3", "--windows", "2"),
    "c2c": ("c2c", "--pair", "{0}@{1}", "--lines", "65536", "--placements", "2", "--windows", "2"),
    "c2c-matrix": ("c2c", "--all-pairs", "{0},{1}", "--lines", "16384", "--placements", "3"),
    "volume": ("volume", "--group", "{0}@0+{1}@0", "--array-bytes", BUFFER, "--repeats", "2", "--passes", "2"),
}  # fmt: skip
"""Commands whose buffers are made of the pages that are asked for; ``{0}`` and ``{1}`` are CPUs."""

OFTEN: Final = "latency-window"
"""The command that is asked on every kind of page each time; the others are in a sweep."""

PAGELESS: Final[dict[str, tuple[str, ...]]] = {
    "frequency": ("frequency", "--cpus", "{0},{1}", "--windows", "2", "--window-s", "0.1", "--settle-s", "0",
                  "--active", "all"),
    "jitter": ("jitter", "--cpus", "{0},{1}", "--gap-s", "0.2", "--intervals", "500", "--executions", "10", "--loops",
               "100"),
    "jitter-full": ("jitter", "--cpus", "{0}", "--view", "gaps", "--gap-s", "0.5", "--threshold-ns", "1"),
    "wakeup": ("wakeup", "--cpus", "{0}", "--seconds", "0.2", "--loads", "none,memory,housekeeping", "--load-group",
               "{1}@0", "--housekeeping-cpus", "{1}", "--worst", "1000"),
    "counters": ("counters", "--duration-s", "0.1"),
    "info": ("info",),
}  # fmt: skip


Reserve = Callable[[int, int], None]


class Version(NamedTuple):
    """Where one version of control groups keeps what."""

    top: str
    limit: str
    events: str
    failed: str


VERSIONS: Final = (
    Version("memory", "memory.limit_in_bytes", "memory.oom_control", "memory.failcnt"),
    Version("", "memory.max", "memory.events", ""),
    Version("unified", "memory.max", "memory.events", ""),
)


@dataclass(frozen=True)
class Group:
    """A control group with a memory limit."""

    path: Path
    version: Version

    def limit(self, limit_bytes: int) -> None:
        """Set its limit."""
        (self.path / self.version.limit).write_text(str(limit_bytes), encoding="ascii")

    def killed(self) -> int:
        """Return how many processes of it the kernel has killed."""
        counts = dict(line.split() for line in (self.path / self.version.events).read_text("ascii").splitlines())
        return int(counts["oom_kill"])

    def failed(self) -> int:
        """Return how often the limit was reached."""
        if self.version.failed:
            return int((self.path / self.version.failed).read_text("ascii"))
        counts = dict(line.split() for line in (self.path / self.version.events).read_text("ascii").splitlines())
        return int(counts["max"])

    def run(self, laid: list[str], *command: str) -> "Outcome":
        """Run *command* in it, after the shell commands *laid* in a mount namespace of its own."""
        enter = f'echo $$ > {self.path / "cgroup.procs"} && exec "$0" "$@"'
        unshare = [require("util-linux", "unshare"), "--mount"] if laid else []
        words = [*unshare, "/bin/sh", "-c", " && ".join([*laid, enter]), *command]
        before = self.failed()
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
        assert self.killed() == 0, f"killed: {done.stderr}"
        assert done.returncode in (0, 3), done.stderr
        found = REFUSED.search(done.stdout)
        if found:
            assert '"code":"no_memory"' in done.stdout
            assert Path(found[3]) == self.path
        refused = (int(found[1]), int(found[2])) if found else None
        return Outcome(done.returncode, refused, self.failed() - before, done.stdout)


class Outcome(NamedTuple):
    """What one run came to."""

    code: int
    refused: tuple[int, int] | None
    """MiB that were asked for and available, also where only a part of the work was refused."""
    failed: int
    text: str


@pytest.fixture
def group() -> Iterator[Group]:
    """Give a control group whose memory can be limited."""
    for version in VERSIONS:
        top = Path("/sys/fs/cgroup") / version.top
        if not (top / "cgroup.procs").exists():
            continue
        path = top / f"sutprobe-{os.getpid()}"
        try:
            path.mkdir()
        except OSError:
            continue
        group = Group(path, version)
        try:
            group.limit(LITTLE)
        except OSError:
            path.rmdir()
            continue
        yield group
        for _ in range(100):  # the group is in use until the kernel has buried the last process in it
            with suppress(OSError):
                path.rmdir()
            if not path.exists():
                return
            time.sleep(0.05)
        pytest.fail(f"{path} cannot be removed")
    pytest.skip("no permission: a control group with a memory limit")


@pytest.fixture
def reserve() -> Iterator[Reserve]:
    """Reserve hugetlb pages of node 0 for one test, which must be the only one then: any other may take them."""
    before: dict[Path, str] = {}

    def reserve(kib: int, pages: int) -> None:
        pool = NODE_POOLS / f"hugepages-{kib}kB" / "nr_hugepages"
        if not pool.exists():
            pytest.skip(f"this machine has no pages of {kib} KiB")
        free = int(pool.with_name("free_hugepages").read_text("ascii"))
        before[pool] = pool.read_text("ascii")
        try:
            pool.write_text(str(int(before[pool]) + pages), encoding="ascii")
        except OSError as error:
            pytest.skip(f"no permission: {error}")
        if int(pool.with_name("free_hugepages").read_text("ascii")) < free + pages:
            pytest.skip(f"this machine has no memory for {pages} pages of {kib} KiB")

    yield reserve
    for pool, pages in before.items():
        pool.write_text(pages, encoding="ascii")


def simulated(kind: Kind, directory: Path) -> Iterator[str]:
    """Yield shell commands that lay what *kind* says over the machine's files, for one process alone."""
    files: dict[str, str] = {}
    if kind.thp_bytes:
        files[THP_BYTES] = f"{kind.thp_bytes}\n"
    if kind.default_kib:
        meminfo = Path("/proc/meminfo").read_text("ascii")
        files["/proc/meminfo"] = re.sub(r"(Hugepagesize: *)\d+", rf"\g<1>{kind.default_kib}", meminfo)
        for pools in (POOLS, NODE_POOLS):
            files[str(pools / f"hugepages-{kind.default_kib}kB" / "free_hugepages")] = "4\n"
    for number, (path, text) in enumerate(files.items()):
        if not Path(path).exists():
            pytest.skip(f"this machine has no {path}")
        file = directory / f"file{number}"
        file.write_text(text, encoding="ascii")
        yield f"mount --bind {file} {path}"


@dataclass(frozen=True)
class Walk:
    """Finds what commands of the native sutprobe ask for."""

    native: Path
    cpus: list[int]
    group: Group

    def __call__(self, words: tuple[str, ...], laid: list[str]) -> Outcome:
        """Return a run of a command with what it asks for: under a limit of a step less it is refused."""
        command = [str(self.native), *(word.format(self.cpus[0], self.cpus[-1]) for word in words)]
        limit, asked = LITTLE, 0
        ran: Outcome | None = None
        runs, refused = 0, 0
        for _ in range(TRIES):
            self.group.limit(limit)
            outcome = self.group.run(laid, *command)
            if outcome.refused is None:
                assert outcome.code == 0, outcome.text
                assert asked, "expected a refusal under a limit of a few MiB"
                assert outcome.failed == 0, f"reached its limit {outcome.failed} times"
                ran, runs = outcome, limit
            else:
                asked, available = outcome.refused
                assert available < asked
                refused = limit
            if ran and abs(runs - refused) <= STEP:
                sys.stdout.write(f"asks for {asked} MiB: runs under a limit of {runs // 1024} KiB, "
                                 f"refused under {refused // 1024} KiB: {' '.join(words)}\n")  # fmt: skip
                return ran
            if outcome.refused is None:
                limit -= STEP
            else:
                limit += STEP if ran else max(asked - available - 1, 1) * MIB
        pytest.fail(f"of {asked} MiB: ran under {runs // 1024} KiB, refused under {refused // 1024} KiB")


@pytest.fixture
def walk(native: Path, cpus: list[int], group: Group) -> Walk:
    """Give the walk along the boundary in a control group."""
    require_two(cpus)
    return Walk(native, cpus, group)


@pytest.mark.parametrize(
    ("name", "pages"),
    [
        pytest.param(name, pages, marks=() if pages == "base" or name == OFTEN else sweep)
        for name, pages in product(COMMANDS, KINDS)
    ],
)
def test_a_command_runs_within_its_demand(walk: Walk, tmp_path: Path, reserve: Reserve, name: str, pages: str) -> None:
    kind = KINDS[pages]
    if name == "latency-interleaved" and not Path("/sys/devices/system/node/node1").exists():
        pytest.skip("this machine has one node")
    if kind.reserved:
        reserve(2048, kind.reserved)
    ran = walk((*COMMANDS[name], "--pages", kind.pages), list(simulated(kind, tmp_path)))
    obtained = set(re.findall(r'"obtained":"(\w+)"', ran.text))
    assert obtained
    assert obtained <= kind.obtained


@pytest.mark.parametrize("name", PAGELESS)
def test_a_command_without_buffers_runs_within_its_demand(walk: Walk, name: str) -> None:
    walk(PAGELESS[name], [])


def test_hugetlb_pages_that_an_emulator_does_not_map_are_not_chosen(emulated_aarch64: Probe, reserve: Reserve) -> None:
    reserve(2048, RESERVED)
    words = ("latency", "--at", "0@0", "--size-bytes", "65536", "--placements", "1", "--windows", "1", "--hops", "640")
    done = emulated_aarch64(*words)
    assert done.code == 0, done.stderr
    (point,) = done.document["result"]["points"]
    assert point["placements"][0]["pages"]["obtained"] in {"base", "thp"}
    refused = emulated_aarch64(*words, "--pages", "hugetlb")
    assert refused.code == 3
    assert "mapping a hugetlb page of 2048 KiB: Invalid argument; use --pages auto" in refused.stderr


def test_a_buffer_that_fills_a_hugetlb_page_of_1_gib_is_made_of_one(walk: Walk, reserve: Reserve) -> None:
    reserve(GIB // 1024, 1)
    words = ("latency", "--at", "{0}@0", "--size-bytes", str(GIB), "--stride-bytes", "65536", "--placements", "1",
             "--windows", "1", "--hops", "64", "--pages", "hugetlb")  # fmt: skip
    ran = walk(words, [])
    assert set(re.findall(r'"obtained":"(\w+)"', ran.text)) == {"hugetlb_1g"}


def test_hugetlb_pages_are_of_the_size_asked_for(probe: Probe, cpus: list[int], reserve: Reserve) -> None:
    """Three chains in pages of their own: 2, 1 and 4 of 2 MiB. Where a size lacks pages the others are measured."""
    reserve(2048, 7)
    at = [word for size in (f":{4 * MIB}/4096", ":65536", "") for word in ("--at", f"{cpus[0]}@0{size}")]
    words = ("latency", *at, "--size-bytes", str(8 * MIB), "--placements", "2", "--windows", "1", "--hops", "640",
             "--pages", "base,hugetlb")  # fmt: skip
    done = probe(*words, "--hugetlb-bytes", f"{2 * MIB},{3 * MIB}")
    assert done.code == 0, done.stderr
    found = [
        (
            point["pages"],
            point["hugetlb_bytes"],
            {placement["pages"]["huge_bytes"] for placement in point["placements"]},
        )
        for point in done.document["result"]["points"][:6]
    ]
    assert found == [("base", None, {None})] * 3 + [("hugetlb", 2 * MIB, {2 * MIB})] * 3
    assert [point["error"]["code"] for point in done.document["result"]["points"][6:]] == ["no_memory"] * 3


@pytest.fixture
def few_tasks() -> Iterator[Path]:
    """Give a control group whose tasks can be limited."""
    for top in (Path("/sys/fs/cgroup", name) for name in ("pids", "", "unified")):
        path = top / f"sutprobe-{os.getpid()}-tasks"
        try:
            path.mkdir()
        except OSError:
            continue
        if (path / "pids.max").exists():
            yield path
            wait_until(lambda path=path: not (path / "cgroup.procs").read_text("ascii"))
            path.rmdir()
            return
        path.rmdir()
    pytest.skip("no permission: a control group with a limit of tasks")


def test_tasks_are_asked_for_under_the_limit_of_the_user(public: Path, cpus: list[int]) -> None:
    if os.geteuid() != 0:
        pytest.skip("no permission: a process of another user")
    require_two(cpus)
    words = [
        "--cpus", str(cpus[-1]), "--seconds", "0.2", "--loads", "housekeeping", "--housekeeping-cpus", str(cpus[0]),
    ]  # fmt: skip

    def run(most: int) -> dict[str, Any]:
        done = subprocess.run(
            [require("util-linux", "prlimit"), f"--nproc={most}:{most}", public, "wakeup", *words], capture_output=True,
            text=True, check=False, timeout=100, cwd="/", user=NOBODYS, group=NOBODYS, extra_groups=(),
        )  # fmt: skip
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    error = run(3)["error"]
    assert error["code"] == "unsupported"
    found = re.match(
        r"needs (\d+) threads and processes, (\d+) available under the limit of this user's processes, 3;",
        error["message"],
    )
    assert found is not None
    asked, available = int(found[1]), int(found[2])
    assert asked >= 3 > available
    assert run(3 + asked - available - 1)["error"]["code"] == "unsupported"
    (condition,) = run(3 + asked - available)["result"]["conditions"]
    assert condition["forks_per_s"] > 0


def test_tasks_are_asked_for_before_anything_is_measured(native: Path, cpus: list[int], few_tasks: Path) -> None:
    require_two(cpus)
    words = ["--cpus", str(cpus[-1]), "--seconds", "0.2", "--loads", "housekeeping"]
    enter = f'echo $$ > {few_tasks / "cgroup.procs"} && exec "$0" "$@"'

    def run(most: int) -> dict[str, Any]:
        (few_tasks / "pids.max").write_text(str(most), encoding="ascii")
        command = ["/bin/sh", "-c", enter, native, "wakeup", *words, "--housekeeping-cpus", str(cpus[0])]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    refused = run(3)["error"]
    assert refused["code"] == "unsupported"
    found = re.search(r"needs (\d+) threads and processes, (\d+) available under pids.max of control group (\S+);",
                      refused["message"])  # fmt: skip
    assert found is not None
    asked, available = int(found[1]), int(found[2])
    assert Path(found[3]) == few_tasks
    # Its measuring thread, the process of the load, and the one that this starts.
    assert asked >= 3
    assert run(3 + asked - available - 1)["error"]["code"] == "unsupported"
    events = (few_tasks / "pids.events").read_text("ascii")
    (condition,) = run(3 + asked - available)["result"]["conditions"]
    assert condition["forks_per_s"] > 0
    assert (few_tasks / "pids.events").read_text("ascii") == events
