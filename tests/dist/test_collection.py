# SPDX-License-Identifier: Apache-2.0
"""The collection builds, installs, and calibrates by fully qualified names, from an empty directory."""

import json
import re
import tarfile
from pathlib import Path

import pytest
import yaml

from calibration import __version__
from tests.ansible.support import ROOT, TINY
from tests.dist.conftest import Installed, only

PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "roles": ["calibration.harness.preflight", "calibration.harness.measure", "calibration.harness.report"],
    }
]


def test_collection_and_package_have_one_version() -> None:
    galaxy = yaml.safe_load((ROOT / "ansible" / "galaxy.yml").read_text())
    needed = yaml.safe_load((ROOT / "ansible" / "meta" / "execution-environment.yml").read_text())
    package = (ROOT / "ansible" / "plugins" / "plugin_utils" / "package.py").read_text()
    assert galaxy["version"] == __version__
    assert needed["dependencies"]["python"] == [f"calibration-harness=={__version__}"]
    assert re.findall('^VERSION = "(.*)"$', package, re.MULTILINE) == [__version__]


@pytest.fixture
def with_collection(installed: Installed, tmp_path: Path) -> Installed:
    """The wheel, and the collection that it builds, installed by ansible-galaxy."""
    (tmp_path / "built").mkdir()
    installed("calibration", "collection", tmp_path / "built")
    installed("ansible-galaxy", "collection", "install", only(tmp_path / "built", "*.tar.gz"))
    return installed


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
