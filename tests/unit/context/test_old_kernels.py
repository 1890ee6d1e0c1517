# SPDX-License-Identifier: Apache-2.0
"""What kernels print that no captured machine here runs: masks, missing files, other architectures' /proc/cpuinfo."""

import struct

from calibration.context.loader import load

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"


def test_online_files_of_linux_2_6(make_root):
    files = {
        "/proc/cmdline": "ro isolcpus=2-99\n",
        "/proc/meminfo": "MemTotal:   4096 kB\n",
        f"{NODE}/node0/cpumap": "00000000,00000003\n",
        f"{NODE}/node1/cpumap": "00000000,0000000c\n",
        f"{NODE}/node0/meminfo": "\nNode 0 MemTotal:  1024 kB\nNode 0 MemFree: 1 kB\n",
    }
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings"] = "00000000,00000005\n" if cpu in (0, 2) else "a\n"
        files[f"{CPU}/cpu{cpu}/topology/core_id"] = f"{cpu % 2}\n"
    files[f"{CPU}/cpu3/online"] = "0\n"
    for name, text in (("level", "1"), ("type", "Data"), ("size", "32K"), ("shared_cpu_map", "00000000,0000000d")):
        files[f"{CPU}/cpu0/cache/index0/{name}"] = text + "\n"
    context = load(make_root(files))
    assert context.online_cpus == (0, 1, 2)
    assert [node.cpus for node in context.nodes] == [(0, 1), (2,)]
    assert [node.memory_bytes for node in context.nodes] == [1024 * 1024, None]
    assert context.distances is None
    assert context.isolated_cpus == (2,)
    assert context.isolation.isolated_source == "command line"
    assert context.topology.threads_per_core == 2
    assert context.caches[0].size_bytes == 32768
    assert context.caches[0].line_bytes is None
    assert context.caches[0].shared_cpus == (0, 2)
    assert context.unreadable == ()


def test_isolcpus_flags_decide_isolation(make_root):
    base = {f"{CPU}/online": "0-3\n", f"{CPU}/possible": "0-3\n"}
    for text, isolated in (
        ("isolcpus=managed_irq,1-2", ()),
        ("isolcpus=domain,managed_irq,1-2", (1, 2)),
        ("isolcpus=0-3:1/2", (0, 2)),
        ("isolcpus=2-N", (2, 3)),
    ):
        assert load(make_root({**base, "/proc/cmdline": text})).isolated_cpus == isolated
    kernel = {**base, "/proc/cmdline": "isolcpus=1-2", f"{CPU}/isolated": "\n", f"{CPU}/nohz_full": "(null)\n"}
    context = load(make_root(kernel))
    assert context.isolated_cpus == context.isolation.nohz_full == ()
    assert context.isolation.isolated_source == "kernel"


def test_repeated_isolcpus_follow_the_kernel_version(make_root):
    base = {f"{CPU}/online": "0-3\n", "/proc/cmdline": "isolcpus=1 isolcpus=2"}
    assert load(make_root({**base, "/proc/sys/kernel/osrelease": "6.1.0"})).isolated_cpus == (1,)
    assert load(make_root({**base, "/proc/sys/kernel/osrelease": "4.15.0-20-generic"})).isolated_cpus == (1,)
    assert load(make_root({**base, "/proc/sys/kernel/osrelease": "4.14.336"})).isolated_cpus == (2,)
    assert load(make_root({**base, "/proc/sys/kernel/osrelease": "4.4.0-72-generic"})).isolated_cpus == (2,)


def test_without_numa_one_node_has_everything(make_root):
    context = load(make_root({f"{CPU}/online": "0-1\n", "/proc/meminfo": "MemTotal: 2048 kB\n"}))
    assert [(n.id, n.cpus, n.memory_bytes) for n in context.nodes] == [(0, (0, 1), 2048 * 1024)]
    assert context.distances == ((10,),)


