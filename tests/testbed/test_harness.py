# SPDX-License-Identifier: Apache-2.0
"""The testbed itself: what it refuses, and that it leaves no guest behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import docutils.core
import pytest
from pydantic import ValidationError

from tests.ansible.support import wait_until
from tests.testbed import guest, image
from tests.testbed.__main__ import describe, main
from tests.testbed.guest import Sut, started_ticks
from tests.testbed.shapes import Shape, shapes
from tests.testbed.support import Testbed
from tests.testbed.table import Row, rst, write

TWO: dict[str, Any] = {"about": "two", "nodes": [{"cpus": [0], "memory_mib": 8}, {"cpus": [1], "memory_mib": 8}]}

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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": [{"cpus": [0]}, {"cpus": [2]}]}, "each CPU from 0 on exactly one node"),
        ({"nodes": [{"cpus": [0]}, {"cpus": [0]}]}, "each CPU from 0 on exactly one node"),
        ({"nodes": [{"memory_mib": 64}]}, "each CPU from 0 on exactly one node"),
        ({"threads": 3}, "expected a multiple of 3 CPUs, found 2"),
        ({"distances": [[10, 20], [20]]}, "expected 2 distances in 2 rows"),
        ({"colour": "blue"}, "Extra inputs are not permitted"),
    ],
)
def test_invalid_shape_is_refused(change: dict[str, Any], said: str) -> None:
    assert Shape.model_validate(TWO).cpus == 2
    with pytest.raises(ValidationError, match=said):
        Shape.model_validate({**TWO, **change})


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


def test_memory_and_distances_are_passed_to_qemu() -> None:
    told = shapes()["memory-only"].arguments()
    assert "node,nodeid=1,memdev=memory1" in told
    assert "dist,src=0,dst=1,val=17" in told
    assert "4,sockets=2,cores=2,threads=1" in shapes()["two-nodes"].arguments()
    assert "4,sockets=1,cores=2,threads=2" in shapes()["smt"].arguments()
    assert "32,sockets=2,cores=8,threads=2" in shapes()["many-cpus"].arguments()


def test_unknown_shape_or_invalid_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "round"]) == 3
    assert "expected one of the shapes small, haswell, two-nodes" in capsys.readouterr().err
    assert main(["start", "small=../x"]) == 3
    assert "for a guest, found '../x'" in capsys.readouterr().err
    assert main(["stop", "nobody"]) == 3
    assert "expected names of guests" in capsys.readouterr().err


def test_a_newer_kernel_comes_from_the_backports_of_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = "deb somewhere suite-updates main\ndeb somewhere suite main\n"
    monkeypatch.setattr(image, "sources", lambda: archive)
    assert image.archive_of("x86_64") == archive
    more = image.archive_of("x86_64-rt")
    assert more == f"{archive}deb somewhere suite-backports main\n"
    (asked,) = [text for text in image.command_of("x86_64-rt", more) if text.startswith("--include=")]
    assert "linux-image-rt-amd64/suite-backports" in asked.split(",")
    monkeypatch.setattr(image, "sources", lambda: "deb somewhere suite-updates main\n")
    with pytest.raises(image.TestbedError, match="expected a release of Debian"):
        image.archive_of("x86_64-rt")


def test_an_image_is_known_by_its_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    first = image.recipe("x86_64", "deb somewhere suite main\n")
    assert image.recipe("x86_64", "deb somewhere suite main\n") == first
    assert image.recipe("x86_64", "deb somewhere other main\n") != first
    monkeypatch.setattr(image, "PACKAGES", ("dbus",))
    assert image.recipe("x86_64", "deb somewhere suite main\n") != first


def test_missing_root_and_namespaces_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(image, "namespaces", lambda: False)
    monkeypatch.setattr(image, "need", lambda *_: None)
    with pytest.raises(image.TestbedError, match="expected root, or a kernel that lets this user make user namespaces"):
        image.write(tmp_path, "x86_64", "")


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(image.MissingProgramError, match="Install it: apt-get install mmdebstrap"):
        image.need("mmdebstrap", "mmdebstrap")


def test_guest_without_a_qemu_process_is_stale(tmp_path: Path) -> None:
    sut = Sut("gone", tmp_path)
    sut.directory.mkdir(parents=True)
    sut.store({"pid": os.getpid(), "started_ticks": 1, "port": 1, "shape_name": "small"})
    assert sut.pid is None  # this process has that number now, and is another one
    assert describe(sut).startswith("gone: stale")
    sut.store({"pid": os.getpid(), "started_ticks": started_ticks(os.getpid()), "port": 1, "shape_name": "small"})
    assert describe(sut).startswith("gone: running, no answer")


def test_a_start_that_fails_says_what_qemu_said(monkeypatch: pytest.MonkeyPatch, testbed: Testbed) -> None:
    broken = shapes()["small"].model_copy(update={"cpu": "abacus"})
    monkeypatch.setattr(guest, "shapes", lambda: {"broken": broken})
    with pytest.raises(image.TestbedError, match=r"QEMU has ended with 1:(.|\n)*abacus"):
        testbed.sut("broken")
    assert Sut("broken", testbed.state).pid is None
    Sut("broken", testbed.state).stop()


def crash(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> list[int]:
    """Have the QEMU of guest *name* crash so many times once it is launched; return its processes, as they come."""
    launched: list[int] = []
    launch = Sut.launch

    def launch_and_crash(sut: Sut, *arguments: Any, **options: Any) -> None:
        launch(sut, *arguments, **options)
        if sut.name == name:
            assert sut.pid is not None
            launched.append(sut.pid)
            if len(launched) <= times:
                os.kill(sut.pid, signal.SIGSEGV)

    monkeypatch.setattr(Sut, "launch", launch_and_crash)
    return launched


def test_a_guest_whose_qemu_crashes_is_booted_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], testbed: Testbed
) -> None:
    """The guests of the tests that follow boot here, at the same time."""
    name = "two-nodes-b" if Sut("two-nodes-b", testbed.state).pid is None else "crashing"  # one that is used stays
    launched = crash(monkeypatch, name, 1)
    sut, _ = testbed.suts(("two-nodes", name), ("two-nodes", "two-nodes-a"))
    assert sut.pid == launched[-1]
    assert sut.boot_id()
    assert len(launched) == 2
    assert capsys.readouterr().err.count(f"booting {name} again") == 1
    assert started_ticks(launched[0]) is None
    if name == "crashing":
        testbed.stop(sut)


def test_a_guest_whose_qemu_crashes_is_not_booted_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], testbed: Testbed
) -> None:
    launched = crash(monkeypatch, "crashing", guest.LAUNCHES)
    with pytest.raises(guest.CrashedError, match=r"crashing: QEMU has ended by SIGSEGV:"):
        testbed.sut("small", "crashing")
    Sut("crashing", testbed.state).stop()
    assert len(launched) == guest.LAUNCHES
    assert capsys.readouterr().err.count("booting crashing again") == guest.LAUNCHES - 1
    assert [started_ticks(pid) for pid in launched] == [None] * guest.LAUNCHES


def test_a_guest_that_does_not_boot_shows_the_end_of_its_console(testbed: Testbed) -> None:
    sut = testbed.sut("two-nodes", "two-nodes-a")
    with pytest.raises(image.TestbedError, match=r"expected a login within 1 s(.|\n)*console\.log: "):
        sut.wait(patience_s=1, other_than=sut.boot_id())


def test_guests_of_a_killed_test_run_end_with_it(testbed: Testbed, tmp_path: Path) -> None:
    testbed.sut("two-nodes", "two-nodes-a")  # there is an image then, or the test is skipped
    command = [sys.executable, "-c", START_BOUND, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=image.CHECKOUT) as run:
        assert run.stdout is not None
        qemu = int(run.stdout.readline())
        assert started_ticks(qemu) is not None
        run.kill()
        wait_until(lambda: started_ticks(qemu) is None)


def test_an_interrupted_start_leaves_no_guest(testbed: Testbed) -> None:
    testbed.sut("two-nodes", "two-nodes-a")
    name = "interrupted"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.testbed", "start", f"small={name}"],
        cwd=image.CHECKOUT,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as run:
        wait_until(lambda: Sut(name).pid is not None, run)
        qemu = Sut(name).pid
        assert qemu is not None
        run.send_signal(signal.SIGINT)
        assert run.wait() == 130
    assert started_ticks(qemu) is None
    Sut(name).stop()


def test_host_keys_are_checked(testbed: Testbed, tmp_path: Path) -> None:
    sut = testbed.sut("two-nodes", "two-nodes-a")
    assert sut.user_ssh("id -un").stdout == "calibration\n"
    other = Sut("two-nodes-a", testbed.state)
    other.known_hosts = tmp_path / "known_hosts"
    guest.generate(tmp_path / "other", "other")
    kind, key = (tmp_path / "other.pub").read_text().split()[:2]
    other.known_hosts.write_text(f"[{sut.host}]:{sut.port} {kind} {key}\n")
    refused = other.ssh("true")
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr


def test_sudo_asks_one_login_for_its_password_and_the_other_for_none(testbed: Testbed) -> None:
    sut = testbed.sut("two-nodes", "two-nodes-a")
    assert sut.user_ssh("sudo -n id -u").stdout == "0\n"
    assert sut.ssh("sudo -n id -u", user="withpassword").returncode == 1
    assert sut.ssh("sudo -S -p '' id -u", user="withpassword", text=f"{sut.login.password}\n").stdout == "0\n"


def test_the_table_is_whole_and_valid(tmp_path: Path) -> None:
    rows = [
        Row("a name", "a fault that takes more than one line of its narrow column", "all", "nothing"),
        Row("b", "c", "d", ""),
    ]
    html = docutils.core.publish_string(rst(rows), writer="html5", settings_overrides={"halt_level": 2}).decode()
    assert html.count("<tr") == 3
    assert "narrow" in html
    paths = write(rows, tmp_path)
    assert [path.name for path in paths] == ["scenarios.rst", "scenarios.json"]
    assert json.loads(paths[1].read_text())[0]["kept"] == "all"
