# SPDX-License-Identifier: Apache-2.0
"""The example run does not name its machine, keeps its values, and has the page that this version renders."""

import os
import shutil
from pathlib import Path

import pytest

from calibration.base.errors import InputError
from calibration.context.cmdline import parse_cmdline
from calibration.context.model import BusyProcess, Load
from calibration.judge.standing import Standings
from calibration.report.rendering import render_run
from calibration.results.layout import REPORT, RUN
from calibration.results.model import RunDocument
from calibration.results.store import read_run, write_document
from tests.report import example
from tests.report.report_documents import run_document

SHIPPED = Path(__file__).resolve().parents[2] / "results" / "example"
CMDLINE = "BOOT_IMAGE=/vmlinuz-6.1.0-lab7 root=UUID=1234-abcd nfsroot=10.30.1.2:/export/lab isolcpus=1-3 quiet"
SECRETS = ("dut17", "lab7", "1234-abcd", "10.30.1.2", "LabBoard", "backupd", "5d1e4b0e", "/home/Ann", "t3-sut9")


def secret_document() -> RunDocument:
    """Return a run of a machine with a name, a person's directory, an own kernel and an own daemon."""
    document = run_document(names=("idle_latency",))
    assert document.context is not None
    context = document.context.parsed
    capture = context.capture.model_copy(
        update={
            "hostname": "dut17",
            "kernel_release": "6.1.0-lab7",
            "kernel_version": "#7 SMP ann@dut17",
            "uname": "Linux dut17 6.1.0-lab7 #7 SMP ann@dut17 x86_64",
        }
    )
    daemon = BusyProcess(pid=71, name="backupd", share=0.5, cpus=(0,))
    parsed = context.model_copy(
        update={
            "capture": capture,
            "cmdline": parse_cmdline(CMDLINE),
            "firmware": context.firmware.model_copy(update={"board_name": "LabBoard", "bios_version": "LabBoard 3"}),
            "load": Load(interval_s=1.0, resolution=0.01, cpus=(), processes=(daemon,)),
        }
    )
    gone = document.not_measured[0].model_copy(update={"reason": "dut17: no /home/Ann/mlc on 6.1.0-lab7"})
    return document.model_copy(
        update={
            "run": document.run.model_copy(update={"testbed": "lab7", "sut": "t3-sut9", "id": "20260101T000000Z-5d1e"}),
            "attempts": tuple(attempt.model_copy(update={"boot_id": "5d1e4b0e-6a3c"}) for attempt in document.attempts),
            "context": document.context.model_copy(update={"parsed": parsed}),
            "facts": {"kernel": "6.1.0-lab7"},
            "not_measured": (gone, *document.not_measured[1:]),
        }
    )


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secret")
    write_document(folder, secret_document())
    return folder


def test_the_example_does_not_name_the_machine(secret: Path, tmp_path: Path) -> None:
    example.main(secret, tmp_path / "example")
    for path in (path for path in (tmp_path / "example").rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8")
        assert not [name for name in SECRETS if name in text], path
    kept, measured = read_run(tmp_path / "example"), read_run(secret)
    assert (kept.run.testbed, kept.run.sut) == ("example", "server")
    assert kept.measurements == measured.measurements
    assert kept.context is not None
    assert kept.context.parsed.cmdline is not None
    assert kept.context.parsed.cmdline.values("isolcpus") == ("1-3",)
    assert "server.example" in (tmp_path / "example" / "report" / "page.rst").read_text(encoding="utf-8")


def test_remaining_names_are_reported(secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "anonymous", lambda document: document)
    with pytest.raises(InputError, match="lab7"):
        example.main(secret, tmp_path / "example")


def test_the_shipped_page_is_the_one_that_is_rendered(tmp_path: Path) -> None:
    shutil.copy(SHIPPED / RUN, tmp_path)
    rendered = render_run(tmp_path, Standings()).parent
    if os.environ.get("CALIBRATION_BLESS") == "1":
        shutil.rmtree(SHIPPED / REPORT)
        shutil.copytree(rendered, SHIPPED / REPORT)
    found, shipped = (
        {path.relative_to(folder): path.read_text(encoding="utf-8") for path in folder.rglob("*.*")}
        for folder in (rendered, SHIPPED / REPORT)
    )
    stale = sorted(str(path) for path in {*found, *shipped} if found.get(path) != shipped.get(path))
    assert stale == [], "CALIBRATION_BLESS=1 writes them anew"
