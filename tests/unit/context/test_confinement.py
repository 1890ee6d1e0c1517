# SPDX-License-Identifier: Apache-2.0
"""What confines a process, from files as kernels and container engines write them."""

import json

import pytest

from calibration.context.loader import load

UNIFIED = "31 25 0:27 {top} /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"
INITIAL = {"cgroup": 4026531835, "ipc": 4026531839, "pid": 4026531836, "user": 4026531837, "uts": 4026531838}
GROUP = "/sys/fs/cgroup"


def namespaces(**own):
    names = {name: f"{name}:[{own.get(name, number)}]" for name, number in INITIAL.items()}
    return {"/capture.json": json.dumps({"schema": "sut-context/1", "namespaces": names})}


@pytest.fixture
def confined(make_root):
    """Load a machine of four CPUs with more files, and return its context."""

    def make(files):
        return load(make_root({"/sys/devices/system/cpu/online": "0-3\n", **files}))

    return make


@pytest.mark.parametrize(("files", "kind"), [
    ({}, None),
    ({"/.dockerenv": ""}, "Docker"),
    ({"/run/.containerenv": "", **namespaces(pid=1)}, "Podman"),
    ({"/.dockerenv": "", **namespaces()}, None),
    (namespaces(pid=1), "unnamed"),
    (namespaces(uts=1), None),
    ({"/run/systemd/container": "lxc\n", **namespaces(pid=1)}, "lxc"),
    ({"/proc/self/cgroup": "0::/kubepods.slice/kubepods-pod1.slice/cri-1.scope\n"}, "Kubernetes"),
    ({"/proc/self/cgroup": "0::/system.slice/docker-12ab.scope\n"}, "Docker"),
    ({"/proc/self/cgroup": "0::/system.slice/sshd.service\n"}, None),
])  # fmt: skip
def test_the_kind_of_container(confined, files, kind):
    confinement = confined(files).confinement
    assert confinement.container == kind
    assert bool(confinement.evidence) == (kind is not None)


@pytest.mark.parametrize(("top", "path", "directory"), [
    ("/", "/a/b", f"{GROUP}/a/b"),
    ("/", "/", GROUP),
    ("/pod/ct", "/pod/ct", GROUP),
    ("/pod", "/pod/ct", f"{GROUP}/ct"),
    ("/..", "/", GROUP),
    ("/elsewhere", "/pod", GROUP),
])  # fmt: skip
def test_groups_are_found_below_their_mount(confined, top, path, directory):
    files = {
        "/proc/self/mountinfo": UNIFIED.format(top=top),
        "/proc/self/cgroup": f"0::{path}\n",
        f"{directory}/memory.max": "1000\n",
        f"{directory}/memory.current": "400\n",
        f"{directory}/memory.stat": "anon 1\ninactive_file 100\n",
    }
    limit = confined(files).confinement.memory_limit
    assert (limit.group, limit.limit_bytes, limit.used_bytes, limit.left_bytes) == (directory, 1000, 300, 700)


def test_the_cache_of_groups_further_down_can_be_reclaimed_too(confined):
    group = f"{GROUP}/memory/a"
    files = {
        "/proc/self/mountinfo": f"31 25 0:27 / {GROUP}/memory rw - cgroup cgroup rw,memory\n",
        "/proc/self/cgroup": "4:memory:/a\n",
        f"{group}/memory.limit_in_bytes": "1000\n",
        f"{group}/memory.usage_in_bytes": "400\n",
        f"{group}/memory.stat": "inactive_file 1\ntotal_inactive_file 100\n",
    }
    limit = confined(files).confinement.memory_limit
    assert (limit.group, limit.limit_bytes, limit.used_bytes) == (group, 1000, 300)


def test_the_limit_that_leaves_least_counts_not_the_lowest(confined):
    files = {"/proc/self/cgroup": "0::/a/b\n"}
    for group, limit, used in ((f"{GROUP}/a/b", 1000, 100), (f"{GROUP}/a", 2000, 1900)):
        files |= {f"{group}/memory.max": f"{limit}\n", f"{group}/memory.current": f"{used}\n"}
    limit = confined(files).confinement.memory_limit
    assert (limit.group, limit.left_bytes) == (f"{GROUP}/a", 100)


def test_nothing_is_left_of_a_limit_that_was_lowered_below_what_is_used(confined):
    files = {"/proc/self/cgroup": "0::/\n", f"{GROUP}/memory.max": "1000\n", f"{GROUP}/memory.current": "1400\n"}
    assert confined(files).confinement.memory_limit.left_bytes == 0


def test_max_is_no_limit(confined):
    files = dict.fromkeys((f"{GROUP}/memory.max", f"{GROUP}/memory.high", f"{GROUP}/pids.max"), "max\n")
    files |= {"/proc/self/cgroup": "0::/\n", f"{GROUP}/memory.current": "4\n", f"{GROUP}/cpu.max": "max 100000\n"}
    confinement = confined(files).confinement
    assert (confinement.memory_limit, confinement.cpu_quota, confinement.task_limits) == (None, None, ())


def test_an_unusable_limit_is_listed(confined):
    files = {"/proc/self/cgroup": "0::/\n", f"{GROUP}/cpu.max": "lots\n", "/proc/self/limits": "none\n"}
    context = confined(files)
    assert {file.path for file in context.unreadable} == {f"{GROUP}/cpu.max", "/proc/self/limits"}


@pytest.mark.parametrize(("cpuset", "affinity", "usable"), [
    (None, "0-1", {0, 1, 2, 3}),  # isolcpus=2-3: the scheduler keeps away, the process need not
    ("0-3", "0-1", {0, 1, 2, 3}),
    ("0-1", "0-1", {0, 1}),  # the cpuset has no isolated CPU
    ("0-2", "0-1", {0, 1, 2}),
    ("1-3", "1", {1, 2, 3}),
    ("1-3", "1-3", {1, 2, 3}),
    ("0-3", "0", {0}),
])  # fmt: skip
def test_isolated_cpus_count_if_the_cpuset_has_them(confined, cpuset, affinity, usable):
    files = {
        "/sys/devices/system/cpu/isolated": "2-3\n",
        "/proc/self/status": f"Name:\tpython3\nCpus_allowed_list:\t{affinity}\n",
        "/proc/self/cgroup": "0::/\n",
        **({f"{GROUP}/cpuset.cpus.effective": f"{cpuset}\n"} if cpuset else {}),
    }
    assert confined(files).usable_cpus == usable
