# SPDX-License-Identifier: Apache-2.0
"""The collection builds, installs, and calibrates by fully qualified names, from an empty directory."""

import json
import os
import re
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from calibration import __version__
from calibration.base.errors import ENVIRONMENT
from tests.ansible.support import ROOT, TINY
from tests.command import calibration
from tests.dist.conftest import Installed, only, run

PLAY = [
    {"hosts": "all", "gather_facts": False,
     "roles": ["calibration.harness.preflight", "calibration.harness.measure", "calibration.harness.report"]},
]  # fmt: skip


def test_collection_and_package_have_one_version() -> None:
    galaxy = yaml.safe_load((ROOT / "ansible" / "galaxy.yml").read_text())
    needed = (ROOT / "ansible" / "meta" / "requirements.txt").read_text().splitlines()
    package = (ROOT / "ansible" / "plugins" / "plugin_utils" / "package.py").read_text()
    assert galaxy["version"] == __version__
    assert f"calibration-harness=={__version__}" in needed
    assert re.findall('^VERSION = "(.*)"$', package, re.MULTILINE) == [__version__]


@pytest.fixture
def with_collection(installed: Installed, tmp_path: Path) -> Installed:
    """The wheel, and the collection that it builds, installed by ansible-galaxy."""
    (tmp_path / "built").mkdir()
    installed("calibration", "collection", tmp_path / "built")
    installed("ansible-galaxy", "collection", "install", only(tmp_path / "built", "*.tar.gz"))
    return installed


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = calibration("collection", tmp_path / "file" / "built")
    assert ended == (ENVIRONMENT, f"calibration: cannot write to {tmp_path}/file/built: Not a directory\n")


def test_the_tarball_has_the_whole_collection_and_nothing_else(installed: Installed, tmp_path: Path) -> None:
    installed("calibration", "collection", tmp_path)
    with tarfile.open(only(tmp_path, "*.tar.gz")) as archive:
        names = {member.name for member in archive if member.isfile()}
    parts = {name.partition("/")[0] for name in names if "/" in name}
    assert parts == {"meta", "playbooks", "plugins", "roles"}
    wanted = {
        str(path.relative_to(ROOT / top))
        for top, folder in (("ansible", "ansible/plugins"), (".", "roles"), (".", "playbooks"))
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in {".py", ".yml"} and "collections" not in path.parts
    }
    assert wanted <= names
    assert not [name for name in names if name.endswith(".pyc")]


def test_ansible_builder_finds_what_the_collection_needs(with_collection: Installed) -> None:
    collections = with_collection.home / ".ansible" / "collections"
    command = [sys.executable, "-m", "ansible_builder", "introspect", collections]
    text = run(*command, env={**os.environ, "LC_ALL": "C.UTF-8"})
    found = yaml.safe_load(text.partition("---")[2])
    needed = {kind: [line.partition("  #")[0] for line in lines] for kind, lines in found.items()}
    assert needed == {
        "python": [f"calibration-harness=={__version__}"],
        "system": ["openssh-client [platform:dpkg]", "openssh-clients [platform:rpm]", "sshpass"],
    }


def test_galaxy_accepts_the_collection_without_a_warning(installed: Installed, tmp_path: Path) -> None:
    installed("calibration", "collection", tmp_path)
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(installed.home)}
    command = [sys.executable, "-m", "galaxy_importer.main", only(tmp_path, "*.tar.gz").name]
    text = run(*command, env=tools, cwd=tmp_path)
    assert [line for line in text.splitlines() if re.match("WARNING|ERROR|CRITICAL", line)] == []
    assert "...ansible-lint run complete" in text
    loaded = {kind: text.count(f"Loading {kind} ") for kind in ("action", "module", "role", "playbook")}
    actions = len(list((ROOT / "ansible" / "plugins" / "action").glob("*.py")))
    roles = len(list((ROOT / "roles").iterdir()))
    assert loaded == {"action": actions, "module": actions, "role": roles, "playbook": 4}


def test_ansible_doc_describes_every_action(with_collection: Installed) -> None:
    listed = json.loads(with_collection("ansible-doc", "--json", "--list", "-t", "module", "calibration.harness"))
    actions = {path.stem for path in (ROOT / "ansible" / "plugins" / "action").glob("*.py")}
    assert set(listed) == {f"calibration.harness.{name}" for name in actions}
    assert "UNDOCUMENTED" not in listed.values()
    described = " ".join(with_collection("ansible-doc", "calibration.harness.measure").split())
    assert "An action of calibration.harness.measure" in described


def test_the_collection_calibrates_from_an_empty_directory(with_collection: Installed, tmp_path: Path) -> None:
    (tmp_path / "remote").mkdir()
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "/usr/bin/python3",
        "calibration_lock": "calibration-collection",
        "calibration_profile": str(TINY),
        "calibration_remote_base": str(tmp_path / "remote"),
        "report_site": False,
    }
    inventory = {"all": {"hosts": {"sut1": {}}, "vars": variables}}
    (with_collection.place / "hosts.json").write_text(json.dumps(inventory))
    (with_collection.place / "play.yml").write_text(yaml.safe_dump(PLAY))
    with_collection("ansible-playbook", "-i", "hosts.json", "play.yml")
    document = only(with_collection.place / "results", "sut1/sut1/*/run.json")
    assert json.loads(document.read_text())["run"]["status"] == "complete"
    with_collection("ansible-playbook", "-i", "hosts.json", "calibration.harness.calibrate")
    assert len(list(with_collection.place.glob("results/sut1/sut1/*/report/page.rst"))) == 2
    assert list((tmp_path / "remote").iterdir()) == []
    described = with_collection("ansible-doc", "-t", "role", "calibration.harness.measure")
    assert "measure_keep_s" in described


def test_without_the_package_the_collection_says_what_it_needs(with_collection: Installed, environment: Path) -> None:
    package = only(environment, "lib/python*/site-packages/calibration")
    (with_collection.place / "play.yml").write_text(yaml.safe_dump([{**PLAY[0], "hosts": "localhost"}]))
    package.rename(package.with_name("hidden"))
    try:
        with pytest.raises(AssertionError, match=f"needs the Python package calibration-harness {__version__}"):
            with_collection("ansible-playbook", "play.yml")
    finally:
        package.with_name("hidden").rename(package)
