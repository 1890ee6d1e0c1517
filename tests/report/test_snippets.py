# SPDX-License-Identifier: Apache-2.0
"""Every literal block of the documentation is what it looks like: commands are parsed and run, files are read.

``tests/ansible/test_roles.py`` runs the plays; ``tests/unit/test_commandline.py`` looks at what messages print.
"""

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from ansible.cli.playbook import PlaybookCLI

from calibration.base.errors import GOOD
from calibration.build import TARGETS, build
from calibration.cli import calibration as command_line
from calibration.profiles import load_profile
from calibration.runner.__main__ import COMMANDS as RUNNER_COMMANDS
from tests.command import calibration
from tests.report.snippets import CHECKOUT, Block, blocks, commands, inline

NEEDS_A_LAB = "acts on machines, users or services of a lab"
ELSEWHERE = {
    "ansible-galaxy": "tests/dist/test_collection.py installs the collection",
    "ansible-runner": "tests/ansible/test_automation.py runs it",
    "ansible-vault": "asks for a password",
    "benchmark": "anybody's own",
    "bencher": "sends to a server",
    "cat": NEEDS_A_LAB,
    "cd": "the shell's own",
    "cp": "copies the example inventory, which tests/ansible/test_roles.py reads",
    "curl": "sends to a server",
    "date": "the shell's own",
    "docker": "tests/probe/test_container.py makes a container",
    "done": "the shell's own",
    "do": "the shell's own",
    "echo": NEEDS_A_LAB,
    "eval": NEEDS_A_LAB,
    "for": "the shell's own",
    "journalctl": NEEDS_A_LAB,
    "known-answers": "tests/probe/test_selftest.py runs it",
    "libdoc": "Robot Framework's own; tests/robot loads the libraries",
    "mkdir": "the shell's own",
    "otava": "findings/otava-series-with-nan.sh installs and runs it",
    "openssl": "any random number will do",
    "pip": "tests/dist/test_wheel.py builds and installs the wheel",
    "podman": "tests/probe/test_container.py makes a container",
    "robot": "tests/robot/test_gates.py runs the suites",
    "run-tests": "the lab's own tests",
    "ss": "tests/unit/runner/test_lock.py asks for the holder",
    "grep": "the shell's own",
    "ssh-add": NEEDS_A_LAB,
    "ssh-keygen": NEEDS_A_LAB,
    "ssh-keyscan": NEEDS_A_LAB,
    "systemctl": NEEDS_A_LAB,
    "tail": "the shell's own",
}
"""Programs that are not this project's, and why they are not run here."""

NOT_SHELL = {
    ("docs/development/architecture.rst", "inventory"): "figure",
    ("docs/development/architecture.rst", "reference_pages  "): "figure",
    ("docs/development/runner.rst", "controller  "): "figure",
    ("docs/development/testbed.rst", "python -m tests.testbed"): "usage",
    ("docs/guide/audit.rst", "calibration_expected_state:"): "variables",
    ("docs/guide/burn_in.rst", "title:"): "profile",
    ("docs/guide/burn_in.rst", "opendcdiag_program:"): "variables",
    ("docs/guide/changes.rst", "Not restored"): "output",
    ("docs/guide/explain.rst", "sut,test"): "file",
    ("docs/guide/explain.rst", "2 tests"): "output",
    ("docs/guide/exports.rst", "ExecStopPost="): "unit",
    ("docs/guide/exports.rst", "SELECT"): "query",
    ("docs/guide/judge.rst", "Night of 2026"): "output",
    ("docs/guide/kernel_parameters.rst", "isolcpus=2-99"): "output",
    ("docs/guide/lab.rst", "@cert-authority"): "line of a configuration",
    ("docs/guide/memory.rst", "CXL memory"): "output",
    ("docs/guide/mlc.rst", "mlc_archive:"): "variables",
    ("docs/guide/nightly.rst", "MAILTO="): "crontab",
    ("docs/guide/nightly.rst", "publish_dir/"): "figure",
    ("docs/guide/normal.rst", "Idle latency"): "output",
    ("docs/guide/preflight.rst", "preflight_severity:"): "variables",
    ("docs/guide/preflight.rst", "preflight_kernel_arguments:"): "variables",
    ("docs/guide/preflight.rst", "calibration_limits:"): "variables",
    ("docs/guide/profiles.rst", "title:"): "profile",
    ("docs/guide/quick_gate.rst", "Measuring"): "output",
    ("docs/guide/realtime.rst", "title:"): "profile",
    ("docs/guide/sutprobe.rst", "--sample"): "options",
    ("docs/method/clock.rst", "u = "): "formula",
    ("docs/method/counters.rst", "scaled"): "formula",
    ("docs/method/quick_gate.rst", "s²"): "formula",
    ("docs/method/quick_gate.rst", "refusal"): "formula",
    ("docs/method/statistics.rst", "coverage"): "formula",
    ("docs/reference/commands.rst", "python3 calibration/bootstrap.py [calibrate]"): "usage",
    ("docs/results/index.rst", "results/"): "figure",
    ("docs/results/references.rst", "results/references/"): "figure",
    ("README.rst", "ansible/"): "figure",
    ("results/README.rst", "<testbed>"): "figure",
    ("tests/README.rst", "python3 calibration/bootstrap.py test   "): "usage",
}
"""Blocks without a language that are no commands, by page and beginning."""

