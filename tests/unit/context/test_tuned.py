# SPDX-License-Identifier: Apache-2.0
"""The active profile of tuned: how its sections are merged, which of them apply, and how their values are compared."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from calibration.base.comparisons import kind_of_file
from calibration.context.facts import text_of
from calibration.context.loader import load
from calibration.context.model import CpuSets
from calibration.context.tuned import is_met
from calibration.context.tuned_variables import Unknown, Variables, searched
from calibration.runner import capture
from calibration.runner.profiles import Merged, settings_of
from tests.unit.context.test_devices import BASE, both

CPUS = CpuSets(
    possible=(0, 1, 2, 3, 4), present=(0, 1, 2, 3), online=(0, 1, 2, 3), online_source=None, offline=(), allowed=None,
    cpuset=None,
)  # fmt: skip
WRITEBACK = "/sys/bus/workqueue/devices/writeback/cpumask"


def machine(make_root, profiles, files, active="own", read=both):
    """Return what was found of the profiles, by name, on a machine with *files*; *read* may spare the capture."""
    named = {f"/etc/tuned/{name}/tuned.conf" if "/" not in name else name: text for name, text in profiles.items()}
    root = make_root({**BASE, **files, **named, "/etc/tuned/active_profile": active + "\n"})
    return read(root).tuned


def differing(tuned):
    return {item.name: (item.wanted, item.found) for item in tuned.differing}


SYSCTLS = {"/proc/sys/vm/swappiness": "60\n", "/proc/sys/kernel/nmi_watchdog": "1\n", "/proc/sys/kernel/x": "5\n"}

SECTIONS = [
    # type= names the plug-in, whatever the section is called.
    ("[mine]\ntype=sysctl\nvm.swappiness=1\n", {"vm.swappiness": ("1", "60")}, 0),
    ("[thp]\ntype=vm\ntransparent_hugepages=never\n", {"transparent huge pages": ("never", "madvise")}, 0),
    ("[sysctl]\ntype=script\nvm.swappiness=1\n", {}, 0),
    # A section that is switched off sets nothing; what is neither true nor 1 is off.
    ("[sysctl]\nenabled=0\nvm.swappiness=1\n", {}, 0),
    ("[sysctl]\nenabled=yes\nvm.swappiness=1\n", {}, 0),
    ("[sysctl]\nenabled=true\nvm.swappiness=60\n", {}, 1),
    # Options of the section are no settings.
    ("[sysctl]\nreplace=1\npriority=5\ndevices=x\nvm.swappiness=60\n", {}, 1),
    # Of two sections that set one file, the later one counts, and the one with the higher priority before that.
    ("[sysctl]\nvm.swappiness=1\n[b]\ntype=sysctl\nvm.swappiness=60\n", {}, 1),
    ("[sysctl]\npriority=9\nvm.swappiness=1\n[b]\ntype=sysctl\nvm.swappiness=60\n", {"vm.swappiness": ("1", "60")}, 0),
    ("[vm]\ntransparent_hugepages=never\n[sysfs]\n/sys/kernel/mm/transparent_hugepage/enabled=madvise\n", {}, 1),
    # Conditions.
    ("[a]\ntype=sysctl\nuname_regex=aarch64\nvm.swappiness=1\n", {}, 0),
    ("[a]\ntype=sysctl\nuname_regex=x86_64$\nvm.swappiness=1\n", {"vm.swappiness": ("1", "60")}, 0),
    ("[a]\ntype=sysctl\ncpuinfo_regex=GenuineIntel\nvm.swappiness=1\n", {"vm.swappiness": ("1", "60")}, 0),
    ("[a]\ntype=sysctl\ncpuinfo_regex=^vendor_id\\s+:\\s+AuthenticAMD$\nvm.swappiness=1\n", {}, 0),
    ("[variables]\nr=aarch64\n[a]\ntype=sysctl\nuname_regex=${r}\nvm.swappiness=1\n", {}, 0),
    # Comments and lines that continue.
    ("[sysctl] # x\nvm.swappiness = 60 # not 1\n; kernel.x=1\n", {}, 1),
    ('[sysctl]\nvm.swappiness="60"\n', {}, 1),
    ("[sysctl]\nkernel.x=\n  5\n", {}, 1),
    # Values of the plug-in vm.
    ("[vm]\ndirty_bytes=40%\n", {}, 1),
    ("[vm]\ndirty_bytes=10%\ndirty_background_bytes=0\n", {"dirty_bytes": ("10", "40")}, 1),
    ("[vm]\ntransparent_hugepage.defrag=madvise\n", {}, 1),
    # Bounds.
    ("[sysctl]\nvm.swappiness=>60\nkernel.x=<4\n", {"kernel.x": ("<4", "5")}, 1),
]


@pytest.mark.parametrize(("profile", "differ", "met"), SECTIONS)
def test_sections_mean_what_tuned_makes_of_them(make_root, profile, differ, met):
    files = {
        **SYSCTLS,
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never\n",
        "/proc/sys/vm/dirty_bytes": "0\n",
        "/proc/sys/vm/dirty_ratio": "40\n",
        "/proc/sys/vm/dirty_background_bytes": "0\n",
        "/proc/sys/vm/dirty_background_ratio": "10\n",
        "/proc/sys/kernel/arch": "x86_64\n",
        "/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: X\n\nprocessor\t: 1\n",
    }
    tuned = machine(make_root, {"own": profile}, files, read=load)
    assert (differing(tuned), tuned.met, tuned.unchecked) == (differ, met, ())


MERGED = [
    # The profile that includes another prevails, option by option.
    ("[sysctl]\nvm.swappiness=60\n", "[sysctl]\nvm.swappiness=1\nkernel.x=5\n", {}, 2),
    # replace=1 drops the older section whole, drop= some of its options.
    ("[sysctl]\nreplace=1\nvm.swappiness=60\n", "[sysctl]\nvm.swappiness=1\nkernel.x=1\n", {}, 1),
    ("[sysctl]\ndrop=kernel.x, kernel.y\n", "[sysctl]\nvm.swappiness=60\nkernel.x=1\nkernel.y=1\n", {}, 1),
    # A later section switches one of the same name off, and on again.
    ("[sysctl]\nenabled=0\n", "[sysctl]\nvm.swappiness=1\n", {}, 0),
    ("[sysctl]\nkernel.x=5\n", "[sysctl]\nenabled=0\nvm.swappiness=60\n", {}, 2),
    ("[sysctl]\n", "[sysctl]\nenabled=0\nvm.swappiness=60\n", {}, 1),
    # Sections of other names stay, and the type is that of the later one.
    ("[other]\ntype=sysctl\nkernel.x=5\n", "[sysctl]\nvm.swappiness=1\n", {"vm.swappiness": ("1", "60")}, 1),
    ("[mine]\nkernel.x=5\n", "[mine]\ntype=sysctl\nvm.swappiness=1\n", {}, 0),
    # Variables of both profiles are known to both.
    ("[variables]\nv=60\n", "[variables]\nv=1\n[sysctl]\nvm.swappiness=${v}\n", {}, 1),
]


@pytest.mark.parametrize(("own", "base", "differ", "met"), MERGED)
def test_profiles_are_merged_as_tuned_merges_them(make_root, own, base, differ, met):
    tuned = machine(make_root, {"own": f"[main]\ninclude=base\n{own}", "base": base}, SYSCTLS, read=load)
    assert (differing(tuned), tuned.met) == (differ, met)


def test_active_profiles_are_merged_in_order_and_the_post_loaded_one_last(make_root):
    profiles = {name: f"[sysctl]\nvm.swappiness={value}\n" for name, value in {"a": 1, "b": 2, "c": 60}.items()}
    assert differing(machine(make_root, profiles, SYSCTLS, "a b")) == {"vm.swappiness": ("2", "60")}
    assert machine(make_root, profiles, {**SYSCTLS, "/etc/tuned/post_loaded_profile": "c\n"}, "a b").met == 1


@pytest.mark.parametrize("path", [
    "/etc/tuned/profiles/own/tuned.conf", "/etc/tuned/own/tuned.conf", "/usr/lib/tuned/profiles/own/tuned.conf",
    "/usr/lib/tuned/own/tuned.conf",
])  # fmt: skip
def test_profiles_are_found_where_old_and_new_versions_keep_them(make_root, path):
    assert machine(make_root, {path: "[sysctl]\nvm.swappiness=60\n"}, SYSCTLS).met == 1


def test_a_profile_may_include_the_shipped_one_of_its_name_and_one_that_is_optional(make_root):
    profiles = {
        "own": "[main]\ninclude=own,-gone\n[sysctl]\nvm.swappiness=60\n",
        "/usr/lib/tuned/profiles/own/tuned.conf": "[sysctl]\nvm.swappiness=1\nkernel.x=5\n",
    }
    tuned = machine(make_root, profiles, SYSCTLS)
    assert (tuned.met, tuned.profiles, tuned.absent) == (2, ("own", "own"), ())


def test_a_glob_of_sysfs_is_compared_in_every_file(make_root):
    files = {f"/sys/devices/virtual/workqueue/{name}/cpumask": "000000,00000003\n" for name in ("a", "writeback")}
    profile = "[sysfs]\n/sys/devices/virtual/workqueue/*/cpumask = 3\n"
    assert machine(make_root, {"own": profile}, files).met == 1
    files["/sys/devices/virtual/workqueue/a/cpumask"] = "00000003,00000000\n"
    assert differing(machine(make_root, {"own": profile}, files)) == {
        "/sys/devices/virtual/workqueue/*/cpumask": ("3", "00000003,00000000")
    }
    own = f"{profile}/sys/devices/virtual/workqueue/a/cpumask=3,0\n"  # the later setting of a file counts
    assert machine(make_root, {"own": own}, files).met == 2
    assert machine(make_root, {"own": "[sysfs]\n/sys/kernel/debug/*=1\n"}, {"/sys/kernel/debug/x": "1\n"}).met == 0


def test_masks_are_computed_from_variables_as_shipped_profiles_do(make_root):
    profile = (
        "[variables]\ninclude=/etc/tuned/own-variables.conf\nisolated_cores=${isolated_cores}\n"
        "expanded=${f:cpulist_unpack:${isolated_cores}}\nmask=${f:cpulist2hex_invert:${expanded}}\n"
        f"tmp=${{f:exec:mktemp}}\n[sysfs]\n{WRITEBACK} = ${{mask}}\n[sysctl]\nkernel.x=${{tmp}}\nkernel.y=${{no}}\n"
    )
    files = {**SYSCTLS, "/etc/tuned/own-variables.conf": "# cores\nisolated_cores=1\n"}
    files["/sys/devices/system/cpu/online"] = "0-1\n"
    tuned = machine(make_root, {"own": profile}, {**files, WRITEBACK: "00000000,00000001\n"})
    assert (tuned.met, tuned.differing, tuned.unchecked) == (1, (), ("kernel.x", "kernel.y"))
    assert differing(machine(make_root, {"own": profile}, {**files, WRITEBACK: "3\n"})) == {
        WRITEBACK: ("00000001", "3")
    }


def test_settings_of_cpus_are_those_of_the_section_that_has_them(make_root):
    cpu = "/sys/devices/system/cpu"
    files = {
        f"{cpu}/cpu{number}/{name}": text
        for number in range(2)
        for name, text in {"online": "1\n", "power/energy_perf_bias": f"{number * 6}\n"}.items()
    }
    files |= {f"{cpu}/online": "0-1\n", f"{cpu}/possible": "0-1\n"}
    for number, governor in enumerate(("performance", "powersave")):
        policy = {"affected_cpus": str(number), "scaling_driver": "x", "scaling_governor": governor}
        policy["scaling_available_governors"] = "performance powersave"
        files |= {f"{cpu}/cpufreq/policy{number}/{name}": f"{text}\n" for name, text in policy.items()}
    profile = (
        "[fast]\ntype=cpu\ndevices=cpu0\ngovernor=ondemand|performance\nenergy_perf_bias=performance\n"
        "[cpu]\ngovernor=schedutil|powersave\nenergy_perf_bias=normal\n"
    )
    assert machine(make_root, {"own": profile}, files).met == 4
    tuned = machine(make_root, {"own": "[cpu]\ndevices=!cpu0\ngovernor=performance\n"}, files)
    assert differing(tuned) == {"governor": ("performance", "powersave")}
    assert machine(make_root, {"own": "[cpu]\ndevices_udev_regex=x\ngovernor=performance\n"}, files).unchecked


@pytest.mark.parametrize(("available", "met", "unchecked"), [
    ("powersave performance", 1, ()),
    ("schedutil powersave", 0, ()),
    ("performance", 0, ("governor",)),
    (None, 0, ("governor",)),
])  # fmt: skip
def test_the_first_governor_that_the_driver_has_is_wanted(make_root, available, met, unchecked):
    policy = "/sys/devices/system/cpu/cpufreq/policy0"
    files = {f"{policy}/affected_cpus": "0\n", f"{policy}/scaling_governor": "powersave\n"}
    if available:
        files[f"{policy}/scaling_available_governors"] = f"{available}\n"
    tuned = machine(make_root, {"own": "[cpu]\ngovernor=schedutil|ondemand|powersave\n"}, files)
    assert (tuned.met, tuned.unchecked) == (met, unchecked)


@pytest.mark.parametrize(
    "devices", ["devices=${f:cpulist2devs:${isolated}}", "devices=cpu1", "devices_udev_regex=cpu1"]
)
def test_cpus_of_an_unknown_section_are_not_those_of_later_ones(make_root, devices):
    files = {"/sys/devices/system/cpu/online": "0-1\n"}
    for number, governor in enumerate(("powersave", "performance")):
        policy = f"/sys/devices/system/cpu/cpufreq/policy{number}"
        files |= {f"{policy}/affected_cpus": f"{number}\n", f"{policy}/scaling_governor": f"{governor}\n"}
    own = f"[variables]\nisolated=1\n[own]\ntype=cpu\n{devices}\ngovernor=performance\n[cpu]\ngovernor=powersave\n"
    tuned = machine(make_root, {"own": own}, files)
    assert differing(tuned) == {}
    assert tuned.met == (0 if "regex" in devices else 2)


@pytest.mark.parametrize(("include", "loaded", "absent"), [
    ("base${f:regex_search_ternary:${f:exec:uname:-r}:rt:,other}", ("base",), True),
    ("${f:virt_check:base:other}", (), True),
    ("ba${f:strip:se}", (), True),
    ("base;other", ("base", "other"), False),
])  # fmt: skip
def test_what_an_include_names_beside_a_function_is_merged(make_root, include, loaded, absent):
    profiles = {"own": f"[main]\ninclude={include}\n", "base": "[sysctl]\nvm.swappiness=1\n", "other": "[sysctl]\n"}
    tuned = machine(make_root, profiles, {})
    assert tuned.profiles == ("own", *loaded)
    assert tuned.absent == ((include,) if absent else ())
    text = text_of("tuned settings", SimpleNamespace(tuned=tuned))
    assert ("not evaluated: include=" in text) is absent
    assert "no file of" not in text


@pytest.mark.parametrize("value", ["1", "cstate.id_no_zero:1|3"])
def test_a_latency_that_no_file_shows_is_not_checked(make_root, value):
    assert machine(make_root, {"own": f"[cpu]\nforce_latency={value}\n"}, {}).unchecked == ("force_latency",)


def test_pages_that_the_command_line_sets_are_no_setting_of_the_profile(make_root):
    pages = {"/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n"}
    booted = {**pages, "/proc/cmdline": "quiet transparent_hugepage=madvise\n"}
    tuned = machine(make_root, {"own": "[vm]\ntransparent_hugepages=never\n"}, booted)
    assert (tuned.met, tuned.differing, tuned.unchecked) == (0, (), ())


@pytest.mark.parametrize("regex", ["(a+)+b", "(?=x)y", ".*.*x", "[", r"(a)\1", "x" * 400, "${f:exec:x}"])
def test_a_condition_that_cannot_be_decided_leaves_its_settings_unchecked(make_root, regex):
    profile = f"[sysctl]\nvm.swappiness=60\n[a]\ntype=sysctl\nuname_regex={regex}\nvm.swappiness=1\n"
    tuned = machine(make_root, {"own": profile}, {**SYSCTLS, "/proc/sys/kernel/arch": "x86_64\n"}, read=load)
    assert (tuned.met, tuned.differing, tuned.unchecked) == (0, (), ("vm.swappiness",))


def test_only_files_of_tuned_are_read_for_variables(make_root):
    files = {"/etc/shadow": "root=secret\n", "/etc/tuned/own-variables.conf": "password=hunter2\nx=1\n"}
    for path in ("/etc/shadow", "/etc/tuned/../shadow", "/etc/tuned/own-variables.conf"):
        profile = {"/etc/tuned/own/tuned.conf": f"[variables]\ninclude={path}\n", "/etc/tuned/active_profile": "own\n"}
        collector = capture.collect(str(make_root({**BASE, **files, **profile})))
        assert "/etc/shadow" not in collector.files
        assert "hunter2" not in str(collector.files)
    assert "/etc/tuned/own-variables.conf" in collector.masked


@pytest.mark.parametrize(("text", "value"), [
    ("${a}-${b}", "1-3"),
    (r"\${a}", "${a}"),
    ("${gone}", "${gone}"),
    ("${f:cpulist_unpack:${b},0-1}", "0,1,3"),
    ("${f:cpulist_unpack:0-5,^3}", "0,1,2,4,5"),
    ("${f:cpulist_unpack:0xf0,,1}", "1,4,5,6,7"),
    ("${f:cpulist_pack:1,2,3,7}", "1-3,7"),
    ("${f:cpulist2hex:32}", "00000001,00000000"),
    ("${f:cpulist2hex:}", "00000000"),
    ("${f:cpulist_invert:0}", "1,2,3"),
    ("${f:cpulist2hex_invert:0,2-3}", "00000002"),
    ("${f:cpulist_online:2-9}", "2,3"),
    ("${f:cpulist_present:2-9}", "2,3"),
    ("${f:hex2cpulist:00000001,00000003}", "0,1,32"),
    ("${f:strip: a:b }", "ab"),
    (r"${f:strip:a\:b}", "a:b"),
    ("${f:kb2s:4}", "8"),
    ("${f:s2kb:8}", "4"),
    ("x${f:strip:${f:kb2s:1}}y", "x2y"),
])  # fmt: skip
def test_variables_and_functions_are_expanded(text, value):
    assert Variables([("a", "1"), ("b", "3"), ("bad-name", "9")], CPUS).expanded(text) == value


@pytest.mark.parametrize("text", ["${f:exec:ls}", "${c}", "${f:cpulist2hex:x}", "${f:strip:${gone}}", "${f:kb2s:x}"])
def test_what_only_the_machine_can_say_is_unknown(text):
    with pytest.raises(Unknown):
        Variables([("c", "${f:virt_check:a:b}")], CPUS).expanded(text)


def test_variables_that_double_are_bounded():
    pairs = [("a", "x" * 100), *((f"a{n}", f"${{a{n - 1 if n else ''}}}" * 2) for n in range(60))]
    with pytest.raises(Unknown):
        Variables(pairs, CPUS).expanded("${a59}")


def test_conditions_are_searched():
    assert searched("CPU implementer\t: 0x43\nCPU part\t: 0x516", r"CPU part\s+:\s+(0x0?516)|(0x0?af)")
    assert searched("a\nb\nc", "^b$")
    assert not searched("a", "b")


@pytest.mark.parametrize(("path", "wanted", "found", "met"), [
    (WRITEBACK, "00000c00,f000c00f", "000c00,f000c00f", True),
    (WRITEBACK, "3,1", "1,3", False),
    ("/proc/sys/vm/swappiness", "010", "10", False),  # the kernel reads 8
    ("/proc/sys/vm/swappiness", "0x0a", "10", True),
    ("/proc/sys/kernel/core_pattern", "|/bin/dump %P", "|/bin/dump %P", True),
    ("/proc/sys/net/ipv4/ip_local_reserved_ports", "8080-8081", "8080,8081", True),
    ("/sys/module/x/parameters/y", "1", "Y", True),
    ("/sys/devices/system/cpu/cpu0/power/energy_perf_bias", "powersave|power", "15", True),
])  # fmt: skip
def test_values_of_profiles_are_compared_as_in_an_audit(path, wanted, found, met):
    assert is_met(wanted, found, kind_of_file(path)) is met


def test_settings_are_read_as_by_configparser():
    text = "[main]\nsummary=a\n b\n\n  c\ninclude = x # y\n[s]\na=1\n#b=2\n;c=3\nd = e=f#g\n"
    assert list(settings_of(text)) == [
        ("main", "", ""),
        ("main", "summary", "a\nb\nc"),
        ("main", "include", "x"),
        ("s", "", ""),
        ("s", "a", "1"),
        ("s", "d", "e=f#g"),
    ]


def test_a_variable_of_a_later_profile_keeps_its_place_or_is_put_first():
    files = {
        "/etc/tuned/a/tuned.conf": "[variables]\nx=1\ny=2\n",
        "/etc/tuned/b/tuned.conf": "[variables]\nprepend=1\nz=3\nx=4\n",
        "/etc/tuned/c/tuned.conf": "[variables]\nreplace=1\nz=5\n",
    }
    assert Merged(files.get, "a b").variables == [("z", "3"), ("x", "4"), ("y", "2")]
    assert Merged(files.get, "a b c").variables == [("z", "5")]
