# SPDX-License-Identifier: Apache-2.0
"""Devices behind root ports of a second node: what sysfs says of them arrives in the context and its fixture.

``CALIBRATION_BLESS=1`` stores the capture as the fixture ``x86_64-devices``.
"""

import base64
import os
from pathlib import Path

from calibration.context.loader import load
from calibration.context.model import Context
from calibration.runner.bundle import packed, sources
from tests.testbed.guest import Sut
from tests.testbed.support import Testbed

FIXTURE = Path(__file__).parents[1] / "fixtures" / "context" / "x86_64-devices.tar.gz"

NIC, DISK = "0000:81:00.0", "0000:82:00.0"

WIDER = f"""set -e
cd /sys/bus/pci/devices/{NIC}
echo 16 > /run/wider
echo "16.0 GT/s PCIe" > /run/faster
mount --bind /run/wider max_link_width
mount --bind /run/faster max_link_speed
"""
"""QEMU has no network device with more than one lane at 2.5 GT/s: one that could more differs in these files alone."""


def captured(sut: Sut, path: Path) -> Context:
    """Return what the runner captures on *sut*, after storing it at *path*."""
    runner = base64.b64encode(packed(sources())).decode()
    done = sut.ssh("base64 -d > /run/runner && python3 -I /run/runner capture /run/context.tar.gz >&2", text=runner)
    assert done.returncode == 0, done.stderr
    path.write_bytes(base64.b64decode(sut.read("base64 /run/context.tar.gz")))
    return load(path)


def test_devices_on_the_second_node_and_a_narrowed_link(testbed: Testbed, tmp_path: Path) -> None:
    sut = testbed.sut("devices")
    before = captured(sut, tmp_path / "before.tar.gz")
    assert before.devices is not None
    assert not any(link.narrowed for device in before.devices for link in device.links)
    sut.read(WIDER)
    context = captured(sut, tmp_path / "context.tar.gz")
    if os.environ.get("CALIBRATION_BLESS") == "1":
        FIXTURE.write_bytes((tmp_path / "context.tar.gz").read_bytes())
    assert context.devices is not None
    by_address = {device.address: device for device in context.devices}
    nic, disk = by_address[NIC], by_address[DISK]
    assert (nic.kind, nic.node, nic.driver, nic.id) == ("network", 1, "virtio-pci", "1af4:1041")
    assert nic.link is not None
    assert (nic.link.port, nic.link.width, nic.link.possible_width) == ("0000:80:00.0", 1, 8)
    assert nic.link.narrowed
    assert (nic.link.speed_gt_s, nic.link.possible_speed_gt_s) == (2.5, 16.0)
    assert (disk.kind, disk.node, disk.driver) == ("storage", 1, "nvme")
    assert disk.link is not None
    assert (disk.link.port, disk.link.port_width, disk.link.width) == ("0000:80:01.0", 2, 1)
    assert not disk.link.narrowed  # a device of one lane in a slot of two
    assert (disk.model, disk.firmware) == ("QEMU NVMe Ctrl", sut.read("cat /sys/class/nvme/nvme0/firmware_rev").strip())
    groups = {address: sut.read(f"readlink /sys/bus/pci/devices/{address}/iommu_group") for address in (NIC, DISK)}
    assert {nic.address: nic.iommu_group, disk.address: disk.iommu_group} == {
        address: int(target.rpartition("/")[2]) for address, target in groups.items()
    }
    numbers = sut.read(f"ls /sys/bus/pci/devices/{DISK}/msi_irqs").split()
    lists = sut.read(f"cd /proc/irq && cat {' '.join(f'{number}/effective_affinity_list' for number in numbers)}")
    assert disk.interrupt_cpus == tuple(sorted({int(cpu) for cpu in lists.split()}))
    assert disk.isolated_cpus == tuple(cpu for cpu in disk.interrupt_cpus if cpu == 3)
    on_root = [device for device in context.devices if device.node is None]
    assert all(device.link is None for device in on_root)
    sut.read(f"umount /sys/bus/pci/devices/{NIC}/max_link_*")
