# SPDX-License-Identifier: Apache-2.0
"""Holds the tables of events, and what would be opened on every described machine, against the vendors' own lists.

``python -m bench.event_lists DIR`` reads ``DIR/perfmon``, a checkout of Intel's lists (github.com/intel/perfmon), and
``DIR/linux``, one of the kernel, where AMD's, Arm's and NVIDIA's are (``tools/perf/pmu-events`` and drivers). It writes
bench/event_lists.json and renews its lines of docs/development/benchmarks.rst. Exit code 1 where anything differs.

Of a row its number, its unit mask, its other terms, the counters that can count it, what one count moved, and the
edition of the list are compared. What is opened is encoded anew from a list's numbers, with a machine's formats.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench.event_trees import FIXTURES, described, unpack
from bench.page import PAGE, between
from calibration.context.model import EventSource
from calibration.counters.cli import numbered, rows_of, where_of, words_of
from calibration.counters.encoding import encode, parse_terms
from calibration.counters.event_choice import ChosenEvent, ChosenSampling, CounterChoice, choose_events
from calibration.counters.tables import Boxes, BoxEvent, CoreEvent, Listing, SampledEvent, Table, tables

SCHEMA = "event-lists/1"
DOCUMENT = Path(__file__).parent / "event_lists.json"
BEGIN = ".. The lines below are written by bench/event_lists.py."
OFFCORE_RESPONSE, LOAD_LATENCY = 0x1A6, 0x3F6
"""Registers in which Intel's lists keep what the kernel's formats call ``offcore_rsp`` and ``ldlat``."""


@dataclass(frozen=True)
class Published:
    """An event as a list has it: what each of its terms may be, which counters count it, and what a count moves."""

    terms: Mapping[str, frozenset[int]]
    counters: tuple[int, ...] | None = None
    fixed: bool = False
    scale_bytes: float | None = None

    def text(self, like: Mapping[str, int]) -> str:
        """Return the terms, where there is a choice as *like* has them."""
        chosen = {name: like[name] if like.get(name) in values else min(values) for name, values in self.terms.items()}
        return ",".join(f"{name}={value:#x}" for name, value in chosen.items())


@dataclass
class Lists:
    """The vendors' lists below one directory, each read once."""

    root: Path
    read: dict[Path, Any] = field(default_factory=dict)

    def text(self, path: Path) -> str:
        """Return the text of a file."""
        if path not in self.read:
            self.read[path] = path.read_text(encoding="utf-8")
        found: str = self.read[path]
        return found

    def version(self, listing: Listing) -> str:
        """Return the edition of *listing* that is below this directory."""
        if listing.list.startswith("intel/perfmon "):
            return str(self._intel(listing)["Header"]["Version"])
        makefile = self.text(self.root / "linux" / "Makefile")
        parts = [re.search(rf"^{name} = ([0-9]+)", makefile, re.MULTILINE) for name in ("VERSION", "PATCHLEVEL")]
        parts.append(re.search(r"^SUBLEVEL = ([0-9]+)", makefile, re.MULTILINE))
        return ".".join(part[1] for part in parts if part)

    def published(self, listing: Listing, event: str) -> Published | None:
        """Return *event* of *listing*; None where the list has none of that name."""
        if listing.list.startswith("intel/perfmon "):
            return _of_intel(self._intel(listing)["Events"], event, self._intel_metrics(listing))
        path = self.root / "linux" / listing.list.removeprefix("linux ")
        if path.is_dir():
            return self._of_arm(path, event)
        if path.suffix == ".json":
            return _of_perf(json.loads(self.text(path)), event, self._metrics_beside(path))
        return _of_driver(self.text(path), event)

    def _intel(self, listing: Listing) -> Any:
        path = self.root / "perfmon" / listing.list.removeprefix("intel/perfmon ")
        if path not in self.read:
            self.read[path] = json.loads(path.read_text(encoding="utf-8"))
        return self.read[path]

    def _intel_metrics(self, listing: Listing) -> str:
        events = self.root / "perfmon" / listing.list.removeprefix("intel/perfmon ")
        name = re.sub(r"_(core|uncore)$", "_metrics", events.stem)
        return self.text(events.parent.parent / "metrics" / f"{name}.json")

    def _metrics_beside(self, path: Path) -> str:
        beside = path.parent / "recommended.json"
        return self.text(beside) if beside.is_file() else ""

    def _of_arm(self, folder: Path, event: str) -> Published | None:
        names = {
            each.get("ArchStdEvent") for path in sorted(folder.glob("*.json")) for each in json.loads(self.text(path))
        }
        known = json.loads(self.text(folder.parent.parent / "common-and-microarch.json"))
        found = next((each for each in known if each.get("EventName") == event), None)
        return None if found is None or event not in names else Published(_numbers(event=found["EventCode"]))


