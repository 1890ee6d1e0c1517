# SPDX-License-Identifier: Apache-2.0
"""The ready-made units of docs/guide/units are accepted by what will read them, and say what the guide says of them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tree_sitter
import tree_sitter_groovy
import yaml

from calibration.commands.playbook_run import run_command

CHECKOUT = Path(__file__).parents[2]
UNITS = CHECKOUT / "docs" / "guide" / "units"
PROGRAM = "/srv/calibration/.venv/bin/calibration"

systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze not found: install the Debian package systemd"
)


def text_of(name: str) -> str:
    return (UNITS / name).read_text(encoding="utf-8")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TZ": "UTC"}
    return subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)


WORKFLOWS = ("github-workflow.yml", "github-slices.yml", "github-quick-gate.yml", "github-benchmark.yml")


def test_every_unit_is_one_of_those_that_are_tested_here() -> None:
    nightly = {"Containerfile", "Jenkinsfile", "calibration.service", "calibration.timer"}
    of_gates = {"Jenkinsfile.quick-gate", "quick-gate.sh"}
    elsewhere = {  # tests/unit/test_exports.py, tests/unit/test_sheet.py, tests/report/test_docs.py
        "acceptance.yml", "grafana-dashboard.json", "prometheus-rules.yml", "expected-state.yml", "kubernetes-job.yml"
    }  # fmt: skip
    known = nightly | of_gates | set(WORKFLOWS)
    assert {path.name for path in UNITS.iterdir()} == known | elsewhere
    for name in known | {"expected-state.yml", "kubernetes-job.yml"}:
        assert "SPDX-License-Identifier: Apache-2.0" in text_of(name).splitlines()[0], name


def test_all_of_them_start_the_same_calibration_with_options_that_exist() -> None:
    options = {opt for parameter in run_command.params for opt in parameter.opts}
    commands = {
        "calibration.service": rf"^ExecStart={PROGRAM} run (.*)$",
        "github-workflow.yml": r"^ +python3 calibration/bootstrap\.py (.*)$",
        "Jenkinsfile": r"sh 'python3 calibration/bootstrap\.py (.*)'$",
    }
    found = {name: re.findall(pattern, text_of(name), re.MULTILINE) for name, pattern in commands.items()}
    assert list(found.values()) == [["--nightly -i my-lab"]] * 3
    assert "--nightly" in options


# systemd


@systemd
def test_systemd_takes_the_service_and_its_timer(tmp_path: Path) -> None:
    units = [tmp_path / f"calibration.{kind}" for kind in ("service", "timer")]
    for path in units:
        path.write_text(text_of(path.name).replace(PROGRAM, sys.executable), encoding="utf-8")
    done = run("systemd-analyze", "verify", "--man=no", *map(str, units))
    assert (done.returncode, done.stderr) == (0, "")


@systemd
def test_the_timer_comes_every_night_at_one_time() -> None:
    (calendar,) = re.findall(r"^OnCalendar=(.*)$", text_of("calibration.timer"), re.MULTILINE)
    done = run(
        "systemd-analyze", "calendar", "--iterations=3", "--base-time=2026-11-22 12:00:00 UTC", f"{calendar} UTC"
    )
    assert done.returncode == 0, done.stderr
    nights = re.findall(r"(?:elapse|Iteration #\d|Iter\. #\d): \w+ (\S+ \S+) UTC", done.stdout)
    assert nights == ["2026-11-23 02:30:00", "2026-11-24 02:30:00", "2026-11-25 02:30:00"]
    settings = set(text_of("calibration.timer").splitlines())
    assert "Persistent=true" in settings
    assert not any(setting.startswith("RandomizedDelaySec") for setting in settings)


# GitHub


def workflow(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(text_of(name))
    return loaded


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_is_one_by_the_services_own_schema(name: str) -> None:
    command = ("-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(UNITS / name))
    done = run(sys.executable, *command)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "job"),
    [("github-workflow.yml", "calibrate"), ("github-slices.yml", "measure"), ("github-slices.yml", "judge")],
)
def test_a_workflow_is_alone_and_keeps_what_it_made_in_any_case(name: str, job: str) -> None:
    content = workflow(name)
    assert content["concurrency"]["cancel-in-progress"] is False
    found = content["jobs"][job]
    assert "self-hosted" in found["runs-on"]
    assert found["timeout-minutes"] < 24 * 60
    steps = found["steps"]
    (calibrate,) = [number for number, step in enumerate(steps) if "calibration/bootstrap.py" in step.get("run", "")]
    assert [item["if"] for item in steps[calibrate + 1 :]] == ["always()"] * (len(steps) - calibrate - 1)
    assert calibrate + 1 < len(steps)


def test_the_slices_are_all_of_the_lab_and_measure_whatever_another_does() -> None:
    strategy = workflow("github-slices.yml")["jobs"]["measure"]["strategy"]
    assert strategy["fail-fast"] is False
    slices = [re.fullmatch(r"all\[(\d+):(\d+)\]", suts) for suts in strategy["matrix"]["suts"]]
    places = [place for found in slices if found for place in range(int(found[1]), int(found[2]) + 1)]
    assert all(slices)
    assert places == list(range(1000))


# Jenkins


def parse(source: bytes) -> tree_sitter.Node:
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_groovy.language()))
    return parser.parse(source).root_node


def calls(node: tree_sitter.Node) -> dict[str, tree_sitter.Node]:
    """Return the calls that stand in a closure, or in the file, by their names."""
    found = {}
    for child in node.named_children:
        call = child.named_child(0) if child.type == "expression_statement" else child
        if call is not None and call.type in {"method_invocation", "juxt_function_call"}:
            name = call.child_by_field_name("name")
            assert name is not None
            assert name.text is not None
            found[name.text.decode()] = call
    return found


def inside(call: tree_sitter.Node) -> dict[str, tree_sitter.Node]:
    body = call.child_by_field_name("body")
    assert body is not None, call.text
    return calls(body)


def test_the_pipeline_is_a_declarative_one() -> None:
    root = parse(text_of("Jenkinsfile").encode())
    assert not root.has_error
    assert list(calls(root)) == ["pipeline"]
    sections = inside(calls(root)["pipeline"])
    assert sections.keys() == {"agent", "triggers", "options", "stages", "post"}
    assert all("steps" in inside(stage) for stage in inside(sections["stages"]).values())
    assert set(inside(sections["triggers"])) == {"cron"}
    assert {"disableConcurrentBuilds", "timeout"} <= set(inside(sections["options"]))
    always = inside(sections["post"])["always"]
    assert set(inside(always)) == {"archiveArtifacts", "junit"}
    for name, call in inside(always).items():  # a night that was not judged has no files
        assert re.search(rb"allowEmpty\w+: true", call.text or b""), name


def test_the_stage_of_the_quick_gate_is_groovy_and_tells_unknown_from_no() -> None:
    root = parse(text_of("Jenkinsfile.quick-gate").encode())
    assert not root.has_error
    assert list(calls(root)) == ["stage"]
    assert "unstable" in text_of("Jenkinsfile.quick-gate")


def test_what_a_build_takes_from_others_is_pinned() -> None:
    guide = UNITS.parent
    for path in (*UNITS.glob("*.yml"), *guide.glob("*.rst")):
        for action in re.findall(r"uses: *(.*)", path.read_text(encoding="utf-8")):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), f"{path.name}: {action}"
    for line in re.findall(r"pip (?:install|wheel) .*", text_of("Containerfile")):
        assert "--require-hashes" in line or "--no-index" in line, line
        assert "--require-hashes" in line or "wheel " not in line or "--no-build-isolation" in line, line
    assert set(re.findall(r"FROM (\S+)", text_of("Containerfile"))) == {"$BASE"}
