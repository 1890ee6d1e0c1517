# SPDX-License-Identifier: Apache-2.0
"""Whether a machine is a guest, and of which hypervisor.

Evidence, strongest first: the CPU's own ``hypervisor`` flag (x86), ``/sys/hypervisor``, s390x's
``/proc/sysinfo``, the device tree, DMI. A DMI string names the vendor; by itself it makes a guest
only if no bare-metal machine of that name is sold. A missing flag
alone proves nothing, since old hypervisors do not set it. Where processors have no such flag, SMBIOS may say that it
describes a virtual machine (DSP0134 7.1.2.2).
"""

from __future__ import annotations

from calibration.context import cpuinfo
from calibration.context.cpuinfo import CpuInfo
from calibration.context.model import Firmware, Virtualization
from calibration.context.tree import Tree

DMI_NAMES = (
    ("QEMU", "QEMU", True),
    ("KVM", "KVM", True),
    ("OpenStack", "KVM", True),
    ("VMware", "VMware", True),
    ("VMW", "VMware", True),
    ("innotek GmbH", "VirtualBox", True),
    ("VirtualBox", "VirtualBox", True),
    ("Xen", "Xen", True),
    ("CloudStack KVM", "KVM", True),
    ("Bochs", "Bochs", True),
    ("Parallels", "Parallels", True),
    ("BHYVE", "bhyve", True),
    ("KubeVirt", "KVM", True),
    ("Apple Virtualization", "Apple", True),
    ("Google Compute Engine", "Google", False),
    ("Alibaba Cloud", "Alibaba", False),
    ("Amazon EC2", "Amazon", False),
)
"""(prefix of a DMI string, vendor, whether it proves a guest).

Clouds sell bare-metal machines too.
"""

AMAZON_METAL = ".metal"
"""Part of the names of Amazon's instances that are no guests, such as ``c7g.metal`` and ``c7gd.metal-48xl``."""

PARTITION_FILES = ("ibm,partition-no", "ibm,partition-name")
"""Properties that only a PowerVM partition has."""


def _dmi_vendor(firmware: Firmware) -> tuple[str, bool, str] | None:
    texts = (firmware.system_vendor, firmware.product_name, firmware.board_vendor, firmware.bios_vendor)
    for text in texts:
        for start, vendor, proves in DMI_NAMES:
            if text is not None and text.startswith(start):
                return vendor, proves, text
    if firmware.system_vendor == "Microsoft Corporation" and firmware.product_name == "Virtual Machine":
        return "Microsoft", True, "Microsoft Corporation Virtual Machine"
    return None


def read_virtualization(
    tree: Tree, info: CpuInfo | None, architecture: str | None, firmware: Firmware
) -> Virtualization:
    """Return guest or not, vendor, and type (``full`` or ``para``), with the evidence.

    None if undecided.
    """
    evidence: list[str] = []
    guest: bool | None = None
    vendor: str | None = None
    kind: str | None = None

    flags = cpuinfo.flags(info, min(info.cpus)) if info is not None and info.cpus else ()
    if architecture in ("x86", "x86_64") and "hypervisor" in flags:
        guest, kind = True, "full"
        evidence.append("/proc/cpuinfo: flag hypervisor")

    hypervisor = tree.word("/sys/hypervisor/type")
    if hypervisor:
        guest, vendor = True, "Xen" if hypervisor == "xen" else hypervisor
        mode = tree.word("/sys/hypervisor/guest_type")
        kind = {"PV": "para", "HVM": "full", "PVH": "full"}.get(mode or "", kind)
        evidence.append(f"/sys/hypervisor/type: {hypervisor}")

    for line in (tree.text("/proc/sysinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "VM00 Control Program" and value.strip():
            guest, kind = True, "full"
            vendor = "KVM" if value.strip().startswith("KVM") else "z/VM" if value.strip().startswith("z/VM") else None
            evidence.append(f"/proc/sysinfo: VM00 Control Program {' '.join(value.split())}")
        elif key.strip() == "LPAR Number" and guest is None:
            guest, kind, vendor = True, "full", "IBM PR/SM"
            evidence.append("/proc/sysinfo: LPAR Number")

    for base in ("/proc/device-tree", "/sys/firmware/devicetree/base"):
        compatible = tree.text(f"{base}/hypervisor/compatible") or ""
        names = [name for name in compatible.split("\0") if name.isprintable() and name]
        if names:
            guest = True
            vendor = "KVM" if "linux,kvm" in names else "Xen" if any(n.startswith("xen") for n in names) else names[0]
            kind = "para"
            evidence.append(f"{base}/hypervisor/compatible: {' '.join(names)}")
            break
        model = tree.word(f"{base}/model")
        if model and ("qemu" in model.lower() or model == "linux,dummy-virt"):
            guest, vendor = True, vendor or "QEMU"
            evidence.append(f"{base}/model: {model}")
            break
        partition = next((name for name in PARTITION_FILES if tree.exists(f"{base}/{name}")), None)
        if partition is not None:
            guest, vendor, kind = True, "IBM PowerVM", "para"
            evidence.append(f"{base}/{partition}")
            break

    dmi = _dmi_vendor(firmware)
    if guest is None and architecture not in ("x86", "x86_64"):
        if firmware.virtual_machine:
            guest = True
            evidence.append("SMBIOS: a virtual machine")
        elif dmi is not None and dmi[0] == "Amazon" and firmware.product_name:
            guest = AMAZON_METAL not in firmware.product_name
            evidence.append(f"DMI: {firmware.product_name}")
    if dmi is not None:
        name, proves, text = dmi
        if proves and guest is None:
            guest = True
        if guest:
            vendor = vendor or name
            evidence.append(f"DMI: {text}")
    elif guest is None and architecture in ("x86", "x86_64") and flags and firmware.system_vendor:
        guest = False
        evidence.append("/proc/cpuinfo: no flag hypervisor; DMI names no hypervisor")
    return Virtualization(guest=guest, vendor=vendor, type=kind, evidence=tuple(evidence))
