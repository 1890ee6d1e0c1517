# SPDX-License-Identifier: Apache-2.0
"""What a machine counts while a run measures it."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from calibration.results.health import read_health
from calibration.runner.devices import MAX_DEVICES
from calibration.runner.health import KINDS, MAX_INTERRUPTS, Energy, Health
from calibration.runner.settings import Machine
from calibration.runner.surroundings import Surroundings, sensors
from tests.suts import Sut, step

MC = "/sys/devices/system/edac/mc/mc0"
NIC = "/sys/devices/pci0000:80/0000:80:00.0/0000:81:00.0"
RAPL = "/sys/class/powercap"
HWMON = "/sys/class/hwmon"

INTERRUPTS = """\
           CPU0       CPU1       CPU3
  9:          5          0          0   IO-APIC   9-fasteoi   acpi
 36:          4         %d          2   PCI-MSI 524288-edge      eth0-rx-1
LOC:          9        %d          9   Local timer interrupts
ERR:          0
"""
"""CPU 2 is offline, and CPUs 1 and 3 are isolated."""

FILES = {
    f"{MC}/ce_count": "3\n",
    f"{MC}/ue_count": "0\n",
    f"{MC}/dimm0/dimm_ce_count": "1\n",
    f"{MC}/dimm0/dimm_label": "CPU_SrcID#0_DIMM#0\n",
    f"{MC}/dimm1/dimm_ce_count": "2\n",
    f"{NIC}/class": "0x020000\n",
    f"{NIC}/aer_dev_correctable": "RxErr 0\nBadTLP 1\nTOTAL_ERR_COR 1\n",
    f"{NIC}/aer_dev_fatal": "Undefined 0\nTOTAL_ERR_FATAL 0\n",
    "/sys/devices/pci0000:80/0000:80:00.0/aer_dev_correctable": "TOTAL_ERR_COR 0\n",
    "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "5\n",
    "/sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "5\n",
    f"{HWMON}/hwmon0/name": "coretemp\n",
    f"{HWMON}/hwmon0/temp1_input": "41000\n",
    f"{HWMON}/hwmon0/temp1_label": "Package id 0\n",
    f"{HWMON}/hwmon0/temp2_input": "99000\n",
    f"{HWMON}/hwmon0/temp2_label": "Core 0\n",
    "/sys/devices/system/cpu/isolated": "1,3\n",
    "/proc/interrupts": INTERRUPTS % (7, 100),
    "/proc/vmstat": "nr_free_pages 9\nnuma_hint_faults 70\nnuma_hint_faults_local 60\nnuma_pages_migrated 5\n",
    f"{RAPL}/intel-rapl:0/name": "package-0\n",
    f"{RAPL}/intel-rapl:0/energy_uj": "900000\n",
    f"{RAPL}/intel-rapl:0/max_energy_range_uj": "262143328850\n",
    f"{RAPL}/intel-rapl:0:0/name": "dram\n",
    f"{RAPL}/intel-rapl:0:0/energy_uj": "100\n",
    f"{RAPL}/intel-rapl:0:0/max_energy_range_uj": "262143328850\n",
}


def put(root: Path, files: dict[str, str]) -> Machine:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    link = root / "sys/bus/pci/devices/0000:81:00.0"
    if not os.path.lexists(link):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to("../../../devices/pci0000:80/0000:80:00.0/0000:81:00.0")
    return Machine(str(root))


def changed(found: dict[str, Any]) -> dict[str, Any]:
    return {kind: counted["changed"] for kind, counted in found["counters"].items() if counted["changed"]}


def test_nothing_happened(tmp_path: Path) -> None:
    health = Health(put(tmp_path, FILES))
    found = health.since()
    assert changed(found) == {}
    assert {kind: counted["read"] for kind, counted in found["counters"].items()} == {
        **dict.fromkeys(KINDS, 0),
        "memory_corrected": 3,
        "memory_uncorrected": 1,
        "link_corrected": 2,
        "link_fatal": 1,
        "core_throttled": 2,
        "numa_hint_faults": 1,
        "numa_pages_migrated": 1,
        "isolated_interrupts": 2,
    }
    assert found["temperatures_c"] == {"coretemp 0 Package id 0": [41.0, 41.0]}
    assert read_health(json.loads(json.dumps(found))) is not None


def chip(number: int, name: str, **sensors: str) -> dict[str, str]:
    """Return the files of a chip of sensors: temp1="45000 Core 0"."""
    place = f"{HWMON}/hwmon{number}"
    found = {f"{place}/name": f"{name}\n"}
    for sensor, told in sensors.items():
        value, _, label = told.partition(" ")
        found[f"{place}/{sensor}_input"] = f"{value}\n"
        if label:
            found[f"{place}/{sensor}_label"] = f"{label}\n"
    return found


def zone(number: int, kind: str, value: str) -> dict[str, str]:
    place = f"/sys/class/thermal/thermal_zone{number}"
    return {f"{place}/type": f"{kind}\n", f"{place}/temp": f"{value}\n"}


TEMPERATURES: dict[str, tuple[dict[str, str], dict[str, float]]] = {
    "cores alone": (
        chip(0, "coretemp", temp2="45000 Core 0", temp3="46000 Core 1")
        | chip(1, "coretemp", temp2="51000 Core 0", temp10="50000 Core 8"),
        {"coretemp 0 hottest core": 46.0, "coretemp 1 hottest core": 51.0},
    ),
    "old label": (
        chip(0, "coretemp", temp1="41000 Physical id 0", temp2="45000 Core 0"),
        {"coretemp 0 Physical id 0": 41.0},
    ),
    "package without value": (
        chip(0, "coretemp", temp1="0 Package id 0", temp2="45000 Core 0", temp3="-128000 Core 1"),
        {"coretemp 0 hottest core": 45.0},
    ),
    "broken sensors": (
        chip(0, "coretemp", temp1="41000 Package id 0")
        | {f"{HWMON}/hwmon0/temp1_fault": "1\n"}
        | chip(1, "k10temp", temp1="255000 Tctl", temp3="52250 Tccd1"),
        {"k10temp 1 Tccd1": 52.25},
    ),
    "Tdie alone": (chip(0, "k10temp", temp1="44000 Tdie"), {"k10temp 0 Tdie": 44.0}),
    "before Zen": (chip(0, "k10temp", temp1="38500"), {"k10temp 0": 38.5}),
    "K8": (chip(0, "k8temp", temp1="38000", temp3="40000"), {"k8temp 0 hottest core": 40.0}),
    "files at the device": (
        {path.replace("hwmon0/", "hwmon0/device/"): text for path, text in chip(0, "k8temp", temp1="38000").items()}
        | chip(1, "jc42", temp1="30000"),
        {"k8temp 0 hottest core": 38.0, "jc42 1": 30.0},
    ),
    "Arm's zones": (
        chip(0, "cpu0_thermal", temp1="38000") | chip(1, "soc_thermal", temp1="60000"),
        {"cpu0_thermal 0": 38.0},
    ),
    "SCMI": (chip(0, "scmi_sensors", temp1="38000 cluster0"), {"scmi_sensors 0 cluster0": 38.0}),
    "Altra": (
        chip(0, "smpro_hwmon", temp1="61000 temp1 SoC", temp2="70000 temp2 SoC VRD", temp5="50000 temp5 CH0 DIMM"),
        {"smpro_hwmon 0 temp1 SoC": 61.0, "smpro_hwmon 0 temp5 CH0 DIMM": 50.0},
    ),
    "POWER": (
        chip(
            0,
            "ibmpowernv",
            temp1="45000 Chip 0 Core 0",
            temp2="47000 Chip 0 Core 4",
            temp3="44000 Chip 8 Core 88",
            temp4="0 Chip 8 Core 92",
            temp5="90000 GPU 0",
            temp6="36000 Chip 0 DIMM 4",
        ),
        {
            "ibmpowernv 0 Chip 0 hottest core": 47.0,
            "ibmpowernv 0 Chip 8 hottest core": 44.0,
            "ibmpowernv 0 Chip 0 DIMM 4": 36.0,
        },
    ),
    "thermal zones": (
        zone(0, "acpitz", "27800") | zone(1, "x86_pkg_temp", "55000") | zone(10, "x86_pkg_temp", "56000"),
        {"x86_pkg_temp 1": 55.0, "x86_pkg_temp 10": 56.0},
    ),
    "board alone": (zone(0, "acpitz", "27800") | chip(0, "acpitz", temp1="27800"), {}),
    "processors before modules": (
        {path: text for number in range(200) for path, text in chip(number, "jc42", temp1="30000").items()}
        | {
            path: text
            for package in range(8)
            for path, text in chip(
                200 + package, "coretemp", **{f"temp{core + 2}": f"{core + 20}000 Core {core}" for core in range(64)}
            ).items()
        },
        {f"coretemp {200 + package} hottest core": 83.0 for package in range(8)}
        | {f"jc42 {number}": 30.0 for number in range(120)},
    ),
}


@pytest.mark.parametrize(("files", "found"), TEMPERATURES.values(), ids=TEMPERATURES)
def test_temperatures_are_those_of_packages_or_the_hottest_core(
    tmp_path: Path, files: dict[str, str], found: dict[str, float]
) -> None:
    machine = put(tmp_path, files)
    assert Health(machine).since()["temperatures_c"] == {name: [value, value] for name, value in found.items()}
    processors = [value for name, value in found.items() if not re.search("jc42|DIMM", name)]
    around = Surroundings(machine, sensors(machine))
    assert around.since()["temperature_c"] == max(processors, default=None)


def test_what_happened_is_found_where_it_happened(tmp_path: Path) -> None:
    health = Health(put(tmp_path, FILES))
    put(
        tmp_path,
        {
            f"{MC}/ce_count": "5\n",
            f"{MC}/dimm0/dimm_ce_count": "3\n",
            f"{NIC}/aer_dev_correctable": "RxErr 0\nBadTLP 4\nTOTAL_ERR_COR 4\n",
            f"{NIC}/aer_dev_fatal": "Undefined 1\nTOTAL_ERR_FATAL 1\n",
            "/sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "7\n",
            "/proc/vmstat": "numa_hint_faults 95\nnuma_pages_migrated 5\n",
            "/proc/interrupts": INTERRUPTS % (819, 5000),
            f"{HWMON}/hwmon0/temp1_input": "77500\n",
            f"{RAPL}/intel-rapl:0/energy_uj": "5900000\n",
        },
    )
    found = health.since()
    assert changed(found) == {
        "memory_corrected": {"mc0": [3, 5], "mc0 dimm0 (CPU_SrcID#0_DIMM#0)": [1, 3]},
        "link_corrected": {"0000:81:00.0": [1, 4]},
        "link_fatal": {"0000:81:00.0": [0, 1]},
        "core_throttled": {"1": [5, 7]},
        "numa_hint_faults": {"machine": [70, 95]},
        "isolated_interrupts": {"36": [9, 821]},
    }
    assert found["temperatures_c"] == {"coretemp 0 Package id 0": [41.0, 77.5]}
    assert found["energy"] == {
        "package-0": {"joules": 5.0, "reason": None},
        "package-0 dram": {"joules": 0.0, "reason": None},
    }


def test_a_controller_that_disappears_is_lost_not_zero(tmp_path: Path) -> None:
    health = Health(put(tmp_path, FILES))
    (tmp_path / MC[1:] / "ce_count").unlink()
    counted = health.since()["counters"]["memory_corrected"]
    assert (counted["lost"], counted["changed"]) == (["mc0"], {})


def test_names_are_short_and_pipes_are_not_waited_for(tmp_path: Path) -> None:
    """Nothing that stands in sysfs makes a record longer than what is reserved for it."""
    modules = {f"{MC}/dimm{number}/dimm_ce_count": "1\n" for number in range(96)}
    labels = {f"{MC}/dimm{number}/dimm_label": "|*`\n" * 10_000 for number in range(96)}
    machine = put(tmp_path, {**FILES, **modules, **labels, f"{RAPL}/intel-rapl:0/name": "p" * 10_000})
    (tmp_path / MC[1:] / "ue_count").unlink()
    os.mkfifo(tmp_path / MC[1:] / "ue_count")
    health = Health(machine)
    put(tmp_path, dict.fromkeys(modules, "2\n"))
    found = health.since()
    assert len(found["counters"]["memory_corrected"]["changed"]) == 96
    assert len(json.dumps(found)) < 128 << 10  # what is reserved for a record
    assert found["counters"]["memory_uncorrected"]["read"] == 0
    assert found["unreadable"] == {f"{MC}/ue_count": "not a regular file"}
    kept = read_health(json.loads(json.dumps(found)))
    assert kept is not None
    assert "\n" not in kept.counters[0].changed[0].name


def test_only_interrupts_of_isolated_cpus_are_counted(tmp_path: Path) -> None:
    for none in ("\n", "(null)\n"):
        machine = put(tmp_path, {**FILES, "/sys/devices/system/cpu/isolated": none})
        assert Health(machine).counters["isolated_interrupts"] == {}
    machine = put(tmp_path, {"/sys/fs/cgroup/cpuset.cpus.isolated": "1\n"})
    assert Health(machine).counters["isolated_interrupts"] == {"9": 0, "36": 7}
    put(tmp_path, {"/sys/fs/cgroup/cpuset.cpus.isolated": "\n"})
    many = "CPU0 CPU1 CPU3\n" + "".join(f"{irq}: 1 2 3 MSI\n" for irq in range(3000))
    health = Health(put(tmp_path, {"/sys/devices/system/cpu/isolated": "1,3\n", "/proc/interrupts": many}))
    assert health.counters["isolated_interrupts"] == {str(irq): 5 for irq in range(MAX_INTERRUPTS)}
    put(tmp_path, {"/proc/interrupts": many.replace(" 2 3 ", " 4000000000 4000000000 ")})
    assert len(json.dumps(health.since())) < 128 << 10  # what is reserved for a record


def test_interrupts_of_a_partition_that_only_its_group_names_are_counted(tmp_path: Path) -> None:
    groups = "/sys/fs/cgroup"
    partition = {
        "/sys/devices/system/cpu/isolated": "\n",
        "/sys/devices/system/cpu/online": "0-1,3\n",
        "/proc/self/mountinfo": f"31 25 0:27 / {groups} rw - cgroup2 cgroup rw\n",
        f"{groups}/cpuset.cpus.effective": "0,3\n",
        f"{groups}/vpp/cpuset.cpus.partition": "isolated\n",
        f"{groups}/vpp/cpuset.cpus.effective": "1\n",
    }
    health = Health(put(tmp_path, {**FILES, **partition}))
    assert health.counters["isolated_interrupts"] == {"9": 0, "36": 7}
    # Dissolved meanwhile: the same CPUs are counted.
    put(tmp_path, {f"{groups}/cpuset.cpus.effective": "0-1,3\n", "/proc/interrupts": INTERRUPTS % (9, 100)})
    assert health.since()["counters"]["isolated_interrupts"]["changed"] == {"36": [7, 9]}


def test_an_interrupt_without_a_row_has_not_come(tmp_path: Path) -> None:
    rows = INTERRUPTS.splitlines(keepends=True)
    health = Health(put(tmp_path, {**FILES, "/proc/interrupts": "".join(rows[:2])}))
    put(tmp_path, {"/proc/interrupts": INTERRUPTS % (7, 100)})
    found = health.since()["counters"]["isolated_interrupts"]
    assert found == {"read": 2, "lost": [], "changed": {"36": [0, 9]}}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def energy(tmp_path: Path, *readings: tuple[float, int], largest: str = "1000000000") -> dict[str, Any]:
    """Return what is taken by the package after readings at times."""
    clock = Clock()
    zone = {f"{RAPL}/intel-rapl:0/name": "package-0\n", f"{RAPL}/intel-rapl:0/max_energy_range_uj": f"{largest}\n"}
    found = Energy(put(tmp_path, {**zone, f"{RAPL}/intel-rapl:0/energy_uj": "999000000\n"}), clock)
    for at, value in readings:
        clock.now = at
        put(tmp_path, {f"{RAPL}/intel-rapl:0/energy_uj": f"{value}\n"})
        found.look()
    return found.taken()["package-0"]


def test_energy_wraps_once_between_two_readings(tmp_path: Path) -> None:
    assert energy(tmp_path, (0.5, 999_500_000), (1.0, 2_000_000)) == {"joules": 3.0, "reason": None}


def test_energy_that_may_have_wrapped_twice_is_unknown(tmp_path: Path) -> None:
    found = energy(tmp_path, (0.5, 999_500_000), (30.0, 999_600_000))
    assert found["joules"] is None
    assert "wrapped more than once" in found["reason"]


def test_energy_without_a_range_is_unknown_when_it_falls(tmp_path: Path) -> None:
    assert energy(tmp_path, (1.0, 5), largest="?")["reason"] == "the counter wrapped, and its range cannot be read"


@pytest.mark.parametrize("content", ["", "nonsense\n"])
def test_energy_that_is_no_number_is_unknown(tmp_path: Path, content: str) -> None:
    found = Energy(put(tmp_path, {**FILES, f"{RAPL}/intel-rapl:0/energy_uj": content})).taken()
    assert found["package-0"] == {"joules": None, "reason": "it has no number in energy_uj"}
    assert found["package-0 dram"]["joules"] == 0.0


def test_energy_that_only_root_may_read_has_that_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def refused(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith("energy_uj"):
            raise PermissionError(13, "Permission denied")
        return really(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refused)
    assert Energy(put(tmp_path, FILES)).taken()["package-0"] == {"joules": None, "reason": "Permission denied"}


def test_a_large_machine_is_read_in_linear_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = {
        f"/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/{kind}_throttle_count": "0\n"
        for cpu in range(504)
        for kind in ("core", "package")
    }
    functions = {
        f"/sys/devices/pci0000:80/0000:80:00.0/{number:04x}:90:00.0/class": "0x020000\n" for number in range(600)
    }
    machine = put(tmp_path, {**FILES, **cpus, **functions})
    for number in range(600):
        (tmp_path / f"sys/bus/pci/devices/{number:04x}:90:00.0").symlink_to(
            f"../../../devices/pci0000:80/0000:80:00.0/{number:04x}:90:00.0"
        )
    opened: list[Any] = []
    really = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **options: opened.append(path) or really(path, *rest, **options)
    )
    health = Health(machine)
    assert len(opened) < 2 * 504 + 2 * 600 + 3 * MAX_DEVICES + 100
    put(tmp_path, dict.fromkeys(cpus, "9\n"))
    record = health.since()
    assert len(json.dumps(record)) < 128 << 10  # what is reserved for a record
    assert len(record["counters"]["core_throttled"]["changed"]) == 504


def test_a_corrected_error_during_a_run_is_recorded(sut: Sut) -> None:
    """The last record before the end says what was counted, also of a run that is cancelled."""
    count = sut.directory / "root" / MC[1:] / "ce_count"
    count.parent.mkdir(parents=True)
    count.write_text("3\n")
    run = sut.start()
    run.begin(step("first"), sutprobe=f"#!/bin/sh\necho 4 > {count}\n".encode())
    state, records = run.follow()
    (health,) = [record for record in records if record["record"] == "health"]
    assert changed(health) == {"memory_corrected": {"mc0": [3, 4]}}
    kinds = [record["record"] for record in records]
    assert kinds.index("health") == kinds.index("done") - 1
    assert state != "running"


def test_a_counter_of_energy_that_wraps_during_a_step_is_read_before_the_next(sut: Sut) -> None:
    zone = sut.directory / "root" / RAPL[1:] / "intel-rapl:0"
    zone.mkdir(parents=True)
    for name, text in (("name", "package-0"), ("energy_uj", "900000"), ("max_energy_range_uj", "1000000000000")):
        (zone / name).write_text(f"{text}\n")
    wraps, catches_up = (f"#!/bin/sh\necho {value} > {zone}/energy_uj\n".encode() for value in (100_000, 950_000))
    run = sut.start().begin(step("first"), step("second", "second"), sutprobe=wraps, second=catches_up)
    (health,) = [record for record in run.follow()[1] if record["record"] == "health"]
    assert health["energy"] == {"package-0": {"joules": 1_000_000.05, "reason": None}}


def test_a_cancelled_run_says_what_it_counted(sut: Sut) -> None:
    count = sut.directory / "root" / MC[1:] / "ce_count"
    count.parent.mkdir(parents=True)
    count.write_text("3\n")
    run = sut.start()
    begun = sut.base / "begun"
    run.begin(step("first"), sutprobe=f"#!/bin/sh\necho 9 > {count}\ntouch {begun}\nexec sleep 600\n".encode())
    run.await_step("begun")
    run.cancel()
    _, records = run.follow()
    (health,) = [record for record in records if record["record"] == "health"]
    assert changed(health) == {"memory_corrected": {"mc0": [3, 9]}}
