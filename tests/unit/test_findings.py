# SPDX-License-Identifier: Apache-2.0
"""The scripts in ``findings/``: each says what it is about, and the list names it.

They are not run here, as they need the network.
"""

import os
import re
from pathlib import Path
from typing import Final

import pytest

FINDINGS: Final = Path(__file__).parents[2] / "findings"
SCRIPTS: Final = sorted(path for path in FINDINGS.glob("*.sh") if os.access(path, os.X_OK))
FIELDS: Final = ("Subject", "Expected", "Seen", "Source", "Here")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_its_head_has_all_fields_in_order(script: Path) -> None:
    head = re.match(r"#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n((?:#.*\n)*)", script.read_text())
    assert head is not None
    assert tuple(re.findall(r"(?m)^# ([A-Z][a-z]+):", head.group(1))) == FIELDS


def test_the_list_has_every_script() -> None:
    listed = re.findall(r"(?m)^``([a-z0-9-]+)\.sh``$", (FINDINGS / "README.rst").read_text())
    assert listed == [script.stem for script in SCRIPTS]