def test_node_numbers_with_gaps_and_nodes_that_went_offline(make_root):
    files = {f"{CPU}/online": "0-1\n", f"{NODE}/online": "0,8,252\n", f"{NODE}/possible": "0-255\n"}
    for node, cpus, memory in ((0, "0", 5), (8, "1", 5), (252, "", 7)):
        files[f"{NODE}/node{node}/cpulist"] = cpus + "\n"
        files[f"{NODE}/node{node}/meminfo"] = f"Node {node} MemTotal: {memory} kB\n"
        files[f"{NODE}/node{node}/distance"] = {0: "10 40 80", 8: "40 10 80", 252: "80 80 10"}[node] + "\n"
    context = load(make_root(files))
    assert [node.id for node in context.nodes] == [0, 8, 252]
    assert context.distances == ((10, 40, 80), (40, 10, 80), (80, 80, 10))
    assert context.memory_only_nodes == (252,)

    files[f"{NODE}/node8/distance"] = "40 10\n"
    context = load(make_root(files))
    assert context.distances is None
    assert "2 distances for 3 online nodes" in next(item.reason for item in context.unreadable)

    files[f"{NODE}/possible"] = "0,4,8,252\n"
    for node, row in ((0, "10 99 40 80"), (8, "40 99 10 80"), (252, "80 99 80 10")):
        files[f"{NODE}/node{node}/distance"] = row + "\n"
    assert load(make_root(files)).distances == ((10, 40, 80), (40, 10, 80), (80, 80, 10))

    gone = {
        f"{CPU}/online": "0\n",
        f"{NODE}/online": "1\n",
        f"{NODE}/possible": "0-1\n",
        f"{NODE}/node1/cpulist": "0\n",
        f"{NODE}/node1/distance": "21 10\n",
    }
    assert load(make_root(gone)).distances == ((10,),)


def test_inactive_file_pages_are_available(make_root):
    files = {
        "/proc/meminfo": "MemTotal: 64 kB\nMemFree: 8 kB\nMemAvailable: 16 kB\nInactive(file): 4 kB\n",
        f"{NODE}/node0/meminfo": "Node 0 MemFree: 5 kB\nNode 0 Inactive(file): 3 kB\nNode 0 Inactive(anon): 9 kB\n",
        f"{NODE}/node1/meminfo": "Node 1 MemTotal: 5 kB\n",
    }
    assert [node.available_bytes for node in load(make_root(files)).nodes] == [8 * 1024, None]
    assert load(make_root({"/proc/meminfo": files["/proc/meminfo"]})).nodes[0].available_bytes == 12 * 1024


def test_memory_only_nodes_as_reported(make_root):
    files = {f"{CPU}/online": "0\n", f"{NODE}/online": "0-2\n", f"{NODE}/node0/cpulist": "0\n"}
    for node in (1, 2):
        files[f"{NODE}/node{node}/cpulist"] = "\n"
    assert load(make_root(files)).memory_only_nodes == ()
    files[f"{NODE}/has_memory"] = "0,2\n"
    assert load(make_root(files)).memory_only_nodes == (2,)
    files[f"{NODE}/node1/meminfo"] = "Node 1 MemTotal: 0 kB\n"
    assert load(make_root(files)).memory_only_nodes == (2,)


def test_nodes_that_share_some_of_their_cpus_are_noted(make_root):
    files = {f"{CPU}/online": "0-2\n", f"{NODE}/node0/cpulist": "0-1\n", f"{NODE}/node1/cpulist": "1-2\n"}
    context = load(make_root(files))
    assert [(item.path, item.reason.split(":")[0]) for item in context.unreadable] == [
        (f"{NODE}/node1/cpulist", "contradictory")
    ]
    assert context.cpus_by_node == {0: (0, 1), 1: (2,)}
    assert context.emulated_nodes == {}


S390_CPUINFO = """\
vendor_id       : IBM/S390
# processors    : 2
features\t: esan3 zarch stfle
cache0          : level=1 type=Data scope=Private size=128K line_size=256 associativity=8
cache1          : level=3 type=Unified scope=Shared size=65536K line_size=256 associativity=16
processor 0: version = FF,  identification = 000000,  machine = 2964
processor 1: version = FF,  identification = 000000,  machine = 2964
"""


def test_the_cache_rows_of_s390x(make_root):
    files = {"/proc/cpuinfo": S390_CPUINFO}
    for cpu in (0, 1):
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = "0-1\n"
        files[f"{CPU}/cpu{cpu}/online"] = "1\n"
    context = load(make_root(files))
    first, second = context.caches
    assert (first.level, first.type, first.size_bytes, first.line_bytes) == (1, "Data", 131072, 256)
    assert first.shared_cpus == (0, 1)
    assert (second.level, second.shared_cpus) == (3, None)
    assert context.processor.architecture == "s390x"
    assert context.processor.models[0].model == "2964"


