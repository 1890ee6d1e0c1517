# SPDX-License-Identifier: Apache-2.0
"""A run without a controller: ``python3 RUNNER plan.json``, in a container, a Kubernetes Job or an air-gapped lab.

It leaves a directory with the capture, the plan and the records; ``calibration assemble`` makes the run document of it.
"""

from __future__ import annotations

import collections
import json
import os
import platform
import secrets
import shutil
import signal
import sys
import time
import zipfile

from calibration.runner import files, lock, settings
from calibration.runner.directory import ANSWER, PLAN, Directory
from calibration.runner.files import Refused
from calibration.runner.journal import JOURNAL
from calibration.runner.keeper import work

GOOD, INCOMPLETE = 0, 1

KEPT = ("job.json", "plan.json", "build.json", "records.jsonl", "context.tar.gz")
"""What is left of a run."""


def run(path, bundle):
    """Run the plan in the file *path* with the sutprobe in *bundle*; return the exit code."""
    with open(path, encoding="utf-8") as stream:
        plan = json.load(stream)
    if not isinstance(plan, dict) or not plan.get("steps"):
        raise Refused("%s has no steps: make it with calibration plan --json" % path)
    plan["seed"] = secrets.randbits(32)  # another order in every run
    machine = settings.Machine()
    now = time.gmtime()
    job = {
        "run_id": time.strftime("%Y%m%dT%H%M%SZ-", now) + secrets.token_hex(2),
        "sut": os.uname().nodename,
        "host": os.uname().nodename,
        "controller": "nobody",
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", now),
        "boot_id": machine.boot_id(),
        "nodename": os.uname().nodename,
        "lock": "calibration",
        "settings": {},
        "prefetchers_ok": False,
        "keep_s": None,
        "wait_s": 0.0,
        "shown": True,
    }
    with zipfile.ZipFile(bundle) as packed:
        try:
            program, build = (packed.read(f"{platform.machine()}/{name}") for name in ("sutprobe", "build.json"))
        except KeyError:
            raise Refused(
                "there is no sutprobe for %s in %s: make it with calibration runner" % (platform.machine(), bundle)
            ) from None
    held = lock.take(job["lock"])
    with held, Directory.create(os.getcwd(), job) as made:
        made.hold()
        made.write_bytes("sutprobe", program, 0o700)
        made.write_bytes("build.json", build)
        made.write(PLAN, json.dumps(plan))
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        work(made, machine, held, made.listen())
        _, faults = made.restore(machine, "run")
        if not made.has("records.jsonl"):
            answer = json.loads(files.read_text(ANSWER, 1 << 20, made.descriptor))
            made.remove()
            raise Refused(answer["refused"], answer["run_id"])
        ended = [json.loads(line) for line in made.records_from(0, 1 << 40).splitlines()]
        for name in os.listdir(made.path):
            if name not in (*KEPT, *([JOURNAL] if faults else [])):
                path = os.path.join(made.path, name)
                (shutil.rmtree if os.path.isdir(path) else os.unlink)(path)
    good = collections.Counter(
        record["id"] for record in ended if record["record"] == "step" and record["rc"] == 0 and "lacks" not in record
    )
    complete = sum(good[step["id"]] >= step.get("rounds", 1) for step in plan["steps"])
    sys.stdout.write(f"{complete} of {len(plan['steps'])} steps measured: {made.path}\n")
    if faults:
        sys.stdout.write(settings.not_restored(faults) + "\n")
    return GOOD if complete == len(plan["steps"]) and not faults else INCOMPLETE
