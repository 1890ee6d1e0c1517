# SPDX-License-Identifier: Apache-2.0
"""What ipmitool says of a BMC: facts of the capture, and health of a run. Outputs have ipmitool's form, made values."""

import base64
import io
import json
import tarfile
from pathlib import Path

import pytest

from calibration.context.facts import facts, shown
from calibration.results.health import health_flags, read_health
from calibration.runner import bmc, capture, processes
from calibration.runner.health import Health
from calibration.runner.settings import Machine
from tests.captures import changed, machine_of
from tests.suts import changed as edited
from tests.suts import step

INFO = """\
Device ID                 : 32
Device Revision           : 1
Firmware Revision         : 2.88
IPMI Version              : 2.0
Manufacturer Name         : Example
"""
SENSORS = """\
Inlet Temp,23,degrees C,ok
CPU1 Temp,61.5,degrees C,ok
CPU2 Temp,,,ns
FAN4,300,RPM,cr
PSU1 Input,228,Volts,ok
"""
EVENTS = """\
1,11/03/2026,10:12:01,Event Logging Disabled #0x10,Log area reset/cleared,Asserted
2,11/04/2026,08:00:00,Memory #0x53,Correctable ECC,Asserted
3,11/05/2026,08:00:00,Memory #0x54,Correctable ECC,Asserted
4,Pre-Init,0000000012,Fan #0x30,Lower Critical going low,Deasserted
5,11/06/2026,08:00:00,OEM record c1,000137,0102030405
"""
NEW = EVENTS + "6,11/30/2026,23:00:00,Power Supply #0xe2,Failure detected,Asserted\n"


@pytest.fixture(autouse=True)
def _found(tmp_path, monkeypatch):
    program = tmp_path / "ipmitool"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setattr(processes, "PATH", str(tmp_path))


class Told:
    """Stands in for running ipmitool: what it prints by its last words, or why it fails."""

    def __init__(self, **texts):
        self.texts = {"info": INFO, "full": SENSORS, "last": EVENTS, **texts}
        self.asked = []

    def __call__(self, argv, *, limit_s, max_bytes):
        assert (limit_s, max_bytes) == (bmc.LIMIT_S, bmc.MAX_BYTES)
        self.asked.append(argv[1:])
        text = self.texts[argv[-2] if argv[-1].isdigit() else argv[-1]]
        if isinstance(text, dict):
            return {"rc": 1, "stdout": b"", "stderr": b"", "fault": None, **text}
        return {"rc": 0, "stdout": text.encode(), "stderr": b"", "fault": None}


def test_a_look_has_firmware_alarms_and_kinds_of_events():
    asked = Told()
    found = bmc.Bmc(asked)
    assert found.look() == {
        "firmware": "2.88",
        "alarms": ["FAN4 300 RPM (cr)"],
        "events": {"Event Logging Disabled: Log area reset/cleared": 1, "Memory: Correctable ECC": 2},
    }
    assert found.temperatures_c == {"BMC Inlet Temp": 23.0, "BMC CPU1 Temp": 61.5}
    assert found.reasons == {}
    assert all(words[-2] in {"mc", "list", "last"} for words in asked.asked), "nothing that changes the BMC"


def test_events_since_are_those_with_another_number_or_time():
    asked = Told()
    found = bmc.Bmc(asked)
    found.look()
    assert found.since() == {}
    asked.texts.update(last=NEW, full=SENSORS.replace("61.5", "84"))
    assert found.since() == {"Power Supply: Failure detected": 1}
    assert found.temperatures_c["BMC CPU1 Temp"] == 84.0
    asked.texts["last"] = "1,12/01/2026,00:00:00,Memory #0x53,Correctable ECC,Asserted\n"
    assert found.since() == {"Memory: Correctable ECC": 1}, "of a log that was cleared"


REFUSED = {"stderr": b"Could not open device at /dev/ipmi0 or /dev/ipmi/0\n"}


@pytest.mark.parametrize(("failed", "reason"), [
    (REFUSED, "Could not open device at /dev/ipmi0 or /dev/ipmi/0"),
    ({"stderr": b"\x1b[2Jx"}, "?[2Jx"),
    ({"fault": "late"}, "late"),
    ({"rc": 3}, "exit code 3"),
])  # fmt: skip
def test_what_cannot_be_read_is_unknown_with_its_reason(failed, reason):
    found = bmc.Bmc(Told(info=failed, full=failed, last=failed))
    assert found.look() == {"firmware": None, "alarms": None, "events": None}
    assert found.since() is None
    assert set(found.reasons.values()) == {reason}
    assert len(found.reasons) == 3


def test_a_sut_without_ipmitool_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "PATH", str(tmp_path / "nowhere"))
    found = bmc.Bmc(Told())
    assert found.look()["events"] is None
    assert found.reasons == {"ipmitool": f"no ipmitool in {tmp_path / 'nowhere'}"}


def refuse(*_, **__):
    raise PermissionError(13, "Permission denied")


