# SPDX-License-Identifier: Apache-2.0
"""A run on this machine: results, output, and input that is rejected before anything is touched."""

import json
import os
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from support import ANOTHER_DISPLAY, SLOW, TINY, Ended, Lab, calibrate, inventory_of

from calibration.acceptance import load_acceptance
from calibration.commands.sheet import sheet_command
from calibration.nightly.lock import LOCK
from calibration.results.store import read_run


def test_a_run_has_a_valid_document_and_a_page(calibrated_lab: tuple[Lab, Ended]) -> None:
    lab, ended = calibrated_lab
    assert ended.rc == 0, ended.text
    (run,) = lab.runs()
    assert run.relative_to(lab.results).parts[:2] == ("localhost", "localhost")
    document = read_run(run)
    assert document.run.status == "complete"
    assert document.run.probe is not None
    assert [measurement.kind for measurement in document.measurements] == ["idle_latency"]
    page = run / "report" / "page.rst"
    assert document.run.probe.sha256 in page.read_text(encoding="utf-8")
    assert f"Results: {run}\n" in ended.text


def test_the_output_has_a_line_per_event_and_no_control_characters(calibrated_lab: tuple[Lab, Ended]) -> None:
    _, ended = calibrated_lab
    assert re.search(r"^localhost: Idle latency, .*: measured$", ended.text, re.MULTILINE)
    assert all(character.isprintable() or character == "\n" for character in ended.text)
    assert "WARNING" not in ended.text
    assert "tonight" not in ended.text


def test_a_run_leaves_nothing_behind(calibrated_lab: tuple[Lab, Ended]) -> None:
    lab, _ = calibrated_lab
    assert lab.leftovers() == []  # nor anything in the home directory, which is read-only
    assert not (lab.results / LOCK).exists()  # only nights are exclusive


@pytest.mark.slow
def test_renders_pages_and_site_again_for_nobody_else_to_write(
    calibrated_lab: tuple[Lab, Ended], lab: Lab, site_dir: Path
) -> None:
    shutil.copytree(calibrated_lab[0].results, lab.results)
    (run,) = lab.runs()
    page = run / "report" / "page.rst"
    page.unlink()
    before = os.umask(0)
    try:
        ended = lab.run("report.yml", "-e", json.dumps({"report_site": True, "report_site_dir": str(site_dir)}))
    finally:
        os.umask(before)
    assert ended.rc == 0, ended.text
    assert page.is_file()
    for path in (page, *site_dir.rglob("*")):
        assert path.is_symlink() or not path.stat().st_mode & stat.S_IWOTH, path
    assert (site_dir / "calibration" / "localhost" / "index.html").is_file()


def test_check_mode_shows_the_plan_and_touches_nothing(lab: Lab) -> None:
    expected = lab.directory / "expected.yml"
    state = {"sysctl": {"vm.swappiness": "1000..", "vm.max_map_count": "1.."}, "sysfs": {"/sys/no/such/file": 1}}
    expected.write_text(yaml.safe_dump(state), encoding="utf-8")
    inventory = lab.directory / "hosts.json"
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {"usual": local, "own": {**local, "calibration_profile": str(TINY)}}
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}))
    options = ("-i", str(inventory), "-e", f"calibration_expected_state={expected}")
    ended = lab.run("nightly.yml", "--check", *options, profile=None)
    assert ended.rc == 0, ended.text
    assert re.search(r"^own: 1 step, ", ended.text, re.MULTILINE), "the inventory's profile comes before nightly"
    assert re.search(r"^usual: \d\d+ steps, ", ended.text, re.MULTILINE)
    # The file that no capture has by itself was asked for.
    assert re.search(r"sysctl vm\.swappiness: expected 1000\.\., found \d+$", ended.text, re.MULTILINE)
    assert "3 settings: 1 met, 1 not met, 1 cannot exist here" in ended.text
    assert "Maximum bandwidth" in ended.text
    assert re.search(r"sutprobe bandwidth --\w", ended.text)
    assert not lab.results.exists()
    assert lab.leftovers() == []


