# SPDX-License-Identifier: Apache-2.0
"""The kernel command line: verbatim, and parsed into an ordered list of parameters.

Source: ``next_arg`` in ``lib/cmdline.c``, ``housekeeping_isolcpus_setup`` in ``kernel/sched/isolation.c`` and
``Documentation/admin-guide/kernel-parameters.txt`` of the Linux kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from calibration.base.cpulists import parse_cpulist, split_isolcpus
from calibration.context.model import CommandLine, Parameter

MAX_CMDLINE = 64 * 1024
"""Longest command line accepted. Most kernels take 2048 or 4096 characters; a boot configuration adds up to 32 KiB."""


def split_words(text: str) -> tuple[str, ...]:
    """Split at white space outside double quotes; keep the quotes."""
    words = []
    word = ""
    quoted = False
    for character in text:
        if character == '"':
            quoted = not quoted
        if character.isspace() and not quoted:
            if word:
                words.append(word)
            word = ""
        else:
            word += character
    if word:
        words.append(word)
    return tuple(words)


def parse_cmdline(text: str) -> CommandLine:
    """Parse a kernel command line.

    Repeated keys stay repeated and in order; words after ``--`` belong to init. Raises ``ValueError`` for a text longer
    than :data:`MAX_CMDLINE`.
    """
    if len(text) > MAX_CMDLINE:
        raise ValueError(f"kernel command line of {len(text)} characters, at most {MAX_CMDLINE} are read")
    parameters = []
    words = split_words(text)
    end = words.index("--") if "--" in words else len(words)
    for word in words[:end]:
        bare = word[1:-1] if len(word) > 1 and word[0] == word[-1] == '"' else word
        name, equals, value = bare.partition("=")
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        parameters.append(Parameter(name=name, value=value if equals else None))
    return CommandLine(text=text, parameters=tuple(parameters), init_arguments=words[end + 1 :])


@dataclass(frozen=True)
class IsolCpus:
    """An ``isolcpus=`` value.

    Without flag words it isolates from scheduling domains.
    """

    cpus: tuple[int, ...]
    flags: tuple[str, ...]

    @property
    def isolates_domain(self) -> bool:
        """Whether the CPUs leave the scheduling domains."""
        return not self.flags or "domain" in self.flags


def parse_isolcpus(value: str, last: int | None = None) -> IsolCpus:
    """Parse ``[flag,...]cpulist``.

    Unknown flag words are skipped, as the kernel skips them. Raises ``ValueError``.
    """
    flags, _, cpus = split_isolcpus(value)
    return IsolCpus(parse_cpulist(cpus, last), flags)
