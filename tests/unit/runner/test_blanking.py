# SPDX-License-Identifier: Apache-2.0
"""Secrets on the kernel command line leave no SUT."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.runner.blanking import BLANKED, blank, blank_bytes

S = "hunter2"
B = BLANKED


@pytest.mark.parametrize(
    ("text", "blanked"),
    [
        (f"netroot=iscsi:user:{S}@192.0.2.1::3260::iqn:a", f"netroot=iscsi:{B}@192.0.2.1::3260::iqn:a"),
        (f"root=iscsi:u:{S}:v:{S}@host::::iqn", f"root=iscsi:{B}@host::::iqn"),
        (f"netroot=iscsi:u:a@{S}@host::::iqn", f"netroot=iscsi:{B}@host::::iqn"),
        (f"rd.iscsi.password={S} rd.iscsi.in.password={S}", f"rd.iscsi.password={B} rd.iscsi.in.password={B}"),
        (f"iscsi_password={S} quiet", f"iscsi_password={B} quiet"),
        (f"inst.ks=http://user:{S}@host/a.ks quiet", f"inst.ks=http://{B}@host/a.ks quiet"),
        (f"inst.ks=http://user:p/{S}@host/a.ks", f"inst.ks=http://{B}@host/a.ks"),
        (f"ks=https://{S}@host/a.ks", f"ks=https://{B}@host/a.ks"),
        (f"inst.repo=https://host/r?token={S}&x=1 a=1", f"inst.repo=https://host/r?{B} a=1"),
        (f"a=http://host/x,b=http://{S}@h,c=1", f"a=http://host/x,b=http://{B}@h,c=1"),
        (f"inst.proxy=u:{S}@host:3128 quiet", f"inst.proxy={B}@host:3128 quiet"),
        (f"mirror/http/proxy=http://u:{S}@host:3128/", f"mirror/http/proxy=http://{B}@host:3128/"),
        (f"inst.ks=ftp://u:{S}@host/a.ks?token={S}", f"inst.ks=ftp://{B}@host/a.ks?{B}"),
        (f"a cc: {{password: {S}, b: c}} end_cc quiet", f"a cc: {B} end_cc quiet"),
        (f"quiet cc:%20password:%20{S}", f"quiet cc:{B}"),
        (f'"url=http://host/b?sig={S}" quiet', f'"url=http://host/b?{B}" quiet'),
        (f"url=https://host/blob?sig={S}", f"url=https://host/blob?{B}"),
        (f"ds=nocloud-net;s=http://u:{S}@host/seed/", f"ds=nocloud-net;s=http://{B}@host/seed/"),
        (f"ds=nocloud;h=a;token={S};s=x", f"ds=nocloud;h=a;token={B}"),
        (f"systemd.set_credential=passwd.root:{S}", f"systemd.set_credential={B}"),
        (f"systemd.set_credential_binary=a:{S}==", f"systemd.set_credential_binary={B}"),
        (f"rd.luks.key=/{S}:UUID=1 rd.luks.uuid=2", f"rd.luks.key={B} rd.luks.uuid=2"),
        (f"root=//host/share rootflags=user=a,password={S},vers=3", f"root=//host/share rootflags=user=a,password={B}"),
        (f'rootflags="user=a,pass={S} {S}" quiet', f'rootflags="user=a,pass={B}" quiet'),
        (f'"password={S} {S}" quiet', f'"password={B}" quiet'),
        (f'password="{S} {S}" quiet', f"password={B} quiet"),
        (f"inst.rootpw={S} vncpassword={S} rd.wifi.psk={S}", f"inst.rootpw={B} vncpassword={B} rd.wifi.psk={B}"),
        ("ip=dhcp BOOTIF=01-3c-ec-ef-00-00-01 quiet", f"ip=dhcp BOOTIF={B} quiet"),
        (f"passwd/root-password-crypted={S}", f"passwd/root-password-crypted={B}"),
        (f"snmp.community={S} API_KEY={S} -- token={S}", f"snmp.community={B} API_KEY={B} -- token={B}"),
    ],
)  # fmt: skip
def test_secrets_of_known_forms_are_blanked(text: str, blanked: str) -> None:
    assert blank(text) == blanked
    assert blank_bytes(text.encode()) == blanked.encode()
    assert blank(blanked) == blanked


@pytest.mark.parametrize(
    "text",
    [
        "BOOT_IMAGE=/boot/vmlinuz-6.1.0 root=UUID=0-1 ro quiet isolcpus=managed_irq,domain,2-5 nohz_full=2-5",
        "iommu.passthrough=1 intel_iommu=on iommu=pt secretmem.enable=1 systemd.import_credentials=no",
        "systemd.password_agent console=ttyS0,115200 crashkernel=1G-4G:192M random.trust_cpu=on",
        "rd.luks.uuid=luks-1 rd.luks.options=discard vconsole.keymap=us keyboard=a",
        "netroot=iscsi:@192.0.2.1::3260::iqn.2026-01.org:a rd.iscsi.initiator=iqn.2026-01.org:b rd.iscsi.username=u",
        "inst.proxy=host:3128 inst.proxy=http://host:3128 acc:1 cc: end_cc quiet",
        "inst.repo=http://host:8080/a/b ip=192.0.2.2::192.0.2.1:255.255.255.0:n:eth0:none ds=nocloud;s=http://h/s/",
        'dyndbg="file a.c +p; file b.c +p" mitigations=off pcie_aspm=off\n',
        "dyndbg=file?name module.pattern=eth?:on",
    ],
)
def test_other_parameters_are_verbatim(text: str) -> None:
    assert blank(text) == text


@given(st.text())
def test_any_text_is_blanked_once(text: str) -> None:
    assert blank(blank(text)) == blank(text)


@given(
    st.lists(st.sampled_from(["quiet", "a=b", 'c="d e"', "isolcpus=1-2"])),
    st.sampled_from(
        ["rd.iscsi.password=", "systemd.set_credential=n:", "a=http://u:", "netroot=iscsi:u:", "x=?token="]
    ),
    st.text(string.ascii_letters + string.digits + "/+!$%:=,", min_size=12),
)
def test_no_secret_is_left_among_other_parameters(words: list[str], name: str, secret: str) -> None:
    after = "@host" if "u:" in name else ""
    for text in (f"{name}{secret}{after}", f"{' '.join(words)} {name}{secret}{after} {' '.join(words)}"):
        assert secret not in blank(text)


def test_a_long_text_is_blanked_in_linear_time() -> None:
    assert blank(f"cc: a{' ' * (1 << 20)}{S}\n") == f"cc: {B}\n"
