# SPDX-License-Identifier: Apache-2.0
"""Instructions that some architectures lack, and what is not measured without them.

``sutprobe`` refuses what it has no instruction for; a plan does not ask.
"""

from typing import TypeVar

from calibration.base.model import Model
from calibration.context.model import Context

S = TypeVar("S", bound=Model)

NON_TEMPORAL = frozenset({"stream_triad", "write_nt", "copy_nt"})
"""Mixes whose stores go past the caches."""

WITHOUT_STREAMS = frozenset({"ppc64le", "riscv64"})
"""Architectures without non-temporal stores."""

WITHOUT_FLUSH = frozenset({"riscv64"})
"""Architectures whose baseline has no instruction that takes a line out of the caches."""

NO_STREAMS = "{architecture} has no non-temporal stores"

MIXES_FIELDS = ("mixes", "plain_mixes")
"""Settings that list mixes, in any kind."""


def without_flush(context: Context) -> str | None:
    """Return why no line can be flushed, ``None`` if it can."""
    architecture = context.processor.architecture
    reason = f"{architecture} has no instruction, in every processor, that takes a line out of the caches"
    return reason if architecture in WITHOUT_FLUSH else None


def possible_mixes(context: Context, settings: S) -> tuple[S | None, str]:
    """Return *settings* with those mixes that the architecture can measure, and which it cannot with the reason.

    ``None``: the settings list mixes, and none is left. The text is empty if all can be measured.
    """
    architecture = context.processor.architecture
    if architecture not in WITHOUT_STREAMS:
        return settings, ""
    left: dict[str, tuple[str, ...]] = {}
    dropped: set[str] = set()
    for name in MIXES_FIELDS:
        mixes: tuple[str, ...] = getattr(settings, name, ())
        left[name] = tuple(mix for mix in mixes if mix not in NON_TEMPORAL)
        dropped |= set(mixes) - set(left[name])
    one = getattr(settings, "mix", None)
    if one in NON_TEMPORAL:
        return None, f"{one}: {NO_STREAMS.format(architecture=architecture)}"
    if not dropped:
        return settings, ""
    reason = f"{', '.join(sorted(dropped))}: {NO_STREAMS.format(architecture=architecture)}"
    if not left["mixes"]:
        return None, reason
    return settings.model_copy(update={name: mixes for name, mixes in left.items() if hasattr(settings, name)}), reason
