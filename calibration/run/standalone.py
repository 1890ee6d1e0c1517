# SPDX-License-Identifier: Apache-2.0
"""The program that runs a plan without a controller: the runner with sutprobe in one file."""

from collections.abc import Iterable

from calibration.build import PROGRAM, RECORD, Target, build
from calibration.runner.bundle import packed, sources


def standalone_runner(targets: Iterable[Target]) -> bytes:
    """Return the runner with sutprobe for *targets*: ``python3 FILE plan.json`` runs it. Raises like ``build``."""
    places = {target: build(target).path.parent for target in targets}
    programs = {
        f"{target}/{name}": (place / name).read_bytes()
        for target, place in places.items()
        for name in (PROGRAM, RECORD)
    }
    return packed({**sources(), **programs})
