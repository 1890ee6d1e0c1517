# SPDX-License-Identifier: Apache-2.0
"""Tuning advice: given if its cause was traced, and not followed already."""

from pathlib import Path
from typing import Any

import pytest

from calibration.context import load
from calibration.context.model import CommandLine, Context, Parameter
from calibration.report.advice import MIN_EVENTS, MIN_SHARE, RULES, UNEXPLAINED_SHARE, advice
from tests.report.traced import cause, view

MACHINE = Path(__file__).parents[1] / "fixtures" / "context" / "x86_64-isolated.tar.gz"

ISOLATED, ORDINARY = 2, 0
"""CPUs of that machine: without ticks and RCU callbacks, and with both."""


@pytest.fixture(scope="module")
def context() -> Context:
    return load(MACHINE)


CASES = {
    "nohz_full=0": cause("timer", "hrtimer", "tick_nohz_handler"),
    "rcu_nocbs=0": cause("softirq", "RCU"),
    "rcu_normal_after_boot=1": cause("ipi", "function call", "rcu_exp_handler"),
    "boot with nowatchdog": cause("nmi", "perf_event_nmi_handler"),
    "raise vm.stat_interval": cause("work", "kworker/0:1", "vmstat_update", pid=41),
    "/sys/devices/virtual/workqueue/cpumask": cause("work", "kworker/u8:1", "wb_workfn", pid=42),
    "keep programs and devices that queue it": cause("work", "kworker/0:1", "lru_add_drain_per_cpu"),
    "Timers of programs expire on CPU 0 (posix_timer_fn)": cause("timer", "hrtimer", "posix_timer_fn"),
    "rps_cpus": cause("softirq", "NET_RX"),
    "isolcpus=domain,0": cause("task", "migration/0", pid=20),
    "mapping and unmapping": cause("ipi", "function call", "flush_tlb_func"),
    "membarrier, ipi_mb": cause("ipi", "function call", "ipi_mb"),
    "performance counters of CPU 0": cause("ipi", "function call", "__perf_event_read"),
    "model-specific registers of CPU 0": cause("ipi", "function call", "__rdmsr_safe_on_cpu"),
    "patches its code": cause("ipi", "function call", "do_sync_core"),
    "Move IRQ 36 (eth0-rx) away from CPU 0": cause("interrupt", "eth0-rx", irq=36),
    "Bind thread stress (77) to other CPUs": cause("task", "stress", pid=77),
    "Bind thread many to other CPUs": cause("task", "many"),
}
"""Words of each advice, and a cause that supports it."""

SILENT = {
    "a thread of the CPU itself": cause("task", "ksoftirqd/0", pid=15),
    "the interrupt of the timer": cause("timer", "local timer"),
    "another softirq": cause("softirq", "BLOCK"),
}


def test_every_rule_has_a_case() -> None:
    for number, rule in enumerate(RULES):
        assert any(rule.about(case) for case in CASES.values()), number


@pytest.mark.parametrize("words", CASES)
def test_a_cause_gets_its_advice(words: str, context: Context) -> None:
    (sentence,) = advice(ORDINARY, view(CASES[words]), context)
    assert words in sentence
    assert sentence.endswith("(20 % of the lost time).")


@pytest.mark.parametrize("words", CASES)
@pytest.mark.parametrize("changed", [{"share": MIN_SHARE * 0.9}, {"events": MIN_EVENTS - 1}, {"share": None}])
def test_rare_or_short_causes_get_no_advice(words: str, changed: dict[str, Any], context: Context) -> None:
    assert advice(ORDINARY, view(CASES[words].model_copy(update=changed)), context) == ()


@pytest.mark.parametrize("what", SILENT)
def test_causes_that_cannot_be_moved_get_no_advice(what: str, context: Context) -> None:
    assert advice(ORDINARY, view(SILENT[what]), context) == ()


@pytest.mark.parametrize("words", ["nohz_full=0", "rcu_nocbs=0", "isolcpus=domain,0"])
def test_settings_in_effect_are_not_advised(words: str, context: Context) -> None:
    assert ISOLATED in context.isolation.nohz_full
    assert advice(ISOLATED, view(CASES[words]), context) == ()
    assert len(advice(ISOLATED, view(CASES[words]), None)) == 1


@pytest.mark.parametrize(
    ("words", "option"),
    [("boot with nowatchdog", "nowatchdog"), ("rcu_normal_after_boot=1", "rcupdate.rcu_normal")],
)
def test_options_of_the_command_line_are_not_advised(words: str, option: str, context: Context) -> None:
    def booted(*names: str) -> Context:
        parameters = tuple(Parameter(name=name, value=None) for name in names)
        line = CommandLine(text=" ".join(names), parameters=parameters, init_arguments=())
        return context.model_copy(update={"cmdline": line})

    assert advice(ORDINARY, view(CASES[words]), booted(option)) == ()
    assert len(advice(ORDINARY, view(CASES[words]), booted("quiet"))) == 1
    assert len(advice(ORDINARY, view(CASES[words]), context.model_copy(update={"cmdline": None}))) == 1


def test_causes_with_one_remedy_share_an_advice_and_the_largest_comes_first(context: Context) -> None:
    both = view(
        cause("softirq", "RCU", share=0.006),
        cause("task", "rcuc/0", share=0.005),
        cause("interrupt", "nvme0q1", irq=40, share=0.3),
    )
    first, second = advice(ORDINARY, both, context)
    assert first.startswith("Move IRQ 40 (nvme0q1)")
    assert second == "CPU 0 runs RCU callbacks: boot with rcu_nocbs=0 (1 % of the lost time)."


@pytest.mark.parametrize(
    ("guest", "smi", "words"),
    [
        (True, None, "so the hypervisor took the CPU"),
        (False, 7, "and 7 system management interrupts occurred"),
        (False, 0, "system management interrupts did not occur"),
        (False, None, "system management interrupts were not counted"),
        (None, None, "check firmware and hypervisor"),
    ],
)
def test_unexplained_time_is_reported_from_its_threshold(
    guest: bool | None, smi: int | None, words: str, context: Context
) -> None:
    machine = context.model_copy(update={"virtualization": context.virtualization.model_copy(update={"guest": guest})})
    (sentence,) = advice(ORDINARY, view(unexplained=UNEXPLAINED_SHARE, smi=smi), machine)
    assert words in sentence
    assert advice(ORDINARY, view(unexplained=UNEXPLAINED_SHARE * 0.9, smi=smi), machine) == ()
