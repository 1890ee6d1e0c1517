# SPDX-License-Identifier: Apache-2.0
"""Turn the evidence in a document of sutprobe into validity flags, and its errors into reasons of what is missing.

A flag per fault, with its extent in the sentence.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from calibration.base.errors import InputError
from calibration.base.flags import FLAG_OF_ERROR, WARNED
from calibration.base.grouping import of_known
from calibration.base.model import Model
from calibration.base.parsers import parse_json
from calibration.base.statistics import Estimate, estimate
from calibration.base.validity import Flag, flag
from calibration.sutprobe.document import ProbeDocument, ProbeError
from calibration.sutprobe.placement import Interference, Pages, Placement, Repeated

FREQUENCY_CHANGE = 0.01
"""Relative change of the core clock over one placement that is flagged."""

ASYMMETRY = 0.05
"""Relative difference between the two directions of a pair that is flagged."""

P = TypeVar("P", bound=Placement)

AROUND = {
    "the temperature in °C": "temperature_c",
    "other running tasks": "running",
    "steal of the SUT in s": "steal_s",
}
"""What was around a round and may explain its figures: the name on a page, and the field."""


class PagesProof(Model):
    """Pages of base size in all buffers of a command: in total, read back, and on the right node."""

    buffers: int
    total: int
    checked: int
    on_node: int


COARSE_NS = 1.5
"""Step of a clock from which single intervals are coarser than elsewhere: the counters of x86_64 and, since Armv8.6, of
aarch64 step by 1 ns or less."""


def resolution_flags(document: ProbeDocument) -> Iterator[Flag]:
    """Yield the flag for single intervals, in no average, that a coarse counter timed."""
    clock = document.clock
    if clock is not None and clock.resolution_ns > COARSE_NS:
        yield flag(
            "CLOCK_COARSE",
            f"the clock ({clock.source}) counts in steps of {clock.resolution_ns:.3g} ns, and reading it takes "
            f"{clock.read_cost_ns:.3g} ns: each interval is a multiple of that step",
        )


def document_flags(document: ProbeDocument) -> Iterator[Flag]:
    """Yield the flags that hold for everything in *document*."""
    if document.clock is not None and document.clock.source == "monotonic_raw":
        yield flag("CLOCK_FALLBACK", f"timed with CLOCK_MONOTONIC_RAW: {document.clock.reason}")
    for warned in document.warnings:
        if warned.code in WARNED:
            yield flag(warned.code, warned.message)


def refusal(error: ProbeError) -> Flag | None:
    """Return the flag for the *error* that sutprobe reported in place of a value; ``None`` for any other."""
    code = FLAG_OF_ERROR.get(error.code)
    return flag(code, error.message) if code else None


def step_refusal(document: ProbeDocument) -> Flag | None:
    """Return the same for a whole *document* without a result, its warnings included."""
    if document.error is None:
        return None
    warned = (flag(warning.code, warning.message) for warning in document.warnings if warning.code in WARNED)
    return refusal(document.error) or next(warned, None)


class Missing(Model):
    """A requested part of a measurement without a value, and why.

    ``flag`` names the fault if it is in the closed list: sutprobe found it and gave no value.
    """

    what: str
    reason: str
    flag: Flag | None = None


def missing_part(what: str, error: ProbeError | None) -> Missing:
    """Return the part *what* without a value, for which sutprobe reported *error* if any."""
    if error is None:
        return Missing(what=what, reason="no placement measured")
    return Missing(what=what, reason=f"{error.code}: {error.message}", flag=refusal(error))


def missing_parts(points: Iterable[Any], words: Callable[[Any], str]) -> tuple[Missing, ...]:
    """Return those of *points* for which sutprobe reported an error, named by *words*."""
    return tuple(missing_part(words(point), point.error) for point in points if point.error is not None)


def require_any(found: Collection[object], points: Iterable[Any], what: str) -> None:
    """Raise ``InputError`` with sutprobe's reasons for *points* unless *what* of at least one was *found*."""
    if not found:
        reasons = sorted({f"{point.error.code}: {point.error.message}" for point in points if point.error})
        raise InputError(f"no {what} could be measured: {'; '.join(reasons) or 'no reason was given'}")


