# SPDX-License-Identifier: Apache-2.0
"""Broken input: a clear error or an entry in ``unreadable``; never a traceback, a hang or an invented value."""

import io
import json
import os
import re
import tarfile
from collections import Counter

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration.commands.context import context_command, summary
from calibration.context.errors import ContextError
from calibration.context.loader import load, to_contract
from tests.unit.context.conftest import FIXTURES

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
GARBAGE = (
    b"", b"\0" * 50, b"\xff\xfe\x80abc", b"0-99999999999\n", b"9" * 100_000, b"-1\n", b"all", b"[" * 5000,
    b'{"a":' * 3000, b"ffffffff," * 5000, b"isolcpus=0-99999999999 nohz_full=abc", b"processor: 70000\n",
    b"\x1b[2Jescape",
)  # fmt: skip


def reasons(context):
    return {item.path: item.reason for item in context.unreadable}


@pytest.mark.parametrize(
    "kind", ["missing", "empty directory", "other directory", "empty file", "text file", "cut archive"]
)
def test_rejects_other_paths_with_advice(kind, tmp_path):
    path = tmp_path / "thing"
    if kind.endswith("directory"):
        path.mkdir()
        if kind.startswith("other"):
            (path / "notes.txt").write_text("hello")
    elif kind.endswith("file"):
        path.write_text("" if kind.startswith("empty") else "hello")
    elif kind == "cut archive":
        path.write_bytes((FIXTURES / "x86_64-smt-off.tar.gz").read_bytes()[:4000])
    with pytest.raises(ContextError, match=r"thing: (not|neither|no) .*; (give|capture)") as caught:
        load(path)
    assert caught.value.exit_code == 2


def test_finds_a_root_one_directory_down(make_root):
    root = make_root({"/machine/proc/meminfo": "MemTotal: 1 kB\n"})
    assert load(root) == load(root / "machine")
    (root / "other").mkdir()
    with pytest.raises(ContextError, match="machine, other"):
        load(root)


def test_rejects_another_archive(tmp_path):
    path = tmp_path / "other.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("readme"), io.BytesIO())
    with pytest.raises(ContextError, match="readme"):
        load(path)


def test_binary_cpulist_is_listed_as_unreadable(make_root):
    root = make_root({f"{CPU}/online": b"0-3\n", f"{NODE}/online": b"0\n", f"{NODE}/node0/cpulist": b"\x80\x01\xff"})
    context = load(root)
    assert reasons(context)[f"{NODE}/node0/cpulist"].startswith("unparsable: ")
    assert context.nodes[0].cpus == (0, 1, 2, 3)  # a sole node has every CPU


def test_a_huge_range_is_listed_and_the_next_source_is_used(make_root):
    root = make_root({f"{CPU}/online": "0-99999999999\n", f"{CPU}/cpu0/online": "1\n", f"{CPU}/cpu1/online": "0\n"})
    context = load(root)
    assert context.online_cpus == (0,)
    assert "beyond" in reasons(context)[f"{CPU}/online"]


def test_root_with_only_a_command_line_has_no_cpus(make_root):
    context = load(make_root({"/proc/cmdline": "ro isolcpus=1-3\n"}))
    assert context.online_cpus == ()
    assert context.topology.threads_per_core is None
    assert context.nodes[0].memory_bytes is None
    assert f"{CPU}/online" in reasons(context)
    assert context.cmdline.text == "ro isolcpus=1-3"


def test_lists_an_invalid_isolcpus(make_root):
    root = make_root({f"{CPU}/online": "0-3\n", "/proc/cmdline": "isolcpus=0-99999999999 rcu_nocbs=x"})
    context = load(root)
    assert context.isolated_cpus == ()
    assert context.isolation.notes_of("isolcpus")[0].startswith("isolcpus=0-99999999999: refused; ")


def test_a_capture_json_of_the_wrong_shape_is_listed(make_root):
    for content in (
        "[1]",
        "{",
        '{"unreadable": 3, "uname": [], "uid": "x", "affinity": "z", "masked": [{}]}',
        "[" * 99_999,
    ):
        context = load(make_root({f"{CPU}/online": "0\n", "/capture.json": content}))
        assert context.capture.uid is None
        assert context.online_cpus == (0,)
        assert "/capture.json" in reasons(context)


@pytest.mark.parametrize(("machine", "recorded", "found"), [
    ("aarch64", 65536, 65536),
    ("x86_64", None, 4096),
    ("riscv64", None, 4096),
    ("aarch64", None, None),
    ("ppc64le", None, None),
    ("aarch64", 4095, None),
    ("aarch64", True, None),
    ("aarch64", "65536", None),
])  # fmt: skip
def test_base_pages_are_recorded_or_the_only_ones_of_the_architecture(make_root, machine, recorded, found):
    content = {"uname": {"machine": machine}} | ({} if recorded is None else {"page_bytes": recorded})
    context = load(make_root({f"{CPU}/online": "0\n", "/capture.json": json.dumps(content)}))
    assert context.memory.base_page_bytes == found
    assert ("/capture.json" in reasons(context)) == (recorded is not None and found is None)


def test_unreadable_files_of_the_capture_are_kept(make_root):
    document = {"unreadable": [{"path": "/sys/firmware/dmi/tables/DMI", "reason": "Permission denied"}]}
    context = load(make_root({f"{CPU}/online": "0\n", "/capture.json": json.dumps(document)}))
    assert to_contract(context)["unreadable"] == document["unreadable"]