# Bad input


@pytest.mark.parametrize("content", [None, "all: [not, an, inventory"], ids=["missing", "yaml"])
def test_rejects_an_unreadable_inventory(lab: Lab, content: str | None) -> None:
    inventory = lab.directory / "hosts.yml"
    if content is not None:
        inventory.write_text(content)
    ended = lab.run("calibrate.yml", "-i", str(inventory))
    assert ended.rc not in {0, 2}
    assert str(inventory) in ended.text
    assert not lab.results.exists()


def test_rejects_an_inventory_without_a_sut_with_any_display(lab: Lab) -> None:
    inventory = lab.directory / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"children": {"testbed1": None}}}))
    ended = calibrate(lab, inventory, **ANOTHER_DISPLAY)
    assert ended.rc == 2, ended.text
    assert "no SUT in the inventory: name one" in ended.text


REFUSED = {
    "profile": ({"calibration_profile": "thorough"}, "unknown profile 'thorough', expected quick, nightly, full, "),
    "type": ({"measure_grace_s": "soon"}, "argument 'measure_grace_s' is of type"),
    "licence": ({"mlc_archive": "/mlc.tgz"}, "without mlc_license_accepted: true"),
    "file": ({"calibration_results_dir": "{lab}/file"}, "/file is not a directory"),
    "full": ({"preflight_results_free_bytes": str(1 << 60)}, f"of {1 << 60} required"),
}
"""Wrong variables of a SUT, and the message."""


def test_reports_wrong_settings_and_touches_nothing_of_those_suts(lab: Lab) -> None:
    """They outrank faults of a SUT, with any display."""
    hosts = {
        name: {key: value.format(lab=lab.directory) for key, value in variables.items()}
        for name, (variables, _) in REFUSED.items()
    }
    lost = {"calibration_remote_base": str(lab.directory / "missing")}
    (lab.directory / "file").touch()
    ended = calibrate(lab, inventory_of(lab, {**hosts, "lost": lost}, SLOW), **ANOTHER_DISPLAY)
    assert ended.rc == 2, ended.text
    assert "TASK [" in ended.text
    for name, (_, message) in REFUSED.items():
        (line,) = [line for line in ended.text.splitlines() if line.startswith(f"fatal: [{name}]")][:1]
        assert message in line
    assert [run.parts[-2] for run in lab.runs()] == ["lost"]
    assert list(lab.remote.iterdir()) == []


# Acceptance


def test_a_run_is_judged_by_an_acceptance_file(lab: Lab) -> None:
    limit = {
        "metric": "idle_latency.*",
        "unit": "ns",
        "upper": 0.001,
        "soft_upper": 0.0001,
        "reason": "nothing is so fast",
    }
    source = {"document": "A test plan", "url": "https://example.net/plan", "date": "2026-11-01"}
    plan = {"title": "A plan", "source": source, "conditions": "none", "profile": "quick", "limits": [limit]}
    path = lab.directory / "plan.yml"
    path.write_text(yaml.safe_dump(plan), encoding="utf-8")
    ended = lab.run("calibrate.yml", "-e", json.dumps({"calibration_acceptance": [str(path)]}))
    assert ended.rc == 2, ended.text
    assert "(nothing is so fast)" in ended.text
    (run,) = lab.runs()
    document = read_run(run)
    assert document.acceptance == (load_acceptance(str(path)),)
    assert [verdict.outcome for verdict in document.verdicts] == ["fail"]
    path.unlink()  # the sheet needs the run alone
    sheet = CliRunner().invoke(sheet_command, [str(run), "--json"])
    assert sheet.exit_code == 1, sheet.output
    assert json.loads(sheet.output)["acceptance"]["name"] == "plan"
