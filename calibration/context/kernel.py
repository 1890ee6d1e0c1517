# SPDX-License-Identifier: Apache-2.0
"""Settings of the kernel, what it is built with, and the errors that it logged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from calibration.base.model import fault_of
from calibration.base.text import visible
from calibration.context.hardware import Bmc
from calibration.context.model import Kernel, KernelBuild, KernelLog
from calibration.context.tree import CAPTURE, Tree, count, integer

M = TypeVar("M", KernelBuild, KernelLog, Bmc)


def _load_average(text: str) -> tuple[float, float, float]:
    words = text.split()
    if len(words) < 3 or not all(_is_decimal(word) for word in words[:3]):
        raise ValueError(f"not three averages: {text[:40]!r}")
    return float(words[0]), float(words[1]), float(words[2])


def _uptime(text: str) -> float:
    word = text.split(" ", maxsplit=1)[0]
    if not _is_decimal(word):
        raise ValueError(f"not seconds: {text[:40]!r}")
    return float(word)


def _is_decimal(word: str) -> bool:
    whole, _, fraction = word.partition(".")
    return len(word) <= 20 and whole.isascii() and whole.isdigit() and (not fraction or fraction.isdigit())


def read_kernel(tree: Tree, version: str | None, content: Mapping[str, Any]) -> Kernel:
    """Return the settings of the kernel whose *version* is its own text; *content* is that of the capture."""
    base = "/proc/sys/kernel"
    schemata = tree.text("/sys/fs/resctrl/schemata") or ""
    return Kernel(
        sched_rt_runtime_us=tree.parse(f"{base}/sched_rt_runtime_us", integer),
        sched_rt_period_us=tree.parse(f"{base}/sched_rt_period_us", integer),
        nmi_watchdog=tree.parse(f"{base}/nmi_watchdog", count),
        watchdog=tree.parse(f"{base}/watchdog", count),
        randomize_va_space=tree.parse(f"{base}/randomize_va_space", count),
        perf_event_paranoid=tree.parse(f"{base}/perf_event_paranoid", integer),
        timer_migration=tree.parse(f"{base}/timer_migration", count),
        sched_autogroup_enabled=tree.parse(f"{base}/sched_autogroup_enabled", count),
        ksm_run=tree.parse("/sys/kernel/mm/ksm/run", count),
        load_average=tree.parse("/proc/loadavg", _load_average),
        uptime_s=tree.parse("/proc/uptime", _uptime),
        preemption=_preemption(tree, version),
        stat_interval_s=tree.parse("/proc/sys/vm/stat_interval", count),
        build=told(tree, content, "kernel_build", KernelBuild),
        log=told(tree, content, "kernel_log", KernelLog),
        resctrl_schemata=tuple(visible(line.strip()) for line in schemata.splitlines() if line.strip()),
    )


_PREEMPTIBLE: Final = (
    ("PREEMPT_RT", "real-time"),
    ("PREEMPT_DYNAMIC", "chosen at boot (PREEMPT_DYNAMIC)"),
    ("PREEMPT_LAZY", "lazy"),
    ("PREEMPT", "full"),
)
"""What the words of a kernel's version say; without any it is voluntary or none."""


def told(tree: Tree, content: Mapping[str, Any], key: str, model: type[M]) -> M | None:
    """Return what the runner made of texts that it did not copy; None if it could not read them."""
    if content.get(key) is None:
        return None
    try:
        return model.model_validate_json(json.dumps(content[key]))
    except ValidationError as error:
        tree.note(CAPTURE, f"unparsable: {key}: {visible(fault_of(error))}")
        return None


def _preemption(tree: Tree, version: str | None) -> str | None:
    """Return the preemption model: the kernel's choice where its file can be read, else as it is built."""
    # A file of the patches for real time, and of few releases.
    patched = tree.parse("/sys/kernel/realtime", count) == 1
    built = _PREEMPTIBLE[0][1] if patched else _built(version)
    chosen: str | None = tree.parse("/sys/kernel/debug/sched/preempt", _parenthesised)
    if chosen is None:
        return built
    return f"real-time, {chosen}" if built == "real-time" else chosen


def _built(version: str | None) -> str | None:
    """Return the preemption model that a kernel's *version* names."""
    # Before Linux 5.4 the patches for real time named it in two words.
    words = re.sub(r"\bPREEMPT RT\b", "PREEMPT_RT", version or "").split()
    return next((name for word, name in _PREEMPTIBLE if word in words), "voluntary or none" if words else None)


def _parenthesised(text: str) -> str:
    match = re.search(r"\(([a-z]{1,20})\)", text)
    if match is None:
        raise ValueError(f"no (choice) in parentheses: {text[:60]!r}")
    return str(match.group(1))