def _numbers(**texts: str | None) -> dict[str, frozenset[int]]:
    """Return each term that is there with the numbers it may be: lists name two where either of two events will do."""
    return {
        name: frozenset(int(each, 0) for each in text.split(",")) for name, text in texts.items() if text is not None
    }


def _of_intel(events: Iterable[Mapping[str, Any]], name: str, metrics: str) -> Published | None:
    found = next((each for each in events if each["EventName"] == name), None)
    if found is None:
        return None
    selected = int(found.get("ExtSel") or "0", 0) << 8  # the ninth bit of an event's number, as the kernel has it
    wider = int(found.get("UMaskExt") or "0", 0) << 8
    terms = {
        "event": frozenset(int(each, 0) | selected for each in found["EventCode"].split(",")),
        "umask": frozenset({int(found["UMask"], 0) | wider}),
    }
    registers = [int(each, 0) for each in (found.get("MSRIndex") or "0").split(",")]
    if OFFCORE_RESPONSE in registers:
        terms |= _numbers(offcore_rsp=found["MSRValue"])
    if LOAD_LATENCY in registers:
        terms |= _numbers(ldlat=found["MSRValue"])
    fixed = "Fixed" in found["Counter"]
    counters = None if fixed else tuple(int(each) for each in found["Counter"].split(","))
    return Published(terms, counters, fixed, _intel_scale(json.loads(metrics)["Metrics"], name))


def _intel_scale(metrics: Iterable[Mapping[str, Any]], event: str) -> float | None:
    """Return the bytes of one count of *event* by the bandwidth that a metric makes of it; None where none does."""
    for each in metrics:
        factor = re.search(r"\*\s*\(?\s*([0-9]+)(?:\s*/\s*([0-9.]+))?\s*\)?\s*/\s*1000000\b", each["Formula"])
        if each.get("UnitOfMeasure") == "MB/sec" and event in {one["Name"] for one in each["Events"]} and factor:
            return int(factor[1]) / float(factor[2] or 1)
    return None


def _of_perf(events: Iterable[Mapping[str, Any]], name: str, metrics: str) -> Published | None:
    """Return an event of perf's own lists: AMD's, and those of boxes of Arm and HiSilicon."""
    found = next((each for each in events if each.get("EventName") == name), None)
    if found is None:
        return None
    terms = _numbers(
        event=found.get("EventCode") or found.get("ConfigCode"),
        umask=found.get("UMask"),
        rdwrmask=found.get("RdWrMask"),
        type=found.get("NodeType"),
        eventid=found.get("EventidCode"),
    )
    said = re.search(r"\(([0-9]+) ?(?:B|bytes)\)", found.get("PublicDescription", ""))
    factor = said or re.search(rf"\({re.escape(name)} \* ([0-9]+)\)", metrics)
    return Published(terms, scale_bytes=float(factor[1]) if factor else None)


def _of_driver(source: str, name: str) -> Published | None:
    """Return an event that a driver of the kernel names; of an event that is a source's only one, its terms' places."""
    quoted = re.escape(name)
    if found := re.search(rf"INTEL_UNCORE_EVENT_DESC\({quoted},\s*\"([^\"]+)\"\)", source):
        every = re.findall(rf"INTEL_UNCORE_EVENT_DESC\({quoted},\s*\"([^\"]+)\"\)", source)
        scale = re.search(rf"INTEL_UNCORE_EVENT_DESC\({quoted}\.scale,\s*\"([^\"]+)\"\)", source)
        known = [parse_terms(each) for each in every]
        terms = {term: frozenset(each[term] for each in known) for term in parse_terms(found[1])}
        return Published(terms, scale_bytes=float(scale[1]) * 2**20 if scale else None)
    if found := re.search(rf"DMC620_PMU_EVENT_ATTR\({quoted},\s*(\w+),\s*(\w+)\)", source):
        return Published(_numbers(event=found[1], clkdiv2=found[2]))
    if found := re.search(rf"ARM_CSPMU_EVENT_ATTR\({quoted},\s*(\w+)\)", source):
        return Published(_numbers(event=found[1]))
    if found := re.search(rf"\b{quoted}\s*=\s*([0-9]+),", source):
        return Published(_numbers(config=found[1]))
    if re.search(rf"\"{quoted}(?:_%d)?\"|PMUNAME\s+\"{quoted}\"", source):
        places = re.findall(r"PMU_FORMAT_ATTR\((\w+),|ATTR_CFG_FLD_(\w+)_CFG", source)
        return Published({term: frozenset() for place in places for term in place if term})
    return None


