# SPDX-License-Identifier: Apache-2.0
"""The commands of the runner: those of a controller, and a whole run without one.

``plan.json``       run a plan on this machine, and leave the results in a directory
``capture FILE``    write what describes this machine, from which ``calibration plan`` makes a plan, and the
                    files that further arguments name (``asked``)
``cancel DIR``      end the run in a directory, restore the settings and remove it

The others are called by a controller; each prints one line of JSON, and ``watch`` records after it.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time

BEGAN_S = time.time()
"""Read before other imports: the closer to the question, the tighter the bound on the clock's offset."""

USAGE = """\
usage: python3 RUNNER PLAN.json       run a plan on this machine
       python3 RUNNER capture FILE [PATTERN]...
                                      write what describes this machine, to make a plan from, and what matches
                                      the patterns below /proc/sys and /sys
       python3 RUNNER cancel DIR      end a run, restore the settings, keep its results
       python3 RUNNER remove DIR      restore what a run has not restored, and remove it
"""

REFUSED, INTERRUPTED = 3, 4


def main(arguments, bundle):
    """Run the command *arguments*; *bundle* is this program, a file. Return the exit code."""
    command, *rest = arguments or [""]
    if command == "watch":  # imports little: it runs beside a measurement
        from calibration.runner import client  # noqa: PLC0415

        path, offset, at_least_s, at_most_s = rest
        state, records = client.watch(path, int(offset), at_least_s=float(at_least_s), at_most_s=float(at_most_s))
        client.header(state=state, boot_id=client.boot_id())
        sys.stdout.buffer.write(records)
        return 0
    if command not in COMMANDS:
        if command.endswith(".json") and not rest:
            from calibration.runner import alone  # noqa: PLC0415

            return alone.run(command, bundle)
        sys.stderr.write(USAGE)
        return 2
    return COMMANDS[command](bundle, *rest)


def facts(_bundle, base, name):
    """Print the facts that decide whether the SUT can be measured."""
    from calibration.runner import client  # noqa: PLC0415
    from calibration.runner import facts as read  # noqa: PLC0415

    client.header(**read.facts(base, name, BEGAN_S))
    return 0


def capture(_bundle, path, *patterns):
    """Write what describes the SUT to *path*; *patterns* are further files to capture."""
    from calibration.runner import capture as read  # noqa: PLC0415
    from calibration.runner import worker  # noqa: PLC0415

    archive = read.capture(uname_a=worker.uname_a(), patterns=patterns)["archive"]
    with open(path, "wb") as stream:
        stream.write(base64.b64decode(archive))
    return 0


def rehearse(_bundle, base, job):
    """Refuse as ``start`` would, or print what describes the SUT; nothing is changed."""
    from calibration.runner import capture as read  # noqa: PLC0415
    from calibration.runner import client, rehearsal, worker  # noqa: PLC0415

    job = json.loads(job)
    left = rehearsal.rehearse(base, job, client.machine_of())
    archive = read.capture(uname_a=worker.uname_a(), patterns=job["asked"])["archive"]
    client.header(capture=archive, left=left)
    return 0


def start(bundle, base, job):
    """Reserve and prepare the SUT."""
    from calibration.runner import client  # noqa: PLC0415

    client.start(base, json.loads(job), bundle)
    return 0


def begin(_bundle, path):
    """Take the plan and its programs, and begin to measure."""
    from calibration.runner import client  # noqa: PLC0415

    client.begin(path, sys.stdin.buffer)
    client.header()
    return 0


def find(_bundle, base, run_id, sut):
    """Print the directories of a run."""
    from calibration.runner import client  # noqa: PLC0415

    client.header(found=client.find(base, run_id, sut))
    return 0


def cancel(_bundle, path):
    """End a run."""
    from calibration.runner import client  # noqa: PLC0415

    client.cancel(path)
    client.header()
    return 0


def remove(_bundle, path):
    """Remove a run."""
    from calibration.runner import client  # noqa: PLC0415
    from calibration.runner.directory import Directory  # noqa: PLC0415

    changes, faults = [], []
    if os.path.isdir(path):
        with Directory(path) as found:
            changes, faults = client.remove(found)
    client.header(changes=changes, faults=faults)
    return 0


def hold_generator(_bundle, path, run_id, sut, text, only_check):
    """Reserve the traffic generator, or refuse; *only_check* is 0 or 1."""
    from calibration.runner import client, tg  # noqa: PLC0415

    client.header(changed=tg.hold(path, run_id, sut, text, check_mode=only_check == "1"))
    return 0


def release_generator(_bundle, path, run_id, sut):
    """Release the traffic generator."""
    from calibration.runner import client, tg  # noqa: PLC0415

    client.header(changed=tg.release(path, run_id, sut, check_mode=False))
    return 0


def keep(_bundle, path):
    """Be the run's process."""
    from calibration.runner import keeper  # noqa: PLC0415

    keeper.keep(path)
    return 0


def restore(_bundle, path):
    """Restore what a killed run changed; systemd calls it."""
    from calibration.runner import client  # noqa: PLC0415

    client.restore(path)
    return 0


OWN = (facts, capture, rehearse, start, begin, find, cancel, remove, hold_generator, release_generator, keep, restore)

COMMANDS = {function.__name__.replace("_", "-"): function for function in OWN}


def run(bundle):
    """Run the command of this process, and exit."""
    from calibration.runner.files import Refused  # noqa: PLC0415

    try:
        code = main(sys.argv[1:], bundle)
        sys.stdout.flush()
    except Refused as error:
        sys.stdout.write(json.dumps(error.answer()) + "\n")
        code = REFUSED
    except (OSError, subprocess.SubprocessError) as error:
        sys.stdout.write(json.dumps({"refused": "the SUT: %s" % error, "faults": []}) + "\n")
        code = REFUSED
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    run(sys.path[0])
