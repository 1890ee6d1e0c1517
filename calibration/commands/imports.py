# SPDX-License-Identifier: Apache-2.0
"""``calibration import``: convert published pages and the output of other programs to run documents."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from calibration.base.text import visible
from calibration.formats.readings import flat


@click.command("import", epilog="Example: calibration import page.rst --results results")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON: an object, or a list for several.")
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    help="Store the run document and the text in this directory of results.",
)
@click.option("--testbed", help="Testbed of the machine; overrides the text.")
@click.option("--sut", help="Name of the machine; overrides the text.")
@click.option(
    "--measured-on",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Date of the measurements, such as 2026-01-31, for trends.",
)
@click.option(
    "--publish",
    is_flag=True,
    help="Show raw output of Intel MLC on pages; its licence may restrict that.",
)
def import_command(
    files: tuple[Path, ...],
    *,
    as_json: bool,
    results: Path | None,
    testbed: str | None,
    sut: str | None,
    measured_on: datetime | None,
    publish: bool,
) -> None:
    """Read published pages, or output of Intel MLC, PMA jitter or Mess.

    FILES are recognised by content. Contradictions in a text are listed; nothing is corrected. Several pages are also
    compared with each other.
    """
    from calibration.results import imports  # noqa: PLC0415 - slow, and not needed for --help

    read = [imports.read_file(path) for path in files]
    shared = imports.shared_figures([(path.name, page) for path, (_, page) in zip(files, read, strict=True)])
    printed: list[dict[str, Any]] = []
    for path, (raw, page), more in zip(files, read, shared, strict=True):
        kept = None
        if results is not None:
            document = imports.document_of(
                page,
                raw,
                source=path.name,
                testbed=testbed,
                sut=sut,
                measured_on=None if measured_on is None else measured_on.date(),
                now=datetime.now(UTC),
                publish=publish,
                more=more,
            )
            kept = imports.store(results, document, raw)
        inconsistencies = [*page.read.inconsistencies, *more]
        if as_json:
            printed.append(
                {
                    "source": path.name,
                    **page.model_dump(mode="json", include={"format", "title", "context"}),
                    "testbed": testbed or page.testbed,
                    "sut": sut or page.sut,
                    "measurements": [flat(reading) for reading in page.read.readings],
                    "not_measured": [gone.model_dump() for gone in page.read.not_read],
                    "inconsistencies": [fault.model_dump() for fault in inconsistencies],
                }
            )
            continue
        lines = [f"{path.name}: {page.format}, {page.title or 'no title'}"]
        for reading in page.read.readings:
            count = sum(1 for _ in reading.values.metrics())
            missing = f", incomplete: {'; '.join(reading.missing)}" if reading.missing else ""
            lines.append(f"  {reading.id}: {count} metrics by {reading.instrument}{missing}")
        lines += [f"  no value: {gone.kind}: {gone.reason}" for gone in page.read.not_read]
        lines += [f"  {fault.code}: {fault.where}: {fault.reason}" for fault in inconsistencies]
        lines += [] if kept is None else [f"  stored in {kept}"]
        click.echo("\n".join(map(visible, lines)))
    if as_json:
        click.echo(json.dumps(printed[0] if len(files) == 1 else printed, indent=1))
