# SPDX-License-Identifier: Apache-2.0
"""How CPUs are related by topology, and samples of pairs of CPUs by class."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations, islice, zip_longest
from operator import eq
from random import Random
from typing import Literal, get_args

from calibration.base.grouping import grouped
from calibration.context.model import Context

Class = Literal["smt_siblings", "same_cluster", "same_llc", "same_node", "same_package", "other_package"]

CLASSES: tuple[Class, ...] = get_args(Class)
"""How two CPUs are related, nearest first; a pair belongs to the first class that fits."""

SEED = 1
"""Seed of the choice of pairs: the same machine gets the same sample every night."""

LABELS: dict[str, str] = {
    "smt_siblings": "threads of one core",
    "same_cluster": "one cluster",
    "same_llc": "one last-level cache",
    "same_node": "one node, two last-level caches",
    "same_package": "one package, two nodes",
    "other_package": "two packages",
}
"""What the two CPUs of a pair share, by class, as shown on pages."""

PAIRS_OF: dict[Class, str] = {
    "smt_siblings": "threads of one core",
    "same_cluster": "cores of one cluster",
    "same_llc": "cores behind one last-level cache",
    "same_node": "cores of one node behind different last-level caches",
    "same_package": "nodes of one package",
    "other_package": "different packages",
}
"""What the pairs of a class are pairs of, in titles."""


def sampled(name: Class, pairs: int, chosen: int, per_class: int) -> tuple[str, str]:
    """Return why only *chosen* of the *pairs* of a class are measured, and which are left out."""
    reason = f"a sample of {per_class} pairs in both directions stands for the class"
    return reason, f"{2 * (pairs - chosen)} of {2 * pairs} pairs of {PAIRS_OF[name]}"


class Neighbourhood:
    """How *cpus* are related: each has a key per class, and a pair belongs to the first class whose key both share.

    Never iterates over all pairs: 512 CPUs have 131,000.
    """

    def __init__(self, context: Context, cpus: Sequence[int]) -> None:
        cores = {cpu: core for core in context.topology.cores for cpu in core.cpus}
        caches = {
            cpu: number for number, domain in enumerate(context.topology.last_level_cache_domains) for cpu in domain
        }
        self.nodes = {cpu: node for node, cpus in context.cpus_by_node.items() for cpu in cpus}
        self.keys: dict[int, tuple[Hashable, ...]] = {}
        for cpu in cpus:
            core, alone = cores.get(cpu), ("CPU", cpu)
            own: Hashable = alone if core is None else core.cpus
            self.keys[cpu] = (
                own,
                own if core is None or core.cluster_id is None else ("cluster", core.package, core.cluster_id),
                caches.get(cpu, alone),
                self.nodes.get(cpu),
                alone if core is None else ("package", core.package),
                "machine",
            )

    def class_of(self, one: int, two: int) -> Class:
        """Return the class of a pair."""
        return next(name for name, a, b in zip(CLASSES, self.keys[one], self.keys[two], strict=True) if a == b)

    def counts(self) -> dict[Class, int]:
        """Return the number of unordered pairs of each class, nearest class first, without empty classes.

        By inclusion and exclusion, because keys are not nested: a cache may span nodes, and a node caches.
        """

        def sharing(places: Sequence[int]) -> int:
            groups = Counter(tuple(key[place] for place in places) for key in self.keys.values())
            return sum(size * (size - 1) // 2 for size in groups.values())

        found: dict[Class, int] = {}
        for place, name in enumerate(CLASSES):
            nearer = [combination for size in range(place + 1) for combination in combinations(range(place), size)]
            if pairs := sum((-1) ** len(subset) * sharing((*subset, place)) for subset in nearer):
                found[name] = pairs
        return found

    def sample(self, name: Class, wanted: int) -> list[tuple[int, int]]:
        """Return at most *wanted* pairs of a class, seeded, spread evenly over nodes, last-level caches and CPUs."""
        place = CLASSES.index(name)
        in_turn = self._in_turn()
        groups = grouped((self.keys[cpu][place], cpu) for cpu in in_turn)
        positions = {cpu: index for group in groups.values() for index, cpu in enumerate(group)}
        candidates: dict[tuple[int, int], None] = {}
        rows = 0
        for one in in_turn:
            group, nearer = groups[self.keys[one][place]], self.keys[one][:place]
            after = islice(group * 2, positions[one] + 1, positions[one] + len(group))
            partners = list(islice((two for two in after if not any(map(eq, nearer, self.keys[two]))), wanted))
            candidates |= dict.fromkeys((one, two) if one < two else (two, one) for two in partners)
            rows += bool(partners)
            if rows == 2 * wanted:  # as many CPUs as the pairs can use
                break
        return self._evenly(candidates, wanted)

    def _in_turn(self) -> list[int]:
        """Return the CPUs shuffled, alternating between nodes, and within nodes between last-level caches."""
        shuffled = list(self.keys)
        Random(SEED).shuffle(shuffled)  # noqa: S311 - a choice of pairs, no secret
        caches = grouped(((self.nodes.get(cpu), self._cache(cpu)), cpu) for cpu in shuffled)
        by_node = grouped((node, cpus) for (node, _), cpus in caches.items())
        return _alternate([_alternate(group) for group in by_node.values()])

    def _cache(self, cpu: int) -> Hashable:
        return self.keys[cpu][CLASSES.index("same_llc")]

    def _evenly(self, candidates: Iterable[tuple[int, int]], wanted: int) -> list[tuple[int, int]]:
        left: dict[frozenset[int | None], dict[frozenset[Hashable], list[tuple[int, int]]]] = {}
        for pair in candidates:
            nodes, caches = frozenset(map(self.nodes.get, pair)), frozenset(map(self._cache, pair))
            left.setdefault(nodes, {}).setdefault(caches, []).append(pair)
        taken: Counter[Hashable] = Counter()
        chosen: list[tuple[int, int]] = []
        while left and len(chosen) < wanted:
            nodes = min(left, key=lambda group: (taken[group], sum(taken["node", node] for node in group)))
            behind = left[nodes]
            caches = min(behind, key=lambda group: (taken[nodes, group], sum(taken["cache", cache] for cache in group)))
            pairs = behind[caches]
            fresh = (candidate for candidate in pairs if candidate[0] not in taken and candidate[1] not in taken)
            pair = next(fresh, None) or min(pairs, key=lambda candidate: taken[candidate[0]] + taken[candidate[1]])
            taken.update((nodes, (nodes, caches), *pair))
            taken.update(("node", self.nodes.get(cpu)) for cpu in pair)
            taken.update(("cache", self._cache(cpu)) for cpu in pair)
            chosen.append(pair)
            pairs.remove(pair)
            if not pairs:
                del behind[caches]
            if not behind:
                del left[nodes]
        return chosen


def _alternate(rows: Iterable[Sequence[int]]) -> list[int]:
    return [cpu for turn in zip_longest(*rows) for cpu in turn if cpu is not None]