LANGUAGES = {"yaml", "ini", "json", "robotframework"}

UNITS = CHECKOUT / "docs" / "guide" / "units"


def entry_of(block: Block) -> tuple[str, str] | None:
    """Return the entry of ``NOT_SHELL`` for a block, None if it is commands."""
    of_page = (entry for entry in NOT_SHELL if entry[0] == block.page)
    return next((entry for entry in of_page if block.first_line.startswith(entry[1])), None)


def of_kind(*kinds: str) -> list[Block]:
    return [block for block in blocks() if (entry := entry_of(block)) is not None and NOT_SHELL[entry] in kinds]


def shell_blocks() -> Iterator[Block]:
    for block in blocks():
        if block.language == "" and entry_of(block) is None:
            yield block


def words_of_blocks() -> list[tuple[str, ...]]:
    """Return every command of the documentation, once."""
    return list(dict.fromkeys(tuple(words) for block in shell_blocks() for words in commands(block.text)))


def test_every_block_has_a_language_or_is_listed_or_is_commands() -> None:
    listed = {entry for block in blocks() if (entry := entry_of(block)) is not None}
    assert listed == NOT_SHELL.keys()
    assert {block.language for block in blocks()} <= {"", *LANGUAGES}


# Commands are parsed


def leaf(words: Sequence[str]) -> tuple[click.Command, list[str]]:
    """Return the subcommand that *words* call, and its arguments."""
    command: click.Command = command_line
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        _, found, rest = command.resolve_command(click.Context(command), rest)
        assert found is not None
        command = found
    return command, rest


def parse_ansible(options: Sequence[str], playbook: str = "playbooks/calibrate.yml") -> None:
    """Fail if ``ansible-playbook`` does not accept *options*."""
    parser = PlaybookCLI(["ansible-playbook"])
    parser.init_parser()
    given = parser.parser.parse_args([*options, playbook] if playbook else list(options))
    for path in given.args:
        assert (CHECKOUT / path).is_file(), path


def parse_run(options: Sequence[str]) -> None:
    command, _ = leaf(["run"])
    context = command.make_context("run", list(options))
    parse_ansible(context.params["ansible_options"])
    if (profile := context.params["profile"]) and not profile.endswith(".yml"):
        load_profile(profile)


def parse_calibration(words: Sequence[str]) -> None:
    command, rest = leaf(words)
    if command.name == "run":
        parse_run(rest)
    else:
        command.make_context(str(command.name), rest)


