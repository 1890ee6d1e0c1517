# SPDX-License-Identifier: Apache-2.0
"""Small roots made file by file, as the tests of the context have them."""

from tests.unit.context.conftest import make_root

__all__ = ["make_root"]
