# SPDX-License-Identifier: Apache-2.0
"""Facts of a machine, one row each: how it is read, shown and compared.

From the rows are made the machine on a page and on the screen, the facts of a run document, in what two nights or two
SUTs differ, and what prevents a run from continuing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from calibration.base.comparisons import BOOTED_FROM, Kind, command_line, cpu_set, set_of, words
from calibration.base.cpulists import format_cpulist
from calibration.base.grouping import grouped
from calibration.base.text import sentence_case, some_of
from calibration.base.units import plural, size

if TYPE_CHECKING:  # comparing facts needs no models, whose import takes half a second
    from calibration.context.model import Context, CpuModel, Dimm, IdleState, Node, Thread, Uncore

NOT_KNOWN: Final = "not known"
"""Text of an unknown fact."""

NONE: Final = "none"
"""Text of what a machine does not have."""

CLOCK: Final = "measured clock"
"""Name of a fact that is not read from a machine, but a metric of it."""

BUILD_DIGITS: Final = 12
"""First digits of the SHA-256 of sutprobe; enough to tell two builds apart."""

MAX_LISTED: Final = 4
"""Settings named that differ from a profile."""

GIB: Final = 1 << 30


Aspect = Literal["caches", "clock", "interconnect", "interruptions", "memory", "threads", "time", "turbo"]
"""What a metric depends on: facts of a machine change it through these.

``caches``: their size and allocation. ``clock``: counted in cycles of a core. ``interconnect``: what links cores and
nodes. ``interruptions``: whatever else runs on a core. ``memory``: its channels, pages and distance. ``threads``: how
many CPUs take part, or share a core. ``time``: an interval that sleep or a mitigation lengthens. ``turbo``: the power
that idle cores leave to others.
"""


class Effect(NamedTuple):
    """How a change of a fact can explain metrics that depend on one of ``aspects``.

    ``rank`` is its precedence among suspects, from 0, another machine or sutprobe, to 7, which may be behind anything;
    of equal ones the fact of the earlier row is suspected first.
    """

    rank: int
    aspects: frozenset[Aspect]
    reason: str


def _effect(rank: int, reason: str, *aspects: Aspect) -> tuple[Effect]:
    """Return an effect on *aspects*, without any on all."""
    return (Effect(rank, frozenset(aspects or get_args(Aspect)), reason),)


class Fact(NamedTuple):
    """A fact: its name, its text on a machine (None if unknown), how two such texts are compared, and its effects.

    Without a ``kind`` it is not compared: it is volatile, or equal machines always differ in it. If it is ``shown``
    where found, its text is "none" where there is nothing. ``fixed``: no run changes it and it applies to all metrics,
    so that another value prevents a run from continuing.
    """

    name: str
    read: Callable[[Context], str | None]
    kind: Kind | None = words
    shown: Literal["always", "found", "never"] = "always"
    label: str = ""
    fixed: bool = False
    effects: tuple[Effect, ...] = ()


def _words(texts: Iterable[str | None], between: str = " ") -> str | None:
    """Return the known ones of *texts*, each once; None without any."""
    return between.join(dict.fromkeys(text.strip() for text in texts if text and text.strip())) or None


def _cpus(cpus: Iterable[int]) -> str:
    return format_cpulist(cpus) or NONE


def _switch(state: int | None) -> str | None:
    return None if state is None else {0: "off", 1: "on"}.get(state, f"mode {state}")


def _system(context: Context) -> str | None:
    firmware = context.firmware
    return _words((firmware.system_vendor, firmware.product_name, firmware.product_version))


def _board(context: Context) -> str | None:
    firmware = context.firmware
    return _words((firmware.board_vendor, firmware.board_name, firmware.board_version))


def _serials(context: Context) -> str:
    firmware = context.firmware
    known = {"system": firmware.system_serial, "board": firmware.board_serial, "chassis": firmware.chassis_serial}
    return ", ".join(f"{name} {serial}" for name, serial in known.items() if serial) or NONE


def _microcode(context: Context) -> str | None:
    return _by_model(context, lambda model: model.microcode)


def _bios(context: Context) -> str | None:
    firmware = context.firmware
    return _words((firmware.bios_vendor, firmware.bios_version, firmware.bios_date))


def _kernel(context: Context) -> str | None:
    capture = context.capture
    return _words((capture.kernel_name, capture.kernel_release, capture.kernel_version, capture.machine))


def _kernel_options(context: Context) -> str | None:
    built = context.kernel.build
    if built is None:
        return None
    options = (name if value == "y" else f"{name}: {value}" for name, value in sorted(built.options.items()))
    return "; ".join((f"SHA-256: {built.sha256[:BUILD_DIGITS]}", *options))


def _kernel_build(context: Context) -> str | None:
    built = context.kernel.build
    return None if built is None else f"SHA-256 {built.sha256[:BUILD_DIGITS]} ({built.path})"


def _logged_kinds(context: Context) -> str | None:
    return _listed(None if context.kernel.log is None else context.kernel.log.errors)


def _logged(context: Context) -> str | None:
    """Return how many messages of each kind of error are in the kernel's log, and where the errors were."""
    log = context.kernel.log
    if log is None or not log.errors:
        return None if log is None else NONE
    texts = (
        f"{found.count} x {kind}{f' ({some_of(found.places, MAX_LISTED)})' if found.places else ''}"
        for kind, found in log.errors.items()
    )
    start = f"; before {log.first_s:.0f} s after boot unknown" if log.first and log.first_s is not None else ""
    return f"{', '.join(texts)}{start}"


