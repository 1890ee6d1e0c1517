# SPDX-License-Identifier: Apache-2.0
"""Arguments are understood whole before anything is touched, on machines of any size."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from calibration.sutprobe.document import read_document
from tests.probe.conftest import Finished, Probe
from tests.tools import require, require_two

REQUIRED = {
    "latency": {"--at": "0@0", "--size-bytes": "4096"},
    "bandwidth": {"--group": "0@0", "--mix": "reads", "--buffer-bytes": "65536"},
    "loaded": {"--probe": "0@0", "--load": "1@0", "--probe-size-bytes": "65536", "--buffer-bytes": "65536"},
    "volume": {"--group": "0@0", "--array-bytes": "65536"},
    "c2c": {"--pair": "0@1"},
    "jitter": {"--cpus": "0"},
    "wakeup": {"--cpus": "0"},
    "firmware": {"--cpus": "0"},
    "frequency": {"--cpus": "0"},
    "burn": {"--group": "0@0:2097152"},
    "counters": {},
    "info": {},
}
"""For each subcommand a command line that is understood."""

NONSENSE = ("", "-1", "x", "nan", "1,,2", "0x10", " 1", "9" * 5000)
"""Values that no option takes."""

LITTLE_MEMORY = "--as=8000000"
"""Address space in which the program starts, and no buffer of any size can be made."""


@dataclass(frozen=True)
class Option:
    """One option as ``--help`` lists it."""

    name: str
    takes_value: bool
    may_repeat: bool


def options_of(native: Path, subcommand: str) -> list[Option]:
    said = subprocess.run([native, subcommand, "--help"], capture_output=True, text=True, check=True, timeout=20).stderr
    found = re.findall(r"^  (--\S+)(.*)$", said, flags=re.MULTILINE)
    assert "][,...]" not in said
    return [Option(name, bool(rest.strip()), "several times" in rest) for name, rest in found]


def words(options: dict[str, str]) -> list[str]:
    return [word for pair in options.items() for word in pair]


def assert_refused(done: Finished, *named: str) -> None:
    assert done.code == 2, (done.stderr, named)
    assert done.document["error"]["code"] == "usage"
    assert any(item in done.document["error"]["message"] for item in named), (done.stderr, named)
    assert done.document["result"] is None


@pytest.fixture
def confined(native: Path) -> Probe:
    """The program if it cannot have a buffer: what it refuses there it refused without one."""
    return Probe(require("util-linux", "prlimit"), LITTLE_MEMORY, str(native))


def test_every_subcommand_is_here(native: Path) -> None:
    said = subprocess.run([native, "--help"], capture_output=True, text=True, check=True, timeout=20).stderr
    listed = re.findall(r"^  (\S+) ", said.split("SUBCOMMAND OPTIONS", 1)[1], flags=re.MULTILINE)
    assert set(listed) == REQUIRED.keys()


@pytest.mark.parametrize("subcommand", REQUIRED)
def test_rejects_nonsense_values_by_option(native: Path, confined: Probe, subcommand: str) -> None:
    options = options_of(native, subcommand)
    assert {"--deadline-s", *REQUIRED[subcommand]} <= {option.name for option in options}
    for option in options:
        others = words({name: value for name, value in REQUIRED[subcommand].items() if name != option.name})
        if not option.takes_value:
            assert_refused(confined(subcommand, *others, option.name, "true"), "'true'")
            continue
        for value in NONSENSE:
            assert_refused(confined(subcommand, *others, option.name, value), option.name, f"'{value[:20]}", "@")


@pytest.mark.parametrize("subcommand", REQUIRED)
def test_every_option_is_exact_given_once_and_with_its_value(native: Path, confined: Probe, subcommand: str) -> None:
    whole = words(REQUIRED[subcommand])
    for option in options_of(native, subcommand):
        short = option.name[:-1]
        assert_refused(confined(subcommand, *whole, short, "1"), f"'{short}'")
        if option.takes_value:
            others = words({name: value for name, value in REQUIRED[subcommand].items() if name != option.name})
            assert_refused(confined(subcommand, *others, option.name), option.name)
        if not option.may_repeat:
            value = [REQUIRED[subcommand].get(option.name, "1")] if option.takes_value else []
            # a value that is wrong is found first, under the same name
            assert_refused(confined(subcommand, *whole, option.name, *value, option.name, *value), option.name)
    assert_refused(confined(subcommand, *whole, "extra"), "'extra'")
    for name in REQUIRED[subcommand]:
        others = words({other: value for other, value in REQUIRED[subcommand].items() if other != name})
        assert_refused(confined(subcommand, *others), name)


@pytest.mark.parametrize("subcommand", ["latency", "bandwidth", "loaded", "counters"])
@pytest.mark.parametrize(("event", "found"), [
    ("dram.reads", "'dram.reads'"),
    ("=cpu/config=0x1/", "a name of 1 to 40"),
    (f"{'a' * 41}=cpu/config=0x1/", "a name of 1 to 40"),
    ("Dram=cpu/config=0x1/", "a name of 1 to 40"),
    ("a=/config=0x1/", "a PMU of"),
    ("a=../config=0x1/", "a PMU of"),
    (f"a={'p' * 64}/config=0x1/", "a PMU of"),
    ("a=cpu//", "'' in"),
    ("a=cpu/config=0x1", "a / behind them"),
    ("a=cpu/config=1/", "'config=1' in"),
    ("a=cpu/config=0x/", "'config=0x' in"),
    ("a=cpu/config=0x1g/", "'config=0x1g' in"),
    (f"a=cpu/config=0x{'1' * 17}/", "up to 16 digits"),
    ("a=cpu/config=-0x1/", "'config=-0x1' in"),
    ("a=cpu/config=0x1,config=0x1/", "each once"),
    ("a=cpu/config4=0x1/", "'config4=0x1' in"),
    ("a=cpu/event=0x3c/", "'event=0x3c' in"),
    ("a=cpu/config=0x1,group=64/", "group=0 to 63"),
    ("a=cpu/config=0x1,group=/", "'group=' in"),
    ("a=cpu/config=0x1,group=1x/", "'group=1x' in"),
    ("a=cpu/config=0x1,user,user/", "each once"),
    ("a=cpu/config=0x1,users/", "'users' in"),
    ("a=cpu/config=0x1,/", "'' in"),
    ("a=cpu/config=0x1/@", "a list of CPUs"),
    ("a=cpu/config=0x1/@1-", "a list of CPUs"),
    ("a=cpu/config=0x1/x", "only @CPULIST"),
    ("probe.a=cpu/config=0x1/@0", "without CPUs"),
])  # fmt: skip
def test_rejects_a_malformed_event(confined: Probe, subcommand: str, event: str, found: str) -> None:
    assert_refused(confined(subcommand, *words(REQUIRED[subcommand]), "--event", event), found)


@pytest.mark.parametrize("subcommand", ["latency", "bandwidth", "counters"])
def test_rejects_events_of_probes_outside_loaded(confined: Probe, subcommand: str) -> None:
    done = confined(subcommand, *words(REQUIRED[subcommand]), "--event", "probe.a=cpu/config=0x1/")
    assert_refused(done, "only in loaded")


WRONG_SAMPLES = ("", "pebs", "pebs=", "pebs=cpu", "pebs=cpu/", "pebs=cpu/period=1000", "perf=cpu/period=1000/",
    "pebs=../period=1000/", "pebs=cpu/period=0/", "pebs=cpu/period=0x10/", "pebs=cpu/period=1000,/",
    "pebs=cpu/period=1000/@0",
    "pebs=cpu/period=1000,period=1000/", "pebs=cpu/config=1,period=1000/", "pebs=cpu/config=0x,period=1000/",
    "pebs=cpu/config=0x1/", "pebs=cpu/config=0x11111111111111111,period=1/", "pebs=cpu/event=0x1,period=1/",
    "ibs=ibs_op/period=1000/", "spe=arm_spe_0/period=99999999999999999999/", "pebs=/period=1/",
)  # fmt: skip


@pytest.mark.parametrize("sample", WRONG_SAMPLES)
def test_rejects_a_malformed_sample(confined: Probe, sample: str) -> None:
    for subcommand in ("latency", "bandwidth", "loaded"):
        assert_refused(confined(subcommand, *words(REQUIRED[subcommand]), "--sample", sample), "--sample")


CPU, SIZE, MIX, BUFFER = ("--at", "0@0"), ("--size-bytes", "4096"), ("--mix", "reads"), ("--buffer-bytes", "65536")
GROUP = ("bandwidth", "--group", "0@0")
PAIRS = ("c2c", "--all-pairs", "0-1")
LOADED = ("loaded", "--probe-size-bytes", "4096", *BUFFER)
ARRAY = ("volume", "--group", "0@0", "--array-bytes", "4096")
LONG = ("--size-bytes", "98304")
LINE_READS = "--mix line_reads: needs --streams 1"


@pytest.mark.parametrize(("arguments", "message"), [
    ((), "subcommand"),
    (("latenc",), "latenc"),
    (("latency", *CPU, *SIZE, "--payload-bytes", "60"), "--payload-bytes"),
    (("latency", *CPU, *SIZE, "--deadline-s", "0"), "--deadline-s: must be more than 0, not 0"),
    (("latency", "--at", "0", *SIZE), "CPUS@NODE"),
    (("latency", "--at", "0-1@0", *SIZE), "CPU@NODE"),
    (("latency", "--at", "0@0+0", *SIZE), "0@0+0"),
    (("latency", "--at", "0@0+", *SIZE), "0@0+"),
    (("latency", "--at", "0@0:", *SIZE), "0@0:"),
    (("latency", "--at", "0@0:32", *SIZE), "--size-bytes"),
    (("latency", "--at", "0@0:4096", "--size-bytes", "4096,8192"), "--at"),
    (("latency", "--at", "0@0:4096", *SIZE, "--together"), "--at"),
    (("latency", *CPU, *CPU, *SIZE, "--together"), "CPU 0"),
    (("latency", *CPU, *SIZE, "--keep-awake", "0@0"), "CPU 0"),
    (("latency", *CPU, *LONG, "--chains", "33"), "--chains"),
    (("latency", *CPU, *LONG, "--chains", "0"), "--chains"),
    (("latency", *CPU, *LONG, "--chains", ",".join(["2"] * 17)), "--chains: must be at most 16 numbers, not 17"),
    (("latency", *CPU, *LONG, "--chains", "2", "--together"), "--chains: cannot be combined"),
    (("latency", *CPU, *LONG, "--chains", "2", "--payload-bytes", "8"), "--chains: cannot be combined"),
    (("latency", *CPU, *LONG, "--chains", "2", "--stride-bytes", "8"), "--chains: cannot be combined"),
    (("latency", *CPU, "--size-bytes", "98240", "--chains", "2"), "--chains: needs a --size-bytes of at least 1536"),
    (("latency", "--at", "0@0:98240", *LONG, "--chains", "2"), "--chains: needs a size in --at of at least 1536"),
    ((*GROUP, "--mix", "random_reads", "--streams", "1", "--buffer-bytes", "65536,12288"),
     "--mix random_reads: needs arrays of a power of two of bytes, not 12288"),
    *(
        (("bandwidth", "--group", f"0@{place}", *MIX, *BUFFER), f"of several nodes such as 0-3@0*3,1*1: '0@{place}'")
        for place in ("0*3", "0*3,1", "0,1*1", "0*0,1*1", "0*256,1*1", "0*1,0*1", "0*1,", "0*x,1*1", "0*1*1,1*1")
    ),
    ((*LOADED, "--probe", "0@0", "--load", "1@0*3,1*1"), "not CPUS@NODE such as 0-3@0: '1@0*3,1*1'"),
    (("bandwidth", "--group", "0@0:12288", "--mix", "random_reads", "--streams", "1", *BUFFER),
     "--mix random_reads: needs arrays of a power of two of bytes, not 12288"),
    ((*GROUP, "--mix", "random_reads", *BUFFER), "--mix random_reads: needs --streams 1"),
    (("latency", *CPU, *SIZE, "--keep-awake", "1@0", "--keep-awake", "1@0"), "CPU 1"),
    (("latency", *CPU, *SIZE, "--line-bytes", "48"), "--line-bytes"),
    (("latency", *CPU, *SIZE, "--order", "random,sideways"), "--order"),
    (("latency", *CPU, "--size-bytes", "64", "--stride-bytes", "128"), "--size-bytes"),
    ((*GROUP, "--mix", "reads,read", *BUFFER), "--mix"),
    (("bandwidth", "--group", "0@0+0@0", *MIX, *BUFFER), "CPU 0"),
    ((*GROUP, *MIX, *BUFFER, "--streams", "3"), "--streams"),
    ((*GROUP, *MIX, *BUFFER, "--prefetch-bytes", "63"), "--prefetch-bytes: must be a multiple of 64, not 63"),
    ((*GROUP, *MIX, *BUFFER, "--window-s", "0"), "--window-s"),
    ((*GROUP, *MIX, "--buffer-bytes", "65536,65537"), "65537"),
    ((*GROUP, *MIX, "--buffer-bytes", "0"), "--buffer-bytes"),
    *(
        (("bandwidth", "--group", f"0@0:{size}", *MIX, *BUFFER), f"'0@0:{size}'")
        for size in ("", "4097", "x", "4096:4096")
    ),
    *(
        (command, LINE_READS)
        for wrong in (("--streams", "2"), ("--streams", "1", "--prefetch-bytes", "64"), ())
        for command in (
            (*GROUP, "--mix", "reads,line_reads", *BUFFER, *wrong),
            (*LOADED, "--probe", "0@0", "--load", "1@0", "--mix", "line_reads", *wrong),
        )
    ),
    *(
        ((*GROUP, "--mix", "reads,1:1", *BUFFER, "--streams", "1,2", "--only", wrong), "--only")
        for wrong in ("4", "1,1", "2,1", "0,4", "x", "")
    ),
    ((*GROUP, *MIX, *BUFFER, "--keep-best", "1", "--only", "0"), "--only: not with --keep-best"),
    ((*LOADED, "--probe", "0@0", "--load", "1@0", "--share-percent", "50"), "--share-percent: only with --choose"),
    ((*LOADED, "--probe", "0@0", "--load", "0@0"), "CPU 0"),
    ((*LOADED, "--probe", "0@0", "--load", "1@0", "--delay-ns", "100", "--delay", "100"), "--delay-ns"),
    ((*LOADED, "--probe", "0@0", "--load", "1@0", "--mix", "reads,1:1", "--mix-delay", "0,1,2"), "3 delays for"),
    ((*LOADED, "--probe", "0@0", "--load", "1@0", "--mix", "reads,1:1,reads"), "reads is given twice"),
    ((*LOADED, "--probe", "0@0", "--load", "1@0", "--shape", "1:1=4/0/t0/0/vector"), "--shape"),
    ((*LOADED, "--probe", "0@0", "--load", "1@0", "--shape", "reads=3/0/t0/0/vector"), "--streams"),
    ((*LOADED, "--probe", "0@0", "--load", "1@0", "--stride-bytes", "8192"), "--probe-size-bytes"),
    ((*ARRAY[:-1], "4097"), "--array-bytes: must be a multiple of 4096, not 4097"),
    ((*ARRAY, "--passes", "51"), "--passes"),
    ((*ARRAY, "--passes", "0"), "--passes"),
    ((*ARRAY, "--event", "a=cpu/"), "--event"),
    ((*ARRAY, "--event", "probe.a=cpu/config=0x1/"), "only in loaded"),
    (("c2c",), "--pair or --all-pairs"),
    (("c2c", "--pair", "0@0", "--home", "0"), "two CPUs"),
    (("c2c", "--pair", "0-1@2"), "one CPU on each side"),
    (("c2c", "--pair", "1"), "two CPUs"),
    *(
        (("c2c", "--pair", f"0@1{own}"), f"'0@1{own}'")
        for own in (":", ":x", ":-1", ":1024", ":0:", ":0:dirty", ":0:hit:", ":0:hit:0")
    ),
    (("c2c", "--all-pairs", "5"), "two CPUs"),
    (("c2c", "--pair", "0@1", "--matrix-pairs", "1"), "--matrix-pairs"),
    ((*PAIRS, "--matrix-pairs", "1,1,1"), "--matrix-pairs"),
    *(
        ((*wrong, "--matrix-budget-s", "1"), "--matrix-budget-s: must be with --all-pairs alone")
        for wrong in (("c2c", "--pair", "0@1"), (*PAIRS, "--pair", "0@1"), (*PAIRS, "--matrix-pairs", "1"))
    ),
    (("c2c", "--all-pairs", "0-1:2000"), "the home must be"),
    (("c2c", "--all-pairs", "0-1:writer:dirty"), "hit or hitm"),
    ((*PAIRS, "--home", "me"), "--home"),
    ((*PAIRS[:-1], "0-1:0:hit", "--method", "pingpong"), "no state"),
    ((*PAIRS[:-1], "0-1:0", "--all-pairs", "0@1:1"), "CPUs 0 and 1 appear with two"),
    (("jitter", "--cpus", "0", "--threshold-ns", "0"), "--threshold-ns"),
    (("jitter", "--cpus", "0", "--fifo", "100"), "--fifo"),
    (("jitter", "--cpus", "0", "--view", "pma", "--attribute"), "--attribute"),
    (("firmware", "--cpus", "0", "--width-us", "100000"), "--width-us"),
    (("firmware", "--cpus", "0", "--seconds", "0"), "--seconds"),
    (("frequency", "--cpus", "0", "--alone-cpus", "0,1"), "--alone-cpus: CPU 1"),
    (("frequency", "--cpus", "0", "--together", "0,1"), "--together: CPU 1"),
    (("frequency", "--cpus", "0,1", "--together", "0", "--together", "1"), "more CPUs than that before"),
    (("frequency", "--cpus", "0", "--work", "mmx"), "--work"),
    (("frequency", "--cpus", "0", "--active", "some"), "--active"),
    (("frequency", "--cpus", "0", "--window-s", "0"), "--window-s"),
    (("frequency", "--cpus", ""), "list of CPUs"),
    (("burn", "--group", "0@0"), "--group: not CPUS@NODE:BYTES"),
    (("burn", "--group", "0@0:1048576"), "--group: not CPUS@NODE:BYTES, whole 2 MiB"),
    (("burn", "--group", "0:2097152"), "not CPUS@NODE"),
    (("burn", "--group", "0@0:2097152", "--seconds", "0"), "--seconds"),
    (("info", "extra"), "extra"),
])  # fmt: skip
def test_rejects_wrong_usage(probe: Probe, arguments: tuple[str, ...], message: str) -> None:
    done = probe(*arguments)
    assert_refused(done, message)
    assert message in done.stderr
    read_document(done.document)


EVERY_OTHER = ",".join(str(cpu) for cpu in range(1, 4096, 2))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("latency", "--at", "4095@1023", "--size-bytes", "4096"), "cpu_offline"),
        (("latency", "--at", "{cpu}@1023", "--size-bytes", "4096"), "bind_failed"),
        (("bandwidth", "--group", "0-4095@1023", "--mix", "reads", "--buffer-bytes", "65536"), "bind_failed"),
        (("bandwidth", "--group", f"{EVERY_OTHER}@1023", "--mix", "reads", "--buffer-bytes", "65536"), "bind_failed"),
        (("bandwidth", "--group", "{cpu}@{node}+4000-4095@{node}", "--mix", "reads", "--buffer-bytes", "65536"),
         "cpu_offline"),
        (("loaded", "--probe", "4095@1023", "--load", "0-4094@1022", "--mix", "reads", "--delay", "0",
          "--probe-size-bytes", "65536", "--buffer-bytes", "65536"), "bind_failed"),
        (("c2c", "--pair", "4094@4095", "--home", "1023"), "cpu_offline"),
        (("c2c", "--pair", "{cpu}@4095", "--home", "1023"), "cpu_offline"),
        (("jitter", "--cpus", "4000-4095"), "cpu_offline"),
        (("firmware", "--cpus", "4000-4095"), "cpu_offline"),
        (("frequency", "--cpus", "4000-4095"), "cpu_offline"),
        (("burn", "--group", "4000-4095@{node}:2097152"), "cpu_offline"),
        (("burn", "--group", "{cpu}@1023:2097152"), "bind_failed"),
        (("frequency", "--cpus", EVERY_OTHER.removeprefix("1,")), "cpu_offline"),
    ],
)  # fmt: skip
def test_large_machines_are_understood(probe: Probe, cpus: list[int], arguments: tuple[str, ...], code: str) -> None:
    """4096 CPUs and 1024 nodes are no usage error: what this machine has not is said to be missing here."""
    if cpus[-1] >= 3000:
        pytest.skip("this machine has thousands of CPUs")
    node = next(path.name.removeprefix("node") for path in Path("/sys/devices/system/node").glob("node[0-9]*"))
    done = probe(*(word.format(cpu=cpus[0], node=node) for word in arguments))
    assert done.code == 3, done.stderr
    assert done.document["error"]["code"] == code, done.stderr
    assert {"4095", "1023"} & set(re.findall(r"\d+", str(done.document["parameters"])))


def everywhere(lines: dict[str, str], directory: Path) -> Iterator[str]:
    """Yield shell commands that lay files of these contents over those of the machine, for one process alone."""
    for number, (path, line) in enumerate(lines.items()):
        file = directory / f"line{number}"
        file.write_text(line + "\n", encoding="ascii")
        yield f"mount --bind {file} {path}"


@pytest.mark.parametrize(("asked", "code"), [("4095", "pin_failed"), ("4094", "cpu_offline")])
def test_a_long_list_of_cpus_is_read_whole(
    native: Path, tmp_path: Path, cpus: list[int], asked: str, code: str
) -> None:
    """A machine of 4096 CPUs, every other offline, lists them in ten thousand characters; the last one counts too."""
    if cpus[-1] >= 3000:
        pytest.skip("this machine has thousands of CPUs")
    laid = " && ".join(everywhere({"/sys/devices/system/cpu/online": f"0,{EVERY_OTHER}"}, tmp_path))
    command = [require("util-linux", "unshare"), "--mount", "--map-root-user", "/bin/sh", "-c"]
    if subprocess.run([*command, laid], capture_output=True, check=False, timeout=20).returncode != 0:
        pytest.skip("no permission: unshare and mount")
    done = Probe(*command, f'{laid} && exec "$0" "$@"', str(native))("jitter", "--cpus", asked, "--gap-s", "0.1")
    assert done.code == 3
    assert done.document["error"]["code"] == code
    assert asked in done.document["error"]["message"]


TOO_MUCH = str(1 << 37)


@pytest.mark.parametrize("pages", ["auto", "thp", "base", "hugetlb"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("latency", "--at", "{cpu}@{node}", "--size-bytes", TOO_MUCH, "--stride-bytes", "512"),
        ("bandwidth", "--group", "{cpu}@{node}", "--mix", "triad", "--buffer-bytes", TOO_MUCH),
        ("burn", "--group", f"{{cpu}}@{{node}}:{TOO_MUCH}"),
        ("loaded", "--probe", "{cpu}@{node}", "--load", "{other}@{node}", "--mix", "reads", "--delay", "0",
         "--probe-size-bytes", TOO_MUCH, "--buffer-bytes", "65536"),
        ("loaded", "--probe", "{cpu}@{node}", "--load", "{other}@{node}", "--mix", "reads", "--delay", "0",
         "--probe-size-bytes", "65536", "--buffer-bytes", TOO_MUCH),
    ],
    ids=["latency", "bandwidth", "burn", "loaded-probe", "loaded-load"],
)  # fmt: skip
def test_memory_is_asked_for_before_it_is_taken(
    probe: Probe, cpus: list[int], arguments: tuple[str, ...], pages: str
) -> None:
    """What no node holds is refused with what was asked and what there is, not tried until the process is killed."""
    if arguments[0] == "loaded":
        require_two(cpus)
    node = next(path.name.removeprefix("node") for path in Path("/sys/devices/system/node").glob("node[0-9]*"))
    names = {"cpu": cpus[0], "other": cpus[-1], "node": node}
    done = probe(*(word.format(**names) for word in arguments), "--pages", pages)
    assert done.code == 3, done.stderr
    error = done.document["error"]
    assert error["code"] == "no_memory"
    asked_of_node = r"needs (\d+) (?:MiB|hugetlb pages of (\d+) KiB) on node \d+, \d+( MiB)? available"
    found = re.search(asked_of_node, error["message"])
    assert found, error["message"]
    asked_mib = int(found[1]) * int(found[2] or 1024) // 1024
    assert int(TOO_MUCH) >> 20 <= asked_mib <= (int(TOO_MUCH) >> 20) * 3 + 4