def parse_python(words: Sequence[str]) -> None:
    """Parse what Python runs: the bootstrap, the runner, or a module."""
    if words[0] == "calibration/bootstrap.py":
        task = words[1] if words[1:] and not words[1].startswith("-") else "calibrate"
        assert task in {"calibrate", "test", "environment"}
        if task == "calibrate":
            parse_run([word for word in words[1:] if word != task])
    elif words[0] == "runner.pyz":
        assert words[1] in RUNNER_COMMANDS or words[1].endswith(".json")
    else:
        assert words[0] == "-m", words
        spec = find_spec(words[1])
        assert spec is not None, words[1]
        assert spec.origin is not None
        if words[1] == "pytest":
            assert (CHECKOUT / words[2]).is_file()
            return
        source = Path(spec.origin).read_text(encoding="utf-8")
        assert [word for word in words[2:] if word.startswith("--") and f'"{word}"' not in source] == []


@cache
def help_of(subcommand: str) -> str:
    path = build(next(target for target in TARGETS if target == platform.machine())).path
    done = subprocess.run([path, subcommand, "--help"], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def parse_sutprobe(words: Sequence[str]) -> None:
    subcommand, *options = words
    if subcommand != "SUBCOMMAND":
        known = help_of(subcommand)
        assert [word for word in options if word.startswith("--") and not re.search(rf"{word}\b", known)] == []


PARSERS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "calibration": parse_calibration,
    "ansible-playbook": lambda words: parse_ansible(words, ""),
    "python": parse_python,
    "python3": parse_python,
    "sutprobe": parse_sutprobe,
}


@pytest.mark.parametrize("words", words_of_blocks(), ids=" ".join)
def test_a_command_of_a_block_is_accepted_by_its_program(words: tuple[str, ...]) -> None:
    program = Path(words[0]).name
    if program not in ELSEWHERE:
        assert program in PARSERS, f"{program}: neither this project's nor listed"
        PARSERS[program](words[1:])


def test_lines_of_cron_and_systemd_call_commands_that_exist() -> None:
    listed = of_kind("unit", "crontab")
    units = sorted(path for path in UNITS.iterdir() if path.suffix != ".json")
    texts = [block.text for block in listed] + [path.read_text(encoding="utf-8") for path in units]
    calls = [
        words[1:]
        for text in texts
        for line in text.replace("\\\n", " ").splitlines()
        if (found := re.search(r"[\w./${}]*\.venv/bin/calibration\b.*", line.replace('"', "")))
        for words in commands(found[0].replace("${{", "").replace("}}", ""))[:1]
    ]
    assert len(calls) >= 8
    for words in calls:
        parse_calibration(words)


@pytest.mark.parametrize("text", sorted({block.text for block in inline()}))
def test_a_command_in_a_sentence_exists_with_its_options(text: str) -> None:
    for words in commands(text):
        if Path(words[0]).name == "ansible-playbook":
            parse_ansible(words[1:], "")
            continue
        command, rest = leaf(words[1:])
        if command.name == "run":
            parse_run(rest)
        known = {option for parameter in command.params for option in parameter.opts}
        assert command.name == "run" or [word for word in rest if word.startswith("-") and word not in known] == []


# Commands are run

NIGHTS = [f"202611{day:02}T023000Z-3f2a" for day in range(12, 22)]
SUTS = {
    "testbed1": ("sut1", "sut2", "testbed1-sut1", "testbed1-sut2", "t1-sut2"),
    "t1": ("sut1", "sut2", "t1-sut1"),
    "testbed": ("sut",),
}
"""Names in the documentation."""

FIXTURES = CHECKOUT / "tests" / "fixtures"

NOT_RUN = {
    "run": "measures: tests/ansible",
    "build": "compiles: tests/probe",
    "runner": "packs sutprobe for all architectures: tests/probe/test_container.py",
    "collection": "tests/dist/test_collection.py",
    "assemble": "needs what a run without a controller left: tests/probe/test_container.py",
    "merge": "joins slices: tests/unit/test_merge.py",
    "sheet": "needs runs judged by a file: tests/ansible/test_runs.py, tests/unit/test_sheet.py",
    "add": "needs a lab of real machines: tests/unit/test_reference_command.py",
}
"""Subcommands that are only parsed here, and where they are run."""

FEW_NIGHTS = {"accept": ("--anyway",)}
"""What a command needs besides in a lab of so few nights."""

DEMO = "demo"
"""The lab of the tutorial: tests/report/test_demo.py runs its commands."""