def _bmc_firmware(context: Context) -> str | None:
    return NONE if context.bmc is None else context.bmc.firmware


def _bmc_alarms(context: Context) -> str | None:
    return NONE if context.bmc is None else _listed(context.bmc.alarms)


def _bmc_events(context: Context) -> str | None:
    return NONE if context.bmc is None else _listed(context.bmc.events)


def _listed(found: Iterable[str] | None) -> str | None:
    return None if found is None else "; ".join(sorted(found)) or NONE


def _command_line(context: Context) -> str | None:
    if context.cmdline is None:
        return None
    parameters = (
        parameter.name if parameter.value is None else f"{parameter.name}={parameter.value}"
        for parameter in context.cmdline.parameters
        if parameter.name not in BOOTED_FROM
    )
    return " ".join((*parameters, *(("--", *context.cmdline.init_arguments) if context.cmdline.init_arguments else ())))


def _virtualization(context: Context) -> str | None:
    virtual = context.virtualization
    if not virtual.guest:
        return None if virtual.guest is None else NONE
    kind = f" ({virtual.type} virtualisation)" if virtual.type else ""
    return f"guest of {virtual.vendor or 'an unnamed hypervisor'}{kind}"


def _container(context: Context) -> str:
    found = context.confinement
    return f"{found.container} ({'; '.join(found.evidence)})" if found.container else NONE


def _limits(context: Context) -> str:
    from calibration.context.confinement import limits  # noqa: PLC0415 - with it comes all that reads a capture

    return ", ".join(limits(context)) or NONE


def _user_namespace(context: Context) -> str:
    return "its own: its capabilities do not count for the machine" if context.confinement.user_namespace else NONE


def _by_model(context: Context, text_of: Callable[[CpuModel], str | None]) -> str | None:
    """Return a text of each model of processor, with its CPUs if there are several."""
    cpus: dict[str, list[int]] = {}
    for model in context.processor.models:
        if text := text_of(model):
            cpus.setdefault(text, []).extend(model.cpus)
    return "; ".join(_of_some(text, cpus[text], cpus) for text in cpus) or None


def _processor(context: Context) -> str | None:
    def text_of(model: CpuModel) -> str | None:
        numbers = {"family": model.family, "model": model.model, "stepping": model.stepping}
        ids = (f"{name} {value}" for name, value in numbers.items() if value is not None)
        return _words((model.name, model.vendor, context.processor.architecture, *ids), ", ")

    return _by_model(context, text_of) or context.processor.architecture


def _allowed(context: Context) -> str:
    allowed = context.cpus.allowed
    return NONE if allowed is None or set(allowed) == set(context.cpus.online) else _cpus(allowed)


def _cores(context: Context) -> str | None:
    topology = context.topology
    threads = Counter(len(core.cpus) for core in topology.cores)
    counted = (f"{threads[count]} with {plural(count, 'thread')}" for count in sorted(threads, reverse=True))
    packages = topology.packages
    return _words((*counted, f"in {plural(packages, 'package')}" if packages else None), ", ")


