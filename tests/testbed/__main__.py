# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.testbed build|start|list|stop``: the testbed by hand.

Guests started so run until they are stopped.
"""
# ruff: noqa: T201 - this is a command

import argparse
import shlex
import signal
import sys

from tests.testbed.guest import Sut, guests, start
from tests.testbed.image import TestbedError, build
from tests.testbed.shapes import shapes


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("build", help="build the image of the guests, if it is not there yet")
    one.add_argument("architecture", nargs="?", default="x86_64")
    one = commands.add_parser("start", help="start guests, and wait until one can log in")
    one.add_argument("guests", nargs="+", metavar="SHAPE[=NAME]", help="a shape, and the guest's name if it is another")
    commands.add_parser("list", help="list shapes and guests")
    one = commands.add_parser("stop", help="stop guests and forget them; without names all of this checkout")
    one.add_argument("guests", nargs="*", metavar="NAME")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended like by Ctrl-C: no guest stays behind
    try:
        return {"build": command_build, "start": command_start, "list": command_list, "stop": command_stop}[
            options.command
        ](options)
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("testbed: interrupted", file=sys.stderr)
        return 130


def command_build(options: argparse.Namespace) -> int:
    """Build the image."""
    print(build(options.architecture).directory)
    return 0


def command_start(options: argparse.Namespace) -> int:
    """Start guests."""
    wanted = [(shape, name or shape) for shape, _, name in (guest.partition("=") for guest in options.guests)]
    for sut in start(wanted, bound=False):
        print(describe(sut))
    return 0


def command_list(_options: argparse.Namespace) -> int:
    """List shapes, and guests with their state."""
    print("shapes:")
    for name, shape in shapes().items():
        print(f"  {name:12} {shape.about}")
    print("guests:")
    for sut in guests():
        print(f"  {describe(sut)}")
    return 0


def describe(sut: Sut) -> str:
    """Return a line about a guest: its state and how to log in."""
    record = sut.record
    if sut.pid is None:
        return f"{sut.name}: stale, QEMU no longer runs (python -m tests.testbed stop {sut.name})"
    if "port" not in record:
        return f"{sut.name}: starting, process {sut.pid}"
    login = shlex.join(["ssh", *sut.options(), *sut.target(sut.user)])
    bound = f", ends with process {record['bound_to']}" if record.get("bound_to") else ""
    state = "running" if sut.answers() else "running, no answer on its SSH port"
    return f"{sut.name}: {state}, shape {record['shape_name']}, process {sut.pid}{bound}\n    {login}"


def command_stop(options: argparse.Namespace) -> int:
    """Stop guests."""
    known = {sut.name: sut for sut in guests()}
    if unknown := [name for name in options.guests if name not in known]:
        msg = f"expected names of guests ({', '.join(known) or 'there are none'}), found {', '.join(unknown)}"
        raise TestbedError(msg)
    for name in options.guests or known:
        known[name].stop()
        print(f"{name}: stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
