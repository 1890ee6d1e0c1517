# SPDX-License-Identifier: Apache-2.0
"""What is kept of the output of a SUT."""

from __future__ import annotations

import traceback


def read_so_far(error):
    """Return both outputs that Ansible's ssh connection had read when *error* interrupted it; empty for others."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "_bare_run":
            found = frame.f_locals
            return tuple(
                b"".join(part for part in (found.get(f"b_{name}"), found.get(f"b_tmp_{name}")) if part).decode(
                    "utf-8", "replace"
                )
                for name in ("stdout", "stderr")
            )
    return "", ""


def encodable(text):
    """Return *text* without lone surrogates: they are shown as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