def _isolated(context: Context) -> str:
    return f"{_cpus(context.isolation.cpus)} (tickless: {_cpus(context.isolation.nohz_full)})"


def _isolated_at_boot(context: Context) -> str:
    return _sourced(context.isolation.isolated, context.isolation.isolated_source)


def _tickless(context: Context) -> str:
    return _sourced(context.isolation.nohz_full, context.isolation.nohz_full_source)


def _sourced(cpus: tuple[int, ...], source: str | None) -> str:
    return f"{_cpus(cpus)} (by the {source})" if cpus and source else _cpus(cpus)


def _cpusets(context: Context) -> str:
    """Return what cpusets isolate, and of what that cannot be seen."""
    from calibration.context.model import UNSEEN_GROUPS  # noqa: PLC0415 - as above

    isolated, unknown = context.isolation.cpuset_isolated, context.isolation.cpuset_unknown
    unseen = f"unknown for CPUs {_cpus(unknown)}: {UNSEEN_GROUPS}" if unknown else None
    return _words((_cpus(isolated) if isolated else None, unseen), "; ") or NONE


def _offloaded(context: Context) -> str | None:
    """Return the CPUs without RCU callbacks."""
    isolation = context.isolation
    unknown = isolation.rcu_nocbs_source is None
    return None if unknown else _sourced(isolation.rcu_nocbs, isolation.rcu_nocbs_source)


def _managed(context: Context) -> str:
    return _cpus(context.isolation.managed_irq)


def _notes(context: Context) -> str:
    return ". ".join(note.sentence for note in context.isolation.notes) or NONE


def _interrupts(context: Context) -> str | None:
    return _on_isolated(context, context.isolation.interrupts)


def _on_isolated(context: Context, found: Sequence[object] | None) -> str | None:
    if not context.isolation.cpus:
        return "no CPU is isolated"
    return None if found is None else str(len(found))


def _threads(context: Context) -> str | None:
    found = context.isolation.threads
    if found is None:
        return _on_isolated(context, found)
    inside = context.confinement.container is not None
    return f"{len(found)}{' of the container' if inside else ''}, {_movable(found)} of them movable"


def _tickless_interrupts(context: Context) -> str:
    found = context.isolation.tickless_interrupts
    return NONE if found is None else str(len(found))


def _tickless_threads(context: Context) -> str:
    found = context.isolation.tickless_threads
    return NONE if found is None else str(_movable(found))


def _movable(threads: Iterable[Thread]) -> int:
    return sum(not thread.per_cpu_kernel for thread in threads)


def _frequency_driver(context: Context) -> str | None:
    return _words((*context.frequency.drivers, context.frequency.pstate_status), ", ")


def _frequency_limits(context: Context) -> str | None:
    limits = ((policy.min_hz, policy.max_hz) for policy in context.frequency.policies)
    return _words((_range(lowest, highest) for lowest, highest in limits), ", ")


def _hardware_frequencies(context: Context) -> str | None:
    return _range(context.frequency.hardware_min_hz, context.frequency.hardware_max_hz)


def _range(lowest_hz: int | None, highest_hz: int | None) -> str | None:
    if lowest_hz is None or highest_hz is None:
        return None
    return f"{lowest_hz / 1e9:g} to {highest_hz / 1e9:g} GHz"


def _base_frequency(context: Context) -> str | None:
    """Return the base frequency of the CPUs: SST-BF gives some a higher one, a level of SST-PP all of them another."""
    cpus: dict[int, list[int]] = {}
    for policy in context.frequency.policies:
        if policy.base_hz is not None:
            cpus.setdefault(policy.base_hz, []).extend(policy.cpus)
    return "; ".join(_of_some(f"{hz / 1e9:g} GHz", cpus[hz], cpus) for hz in sorted(cpus)) or None


def _of_some(text: str, cpus: Iterable[int], among: Sized) -> str:
    """Return *text*, with the CPUs that it is about if it is one of several."""
    return f"{text} on CPUs {format_cpulist(cpus)}" if len(among) > 1 else text


def _uncore(context: Context) -> str:
    """Return groups of uncores with the same limits, and where they are if there are several groups."""
    groups = grouped((_uncore_limits(uncore), _uncore_place(uncore)) for uncore in context.frequency.uncore)
    alike = len(groups) == 1
    return "; ".join(limits if alike else f"{limits} in {', '.join(at)}" for limits, at in groups.items()) or NONE


