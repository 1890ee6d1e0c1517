# SPDX-License-Identifier: Apache-2.0
"""The playbooks under ansible-runner and AWX, and the definition of their execution environment."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ansible_runner
import pytest
import yaml
from support import (
    PATIENCE_S,
    ROOT,
    SLOW,
    TINY,
    Lab,
    copy_checkout,
    probes_of,
    steps_recorded,
)

from calibration.results.store import read_run

DEFINITION = ROOT / "execution-environment.yml"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # ansible-runner's own


def written(project: Path) -> dict[str, int]:
    """Return the modification time of every file of *project*."""
    return {str(path.relative_to(project)): path.stat().st_mtime_ns for path in project.rglob("*") if path.is_file()}


def job(
    lab: Lab,
    playbook: str,
    variables: dict[str, object],
    project: Path = ROOT,
    extra: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> ansible_runner.Runner:
    """Run *playbook* like AWX: with ansible-runner, a checkout as the project, and a separate inventory."""
    data = lab.directory / "private"
    (data / "inventory").mkdir(parents=True, exist_ok=True)
    hosts = {"localhost": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}
    (data / "inventory" / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    environment = lab.environment(
        CALIBRATION_CACHE_DIR=str(lab.directory / "cache"),
        # What AWX sets: the project's own roles, by the path in ansible.cfg, behind those of a requirements file.
        ANSIBLE_ROLES_PATH=f"{data}/requirements_roles:roles:~/.ansible/roles",
        PYTHONDONTWRITEBYTECODE="1",  # a project's directory need not be writable
        **extra,
    )
    environment.pop("ANSIBLE_CONFIG")  # the project's ansible.cfg is found because the job starts in the project
    return ansible_runner.run(
        private_data_dir=str(data),
        project_dir=str(project),
        playbook=f"playbooks/{playbook}",
        envvars=environment,
        extravars={
            "calibration_results_dir": str(lab.results),
            "calibration_remote_base": str(lab.remote),
            "calibration_lock": lab.lock,
            "report_site_dir": str(lab.directory / "site"),
            "report_site": False,
            **variables,
        },
        quiet=True,
        settings={"pexpect_timeout": 1, "job_timeout": PATIENCE_S},
        **options,
    )


def test_ansible_runner_calibrates_and_does_not_change_the_project(lab: Lab) -> None:
    # A copy, because other tests use the checkout at the same time.
    project = copy_checkout(lab.directory / "project")
    before = written(project)
    display = {"ANSIBLE_STDOUT_CALLBACK": "calibration.harness.progress"}
    ended = job(lab, "calibrate.yml", {"calibration_profile": str(TINY)}, project, display)
    text = ended.stdout.read()
    assert (ended.status, ended.rc) == ("successful", 0), text
    (run,) = lab.runs()
    assert read_run(run).run.status == "complete"
    assert ended.stats["failures"] == ended.stats["dark"] == {}
    assert "Results: " in text
    assert "1 of 1 measurements" in text
    assert [event["event"] for event in ended.events][-1] == "playbook_on_stats"
    assert written(project) == before
    assert lab.leftovers() == []


def test_ansible_runner_reports_why_a_job_failed(lab: Lab) -> None:
    ended = job(lab, "calibrate.yml", {"calibration_profile": "thorough"})
    assert (ended.status, ended.rc) == ("failed", 2)
    failures = [event for event in ended.events if event["event"] == "runner_on_failed"]
    assert any("unknown profile 'thorough'" in json.dumps(failure["event_data"]["res"]) for failure in failures)
    assert lab.runs() == []


def test_cleanup_after_a_cancelled_job_ends_the_run_and_keeps_its_measurements(lab: Lab) -> None:
    cancelled: list[bool] = []

    def second_step_runs() -> bool:
        # Called until the job has ended; the last answer counts.
        if steps_recorded(lab) == 1 and probes_of(lab):
            cancelled.append(True)
        return bool(cancelled)

    ended = job(lab, "calibrate.yml", {"calibration_profile": str(SLOW)}, cancel_callback=second_step_runs)
    assert ended.status == "canceled", ended.stdout.read()
    (run,) = lab.runs()
    assert probes_of(lab), "the SUT measures on"
    cleaned = job(lab, "cleanup.yml", {"calibration_run_id": run.name})
    assert (cleaned.status, cleaned.rc) == ("successful", 0), cleaned.stdout.read()
    document = read_run(run)
    assert document.run.status == "interrupted"
    assert [measurement.kind for measurement in document.measurements] == ["idle_latency"]
    assert list(lab.remote.iterdir()) == []


def test_the_project_needs_no_collections_and_no_prompts() -> None:
    assert (ROOT / "ansible.cfg").is_file()
    for path in ("collections/requirements.yml", "roles/requirements.yml"):
        assert not (ROOT / path).exists()
    for playbook in (ROOT / "playbooks").glob("*.yml"):
        for play in yaml.safe_load(playbook.read_text()):
            assert "vars_prompt" not in play
    used = set()
    for path in (*(ROOT / "roles").rglob("tasks/*.yml"), *(ROOT / "playbooks").glob("*.yml")):
        used |= set(re.findall(r"^\s*(?:- )?([a-z_]+\.[a-z_]+)\.[a-z_]+:", path.read_text(), re.MULTILINE))
    assert used == {"ansible.builtin", "calibration.harness"}  # others would have to be in the execution environment


# The execution environment


def build_context(definition: Path, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ansible_builder", "create", "-f", str(definition), "-c", str(place)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_the_execution_environment_has_the_pinned_requirements(tmp_path: Path) -> None:
    done = build_context(DEFINITION, tmp_path / "context")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("calibrate.txt", "runner.txt"):
        lock = ROOT / "requirements" / name
        assert (tmp_path / "context" / "_build" / "requirements" / name).read_bytes() == lock.read_bytes()
    recipe = next(path for name in ("Containerfile", "Dockerfile") if (path := tmp_path / "context" / name).exists())
    text = recipe.read_text()
    locks = "/usr/share/calibration/"
    installed = f"--require-hashes --requirement {locks}calibrate.txt --requirement {locks}runner.txt"
    assert f'ARG ANSIBLE_INSTALL_REFS="{installed}"' in text
    assert text.index("COPY _build/requirements") < text.index("pip install --no-cache-dir $ANSIBLE_INSTALL_REFS")
    kept = text[: text.index("AS builder")] + text[text.index("AS final") :]
    for line in re.findall(r"pip install .*", kept):
        own = "'dumb-init==" in line  # ansible-builder's, by version only
        assert own or "$ANSIBLE_INSTALL_REFS" in line or "--require-hashes" in line, line


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda item: item.update(version=9), "schema version"),
        (lambda item: item["dependencies"].update(pythons="x"), "pythons"),
    ],
    ids=["version", "key"],
)
def test_rejects_an_invalid_execution_environment(
    spoil: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    content = yaml.safe_load(DEFINITION.read_text())
    spoil(content)
    definition = tmp_path / DEFINITION.name
    definition.write_text(yaml.safe_dump(content))
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    done = build_context(definition, tmp_path / "context")
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
