# SPDX-License-Identifier: Apache-2.0
"""Store the judgement of a night, and map its failures to hosts.

The output directory has ``judgement.json`` (all verdicts), ``judgement.txt`` (the screen), and Robot Framework's files
for the gates: ``log.html``, ``report.html``, ``output.xml`` and ``xunit.xml``.
"""

import contextlib
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from calibration.base.errors import InputError
from calibration.base.files import able_to
from calibration.gates.night import Gathered
from calibration.gates.run import GateOutcome, print_summary, run_gates
from calibration.judge.answer import URGENT, Answer
from calibration.judge.night import Judgement, write_judgement
from calibration.report.screens.judgement import print_judgement
from calibration.results.nights import night_of

JUDGEMENT: Final = "judgement.json"
SCREEN: Final = "judgement.txt"
GATES: Final = "gates.json"
"""The result of each gate. Robot Framework's own files contain times, this one is the same for the same result."""

Hosts = Mapping[tuple[str, str], str]
"""Ansible hosts by testbed and SUT."""


def judge(
    results: Path, run_id: str, output: Path, gates: Iterable[Path] = ()
) -> tuple[Judgement, list[GateOutcome], bool]:
    """Judge the night of *run_id* and run the gates, including those in *gates*; store everything in *output*.

    Return the verdicts, the results of the gates, and whether either changed; unchanged files are not rewritten. Raises
    what judging and the gates raise, and ``EnvironmentLacksError`` if *output* cannot be written; the previous files
    are kept then.
    """
    if output.resolve().is_relative_to(results.resolve()):
        raise InputError(f"{output} is inside the results; set judge_dir to another directory")
    gathered = Gathered()
    with able_to(f"write the judgement to {output}", ". Free some space, or set judge_dir to another directory"):
        output.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".judging-", dir=output) as scratch:
            new = Path(scratch)
            with (new / JUDGEMENT).open("wb") as stream:
                judgement = write_judgement(stream, results, night_of(run_id), gathered.add)
            tested: list[GateOutcome] = []
            if gathered.verdicts:  # none in the first night of a lab, if no SUT was measured
                night = gathered.night(results, judgement.night, judgement.answers)
                tested = run_gates(new, night, gates, {"VERDICTS": new / JUDGEMENT})
            _write(new / GATES, json.dumps([test._asdict() for test in tested], indent=1))
            _write(new / SCREEN, screen(tested, judgement, output))
            changed = any(not _same(new / name, output / name) for name in (JUDGEMENT, GATES))
            if changed:
                for path in sorted(new.iterdir(), key=lambda path: path.name == JUDGEMENT):
                    path.replace(output / path.name)  # the judgement last: an interrupted update is repeated
    return judgement, tested, changed


def _write(path: Path, text: str) -> None:
    path.write_text(f"{text.rstrip()}\n", encoding="utf-8")


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


def screen(tested: list[GateOutcome], judgement: Judgement, output: Path) -> str:
    """Return the summary of a night: the screens of the judgement and of the gates."""
    text = io.StringIO()
    print_judgement(judgement, text, everything=False)
    if tested:
        with contextlib.redirect_stdout(text):
            click.echo()
            print_summary(tested, f"Night {judgement.night}", output)
    return text.getvalue().strip()


def failures(
    answers: Iterable[Answer], tested: Iterable[GateOutcome], hosts: Hosts, *, limited: bool
) -> dict[str, list[str]]:
    """Return the failures of the SUTs of *hosts* by host: the answer, and a line per gate of the lab's own.

    A SUT that left the inventory but is known to its testbed fails the first host of that testbed, unless the hosts are
    *limited* on purpose, so that it is noticed. Its unreadable files fail no other SUT.
    """
    first: dict[str, str] = {}
    for (testbed, _), host in hosts.items():
        first.setdefault(testbed, host)
    failed = [
        ((answer.testbed, answer.sut), f"{about}: {text}" if about != "Machine" else text)
        for answer in answers
        if answer.state in URGENT
        if (answer.testbed, answer.sut) in hosts or answer.state != "faulty" or answer.run_id is not None
        for about, text in answer.lines()
        if about in {"Machine", "Changed", "Do"}
    ]
    failed += [
        (test.names, f"gate failed: {test.gate}: {test.message}")
        for test in tested
        if test.status == "FAIL" and not test.verdicts
    ]
    found: dict[str, list[str]] = {}
    for sut, line in failed:
        if sut in hosts:
            found.setdefault(hosts[sut], []).append(line)
        elif sut[0] in first and not limited:
            found.setdefault(first[sut[0]], []).append(f"{' / '.join(sut)}, missing from the inventory: {line}")
    return found
