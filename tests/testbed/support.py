# SPDX-License-Identifier: Apache-2.0
"""The testbed as tests see it: SUTs that start when a test first asks for them, and labs that calibrate them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.ansible import support
from tests.testbed.guest import STATE, Sut, start


class Testbed:
    """The guests of one run of the suite. Those that were running before are used, and left running."""

    __test__ = False

    def __init__(self, directory: Path, state: Path = STATE) -> None:
        self.directory = directory
        self.state = state
        self.started: dict[str, Sut] = {}
        self.used: dict[str, Sut] = {}
        self.inventories = 0

    def sut(self, shape: str, name: str | None = None) -> Sut:
        """Return the running SUT *name* (the shape's name), started if need be."""
        return self.suts((shape, name or shape))[0]

    def suts(self, *wanted: tuple[str, str]) -> list[Sut]:
        """Return several SUTs, given as pairs of shape and name; those that do not run boot at the same time."""
        were = {name for _, name in wanted if Sut(name, self.state).pid is not None}
        found = start([(shape, name) for shape, name in wanted], bound=True, state=self.state)
        for sut in found:
            # The same object for the same guest, as long as it lives: only that one can wait for QEMU's end.
            known = self.used.setdefault(sut.name, sut)
            if sut.name not in were:
                self.used[sut.name] = self.started[sut.name] = sut
            elif known.pid != sut.pid:
                self.used[sut.name] = sut
        return [self.used[name] for _, name in wanted]

    def inventory(
        self,
        groups: Mapping[str, Sequence[Sut]],
        variables: Mapping[str, object] | None = None,
        hosts: Mapping[str, Mapping[str, object]] | None = None,
    ) -> Path:
        """Write an inventory with *variables* for all, and more variables for single *hosts*; return its path."""
        extra = hosts or {}
        children = {
            group: {"hosts": {sut.name: {**sut.inventory(), **extra.get(sut.name, {})} for sut in suts}}
            for group, suts in groups.items()
        }
        self.inventories += 1
        path = self.directory / f"inventory-{self.inventories}.yml"
        path.write_text(
            yaml.safe_dump({"all": {"vars": dict(variables or {}), "children": children}}), encoding="utf-8"
        )
        return path

    def mend(self) -> None:
        """Plug all cables in, and boot again what a test has killed or left unable to answer."""
        for sut in list(self.used.values()):
            if sut.pid is None:
                self.used.pop(sut.name)
                self.started.pop(sut.name, None)
                continue
            sut.link(up=True)

    def close(self) -> None:
        """End the guests that were started here."""
        for sut in self.started.values():
            sut.stop()


@dataclass(frozen=True)
class Lab(support.Lab):
    """The controller's directories of one test; on the SUTs runs use their usual place."""

    @property
    def remote(self) -> Path:
        """What calibration_remote_base is set to."""
        return Path("/var/tmp")

    def make(self) -> "Lab":
        """Create the directories that must exist."""
        self.home.mkdir(parents=True)
        return self

    def calibrate(self, inventory: Path, *options: str, **extra: str) -> support.Ended:
        """Run playbooks/calibrate.yml on an inventory."""
        return self.run("calibrate.yml", "-i", str(inventory), *options, **extra)

    def documents(self) -> dict[str, dict[str, object]]:
        """Return the run documents by SUT; of several runs of a SUT the newest."""
        return {
            run.parent.name: json.loads((run / "run.json").read_text())
            for run in self.runs()
            if (run / "run.json").exists()
        }
