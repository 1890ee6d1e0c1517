# SPDX-License-Identifier: Apache-2.0
"""The one error that a capture which cannot be used raises."""

from calibration.errors import InputError


class ContextError(InputError):
    """A path is no captured or live root, or nothing in it can be recognised; exit code 2.

    The message says what was expected, what was found, and what to do.
    """
