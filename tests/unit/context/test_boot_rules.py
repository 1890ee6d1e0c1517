# SPDX-License-Identifier: Apache-2.0
"""What the kernel makes of its command line: by its own files and threads first, then by the rules of its version.

What a guest of the version did is marked with the kernel's own message.
"""

from typing import Any

import pytest

from calibration.base.cpulists import format_cpulist
from calibration.context import boot_rules
from calibration.context.boot_rules import ALWAYS, RULES, behaviour, versions
from calibration.context.isolation import parse_kernel_list
from calibration.context.loader import load
from calibration.context.model import Isolation

CPU = "/sys/devices/system/cpu"

NEWEST = "7.3.4+deb13-amd64"


def machine(
    make_root: Any, line: str, release: str | None = NEWEST, cpus: str = "0-7", **files: str | None
) -> Isolation:
    """Return the isolation of a machine without files that tell it; *files* adds some by their names."""
    tree: dict[str, str] = {f"{CPU}/{name}": f"{cpus}\n" for name in ("online", "possible", "present")}
    tree |= {"/proc/cmdline": line + "\n", "/proc/cpuinfo": X86}
    if release is not None:
        tree["/proc/sys/kernel/osrelease"] = release + "\n"
    tree |= {f"{CPU}/{name}": text + "\n" for name, text in files.items() if text is not None}
    return load(make_root(tree)).isolation


def thread(number: int, name: str, state: str = "S (sleeping)") -> dict[str, str]:
    rows = f"Name:\t{name}\nState:\t{state}\nKthread:\t1\nCpus_allowed_list:\t0-1\n"
    return {f"/proc/{number}/task/{number}/status": rows}


X86 = "processor : 0\nvendor_id : GenuineIntel\nflags : fpu lm\n"

DOMAINS: list[tuple[str, dict[str, str]]] = [
    # A command line, and its isolated CPUs from a version on, until the next one.
    ("isolcpus=2-3 isolcpus=4-5", {"4.14": "4-5", "4.15": "2-3", "7.3": "2-3"}),
    ("isolcpus=domain,2 isolcpus=4", {"4.14": "4", "4.15": "2", "7.3": "2"}),
    ("isolcpus=4-5 nohz_full=4-5", {"4.14": "4-5", "7.3": "4-5"}),
    ("nohz_full=4-5 isolcpus=2-3", {"4.14": "2-3", "4.15": "", "5.17": "", "5.18": "2-3", "7.3": "2-3"}),
    ("isolcpus=managed_irq,domain,2-3", {"4.19": "", "5.5": "", "5.6": "2-3", "7.3": "2-3"}),
    ("isolcpus=managed_irq,2-3", {"5.6": "", "7.3": ""}),
    ("isolcpus=no_such,2-3", {"5.6": "", "5.7": "2-3", "7.3": "2-3"}),
    ("isolcpus=2-N", {"5.12": "", "5.13": "2-7", "7.3": "2-7"}),
    ("isolcpus=domain,2-9", {"4.15": "", "7.3": ""}),
    ("isolcpus=2-3,9", {"4.14": "2-3", "4.15": "", "7.3": ""}),
    ("isolcpus=0-7:2/4", {"4.8": "", "4.9": "0-1,4-5", "7.3": "0-1,4-5"}),
    ("isolcpus=0-7", {"4.14": "0-7", "4.15": "1-7", "7.3": "1-7"}),
    ("nohz_full=0-7 isolcpus=0-7", {"4.14": "0-7", "4.15": "", "5.1": "", "5.2": "1-7", "5.18": "1-7", "7.3": "1-7"}),
    ("isolcpus=managed_irq, isolcpus=2-3", {"6.9": "2-3", "7.3": "2-3"}),
    ("isolcpus=all", {"5.10": "", "6.1": "", "7.3": ""}),
    ("isolcpus=N", {"5.13": "", "7.3": ""}),
    ("isolcpus=domain", {"5.13": "", "7.3": ""}),
    ("isolcpus=", {"7.3": ""}),
    ("nohz_full=0-3 isolcpus=4-7", {"5.17": "", "5.18": "4-7", "6.18": "4-7", "6.19": "", "7.0": "4-7", "7.3": "4-7"}),
    ("nohz_full=2-3 isolcpus=nohz,domain,2-3", {"4.15": "2-3", "5.18": "2-3", "6.19": "2-3", "7.0": "", "7.3": ""}),
    ("isolcpus=nohz,domain,2-3 nohz_full=2-3", {"4.15": "2-3", "6.19": "2-3", "7.0": "2-3", "7.3": "2-3"}),
]