def only_point(points: Sequence[Any], step: str) -> Any:
    """Return the one of *points* that *step* measures. Raises ``InputError`` if there are others, or none."""
    if len(points) != 1:
        raise InputError(f"{len(points)} points for {step}, not 1")
    return points[0]


def pages_proof(document: ProbeDocument) -> PagesProof | None:
    """Return the page placement proved by *document*; ``None`` without buffers."""
    # most results have none, and are large
    results = [result for read in (*document.beside, document) for result in read.results]
    found = [pages for result in results if b'"pages"' in result for pages in _pages(parse_json(result))]
    if not found:
        return None
    return PagesProof(
        buffers=len(found),
        total=sum(placement.total for placement in found),
        checked=sum(placement.checked for placement in found),
        on_node=sum(placement.on_node for placement in found),
    )


def _pages(result: Any) -> list[Pages]:
    found = []
    inside = [result]
    while inside:
        part = inside.pop()
        if isinstance(part, dict) and isinstance(part.get("pages"), dict):
            found.append(Pages.model_validate(part["pages"]))
        items = part.values() if isinstance(part, dict) else part
        inside += [item for item in items if type(item) in (dict, list)]  # most are numbers
    return found


def placement_flags(document: ProbeDocument, placements: Sequence[Placement], *, proved: bool) -> Iterator[Flag]:
    """Yield the flags raised by *placements* of one measurement in *document*.

    *proved* says whether sutprobe's own check of the work passed for all of them.
    """
    if not proved:
        yield flag("WORK_UNPROVED", "the check that all the work was done did not pass")
    of_all = f"of {len(placements)} placements"
    if astray := [placement for placement in placements if not placement.cpus_verified]:
        yield flag("CPU_UNVERIFIED", f"a thread was not on its CPU at the end in {len(astray)} {of_all}")
    yield from page_flags(document, [placement.pages for placement in placements], of_all)
    yield from interference_flags([placement.interference for placement in placements], of_all)
    changed = [change for placement in placements if abs(change := _clock_change(placement)) > FREQUENCY_CHANGE]
    if changed:
        worst = max(changed, key=abs)
        yield information(
            "FREQ_CHANGED", f"the core clock changed within {len(changed)} {of_all}, most by {worst * 100:+.1f} %"
        )


def evidence_flags(document: ProbeDocument, points: Sequence[Any]) -> Iterator[Flag]:
    """Yield the flags of *document* and of the placements of its *points*."""
    placements = [placement for point in points for placement in point.placements or ()]
    proved = all(point.checked for point in points if point.error is None)
    yield from document_flags(document)
    yield from placement_flags(document, placements, proved=proved)
    yield from lost_flags(points)


def lost_flags(points: Sequence[Repeated]) -> Iterator[Flag]:
    """Yield a flag if some of *points* have no value in a round, while others have one."""
    lost = [error for point in points for error in point.lost]
    if lost:
        count = sum(bool(point.lost) for point in points)
        yield flag("PARTIAL", f"{count} of {len(points)} points lack rounds, first: {lost[0].code}: {lost[0].message}")


def uneven(
    cells: Mapping[tuple[Any, ...], Estimate],
) -> Iterator[tuple[tuple[Any, ...], Estimate, Estimate, float]]:
    """Yield the pairs whose directions differ by more than ``ASYMMETRY``: labels, both of *cells*, and by how much.

    The last two labels of a cell are those of the pair.
    """
    for labels, there in cells.items():
        *of, one, two = labels
        back = cells.get((*of, two, one))
        if one < two and back is not None:
            difference = abs(there.value - back.value) / min(there.value, back.value)
            if difference > ASYMMETRY:
                yield labels, there, back, difference


def _clock_change(placement: Placement) -> float:
    return placement.core_hz_after / placement.core_hz_before - 1


def disturbed(placements: Sequence[Placement]) -> dict[str, set[int]]:
    """Return which of *placements* each kind of interference hit, for ``estimate``."""
    found = {
        code: {index for index, placement in enumerate(placements) if count(placement.interference)}
        for code, (_, count) in INTERFERENCE.items()
    }
    found["FREQ_CHANGED"] = {
        index for index, placement in enumerate(placements) if abs(_clock_change(placement)) > FREQUENCY_CHANGE
    }
    return {code: hit for code, hit in found.items() if hit}


