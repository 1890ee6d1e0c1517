# SPDX-License-Identifier: Apache-2.0
"""The role csit in the place of CSIT's role calibration: CSIT's playbooks and inventory, started as its jobs do."""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import CSIT, ROOT, TINY, Ended, Lab, booted_with, csit_lab, run

from calibration.results.store import read_run
from tests.report.snippets import blocks

SUTS = "192.0.2.81,192.0.2.82,192.0.2.84"
GENERATOR = "192.0.2.83"


@dataclass(frozen=True)
class Tree:
    """CSIT's directory with our role in it, and variables of the machines of its inventory, all this one."""

    path: Path
    lab: Lab
    here: Path

    def job(self, hosts: str, tags: str) -> Ended:
        """Run the command of CSIT's jobs."""
        command = [
            *(sys.executable, "-m", "ansible", "playbook", str(self.path / "site.yaml")),
            *("--inventory", str(self.path / "inventories" / "lf_inventory" / "hosts"), "-i", str(self.here)),
            *("--limit", hosts, "--tags", tags),
        ]
        settings = {
            "ANSIBLE_CONFIG": str(self.path / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "playbooks" / "collections"),
            "ANSIBLE_PIPELINING": "true",
            "CALIBRATION_HOME": str(self.lab.directory),
        }
        return run(command, self.lab.environment(**settings))

    def statuses(self) -> dict[str, str]:
        """Return how the run of each machine ended."""
        return {path.parent.name: read_run(path).run.status for path in self.lab.runs()}


@pytest.fixture(scope="module")
def tree(module_lab: Lab) -> Tree:
    path = module_lab.directory / "fdio.infra.ansible"
    shutil.copytree(CSIT / "fdio.infra.ansible", path)
    (documented,) = (block.text for block in blocks() if "calibration.harness.csit" in block.text)
    role = path / "roles" / "calibration" / "tasks"
    role.mkdir()
    (role / "main.yaml").write_text(documented, encoding="utf-8")
    # What CSIT's own role lets pass: another value of an argument, and another kernel than those of its table.
    name, value = next(iter((right := booted_with()).items()))
    as_booted = {"grub": right, "sysctl": {}, "kernel_version_by_distro_by_arch": {"ubuntu": [os.uname().release]}}
    csit_lab(
        path / "inventories" / "lf_inventory",
        _81=as_booted,
        _82={**as_booted, "grub": {**right, name: f"not-{value}"}},
        _83=as_booted,
        _84={"grub": right},
    )
    here = module_lab.directory / "here.json"
    local = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "calibration_lock": f"{module_lab.lock}-{{{{ inventory_hostname }}}}",
        "calibration_remote_base": str(module_lab.remote),
        "calibration_profile": str(TINY),
    }
    here.write_text(json.dumps({"all": {"hosts": dict.fromkeys([*SUTS.split(","), GENERATOR], local)}}))
    return Tree(path, module_lab, here)


@pytest.fixture(scope="module")
def checked(tree: Tree) -> Ended:
    """How the check alone ended, before anything was measured."""
    ended = tree.job(SUTS, "check-kernel-params")
    assert not tree.lab.results.exists()
    return ended


@pytest.fixture(scope="module")
def reserved(tree: Tree, checked: Ended) -> Ended:
    """How the job ended that reserved the testbed."""
    assert checked
    return tree.job(f"{SUTS},{GENERATOR}", "cleanup,calibration")


def failed(ended: Ended) -> set[str]:
    return {line.split("[")[1].split("]")[0] for line in ended.text.splitlines() if line.startswith("fatal: [")}


def test_a_check_alone_fails_what_is_not_as_expected(checked: Ended) -> None:
    assert checked.rc == 2, checked.text
    assert failed(checked) == {"192.0.2.82", "192.0.2.84"}, checked.text


def test_a_job_measures_what_is_as_expected_and_fails_the_rest(tree: Tree, reserved: Ended) -> None:
    assert reserved.rc == 2, reserved.text
    assert "cleaned" in reserved.text
    assert "a machine is provisioned" not in reserved.text
    assert failed(reserved) == {"192.0.2.82", "192.0.2.84"}, reserved.text
    assert tree.statuses() == {
        "s81-t91-sut1": "complete",
        "s82-t91-sut2": "not_begun",
        "s83-t91-tg1": "complete",
        "s84-t39t310-sut1": "not_begun",
    }
    assert tree.lab.leftovers() == []


def test_the_documents_keep_what_was_expected_and_found(tree: Tree, reserved: Ended) -> None:
    assert reserved
    checks = {path.parent.name: read_run(path).attempts[0].checks for path in tree.lab.runs()}
    wrong = {
        sut: {check.name for check in of_sut if check.failed and check.severity == "blocking"}
        for sut, of_sut in checks.items()
    }
    assert wrong == {
        "s81-t91-sut1": set(),
        "s82-t91-sut2": {"kernel_arguments"},
        "s83-t91-tg1": set(),
        "s84-t39t310-sut1": {"kernel_release"},
    }


def test_a_run_is_judged_and_has_a_page(tree: Tree, reserved: Ended) -> None:
    assert "1 SUT: 1 without a baseline" in reserved.text
    assert (tree.lab.directory / "docs" / "_build" / "night" / "judgement.json").is_file()
    assert all((path / "report" / "page.rst").is_file() for path in tree.lab.runs())
    assert not (tree.lab.directory / "docs" / "_build" / "html").exists()
