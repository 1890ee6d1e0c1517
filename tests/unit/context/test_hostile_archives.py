# SPDX-License-Identifier: Apache-2.0
"""Captures that no honest SUT makes: refused or read, within bounds, and never a path of this machine."""

import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration.context import tree as tree_module
from calibration.context.errors import ContextError
from calibration.context.loader import load
from calibration.context.tree import Tree

ONLINE = "sys/devices/system/cpu/online"

TOO_MUCH = "more CPUs, files or links than a machine has"


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    described = tarfile.TarInfo(name)
    described.size = len(content)
    for field, value in fields.items():
        setattr(described, field, value)
    return described, content


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.GNU_FORMAT) -> Path:
    with tarfile.open(path, "w:gz", format=form) as opened:
        for described, content in [member(ONLINE, b"0-1\n"), *members]:
            opened.addfile(described, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    "name", ["/etc/shadow", "../../etc/shadow", "a/../../../etc/shadow", "./../etc/shadow", "//etc//shadow"]
)
def test_paths_stay_inside_the_root(name: str, tmp_path: Path) -> None:
    tree = Tree(archive(tmp_path / "a.tar.gz", member(name, b"of the SUT")))
    assert tree.text("/etc/shadow") == "of the SUT"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../etc/passwd", "/proc/self/environ"])
def test_links_stay_inside_the_archive(target: str, tmp_path: Path) -> None:
    link = member("proc/meminfo", type=tarfile.SYMTYPE, linkname=target)
    context = load(archive(tmp_path / "a.tar.gz", link))
    assert context.memory.total_bytes is None
    assert Tree(tmp_path / "a.tar.gz").text("/proc/meminfo") is None


def test_link_to_an_outside_directory_reveals_nothing(tmp_path: Path) -> None:
    tree = Tree(archive(tmp_path / "a.tar.gz", member("proc", type=tarfile.SYMTYPE, linkname="/proc")))
    assert tree.names("/proc") == ()
    assert tree.text("/proc/cmdline") is None


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE])
def test_opens_only_regular_files(kind: bytes, tmp_path: Path) -> None:
    odd = member("proc/cmdline", type=kind, linkname="/etc/passwd", devmajor=1, devminor=5)
    assert load(archive(tmp_path / "a.tar.gz", odd)).cmdline is None


TOO_LARGE = {
    "endless": (tarfile.REGTYPE, 1 << 50),
    "sparse": (tarfile.GNUTYPE_SPARSE, 512),
    **{
        f"huge name {kind!r}": (kind, 4 << 30)
        for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE)
    },
}
"""Members that are refused by their header, by type and size."""


@pytest.mark.parametrize("name", TOO_LARGE)
def test_rejects_what_its_header_says_is_too_large(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    described = tarfile.TarInfo("proc/cmdline")
    described.type, described.size = TOO_LARGE[name]
    with gzip.open(path, "wb") as stream:
        stream.write(described.tobuf(tarfile.GNU_FORMAT) + b"x" * 2048)
    with pytest.raises(ContextError, match="too large" if name != "endless" else "not a readable|too large"):
        load(path)


def test_ignores_overlong_paths(tmp_path: Path) -> None:
    deep = member("a/" * 5000 + "b", b"x")
    tree = Tree(archive(tmp_path / "a.tar.gz", deep))
    assert tree.names("/") == ("sys",)


def test_rejects_other_compressions(tmp_path: Path) -> None:
    inner = archive(tmp_path / "inner.tar.gz")
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(gzip.decompress(inner.read_bytes())))
    with pytest.raises(ContextError, match=r"not a readable tar\.gz archive"):
        load(path)


def test_rejects_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "a.tar.gz", *(member(f"proc/{number}") for number in range(20)))
    monkeypatch.setattr(tree_module, "MAX_ARCHIVE_MEMBERS", 21)
    assert load(path).online_cpus == (0, 1)
    monkeypatch.setattr(tree_module, "MAX_ARCHIVE_MEMBERS", 20)
    with pytest.raises(ContextError, match=r"too large, .* in 20 files"):
        load(path)


def test_rejects_too_much_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "a.tar.gz", member("proc/a", b"x" * 600), member("proc/b", b"x" * 600))
    monkeypatch.setattr(tree_module, "MAX_CONTENT_BYTES", 1204)
    assert load(path).online_cpus == (0, 1)
    monkeypatch.setattr(tree_module, "MAX_CONTENT_BYTES", 1203)
    with pytest.raises(ContextError, match="at most 1203 bytes"):
        load(path)


def test_oversized_file_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "MAX_FILE_BYTES", 100)
    context = load(archive(tmp_path / "a.tar.gz", member("proc/cmdline", b"x" * 101)))
    assert context.online_cpus == (0, 1)
    assert [(damaged.path, damaged.reason) for damaged in context.unreadable] == [
        ("/proc/cmdline", "larger than 100 bytes")
    ]


def test_links_do_not_multiply_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = [
        member(f"sys/devices/system/cpu/vulnerabilities/v{number}", type=tarfile.SYMTYPE, linkname="/text")
        for number in range(100)
    ]
    path = archive(tmp_path / "a.tar.gz", member("text", b"x" * 10_000), *links)
    monkeypatch.setattr(tree_module, "MAX_WORK_BYTES", 1_200_000)
    assert len(load(path).mitigations) == 100
    monkeypatch.setattr(tree_module, "MAX_WORK_BYTES", 1_000_000)
    with pytest.raises(ContextError, match=TOO_MUCH):
        load(path)


