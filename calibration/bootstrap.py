# SPDX-License-Identifier: Apache-2.0
"""The README's two commands: from a fresh checkout to a calibration report, or to a test run.

Needs only Python with venv and pip. Makes a virtual environment in the checkout from the locked requirements, once,
with uv or else with pip; later starts compare a fingerprint. The syntax is that of any Python 3, so that an old one
gets a clear message.
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

import ast
import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

CHECKOUT = Path(ROOT)
REQUIREMENTS = CHECKOUT / "requirements"
BUILD = REQUIREMENTS / "build.txt"
UV = REQUIREMENTS / "uv.txt"

UV_VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "proxy": "ALL_PROXY",
    "retries": "UV_HTTP_RETRIES",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
"""Where packages come from: settings of pip that uv does not read, and its own for the same."""

OF_PIP = {
    "break-system-packages", "cache-dir", "compile", "config-file", "disable-pip-version-check", "no-cache-dir",
    "no-color", "no-compile", "no-input", "no-python-version-warning", "no-warn-script-location", "prefer-binary",
    "progress-bar", "quiet", "require-hashes", "require-virtualenv", "root-user-action", "user", "verbose",
}  # fmt: skip
"""Settings of pip that change nothing in a new environment of pinned packages. With any other, pip is used."""


class NoUvError(Exception):
    """Why uv cannot install the packages."""


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
        began = time.monotonic()
        say(f"making {directory.name} from requirements/{lock.name}: once")
        work = cache / f"{directory.name}.installing"
        shutil.rmtree(work, ignore_errors=True)
        try:
            install(directory, lock, work, with_package=with_package)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        stamp.write_text(wanted, encoding="utf-8")
        say(f"{directory.name} made in {time.monotonic() - began:.0f} s")
    return python


def install(directory: Path, lock: Path, work: Path, *, with_package: bool) -> None:
    """Make a virtual environment in *directory* and install the packages of *lock* into it, with uv or else with pip.

    *work* is an empty directory on the same file system: packages are linked from it, so that no other environment
    has the same files, and nothing is copied.
    """
    python = str(directory / "bin" / "python")
    tools = str(work / "tools")
    borrowed = importlib.util.find_spec("pip") is not None and Path(sys.prefix) != directory  # which is cleared below
    if not borrowed and importlib.util.find_spec("ensurepip") is None:
        fail(f"{sys.executable} lacks pip and ensurepip: on Debian install python3-venv")
    make = [sys.executable, "-m", "venv", "--clear", *(("--without-pip",) if borrowed else ()), str(directory)]
    pip = [sys.executable, "-m", "pip", "--python", python] if borrowed else [python, "-m", "pip"]
    options = ["install", "--quiet", "--no-input", "--disable-pip-version-check"]
    if not sys.dont_write_bytecode:
        options.append("--no-compile")  # most modules are never imported; the others are compiled at their first import
    steps = [["--require-hashes", "--requirement", str(lock)]]
    if with_package:
        steps.append(["--require-hashes", "--target", tools, "--requirement", str(BUILD)])
        steps.append(["--no-deps", "--no-build-isolation", "--editable", ROOT])
    environ = {**os.environ, "PYTHONPATH": tools}
    run(make, os.environ)
    try:
        sources, settings = uv_settings(pip)
        get_uv = ["--require-hashes", "--only-binary", ":all:", "--target", tools, "--requirement", str(UV)]
        attempt([*pip, *options, *get_uv], os.environ)
        uv = [f"{tools}/bin/uv", "pip", "install", "--quiet", "--python", python, *sources]
        for step in steps:
            attempt(
                [*uv, "--cache-dir", str(work / "cache"), "--link-mode", "hardlink", *step], {**environ, **settings}
            )
    except NoUvError as reason:
        say(f"{reason}: pip installs the packages")
        shutil.rmtree(work, ignore_errors=True)
        run(make, os.environ)
        for step in steps:
            run([*pip, *options, *step], environ)


def uv_settings(pip: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return options and environment variables that make uv take packages from where *pip* is configured to.

    Raise ``NoUvError`` if none can.
    """
    listed = subprocess.run([*pip, "config", "list"], check=False, capture_output=True, text=True)
    if listed.returncode != 0:
        fail(f"'{' '.join(pip)} config list' failed with exit code {listed.returncode}:\n{listed.stderr}")
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # each wins over those before it
        for line in listed.stdout.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{section}."):
                found[name.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    closed = ["--no-index"] if found.pop("no-index", "0").lower() in {"1", "on", "t", "true", "y", "yes"} else []
    unknown = sorted(found.keys() - UV_VARIABLES.keys() - OF_PIP)
    if unknown:
        raise NoUvError(f"uv has no setting for pip's {', '.join(unknown)}")
    return closed, {
        variable: ("," if name == "find-links" else " ").join(found[name].split())
        for name, variable in UV_VARIABLES.items()
        if name in found
    }


def attempt(command: list[str], environ: Mapping[str, str]) -> None:
    """Run *command* and print its output. Exit if a package's hash is not that of the lock.

    Raise ``NoUvError`` if it cannot be started or fails otherwise.
    """
    try:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environ,
        )  # fmt: skip
    except OSError as error:
        raise NoUvError(f"cannot start uv: {error.strerror}") from error
    sys.stderr.write(done.stdout)
    if done.returncode != 0:
        if "hash" in done.stdout.lower():
            fail(f"'{' '.join(command)}' failed with exit code {done.returncode}: see its output above")
        raise NoUvError("uv cannot be used, see above")


def run(command: list[str], environ: Mapping[str, str]) -> None:
    """Run *command*; exit if it fails."""
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, env=environ)
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
