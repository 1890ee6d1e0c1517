# SPDX-License-Identifier: Apache-2.0
"""A machine described from its ``/proc`` and ``/sys``, captured or live.

``load(root)`` gives a typed :class:`Context`; ``to_contract(context)`` the document that ``calibration
context`` prints.
"""

from calibration.context.errors import ContextError
from calibration.context.loader import load, to_contract
from calibration.context.model import Context

__all__ = ["Context", "ContextError", "load", "to_contract"]