def _terms_differ(terms: Mapping[str, int], published: Published) -> Iterator[str]:
    for name in sorted({*terms, *(each for each, values in published.terms.items() if values)}):
        values = published.terms.get(name)
        if values is None or name not in terms or (values and terms[name] not in values):
            listed = "none" if values is None else " or ".join(f"{each:#x}" for each in sorted(values))
            yield (
                f"{name} is {terms[name]:#x}, listed {listed}"
                if name in terms
                else f"{name} is left out, listed {listed}"
            )


def differences(
    row: CoreEvent | BoxEvent | SampledEvent, boxes: Boxes | None, published: Published | None
) -> list[str]:
    """Return what of *row* differs from the list's event; *boxes* is where it stands, of a box outside the cores."""
    if published is None:
        return [f"{row.event} is not in the list"]
    found = [] if row.terms is None else list(_terms_differ(parse_terms(row.terms), published))
    if not isinstance(row, BoxEvent) and published.counters is not None and row.counters != published.counters:
        found.append(f"counters {row.counters}, listed {published.counters}")
    if boxes is not None:
        if published.counters is not None and len(published.counters) != boxes.counters:
            found.append(f"{boxes.counters} counters, listed {len(published.counters)}")
        listed = published.scale_bytes
        if listed is not None and boxes.scale_bytes is not None and abs(listed - boxes.scale_bytes) > 1e-9:
            found.append(f"{boxes.scale_bytes:g} bytes a count, listed {listed:g}")
    return [f"{row.event}: {each}" for each in found]


def rows_of_table(known: Table) -> Iterator[tuple[CoreEvent | BoxEvent | SampledEvent, Boxes | None]]:
    """Yield all rows of a table, each with the boxes it stands in."""
    yield from ((each, None) for each in known.core)
    yield from ((event, boxes) for boxes in known.boxes for event in boxes.events)
    if known.sampling is not None:
        yield known.sampling, None


def _list_of(lists: Lists, known: Table, key: str) -> dict[str, Any]:
    """Return how the rows that one table took from one list agree with it."""
    listing = known.sources[key]
    rows = [each for each in rows_of_table(known) if each[0].source == key]
    differing = [
        lines for row, boxes in rows if (lines := differences(row, boxes, lists.published(listing, row.event)))
    ]
    version = lists.version(listing)
    edition = [] if version == listing.version else [f"the table says edition {listing.version}, the list {version}"]
    return {
        "microarchitecture": known.microarchitecture,
        "list": listing.list,
        "version": version,
        "date": listing.date,
        "rows": len(rows),
        "agreed": len(rows) - len(differing),
        "differing": [*edition, *(line for lines in differing for line in lines)],
    }


def _listing_of(event: ChosenEvent | ChosenSampling) -> Listing:
    """Return the listing that a chosen event says it is from."""
    known = (listing for one in tables().values() for listing in one.sources.values())
    return next(each for each in known if f"{each.list}, {each.version}" == event.source)


def opened_differs(lists: Lists, event: ChosenEvent, source: EventSource | None) -> list[str]:
    """Return what of *event*, as it would be opened on *source*, differs from its encoding by the list."""
    published = lists.published(_listing_of(event), event.event)
    if published is None:
        return [f"{event.pmu}: {event.event} is not in the list"]
    if source is None:  # the kernel's own number
        expected = {name: min(values) for name, values in published.terms.items()}
    else:
        like = next((parse_terms(row.terms) for row in _rows(event) if row.terms is not None), {})
        alias = next((source.aliases[row.alias].terms for row in _rows(event) if _has(source, row)), None)
        expected = encode(source, published.text(like if alias is None else parse_terms(alias)))
    if expected != event.words:
        return [f"{event.pmu}: {event.event} is {words_of(event.words)}, by the list {words_of(expected)}"]
    listed = published.scale_bytes
    if listed is not None and event.scale_bytes is not None and abs(listed - event.scale_bytes) > 1e-9:
        return [f"{event.pmu}: {event.event} moves {event.scale_bytes:g} bytes a count, by the list {listed:g}"]
    return []