def _uncore_limits(uncore: Uncore) -> str:
    limits = _range(uncore.min_hz, uncore.max_hz) or NOT_KNOWN
    initial = _range(uncore.initial_min_hz, uncore.initial_max_hz)
    floor, low, high = uncore.floor_hz, uncore.low_load_percent, uncore.high_load_percent
    control = (
        None if initial in (None, limits) else f"{initial} at boot",
        f"from {floor / 1e9:g} GHz below {low} % load" if floor and low else None,
        f"in steps above {high} % load" if high else None,
    )
    return _words((limits, *control), ", ") or NOT_KNOWN


def _uncore_place(uncore: Uncore) -> str:
    numbers = {"package": uncore.package, "die": uncore.die, "domain": uncore.domain, "cluster": uncore.cluster}
    place = " ".join(f"{name} {number}" for name, number in numbers.items() if number is not None)
    return f"{place} ({', '.join(uncore.agents.split())})" if uncore.agents else place


def _idle(context: Context) -> str | None:
    def text_of(state: IdleState) -> str:
        off = f" (off on CPUs {format_cpulist(state.disabled_cpus)})" if state.disabled_cpus else ""
        return f"{state.name}{off}"

    idle = context.idle
    driver = {"driver": idle.driver, "governor": idle.governor}
    chosen = ", ".join(f"{name} {value}" for name, value in driver.items() if value)
    return _words((", ".join(map(text_of, idle.states)), chosen), "; ")


def _node(node: Node) -> str:
    return f"{node.id}: CPUs {format_cpulist(node.cpus)}{'' if node.memory_bytes else ', without memory'}"


def _memory(node: Node) -> str:
    """Return the memory of a node, rounded: the kernel's own share differs from version to version."""
    gib = (node.memory_bytes or 0) / GIB
    text = NOT_KNOWN if node.memory_bytes is None else f"{gib:.0f} GiB" if gib >= 10 else f"{gib:.1f} GiB"
    return f"{node.id}: {text}"


def _distances(context: Context) -> str | None:
    rows = context.distances
    return None if rows is None else "; ".join(" ".join(map(str, row)) for row in rows)


def _total_memory(context: Context) -> str | None:
    return None if context.memory.total_bytes is None else size(context.memory.total_bytes)


def _dimms(context: Context) -> str | None:
    """Return groups of equal memory slots: how many, what, and where."""
    slots = grouped((_dimm(dimm), _words((dimm.bank, dimm.locator)) or NOT_KNOWN) for dimm in context.firmware.dimms)
    return "; ".join(f"{len(names)} x {what} in {', '.join(names)}" for what, names in slots.items()) or None


def _dimm(dimm: Dimm) -> str:
    if dimm.size_bytes == 0:
        return "empty"
    size_text = "size unknown" if dimm.size_bytes is None else size(dimm.size_bytes)
    speed = None if dimm.configured_mt_s is None else f"at {dimm.configured_mt_s} MT/s"
    ranks = None if dimm.ranks is None else plural(dimm.ranks, "rank")
    return _words((_words((size_text, dimm.type, speed)), ranks), ", ") or NOT_KNOWN


def dimm_groups(text: str, _last: int | None = None) -> Hashable:
    """Return groups of equal memory slots, in which their order means nothing: SMBIOS tables differ in it."""
    groups = (group.partition(" in ") for group in text.split(";"))
    return frozenset((what.strip(), frozenset(name.strip() for name in names.split(","))) for what, _, names in groups)


def _huge_pages(context: Context) -> str | None:
    pools = {pool.size_bytes: pool.persistent for pool in context.memory.hugepages}
    reserved = ", ".join(f"{number} of {size(size_bytes)}" for size_bytes, number in pools.items() if number)
    return reserved or (None if set(pools.values()) <= {None} else NONE)


def _transparent(context: Context) -> str | None:
    pages = context.memory.transparent_hugepages
    return _words((pages.words, f"defrag {pages.defrag}" if pages.defrag else None), ", ")


def _real_time(context: Context) -> str | None:
    runtime_us, period_us = context.kernel.sched_rt_runtime_us, context.kernel.sched_rt_period_us
    if runtime_us is None or period_us is None:
        return None
    return "off" if runtime_us < 0 else f"{runtime_us} µs of every {period_us} µs"


