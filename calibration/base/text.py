# SPDX-License-Identifier: Apache-2.0
r"""Make untrusted text safe to display.

Terminals interpret control characters, and directional characters change how a line reads: both are shown as escapes
such as ``\x1b`` or ``\u202e``. Escaping for reStructuredText is in ``calibration.report.rst``, for HTML in
``calibration.report.html``.
"""

import base64
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import IO, Any

from calibration.base.errors import InputError

WIDTH = 100
"""Columns of output if the terminal's width is unknown, and at most."""

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that are invisible, or change how others display."""

COLOUR = re.compile(r"(\x1b\[(?:0|[01];3[0-7]|3[0-7])m)")
"""The colours of Ansible's own messages, which neither hide nor move text."""

UNUSUAL = re.compile(r"[^ -~]")
"""Characters that may need an escape."""


def visible(text: str) -> str:
    r"""Return *text* as one line with control, line-breaking, private and directional characters visible.

    Docutils splits its input at more characters than a newline, and directional overrides make a line read differently;
    both are shown as escapes such as ``\x1b`` or ``\u2028``.
    """
    return text if text.isascii() and text.isprintable() else UNUSUAL.sub(lambda found: shown(found[0]), text)


@lru_cache(maxsize=1024)
def shown(character: str) -> str:
    """Return *character*, or its escape; any space becomes an ordinary one."""
    if character == "\t":
        return " "
    category = unicodedata.category(character)
    if category in HIDDEN:
        return character.encode("unicode_escape").decode("ascii")
    return " " if category == "Zs" else character


def message(text: str) -> str:
    """Return *text* for a terminal or a log, with continuation lines indented so that none looks like a new message."""
    first, *rest = (visible(line) for line in text.split("\n"))
    return "\n".join([first, *(f"  {line}" for line in rest)])


def sentence_case(text: str) -> str:
    """Return *text* with a capital first letter; ``str.capitalize`` would write "Cpu"."""
    return f"{text[:1].upper()}{text[1:]}"


def cut(text: str, columns: int) -> str:
    """Return *text* cut to *columns*, with a mark if it was cut."""
    return text if len(text) <= columns else f"{text[: columns - 1]}…"


def some_of(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Return the first *most* of *names*, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def duration(seconds: float) -> str:
    """Return a duration in readable form: 4 s, 1:05, 1:02:03."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class HarmlessStream:
    """A stream for programs that print untrusted text verbatim: control characters are made visible.

    Everything but ``write`` is the stream's own. Line ends and Ansible's colours are kept.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write *text*, made safe, and return its length."""
        parts = COLOUR.split(text)
        parts[::2] = ["\n".join(map(visible, part.split("\n"))) for part in parts[::2]]
        self._stream.write("".join(parts))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write all *lines*, made safe."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def decode_base64(text: str) -> bytes:
    """Return the bytes of *text* in base64. Raises ``InputError`` if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InputError(f"not base64: {error}") from error