def test_power_without_topology_uses_the_device_tree(make_root):
    base = "/proc/device-tree/cpus/PowerPC,BE@0"
    files = {
        "/proc/cpuinfo": "processor\t: 0\ncpu\t\t: Cell\nrevision\t: 16.0\n\nprocessor\t: 1\ncpu\t\t: Cell\n\n"
        "timebase\t: 79800000\nplatform\t: PS3\n",
        f"{base}/ibm,ppc-interrupt-server#s": struct.pack(">II", 0, 1),
        f"{base}/d-cache-size": struct.pack(">I", 32768),
        f"{base}/d-cache-line-size": struct.pack(">I", 128),
    }
    context = load(make_root(files))
    assert context.cpus.online_source == "/proc/cpuinfo"
    assert context.topology.threads_per_core == 2
    assert [(c.level, c.type, c.size_bytes, c.line_bytes, c.shared_cpus) for c in context.caches] == [
        (1, "Data", 32768, 128, (0, 1))
    ]


def test_x86_without_topology_uses_cpuinfo(make_root):
    block = "processor : {0}\nvendor_id : GenuineIntel\ncpu family : 15\nphysical id : 0\nsiblings : 2\ncore id : 0\n"
    rest = "cpu cores : 1\nflags : fpu lm ht\n\n"
    context = load(make_root({"/proc/cpuinfo": "".join(block.format(n) + rest for n in (0, 1))}))
    assert context.topology.threads_per_core == 2
    assert context.processor.architecture == "x86_64"


def test_two_models_of_arm_cores(make_root):
    block = "processor\t: {}\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
    block += "CPU variant\t: 0x{}\nCPU part\t: {}\nCPU revision\t: 1\n\n"
    text = block.format(0, 0, "0xd0b") + block.format(1, 1, "0xd05") + block.format(2, 1, "0xfff")
    models = load(make_root({"/proc/cpuinfo": text})).processor.models
    assert [(m.name, m.stepping, m.cpus) for m in models] == [
        ("Cortex-A76", "r0p1", (0,)),
        ("Cortex-A55", "r1p1", (1,)),
        (None, "r1p1", (2,)),
    ]


def test_frequency_and_idle_states(make_root):
    policy = f"{CPU}/cpufreq/policy0"
    idle = f"{CPU}/cpu0/cpuidle/state1"
    context = load(
        make_root(
            {
                f"{CPU}/online": "0-1\n",
                f"{policy}/affected_cpus": "0 1\n",
                f"{policy}/scaling_driver": "intel_pstate\n",
                f"{policy}/scaling_governor": "performance\n",
                f"{policy}/cpuinfo_min_freq": "800000\n",
                f"{policy}/cpuinfo_max_freq": "3700000\n",
                f"{CPU}/intel_pstate/no_turbo": "1\n",
                f"{CPU}/intel_pstate/status": "active\n",
                f"{CPU}/cpuidle/current_driver": "intel_idle\n",
                f"{idle}/name": "C1\n",
                f"{idle}/disable": "1\n",
                f"{idle}/latency": "2\n",
                f"{CPU}/cpu1/cpuidle/state1/disable": "0\n",
                f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "3\n",
                f"{CPU}/cpu0/topology/core_cpus_list": "0-1\n",
            }
        )
    )
    frequency = context.frequency
    assert (frequency.drivers, frequency.governors, frequency.turbo) == (("intel_pstate",), ("performance",), False)
    assert (frequency.hardware_min_hz, frequency.hardware_max_hz) == (800_000_000, 3_700_000_000)
    assert frequency.policies[0].cpus == (0, 1)
    state = context.idle.states[0]
    assert (state.name, state.latency_us, state.residency_us, state.disabled_cpus) == ("C1", 2, None, (0,))
    assert context.throttling.core_events == 3


