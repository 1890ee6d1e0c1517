# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe info``."""

from calibration.model import Model


class HugetlbNode(Model):
    """Reserved huge pages of one size on one node; ``None`` where the kernel does not say."""

    node: int
    nr: int | None
    free: int | None


class HugetlbSize(Model):
    """Reserved huge pages of one size, on the whole machine and by node."""

    bytes: int
    nr: int | None
    free: int | None
    nodes: tuple[HugetlbNode, ...]


class PageKinds(Model):
    """The pages that buffers can be had on; ``thp_*`` are the kernel's own words, the choice in brackets."""

    base_bytes: int
    thp_bytes: int | None
    thp_enabled: str | None
    thp_defrag: str | None
    hugetlb: tuple[HugetlbSize, ...]


class Privilege(Model):
    """What the program may or may not do on this SUT, how that was ``found``, and the ``cost`` of not having it."""

    name: str
    present: bool
    found: str
    cost: str | None


class InfoResult(Model):
    """Result of ``sutprobe info``: what it finds on the SUT before anything is measured."""

    instruction_sets: dict[str, bool]
    sve_vector_bytes: int | None
    widths: tuple[str, ...]
    allowed_cpus: tuple[int, ...]
    line_bytes: int
    clocksource: str | None
    clocksources: tuple[str, ...]
    page_kinds: PageKinds
    uid: int
    privileges: tuple[Privilege, ...]
