# SPDX-License-Identifier: Apache-2.0
"""The testbed itself: what makes its tests worth something, and that it leaves no guest behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ansible.support import wait_until
from tests.testbed import image
from tests.testbed.guest import started_ticks
from tests.testbed.shapes import shapes
from tests.testbed.support import Testbed

START_BOUND = """
import sys, pathlib
from tests.testbed.guest import Sut
from tests.testbed.image import build
from tests.testbed.shapes import shapes
sut = Sut("bound", pathlib.Path(sys.argv[1]))
sut.launch("small", shapes()["small"], build(), bound=True)
print(sut.pid, flush=True)
sys.stdin.read()
"""


def test_each_oddity_of_a_lab_has_a_shape() -> None:
    known = shapes()
    assert len(known["two-nodes"].nodes) == 2
    assert len({distance for row in known["four-nodes"].distances or () for distance in row}) > 2
    assert [bool(node.cpus) for node in known["memory-only"].nodes] == [True, False]
    assert [bool(node.memory_mib) for node in known["no-memory"].nodes] == [True, False]
    assert known["smt"].threads == 2
    assert any(text.startswith("maxcpus=") for text in known["offline"].kernel)
    assert {item.partition("=")[0] for item in known["isolated"].kernel} == {"isolcpus", "nohz_full", "rcu_nocbs"}
    assert {"hugepagesz=1G", "hugepagesz=2M"} <= set(known["hugepages"].kernel)


def test_an_image_is_known_by_its_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    first = image.recipe("x86_64", "deb somewhere suite main\n")
    assert image.recipe("x86_64", "deb somewhere suite main\n") == first
    assert image.recipe("x86_64", "deb somewhere other main\n") != first
    monkeypatch.setattr(image, "PACKAGES", ("dbus",))
    assert image.recipe("x86_64", "deb somewhere suite main\n") != first


def test_guests_of_a_killed_test_run_end_with_it(testbed: Testbed, tmp_path: Path) -> None:
    # There is an image then, or the test is skipped; the guests of the tests that follow boot at the same time.
    testbed.suts(("two-nodes", "two-nodes-b"), ("two-nodes", "two-nodes-a"))
    command = [sys.executable, "-c", START_BOUND, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=image.CHECKOUT) as run:
        assert run.stdout is not None
        qemu = int(run.stdout.readline())
        assert started_ticks(qemu) is not None
        run.kill()
        wait_until(lambda: started_ticks(qemu) is None)


def test_sudo_asks_one_login_for_its_password_and_the_other_for_none(testbed: Testbed) -> None:
    sut = testbed.sut("two-nodes", "two-nodes-a")
    assert sut.user_ssh("sudo -n id -u").stdout == "0\n"
    assert sut.ssh("sudo -n id -u", user="withpassword").returncode == 1
    assert sut.ssh("sudo -S -p '' id -u", user="withpassword", text=f"{sut.login.password}\n").stdout == "0\n"