def _load(context: Context) -> str | None:
    return _words((f"{average:.2f}" for average in context.kernel.load_average or ()), ", ")


def _vulnerabilities(context: Context) -> str | None:
    states = sorted(context.mitigations.items())
    affected = (f"{name}: {state}" for name, state in states if state != "Not affected")
    return "; ".join(affected) or (NONE if states else None)


def _devices(context: Context, kind: str) -> str | None:
    """Return the devices of *kind* in groups of equal ones, without what changes from hour to hour: affinity, state.

    Nor with the speed of an accelerator's link, which power management lowers.
    """
    if context.devices is None:
        return None
    groups: dict[str, list[str]] = {}
    for device in context.devices:
        if device.kind == kind:
            link = device.link
            what = (
                *(device.model, device.id, device.driver, device.driver_version),
                None if device.firmware is None else f"firmware {device.firmware}",
                None if device.node is None else f"on node {device.node}",
                None if link is None else f"x{link.width}",
                None if link is None or kind == "accelerator" else f"at {link.speed_gt_s or NOT_KNOWN} GT/s",
                f"{device.virtual_functions} virtual functions" if device.virtual_functions else None,
            )
            groups.setdefault(" ".join(filter(None, what)), []).append(device.address)
    return "; ".join(f"{len(found)} x {what} at {', '.join(found)}" for what, found in groups.items()) or NONE


def _emulated(context: Context) -> str:
    parts = (
        f"{_cpus(nodes)} are parts of one node: each lists CPUs {_cpus(cpus)}, which are measured as those of node "
        f"{nodes[0]}"
        for cpus, nodes in context.emulated_nodes.items()
    )
    return "; ".join(parts) or NONE


def _memory_side_caches(context: Context) -> str:
    from calibration.context.hmat import memory_side_caches_text  # noqa: PLC0415 - as above

    return memory_side_caches_text(context) or NONE


def _rated(context: Context) -> str:
    from calibration.context.hmat import rated_accesses_text  # noqa: PLC0415 - as above

    return rated_accesses_text(context) or NONE


def _rated_regions(context: Context) -> str:
    from calibration.context.hmat import rated_regions_text  # noqa: PLC0415 - as above

    return rated_regions_text(context) or NONE


def _cxl(context: Context) -> str:
    cxl = context.cxl
    if cxl is None:
        return NONE
    sizes = Counter((device.volatile_bytes or 0) + (device.persistent_bytes or 0) for device in cxl.devices)
    texts = [f"{number} x {size(size_bytes)}" for size_bytes, number in sorted(sizes.items())]
    texts += [
        f"{region.name} of {region.ways or NOT_KNOWN} devices"
        f"{f', {size(region.cache_bytes)} of it a cache' if region.cache_bytes else ''}"
        for region in cxl.regions
    ]
    return ", ".join((*texts, *(f"node {node}" for node in cxl.nodes))) or NONE


def _weights(context: Context) -> str:
    found = context.interleaving
    if found is None or len(found.weights) < 2:
        return NONE
    listed = ", ".join(f"node {node}: {weight}" for node, weight in sorted(found.weights.items()))
    return f"{listed}{' (automatic)' if found.automatic else ''}"


def _allocation(context: Context) -> str:
    from calibration.context.resctrl import allocation_text, unchecked_text  # noqa: PLC0415 - as above

    if context.resctrl is None:
        return NONE
    narrowed = (
        f"{group.name or 'default'} on CPUs {format_cpulist(group.cpus)}: {allocation_text(group)}"
        for group in context.resctrl.groups
        if group.narrowed
    )
    return _words((*narrowed, unchecked_text(context.resctrl)), "; ") or NONE


def _profile(context: Context) -> str:
    return NONE if context.tuned is None else context.tuned.active


def _tuned_settings(context: Context) -> str:
    """Return what of the active profile the machine has."""
    tuned = context.tuned
    if tuned is None:
        return NONE
    names = [f"{item.name} is {item.found}, not {item.wanted}" for item in tuned.differing]
    differing = f"; {some_of(names, MAX_LISTED)}" if names else ""
    unchecked = f", {len(tuned.unchecked)} not checked" if tuned.unchecked else ""
    lost = [name for name in tuned.absent if "${" not in name]
    absent = f"; no file of {', '.join(lost)}" if lost else ""
    if unknown := [name for name in tuned.absent if name not in lost]:
        absent += f"; not evaluated: include={', '.join(unknown)}"
    return f"{tuned.met} of {tuned.met + len(tuned.differing)} met{unchecked}{differing}{absent}"


