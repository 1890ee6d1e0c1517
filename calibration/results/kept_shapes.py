# SPDX-License-Identifier: Apache-2.0
"""References, found once and used by later plans: ``<results>/references/``.

``traffic_shape/<key>.json`` holds the access pattern of one platform, ``last_level_cache/<key>.json`` where that cache
ends for one CPU (``calibration.measurements.platform``). A reference names the run that it came from, whose document
has everything that was tried; removing the file makes the next run search again. References are never overwritten.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from calibration.base.errors import InputError
from calibration.base.files import able_to, pending, refuse_links
from calibration.context.model import Context
from calibration.measurements.latency_ladder import LatencyLadderValues, last_cache_bytes
from calibration.measurements.platform import CacheReference, Platform, ReferenceRun, ShapeReference, platform_of
from calibration.measurements.sut import Sut
from calibration.measurements.traffic_shape import TrafficShapeValues
from calibration.results.documents import read_reference
from calibration.results.layout import REFERENCES
from calibration.results.model import Run, RunDocument

R = TypeVar("R", ShapeReference, CacheReference)


def path_of(results: Path, reference: type[ShapeReference | CacheReference], platform: Platform) -> Path:
    """Return the path of the *reference* of *platform*."""
    return results / REFERENCES / reference.kind / f"{platform.key}.json"


def kept_references(results: Path, context: Context) -> tuple[ShapeReference | None, CacheReference | None]:
    """Return the access pattern and last-level cache kept for the platform of *context*, in ``make_plan``'s order.

    Raises ``InputError`` as ``kept_reference`` does.
    """
    return kept_reference(results, ShapeReference, context), kept_reference(results, CacheReference, context)


def kept_reference(results: Path, wanted: type[R], context: Context) -> R | None:
    """Return the reference kept for the platform of *context*; ``None`` if there is none.

    Raises ``InputError`` for an invalid reference file: a run that ignored it would measure differently from the nights
    before.
    """
    platform = platform_of(context)
    path = path_of(results, wanted, platform)
    remedy = "repair it, or remove it so that the next run searches again"
    reference = read_reference(results, path, wanted, remedy)
    if reference is not None and reference.platform != platform:
        raise InputError(f"{path} is of another platform; {remedy}")
    return reference


def keep_references(results: Path, document: RunDocument) -> list[Path]:
    """Keep what the run of *document* found for its platform, and return the paths.

    If another run kept a reference for the same platform meanwhile, that one stays. Raises ``EnvironmentLacksError`` if
    one cannot be written.
    """
    if document.plan is None or document.context is None:
        return []
    found = [_shape(document, document.context.parsed), _last_level_cache(document, document.context.parsed)]
    return [_keep(results, reference) for reference in found if reference is not None]


def merge_references(results: Path, source: Path) -> Iterator[str]:
    """Keep what the runs of the results *source* found too, and yield why a reference cannot be read.

    Raises like ``keep_references``.
    """
    kinds: tuple[type[ShapeReference | CacheReference], ...] = (ShapeReference, CacheReference)
    for kind in kinds:
        for path in sorted((source / REFERENCES / kind.kind).glob("*.json")):
            try:
                reference = read_reference(source, path, kind, "it was not merged")
            except InputError as error:
                yield str(error)
            else:
                if reference is not None:
                    _keep(results, reference)


def _shape(document: RunDocument, context: Context) -> ShapeReference | None:
    """Return the access pattern chosen by the run, if every planned step of the search is complete and valid."""
    kind = ShapeReference.kind
    steps = () if document.plan is None else document.plan.steps
    planned = {step.id for step in steps if step.kind == kind and step.part_of is None}
    found = [
        measurement
        for measurement in document.measurements
        if measurement.kind == kind and measurement.validity.valid and not measurement.missing
    ]
    if not planned or {measurement.step for measurement in found} != planned:
        return None
    values = found[0].values
    if not isinstance(values, TrafficShapeValues) or values.all_mixes is None:
        return None
    return ShapeReference(
        schema_version="traffic_shape/1",
        platform=platform_of(context),
        run=_origin(document.run),
        all_mixes=values.all_mixes,
        mixes=values.mixes,
        levels=values.levels,
    )


def _last_level_cache(document: RunDocument, context: Context) -> CacheReference | None:
    """Return where the run's random ladder left the last-level cache, if it is valid and clear."""
    for measurement in document.measurements:
        values = measurement.values
        if isinstance(values, LatencyLadderValues) and measurement.validity.valid and not measurement.missing:
            found = last_cache_bytes(values)
            if found is not None:
                return CacheReference(
                    schema_version="last_level_cache/1",
                    platform=platform_of(context),
                    run=_origin(document.run),
                    found_bytes=found,
                    reported_bytes=Sut(context).reported_llc_bytes,
                )
    return None


def _origin(run: Run) -> ReferenceRun:
    return ReferenceRun(testbed=run.testbed, sut=run.sut, id=run.id, started_at=run.started_at)


def _keep(results: Path, reference: ShapeReference | CacheReference) -> Path:
    path = path_of(results, type(reference), reference.platform)
    refuse_links(path.parent, below=results)
    with able_to(
        f"write the reference to {path}",
        "; the run document is complete. Free some space, or set calibration_results_dir to another directory",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        with pending(path, reference.to_json().encode() + b"\n") as written, suppress(FileExistsError):
            os.link(written, path)  # unlike a rename it keeps an existing reference
    return path