def test_a_program_that_cannot_be_started_is_no_failure_of_the_run():
    found = bmc.Bmc(refuse)
    assert found.look()["firmware"] is None
    assert "Permission denied" in found.reasons["ipmitool mc info"]


def test_it_is_started_with_an_environment_and_time_of_its_own(tmp_path):
    (tmp_path / "ipmitool").write_text('#!/bin/sh\necho "Firmware Revision : $1.$#"\n')
    loop = processes.Loop()

    def run(argv, **limits):
        return processes.run(loop, argv, prepare=lambda: None, **limits)

    assert bmc.Bmc(run).look()["firmware"] == "mc.2"


def test_the_capture_asks_with_consent_alone(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    assert "bmc" not in capture.capture(str(root))["capture"]
    told = capture.capture(str(root), bmc=bmc.Bmc(Told(last=REFUSED)))
    assert told["capture"]["bmc"]["firmware"] == "2.88"
    reasons = {item["path"]: item["reason"] for item in told["capture"]["unreadable"]}
    assert reasons == {"ipmitool -c sel list last 64": REFUSED["stderr"].decode().strip()}
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(told["archive"]))) as archive:
        assert json.load(archive.extractfile("capture.json"))["bmc"] == told["capture"]["bmc"]


def test_facts_of_a_bmc():
    told = {"bmc": bmc.Bmc(Told()).look()}
    context = machine_of(changed("x86_64-isolated", {}, told=told)).context
    found, page = facts(context, None), dict(shown(context))
    assert found["BMC firmware"] == page["BMC firmware"] == "2.88"
    assert page["BMC sensors beyond a threshold"] == "FAN4 300 RPM (cr)"
    assert found["BMC events"] == "Event Logging Disabled: Log area reset/cleared; Memory: Correctable ECC"
    without = machine_of(changed("x86_64-isolated", {})).context
    assert not [label for label, _ in shown(without) if "BMC" in label]
    refused = {"bmc": {"firmware": None, "alarms": None, "events": None}}
    unknown = machine_of(changed("x86_64-isolated", {}, told=refused)).context
    assert facts(unknown, None)["BMC events"] == "not known"
    assert not [label for label, _ in shown(unknown) if "BMC" in label]


def test_new_events_are_counted_over_a_run_and_flag_it(tmp_path: Path):
    (tmp_path / "root" / "sys").mkdir(parents=True)
    asked = Told()
    found = bmc.Bmc(asked)
    found.look()
    health = Health(Machine(str(tmp_path / "root")), found)
    quiet = read_health(json.loads(json.dumps(health.since())))
    assert quiet.of("bmc_events").read == 1
    assert list(health_flags([quiet])) == []
    asked.texts.update(last=NEW, full=SENSORS.replace("61.5", "84"))
    seen = read_health(json.loads(json.dumps(health.since())))
    assert [(item.sensor, item.before_c, item.after_c) for item in seen.temperatures] == [
        ("BMC Inlet Temp", 23.0, 23.0),
        ("BMC CPU1 Temp", 61.5, 84.0),
    ]
    assert [(flag.code, flag.reason) for flag in health_flags([seen])] == [
        ("BMC_EVENTS", "1 BMC event during the run: 1 at Power Supply: Failure detected")
    ]
    asked.texts["last"] = REFUSED
    unknown = health.since()
    assert unknown["counters"]["bmc_events"] == {"read": 0, "lost": [], "changed": {}}
    assert REFUSED["stderr"].decode().strip() in unknown["unreadable"].values()
    assert Health(Machine(str(tmp_path / "root"))).since()["counters"].keys() == unknown["counters"].keys() - {
        "bmc_events"
    }


SCRIPT = """#!/bin/sh
case "$*" in
"mc info") echo "Firmware Revision : 2.88" ;;
"-c sel list last 64") echo "1,11/03/2026,10:12:01,Fan #0x30,Lower Critical,Asserted"; cat "$(dirname "$0")/more" ;;
"-c sdr list full") ;;
*) exit 1 ;;
esac
"""


@pytest.mark.parametrize("consent", [True, False])
def test_a_run_asks_before_and_after_its_steps(sut, tmp_path, consent):
    program, more = tmp_path / "ipmitool", tmp_path / "more"
    program.write_text(SCRIPT)
    more.write_text("")
    path = f'PATH = "{tmp_path}:/usr/bin:/bin:'
    sut.__dict__["modules"] = edited(sut.modules, "processes", 'PATH = "/usr/local/sbin:', path)
    run = sut.start(bmc_ok=consent)
    with tarfile.open(run.path / "context.tar.gz") as archive:
        told = json.load(archive.extractfile("capture.json")).get("bmc")
    assert told == ({"firmware": "2.88", "alarms": [], "events": {"Fan: Lower Critical": 1}} if consent else None)
    more.write_text("2,11/30/2026,23:00:00,Memory #0x53,Correctable ECC,Asserted\n")
    _, records = run.begin(step("one")).follow()
    (health,) = [record for record in records if record["record"] == "health"]
    expected = {"Memory: Correctable ECC": [0, 1]} if consent else None
    assert health["counters"].get("bmc_events", {"changed": None})["changed"] == expected
