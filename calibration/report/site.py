# SPDX-License-Identifier: Apache-2.0
"""The site: the user guide and the pages of all runs, as HTML that asks nothing of any other server.

The Sphinx source is assembled in the checkout's cache, where Sphinx keeps what it has read, so that a second build only
touches what changed. The finished HTML is copied to where it was asked for after the whole build went well.
"""

import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from fcntl import LOCK_EX, flock
from pathlib import Path

from calibration import places
from calibration.errors import EnvironmentLacksError, InputError
from calibration.files import read_regular, write_whole
from calibration.judge.screen import told_event
from calibration.report import filters
from calibration.report.comparison import Machine, machine_of, render_history, render_site_comparison
from calibration.report.environment import TEMPLATES, environment, tidy
from calibration.report.page import Page, render
from calibration.report.tonight import Nights, read_nights, sentence, standings
from calibration.report.trends import render_trends
from calibration.results.documents import MAX_DOCUMENT_BYTES, schema_file
from calibration.results.history import NightRun, Sut
from calibration.results.layout import RUN
from calibration.results.migrations import VERSIONS
from calibration.results.model import Run
from calibration.results.store import find_runs, validate

DOCS = places.SHARE / "docs"
SITE = places.HOME / "docs" / "_build" / "html"
CACHE = places.CACHE / "site"

PAGES = "calibration"
"""Folder of the site with the pages of runs."""

HISTORY = 6
"""So many of a SUT's newest runs have pages, and stand side by side on its history's; and all that was imported."""

TIMED = re.compile(r"\d{8}T\d{6}Z-")
"""How the name of a run begins that the harness named: such names sort by time."""

MANIFEST = ".calibration-site"
"""File in a finished site that names the files put there, so that a later build removes its own files only."""

MAX_MANIFEST_BYTES = 64 * 1024 * 1024
"""Longest such list that is read: 365 nights of 100 SUTs have less than a tenth."""

DOCUTILS = "[parsers]\nline_length_limit: 1000000\n"
"""A line of a page may join many texts of a SUT's; with docutils' own limit one SUT could keep the site from all."""

BUILD_TIMEOUT_S = 3600
"""A site of hundreds of pages builds in less; a hung build is ended."""


@dataclass(frozen=True)
class SitePage:
    """One run's page: its identity, its text and figures, and what a comparison says of its machine."""

    run: Run
    page: Page
    machine: Machine


def build_site(results: Path, docs: Path = DOCS, output: Path = SITE) -> Path:
    """Build the site of the guide in *docs* and all runs in *results* into *output*, and return its first page.

    *results* is a directory of results or that of one run. The newest run of each SUT has the SUT's page, older ones
    are linked from it. Files that cannot be read are listed on the first page. Raises ``InputError`` where Sphinx has
    anything to warn about or *results* is one run that cannot be read, ``EnvironmentLacksError`` where the site cannot
    be written.
    """
    one = (results / RUN).is_file()
    nights = None if one else read_nights(results)
    runs = [results] if one else _with_pages(find_runs(results), results, nights)
    key = hashlib.sha256(f"{docs.resolve()}\n{output.resolve()}".encode()).hexdigest()[:16]
    try:
        with _cache(CACHE / key) as work:
            pages, unreadable = _site_pages(runs, work / "pages")
            if one and unreadable:
                raise unreadable[0]
            unread = [str(each).removeprefix(f"{results}/") for each in unreadable]
            files = {**_guide(docs, output), **_pages(pages, nights, unread), "docutils.conf": DOCUTILS.encode()}
            if _synchronise(work / "source", files):
                for stale in (
                    "html",
                    "doctrees",
                ):  # Sphinx never removes a page or an image that has no source any more
                    shutil.rmtree(work / stale, ignore_errors=True)
            _sphinx(work)
            _install(work / "html", output)
    except OSError as error:
        raise EnvironmentLacksError(
            f"the site cannot be built in {CACHE} or written to {output}: {error.strerror or error}. Free some space "
            "or give another directory"
        ) from error
    return output / "index.html"