def test_policies_of_several_cpus_are_read_once(make_root):
    governors = ("userspace", "powersave", "ondemand", "schedutil", "performance", "conservative")
    files = {f"{CPU}/online": f"0-{len(governors)}\n"}
    for cpu, governor in enumerate(governors, 1):
        policy = f"{CPU}/cpu{cpu}/cpufreq"
        files |= {f"{policy}/scaling_governor": f"{governor}\n", f"{policy}/affected_cpus": f"{cpu}\n"}
    files[f"{CPU}/cpu1/cpufreq/affected_cpus"] = "0 1\n"
    files |= {path.replace("cpu1", "cpu0"): text for path, text in files.items() if "/cpu1/" in path}
    frequency = load(make_root(files)).frequency
    assert [policy.cpus for policy in frequency.policies] == [(0, 1), *((cpu,) for cpu in range(2, 7))]
    assert frequency.governors == tuple(sorted(governors))


def test_kernel_threads_that_borrow_memory_are_kernel_threads(make_root):
    status = "State:\tS (sleeping)\nVmSize:\t100 kB\nCpus_allowed_list:\t1\n"
    files = {
        f"{CPU}/online": "0-1\n",
        f"{CPU}/isolated": "1\n",
        "/proc/7/task/7/status": f"Name:\tkvm\nKthread:\t1\n{status}",
        "/proc/8/task/8/status": f"Name:\tsleep\nKthread:\t0\n{status}",
    }
    threads = load(make_root(files)).isolation.threads
    assert [(thread.name, thread.kernel) for thread in threads] == [("kvm", True), ("sleep", False)]


def test_interrupts_that_may_reach_isolated_cpus(make_root):
    context = load(
        make_root(
            {
                f"{CPU}/online": "0-3\n",
                f"{CPU}/isolated": "2-3\n",
                "/proc/interrupts": "      CPU0 CPU1 CPU2 CPU3\n"
                " 24:  1 2 3 4  PCI-MSI-edge  eth0\n 25: 0 0 0 0 x y\nNMI: 0 0 0 0\n",
                "/proc/irq/24/smp_affinity_list": "0-3\n",
                "/proc/irq/24/effective_affinity_list": "3\n",
                "/proc/irq/25/smp_affinity": "3\n",
                "/proc/irq/default_smp_affinity": "3\n",
            }
        )
    )
    assert [(i.irq, i.name, i.isolated_cpus) for i in context.isolation.interrupts] == [(24, "PCI-MSI-edge eth0", (3,))]
    assert context.isolation.threads is None
    assert context.isolation.default_irq_affinity == (0, 1)


def test_guests_and_bare_metal(make_root):
    online = {f"{CPU}/online": "0\n"}
    x86 = "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nflags : fpu lm{}\n"
    cases = (
        ({"/proc/cpuinfo": x86.format(" hypervisor"), "/sys/hypervisor/type": "xen\n"}, (True, "Xen", "full")),
        ({"/sys/hypervisor/type": "xen\n", "/sys/class/dmi/id/sys_vendor": "Amazon EC2"}, (True, "Xen", None)),
        (
            {"/proc/cpuinfo": x86.format(" hypervisor"), "/sys/class/dmi/id/sys_vendor": "VMware, Inc."},
            (True, "VMware", "full"),
        ),
        ({"/proc/cpuinfo": x86.format(""), "/sys/class/dmi/id/sys_vendor": "Dell Inc."}, (False, None, None)),
        ({"/proc/cpuinfo": x86.format(""), "/sys/class/dmi/id/sys_vendor": "Amazon EC2"}, (None, None, None)),
        ({"/proc/cpuinfo": x86.format("")}, (None, None, None)),
        ({"/proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, (True, "KVM", "para")),
        ({"/proc/device-tree/ibm,partition-no": b"\0\0\0\5"}, (True, "IBM PowerVM", "para")),
        ({"/proc/sysinfo": "LPAR Number: 1\n"}, (True, "IBM PR/SM", "full")),
        ({"/proc/sysinfo": "LPAR Number: 1\nVM00 Control Program: z/VM 6.1.0\n"}, (True, "z/VM", "full")),
    )
    for files, expected in cases:
        found = load(make_root({**online, **files})).virtualization
        assert (found.guest, found.vendor, found.type) == expected, files
        assert bool(found.evidence) == (expected[0] is not None)