TICKLESS: list[tuple[str, dict[str, str]]] = [
    ("nohz_full=2-3", {"4.14": "2-3", "7.3": "2-3"}),
    ("nohz_full=2-3 nohz_full=4", {"4.14": "4", "4.15": "2-3", "7.3": "2-3"}),
    ("isolcpus=2-3 nohz_full=4-5", {"4.14": "4-5", "4.15": "", "5.17": "", "5.18": "4-5", "7.3": "4-5"}),
    ("isolcpus=nohz,domain,2-3", {"4.14": "", "4.15": "2-3", "7.3": "2-3"}),
    ("nohz_full=all", {"5.13": "", "5.14": "1-7", "7.3": "1-7"}),
    ("nohz-full=ALL", {"5.14": "1-7", "7.3": "1-7"}),
    ("nohz_full=0-3", {"4.14": "1-3", "7.3": "1-3"}),
    ("nohz_full=2-n", {"7.3": ""}),
    ("nohz_full", {"7.3": ""}),
    ("nohz_full=1-7:2/4", {"7.3": "1-2,5-6"}),
]


MANAGED: list[tuple[str, dict[str, str]]] = [
    # The same list adds its flag on all of them; another list only where each flag has a mask.
    ("isolcpus=domain,2-7 isolcpus=managed_irq,2-7", {"5.6": "2-7", "5.17": "2-7", "5.18": "2-7", "7.3": "2-7"}),
    ("isolcpus=domain,2-7 isolcpus=managed_irq,4-7", {"5.6": "", "5.17": "", "5.18": "4-7", "7.3": "4-7"}),
    # A repeated flag with another list takes its new flags along.
    ("isolcpus=domain,2 isolcpus=managed_irq,domain,3", {"5.6": "", "5.18": "", "7.3": ""}),
    ("isolcpus=managed_irq,2-9", {"7.3": ""}),
]


OFFLOADED: list[tuple[str, dict[str, str]]] = [
    ("rcu_nocbs=2-3", {"4.14": "2-3", "7.3": "2-3"}),
    ("rcu-nocbs=2-3", {"7.3": "2-3"}),
    ("rcu_nocbs=1 rcu_nocbs=2", {"4.14": "2", "7.3": "2"}),
    ("rcu_nocbs=2-3,99", {"4.19": "2-3", "5.1": "2-3", "5.2": "0-7", "7.3": "0-7"}),
    ("rcu_nocbs=2-99", {"4.19": "", "5.2": "0-7", "7.3": "0-7"}),
    ("rcu_nocbs=ALL", {"4.19": "", "5.1": "", "5.2": "0-7", "5.13": "0-7", "5.14": "0-7", "7.3": "0-7"}),
    ("rcu_nocbs=1 rcu_nocbs", {"5.16": "1", "5.17": "", "7.3": ""}),
    ("rcu_nocbs=", {"5.10": "", "7.3": ""}),
    ("rcu_nocbs=1 nohz_full=0-3", {"5.10": "1-3", "7.3": "1-3"}),
    ("rcu_nocbs=1 nohz_full=2-99", {"5.10": "1", "7.3": "1"}),
    ("rcu_nocbs=2-n", {"5.2": "0-7", "7.3": "0-7"}),
]


FIXED: list[tuple[str, dict[str, str]]] = [
    # ProbeBuild with masks of 512 CPUs whose file says that 2-7 are isolated: whether that follows from the line.
    ("isolcpus=2-99", {"4.14": "2-7", "4.15": "", "5.13": "", "5.14": "2-7", "6.0": "2-7", "6.1": ""}),
    ("isolcpus=managed_irq,domain,2-99", {"5.10": "", "5.13": "", "5.14": "2-7", "6.0": "2-7", "6.1": ""}),
]

BY_VERSION = [
    ("isolated", DOMAINS),
    ("nohz_full", TICKLESS),
    ("managed_irq", MANAGED),
    ("rcu_nocbs", OFFLOADED),
    ("fixed masks", FIXED),
]
CASES = [(what, line, by_version) for what, cases in BY_VERSION for line, by_version in cases]


