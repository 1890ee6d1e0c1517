# SPDX-License-Identifier: Apache-2.0
"""Answers on SUTs, made for tests of what tells them."""

from datetime import date
from typing import Any

from calibration.judge.answer import TEST, Answer, State

NIGHT = date(2026, 11, 22)


def answer(sut: str, state: State, *, testbed: str = "t1", **changes: Any) -> Answer:
    """Return the answer on *sut*, in *state* since the night; *changes* replaces its fields."""
    fields: dict[str, Any] = {
        "testbed": testbed, "sut": sut, "night": NIGHT, "run_id": None, "state": state, "since": NIGHT,
        "what": {"fails": "it is too slow", "not_measured": "no run this night"}.get(state, ""), "others": 0,
        "sharpness": "sharp", "measured": "2 of 2 headline metrics within the goal", "changes": (), "peers": None,
        "todo": None, "command": (), "test": TEST[state], "nights": 12,
    }  # fmt: skip
    return Answer(**{**fields, **changes})