def estimate_of(
    placements: Sequence[P], windows: Callable[[P], Sequence[float]], unit: str, target: float | None = None
) -> Estimate:
    """Return the estimate from the *windows* of *placements*, with the interference that hit each."""
    return estimate(
        [windows(placement) for placement in placements], unit, target_half_width=target, **beside(placements)
    )


def beside(placements: Sequence[Placement]) -> dict[str, Any]:
    """Return what ``estimate`` is given beside the samples of *placements*: rounds, interference and covariates."""
    rounds = [placement.round for placement in placements if placement.round is not None]
    covariates: dict[str, list[float | None]] = {
        "the core clock in GHz": [(item.core_hz_before + item.core_hz_after) / 2e9 for item in placements],
        "stolen time in ms": [item.interference.steal_ms for item in placements],
    }
    for name, field in AROUND.items():
        covariates[name] = [None if item.around is None else getattr(item.around, field) for item in placements]
    return {"rounds": rounds, "disturbed": disturbed(placements), "covariates": covariates}


def undisturbed(windows: Sequence[float], dirty: Collection[int]) -> list[float]:
    """Return *windows* without the *dirty* ones (indices) as long as more than half remain, else all."""
    clean = [value for index, value in enumerate(windows) if index not in dirty]
    return clean if 2 * len(clean) > len(windows) else list(windows)


def page_flags(document: ProbeDocument, pages: Sequence[Pages], of_all: str) -> Iterator[Flag]:
    """Yield the flags for the *pages* of placements in *document*."""
    topology = next((warning.message for warning in document.warnings if warning.code == "PLACEMENT_BY_TOPOLOGY"), None)
    if topology is not None:
        yield flag("PLACEMENT_BY_TOPOLOGY", topology)
    elif unread := [page for page in pages if page.checked == 0]:
        yield flag("PLACEMENT_UNVERIFIED", f"no page's node could be read back in {len(unread)} {of_all}")
    if unchecked := [page for page in pages if 0 < page.checked < page.total]:
        part = f"{sum(page.checked for page in unchecked)} of {sum(page.total for page in unchecked)}"
        yield flag("PLACEMENT_UNVERIFIED", f"only {part} pages were read back in {len(unchecked)} {of_all}")
    checked = sum(page.checked for page in pages)
    on_node = sum(page.on_node for page in pages)
    if on_node < checked:
        yield flag("PLACEMENT_WRONG", f"{on_node} of {checked} pages checked lie on the wanted node")
    wanted = [page for page in pages if page.wanted != "base"]
    none = [placement for placement in wanted if placement.huge_fraction == 0]
    partial = [placement for placement in wanted if 0 < placement.huge_fraction < 1]
    if none:
        yield flag(
            "HUGEPAGE_NONE", f"on {none[0].base_bytes}-byte pages in {len(none)} {of_all}: no huge pages available"
        )
    if partial:
        least = min(placement.huge_fraction for placement in partial)
        yield flag(
            "HUGEPAGE_PARTIAL", f"at least {least * 100:.0f} % of the buffer on huge pages in {len(partial)} {of_all}"
        )


INTERFERENCE: Final[Mapping[str, tuple[str, Callable[[Interference], float | None]]]] = {
    "PREEMPTED": ("involuntary context switches", lambda counts: counts.involuntary_switches),
    "STOLEN": ("ms taken by the hypervisor", lambda counts: counts.steal_ms),
    "FAULTED": ("page faults", lambda counts: counts.minor_faults + counts.major_faults),
    "SMI": ("system management interrupts", lambda counts: counts.smi),
    "THROTTLED": (
        "thermal throttle events",
        lambda counts: of_known(sum, (counts.core_throttle, counts.package_throttle)),
    ),
    "MOVED": ("pages migrated between nodes", lambda counts: counts.pages_migrated),
}
"""What is counted around each placement: its name, and its count (``None`` if unknown)."""


def interference_flags(counts: Sequence[Interference], of_all: str) -> Iterator[Flag]:
    """Yield the interference as evidence; *of_all* is the number of placements in words.

    Whether it moved a value is a flag of that value.
    """
    for code, (what, count) in INTERFERENCE.items():
        hit = [value for window in counts if (value := count(window))]
        if hit:
            yield information(code, f"{sum(hit):g} {what} in {len(hit)} {of_all}")


def information(code: str, reason: str) -> Flag:
    """Return the flag *code* as information only."""
    return Flag(code=code, severity="info", reason=reason)
