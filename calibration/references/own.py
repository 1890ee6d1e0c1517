# SPDX-License-Identifier: Apache-2.0
"""A lab's own references: made of accepted runs, written to a file that other labs can copy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from calibration.base.errors import InputError
from calibration.base.files import able_to, refuse_links, write_whole
from calibration.base.model import fault_of
from calibration.references.library import FOLDER, read_file
from calibration.references.model import ReferenceFile, ReferenceMachine, Source
from calibration.references.observed import machine_of, subject_of
from calibration.results.model import RunDocument

OWN_FILE = f"{FOLDER}/own.yml"
"""Default file of a lab's own references, relative to the results."""


def reference_of(document: RunDocument) -> ReferenceMachine:
    """Return what *document* contributes to references; the caller knows that the run was accepted.

    Raises ``InputError`` if the run is an import, not valid, or of a machine that cannot be compared.
    """
    run = document.run
    name = f"run {run.id} of {run.testbed}/{run.sut}"
    if document.imported is not None:
        raise InputError(f"{name} is an import: references are made of runs measured here")
    if run.status != "complete":
        raise InputError(f"{name} is {run.status.replace('_', ' ')}: only a complete run is a reference")
    invalid = [measurement.title for measurement in document.measurements if not measurement.validity.valid]
    failed = [check.figure.name for check in document.consistency if check.outcome == "fail"]
    if invalid or failed:
        what = f"{invalid[0]} is invalid" if invalid else f"the cross-check of {failed[0]} failed"
        raise InputError(f"{name} is not valid: {what}")
    subject = subject_of(document)
    if subject.reason is not None:
        raise InputError(f"{name} is no reference: {subject.reason}")
    try:
        machine = machine_of(document, subject)
    except ValidationError as error:
        raise InputError(f"{name} is no reference: {fault_of(error)}") from error
    if machine is None:
        raise InputError(f"{name} has no comparable metric, or only metrics of poor trust")
    return machine


def add(path: Path, machines: Sequence[ReferenceMachine], *, title: str, licence: str) -> ReferenceFile:
    """Add *machines* to the file at *path*, and return it; a run that it has already is replaced.

    Raises ``InputError`` if the file is of another source or not valid, ``EnvironmentLacksError`` if it cannot be
    written.
    """
    kept: tuple[ReferenceMachine, ...] = ()
    try:
        found = read_file(path, below=path.parent)
    except FileNotFoundError:
        pass
    else:
        if found.source.url is not None or found.source.title != title or found.source.licence != licence:
            raise InputError(f"{path} is of another source or licence: {found.source.title}, {found.source.licence}")
        kept = found.machines
    new = {(machine.name, machine.run) for machine in machines}
    together = (*(machine for machine in kept if (machine.name, machine.run) not in new), *machines)
    newest = max(machine.date for machine in together if machine.date is not None)
    file = ReferenceFile(
        source=Source(title=title, url=None, date=newest, date_is="measured", licence=licence), machines=together
    )
    with able_to(f"write the references to {path}"):
        refuse_links(path, below=path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text_of(file).encode())
    return file


class _Flow(dict[str, Any]):
    """A mapping that is written on one line."""


class _Dumper(yaml.SafeDumper):
    """Writes a figure a line, and equal dates in full."""

    def ignore_aliases(self, data: Any) -> bool:
        """Refer to nothing by a name."""
        del data
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists below their key."""
        del indentless
        super().increase_indent(flow, indentless=False)


_Dumper.add_representer(
    _Flow, lambda dumper, value: dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True)
)


def text_of(file: ReferenceFile) -> str:
    """Return *file* as YAML, a figure a line; what is unknown is left out."""
    raw = file.model_dump(exclude_defaults=True)
    for machine in raw["machines"]:
        if "memory" in machine:
            machine["memory"] = _Flow(machine["memory"])
        machine["figures"] = [_Flow(figure) for figure in machine["figures"]]
    raw["machines"] = list(raw["machines"])
    return yaml.dump(raw, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
