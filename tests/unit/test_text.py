# SPDX-License-Identifier: Apache-2.0
"""Text of others on a terminal and in a log: it shows, and does nothing."""

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.base.text import HIDDEN, HarmlessStream, duration, message, visible

ESCAPES = {
    "colour and title": ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
    "cursor": ("\x1b[2J\x1b[1;1H", "\\x1b[2J\\x1b[1;1H"),
    "clipboard": ("\x1b]52;c;cm0gLXJm\x1b\\", "\\x1b]52;c;cm0gLXJm\\x1b\\"),
    "hyperlink": ("\x1b]8;;javascript:alert(1)\x1b\\x", "\\x1b]8;;javascript:alert(1)\\x1b\\x"),
    "one-byte control sequence": ("\x9b31m", "\\x9b31m"),
    "carriage return": ("good\rbad", "good\\rbad"),
    "backspace": ("no\x08\x08ok", "no\\x08\\x08ok"),
    "bell and null": ("\x07\x00\x7f", "\\x07\\x00\\x7f"),
    "direction": ("a\u202eb\u2066c\u2069", "a\\u202eb\\u2066c\\u2069"),
    "invisible": ("a\u200bb\ufeffc\U000e0041", "a\\u200bb\\ufeffc\\U000e0041"),
    "line ends": ("a\u2028b\u2029c\x85d\x0be\x0cf", "a\\u2028b\\u2029c\\x85d\\x0be\\x0cf"),
    "half a character": ("\udcff\ud800", "\\udcff\\ud800"),
    "private": ("\ue000", "\\ue000"),
    "spaces": ("a\tb\u00a0c\u3000d", "a b c d"),
    "letters": ("Größe 漢字 µs", "Größe 漢字 µs"),
}


@pytest.mark.parametrize("kind", ESCAPES)
def test_escapes_terminal_controls(kind: str) -> None:
    text, wanted = ESCAPES[kind]
    assert visible(text) == wanted
    assert message(text) == wanted
    stream = io.StringIO()
    HarmlessStream(stream).write(f"{text}\n")
    assert stream.getvalue().replace("\x1b[31m", "\\x1b[31m") == f"{wanted}\n"


@given(st.text(st.characters() | st.characters(categories=["Cc", "Cf", "Cs"])))
def test_visible_text_hides_nothing(text: str) -> None:
    shown = visible(text)
    assert not any(unicodedata.category(item) in HIDDEN for item in shown)
    shown.encode()
    assert visible(shown) == shown


@given(st.lists(st.text(), min_size=1))
def test_a_message_has_one_line_that_is_not_indented(lines: list[str]) -> None:
    first, *rest = message("\n".join(lines)).split("\n")
    assert len(first.splitlines()) <= 1
    assert all(line.startswith("  ") and len(line.splitlines()) == 1 for line in rest)


def test_a_line_of_another_sut_cannot_be_forged() -> None:
    said = "sut1: oh no\nsut2: complete, 12 measured\r\nsut3: complete"
    assert message(said) == "sut1: oh no\n  sut2: complete, 12 measured\\r\n  sut3: complete"


@given(st.lists(st.text(max_size=20), max_size=6))
def test_terminal_stream_passes_only_lines_and_colours(parts: list[str]) -> None:
    stream = io.StringIO()
    harmless = HarmlessStream(stream)
    text = "\x1b[0;31m".join(parts)
    assert harmless.write(text) == len(text)
    harmless.writelines(["x\n"])
    harmless.flush()
    left = stream.getvalue().replace("\x1b[0;31m", "")
    for colour in ("\x1b[0m", *(f"\x1b[{bold}3{n}m" for bold in ("", "0;", "1;") for n in range(8))):
        left = left.replace(colour, "")
    assert not any(unicodedata.category(item) in HIDDEN - {"Zl"} for item in left.replace("\n", ""))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (59.6, "1:00"), (3599, "59:59"), (3661, "1:01:01"), (-3, "0 s")]
)
def test_durations_read_as_people_write_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
