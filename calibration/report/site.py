# SPDX-License-Identifier: Apache-2.0
"""Build the site: the user guide and the pages of all runs, as HTML without external resources.

Sphinx builds the guide; the pages of runs, testbeds and the lab are written into its theme's shell. Rendered pages are
cached, so a new night only costs its new runs. The output is updated after the whole build succeeded.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Final

from calibration.base import units
from calibration.base.errors import InputError
from calibration.base.files import able_to, locked, read_regular, write_whole
from calibration.base.gc_pause import frozen_objects
from calibration.base.grouping import grouped
from calibration.base.names import natural
from calibration.base.parsers import parse_json
from calibration.base.places import CACHE as CACHES
from calibration.base.places import HOME, SHARE
from calibration.base.text import visible
from calibration.judge.answer import Answer, answers, urgency
from calibration.judge.judged import JudgedNights
from calibration.judge.night import judgement_of, read_nights
from calibration.judge.standing import Standing, Standings, standing_of
from calibration.judge.strip import NIGHTS
from calibration.references.library import Library, library, results_of
from calibration.report.environment import blocks_of
from calibration.report.html import to_html
from calibration.report.kept import prune
from calibration.report.lab import Lab, Links, linked
from calibration.report.page_cache import LINKS, SUT_ROOT, Data, data_of, page_of
from calibration.report.shell import PAGES, build_guide, shell
from calibration.report.trends import render_testbed
from calibration.results.history import Sut
from calibration.results.layout import RUN, find_runs
from calibration.results.model import Run
from calibration.results.store import StoredRun, open_run

DOCS = SHARE / "docs"
SITE = HOME / "docs" / "_build" / "html"
CACHE = CACHES / "site"

EXAMPLE: Final = SHARE / "results" / "example"
"""A run whose page is part of the guide."""

MAX_RUNS: Final = 6
"""Newest runs of a SUT whose documents are on the site, besides all imports."""

TIMED: Final = re.compile(r"\d{8}T\d{6}Z-")
"""Prefix of run names given by the harness: these sort by time."""

MANIFEST: Final = ".calibration-site"
"""File in a site that lists its files, so that a later build removes only these; empty until the site is finished."""

MAX_MANIFEST_BYTES: Final = 64 * 1024 * 1024
"""Limit for reading the manifest: 365 nights of 100 SUTs need less than a tenth."""

FIRST: Final = "index.html"
"""The first page of a site."""

SEARCH_INDEX: Final = "searchindex.js"


@dataclass(frozen=True)
class Kept:
    """A run of the site: its path in the results, and its data."""

    results: Path
    directory: Path
    data: Data

    @property
    def stored(self) -> StoredRun:
        """The document, not kept in memory: a lab has too many."""
        return _stored(self.results, self.directory)


def build_site(results: Path, docs: Path = DOCS, output: Path = SITE) -> Path:
    """Build the site of the guide in *docs* and all runs in *results* into *output*, and return its first page.

    *results* is a results directory or one run. The newest run of each SUT has a page, which links documents and
    metrics of older ones. Unreadable files are listed on the first page. Raises ``InputError`` if Sphinx warns or
    *results* is one unreadable run, or *output* has a first page of something else, ``EnvironmentLacksError`` if the
    site cannot be written.
    """
    one = (results / RUN).is_file()
    nights = None if one else read_nights(results)
    found = [] if nights is None else sorted(answers(nights).values(), key=urgency)
    directories = [results] if one else _with_documents(find_runs(results), results, nights, found)
    key = hashlib.sha256(f"{docs.resolve()}\n{output.resolve()}".encode()).hexdigest()[:16]
    what = f"build the site in {CACHE} or write it to {output}"
    work = CACHE / key
    with able_to(what, ". Free some space or give another directory"), locked(work / "lock"):
        if (output / FIRST).exists() and not (output / MANIFEST).exists():
            raise InputError(f"{output / FIRST} is of something else: give another directory")
        runs, unreadable = _read(results, directories)
        if one and unreadable:
            raise unreadable[0]
        suts = {sut: valid for sut, those in _by_sut(runs).items() if (valid := _with_page(those, unreadable))}
        unread = [str(damaged).removeprefix(f"{results}/") for damaged in unreadable]
        taken: set[str] = {"index", EXAMPLE.name}
        names = {testbed for testbed, _ in suts} | {run.testbed for run in found if run.nights}
        testbeds = {testbed: _unique(units.slug(testbed), taken) for testbed in sorted(names, key=natural)}
        html = build_guide(docs, output, {folder: testbed for testbed, folder in testbeds.items()}, work)
        site = _Site(results, html, suts, nights, found, testbeds)
        with frozen_objects():
            _install(html, site.files(unread), output, site.searched)
        prune()
    return output / FIRST


def _read(results: Path, directories: Sequence[Path]) -> tuple[list[Kept], list[InputError]]:
    """Return the runs in *directories*, and the errors of unreadable ones.

    Of those that are not the last of their SUT by name, only the metrics are read.
    """
    last = {directory.parent: directory for directory in sorted(directories)}
    runs, errors = [], []
    for directory in directories:
        whole = directory == last[directory.parent]
        try:
            runs.append(Kept(results, directory, data_of(_stored(results, directory), whole=whole)))
        except InputError as error:
            errors.append(error)
    return runs, errors


def _with_page(runs: Sequence[Kept], errors: list[InputError]) -> Sequence[Kept]:
    """Return *runs*, newest first, from the first whose whole document is valid; add the *errors* of those before."""
    for number, run in enumerate(runs):
        try:
            _ = run.data.whole or run.stored.document
        except InputError as error:
            errors.append(error)
        else:
            return runs[number:]
    return ()


def _stored(results: Path, directory: Path) -> StoredRun:
    return open_run(directory / RUN, below=results)


def _with_documents(
    runs: Sequence[Path], results: Path, nights: JudgedNights | None, found: Sequence[Answer]
) -> list[Path]:
    """Return those of *runs* whose documents are on the site.

    These are each SUT's newest, those in which tonight's worst failures began, and all without a time in their names.
    """
    unreadable = () if nights is None else nights.history.unreadable
    damaged = {(results / damaged.file).parent for damaged in unreadable}
    runs = [run for run in runs if run not in damaged]
    by_sut = grouped((directory.parent, directory) for directory in runs)
    left_out = set()
    for those in by_sut.values():
        left_out |= {*sorted(item for item in those if TIMED.match(item.name))[:-MAX_RUNS]}
    for item in found:
        began = None if nights is None or item.state != "fails" else nights.began((item.testbed, item.sut), item.since)
        if began is not None:
            left_out.discard(results / began.directory)
    return [run for run in runs if run not in left_out]


def _by_sut(runs: Iterable[Kept]) -> dict[Sut, list[Kept]]:
    """Return *runs* by SUT, newest first; imports count as oldest, whatever their date."""
    found = grouped(((run.data.run.testbed, run.data.run.sut), run) for run in sorted(runs, key=_age, reverse=True))
    return dict(sorted(found.items()))


def _age(kept: Kept) -> tuple[bool, date, datetime, str]:
    data = kept.data
    return not data.imported, data.measured_on or date.min, data.run.started_at, data.run.id


def _unique(folder: str, taken: set[str]) -> str:
    """Return *folder*, numbered if another name maps to the same one."""
    found, number = folder, 2
    while found in taken:
        found, number = f"{folder}-{number}", number + 1
    taken.add(found)
    return found


@dataclass(frozen=True)
class _Site:
    """The pages added to the guide, while they are made."""

    results: Path
    html: Path
    suts: Mapping[Sut, Sequence[Kept]]
    nights: JudgedNights | None
    found: Sequence[Answer]
    testbeds: Mapping[str, str]

    @cached_property
    def references(self) -> Library:
        """The references that pages compare with."""
        return library(results_of(self.results) if (self.results / RUN).is_file() else self.results)

    @cached_property
    def folders(self) -> dict[Sut, str]:
        """Folder of each SUT's page, below its testbed's."""
        taken: dict[str, set[str]] = {}
        return {
            (testbed, sut): _unique(units.slug(sut), taken.setdefault(testbed, {"figures"}))
            for testbed, sut in self.suts
        }

    @property
    def searched(self) -> dict[str, str]:
        """Titles of SUTs' pages by name, for the search."""
        return {
            f"{PAGES}/{self.testbeds[testbed]}/{folder}/index": f"{testbed} / {sut}"
            for (testbed, sut), folder in self.folders.items()
        }

    def files(self, unread: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the files of all pages by path below the site; *unread* lists unreadable files with reasons."""
        folders = self.folders
        for key, runs in self.suts.items():
            for name, content in self._sut(runs, key[0]):
                yield f"{PAGES}/{self.testbeds[key[0]]}/{folders[key]}/{name}", content
        yield from self._example()
        nights = self.nights
        for testbed, folder in self.testbeds.items():
            around = shell(self.html, folder).around
            those = [run for run in self.found if run.testbed == testbed]
            here = {sut: f"{name}/index.html" for (of, sut), name in folders.items() if of == testbed}
            if nights is None or not any(item.nights for item in those):
                rows = [(testbed, sut, self.suts[testbed, sut][0].data.run) for sut in here]
                body = self._lab(None, rows, _within(here), ())
                yield f"{PAGES}/{folder}/index.html", around(testbed, body)
                continue
            pages, files = render_testbed(nights, testbed, those, _within(here))
            for name, (title, body, contents) in pages.items():
                yield f"{PAGES}/{folder}/{name}", around(title, body, contents=contents)
            for name, content in files.items():
                yield f"{PAGES}/{folder}/{name}", content
        if nights is not None:
            yield f"{PAGES}/tonight.json", judgement_of(nights).model_dump_json().encode()
        timed = {(run.testbed, run.sut) for run in self.found}
        others = [(*sut, runs[0].data.run) for sut, runs in self.suts.items() if sut not in timed]

        def link(testbed: str, sut: str) -> str | None:
            folder = folders.get((testbed, sut))
            return None if folder is None else f"{self.testbeds[testbed]}/{folder}/index.html"

        damaged = (
            () if nights is None else (verdict.reason for verdict in nights.verdicts if verdict.check == "unreadable")
        )
        body = self._lab(nights, others, link, list(dict.fromkeys([*damaged, *unread])))
        yield f"{PAGES}/index.html", shell(self.html).around("Calibration data", body)

    def _lab(
        self,
        nights: JudgedNights | None,
        others: Iterable[tuple[str, str, Run]],
        link: Links,
        unreadable: Sequence[str],
    ) -> str:
        trends = {testbed: f"{folder}/" for testbed, folder in self.testbeds.items()}
        return _html(
            "lab",
            lab=None if nights is None else Lab(nights, self.found, link, trends),
            nights=nights,
            strip_nights=NIGHTS,
            unreadable=unreadable,
            others=[(linked(link, testbed, sut, f"{testbed}/{sut}"), run) for testbed, sut, run in others],
        )

    def _sut(self, runs: Sequence[Kept], testbed: str) -> Iterator[tuple[str, bytes]]:
        """Yield the files of one SUT: the page of its newest run, and documents and metrics of *runs*."""
        newest = runs[0]
        taken = {"index", "figures"}
        names = [_unique(units.slug(run.data.run.id), taken) for run in runs]
        for name, item in zip(names, runs, strict=True):
            if item.data.public:
                yield f"{name}.json", item.stored.content
                yield f"{name}.csv", item.data.csv.encode()
        places = {"run.json": f"{names[0]}.json", "CSV": f"{names[0]}.csv"} if newest.data.public else {}
        places["trends"] = "../index.html"
        tail = _html(
            "run",
            runs=list(zip(names, (run.data for run in runs), strict=True)),
            more=max(0, sum(1 for _ in newest.directory.parent.glob(f"*/{RUN}")) - len(runs)),
            sut=f"{newest.data.run.testbed}/{newest.data.run.sut}",
        )
        linked = " ".join(f'<a href="{place}">{word}</a>' for word, place in places.items())
        yield from self._page(
            newest.stored, newest.data, self.testbeds[testbed], f'<p class="links">{linked}</p>', tail
        )

    def _standing(self, stored: StoredRun, data: Data) -> Standing | None:
        """Return the standing of the SUT of *stored*, whose *data* are known; ``None`` for an import."""
        sut = data.run.testbed, data.run.sut
        if data.imported:
            return None
        if self.nights is not None and sut in self.nights.of_sut:
            return standing_of(self.nights, sut, data.headlines)
        return self._standings.of(stored.path, stored.document)

    @cached_property
    def _standings(self) -> Standings:
        return Standings()

    def _example(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files of the example's page, if there is an example."""
        try:
            stored = open_run(EXAMPLE / RUN)
        except FileNotFoundError:
            return
        for name, content in self._page(stored, data_of(stored), "", "", ""):
            yield f"{PAGES}/{EXAMPLE.name}/{name}", content

    def _page(self, stored: StoredRun, data: Data, testbed: str, links: str, tail: str) -> Iterator[tuple[str, bytes]]:
        """Yield the page of *stored* with its *data*, one folder below *testbed*'s, and its pictures."""
        page = page_of(stored, self.references, self._standing(stored, data), SUT_ROOT if testbed else "../../")
        body = page.body.replace(LINKS, links) + tail
        yield "index.html", shell(self.html, testbed).around(page.title, body, contents=page.contents, deeper=1)
        for name, content in page.figures.items():
            yield name, content.encode()


def _html(name: str, **names: object) -> str:
    return to_html(blocks_of(f"site/{name}", **names), {}, "").body


def _holds(path: Path, content: bytes) -> bool:
    """Return whether *path* is a regular file with *content*."""
    try:
        return read_regular(path, len(content)) == content
    except (FileNotFoundError, InputError):
        return False


def _install(built: Path, files: Iterable[tuple[str, bytes]], output: Path, searched: Mapping[str, str]) -> None:
    """Copy the guide in *built* and *files* to *output*; remove files that only an earlier build had.

    The pages *searched* are added to the guide's search index by title.
    """
    manifest = output / MANIFEST
    output.mkdir(parents=True, exist_ok=True)
    try:
        before = read_regular(manifest, MAX_MANIFEST_BYTES, below=output).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        before = []
        write_whole(manifest, b"")
    names = set()
    for name, content in itertools.chain(_built(built), files):
        names.add(name)
        wanted = _searchable(content, searched) if name == SEARCH_INDEX else content
        target = output / name
        if _holds(target, wanted):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, wanted)
    write_whole(manifest, "\n".join([*sorted(names), ""]).encode())
    for name in set(before) - names:
        gone = output / name
        if gone.resolve().is_relative_to(output.resolve()):
            gone.unlink(missing_ok=True)
            if gone.parent != output and gone.parent.is_dir() and not any(gone.parent.iterdir()):
                gone.parent.rmdir()


def _searchable(index: bytes, pages: Mapping[str, str]) -> bytes:
    """Return Sphinx's search *index* with *pages* (titles by name) added."""
    call, _, argument = index.decode().partition("(")
    found = parse_json(argument.rstrip().removesuffix(")"))
    for name, title in pages.items():
        number = len(found["docnames"])
        found["docnames"].append(name)
        found["filenames"].append(f"{name}.rst")
        found["titles"].append(escape(visible(title)))
        for word in sorted(set(re.findall(r"\w+", title.lower()))):
            known = found["titleterms"].get(word, [])
            found["titleterms"][word] = [*(known if isinstance(known, list) else [known]), number]
    return f"{call}({json.dumps(found, separators=(',', ':'))})".encode()


def _built(html: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the guide, without the empty pages of lab and testbeds."""
    for path in sorted(html.rglob("*")):
        if path.is_file() and path.name != ".buildinfo" and path.relative_to(html).parts[0] != PAGES:
            yield str(path.relative_to(html)), path.read_bytes()


def _within(pages: Mapping[str, str]) -> Callable[[str, str], str | None]:
    """Return a function that finds a SUT's page among the *pages* of its testbed."""
    return lambda _, sut: pages.get(sut)
