# SPDX-License-Identifier: Apache-2.0
"""How models are written: readable, and equal to what they hold."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from calibration.base.model import LINE_CHARACTERS, Model, json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class Chart(Model):
    """Rows of samples, with something short and something long beside them."""

    samples: tuple[tuple[float, ...], ...]
    short: dict[str, int]
    long: dict[str, str]


@given(VALUES)
def test_json_loses_nothing(value: Any) -> None:
    assert json.loads(json_text(value)) == value


def test_lists_of_values_and_short_objects_are_on_one_line() -> None:
    many = tuple(float(number) for number in range(100))
    text = Chart(samples=(many, many), short={"a": 1, "b": 2}, long={"a": "x" * LINE_CHARACTERS, "b": "ü"}).to_json()
    row = json.dumps(many)
    assert text.splitlines() == [
        "{",
        ' "samples": [',
        f"  {row},",
        f"  {row}",
        " ],",
        ' "short": {"a": 1, "b": 2},',
        ' "long": {',
        f'  "a": "{"x" * LINE_CHARACTERS}",',
        '  "b": "ü"',
        " }",
        "}",
    ]