def sampled_differs(lists: Lists, sampling: ChosenSampling, source: EventSource) -> list[str]:
    """Return what of *sampling* differs from its encoding by the list; a source with one event has none there."""
    published = lists.published(_listing_of(sampling), sampling.event)
    if published is None:
        return [f"{sampling.pmu}: {sampling.event} is not in the list"]
    if not all(published.terms.values()):
        return []
    expected = encode(source, published.text({}))
    if expected == sampling.words:
        return []
    return [f"{sampling.pmu}: {sampling.event} is {words_of(sampling.words)}, by the list {words_of(expected)}"]


def _rows(event: ChosenEvent) -> list[Any]:
    """Return the rows that *event* may have come from."""
    known = (row for one in tables().values() for row, _ in rows_of_table(one))
    return [row for row in known if row.event == event.event]


def _has(source: EventSource, row: Any) -> bool:
    return isinstance(row, BoxEvent) and row.alias in source.aliases


@cache
def machines() -> tuple[Path, ...]:
    """Return the descriptions of all machines."""
    return tuple(sorted(FIXTURES.glob("*.yml")))


def opened(choice: CounterChoice) -> list[dict[str, Any]]:
    """Return what would be opened, boxes and channels that are alike together."""
    found = [
        {
            "role": row[0].name,
            "event": numbered(each.event for each in row),
            "pmus": numbered(each.pmu for each in row),
            "words": list(dict.fromkeys(words_of(each.words) for each in row)),
            "on": where_of(row),
            "scale_bytes": row[0].scale_bytes,
            "caution": row[0].caution,
        }
        for row in rows_of(choice.events)
    ]
    if choice.sampling is None:
        return found
    sampling = choice.sampling
    words = words_of(sampling.words) + ("" if sampling.aux is None else f" aux={sampling.aux:#x}")
    about = {"role": "samples", "event": sampling.event, "pmus": sampling.pmu, "words": [words]}
    return [*found, {**about, "on": "each measuring thread", "scale_bytes": None, "caution": sampling.caution}]


def machine_of(path: Path) -> tuple[dict[str, Any], CounterChoice, dict[str, EventSource]]:
    """Return what is said of the machine in *path*, without what lists say, its choice, and its sources by name."""
    description = described(path)
    with tempfile.TemporaryDirectory() as folder:
        context = unpack(description, Path(folder))
    choice = choose_events(context)
    about = {
        "name": path.stem,
        "title": description["title"],
        "made": description["made"],
        "made_from": description["sources"],
        "microarchitecture": choice.microarchitecture,
        "opened": opened(choice),
        "missing": [each.model_dump() for each in choice.missing],
    }
    return about, choice, {each.name: each for each in context.event_sources or ()}


def checked(root: Path) -> dict[str, Any]:
    """Return how tables and machines agree with the lists below *root*."""
    lists = Lists(root)
    found = []
    for path in machines():
        about, choice, sources = machine_of(path)
        differing = [line for event in choice.events for line in opened_differs(lists, event, sources.get(event.pmu))]
        if choice.sampling is not None:
            differing += sampled_differs(lists, choice.sampling, sources[choice.sampling.pmu])
        found.append({**about, "events": len(choice.events), "differing": differing})
    return {
        "schema": SCHEMA,
        "lists": [_list_of(lists, known, key) for known in tables().values() for key in known.sources],
        "machines": found,
    }


def lines_of(document: Mapping[str, Any]) -> str:
    """Return what *document* amounts to as rst: how much agrees, and all that differs."""
    lists, machines = document["lists"], document["machines"]
    rows, agreed = (sum(each[name] for each in lists) for name in ("rows", "agreed"))
    newest = max(each["date"] for each in lists)
    events = sum(each["events"] for each in machines)
    lines = [
        f"{agreed} of {rows} rows agree with {len(lists)} lists, the newest of {newest}.",
        f"{events} events would be opened on {len(machines)} machines.",
        "",
    ]
    differing = [f"* {line}" for each in (*lists, *machines) for line in each["differing"]]
    return "\n".join([*lines, *(["What differs:", "", *differing] if differing else ["Nothing differs."]), ""])


def renewed(page: str, document: Mapping[str, Any]) -> str:
    """Return *page* with the lines of *document*. Raises ``ValueError`` where the page lost its marks."""
    return between(page, lines_of(document), BEGIN)


def main(arguments: list[str]) -> int:
    """Check against the lists below the directory named, keep what was found, and renew the page."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m bench.event_lists DIR, with checkouts in DIR/perfmon and DIR/linux\n")
        return 2
    document = checked(Path(arguments[0]))
    DOCUMENT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), document), encoding="utf-8")
    differing = [line for each in (*document["lists"], *document["machines"]) for line in each["differing"]]
    sys.stdout.write("".join(f"{line}\n" for line in differing) or "nothing differs\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
