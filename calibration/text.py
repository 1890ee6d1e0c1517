# SPDX-License-Identifier: Apache-2.0
r"""untrusted text, made harmless to look at.

A terminal obeys control characters, and a reader obeys the direction in which a line runs: both are shown as escapes
such as ``\x1b`` or ``\u202e``. What reStructuredText needs besides stands in ``calibration.report.filters``.
"""

import base64
import re
import unicodedata
from functools import lru_cache
from typing import IO, Any

from calibration.errors import InputError

WIDTH = 100
"""Columns of what is printed if the terminal does not say how wide it is, and the most that it takes."""

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that show nothing of themselves, or change how others show."""

COLOUR = re.compile(r"(\x1b\[(?:0|[01];3[0-7]|3[0-7])m)")
"""The colours that Ansible paints its own messages with. Nothing hides or moves with these."""

UNUSUAL = re.compile(r"[^ -~]")
"""What may have to show as an escape."""


def visible(text: str) -> str:
    r"""Return *text* as one line in which control, line-breaking, private and direction-changing characters show.

    Docutils splits its input at more characters than a newline, and directional overrides make a line read otherwise
    than it is; both are shown as escapes such as ``\x1b`` or ``\u2028``.
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
    """Return *text* for a terminal or a log: lines after the first are indented, so that none passes for another's."""
    first, *rest = (visible(line) for line in text.split("\n"))
    return "\n".join([first, *(f"  {line}" for line in rest)])


def cut(text: str, columns: int) -> str:
    """Return *text*, cut to so many *columns*; that it was cut shows."""
    return text if len(text) <= columns else f"{text[: columns - 1]}…"


def duration(seconds: float) -> str:
    """Return a duration as people write it: 4 s, 1:05, 1:02:03."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class HarmlessStream:
    """A stream for people, to which programs write that show untrusted text as it came: what a terminal obeys shows.

    Everything but ``write`` is the stream's own. Line ends and Ansible's own colours stay.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write *text*, made harmless, and return how long it was."""
        parts = COLOUR.split(text)
        parts[::2] = ["\n".join(map(visible, part.split("\n"))) for part in parts[::2]]
        self._stream.write("".join(parts))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write all *lines*, made harmless."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def decode_base64(text: str) -> bytes:
    """Return the bytes that *text* is in base64. Raises ``InputError`` if it is not."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InputError(f"not base64: {error}") from error