def measures(words: Sequence[str]) -> bool:
    """Return whether a command only belongs on a SUT or with a lab, or is run by another test."""
    elsewhere = {"--quick", "--live", "csit-results", DEMO}
    return leaf(words)[0].name in NOT_RUN or bool(elsewhere & set(words))


def ready() -> list[tuple[str, ...]]:
    ours = [words[1:] for words in words_of_blocks() if Path(words[0]).name == "calibration"]
    return [words for words in ours if not measures(words)]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the results of a lab, and the files that the documentation names."""
    folder = tmp_path_factory.mktemp("sandbox")
    example = json.loads((CHECKOUT / "results" / "example" / "run.json").read_bytes())
    capture = FIXTURES / "context" / "x86_64-two-nodes-smt.tar.gz"
    for testbed, suts in SUTS.items():
        for sut in suts:
            for run_id, day in (("run-id", 20), (NIGHTS[-1], 21)):
                run = folder / "results" / testbed / sut / run_id
                run.mkdir(parents=True)
                at = f"2026-11-{day}T02:30:00Z"
                own = {"testbed": testbed, "sut": sut, "id": run_id, "started_at": at, "finished_at": at}
                example["run"] |= own
                (run / "run.json").write_text(json.dumps(example), encoding="utf-8")
                shutil.copyfile(capture, run / "context.tar.gz")
    for name in ("t1.yml", "expected.yml", "FILE"):
        (folder / name).write_text("sysctl: {vm.swappiness: 0..100}\n", encoding="utf-8")
    for name in ("sut.tar.gz", "sut1.tar.gz"):
        shutil.copyfile(capture, folder / name)
    for name in ("published-page.rst", "PAGE"):
        shutil.copyfile(FIXTURES / "pages" / "complete.rst", folder / name)
    rows = [f"testbed1/sut1,ip4,2026-11-{night[6:8]}T06:00:00Z,12.4,Mpps" for night in NIGHTS]
    for name in ("throughput.csv", "THROUGHPUT.csv"):
        (folder / name).write_text("\n".join(["sut,test,time,value,unit", *rows, ""]), encoding="utf-8")
    return folder


NAMES = {
    "RUN": "testbed1/sut1",
    "before": "results",
    "tuned_realtime": "t1.yml",  # which the SUTs here are not
    "/var/lib/node_exporter/calibration.prom": "calibration.prom",
    "tests/fixtures/context/x86_64-cxl.tar.gz": str(FIXTURES / "context" / "x86_64-cxl.tar.gz"),
}
"""What a reader fills in."""


@pytest.mark.parametrize("words", ready(), ids=" ".join)
def test_a_command_of_a_block_does_what_it_says(
    words: tuple[str, ...], sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sandbox)
    command, _ = leaf(words)
    for parameter in command.params:
        if parameter.name == "results":
            monkeypatch.setattr(parameter, "default", sandbox / "results")
    more = FEW_NIGHTS.get(str(command.name), ())
    ended = calibration(*(NAMES.get(word, word) for word in words), *more)
    assert ended.code == GOOD, ended.said


# Files are read


def test_examples_of_profiles_are_profiles(tmp_path: Path) -> None:
    found = of_kind("profile")
    assert found
    for block in found:
        path = tmp_path / "own.yml"
        path.write_text(block.text, encoding="utf-8")
        load_profile(str(path))


def test_examples_of_variables_are_known_to_the_roles() -> None:
    paths = (CHECKOUT / "roles").glob("*/meta/argument_specs.yml")
    specs = [yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"] for path in paths]
    known: set[str] = set().union(*(entry.get("options") or {} for spec in specs for entry in spec.values()))
    found = of_kind("variables")
    found += [block for block in blocks() if block.language == "yaml" and re.match(r"[a-z]+_[a-z_]+:", block.text)]
    assert len(found) >= 7
    for block in found:
        given: dict[str, Any] = yaml.safe_load(block.text)
        assert set(given) <= known, block.page


def test_blocks_with_a_language_are_read_by_it() -> None:
    for block in blocks():
        if block.language == "yaml":
            assert yaml.safe_load(block.text), block.page
        elif block.language == "json":
            json.loads(block.text)
