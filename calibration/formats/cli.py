# SPDX-License-Identifier: Apache-2.0
"""``calibration import``: published pages, and raw output of Intel MLC and PMA jitter, into run documents."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from calibration.results.readings import flat
from calibration.text import visible


@click.command("import", epilog="Example: calibration import page.rst --results results")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print what was read as JSON: an object, or a list of several.")
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the run document and the text in this directory of results.",
)
@click.option("--testbed", help="Testbed of the machine, where the text does not say it or says it wrongly.")
@click.option("--sut", help="Name of the machine, where the text does not say it or says it wrongly.")
@click.option(
    "--measured-on",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Date of the measurements (YYYY-MM-DD), for their place in a trend.",
)
@click.option(
    "--publish",
    is_flag=True,
    help="Let pages show raw output of Intel MLC, which its licence is said to restrict.",
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
    """Read published pages, or raw output of Intel MLC or PMA jitter.

    FILES are recognised by content. What contradicts itself in a text is listed; nothing is corrected. Several pages
    are also compared with each other.
    """
    from calibration.results import imports  # noqa: PLC0415 - a second that --help need not pay

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
                    "format": page.format,
                    "title": page.title,
                    "testbed": testbed or page.testbed,
                    "sut": sut or page.sut,
                    "context": page.context.model_dump(),
                    "measurements": [flat(each) for each in page.read.readings],
                    "not_measured": [each.model_dump() for each in page.read.not_read],
                    "inconsistencies": [each.model_dump() for each in inconsistencies],
                }
            )
            continue
        click.echo(f"{visible(path.name)}: {page.format}, {visible(page.title or 'no title')}")
        for each in page.read.readings:
            figures = sum(1 for _ in each.values.metrics())
            state = "" if each.complete else f", incomplete: {'; '.join(each.missing)}"
            click.echo(visible(f"  {each.id}: {figures} headline figures by {each.instrument}{state}"))
        for gone in page.read.not_read:
            click.echo(visible(f"  no value: {gone.kind}: {gone.reason}"))
        for fault in inconsistencies:
            click.echo(visible(f"  {fault.code}: {fault.where}: {fault.reason}"))
        if kept is not None:
            click.echo(f"  kept in {kept}")
    if as_json:
        click.echo(json.dumps(printed[0] if len(files) == 1 else printed, indent=1))
