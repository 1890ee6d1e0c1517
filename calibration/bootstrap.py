# SPDX-License-Identifier: Apache-2.0
"""The README's two commands: from a fresh checkout to a calibration report, or to a test run.

Needs only Python with venv and pip. Makes a virtual environment in the checkout from the locked requirements, once;
later starts compare a fingerprint. The syntax is that of any Python 3, so that an old one gets a clear message.
"""

import os
import sys

MIN_PYTHON = (3, 11)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - any Python 3 must get here

USAGE = """usage: python3 calibration/bootstrap.py [calibrate] [OPTION ...]   calibrate the inventory's SUTs
       python3 calibration/bootstrap.py test [OPTION ...]          run the tests; without options all, in parallel
       python3 calibration/bootstrap.py environment [DIRECTORY]    only make .venv; in DIRECTORY, that of the tests

Options of calibrate are those of 'calibration run' (see --help there): --profile, -i and others of ansible-playbook.
Options of test are those of tox, for example '-e unit'."""


def fail(message):  # type: (str) -> None
    """Exit with *message*: the environment cannot do it."""
    sys.stderr.write("bootstrap: " + message + "\n")
    sys.exit(3)


def newer_python():  # type: () -> str | None
    """Return a Python on PATH that is new enough, or None."""
    from shutil import which  # noqa: PLC0415 - only an old Python asks

    for minor in range(20, MIN_PYTHON[1] - 1, -1):
        found = which("python3.%d" % minor)  # noqa: UP031 - any Python 3 must get here
        if found:
            return found
    return None


if sys.version_info < MIN_PYTHON:
    python = newer_python()
    if python is None:
        fail(
            "Python %d.%d or newer is needed, %s is %s: install a newer one and start this with it"  # noqa: UP031
            % (MIN_PYTHON[0], MIN_PYTHON[1], sys.executable, sys.version.split()[0])
        )
    else:
        os.execv(python, [python, *sys.argv])  # noqa: S606 - the same program under a newer Python, no shell

# ruff: noqa: E402 - from here on the Python is new enough

import fcntl
import hashlib
import importlib.util
import subprocess
import time
from pathlib import Path

CHECKOUT = Path(ROOT)
REQUIREMENTS = CHECKOUT / "requirements"
BUILD = REQUIREMENTS / "build.txt"


def fingerprint(lock: Path) -> str:
    """Return a fingerprint of the environment that *lock* would give."""
    files = (BUILD, lock, CHECKOUT / "pyproject.toml")
    parts = (*(file.read_bytes() for file in files), sys.version.encode(), ROOT.encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def environment(directory: Path, lock: Path, *, with_package: bool) -> Path:
    """Return the Python of the virtual environment in *directory*, made from *lock* if necessary.

    *with_package* also installs this checkout. Two simultaneous starts make it once; an interrupted one is rebuilt.
    """
    python = directory / "bin" / "python"
    stamp = directory / "made-from"
    cache = CHECKOUT / ".cache"
    cache.mkdir(exist_ok=True)
    with (cache / f"{directory.name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        wanted = fingerprint(lock)
        if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
            return python
        if importlib.util.find_spec("ensurepip") is None:
            fail(f"{sys.executable} lacks the modules venv and ensurepip: on Debian install python3-venv")
        began = time.monotonic()
        say(f"making {directory.name} from requirements/{lock.name}: once, a minute or two")
        run([sys.executable, "-m", "venv", "--clear", str(directory)])  # its own Python may be the one in there
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        if not sys.dont_write_bytecode:
            pip.append("--no-compile")  # most modules are never imported; the others are compiled at their first import
        install(pip, lock)
        if with_package:
            install(pip, BUILD)
            run([*pip, "--no-deps", "--no-build-isolation", "--no-index", "--editable", ROOT])
        stamp.write_text(wanted, encoding="utf-8")
        say(f"{directory.name} made in {time.monotonic() - began:.0f} s")
    return python


def install(pip: list[str], lock: Path) -> None:
    """Install the packages of *lock* with *pip*; exit with its output if it fails."""
    run([*pip, "--require-hashes", "--requirement", str(lock)])


def run(command: list[str]) -> None:
    """Run *command*; exit with its output if it fails."""
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        fail(f"'{' '.join(command)}' failed with exit code {done.returncode}: see its output above")


def say(message: str) -> None:
    """Announce a slow step."""
    sys.stderr.write(f"bootstrap: {message}\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> None:
    """Make the required environment and replace this process by the task."""
    task, *rest = arguments if arguments[:1] and not arguments[0].startswith("-") else ["calibrate", *arguments]
    asked = rest[:1] in (["-h"], ["--help"])
    if asked or task not in {"calibrate", "test", "environment"} or (task == "environment" and len(rest) > 1):
        sys.stderr.write(USAGE + "\n")
        sys.exit(0 if asked else 2)
    if task == "environment" and rest:
        environment(CHECKOUT / rest[0], REQUIREMENTS / "test.txt", with_package=False)
        return
    if task in {"calibrate", "environment"}:
        python = environment(CHECKOUT / ".venv", REQUIREMENTS / "calibrate.txt", with_package=True)
        if task == "environment":
            return
        command = [str(python), "-m", "calibration.cli", "run", *rest]
    else:
        python = environment(CHECKOUT / ".venv-tox", REQUIREMENTS / "tox.txt", with_package=False)
        how = "run" if "-e" in rest else "run-parallel"  # in parallel, tox hides the output of what passes
        command = [str(python), "-m", "tox", how, "--root", ROOT, "--conf", str(CHECKOUT / "tox.ini"), *rest]
    os.execv(command[0], command)  # noqa: S606 - becomes the task, so that signals and exit code are the task's own


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("bootstrap: interrupted; the next start recreates the environment\n")
        sys.exit(4)
    except OSError as error:
        fail(f"{error.filename or ROOT}: {error.strerror}")
