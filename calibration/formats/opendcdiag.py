# SPDX-License-Identifier: Apache-2.0
"""Output of OpenDCDiag (and of programs built on it) with ``--yaml``: which tests of the processor passed.

Source: its schema, ``docs/opendcdiag-cpu.schema.yaml``, and output of commit 65b0814a06fa. A failed test is repeated,
up to twenty times, and each repetition printed as a run of its own.
"""

import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.model import Model, fault_of
from calibration.base.parsers import YAML_BYTES, YamlError, read_yaml
from calibration.base.text import visible
from calibration.base.units import plural

MAX_BYTES: Final = YAML_BYTES
"""An hour of passed tests of a second has half of it; a failed run has 700 bytes and more of each thread."""

MAX_NAMED: Final = 5
"""Most failed tests named in a reason."""

MAX_QUOTED: Final = 300
"""Most characters of a test and its end in a reason."""

TestVerdict = Literal["pass", "skip", "fail"]
DECIDED: Final[Mapping[str, TestVerdict]] = {
    "pass": "pass", "skip": "skip", "fail": "fail", "crash": "fail", "timed out": "fail",
}  # fmt: skip
"""Verdict by the result of a test; the other results are none."""

Verdict = Literal["pass", "fail", "invalid", "interrupted"]
Text = Annotated[str, Field(max_length=4_000)]


class _Raw(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Fail(_Raw):
    cpu_mask: Text | None = Field(default=None, alias="cpu-mask")
    seed: Text | None = None


class _Thread(_Raw):
    state: str | None = None
    id: dict[str, Any] = {}


class _Details(_Raw):
    code: int | None = None
    reason: str | None = None


class _Test(_Raw):
    test: Text
    result: Literal["skip", "pass", "fail", "timed out", "interrupted", "operating system error", "crash"]
    details: _Details | None = Field(default=None, alias="result-details")
    fail: _Fail | None = None
    threads: list[_Thread] = []

    @property
    def verdict(self) -> TestVerdict | None:
        """``None`` if undecided. SIGKILL is the kernel's when memory runs out: the program does not blame the CPU."""
        killed = self.details is not None and self.result == "crash" and self.details.code == signal.SIGKILL
        return None if killed else DECIDED.get(self.result)


class _Output(_Raw):
    version: Text
    exit: Verdict
    tests: list[_Test] = Field(default=[], max_length=100_000)


class TestFailure(Model):
    """One run of a test that failed: the CPUs that its threads name, else the program's mask, and the seed."""

    cpus: tuple[int, ...]
    cpu_mask: str | None
    seed: str | None


class DcdiagTest(Model):
    """All runs of one test: how many passed, failed (crashed and timed out included), were skipped, or neither.

    ``failures`` are the first of those that failed.
    """

    test: str
    passed: int
    failed: int
    skipped: int
    undecided: int
    failures: tuple[TestFailure, ...]

    @classmethod
    def of_runs(cls, name: str, runs: Sequence[_Test]) -> Self:
        """Return the *runs* of the test *name* as one."""
        counts = Counter(run.verdict for run in runs)
        return cls(
            test=visible(name),
            passed=counts["pass"],
            failed=counts["fail"],
            skipped=counts["skip"],
            undecided=counts[None],
            failures=tuple(_failure(run) for run in runs if run.verdict == "fail")[:MAX_NAMED],
        )


class DcdiagOutput(Model):
    """What the program says: ``exit`` is its verdict on everything."""

    version: str
    exit: Verdict
    tests: tuple[DcdiagTest, ...]

    @property
    def fault(self) -> str | None:
        """The failed tests, with the CPUs of the first failure of each; ``None`` if none failed."""
        failed = [test for test in self.tests if test.failed]
        if not failed and self.exit != "fail":
            return None
        named = [f"{test.test} {plural(test.failed, 'time')}{_where(test.failures[0])}" for test in failed[:MAX_NAMED]]
        more = len(failed) - len(named)
        every = [*named, *([f"{more} more"] if more else [])] or ["it names none"]
        return f"opendcdiag: {plural(len(failed), 'test')} failed: {', '.join(every)}"


def read_output(content: bytes) -> DcdiagOutput:
    """Return what *content* says. Raises ``InputError`` for output of another form, or in which nothing was tested."""
    try:
        found = _Output.model_validate(read_yaml(content))
    except YamlError as error:
        raise InputError(f"the output of opendcdiag is not valid YAML: {error}") from error
    except ValidationError as error:
        raise InputError(f"the output of opendcdiag has another form: {fault_of(error)}") from error
    runs = grouped((run.test, run) for run in found.tests)
    output = DcdiagOutput(
        version=visible(found.version),
        exit=found.exit,
        tests=tuple(DcdiagTest.of_runs(name, of) for name, of in runs.items()),
    )
    if output.fault is None and found.exit != "pass":
        raise InputError(f"opendcdiag ended with {found.exit}, and no test failed{_undecided(found.tests)}")
    if output.fault is None and not any(test.passed for test in output.tests):
        raise InputError("opendcdiag tested nothing")
    return output


def read_ended(content: bytes) -> DcdiagOutput | None:
    """Return what *content* says of a program that was ended, or ended itself; ``None`` unless a test failed before."""
    finished = content[: content.rfind(b"\n- test: ") + 1] + b"exit: interrupted\n"
    for output in (content, finished):
        try:
            found = read_output(output)
        except InputError:
            continue
        return found if found.fault else None
    return None


def _undecided(runs: Sequence[_Test]) -> str:
    undecided = [run for run in runs if run.verdict is None]
    if not undecided:
        return ""
    last = undecided[-1]
    return visible(f": {last.test}: {(last.details and last.details.reason) or last.result}")[:MAX_QUOTED]


def _failure(run: _Test) -> TestFailure:
    cpus = {thread.id.get("logical") for thread in run.threads if thread.state == "failed"}
    mask, seed = (None, None) if run.fail is None else (run.fail.cpu_mask, run.fail.seed)
    return TestFailure(
        cpus=tuple(sorted(cpu for cpu in cpus if isinstance(cpu, int))),
        cpu_mask=mask and visible(mask),
        seed=seed and visible(seed),
    )


def _where(failure: TestFailure) -> str:
    if failure.cpus:
        return f" (CPUs {', '.join(map(str, failure.cpus[:MAX_NAMED]))})"
    return f" (mask {failure.cpu_mask})" if failure.cpu_mask else ""