@contextmanager
def _cache(work: Path) -> Iterator[Path]:
    """Hold the cache of one site alone: two builds of the same site run one after the other."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield work


def _site_pages(runs: Iterable[Path], cache: Path) -> tuple[list[SitePage], list[InputError]]:
    """Return the pages of all runs; those that this very report made before from the same document come from *cache*.

    The errors are those of documents that cannot be read. What no run of this site needs any more is removed from the
    cache.
    """
    cache.mkdir(parents=True, exist_ok=True)
    pages, errors = [], []
    used = set()
    for run_dir in runs:
        try:
            raw = read_regular(run_dir / RUN, MAX_DOCUMENT_BYTES, below=run_dir.parents[2])
        except InputError as error:
            errors.append(error)
            continue
        kept = cache / f"{hashlib.sha256(raw + _report_sha256().encode()).hexdigest()}.json"
        used.add(kept)
        page = _kept(kept)
        if page is None:
            try:
                document = validate(run_dir / RUN)
            except InputError as error:
                errors.append(error)
                continue
            page = SitePage(run=document.run, page=render(raw), machine=machine_of(document, ""))
            content = {
                "run": page.run.model_dump_json(),
                "text": page.page.text,
                "figures": page.page.figures,
                "machine": page.machine.model_dump_json(),
            }
            kept.write_text(json.dumps(content), encoding="utf-8")
        pages.append(page)
    for path in set(cache.iterdir()) - used:
        path.unlink()
    return pages, errors


def _kept(path: Path) -> SitePage | None:
    """Return a page from the cache; ``None`` where it is not there or was cut off while it was written."""
    try:
        found = json.loads(path.read_bytes())
        return SitePage(
            run=Run.model_validate_json(found["run"]),
            page=Page(found["text"], found["figures"]),
            machine=Machine.model_validate_json(found["machine"]),
        )
    except (FileNotFoundError, ValueError, KeyError):
        return None


@functools.cache
def _report_sha256() -> str:
    """Return a hash of everything but the document that a page depends on: the package and its templates."""
    hashed = hashlib.sha256()
    sources = [*sorted(places.PACKAGE.rglob("*.py")), *map(schema_file, VERSIONS)]
    for path in [*sources, *sorted(TEMPLATES.rglob("*.j2"))]:
        hashed.update(f"{path}\n".encode())
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


def _guide(docs: Path, output: Path) -> dict[str, bytes]:
    """Return the files of the guide by their paths in the source; what was built is no part of it."""
    if not (docs / "conf.py").is_file():
        raise InputError(f"expected the documentation with its conf.py at {docs}, found none")
    built = output.resolve()
    return {
        str(path.relative_to(docs)): path.read_bytes()
        for path in sorted(docs.rglob("*"))
        if path.is_file()
        and path.relative_to(docs).parts[0] not in {"_build", PAGES}
        and not path.resolve().is_relative_to(built)
    }


def _with_pages(runs: Sequence[Path], results: Path, nights: Nights | None) -> list[Path]:
    """Return those of *runs* that get a page.

    These are each SUT's newest, those from which what is worst tonight dates, and all that have no time in their names.
    """
    unreadable = () if nights is None else nights.history.unreadable
    damaged = {(results / each.file).parent for each in unreadable}
    runs = [each for each in runs if each not in damaged]
    by_sut: dict[Path, list[Path]] = {}
    for run_dir in runs:
        by_sut.setdefault(run_dir.parent, []).append(run_dir)
    left_out = set()
    for those in by_sut.values():
        left_out |= {*sorted(each for each in those if TIMED.match(each.name))[:-HISTORY]}
    for each in () if nights is None else standings(nights):
        if each.state == "fails" and each.began is not None:
            left_out.discard(results / each.began.directory)
    return [each for each in runs if each not in left_out]


def _pages(pages: Iterable[SitePage], nights: Nights | None, unreadable: Iterable[str] = ()) -> dict[str, bytes]:
    """Return the files of all pages: an index, one page per SUT, the older runs of each below it, and the trends.

    *unreadable* are the files that have no page, with the reasons.
    """
    suts: dict[Sut, list[SitePage]] = {}
    for each in sorted(pages, key=_age):
        suts.setdefault((each.run.testbed, each.run.sut), []).append(each)
    taken: set[str] = set()
    folders = {sut: _unique("/".join(map(filters.slug, sut)), taken) for sut in suts}
    figures = (each for runs in suts.values() for page in runs for each in page.machine.figures)
    titles = {each.metric.name: each.metric.title for each in figures}
    nights = None if nights is None else replace(nights, titles=titles)
    found = [] if nights is None else standings(nights)
    testbeds = sorted({each.testbed for each in found if each.newest is not None})
    trends = {testbed: _unique(f"trends/{filters.slug(testbed)}", taken) for testbed in testbeds}
    files: dict[str, bytes] = {}
    entries = []
    machines = []
    documents: dict[tuple[str, str, str], str] = {}
    for sut, runs in suts.items():
        folder = folders[sut]
        newest, older = runs[-1], list(reversed(runs[:-1]))
        names = _run_names(older)
        tail = (
            environment()
            .get_template("site/older.rst.j2")
            .render(
                runs=[each.run for each in older],
                names=names,
                trends=f"/{PAGES}/{trends[sut[0]]}/index" if sut[0] in trends else "",
            )
        )
        files |= _files(f"{PAGES}/{folder}", newest.page, tail)
        documents[*sut, newest.run.id] = f"/{PAGES}/{folder}/index"
        machines.append(newest.machine.model_copy(update={"folder": folder}))
        for name, each in zip(names, older, strict=True):
            files |= _files(f"{PAGES}/{folder}/{name}", each.page, "")
            documents[*sut, each.run.id] = f"/{PAGES}/{folder}/{name}/index"
            if each.machine.imported:
                machines.append(each.machine.model_copy(update={"folder": f"{folder}/{name}"}))
        if older:
            shown = [each for place, each in enumerate([newest, *older]) if place < HISTORY or each.machine.imported]
            history = render_history([each.machine for each in shown])
            files[f"{PAGES}/{folder}/history.rst"] = history.encode()
        entries.append((folder, newest.run, newest.machine.processor or "", len(runs)))

    def page_of(run: NightRun | None) -> str | None:
        return None if run is None else documents.get((run.testbed, run.sut, run.run_id))

    if nights is not None:
        for testbed, folder in trends.items():
            those = [each for each in found if each.testbed == testbed and each.newest is not None]
            made = render_trends(nights, testbed, those, page_of)
            files |= {f"{PAGES}/{folder}/{name}": content for name, content in made.items()}
        content = {
            "night": nights.night.isoformat(),
            "verdicts": [each.model_dump(mode="json") for each in nights.verdicts],
            "events": [each.model_dump(mode="json") for each in nights.events],
        }
        files[f"{PAGES}/tonight.json"] = json.dumps(content).encode()
    index = (
        environment()
        .get_template("site/index.rst.j2")
        .render(
            entries=entries,
            found=found,
            said="" if nights is None else sentence(nights, found),
            unreadable=list(dict.fromkeys([*_unreadable(nights), *unreadable])),
            events=[] if nights is None else [told_event(each, nights.verdicts) for each in nights.events],
            page_of=page_of,
            trends={testbed: f"{folder}/index" for testbed, folder in trends.items()},
        )
    )
    files[f"{PAGES}/index.rst"] = tidy(index).encode()
    files[f"{PAGES}/comparison.rst"] = render_site_comparison(machines).encode()
    return files


def _unreadable(nights: Nights | None) -> list[str]:
    """Return which files were found unreadable when the night was judged."""
    return [] if nights is None else [each.reason for each in nights.verdicts if each.check == "unreadable"]


def _age(page: SitePage) -> tuple[str, str, bool, date, datetime, str]:
    """Return what sorts pages by testbed, SUT and time; what was imported is history, whenever that was."""
    run, machine = page.run, page.machine
    return run.testbed, run.sut, not machine.imported, machine.measured_on or date.min, run.started_at, run.id


def _run_names(runs: Iterable[SitePage]) -> list[str]:
    taken: set[str] = {"index", "figures", "history"}
    return [_unique(filters.slug(each.run.id), taken) for each in runs]


def _unique(folder: str, taken: set[str]) -> str:
    """Return *folder*, with a number where another name became the same."""
    found, number = folder, 2
    while found in taken:
        found, number = f"{folder}-{number}", number + 1
    taken.add(found)
    return found


def _files(folder: str, page: Page, tail: str) -> dict[str, bytes]:
    return {
        f"{folder}/index.rst": (page.text + tail).encode(),
        **{f"{folder}/{name}": svg.encode() for name, svg in page.figures.items()},
    }


def _synchronise(folder: Path, files: dict[str, bytes]) -> bool:
    """Make *folder* hold *files* and nothing else, and tell whether anything had to go.

    A file that has its content already keeps its time stamp.
    """
    for name, content in files.items():
        path = folder / name
        if path.is_file() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    removed = False
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and str(path.relative_to(folder)) not in files:
            path.unlink()
            removed = True
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    return removed


def _sphinx(work: Path) -> None:
    """Build ``source`` into ``html``. Raises ``InputError`` with Sphinx's own words where it warns."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--builder",
        "html",
        "--quiet",
        "--fail-on-warning",
        "--doctree-dir",
        str(work / "doctrees"),
        str(work / "source"),
        str(work / "html"),
    ]
    path = os.pathsep.join(filter(None, (str(places.PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    environ = {**os.environ, "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "0", "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentLacksError(f"Sphinx did not end within {BUILD_TIMEOUT_S} s; its cache is {work}") from error
    if done.returncode:
        said = done.stderr.replace(f"{work / 'source'}/", "").strip()
        raise InputError(f"expected a site without warnings, Sphinx says:\n{said or done.stdout.strip()}")


def _holds(path: Path, content: bytes) -> bool:
    """Return whether a regular file at *path* has *content*."""
    try:
        return read_regular(path, len(content)) == content
    except (FileNotFoundError, InputError):
        return False


def _install(built: Path, output: Path) -> None:
    """Copy the finished site to *output*; what an earlier build put there and this one did not is removed."""
    names = sorted(
        str(path.relative_to(built)) for path in built.rglob("*") if path.is_file() and path.name != ".buildinfo"
    )
    manifest = output / MANIFEST
    output.mkdir(parents=True, exist_ok=True)
    try:
        before = read_regular(manifest, MAX_MANIFEST_BYTES, below=output).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        before = []
    for name in names:
        source, target = built / name, output / name
        if _holds(target, source.read_bytes()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        pending = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        try:
            shutil.copyfile(source, pending)
            pending.replace(target)
        finally:
            pending.unlink(missing_ok=True)
    write_whole(manifest, "\n".join([*names, ""]).encode())
    for name in set(before) - set(names):
        gone = output / name
        if gone.resolve().is_relative_to(output.resolve()):
            gone.unlink(missing_ok=True)
            if gone.parent != output and not any(gone.parent.iterdir()):
                gone.parent.rmdir()
