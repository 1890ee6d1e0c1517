# SPDX-License-Identifier: Apache-2.0
"""What a run changed on a SUT because it was asked to, and whether it was put back."""

from typing import Literal

from calibration.model import Model


class Change(Model):
    """One setting of a SUT that a run changed, in the words of the SUT.

    ``where`` is a path on the SUT or the name of a unit. ``after`` was read back when the setting had been changed,
    ``restored`` when it had been put back: ``None`` where nobody is known to have done that.
    """

    setting: str
    where: str
    before: str
    wanted: str
    after: str
    restored: str | None
    restored_by: Literal["run", "guardian", "cleanup"] | None
