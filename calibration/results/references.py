# SPDX-License-Identifier: Apache-2.0
"""What runs found once and later plans rely on: ``<results>/references/``.

``traffic_shape/<key>.json`` holds the traffic shape chosen for one platform (``calibration.measurements.choice``). A
reference is data: it names the run that it came from, everything that was tried is in that run's document, and
removing the file makes the next run search again. None is ever overwritten.
"""

import os
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from calibration.context.model import Context
from calibration.errors import EnvironmentLacksError, InputError
from calibration.files import pending, read_regular, refuse_links
from calibration.measurements.choice import Platform, ReferenceRun, ShapeReference, platform_of
from calibration.measurements.traffic_shape import KIND, TrafficShapeValues
from calibration.results.layout import MAX_REFERENCE_BYTES, REFERENCES
from calibration.results.model import RunDocument


def path_of(results: Path, platform: Platform) -> Path:
    """Return where the traffic shape chosen for *platform* is kept."""
    return results / REFERENCES / KIND / f"{platform.key}.json"


def kept_shape(results: Path, context: Context) -> ShapeReference | None:
    """Return the traffic shape kept for the platform of *context*; ``None`` where none was chosen yet.

    Raises ``InputError`` for a file that is there and is no reference for this platform: a run that took no notice of
    it would measure with another shape than the nights before.
    """
    platform = platform_of(context)
    path = path_of(results, platform)
    remedy = "mend it, or remove it to have the next run search again"
    try:
        text = read_regular(path, MAX_REFERENCE_BYTES, below=results)
    except FileNotFoundError:
        return None
    except InputError as error:
        raise InputError(f"{error}; {remedy}") from error
    try:
        reference = ShapeReference.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(map(str, first["loc"])) or "the top"
        raise InputError(f"{path} is damaged: at {where}: {first['msg']}; {remedy}") from error
    if reference.platform != platform:
        raise InputError(f"expected at {path} the reference of this SUT's platform, found another platform's; {remedy}")
    return reference


def keep_shape(results: Path, document: RunDocument) -> Path | None:
    """Keep the traffic shape that the run of *document* chose, and return where; ``None`` where there is none to keep.

    Only a search of which every planned step came out whole and valid has a choice worth keeping. Where another run
    kept one for the same platform meanwhile, that one stays. Raises ``EnvironmentLacksError`` where it cannot be
    written.
    """
    if document.plan is None or document.context is None:
        return None
    planned = {step.id for step in document.plan.steps if step.kind == KIND}
    found = [each for each in document.measurements if each.kind == KIND and each.validity.valid and not each.missing]
    if not planned or {each.step for each in found} != planned:
        return None
    values = found[0].values
    if not isinstance(values, TrafficShapeValues) or values.all_mixes is None:
        return None
    run = document.run
    reference = ShapeReference(
        schema_version="traffic_shape/1",
        platform=platform_of(document.context.parsed),
        run=ReferenceRun(testbed=run.testbed, sut=run.sut, id=run.id, started_at=run.started_at),
        all_mixes=values.all_mixes,
        mixes=values.mixes,
    )
    path = path_of(results, reference.platform)
    refuse_links(path.parent, below=results)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with pending(path, reference.model_dump_json(indent=1).encode() + b"\n") as written, suppress(FileExistsError):
            os.link(written, path)  # unlike a rename it leaves a reference that is there alone
    except OSError as error:
        raise EnvironmentLacksError(
            f"the reference cannot be written to {path}: {error.strerror or error}; the run's document is whole. Free "
            "some space or choose another directory with calibration_results_dir"
        ) from error
    return path
