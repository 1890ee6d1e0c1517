# SPDX-License-Identifier: Apache-2.0
"""The ``calibration`` command: every part of the controller that can be run alone.

Exit codes: 0 done and good; 1 done, and a verdict failed; 2 bad usage or bad input; 3 the environment cannot do it;
4 interrupted.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Final

import click

from calibration import __version__
from calibration.base.errors import ENVIRONMENT, EXIT_CODES, INTERRUPTED, VERDICT_FAILED, CalibrationError
from calibration.base.options import OutputPath, results_option
from calibration.base.text import message
from calibration.results.find import find_run

GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Run": {
        "run": "calibration.commands.playbook_run:run_command",
        "plan": "calibration.cli:plan_command",
        "context": "calibration.commands.context:context_command",
        "audit": "calibration.commands.audit:audit_command",
        "counters": "calibration.commands.counters:counters_command",
    },
    "Read": {
        "show": "calibration.commands.report:show_command",
        "report": "calibration.commands.report:report_command",
        "compare": "calibration.commands.judging:compare_command",
        "sheet": "calibration.commands.sheet:sheet_command",
        "trend": "calibration.commands.judging:trend_command",
        "export": "calibration.commands.export:export_command",
        "explain": "calibration.commands.explain:explain_command",
        "import": "calibration.commands.imports:import_command",
        "demo": "calibration.commands.demo:demo_command",
    },
    "Nightly": {
        "merge": "calibration.commands.merging:merge_command",
        "judge": "calibration.commands.judging:judge_command",
        "accept": "calibration.commands.judging:accept_command",
        "reference": "calibration.commands.reference:reference_command",
        "gate": "calibration.commands.gate:gate_command",
    },
    "Plumbing": {
        "build": "calibration.cli:build_command",
        "assemble": "calibration.cli:assemble_command",
        "runner": "calibration.cli:runner_command",
        "collection": "calibration.cli:collection_command",
        "validate": "calibration.cli:validate_command",
        "schema": "calibration.cli:schema_command",
    },
}
"""Module of each subcommand, by group. A module is imported when its command runs."""

COMMANDS: Final = {name: place for group in GROUPS.values() for name, place in group.items()}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Accept a unique prefix of a command; for an unknown name, suggest the nearest."""
        given = args[0]
        found = [given] if given in COMMANDS else [command for command in COMMANDS if command.startswith(given)]
        if len(found) == 1:
            return super().resolve_command(ctx, [*found, *args[1:]])
        if found:
            ctx.fail(f"Ambiguous command {given!r}: {', '.join(found)}.")
        if not given.startswith("-"):
            raise click.exceptions.NoSuchCommand(given, possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group."""
        width = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            commands = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:{width}}", command.get_short_help_str(limit=70)) for name, command in commands]
                )


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + ".",
)
@click.version_option(__version__, prog_name="calibration")
def calibration() -> None:
    """Calibrate the servers of a test lab.

    Every command has --help with an example. Names of commands, runs, SUTs and profiles may be shortened to a unique
    prefix.
    """


@click.command("plan", epilog="Example: calibration plan t1/sut1 --profile nightly")
@click.argument("root", default="/")
@click.option(
    "--profile",
    default="quick",
    show_default=True,
    help="A profile (docs/guide/profiles.rst), by name, or by the path of a .yml file.",
)
@results_option
@click.option(
    "--prefetchers-ok",
    is_flag=True,
    help="Plan for a SUT whose inventory has tune_prefetchers_ok: true, so that steps may have the prefetchers off.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print the command of each step, and why others are skipped.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON, as it is in the run document.")
def plan_command(root: str, *, profile: str, results: Path, prefetchers_ok: bool, verbose: bool, as_json: bool) -> None:
    """Print what a run would measure, skip, and how long it takes.

    ROOT is / for this machine, the default, a captured tree, its tar.gz, or a run: a path, or a name in the results
    such as testbed/sut. The references of the results are taken into account (docs/results/references.rst).
    """
    from calibration.context.loader import load  # noqa: PLC0415 - the parser is only needed here
    from calibration.profiles import load_profile  # noqa: PLC0415 - the same
    from calibration.results.kept_shapes import kept_references  # noqa: PLC0415 - the same
    from calibration.run.plan import make_plan, plan_text  # noqa: PLC0415 - the same

    wanted = load_profile(profile)
    path = Path(root)
    context = load(path if path.exists() or path.is_absolute() else find_run(results, root))
    plan = make_plan(context, wanted, *kept_references(results, context), prefetchers_ok=prefetchers_ok)
    if as_json:
        click.echo(plan.model_dump_json(indent=1))
    else:
        click.echo(plan_text(plan, verbose=verbose))


@click.command("build", epilog="Example: calibration build --target aarch64")
@click.option(
    "--target",
    type=click.Choice(["x86_64", "aarch64", "ppc64le", "riscv64", "all"]),
    default="all",
    show_default=True,
    help="Architecture.",
)
@click.option("--json", "as_json", is_flag=True, help="Print path, hash, compiler and flags as JSON.")
def build_command(target: str, as_json: bool) -> None:
    """Build sutprobe (cached) and print where it is.

    Runs build it themselves. An installed package has it already.
    """
    from calibration.build import TARGETS, build_all  # noqa: PLC0415 - the compiler is only needed here

    built = build_all(architecture for architecture in TARGETS if target in {architecture, "all"})
    if as_json:
        click.echo(json.dumps([{**asdict(kernel), "path": str(kernel.path)} for kernel in built], indent=1))
    else:
        for kernel in built:
            click.echo(f"{kernel.target}  sha256 {kernel.sha256}  {kernel.path}")


@click.command("validate", epilog="Example: calibration validate results/*/*/*")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@results_option
def validate_command(runs: tuple[str, ...], results: Path) -> None:
    """Check run documents against the schema.

    Prints one line for each. Incomplete runs have valid documents too. RUN is as for calibration report.
    """
    from calibration.results.store import read_run  # noqa: PLC0415 - the models are only needed here

    for path in [find_run(results, run) for run in runs or (None,)]:
        document = read_run(path)
        click.echo(f"{path}: valid, {document.run.status}, {len(document.measurements)} measurements")


@click.command("runner", epilog="Example: calibration runner runner.pyz")
@click.argument("output", type=OutputPath(path_type=Path, dir_okay=False))
def runner_command(output: Path) -> None:
    """Write the program that runs a plan without Ansible to OUTPUT.

    It is one file, with sutprobe for all architectures in it.

    On the SUT, `python3 OUTPUT capture FILE` writes what `calibration plan FILE --json` makes a plan from, and
    `python3 OUTPUT plan.json` runs it; `calibration assemble` makes the run document of what that leaves.
    """
    from calibration.base.files import able_to, write_whole  # noqa: PLC0415
    from calibration.build import TARGETS  # noqa: PLC0415
    from calibration.run.standalone import standalone_runner  # noqa: PLC0415 - only needed here

    with able_to(f"write {output}"):
        write_whole(output, standalone_runner(TARGETS))


@click.command("collection", epilog="Example: calibration collection dist")
@click.argument("directory", default=".", type=click.Path(path_type=Path, file_okay=False))
def collection_command(directory: Path) -> None:
    """Build the Ansible collection into DIRECTORY.

    It is calibration.harness, a tarball, and needs this package, in the same version, where Ansible runs.
    """
    from calibration.build import collection  # noqa: PLC0415 - only needed here

    click.echo(collection(directory))


@click.command("assemble", epilog="Example: calibration assemble results/t1/sut1/20261121T032712Z-3f2a --interrupted")
@click.argument("directory", type=click.Path(path_type=Path))
@results_option
@click.option("--testbed", help="Of a run without Ansible: the name of its testbed (default: the SUT's).")
@click.option("--sut", help="Of a run without Ansible: the name of its SUT (default: its host name).")
@click.option(
    "--interrupted",
    is_flag=True,
    help="Record the missing steps as interrupted.",
)
def assemble_command(directory: Path, results: Path, testbed: str | None, sut: str | None, interrupted: bool) -> None:
    """Assemble run.json from the records in DIRECTORY.

    If DIRECTORY is what `python3 runner.pyz plan.json` left, the run is stored in the results first.
    """
    from calibration.finish import finish  # noqa: PLC0415 - the models are only needed here
    from calibration.run.session import import_standalone_run, is_standalone_run  # noqa: PLC0415

    if is_standalone_run(directory):
        directory = import_standalone_run(directory, results, testbed=testbed, sut=sut)
    document = finish(directory, now=datetime.now(UTC), interrupted=interrupted)
    click.echo(f"{directory}: {document.run.status}, {len(document.measurements)} measurements")
    if document.run.status != "complete":
        sys.exit(VERDICT_FAILED)


@click.command("schema", epilog="Example: calibration schema > run.schema.json")
def schema_command() -> None:
    """Print the JSON Schema of the run document."""
    from calibration.results.schema import schema_text  # noqa: PLC0415 - the models are only needed here

    click.echo(schema_text(), nl=False)


def main() -> None:
    """Run the command line and exit with one of the codes above."""
    os.umask(os.umask(0o077) | 0o002)  # whatever the login's: no file of ours can be written by everybody
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without µ shows an escape instead
    try:
        code = calibration.main(standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except CalibrationError as error:
        click.echo(f"calibration: {message(str(error))}", err=True)
        code = error.exit_code
    except OSError as error:
        if error.filename is not None:
            raise
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - absorbs the final flush
        click.echo(f"calibration: cannot write the output: {error.strerror}", err=True)
        code = ENVIRONMENT
    except (KeyboardInterrupt, click.Abort):
        click.echo("calibration: interrupted", err=True)
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