def shown(make_root: Any, what: str, line: str, version: str) -> str | None:
    """Return *what* a kernel of *version* shows of *line*."""
    release = version + ".1"
    if what == "rcu_nocbs":  # of which the kernel has no file
        tickless = "(null)" if "nohz" not in line or "2-99" in line else "1-3"
        found = machine(make_root, line, release, isolated="", nohz_full=tickless)
        return format_cpulist(found.rcu_nocbs) if found.rcu_nocbs_source == "command line" else None
    if what == "fixed masks":
        found = machine(make_root, line, release, isolated="2-7", nohz_full="(null)", kernel_max="511")
        return "" if found.notes_of("isolcpus") else format_cpulist(found.isolated)
    return format_cpulist(getattr(machine(make_root, line, release), what))


@pytest.mark.parametrize(("what", "line", "by_version"), CASES, ids=[f"{what}: {line}" for what, line, _ in CASES])
def test_cpus_by_version(make_root, what, line, by_version):
    assert {version: shown(make_root, what, line, version) for version in by_version} == by_version


ELSEWHERE = ("rcu threads", "rcu all", "preempt", "mitigations", "tick", "empty")
"""Topics of threads, of notes and other files, and of kernels of one version that differ: the tests below have them."""
DATED = [rule for rule in RULES if rule.since != ALWAYS and rule.topic not in ELSEWHERE]
RELEASED = sorted({(major, minor) for major in (4, 5, 6, 7) for minor in range(21)} - {(5, 20), (6, 20)})


@pytest.mark.parametrize("rule", DATED, ids=[f"{rule.topic} {rule.since}" for rule in DATED])
@pytest.mark.parametrize("by", [-1, 1], ids=["earlier", "later"])
def test_a_rule_of_another_version_is_noticed(make_root, monkeypatch, rule, by):
    moved = rule._replace(since=RELEASED[RELEASED.index(rule.since) + by])
    others = [
        other
        for other in RULES
        if (other.topic, other.since) not in {(rule.topic, rule.since), (moved.topic, moved.since)}
    ]
    monkeypatch.setattr(boot_rules, "RULES", (*others, moved))
    version = "{}.{}".format(*min(rule.since, moved.since))
    cases = [(what, line, by_version[version]) for what, line, by_version in CASES if version in by_version]
    assert any(shown(make_root, what, line, version) != cpus for what, line, cpus in cases)


def test_fixed_masks_take_numbers_up_to_the_kernels_maximum(make_root):
    line = "rcu_nocbs=2-99"
    small = {"isolated": "", "nohz_full": "(null)", "kernel_max": "511"}
    unsure = machine(make_root, line, "5.10.1", **small)
    assert (unsure.rcu_nocbs_source, unsure.notes[-1].found) == (None, "unknown")
    assert machine(make_root, line, "6.1.1", **small).rcu_nocbs == tuple(range(8))
    # What the kernel isolates tells how it reads lists.
    told = machine(make_root, f"{line} isolcpus=managed_irq,domain,2-99", "5.15.1", **{**small, "isolated": "2-7"})
    assert (told.rcu_nocbs, told.rcu_nocbs_source, told.managed_irq) == (range_of(2, 7), "command line", range_of(2, 7))


def test_the_boot_cpu_always_keeps_its_tick_before_5_2(make_root):
    files = {"isolated": "", "nohz_full": "0-3"}
    assert "does not show why" in machine(make_root, "nohz_full=0-3", "5.1.1", **files).notes[-1].reason
    assert machine(make_root, "nohz_full=0-3", "5.2.1", **files).notes == ()


def test_a_refused_argument_has_no_other_note(make_root):
    notes = machine(make_root, "isolcpus=0-7 nohz_full=0-7", "5.1.1").notes
    assert [note.sentence.split(";")[0] for note in notes] == ["isolcpus=0-7: 1-7", "nohz_full=0-7: refused"]


def test_all_is_a_list_of_rcu_nocbs_from_5_2_on(make_root):
    files = {"isolated": "", "nohz_full": "(null)"}
    assert machine(make_root, "rcu_nocbs=all", "5.1.1", **files).notes_of("rcu_nocbs") != ()
    assert machine(make_root, "rcu_nocbs=all", "5.2.1", **files).notes == ()


