# SPDX-License-Identifier: Apache-2.0
"""Agreement of the SUTs of one testbed: processors, microcode, BIOS."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, ValidationError

from calibration.audit.findings import UNKNOWN, Finding, outcome_of
from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.model import Model, fault_of
from calibration.preflight.checks import Check
from calibration.preflight.facts import Identity, bounded_json


class Known(Model):
    """Results before the capture: the first checks, and the SUTs of the testbed by name, including this one."""

    checks: tuple[Check, ...] = ()
    testbed: str = ""
    sut: str = ""
    identities: dict[str, Identity] = Field(default_factory=dict)


def read_known(given: Mapping[str, Any]) -> Known:
    """Return the results that the role preflight passed on. Raises ``InputError`` if they are invalid."""
    try:
        return Known.model_validate_json(bounded_json(given))
    except ValidationError as error:
        raise InputError(f"invalid result of the role preflight: {fault_of(error)}") from error


def check_agreement(known: Known) -> Iterator[Finding]:
    """Yield the comparison of this SUT with the others: microcode of equal processors, BIOS of equal machines."""
    own = known.identities.get(known.sut)
    if own is None:
        return

    def others(check: str) -> dict[str, Identity]:
        return {
            name: identity
            for name, identity in known.identities.items()
            if name != known.sut and check not in identity.off
        }

    if peers := others("cpu_model"):
        yield _agreement("cpu_model", own.cpu_model, {name: peer.cpu_model for name, peer in peers.items()})
    codes = ", ".join(own.microcode)
    alike = {name: other for name, other in others("microcode").items() if other.cpu_model == own.cpu_model}
    if len(own.microcode) > 1:
        yield Finding("microcode", "one microcode on all CPUs", codes, "not_met")
    elif alike and any(other.microcode for other in (own, *alike.values())):
        yield _agreement("microcode", codes, {name: ", ".join(other.microcode) for name, other in alike.items()})
    kin = {name: other for name, other in others("bios").items() if other.product == own.product}
    if kin and any(other.bios for other in (own, *kin.values())):
        yield _agreement("bios", own.bios, {name: other.bios for name, other in kin.items()})


def _agreement(name: str, own: str | None, others: Mapping[str, str | None]) -> Finding:
    by_value = grouped((value or UNKNOWN, sut) for sut, value in sorted(others.items()))
    expected = " and ".join(f"{value} as on {', '.join(suts)}" for value, suts in by_value.items())
    if not own or UNKNOWN in by_value:
        return Finding(name, expected, own or UNKNOWN, "unknown")
    return Finding(name, expected, own, outcome_of(list(by_value) == [own]))
