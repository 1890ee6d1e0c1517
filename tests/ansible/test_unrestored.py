# SPDX-License-Identifier: Apache-2.0
"""A SUT that refuses to be restored: exit code, terminal, document, page and judgement say so until it is."""

import shlex

import pytest
from support import Ended, Lab, calibrate, inventory_of, over_ssh, run, run_of

from calibration.base.tuning import Unrestored
from calibration.results.store import read_run
from tests.command import calibration as command

pytestmark = pytest.mark.slow

NO_TURBO = "/sys/devices/system/cpu/intel_pstate/no_turbo"

STUCK = Unrestored(setting="turbo", where=NO_TURBO, wanted="0", found="1", error="Operation not permitted")

WORDS = f"Not restored: turbo at {NO_TURBO}: wanted 0, found 1: Operation not permitted"

SPOILT = f"""
real_path, real_write = Machine.path, write_value
Machine.path = lambda self, where: "LOG.turbo" if where == "{NO_TURBO}" else real_path(self, where)

def write_value(machine, where, value):
    if where == "{NO_TURBO}" and value == "0" and not os.path.exists("LOG.mended"):
        raise OSError(1, "Operation not permitted")
    real_write(machine, where, value)
"""
"""Turbo in a file of its own, which the SUT refuses to switch on again until it is mended."""

REFUSES = """
if asked start || asked remove; then
    python3 -c 'import sys, zipfile, io
packed, made = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read())), zipfile.ZipFile("LOG.zip", "w")
for name in packed.namelist():
    more = open("LOG.py", "rb").read() if name == "calibration/runner/settings.py" else b""
    made.writestr(name, packed.read(name) + more)
made.close()'
    exec < LOG.zip
fi
"""
"""A SUT whose runner is spoilt."""


@pytest.fixture
def left(lab: Lab) -> Ended:
    """A run that leaves its SUT changed."""
    log = lab.directory / "sut1-log"
    log.with_name("sut1-log.turbo").write_text("0\n")
    log.with_name("sut1-log.py").write_text(SPOILT.replace("LOG", str(log)))
    variables = {**over_ssh(lab, "sut1", REFUSES), "tune_turbo": "off", "tune_turbo_ok": True}
    return calibrate(lab, inventory_of(lab, {"sut1": variables}))


def turbo(lab: Lab) -> str:
    return (lab.directory / "sut1-log.turbo").read_text().strip()


def test_a_sut_that_is_not_restored_fails_the_run_everywhere_until_it_is(left: Ended, lab: Lab) -> None:
    assert left.rc == 1, left.text
    assert turbo(lab) == "1"
    run_directory = run_of(lab, "sut1")
    document = read_run(run_directory)
    assert document.run.status == "complete"
    assert [attempt.unrestored for attempt in document.attempts] == [(STUCK,)]
    assert [(change.setting, change.restored) for change in document.attempts[0].changes] == [("turbo", "1")]
    assert [flag.reason for flag in document.flags if flag.code == "NOT_RESTORED"] == [WORDS]
    (line,) = [line for line in left.text.splitlines() if "Try again: " in line]
    assert WORDS in line
    mend = shlex.split(line.partition("Try again: ")[2])
    assert mend[-2:] == ["--limit", "sut1"]
    assert "Not restored: turbo" in command("show", run_directory).said
    page = (run_directory / "report" / "page.rst").read_text().replace("\\", "")
    assert "NOT_RESTORED" in page
    assert "Not restored: turbo" in page
    judged = command("judge", "--results", lab.results)
    assert judged.code == 1
    assert "Not restored: turbo" in judged.said

    again = run(["/bin/sh", "-c", line.partition("Try again: ")[2]], lab.environment())
    assert again.rc == 2, again.text  # ansible-playbook's code of a host that failed
    assert WORDS in again.text
    (lab.directory / "sut1-log.mended").touch()
    mended = run(["/bin/sh", "-c", line.partition("Try again: ")[2]], lab.environment())
    assert mended.rc == 0, mended.text
    assert turbo(lab) == "0"
    document = read_run(run_directory)
    assert {attempt.unrestored for attempt in document.attempts} == {()}
    assert [change.restored_by for change in document.attempts[0].changes] == ["cleanup"]
    assert "NOT_RESTORED" not in {flag.code for flag in document.flags}
    assert "Not restored" not in (run_directory / "report" / "page.rst").read_text()
    assert lab.leftovers() == []
