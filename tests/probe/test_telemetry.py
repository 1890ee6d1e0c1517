# SPDX-License-Identifier: Apache-2.0
"""Telemetry of a load: what is read of clock, energy and temperature, on made sensors in a mount namespace."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tools import require, require_root

RANGE_UJ = 262_143_328_850
"""Where the energy counter of the made package wraps."""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def telemetry(native: Path, cpu: int, sensors: Path, windows: int = 6, meanwhile: str = "true") -> Any:
    """Return the telemetry of a load of so many *windows* of 0.1 s with *sensors* in the place of /sys/class.

    *meanwhile* is a command that runs half the time of the load later, at least.
    """
    require_root()
    command = shlex.join(
        f"{native} bandwidth --group {cpu}@0 --mix reads --buffer-bytes 4194304 --placements 1 --windows {windows} "
        "--window-s 0.1 --telemetry-interval-s 0.3 --pages base".split()
    )
    script = f"mount --bind {sensors} /sys/class || exit; (sleep {windows / 20 + 0.15}; {meanwhile}) & {command}"
    done = subprocess.run(
        [require("util-linux", "unshare"), "--mount", "sh", "-c", script], capture_output=True, text=True, check=True
    )
    (point,) = json.loads(done.stdout)["result"]["points"]
    assert point["error"] is None
    return point["placements"][0]["telemetry"]


@pytest.fixture
def sensors(tmp_path: Path) -> Path:
    root = tmp_path / "class"
    write(root / "powercap/intel-rapl/enabled", "1")
    write(root / "powercap/intel-rapl:0/name", "package-0")
    write(root / "powercap/intel-rapl:0/energy_uj", str(RANGE_UJ - 1_000_000))
    write(root / "powercap/intel-rapl:0/max_energy_range_uj", str(RANGE_UJ))
    write(root / "thermal/thermal_zone0/type", "x86_pkg_temp")
    write(root / "thermal/thermal_zone0/temp", "54000")
    write(root / "thermal/cooling_device0/type", "Processor")
    write(root / "hwmon/hwmon0/name", "k10temp")
    write(root / "hwmon/hwmon0/temp1_label", "Tctl")
    write(root / "hwmon/hwmon0/temp1_input", "61250")
    write(root / "hwmon/hwmon0/temp2_label", "Tccd1")
    write(root / "hwmon/hwmon0/temp2_input", "60000")
    write(root / "hwmon/hwmon1/name", "coretemp")
    write(root / "hwmon/hwmon1/temp1_label", "Physical id 0")
    write(root / "hwmon/hwmon1/temp1_input", "49000")
    return root


def test_sensors_are_read_in_joules_and_degrees(native: Path, cpus: list[int], sensors: Path) -> None:
    found = telemetry(native, cpus[-1], sensors)
    named = {
        source["name"]: (source["kind"], source["unit"]) for source in found["sources"] if source["kind"] != "clock"
    }
    assert named == {
        "package-0 (intel-rapl:0)": ("energy", "J"),
        "x86_pkg_temp": ("temperature", "degC"),
        "k10temp Tctl": ("temperature", "degC"),
        "coretemp Physical id 0": ("temperature", "degC"),
    }
    place = {source["name"]: index for index, source in enumerate(found["sources"])}
    for reading in found["readings"]:
        assert reading["values"][place["x86_pkg_temp"]] == 54
        assert reading["values"][place["k10temp Tctl"]] == 61.25
        assert reading["values"][place["package-0 (intel-rapl:0)"]] == 0
    times = [reading["s"] for reading in found["readings"]]
    assert len(times) == 3
    assert times[0] == 0
    assert times == sorted(times)


def test_energy_counter_wraps_correctly(native: Path, cpus: list[int], sensors: Path) -> None:
    counter = sensors / "powercap/intel-rapl:0/energy_uj"
    found = telemetry(native, cpus[-1], sensors, 12, f"echo 2000000 > {counter}")
    place = next(index for index, source in enumerate(found["sources"]) if source["kind"] == "energy")
    energy = [reading["values"][place] for reading in found["readings"]]
    assert energy[0] == 0
    assert energy[-1] == pytest.approx(3.0)


def test_a_machine_without_sensors_says_so(native: Path, cpus: list[int], tmp_path: Path) -> None:
    empty = tmp_path / "class"
    empty.mkdir()
    found = telemetry(native, cpus[-1], empty)
    reasons = {damaged["kind"]: damaged["reason"] for damaged in found["unreadable"]}
    assert reasons["energy"] == "/sys/class/powercap: No such file or directory"
    assert reasons["temperature"].startswith("/sys/class/")
    if not Path(f"/sys/devices/system/cpu/cpu{cpus[-1]}/cpufreq").exists():
        assert "scaling_cur_freq" in reasons["clock"]


def test_no_telemetry_unless_requested(native: Path, cpus: list[int]) -> None:
    arguments = f"--group {cpus[-1]}@0 --mix reads --buffer-bytes 4194304 --placements 1 --windows 1 --pages base"
    done = subprocess.run([str(native), "bandwidth", *arguments.split()], capture_output=True, text=True, check=True)
    (point,) = json.loads(done.stdout)["result"]["points"]
    assert point["placements"][0]["telemetry"] is None
