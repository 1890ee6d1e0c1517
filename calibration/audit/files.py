# SPDX-License-Identifier: Apache-2.0
"""Files below /proc/sys and /sys of a machine or a capture, by path or pattern."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from calibration.base.text import visible
from calibration.context.loader import open_tree, read_asked
from calibration.context.tree import Tree
from calibration.runner.requested_files import MAX_BYTES, MAX_FILES

LIVE: Final = "/"
"""The root of this machine, in which everything can be looked for."""


class Found(NamedTuple):
    """The contents of files by path, on one line each; ``reason`` says why nothing or not all could be read.

    ``looked``: whether the files were looked for, so that those missing do not exist.
    """

    values: dict[str, str]
    reason: str | None
    looked: bool


class Files:
    """The files of one machine; ``live`` if it is this one, ``asked`` the patterns that a capture was asked for."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.live = str(tree.root) == LIVE
        self.asked = frozenset(read_asked(tree))

    def find(self, pattern: str) -> Found:
        """Return the files that match *pattern*.

        A capture has all files of a pattern only if it was asked for when the machine was captured.
        """
        looked = self.live or pattern in self.asked
        wild = bool(re.search("[*?]", pattern))
        paths = [pattern] if not wild else self._tree.matching(pattern, MAX_FILES) if looked else []
        values, faults = {}, []
        for path in paths[:MAX_FILES]:
            text = self._tree.text(path, MAX_BYTES)
            if text is not None:
                values[path] = visible(" ".join(text.split()))
            elif reason := self._reason(path):
                faults.append(reason)
        if wild and not faults and (reason := self._reason(pattern)):
            faults.append(reason)
        return Found(values, faults[0] if faults else None, looked)

    def _reason(self, path: str) -> str | None:
        return next((reason for name, reason in self._tree.unreadable if name == path), None)


def open_files(root: Path, archive: bytes | None = None) -> Files:
    """Return the files of a machine's root, a captured tree, its ``.tar.gz`` or a run's directory, or of *archive*."""
    return Files(open_tree(root, archive))