def _unread(_context: Context) -> None:
    """Return that a capture does not have the fact."""


def _captured(read: Callable[[Context], str | None]) -> Callable[[Context], str | None]:
    """Return *read*; of a capture made before it was captured, that it is unknown."""
    return lambda context: None if context.devices is None else read(context)


_ANOTHER_MACHINE: Final = _effect(0, "it is another machine")
_CONFINED: Final = _effect(0, "which CPUs, memory and time the run could use")
_ALLOCATED: Final = _effect(1, "the cache ways and bandwidth that the measured CPUs may use", "memory", "caches")
_MODULES: Final = _effect(1, "their number, ranks and speed set the channels and timing of memory", "memory")
_BEHIND_NODE: Final = _effect(1, "which memory is behind a node", "memory")
_RATED: Final = _effect(1, "the firmware set the memory up differently", "memory")
_ISOLATED: Final = _effect(1, "what else the kernel runs on a measured core", "interruptions")
_CLOCKED_CACHES: Final = _effect(7, "every access to memory passes through clocked caches", "memory")
_CLOCK: Final = (*_effect(2, "sets the clock of the core", "clock"), *_CLOCKED_CACHES)
_MEASURED_CLOCK: Final = (*_effect(2, "the measured clock of the core", "clock"), *_CLOCKED_CACHES)
_UNCORE: Final = _effect(2, "the clock of mesh, caches and memory controllers", "caches", "interconnect", "memory")
_MITIGATED: Final = _effect(3, "mitigations lengthen accesses and interruptions", "time")
_NODES: Final = _effect(3, "which memory is near, and the channels of a node", "memory", "interconnect")
_THREADS: Final = _effect(4, "siblings share a core; CPUs set the threads", "threads")
_PAGES: Final = _effect(4, "how often an address is looked up in page tables", "memory")
_PREEMPTED: Final = _effect(4, "when the kernel lets a thread run that woke up", "interruptions")
_BALANCED: Final = _effect(4, "unmaps and moves pages while they are used", "interruptions", "memory")
_TIMED: Final = _effect(4, "the kernel changes it if the time stamps are unfit", "time")
_DEVICES: Final = _effect(4, "their drivers interrupt cores", "interruptions")
_MICROCODE: Final = (*_MITIGATED, *_effect(6, "sets prefetchers, power limits and the behaviour of caches"))
_BIOS: Final = _effect(6, "memory timing, power limits, prefetchers, clusters of a socket")
_KERNEL: Final = _effect(6, "scheduler, placement of pages, drivers of clock and idle states")
_BUILT: Final = _effect(6, "preemption, ticks, isolation, hardening and debugging are built in")
_LOGGED: Final = _effect(5, "the kernel handled errors, which interrupt cores and slow links, memory and clocks")
_BMC: Final = _effect(6, "fans, power limits and interruptions by the firmware")
_TUNED: Final = _effect(6, "sets clocks, idle states, pages and scheduler")
_PARAMETERS: Final = (
    *_effect(5, "isolation, ticks, idle states and mitigations", "clock", "time"),
    *_effect(7, "settings of memory and pages"),
)
_SLEEP: Final = (
    *_effect(3, "a core that slept wakes late, with colder caches", "time"),
    *_effect(4, "sleeping cores leave the others power for turbo", "turbo"),
)

