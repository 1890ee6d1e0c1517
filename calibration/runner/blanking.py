# SPDX-License-Identifier: Apache-2.0
"""Secrets of known forms on a kernel command line, blanked before they leave the SUT.

The forms are those of dracut.cmdline(7), systemd-system.conf(5), systemd.system-credentials(7), mount.cifs(8),
cloud-init, Anaconda and debian-installer. Blanking twice changes nothing.
"""

from __future__ import annotations

import re

BLANKED = "<blanked>"
"""Stands for a secret."""

WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
"""A parameter as the kernel splits them: white space in double quotes belongs to it."""

NAMES = re.compile(r'(?:^|[",;&?=])([\w./-]+)=')
"""Names of a parameter and of the options in its value."""

SECRET = re.compile(
    r"passw|passphrase|passwd|pwd|secret(?!mem)|token|set_credential|api[_.-]?key|community"
    r"|^BOOTIF$|rootpw$|(?:^|[_.-])(?:pw|pass)$|psk$|private[_.-]?key$|luks[_.-]key$",
    re.IGNORECASE,
)
"""What names of secrets contain, and that of the address of the network device booted from."""

LOGIN = re.compile(r'(?:^|[="])iscsi:|(?:^|[."/])proxy="?(?!\w+://)')
"""What is before user:password[:user:password]@target, and before user:password@host of a proxy without a scheme."""

CLOUD_CONFIG = re.compile(r"(?:^|(?<=\s))cc:(.*?)(?=end_cc|\Z)", re.DOTALL)
"""Configuration of cloud-init."""


def blank(text: str) -> str:
    """Return *text*, a command line or a file with parts of one, with ``<blanked>`` in place of secrets."""
    return WORD.sub(lambda found: _word(found.group()), CLOUD_CONFIG.sub(_without_configuration, text))


def blank_bytes(content: bytes) -> bytes:
    """Return *content* like ``blank``."""
    return blank(content.decode("latin-1")).encode("latin-1")


def _without_configuration(found: re.Match[str]) -> str:
    """Return what was found of cloud-init's configuration with the space around it alone."""
    body = found.group(1)
    after = body[len(body.rstrip()) :]
    before = body[: len(body) - len(body.lstrip())]
    return "cc:" + (before + BLANKED + after if body.strip() else body)


def _word(word: str) -> str:
    word = _without_query(_without_user(word))
    for found in NAMES.finditer(word):
        if SECRET.search(found.group(1)):
            return _cut(word, found.end())
    return word


def _cut(word: str, start: int) -> str:
    """Return *word* with the rest of it blanked from *start* on, which leaves its quotes in pairs."""
    return word[:start] + BLANKED + ('"' if word.count('"', 0, start) % 2 else "")


def _without_user(word: str) -> str:
    """Return *word* without the user and password of an iSCSI target, a proxy or a URL."""
    at = word.rfind("@")
    found = LOGIN.search(word, 0, max(at, 0))
    if found is not None:
        return word[: found.end()] + BLANKED + word[at:] if found.end() < at else word
    start = word.find("://") + 3
    while 3 <= start < at:
        colon, slash = word.find(":", start, at), word.find("/", start, at)
        if slash < 0 or 0 <= colon < slash:
            return word[:start] + BLANKED + word[at:]
        start = word.find("://", start) + 3
    return word


def _without_query(word: str) -> str:
    """Return *word* without the query of a URL."""
    start = word.find("://")
    query = word.find("?", start) + 1
    return _cut(word, query) if start >= 0 and query > 0 and word[query:].strip('"') else word
