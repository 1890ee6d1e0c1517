# SPDX-License-Identifier: Apache-2.0
"""Build the guide with Sphinx, and use its theme as the shell of the pages of runs.

Sphinx builds the guide and an empty page for the lab and each testbed, which the sidebar lists. It runs again only if
the guide, the documented code or the testbeds changed.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from calibration.base import places
from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.text import visible
from calibration.report.page_cache import report_sha256
from calibration.report.rst import heading

PAGES: Final = "calibration"
"""Folder of the site with the pages of runs."""

BUILD_TIMEOUT_S: Final = 3600
"""A hung build is killed."""

ARTICLE: Final = re.compile(r"(<article[^>]*>).*?(</article>)", re.DOTALL)
CONTENTS: Final = re.compile(r'(<div class="toc-tree">).*?(</div>)', re.DOTALL)
TITLE: Final = re.compile(r"<title>.*?</title>")
SIDE: Final = re.compile(r'<aside class="toc-drawer">.*?</aside>', re.DOTALL)
ICONS: Final = re.compile(r'(<label class="toc-overlay-icon [^"]*)(")')
RELATED: Final = re.compile(r'<div class="related-pages">.*?</div>\s*(?=<div class="bottom-of-page">)', re.DOTALL)
LINK: Final = re.compile(r'\b(href|src|action|data-content_root)="(?!#|[a-z]+:|/)([^"]*)"')

STUB: Final = "{title}\n\nBody\n----\n\nNothing.\n"
"""A page with a section, so that the theme reserves space for a table of contents."""


@dataclass(frozen=True)
class Shell:
    """A page of the theme whose body is replaced."""

    html: str

    def around(self, title: str, body: str, *, contents: str = "", deeper: int = 0) -> bytes:
        """Return the page *title* with *body*, both HTML except the title, *deeper* folders below the shell."""
        html = TITLE.sub(lambda _: f"<title>{escape(visible(title))} - Calibration harness</title>", self.html, 1)
        if contents:
            tree = f'<ul><li><a class="reference internal" href="#">{escape(visible(title))}</a>{contents}</li></ul>'
            html = CONTENTS.sub(lambda found: f"{found[1]}{tree}{found[2]}", html, 1)
        else:
            html = SIDE.sub('<aside class="toc-drawer no-toc"></aside>', html)
            html = ICONS.sub(r"\1 no-toc\2", html)
        if deeper:
            html = RELATED.sub('<div class="related-pages"></div>', html)
            html = LINK.sub(lambda found: f'{found[1]}="{"../" * deeper}{found[2]}"', html)
        return ARTICLE.sub(lambda found: found[1] + body + found[2], html, 1).encode()


def build_guide(docs: Path, output: Path, testbeds: Mapping[str, str], work: Path) -> Path:
    """Build the guide in *docs* with empty pages for *testbeds* (titles by folder); return the path of its HTML.

    *work* is the cache; *output*, the future site, is excluded from the guide. Raises ``InputError`` if Sphinx warns,
    ``EnvironmentLacksError`` if it times out.
    """
    listed = "".join(f"   {folder}/index\n" for folder in testbeds)
    toctree = f"\n.. toctree::\n   :hidden:\n\n{listed}" if testbeds else ""
    files = {
        **_guide(docs, output),
        f"{PAGES}/index.rst": (STUB.format(title=heading("Calibration data", 0)) + toctree).encode(),
        **{
            f"{PAGES}/{folder}/index.rst": (":nosearch:\n\n" + STUB.format(title=heading(title, 0))).encode()
            for folder, title in testbeds.items()
        },
    }
    hashed = hashlib.sha256(report_sha256().encode())
    for name in sorted(files):
        hashed.update(f"{name} {len(files[name])}\n".encode() + files[name])
    key, html = work / "guide.sha256", work / "html"
    if key.is_file() and key.read_text() == hashed.hexdigest():
        return html
    key.unlink(missing_ok=True)
    for stale in ("source", "doctrees", "html"):  # built on an older guide, Sphinx's is not always that of the new one
        shutil.rmtree(work / stale, ignore_errors=True)
    for name, content in files.items():
        path = work / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    _sphinx(work)
    key.write_text(hashed.hexdigest())
    return html


def shell(html: Path, folder: str = "") -> Shell:
    """Return the shell of the lab, or of the testbed in *folder*, from the guide's *html*."""
    return Shell((html / PAGES / folder / "index.html").read_text(encoding="utf-8"))


def _guide(docs: Path, output: Path) -> dict[str, bytes]:
    """Return the files of the guide by source path, without build output."""
    if not (docs / "conf.py").is_file():
        raise InputError(f"no documentation (conf.py) in {docs}")
    built = output.resolve()
    return {
        str(path.relative_to(docs)): path.read_bytes()
        for path in sorted(docs.rglob("*"))
        if path.is_file()
        and path.relative_to(docs).parts[0] not in {"_build", PAGES}
        and not path.resolve().is_relative_to(built)
    }


def _sphinx(work: Path) -> None:
    """Build ``source`` into ``html``. Raises ``InputError`` with Sphinx's message if it warns."""
    options = ["--builder", "html", "--quiet", "--fail-on-warning", "--doctree-dir", str(work / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(work / "source"), str(work / "html")]
    path = os.pathsep.join(filter(None, (str(places.PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    environ = {**os.environ, "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "0", "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentLacksError(f"Sphinx timed out after {BUILD_TIMEOUT_S} s; its cache is {work}") from error
    if done.returncode:
        warnings = done.stderr.replace(f"{work / 'source'}/", "").strip()
        raise InputError(f"Sphinx warns:\n{warnings or done.stdout.strip()}")
