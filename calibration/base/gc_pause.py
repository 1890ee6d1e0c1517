# SPDX-License-Identifier: Apache-2.0
"""Python's collector of reference cycles, paused while a lab's worth of objects is made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the collector; also a decorator.

    It goes through everything that is kept each time a quarter more was made, and finds nothing: verdicts and documents
    have no cycles. On a lab of 1000 SUTs that takes half of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