FACTS: Final = (
    Fact("sutprobe build", _unread, shown="never", effects=_effect(0, "another sutprobe measured")),  # of the run
    Fact("host name", lambda context: context.capture.hostname, None, fixed=True),
    Fact("system", _system, None),
    Fact("board", _board, None),
    Fact("serial numbers", _serials, None, "found"),
    Fact("processor", _processor, set_of(";"), fixed=True, effects=_ANOTHER_MACHINE),
    Fact("microcode", _microcode, set_of(";"), fixed=True, effects=_MICROCODE),
    Fact("vulnerabilities", _vulnerabilities, shown="never", effects=_MITIGATED),
    Fact("BIOS", _bios, fixed=True, effects=_BIOS),
    Fact("kernel", _kernel, shown="never", fixed=True, effects=_KERNEL),
    Fact("kernel build", _kernel_build, None, "found", "Kernel build configuration"),
    Fact("kernel options", _kernel_options, set_of(";"), "never", effects=_BUILT),
    Fact("kernel command line", _command_line, command_line, "never", fixed=True, effects=_PARAMETERS),
    Fact("virtualisation", _virtualization, None),
    Fact("container", _container, shown="found", fixed=True, effects=_CONFINED),
    Fact("limits", _limits, set_of(","), "found", "Limited to", fixed=True, effects=_CONFINED),
    Fact("user namespace", _user_namespace, None, "found"),
    Fact("CPUs", lambda context: format_cpulist(context.online_cpus), cpu_set, fixed=True, effects=_THREADS),
    Fact("offline CPUs", lambda context: _cpus(context.cpus.offline), None, "found"),
    Fact("CPUs allowed to the login", _allowed, None, "found"),
    Fact("cores", _cores, fixed=True, effects=_THREADS),
    Fact("SMT", lambda context: context.topology.smt_control, effects=_THREADS),
    Fact("isolated CPUs", _isolated, shown="never", fixed=True, effects=_ISOLATED),
    Fact("isolated CPUs (isolcpus)", _isolated_at_boot, None),
    Fact("isolated CPUs (cpusets)", _cpusets, None, "found"),
    Fact(
        "housekeeping CPUs",
        lambda context: None if context.isolation.housekeeping is None else _cpus(context.isolation.housekeeping),
        cpu_set,
        "found",
        "Housekeeping CPUs (outside nohz_full)",
        effects=_ISOLATED,
    ),
    Fact("tickless CPUs (nohz_full)", _tickless, None),
    Fact("CPUs without RCU callbacks (rcu_nocbs)", _offloaded, None),
    Fact("CPUs kept from managed interrupts (managed_irq)", _managed, None, "found"),
    Fact("kernel parameters with another effect", _notes, None, "found"),
    Fact("interrupts that may reach isolated CPUs", _interrupts, None),
    Fact("threads that may run on isolated CPUs", _threads, None),
    Fact("interrupts that may reach tickless CPUs", _tickless_interrupts, None, "found"),
    Fact("movable kernel threads that may run on tickless CPUs", _tickless_threads, None, "found"),
    Fact(
        "allocation",
        _captured(_allocation),
        set_of(";"),
        "found",
        "Cache and bandwidth allocation (resctrl)",
        effects=_ALLOCATED,
    ),
    Fact("governor", lambda context: _words(context.frequency.governors, ", "), set_of(","), effects=_CLOCK),
    Fact("frequency driver", _frequency_driver, set_of(","), effects=_CLOCK),
    Fact("frequency limits", _frequency_limits, set_of(","), effects=_CLOCK),
    Fact("hardware frequency limits", _hardware_frequencies, None),
    Fact("base frequency", _base_frequency, set_of(";"), "found", effects=_CLOCK),
    Fact("uncore frequency limits", _uncore, set_of(";"), "found", effects=_UNCORE),
    Fact("turbo", lambda context: context.frequency.turbo_text, effects=_CLOCK),
    Fact(CLOCK, _unread, None, "never", effects=_MEASURED_CLOCK),
    Fact("idle states", _idle, effects=_SLEEP),
    Fact("nodes", lambda context: _words(map(_node, context.nodes), "; "), shown="never", fixed=True, effects=_NODES),
    Fact("distances between nodes", _distances, shown="never", fixed=True, effects=_NODES),
    Fact("emulated nodes", _emulated, None, "found"),
    Fact("memory of the machine", _total_memory, None),
    Fact("memory", lambda context: _words(map(_memory, context.nodes), "; "), shown="never", effects=_MODULES),
    Fact("DIMMs", _dimms, dimm_groups, effects=_MODULES),
    Fact("CXL memory", _captured(_cxl), set_of(","), "found", effects=_BEHIND_NODE),
    Fact("memory-side caches", _memory_side_caches, set_of(";"), "found", effects=_BEHIND_NODE),
    Fact("interleave weights", _captured(_weights), set_of(","), "found", effects=_BEHIND_NODE),
    Fact("rated by the firmware", _rated, set_of(";"), "found", "Rated by the firmware (HMAT)", effects=_RATED),
    Fact("rated by CXL", _rated_regions, set_of(";"), "found", "Rated by the CXL devices", effects=_RATED),
    Fact("transparent huge pages", _transparent, effects=_PAGES),
    Fact("huge pages", _huge_pages, set_of(","), effects=_PAGES),
    Fact("preemption", lambda context: context.kernel.preemption, effects=_PREEMPTED),
    Fact("NUMA balancing", lambda context: _switch(context.memory.numa_balancing), effects=_BALANCED),
    Fact("clock source", lambda context: context.clocksource.current, effects=_TIMED),
    Fact("real-time throttling", _real_time, None),
    Fact("NMI watchdog", lambda context: _switch(context.kernel.nmi_watchdog), None),
    Fact("errors in the kernel log", _logged_kinds, set_of(";"), "never", effects=_LOGGED),
    Fact("BMC firmware", _bmc_firmware, shown="found", label="BMC firmware", effects=_BMC),
    Fact("BMC sensors beyond a threshold", _bmc_alarms, None, "found", "BMC sensors beyond a threshold"),
    Fact("BMC events", _bmc_events, set_of(";"), "found", "Newest BMC events", effects=_LOGGED),
    Fact("messages of errors in the kernel log", _logged, None, "found"),
    Fact("load average", _load, None),
    Fact("network devices", lambda context: _devices(context, "network"), set_of(";"), "never", effects=_DEVICES),
    Fact("storage controllers", lambda context: _devices(context, "storage"), set_of(";"), "never", effects=_DEVICES),
    Fact("accelerators", lambda context: _devices(context, "accelerator"), set_of(";"), "never", effects=_DEVICES),
    Fact("tuned profile", _captured(_profile), shown="found", effects=_TUNED),
    Fact("tuned settings", _tuned_settings, None, "found"),
)
"""In the order in which they are shown. A kind other than text where one machine may be described by two texts."""

