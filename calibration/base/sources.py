# SPDX-License-Identifier: Apache-2.0
"""What files that follow a public document say of it."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, StringConstraints

from calibration.base.model import Model
from calibration.base.text import visible


def _line(text: str) -> str:
    return visible(" ".join(text.split()))


Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(_line)]
"""Text that a file may fold; on one line."""


class Source(Model):
    """The document that states what a file has, where it is, and when it was published or read."""

    document: Line
    url: Line
    date: Annotated[Line, BeforeValidator(str)]
