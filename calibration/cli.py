# SPDX-License-Identifier: Apache-2.0
"""The ``calibration`` command: every part of the controller's side that a person may want to run alone.

Exit codes: 0 done and good; 1 done, and a verdict failed; 2 bad usage or bad input; 3 the environment cannot do it;
4 interrupted.
"""

import json
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import click
from pydantic import BaseModel

from calibration import __version__
from calibration.errors import ENVIRONMENT, EXIT_CODES, INTERRUPTED, VERDICT_FAILED, CalibrationError
from calibration.places import HOME

COMMANDS = {
    "accept": "calibration.judge.cli:accept_command",
    "assemble": "calibration.cli:assemble_command",
    "build": "calibration.cli:build_command",
    "compare": "calibration.judge.cli:compare_command",
    "context": "calibration.context.cli:context_command",
    "counters": "calibration.counters.cli:counters_command",
    "gate": "calibration.acceptance.cli:gate_command",
    "import": "calibration.formats.cli:import_command",
    "judge": "calibration.judge.cli:judge_command",
    "plan": "calibration.cli:plan_command",
    "report": "calibration.report.cli:report_command",
    "run": "calibration.run:run_command",
    "schema": "calibration.cli:schema_command",
    "trend": "calibration.judge.cli:trend_command",
    "validate": "calibration.cli:validate_command",
}
"""Where each subcommand lives. A command's module is imported when it runs, so that none pays for the others."""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + ".",
)
@click.version_option(__version__, prog_name="calibration")
def calibration() -> None:
    """Calibrate the servers of a test lab.

    Every subcommand has --help and these exit codes.
    """


def _print_json(model: BaseModel) -> None:
    click.echo(model.model_dump_json(indent=1))


@click.command("plan")
@click.argument("root", type=click.Path(path_type=Path), default=Path("/"))
@click.option(
    "--profile", default="quick", show_default=True, help="quick, nightly, full, counters, or the path of a .yml file."
)
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=HOME / "results",
    help="Directory of results whose references the plan relies on (docs/results/references.rst); by default that of "
    "the checkout, or of the working directory where the package is installed.",
)
@click.option(
    "--prefetchers-ok",
    is_flag=True,
    help="Plan for a SUT whose inventory has tune_prefetchers_ok: true, so that steps may have the prefetchers off.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON, as it is in the run document.")
def plan_command(root: Path, profile: str, results: Path, prefetchers_ok: bool, as_json: bool) -> None:
    """Print what would be measured on the machine captured in ROOT, and what not and why.

    ROOT is / for this machine, the default, a captured tree, its tar.gz, or a run's directory.
    """
    from calibration.context import load  # noqa: PLC0415 - the parser is only needed here
    from calibration.plan import make_plan, plan_text  # noqa: PLC0415 - the same
    from calibration.profiles import load_profile  # noqa: PLC0415 - the same
    from calibration.results.references import kept_references  # noqa: PLC0415 - the same

    context = load(root)
    plan = make_plan(context, load_profile(profile), *kept_references(results, context), prefetchers_ok=prefetchers_ok)
    if as_json:
        _print_json(plan)
    else:
        click.echo(plan_text(plan))


@click.command("build")
@click.option(
    "--target", type=click.Choice(["x86_64", "aarch64", "all"]), default="all", show_default=True, help="Architecture."
)
@click.option("--json", "as_json", is_flag=True, help="Print path, hash, compiler and flags as JSON.")
def build_command(target: str, as_json: bool) -> None:
    """Cross-build sutprobe, or find it built already, and print where it is.

    Runs build it themselves; this is for looking at it.
    """
    from calibration.build import TARGETS, build  # noqa: PLC0415 - the compiler is only needed here

    built = [build(each) for each in TARGETS if target in {each, "all"}]
    if as_json:
        click.echo(json.dumps([{**asdict(each), "path": str(each.path)} for each in built], indent=1))
    else:
        for each in built:
            click.echo(f"{each.target}  sha256 {each.sha256}  {each.path}")


@click.command("validate")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate_command(runs: tuple[Path, ...]) -> None:
    """Check run documents (run.json or their directories) against the schema as they stand on disk.

    Prints one line for each. The document of an incomplete run is valid.
    """
    from calibration.results.store import read_run  # noqa: PLC0415 - the models are only needed here

    for path in runs:
        document = read_run(path)
        click.echo(f"{path}: valid, {document.run.status}, {len(document.measurements)} measurements")


@click.command("assemble")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--interrupted",
    is_flag=True,
    help="The run was ended from outside: steps without a record have that as their reason.",
)
def assemble_command(directory: Path, interrupted: bool) -> None:
    """Make run.json from the records that a run left in DIRECTORY. Does nothing on a SUT."""
    from calibration.results.assemble import assemble  # noqa: PLC0415 - the models are only needed here

    document = assemble(directory, now=datetime.now(UTC), interrupted=interrupted)
    click.echo(f"{directory}: {document.run.status}, {len(document.measurements)} measurements")
    if document.run.status != "complete":
        sys.exit(VERDICT_FAILED)


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of the run document."""
    from calibration.results.store import json_schema  # noqa: PLC0415 - the models are only needed here

    click.echo(json.dumps(json_schema(), indent=1, sort_keys=True))


def main() -> None:
    """Run the command line and exit by the contract above."""
    try:
        code = calibration.main(standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except CalibrationError as error:
        click.echo(f"calibration: {error}", err=True)
        code = error.exit_code
    except OSError as error:
        if error.filename is not None:
            raise
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - takes what is left until the end
        click.echo(f"calibration: what is printed cannot be written: {error.strerror}", err=True)
        code = ENVIRONMENT
    except (KeyboardInterrupt, click.Abort):
        click.echo("calibration: interrupted", err=True)
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