@pytest.mark.parametrize(("release", "isolated", "managed", "source"), [
    ("5.10.1", "", (), "kernel"),
    ("5.10.1", None, (), None),  # kernels of the version differ
    ("6.1.90", "2-3", (2, 3), "kernel"),
    ("6.9.1", None, (2, 3), "command line"),
])  # fmt: skip
def test_a_list_without_cpus_counts_until_6_9(make_root, release, isolated, managed, source):
    files = {} if isolated is None else {"isolated": isolated, "nohz_full": "(null)"}
    found = machine(make_root, "isolcpus=managed_irq,domain, isolcpus=managed_irq,domain,2-3", release, **files)
    assert (found.managed_irq, found.isolated_source) == (managed, source)


def range_of(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


def test_kernels_that_take_from_later_ones_are_judged_by_their_files(make_root):
    assert versions("4.18.0-553.el8_10.x86_64")[-1] == (4, 18)
    assert len(versions("4.18.0-553.el8_10.x86_64")) > 3
    line = "isolcpus=managed_irq,domain,2-3"
    told = machine(make_root, line, "4.18.0-553.el8_10.x86_64", isolated="2-3", nohz_full="(null)")
    assert (told.managed_irq, told.isolated_source) == ((2, 3), "kernel")
    unsure = machine(make_root, "isolcpus=domain,2-7 isolcpus=managed_irq,4-7", "5.14.0-427.el9.x86_64", isolated="2-7")
    assert unsure.managed_irq == ()
    assert any(note.found == "unknown" for note in unsure.notes)


def test_the_kernels_own_files_come_before_the_rules(make_root):
    found = machine(make_root, "isolcpus=2-3 nohz_full=2-3", isolated="2-3", nohz_full="(null)")
    assert (found.isolated, found.nohz_full, found.rcu_nocbs) == ((2, 3), (), ())
    (note,) = found.notes
    assert note.sentence == "nohz_full=2-3: none; so says the kernel's own file; the command line does not show why"
    quiet = machine(make_root, "isolcpus=2-3 nohz_full=2-3", isolated="2-3", nohz_full="2-3")
    assert quiet.notes == ()


def test_cpus_that_maxcpus_keeps_offline_do_not_count(make_root):
    # A guest of 6.1, 6.12 and 7.3 with four CPUs.
    line = "maxcpus=2 isolcpus=managed_irq,domain,0-1"
    found = machine(make_root, line, cpus="0-3", isolated="1", nohz_full="(null)")
    assert (found.isolated, found.managed_irq) == ((1,), (1,))
    assert found.notes_of("isolcpus") == ("isolcpus=managed_irq,domain,0-1: 1; the boot CPU, 0, stays outside",)


def test_a_kernel_without_nohz_full_has_no_tickless_cpus(make_root):
    found = machine(make_root, "isolcpus=2-3 nohz_full=2-3", "5.10.0-32-cloud-amd64", isolated="2-3")
    assert (found.nohz_full, found.rcu_nocbs, found.nohz_full_supported) == ((), (), False)
    assert (found.nohz_full_source, found.rcu_nocbs_source) == ("kernel", "command line")
    assert found.notes_of("nohz_full") == (
        "nohz_full=2-3: refused; this kernel is built without nohz_full (CONFIG_NO_HZ_FULL)",
    )
    # All flags of the argument are lost.
    both = machine(make_root, "isolcpus=nohz,domain,2-3", "5.10.0-32-cloud-amd64", isolated="")
    assert both.isolated == ()
    assert "without nohz_full" in both.notes[0].reason
    # Whether it has rcu_nocbs is then not known.
    own = machine(make_root, "nohz_full=2-3 rcu_nocbs=2-3", "5.10.0-32-cloud-amd64", isolated="")
    assert (own.rcu_nocbs_source, own.notes_of("rcu_nocbs")[0].split(";")[0]) == (
        None,
        "rcu_nocbs of CPUs 2-3: unknown",
    )
    # Where the kernel's files were not captured, it is not known whether it has nohz_full.
    unknown = machine(make_root, "nohz_full=2-3", NEWEST)
    assert (unknown.nohz_full, unknown.nohz_full_source, unknown.nohz_full_supported) == ((2, 3), "command line", None)


THREADS = {
    "of a kernel that has one for each offloaded CPU": ("5.10.1", {2: "S", 3: "R"}, (2, 3), "kernel"),
    "of a kernel that has one for every CPU": ("6.1.1", {0: "S", 1: "S", 2: "S", 3: "S"}, (2,), "command line"),
    "not parked yet": ("6.10.1", {0: "S", 1: "S", 2: "S", 3: "S"}, (2,), "command line"),
    "none parked, of the first kernel that does": ("6.11.1", {0: "S", 1: "S"}, (0, 1), "kernel"),
    "parked": (NEWEST, {0: "P (parked)", 1: "P (parked)", 2: "S (sleeping)", 3: "S"}, (2, 3), "kernel"),
    "none parked": (NEWEST, {0: "S", 1: "S"}, (0, 1), "kernel"),
    "none at all": ("6.1.1", {}, (), "kernel"),
}


@pytest.mark.parametrize(("release", "states", "cpus", "source"), THREADS.values(), ids=THREADS.keys())
def test_offloaded_cpus_have_threads(make_root, release, states, cpus, source):
    files = {
        f"{CPU}/online": "0-3\n", f"{CPU}/possible": "0-3\n", f"{CPU}/isolated": "\n", f"{CPU}/nohz_full": "(null)\n",
        "/proc/cmdline": "rcu_nocbs=2\n", "/proc/sys/kernel/osrelease": release + "\n", **thread(2, "kthreadd"),
    }  # fmt: skip
    for cpu, state in states.items():
        files |= thread(100 + cpu, f"rcuop/{cpu}", state)
    isolation = load(make_root(files)).isolation
    assert (isolation.rcu_nocbs, isolation.rcu_nocbs_source) == (cpus, source)
    assert bool(isolation.notes) == (cpus != (2,))
    assert isolation.threads is None


def test_threads_show_that_a_kernel_without_nohz_full_has_rcu_nocbs(make_root):
    files = {f"{CPU}/online": "0-3\n", f"{CPU}/possible": "0-3\n", f"{CPU}/isolated": "\n"}
    files |= {"/proc/cmdline": "nohz_full=1-3 rcu_nocbs=2\n", "/proc/sys/kernel/osrelease": "6.1.1\n"}
    for cpu in range(4):
        files |= thread(100 + cpu, f"rcuop/{cpu}", "S")
    isolation = load(make_root(files)).isolation
    assert (isolation.rcu_nocbs, isolation.rcu_nocbs_source) == ((2,), "command line")
    assert isolation.nohz_full_supported is False


def test_threads_of_a_container_say_nothing(make_root):
    files = {f"{CPU}/online": "0-3\n", f"{CPU}/isolated": "\n", f"{CPU}/nohz_full": "2\n", **thread(1, "sleep")}
    isolation = load(make_root({**files, "/proc/cmdline": "nohz_full=2\n"})).isolation
    assert (isolation.rcu_nocbs, isolation.rcu_nocbs_source) == ((2,), "command line")


def test_default_affinity_of_interrupts_is_the_kernels(make_root):
    files = {f"{CPU}/{name}": "0-3\n" for name in ("online", "possible")}
    line = {"/proc/cmdline": "irqaffinity=1,99\n"}
    by_rules = load(make_root({**files, **line})).isolation
    assert (by_rules.irqaffinity, by_rules.notes_of("irqaffinity")[0].split(";")[0]) == (
        (0, 1),
        "irqaffinity=1,99: 0-1",
    )
    own = load(make_root({**files, **line, "/proc/irq/default_smp_affinity": "8\n"})).isolation
    assert own.irqaffinity == (3,)
    assert load(make_root({**files, "/proc/cmdline": "quiet\n"})).isolation.irqaffinity is None


PREEMPT: list[tuple[str, str, str | None, str, str | None]] = [
    # The command line, the kernel's version text, its file, the model in use, and the note.
    ("preempt=none", "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1", "full (lazy) ", "lazy", "preempt=none: lazy; so says"),
    ("preempt=full", "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1", "(full) lazy ", "full", None),
    ("preempt=none", "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1", None, "chosen at boot (PREEMPT_DYNAMIC)",
     "preempt=none: unknown; kernels from 7.0 on"),
    ("preempt=full", "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1", None, "chosen at boot (PREEMPT_DYNAMIC)", None),
    ("quiet", "#1 SMP PREEMPT_RT Debian 6.12.117-1", "full (lazy) laziest ", "real-time, lazy", None),
    ("quiet", "#1 SMP PREEMPT RT Debian 4.19.289-2 (2023-08-08)", None, "real-time", None),
    ("preempt=none", "#1 SMP PREEMPT_RT Debian 6.12.117-1", None, "real-time", "preempt=none: real-time; so says"),
    ("preempt=full", "#1 SMP PREEMPT_RT Debian 6.12.117-1", "(full) lazy ", "real-time, full", None),
    ("quiet", "#1 SMP Debian 5.10.223-1", None, "voluntary or none", None),
]  # fmt: skip


@pytest.mark.parametrize("case", PREEMPT)
def test_preemption_is_what_the_kernel_chose(make_root, case):
    line, version, file, model, note = case
    files = {
        f"{CPU}/online": "0-3\n",
        "/proc/cmdline": line + "\n",
        "/proc/sys/kernel/osrelease": NEWEST + "\n",
        "/proc/sys/kernel/version": version + "\n",
    }
    if file is not None:
        files["/sys/kernel/debug/sched/preempt"] = file + "\n"
    context = load(make_root(files))
    assert context.kernel.preemption == model
    assert [item[: len(note or "")] for item in context.isolation.notes_of("preempt")] == ([note] if note else [])


@pytest.mark.parametrize(("asked", "release", "unknown"), [
    ("none", "6.19.6", False),
    ("none", "7.0.1", True),
    ("lazy", "6.12.1", True),
    ("lazy", "6.13.1", False),
    ("lazy", "7.0.1", False),
    ("rt", "6.13.1", True),
])  # fmt: skip
def test_words_of_preempt_by_version(make_root, asked, release, unknown):
    files = {f"{CPU}/online": "0-3\n", "/proc/cmdline": f"preempt={asked}\n"}
    files |= {
        "/proc/sys/kernel/osrelease": release + "\n",
        "/proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC Debian\n",
    }
    assert [note.found for note in load(make_root(files)).isolation.notes] == ["unknown"] * unknown


def test_the_banner_of_a_tree_without_the_kernel_s_own_files_has_release_and_version(make_root):
    version = "#45~22.04.1-Ubuntu SMP PREEMPT_RT Tue Mar 3"
    files = {
        f"{CPU}/online": "0-3\n",
        "/proc/version": f"Linux version 6.7.12 (build@host) (gcc (GCC) 13.2.0, GNU ld 2.41) {version}\n",
        "/proc/cpuinfo": "vendor_id : AuthenticAMD\n",
        "/sys/fs/resctrl/schemata": "MB:0=1024\n",
        f"{CPU}/cpufreq/boost": "1\n",
        f"{CPU}/cpufreq/policy0/affected_cpus": "0-3\n",
        f"{CPU}/cpufreq/policy0/boost": "0\n",  # which says nothing in Linux 6.7
    }
    context = load(make_root(files))
    assert (context.capture.kernel_release, context.capture.kernel_version) == ("6.7.12", version)
    assert context.kernel.preemption == "real-time"
    assert context.frequency.turbo is True
    assert context.resctrl.groups[0].narrowed[0].whole == 2048


THP = "/sys/kernel/mm/transparent_hugepage"


@pytest.mark.parametrize(("enabled", "sizes", "mode", "words"), [
    ("[always] madvise never", {}, "always", "always"),
    # thp_anon=64K:always takes the pages of 2 MiB away, in guests of 6.12 and 7.3.
    ("[always] madvise never", {64: "always", 2048: "never"}, "never", "always, by size 64 KiB always, 2 MiB never"),
    ("always madvise [never]", {64: "never", 2048: "always"}, "always", "never, by size 2 MiB always"),
    ("always [madvise] never", {64: "never", 2048: "inherit"}, "madvise", "madvise"),
    ("always [madvise] never", {2048: "inherit", 64: "inherit"}, "madvise", "madvise, by size 64 KiB inherit"),
    (None, {}, None, None),
])  # fmt: skip
def test_the_largest_size_decides_what_pages_programs_get(make_root, enabled, sizes, mode, words):
    files = {f"{CPU}/online": "0-3\n"}
    if enabled:
        files[f"{THP}/enabled"] = enabled + "\n"
    for size, choice in sizes.items():
        text = "always inherit madvise never".replace(choice, f"[{choice}]")
        files[f"{THP}/hugepages-{size}kB/enabled"] = text + "\n"
    pages = load(make_root(files)).memory.transparent_hugepages
    assert (pages.mode, pages.words) == (mode, words)


@pytest.mark.parametrize("text", ["(null)", "", "\n"])
def test_files_without_cpus(text):
    assert parse_kernel_list(text) == ()


def test_rules_of_a_topic_do_not_repeat():
    assert len({(rule.topic, rule.since) for rule in RULES}) == len(RULES)
    assert behaviour("masks", (4, 14)) == "last"
    assert behaviour("masks", (9, 9)) == "once"
