# SPDX-License-Identifier: Apache-2.0
"""SUTs that attack their controller, from the first answer to the page in the site.

Ansible's own connection plugin is used, with ``hostile_ssh.py`` in place of ssh.
"""

import json
import re
import resource
import subprocess
import sys
import tracemalloc
import unicodedata
from pathlib import Path

import pytest
from support import HERE, ROOT, Ended, Lab, calibrate_command, executable, inventory_of, run, run_of

from calibration.base.bounds import MEMORY_SPARE_BYTES, SHORT_BYTES, bounded_memory
from calibration.base.text import HIDDEN, visible
from calibration.results.store import read_run
from calibration.run.records import records
from tests.harmless import check_page

pytestmark = pytest.mark.slow

MARK = "calibration-hostile-mark"
"""Part of the name of every file that a hostile text would create."""


WITH_PEAK = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, "KiB")
sys.exit(code)
"""
"""Run a command and print the peak memory of its largest process."""


def marks(lab: Lab) -> list[str]:
    """Return the files created by a hostile text."""
    places = (lab.directory, ROOT, Path("/tmp"), Path("/"))
    found = {str(path) for place in places for path in place.glob(f"*{MARK}*")}
    found |= {str(path) for path in lab.directory.rglob(f"*{MARK}*")}
    return sorted(found | {str(path) for path in lab.directory.rglob("evil*")})


def check_shown(ended: Ended) -> None:
    """Check that the output has no control characters and no forged line."""
    for line in ended.text.split("\n"):
        assert not [item for item in line if unicodedata.category(item) in HIDDEN], ascii(line)
        assert not line.startswith(("sut2", "TASK", "PLAY")), line


MOODS = ("answers", "kernel", "records", "endless")
"""How each SUT answers; see ``hostile_ssh.py``."""


@pytest.fixture(scope="module")
def attacked(module_lab: Lab, site_dir: Path) -> Ended:
    """Calibrate a SUT in each mood and build their site."""
    lab = module_lab
    (lab.directory / "marks").mkdir()
    hosts = {}
    for mood in MOODS:
        command = f'HOSTILE_MOOD={mood} exec {sys.executable} {HERE / "hostile_ssh.py"} "$@"'
        hosts[mood] = {
            "ansible_host": "192.0.2.1",
            "ansible_connection": "ssh",
            "ansible_ssh_executable": str(executable(lab.directory / f"{mood}-ssh", command)),
            "report_site": True,
            "report_site_dir": str(site_dir),
        }
    calibration = calibrate_command(inventory_of(lab, hosts))
    environment = lab.environment(HOSTILE_MARK=str(lab.directory / "marks" / MARK))
    return run([sys.executable, "-c", WITH_PEAK, *calibration], environment)


def reasons(lab: Lab, mood: str) -> list[str]:
    """Return why a SUT was not measured."""
    return [gone.reason for gone in read_run(run_of(lab, mood)).not_measured if gone.cause != "not_planned"]


def test_hostile_answers_are_neither_executed_nor_shown_raw(attacked: Ended, module_lab: Lab) -> None:
    assert attacked.rc == 3, attacked.text
    check_shown(attacked)
    assert marks(module_lab) == []


def test_pages_of_hostile_suts_are_harmless(attacked: Ended, module_lab: Lab, site_dir: Path) -> None:
    document = read_run(run_of(module_lab, "answers"))
    assert document.run.status == "complete", attacked.text
    assert "lookup('pipe'" in str(document.context.parsed.capture.hostname)
    pages = list((site_dir / "calibration").rglob("index.html"))
    assert len(pages) > len(MOODS), attacked.text
    for page in pages:
        check_page(page, site_dir / "index.html")
    (page,) = (site_dir / "calibration" / "answers" / "answers").rglob("index.html")
    text = page.read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "root:" not in text


@pytest.mark.parametrize("mood", ["kernel", "records"])
def test_reports_a_hostile_reason(mood: str, attacked: Ended, module_lab: Lab) -> None:
    document = read_run(run_of(module_lab, mood))
    assert document.measurements == ()
    assert list(records(run_of(module_lab, mood)))
    text = visible(" ".join(reasons(module_lab, mood)))
    # the end of each output is quoted, and the beginning of a reason
    assert "lookup('pipe'" in text
    assert "\\x1b]0;owned\\x07" in text
    assert f"{mood}: " in attacked.text


def test_endless_output_takes_little_memory_and_disk(attacked: Ended, module_lab: Lab) -> None:
    found = reasons(module_lab, "endless")
    assert found
    for reason in found:
        assert reason.endswith("the SUT's answer exceeds 67108864 bytes: find out what prints so much there")
    directory = run_of(module_lab, "endless")
    assert sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) < 4 << 20
    peak = re.search(r"^peak (\d+) KiB$", attacked.text, re.MULTILINE)
    assert peak is not None, attacked.text
    assert int(peak[1]) < 700 << 10


FREED_FIRST = """
from calibration.base.bounds import bounded_memory
for size in (30 << 20, 29 << 20):  # the C library keeps blocks of a size that was freed before
    bytes(size)
try:
    with bounded_memory(0): kept = [bytes(10 << 20) for _ in range(5)]
except MemoryError: print("bounded")
"""


def test_freed_memory_does_not_raise_the_limit() -> None:
    done = subprocess.run([sys.executable, "-c", FREED_FIRST], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "bounded\n"


@pytest.mark.parametrize("part", ["{},", "[],", '{"":0},', '{"":{"":[]}},', "1.5,", '"é¤",', '"ab",'])
def test_short_texts_need_no_limit(part: str) -> None:
    text = f"[{part * ((SHORT_BYTES - 2) // len(part))}"[:-1] + "]"
    tracemalloc.start()
    try:
        json.loads(text)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_SPARE_BYTES
    finally:
        tracemalloc.stop()


def test_memory_is_limited_only_in_the_block() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(MemoryError), bounded_memory(1 << 20):
        bytearray(MEMORY_SPARE_BYTES + (64 << 20))
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    with bounded_memory(1 << 20):
        assert bytearray(1 << 20)
    check = """
import resource
from calibration.base.bounds import bounded_memory
resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, 1 << 41))
with bounded_memory(1 << 45):
    assert resource.getrlimit(resource.RLIMIT_DATA) == (1 << 40, 1 << 41)
"""
    subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=True)