def test_a_file_without_permission_is_listed(make_root, monkeypatch):
    root = make_root({f"{CPU}/online": "0\n", "/proc/meminfo": "MemTotal: 1 kB\n"})
    really_open = os.open

    def refuse(path, *arguments):
        if str(path).endswith("/proc/meminfo"):
            raise PermissionError(13, "Permission denied")
        return really_open(path, *arguments)

    monkeypatch.setattr("calibration.context.tree.os.open", refuse)
    context = load(root)
    assert reasons(context)["/proc/meminfo"] == "Permission denied"
    assert context.memory.total_bytes is None


def test_pipes_directories_and_circular_links_do_not_hang(make_root):
    root = make_root({f"{CPU}/online": "0\n"})
    (root / "proc").mkdir()
    os.mkfifo(root / "proc/cpuinfo")
    (root / "proc/meminfo").mkdir()
    (root / "proc/cmdline").symlink_to("cmdline")
    found = reasons(load(root))
    assert found["/proc/cpuinfo"] == "not a regular file"
    assert found["/proc/meminfo"] == "not a regular file"
    assert found["/proc/cmdline"] == os.strerror(40)


def test_links_stay_inside_the_root(make_root, tmp_path):
    (tmp_path / "secret").write_text("MemTotal: 7 kB\n")
    root = make_root({f"{CPU}/online": "0\n", "/inside": "MemTotal: 2 kB\n"})
    (root / "proc").mkdir()
    (root / "proc/meminfo").symlink_to(tmp_path / "secret")
    assert load(root).memory.total_bytes is None
    (root / "proc/meminfo").unlink()
    (root / "proc/meminfo").symlink_to("../../../../inside")
    assert load(root).memory.total_bytes == 2048
    (root / "proc/meminfo").unlink()
    (root / "proc/meminfo").symlink_to("/inside")
    assert load(root).memory.total_bytes == 2048


def test_links_in_an_archive_are_followed(tmp_path):
    path = tmp_path / "linked.tar"
    with tarfile.open(path, "w") as archive:
        for name, content in ((f"{CPU}/online", b"0\n"), ("/real/meminfo", b"MemTotal: 3 kB\n")):
            member = tarfile.TarInfo(name.lstrip("/"))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target in (("proc", "real"), ("loop", "loop")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    assert load(path).memory.total_bytes == 3072


def test_undecodable_names_are_escaped(make_root):
    root = make_root({f"{CPU}/online": "0\n", f"{CPU}/vulnerabilities/mds": "Not affected\n"})
    (root / os.fsdecode(CPU[1:].encode() + b"/vulnerabilities/\xff")).write_bytes(b"\x80")
    (root / os.fsdecode(CPU[1:].encode() + b"/vulnerabilities/\xfe")).write_bytes(b"Vulnerable\n")
    context = load(root)
    assert context.mitigations == {"mds": "Not affected", "\\udcfe": "Vulnerable"}
    assert list(reasons(context)) == [f"{CPU}/vulnerabilities/\\udcff"]
    json.dumps(to_contract(context)).encode("ascii")


@pytest.fixture(scope="module")
def captured_files():
    """Two files of each kind: paths that differ in their numbers only are one kind."""
    files, kinds = {}, Counter()
    with tarfile.open(FIXTURES / "x86_64-isolated.tar.gz") as archive:
        for member in archive:
            kinds[kind := re.sub(r"\d+", "N", member.name)] += 1
            if kinds[kind] <= 2:
                files[member.name] = archive.extractfile(member).read()
    return files


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_capture_with_damaged_files_never_ends_in_a_traceback(data, captured_files, tmp_path):
    names = sorted(captured_files)
    damaged = data.draw(
        st.dictionaries(st.sampled_from(names), st.sampled_from(GARBAGE) | st.binary(max_size=40), max_size=60)
    )
    path = tmp_path / "damaged.tar"
    with tarfile.open(path, "w") as archive:
        for name, content in {**captured_files, **damaged}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    context = load(path)
    json.dumps(to_contract(context), allow_nan=False).encode()
    summary(context).encode()


def test_garbage_in_every_file_yields_no_facts(captured_files, make_root):
    for garbage in GARBAGE:
        context = load(make_root({"/" + name: garbage for name in captured_files}))
        assert all(node.memory_bytes is None for node in context.nodes)
        assert context.firmware.dimms == ()
        assert context.caches == ()


def test_the_command_prints_the_document_or_one_screen():
    archive = str(FIXTURES / "x86_64-two-nodes-smt.tar.gz")
    result = CliRunner().invoke(context_command, [archive, "--json"])
    assert result.exit_code == 0
    assert list(json.loads(result.stdout))[:10] == [
        "nodes",
        "distances",
        "online_cpus",
        "isolated_cpus",
        "threads_per_core",
        "caches",
        "memory_only_nodes",
        "cpu_only_nodes",
        "cmdline",
        "unreadable",
    ]
    result = CliRunner().invoke(context_command, [archive])
    assert result.exit_code == 0
    assert "CPUs 4-7" in result.stdout
    assert len(result.stdout.splitlines()) < 50


def test_command_rejects_other_paths(tmp_path):
    result = CliRunner().invoke(context_command, [str(tmp_path / "nowhere")])
    assert isinstance(result.exception, ContextError)
    assert result.exception.exit_code == 2
