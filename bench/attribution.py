# SPDX-License-Identifier: Apache-2.0
"""Plants disturbances on a machine, and keeps what its traced kernel says of them.

``python bench/attribution.py --json bench/attribution.json COMMAND...`` where COMMAND runs ``sutprobe`` there as root,
for example through ssh into a guest. ``bench/attribution_page.py`` makes the page of it.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCHEMA = "attribution/1"
CASE = ("selftest", "--case", "trace_planted")


def kept(document: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a *document* of the case: the kernel, how it was timed, and both sides.

    Raises ``ValueError`` where nothing was planted, or something that was planted was not found.
    """
    case = document["result"]["cases"][0]
    plantings = document["result"]["plantings"]
    if not case["passed"] or case["note"] or plantings is None:
        raise ValueError(f"expected what is planted to be found, found: {case['error'] or case['note']}")
    return {
        "schema": SCHEMA,
        "kernel": document["host"]["release"],
        "machine": document["host"]["machine"],
        "hypervisor": document["host"]["hypervisor"],
        "clock": document["clock"]["source"],
        "plantings": plantings,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant, and write the document."""
    parser = argparse.ArgumentParser(description="Plants disturbances, and keeps what tracing says of them.")
    parser.add_argument("--json", type=Path, required=True, help="file to write")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long is planted")
    parser.add_argument("command", nargs="+", help="what runs sutprobe on the machine, as root")
    options = parser.parse_args(arguments)
    words = [*options.command, *CASE, "--injection-s", f"{options.seconds:g}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        document = kept(json.loads(done.stdout))
    except (ValueError, LookupError, TypeError) as error:
        sys.stderr.write(f"attribution: {error}; {done.stderr.strip()}\n")
        return 3
    options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
