# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.counter_budget``: quick runs with a long table of interrupts and without, in alternation, as root.

The table of 256 CPUs and 1000 lines is laid over ``/proc/interrupts`` in a mount namespace of the run's own. Both kinds
of run must measure the same steps, and the one with the table take at most 1.1 times as long: of each kind and step the
shorter time counts, because what else happens on the machine only adds to it. Ends with 1 if they do not.
"""
# ruff: noqa: T201 - this is a command

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.probe.test_counter_budget import made_table

ROOT = Path(__file__).parents[1]
LONGER = 1.1
LAY = 'mount --bind "$1" /proc/interrupts && shift && exec "$@"'


def measured_s(results: Path, table: Path | None) -> dict[str, float]:
    """Calibrate this machine into *results* and give the seconds of each step."""
    command = [
        *(sys.executable, "-m", "calibration.cli", "run", "-e", f"calibration_results_dir={results}"),
        *("-e", "calibration_profile=quick", "-e", json.dumps({"report_site": False})),
    ]
    if table:
        command = ["unshare", "--mount", "sh", "-c", LAY, "sh", str(table), *command]
    ended = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
                           stdout=subprocess.PIPE, text=True)  # fmt: skip
    documents = [path for path in results.rglob("run.json") if not path.is_symlink()]
    if len(documents) != 1:
        sys.exit(
            f"expected one run document, found {len(documents)}; the run ended with {ended.returncode}\n{ended.stdout}"
        )
    run = json.loads(documents[0].read_text(encoding="utf-8"))
    return {measurement["step"]: measurement["duration_s"] for measurement in run["measurements"]}


def main() -> int:
    """Run ``--pairs`` of both and compare. Returns 0, or 1 where the long table shows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2, help="how many runs of each kind (default: 2)")
    pairs = parser.parse_args().pairs
    runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as place:
        table = Path(place) / "interrupts"
        table.write_text(made_table(256, 1000, sorted(os.sched_getaffinity(0))), encoding="utf-8")
        for number in range(2 * pairs):
            laid = number % 4 in {1, 2}
            steps = measured_s(Path(place) / str(number), table if laid else None)
            runs[laid].append(steps)
            print(
                f"{'with' if laid else 'without'} the table: {len(steps)} steps, {sum(steps.values()):.1f} s",
                flush=True,
            )
    if any(steps.keys() != runs[False][0].keys() for kind in runs.values() for steps in kind):
        print("the runs measured different steps")
        return 1
    plain, long = (sum(min(run[step] for run in runs[kind]) for step in runs[kind][0]) for kind in (False, True))
    print(
        f"the shorter time of each step: {long:.1f} s with the table, {plain:.1f} s without, {long / plain:.3f} times"
    )
    return int(long > LONGER * plain)


if __name__ == "__main__":
    sys.exit(main())
