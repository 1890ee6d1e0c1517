# SPDX-License-Identifier: Apache-2.0
"""Intel MLC as a guest: which commands, which program, its licence, and what its run leaves in the document."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.finish import finish
from calibration.formats.mlc import MAX_OUTPUT_LINES
from calibration.measurements import mlc_program as mlc
from calibration.measurements.mlc_program import (
    MlcCommand,
    check_licence,
    read_commands,
    read_prefetchers,
    read_program,
)
from calibration.profiles import load_profile, parse_profile, profile_names
from calibration.results.model import MlcProgram, MlcRun, RunDocument
from calibration.run.attempts import mlc_commands
from calibration.run.lifecycle import begin
from calibration.run.plan import make_plan, plan_text
from calibration.run.records import MlcProgramRecord, append_record, record_mlc_command
from tests.captures import captured

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FIXTURES = Path(__file__).parents[1] / "fixtures"
ELF = b"\x7fELF\x02\x01" + bytes(12) + (62).to_bytes(2, "little") + bytes(44)
IDLE = b"Intel(R) Memory Latency Checker - v3.5\nEach iteration took 227.2 core clocks ( 99.0 ns)\n"


# Commands


def test_profiles_use_known_commands() -> None:
    found = {name: [item.command for item in load_profile(name).mlc] for name in profile_names()}
    assert found["full"] == list(mlc.COMMANDS)
    assert set(found["quick"]) < set(found["nightly"]) < set(found["full"])


def test_prefetchers_are_not_switched_without_consent() -> None:
    latency = MlcCommand(command="latency_matrix", options=("-b200000", "-r"))
    assert latency.argv(prefetchers_ok=False) == ("mlc", "--latency_matrix", "-e", "-r", "-b200000")
    assert latency.argv(prefetchers_ok=True) == ("mlc", "--latency_matrix", "-b200000", "-r")
    traffic = MlcCommand(command="max_bandwidth")
    assert traffic.argv(prefetchers_ok=False) == ("mlc", "--max_bandwidth", "-e")
    assert {"-e" in mlc.NO_SWITCH_OPTIONS[name] for name in mlc.COMMANDS if name != "c2c_latency"} == {True}


def test_commands_may_have_options() -> None:
    text = "title: x\nmeasurements:\n  idle_latency: {}\nmlc:\n  - idle_latency\n  - bandwidth_matrix: [-X, -k1-3]\n"
    found = parse_profile(text, "x", "x.yml").mlc
    assert found == (
        MlcCommand(command="idle_latency"),
        MlcCommand(command="bandwidth_matrix", options=("-X", "-k1-3")),
    )


@pytest.mark.parametrize(("raw", "found"), [
    ("idle_latency", "mlc in x.yml must list commands"),
    (["idle"], "none, not 'idle'"),
    ([{"idle_latency": [], "latency_matrix": []}], "each with a list of options or none"),
    ([{"idle_latency": "-b1"}], "each with a list of options or none"),
    ([None], "none, not None"),
    ([{"idle_latency": ["-J/mnt"]}], "option '-J/mnt' is not allowed"),
    ([{"idle_latency": ["-ofile"]}], "option '-ofile' is not allowed"),
    ([{"idle_latency": ["-e"]}], "option '-e' is not allowed"),
    ([{"idle_latency": ["-b1 -e"]}], "option '-b1 -e' is not allowed"),
    ([{"idle_latency": ["-b1\n"]}], "option '-b1\\n' is not allowed"),
    ([{"idle_latency": [1]}], "option 1 is not allowed"),
    (["idle_latency", "idle_latency"], "lists idle_latency twice"),
])  # fmt: skip
def test_invalid_commands_are_refused(raw: Any, found: str) -> None:
    with pytest.raises(InputError) as refused:
        read_commands(raw, "x.yml")
    assert found in str(refused.value)


# The licence and the program


def test_the_licence_must_be_accepted() -> None:
    check_licence("", accepted=False)
    check_licence("/srv/mlc.tgz", accepted=True)
    with pytest.raises(InputError, match="without mlc_license_accepted: true"):
        check_licence("/srv/mlc.tgz", accepted=False)


def packed(path: Path, *members: tuple[str, bytes | tarfile.TarInfo]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            member = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize("name", ["Linux/mlc", "./Linux/mlc", "mlc_v3.11/Linux/mlc"])
def test_reads_the_program_from_an_archive(tmp_path: Path, name: str) -> None:
    path = packed(tmp_path / "mlc.tgz", ("Linux/redist.txt", b"text"), (name, ELF), ("Windows/mlc.exe", b"MZ"))
    found = read_program(path)
    assert (found.content, found.member, found.form) == (ELF, name, "elf")
    assert found.archive_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.sha256 == hashlib.sha256(ELF).hexdigest()


@pytest.mark.parametrize(("content", "form"), [(ELF, "elf"), (b"#!/bin/sh\n", "script")])
def test_reads_the_program_itself(tmp_path: Path, content: bytes, form: str) -> None:
    (tmp_path / "mlc").write_bytes(content)
    found = read_program(tmp_path / "mlc")
    assert (found.content, found.member, found.form, found.archive_sha256) == (content, None, form, found.sha256)


ARM = ELF[:18] + (183).to_bytes(2, "little") + ELF[20:]

UNFIT: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent": (lambda _path: None, "No such file or directory; correct mlc_archive"),
    "a directory": (lambda path: path.mkdir(), "Is a directory"),
    "without it": (lambda path: packed(path, ("Linux/readme", b"")), "has Linux/mlc 0 times, expected once"),
    "twice": (lambda path: packed(path, ("Linux/mlc", ELF), ("a/Linux/mlc", ELF)),
              "has Linux/mlc 2 times, expected once"),
    "reaching out": (lambda path: packed(path, ("../Linux/mlc", ELF)), "leads out of it: '../Linux/mlc'"),
    "absolute": (lambda path: packed(path, ("/etc/x", b""), ("Linux/mlc", ELF)), "leads out of it: '/etc/x'"),
    "a link": (lambda path: packed(path, ("", special("Linux/mlc", tarfile.SYMTYPE, "/bin/sh"))),
               "link or a special file"),
    "a hard link": (lambda path: packed(path, ("", special("Linux/mlc", tarfile.LNKTYPE, "/bin/sh"))),
                    "link or a special file"),
    "a device": (lambda path: packed(path, ("", special("Linux/mlc", tarfile.CHRTYPE))), "link or a special file"),
    "huge": (lambda path: packed(path, ("Linux/mlc", bytes(2049))), "too large: at most 2048 bytes"),
    "no archive": (lambda path: path.write_bytes(gzip.compress(b"x" * 9000)), "not a valid .tgz"),
    "a bomb": (lambda path: packed(path, ("a", bytes(1 << 20)), ("Linux/mlc", ELF)), "too large: at most 32768"),
    "too many": (lambda path: packed(path, *((f"{number}", b"") for number in range(9))), "too large: at most 32768"),
    "cut off": (lambda path: path.write_bytes(packed(path, ("Linux/mlc", ELF)).read_bytes()[:60]), "not a valid .tgz"),
    "too large a file": (lambda path: path.write_bytes(bytes(2049)), "too large: at most 2048 bytes"),
    "no program": (lambda path: path.write_bytes(b"MZ\x90"), "is not a 64-bit ELF program"),
    "of another machine": (lambda path: path.write_bytes(ARM), "its ELF machine is 183, not 62"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNFIT)
def test_invalid_programs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr(mlc, "MAX_PROGRAM_BYTES", 2048)
    monkeypatch.setattr(mlc, "MAX_ARCHIVE_BYTES", 32768)
    monkeypatch.setattr(mlc, "MAX_MEMBERS", 5)
    make, reason = UNFIT[case]
    make(tmp_path / "mlc")
    with pytest.raises(InputError) as refused:
        read_program(tmp_path / "mlc")
    assert reason in str(refused.value)


# Prefetchers


def place(
    before: str, after: str | None, restored: str | None = None, where: str = "/dev/cpu/{0-3}/msr"
) -> dict[str, Any]:
    return {"where": where, "before": before, "after": after, "restored": restored}


@pytest.mark.parametrize(("places", "unread", "state"), [
    ([place("0x0", "0x0")], None, "as_before"),
    ([place("0x0", "0x0")], "MSR 0x1a4 of CPUs 4: no", "not_verified"),
    ([], None, "not_verified"),
    ([place("0x0", "0xf", "0x0"), place("0x0", "0x0")], None, "put_back"),
    ([place("0x0", "0xf", "0x0")], "MSR 0x1a4 of CPUs 4: no", "not_verified"),
    ([place("0x0", "0xf", "0x1"), place("0x0", "0x0")], None, "changed"),
    ([place("0x0", "0xf")], "MSR 0x1a4 of CPUs 4: no", "changed"),
    ([place("0x0", None)], None, "not_verified"),
    ([place("0x0", None, "0x0")], None, "put_back"),
])  # fmt: skip
def test_the_state_of_the_prefetchers_is_the_worst_of_all(
    places: list[dict[str, Any]], unread: str | None, state: str
) -> None:
    assert read_prefetchers({"places": places, "unread": unread}).state == state


@pytest.mark.parametrize("raw", [
    None,
    {},
    {"places": [], "unread": 3},
    {"places": [place("0", "0")] * (mlc.MAX_PLACES + 1), "unread": None},
    {"places": 1},
])  # fmt: skip
def test_invalid_prefetcher_states_are_refused(raw: Any) -> None:
    with pytest.raises(EnvironmentLacksError):
        read_prefetchers(raw)


# The document


def assembled(folder: Path, *runs: tuple[str, str, bytes | None], reason: str | None = None) -> RunDocument:
    """Return the document of a run of which nothing but commands of MLC is recorded: command, outcome and output."""
    profile = folder / "p.yml"
    profile.write_text(
        "title: x\nmeasurements:\n  idle_latency: {}\nmlc:\n  - idle_latency\n  - latency_matrix\n", encoding="utf-8"
    )
    capture = (FIXTURES / "context" / "x86_64-two-nodes-smt.tar.gz").read_bytes()
    begun = begin(folder / "results", testbed="t", sut="s", run_id="r", profile=str(profile), capture=capture, now=NOW)
    directory = begun.directory
    append_record(
        directory,
        MlcProgramRecord(
            program=MlcProgram(
                started_at=NOW, archive="mlc.tgz", archive_sha256="ab" * 32, member="Linux/mlc",
                program_sha256="cd" * 32, form="elf", prefetchers_ok=False, publish=False, reason=reason,
            )
        ),
    )  # fmt: skip
    for command, outcome, output in runs:
        run = MlcRun(
            started_at=NOW,
            duration_s=1.0,
            argv=("mlc", f"--{command}"),
            user_id=0,
            rc=0,
            output=None,
            output_sha256=None,
            reason=None if outcome == "ok" else "so it is",
            command=command,  # type: ignore[arg-type]  # one of the names
            outcome=outcome,  # type: ignore[arg-type]  # one of the outcomes
            program_sha256="cd" * 32,
            prefetchers=None,
        )
        record_mlc_command(directory, run, output)
    return finish(directory, now=NOW)


def gone(document: RunDocument) -> list[tuple[str, str, str]]:
    return [(omitted.what, omitted.cause, omitted.reason) for omitted in document.not_measured if omitted.kind == "mlc"]


def test_printed_values_are_read_and_others_are_missing(tmp_path: Path) -> None:
    document = assembled(tmp_path, ("idle_latency", "ok", IDLE))
    assert document.mlc is not None
    assert [command.readings for command in document.mlc.commands] == [("mlc.idle_latency.idle_latency",)]
    (reading,) = document.readings
    assert [(metric.name, metric.value) for metric in reading.values.metrics()] == [("idle_latency.latency_ns", 99.0)]
    assert gone(document) == [
        ("Intel MLC --latency_matrix", "failed", "the run ended before this step for an unknown reason")
    ]


def test_the_last_try_counts(tmp_path: Path) -> None:
    tries = (("idle_latency", "timed_out", b"x"), ("idle_latency", "ok", IDLE), ("latency_matrix", "failed", None))
    document = assembled(tmp_path, *tries)
    assert gone(document) == [("Intel MLC --latency_matrix", "failed", "so it is")]
    directory = tmp_path / "results" / "t" / "s" / "r"
    assert [command.command for command in mlc_commands(directory)] == ["latency_matrix"]


def test_a_program_that_cannot_run_is_the_reason_for_all_commands(tmp_path: Path) -> None:
    document = assembled(tmp_path, reason="no program")
    assert [item[1:] for item in gone(document)] == [("failed", "no program")] * 2


def test_altered_output_is_not_read(tmp_path: Path) -> None:
    assembled(tmp_path, ("idle_latency", "ok", IDLE))
    directory = tmp_path / "results" / "t" / "s" / "r"
    (directory / "mlc" / "idle_latency.txt").write_bytes(IDLE.replace(b"99.0", b"11.0"))
    document = finish(directory, now=NOW)
    assert document.readings == ()
    assert "its sha256 differs from the record" in gone(document)[0][2]


@pytest.mark.parametrize(("output", "reason"), [
    (b"", "no result in what Intel MLC printed"),
    (b"\xff\x00garbage\n", "no result in what Intel MLC printed"),
    (b"Each iteration took - core clocks ( - ns)\n", "printed: no clocks and time with a unit"),
])  # fmt: skip
def test_output_without_values_is_a_reason(tmp_path: Path, output: bytes, reason: str) -> None:
    document = assembled(tmp_path, ("idle_latency", "ok", output))
    assert document.readings == ()
    assert reason in gone(document)[0][2]


@pytest.mark.parametrize(
    ("notes", "reason"), [(90, "printed too much besides its results"), (2001, f"at most {MAX_OUTPUT_LINES} lines")]
)
def test_output_with_too_many_notes_is_not_kept(tmp_path: Path, notes: int, reason: str) -> None:
    said = [b"note %d " % number + b"x" * 40 for number in range(notes)]
    lines = said + [b"Each iteration took 1.0 core clocks ( 9.0 ns)"] * 2000
    document = assembled(tmp_path, ("idle_latency", "ok", b"\n".join(lines) + b"\n"))
    assert document.readings == ()
    assert reason in gone(document)[0][2]


def test_unsupported_commands_of_a_guest_do_not_fail_the_run(tmp_path: Path) -> None:
    document = assembled(tmp_path, ("idle_latency", "failed", None))
    own = [omitted for omitted in document.not_measured if omitted.kind not in {"mlc", "context", "counters"}]
    assert [omitted.cause for omitted in own] == ["failed"]  # of the one step, which nobody ran
    from calibration.run.assemble import _status

    rest = [omitted for omitted in document.not_measured if omitted not in own]
    assert {part.cause for part in rest if part.kind == "mlc"} == {"failed"}
    assert _status(rest, interrupted=False) == "complete"
    assert _status(rest, interrupted=True) == "complete"


def test_the_plan_lists_the_commands() -> None:
    x86, power = (captured(name) for name in ("x86_64-two-nodes-smt", "ppc64le-smt8"))
    plan = make_plan(x86, load_profile("quick"))
    assert plan.mlc == load_profile("quick").mlc
    assert make_plan(power, load_profile("quick")).mlc == ()
    assert "Intel MLC, where the inventory has it (mlc_archive): --idle_latency, --latency_matrix" in plan_text(plan)
