# SPDX-License-Identifier: Apache-2.0
"""Mutated texts, whatever they are, are refused or read, and no figure is made up."""

import pytest

from tests import readings
from tests.readings import corpus, hold


def test_mutated_texts_keep_all_invariants() -> None:
    texts = corpus()
    assert len(texts) > 100
    read = [found for text in texts if (found := hold(text)) is not None]
    assert len(read) > 50


def test_an_invented_value_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"Each iteration took 231.5 core clocks ( 93.4    ns)\n"
    assert hold(text) is not None
    real = readings.read_published

    def liar(text: str) -> readings.Published:
        return real(text.replace("93.4", "94.3"))

    monkeypatch.setattr(readings, "read_published", liar)
    with pytest.raises(AssertionError, match=r"94\.3"):
        hold(text)
