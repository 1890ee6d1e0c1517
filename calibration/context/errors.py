# SPDX-License-Identifier: Apache-2.0
"""The error raised for an unusable capture."""

from calibration.base.errors import InputError


class ContextError(InputError):
    """A path is neither a captured nor a live root, or nothing in it is recognised; exit code 2."""
