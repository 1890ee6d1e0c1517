# SPDX-License-Identifier: Apache-2.0
"""The closed list of validity flags, and their judgement.

A flag is what a reader must know about one measurement before relying on its value. ``info`` explains, ``warn`` casts
doubt, ``invalid`` means that the value does not answer its question: it stays in the document and is struck out on the
page.
"""

from collections.abc import Iterable
from typing import Literal, get_args

from calibration.model import Model

Severity = Literal["info", "warn", "invalid"]

SEVERITIES: dict[str, Severity] = {
    "NOT_CONVERGED": "warn",
    "BIMODAL": "warn",
    "PREEMPTED": "warn",
    "STOLEN": "warn",
    "SMI": "warn",
    "FREQ_CHANGED": "warn",
    "THROTTLED": "warn",
    "ERRORS_CORRECTED": "warn",
    "ERRORS_UNCORRECTED": "warn",
    "LINK_NARROWED": "warn",
    "ALLOCATION_NARROWED": "warn",
    "FAULTED": "warn",
    "MOVED": "warn",
    "PLACEMENT_UNVERIFIED": "invalid",
    "PLACEMENT_WRONG": "invalid",
    "PLACEMENT_BY_TOPOLOGY": "info",
    "CPU_UNVERIFIED": "invalid",
    "WORK_UNPROVED": "invalid",
    "HUGEPAGE_PARTIAL": "info",
    "HUGEPAGE_NONE": "info",
    "HUGEPAGE_EXHAUSTED": "warn",
    "CPUS_HIDDEN": "warn",
    "NODES_HIDDEN": "warn",
    "NODES_EMULATED": "info",
    "CPU_QUOTA": "warn",
    "SLOW_CORE": "warn",
    "CLOCK_FALLBACK": "warn",
    "CLOCK_COARSE": "info",
    "TIMER_COARSE": "warn",
    "NOT_ISOLATED": "info",
    "RT_THROTTLE_POSSIBLE": "warn",
    "NOT_LOCKED": "info",
    "VIRTUALISED": "info",
    "EMULATED": "invalid",
    "BUFFER_TOO_SMALL": "warn",
    "MEMORY_SIDE_CACHE": "warn",
    "COMPANION_SLOW": "warn",
    "ASYMMETRIC": "warn",
    "NODE_ASYMMETRY": "warn",
    "DRIFT": "warn",
    "RING_FULL": "warn",
    "TRACE_LOST": "warn",
    "COVERAGE_LOW": "warn",
    "PARTIAL": "warn",
    "NOT_AS_EXPECTED": "warn",
    "NOT_RESTORED": "warn",
    "COUNTED_DIFFERS": "warn",
    "COUNTERS_MULTIPLEXED": "warn",
    "BACKGROUND_TRAFFIC": "warn",
    "STORES_ASSUMED": "warn",
    "NOT_SUSTAINED": "warn",
    "NOT_STATIONARY": "warn",
    "SHARE_MISSED": "warn",
    "LOOKED_LESS": "info",
}
"""All flags with their severity. The method page ``docs/method/validity.rst`` explains them."""


class Flag(Model):
    """One validity flag of one measurement, with the evidence in a sentence."""

    code: str
    severity: Severity
    reason: str


class Validity(Model):
    """Whether a measurement is valid: ``valid`` is false if any flag is ``invalid``."""

    valid: bool
    flags: tuple[Flag, ...]


def flag(code: str, reason: str) -> Flag:
    """Return the flag *code* with its declared severity. Raises ``KeyError`` for an unknown code."""
    return Flag(code=code, severity=SEVERITIES[code], reason=reason)


def validity(flags: Iterable[Flag]) -> Validity:
    """Return the validity from *flags*; flags with the same reason are kept once, worst first."""
    unique = {(raised.code, raised.reason): raised for raised in flags}
    order = {severity: rank for rank, severity in enumerate(reversed(get_args(Severity)))}
    kept = tuple(sorted(unique.values(), key=lambda raised: (order[raised.severity], raised.code, raised.reason)))
    return Validity(valid=all(raised.severity != "invalid" for raised in kept), flags=kept)