def test_lists_do_not_multiply_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [member(f"sys/bus/event_source/devices/u{number}/cpumask", b"0-8191") for number in range(20)]
    path = archive(tmp_path / "a.tar.gz", *lists)
    monkeypatch.setattr(tree_module, "MAX_WORK_BYTES", 3_000_000)
    assert len(load(path).event_sources or ()) == 20
    monkeypatch.setattr(tree_module, "MAX_WORK_BYTES", 2_500_000)
    with pytest.raises(ContextError, match=TOO_MUCH):
        load(path)


def test_work_is_bounded_by_archive_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that lead back to where they are listed make many files of few."""
    monkeypatch.setattr(tree_module, "MIN_WORK_BYTES", 100_000)
    online = member("sys/devices/system/cpu/isolated", b"1")
    links = [member(f"proc/{number}/task", type=tarfile.SYMTYPE, linkname="/proc") for number in range(100)]
    with pytest.raises(ContextError, match=TOO_MUCH):
        load(archive(tmp_path / "links.tar.gz", online, *links))
    described = [link for link, _ in links]
    for item in described:
        item.size = 1 << 30  # claimed, and not there
    content = b"".join(
        [online[0].tobuf(tarfile.GNU_FORMAT), b"1".ljust(512, b"\0"), *(item.tobuf() for item in described)]
    )
    (tmp_path / "claims.tar").write_bytes(content + b"\0" * 10240)
    with pytest.raises(ContextError, match=TOO_MUCH):
        load(tmp_path / "claims.tar")
    files = [member(f"proc/{number}/task/{number}/status", b"Cpus_allowed_list:\t1\n") for number in range(100)]
    assert len(load(archive(tmp_path / "files.tar.gz", online, *files)).isolation.threads or ()) == 100


def test_deep_directories_are_ignored_or_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = member("link", type=tarfile.SYMTYPE, linkname="a/" * 65)
    tree = Tree(archive(tmp_path / "a.tar.gz", member("a/" * 65 + "b"), link))
    assert tree.names("/") == ("sys",)
    monkeypatch.setattr(tree_module, "MAX_ARCHIVE_MEMBERS", 100)
    with pytest.raises(ContextError, match="too large"):
        Tree(archive(tmp_path / "b.tar.gz", *(member(f"{number}/" + "a/" * 50 + "b") for number in range(3))))


def test_chains_of_links_end(tmp_path: Path) -> None:
    links = [
        member(f"l{number}", type=tarfile.SYMTYPE, linkname="a/../" * 30 + f"l{number + 1}") for number in range(39)
    ]
    tree = Tree(archive(tmp_path / "a.tar.gz", *links, member("l39", b"end")))
    assert tree.text("/l0") == "end"
    assert tree.text("/l0" + "/x" * 70) is None
    assert [reason for _, reason in tree.unreadable] == ["File name too long"]


def test_unreadable_files_are_listed_up_to_a_bound(tmp_path: Path) -> None:
    records = [{"path": f"/{number:05}", "reason": "x" * 1000} for number in range(tree_module.MAX_UNREADABLE + 5)]
    context = load(archive(tmp_path / "a.tar.gz", member("capture.json", json.dumps({"unreadable": records}).encode())))
    *listed, last = context.unreadable
    assert len(listed) == tree_module.MAX_UNREADABLE
    assert all(len(item.reason) == tree_module.MAX_REASON for item in listed)
    assert (last.path, last.reason) == ("/", "5 more unreadable files")


BOMBS = """
import resource, sys
from pathlib import Path
from calibration.context.errors import ContextError
from calibration.context.loader import load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        load(Path(path))
    except ContextError as error:
        assert "too large" in str(error), error
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_small_archives_that_unpack_to_gigabytes_take_little_memory(tmp_path: Path) -> None:
    zeros = gzip.compress(b"\0" * (1 << 20))
    paths = []
    for members, mib in ((2, 1024), (50, 16), (20, 40)):
        paths.append(tmp_path / f"{members}.tar.gz")
        described = [tarfile.TarInfo(f"proc/{number}/cmdline") for number in range(members)]
        for one in described:
            one.size = mib << 20
        heads = (gzip.compress(one.tobuf(tarfile.GNU_FORMAT)) for one in described)
        paths[-1].write_bytes(b"".join(head + zeros * mib for head in heads))
    done = subprocess.run(
        [sys.executable, "-c", BOMBS, *paths],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
        capture_output=True,
        text=True,
        check=True,
    )
    taken_mib = list(map(int, done.stdout.split()))
    assert len(taken_mib) == len(paths)
    assert max(taken_mib) < 2 * tree_module.MAX_CONTENT_BYTES >> 20


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30) | st.sampled_from(
    ["..", "../..", "/", ".", "proc/cpuinfo", "proc/cmdline", "capture.json", "sys/../proc", "a/" * 60, "\x1b[2J"]
)
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, b"Z"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(NAMES, KINDS, NAMES, st.binary(max_size=40)), max_size=12), st.booleans())
def test_any_archive_is_read_or_rejected(
    tmp_path: Path, members: list[tuple[str, bytes, str, bytes]], pax: bool
) -> None:
    path = tmp_path / "a.tar.gz"
    made = [
        member(name, content if kind == tarfile.REGTYPE else b"", type=kind, linkname=target)
        for name, kind, target, content in members
    ]
    archive(path, *made, form=tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT)
    try:
        context = load(path)
    except ContextError:
        pass
    else:
        assert all(damaged.path.isprintable() and damaged.reason.isprintable() for damaged in context.unreadable)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=3000), st.booleans())
def test_any_bytes_are_read_or_rejected(tmp_path: Path, content: bytes, compressed: bool) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(content) if compressed else content)
    with pytest.raises(ContextError):
        load(path)
