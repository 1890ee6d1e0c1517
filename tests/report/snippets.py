# SPDX-License-Identifier: Apache-2.0
"""The literal blocks of the documentation, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import roles

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = CHECKOUT / "docs"
PAGES = (
    *sorted(path for path in DOCS.rglob("*.rst") if path.relative_to(DOCS).parts[0] not in {"_build", "calibration"}),
    *(CHECKOUT / name for name in ("README.rst", "CONTRIBUTING.rst", "tests/README.rst", "results/README.rst")),
)
"""Every page that people read, without those that are generated."""

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
SILENT = {"halt_level": 5, "report_level": 5, "file_insertion_enabled": False}


@dataclass(frozen=True)
class Block:
    """A literal block: its page, language if it has one, and text."""

    page: str
    language: str
    text: str

    @property
    def first_line(self) -> str:
        return next(line for line in self.text.splitlines() if line.strip())


def plain_role(
    _name: str, rawtext: str, text: str, _line: int, _inliner: object, *_: object
) -> tuple[list[nodes.reference], list[nodes.reference]]:
    return [nodes.reference(rawtext, text)], []


@cache
def _tree(path: Path) -> nodes.document:
    """Return the tree of a page, without what only Sphinx knows."""
    for name in ("doc", "ref"):
        roles.register_local_role(name, plain_role)
    tree: nodes.document = publish_doctree(path.read_text(encoding="utf-8"), settings_overrides=SILENT)
    return tree


def blocks() -> Iterator[Block]:
    """Yield the literal blocks of all pages."""
    for path in PAGES:
        for element in _tree(path).findall(nodes.literal_block):
            if not isinstance(element.parent, nodes.system_message):
                language = next((name for name in element["classes"] if name != "code"), "")
                yield Block(str(path.relative_to(CHECKOUT)), language, element.astext())


def inline() -> Iterator[Block]:
    """Yield the inline literals of all pages that are commands with arguments."""
    for path in PAGES:
        for element in _tree(path).findall(nodes.literal):
            text = " ".join(element.astext().split())
            if re.match(r"(\S*/)?(calibration|ansible-playbook) [a-z-]", text):
                yield Block(str(path.relative_to(CHECKOUT)), "", text)


PLACEHOLDER = re.compile(r"<([a-z-]+)>")
"""A name that the reader fills in, which a shell would read as a redirection."""


def commands(text: str) -> list[list[str]]:
    """Return the simple commands of a shell text as words, without comments, assignments and redirections."""
    found: list[list[str]] = []
    for line in PLACEHOLDER.sub(r"\1", text).replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.wordchars += "@%+:,{}[]$"
        words: list[str] = []
        redirected = False
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|()"):
                found += [words] if words and not words[0].startswith("-") else []
                words = []
            elif set(word) <= set("<>&"):
                words = words[:-1] if words[-1:] in (["1"], ["2"]) else words  # 2>&1
                redirected = True
            elif redirected:
                redirected = False
            elif words or not ASSIGNMENT.match(word):
                words.append(word)
    return found