_BY_NAME: Final = {fact.name: fact for fact in FACTS}


def facts(context: Context, sutprobe_sha256: str | None) -> dict[str, str]:
    """Return the facts of *context*, a captured machine, and of its sutprobe that are compared, in a fixed order.

    Every fact is present on every machine; an unknown one says so.
    """
    found = {fact.name: fact.read(context) or NOT_KNOWN for fact in FACTS if fact.kind is not None}
    known = {} if sutprobe_sha256 is None else {"sutprobe build": sutprobe_sha256[:BUILD_DIGITS]}
    return found | known


def shown(context: Context) -> Iterator[tuple[str, str | None]]:
    """Yield label and text of each fact of *context* for a reader; None if unknown."""
    for fact in FACTS:
        text = None if fact.shown == "never" else fact.read(context)
        if fact.shown == "always" or text not in (None, NONE):
            yield fact.label or sentence_case(fact.name), text


def text_of(name: str, context: Context) -> str | None:
    """Return the text of the fact *name*; None if unknown. Raises ``KeyError``."""
    return _BY_NAME[name].read(context)


def fact_value(name: str, text: str) -> Hashable:
    """Return what the *text* of a fact stands for: equal for texts that say the same."""
    kind = _BY_NAME[name].kind if name in _BY_NAME else None
    try:
        return (kind or words)(text, None)
    except ValueError:
        return words(text)


def same_fact(name: str, one: str | None, other: str | None) -> bool:
    """Return whether two texts of a fact say the same; None, a missing one, is like no other."""
    if one == other or one is None or other is None:
        return one == other
    return fact_value(name, one) == fact_value(name, other)


def other_facts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the facts in which *now* differs from *before*, as text, without those missing from one of them."""
    return [
        f"{name}: {before[name]} -> {now[name]}"
        for name in before
        if name in now and not same_fact(name, before[name], now[name])
    ]


def differences(before: Context, now: Context) -> list[str]:
    """Return the differences between *now* and *before* that prevent a run from continuing.

    Free memory, load and boot may differ, and so may what a run itself tunes.
    """
    one, other = (
        {fact.name: fact.read(context) or NOT_KNOWN for fact in FACTS if fact.fixed} for context in (before, now)
    )
    return other_facts(one, other)
