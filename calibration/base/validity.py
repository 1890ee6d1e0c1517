# SPDX-License-Identifier: Apache-2.0
"""Flags of a measurement, and whether it is valid."""

from collections.abc import Iterable

from calibration.base.flags import FLAGS, SEVERITIES, Severity
from calibration.base.model import Model


class Flag(Model):
    """One validity flag of one measurement, with the evidence in a sentence."""

    code: str
    severity: Severity
    reason: str


class Validity(Model):
    """Whether a measurement is valid: ``valid`` is false if any flag is ``invalid``."""

    valid: bool
    flags: tuple[Flag, ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the flags, each once."""
        return tuple(dict.fromkeys(flag.code for flag in self.flags))


def flag(code: str, reason: str) -> Flag:
    """Return the flag *code* with its declared severity. Raises ``KeyError`` for an unknown code."""
    return Flag(code=code, severity=FLAGS[code].severity, reason=reason)


def validity(flags: Iterable[Flag]) -> Validity:
    """Return the validity from *flags*; flags with the same reason are kept once, worst first."""
    unique = {(raised.code, raised.reason): raised for raised in flags}
    order = list(SEVERITIES)
    kept = tuple(sorted(unique.values(), key=lambda raised: (order.index(raised.severity), raised.code, raised.reason)))
    return Validity(valid=all(raised.severity != "invalid" for raised in kept), flags=kept)
