# SPDX-License-Identifier: Apache-2.0
"""Parameters with another effect than they say: in the audit, the preflight check, the page and on the screen."""

from typing import Any

import pytest

from calibration.audit.cpu_sets import check_cpus
from calibration.commands.context import summary
from calibration.context.loader import load
from calibration.context.model import Context
from calibration.preflight.cpus import check_isolation_kept
from calibration.report.machine import machine

CPU = "/sys/devices/system/cpu"
X86 = "processor : 0\nvendor_id : GenuineIntel\nflags : fpu lm\n"


def booted(make_root: Any, line: str, isolated: str | None, nohz_full: str | None, release: str = "6.12.1") -> Context:
    files = {f"{CPU}/{name}": "0-3\n" for name in ("online", "possible", "present")}
    files |= {"/proc/cmdline": f"{line}\n", "/proc/sys/kernel/osrelease": f"{release}\n", "/proc/cpuinfo": X86}
    for name, text in (("isolated", isolated), ("nohz_full", nohz_full)):
        if text is not None:
            files[f"{CPU}/{name}"] = text + "\n"
    return load(make_root(files))


KEPT = [
    # The command line, the kernel's files, and whether it keeps what was requested.
    ("nohz_full=all", "", "1-3", "met"),
    ("nohz_full=0-N", "", "1-3", "met"),
    ("nohz_full=0-2", "", "1-2", "met"),
    ("nohz_full=0-2", "", "0-2", "met"),  # a kernel without suspend to RAM
    ("nohz_full=1-3", "", "2-3", "not_met"),
    ("isolcpus=0-3", "1-3", "(null)", "met"),
    ("isolcpus=2-3", "2-3", "(null)", "met"),
    ("isolcpus=domain,2-3 isolcpus=managed_irq,2-3", "2-3", "(null)", "met"),
    ("isolcpus=2-3 isolcpus=1-2", "2-3", "(null)", "not_met"),
    ("isolcpus=0", "", "(null)", "not_met"),
    ("nohz_full=0", "", "", "met"),
    ("isolcpus=2-99", "", "(null)", "not_met"),
    ("isolcpus=all", "", "(null)", "not_met"),
    ("nohz_full=abc", "", "(null)", "not_met"),
    ("isolcpus=2-3 nohz_full=2-3", "2-3", None, "not_met"),
    ("isolcpus=2-3 nohz_full=2-3", None, None, "unknown"),
]


@pytest.mark.parametrize(("line", "isolated", "nohz_full", "outcome"), KEPT)
def test_what_the_kernel_keeps_of_its_command_line(make_root, line, isolated, nohz_full, outcome):
    context = booted(make_root, line, isolated, nohz_full)
    (finding,) = check_isolation_kept(context)
    assert finding.outcome == outcome, finding
    if outcome == "not_met":
        assert context.isolation.notes
        assert all(note in finding.found for note in context.isolation.notes_of("isolcpus", "nohz_full"))


def test_nothing_is_kept_where_nothing_is_requested(make_root):
    for line in ("quiet", "isolcpus=managed_irq,2-3", "nohz_full="):
        assert list(check_isolation_kept(booted(make_root, line, "", "(null)"))) == []


def test_a_list_beyond_the_last_cpu_is_not_met(make_root):
    context = booted(make_root, "isolcpus=2-99 nohz_full=2-99 rcu_nocbs=2-99", "", "(null)")
    for name, found in (("isolated_cpus", "none"), ("nohz_full", "none"), ("rcu_nocbs", "0-3")):
        finding = check_cpus(context, name, "2-3")
        assert (finding.outcome, finding.found.split(",")[0]) == ("not_met", found)
        assert "CPU 99 is beyond the last one, 3" in finding.found
    assert check_cpus(context, "rcu_nocbs", "0-3").outcome == "met"


def test_a_kernel_without_nohz_full_is_not_met_by_its_command_line(make_root):
    context = booted(make_root, "nohz_full=2-3 rcu_nocbs=2-3", "", None, "5.10.0-32-cloud-amd64")
    assert check_cpus(context, "nohz_full", "2-3")[2:] == ("this kernel has no nohz_full", "impossible")
    assert check_cpus(context, "nohz_full", "none")[2:] == ("none, this kernel has no nohz_full", "met")
    rcu = check_cpus(context, "rcu_nocbs", "2-3")
    assert rcu.outcome == "unknown"
    assert "; rcu_nocbs of CPUs 2-3: unknown; a kernel without nohz_full" in rcu.found


def test_the_command_line_alone_meets_nothing(make_root):
    context = booted(make_root, "isolcpus=2-3 nohz_full=2-3", None, None)
    assert check_cpus(context, "isolated_cpus", "2-3")[2:] == ("2-3, from the command line only", "unknown")
    assert check_cpus(context, "nohz_full", "2-3").outcome == "unknown"


def test_the_page_and_the_screen_say_what_differs(make_root):
    context = booted(make_root, "isolcpus=2-99 rcu_nocbs=2-99", "", "(null)")
    facts = {fact.name: fact.value for fact in machine(context, None)}
    assert facts["CPUs without RCU callbacks (rcu_nocbs)"] == "0-3 (by the command line)"
    assert facts["Kernel parameters with another effect"] == (
        "isolcpus=2-99: refused; CPU 99 is beyond the last one, 3. "
        "rcu_nocbs=2-99: 0-3; CPU 99 is beyond the last one, 3; this kernel then takes all CPUs"
    )
    assert facts["Kernel parameters with another effect"] in summary(context)
    plain = booted(make_root, "isolcpus=2-3", "2-3", "(null)")
    assert "Kernel parameters with another effect" not in {fact.name for fact in machine(plain, None)}
    unknown = booted(make_root, "rcu_nocbs=2-3", "", None)
    assert {fact.name: fact.value for fact in machine(unknown, None)}["CPUs without RCU callbacks (rcu_nocbs)"] is None


def test_cpus_kept_from_managed_interrupts_are_shown(make_root):
    context = booted(make_root, "isolcpus=managed_irq,domain,2-3", "2-3", "(null)")
    facts = {fact.name: fact.value for fact in machine(context, None)}
    assert facts["CPUs kept from managed interrupts (managed_irq)"] == "2-3"
    plain = booted(make_root, "isolcpus=2-3", "2-3", "(null)")
    assert "managed" not in summary(plain)
