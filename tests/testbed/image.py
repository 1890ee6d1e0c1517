# SPDX-License-Identifier: Apache-2.0
"""The guests' root file system, kernel and initial RAM disk: built once per recipe, then cached.

mmdebstrap makes the file system from the archive that this machine's own apt uses, and mke2fs writes it into an image:
nothing is mounted. As root mmdebstrap works as root; for others it needs user namespaces (its mode unshare).
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
OVERLAY = HERE / "overlay"

SBIN = ("/usr/sbin", "/sbin")

BACKPORTS = "-backports"
"""What follows a release's name in that of its suite of newer packages."""

FREE_MIB = 1024
"""Space that a guest's file system has beyond what the image holds."""


class TestbedError(Exception):
    """The testbed cannot do what it was asked for; the sentence says what to do."""

    __test__ = False


class MissingProgramError(TestbedError):
    """A program is not installed that the testbed is made with."""

    __test__ = False


@dataclass(frozen=True)
class Architecture:
    """What differs between the architectures, and the kernels, that guests are made for."""

    debian: str
    kernel: str
    qemu: str
    machine: str
    console: str
    package: str
    backports: bool = False


ARCHITECTURES = {
    "x86_64": Architecture("amd64", "linux-image-cloud-amd64", "qemu-system-x86_64", "q35", "ttyS0", "qemu-system-x86"),
    # Of Debian's kernels only this one has the tracer osnoise. The newer: what the tests are known to pass on.
    "x86_64-rt": Architecture(
        "amd64", "linux-image-rt-amd64", "qemu-system-x86_64", "q35", "ttyS0", "qemu-system-x86", backports=True
    ),
    "aarch64": Architecture(
        "arm64", "linux-image-cloud-arm64", "qemu-system-aarch64", "virt", "ttyAMA0", "qemu-system-arm"
    ),
}

PACKAGES = (
    "dbus",  # logins get sessions of their own, as on a server
    "iproute2",
    "irqbalance",
    "kmod",
    "libpam-systemd",
    "numactl",
    "openssh-server",
    "procps",
    "python3",
    "sudo",
    "systemd-sysv",
    "udev",
    "zstd",  # compresses the initial RAM disk
)

MODULES = ("virtio_pci", "virtio_mmio", "virtio_blk", "ext4")
"""What the initial RAM disk needs to find the root file system."""

LOGINS = ("calibration", "withpassword")

UNITS_ON = ("testbed-network.service", "testbed-identity.service", "ssh.service")
UNITS_OFF = (
    "apt-daily.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    *(f"modprobe@{module}.service" for module in ("configfs", "dm_mod", "drm", "efi_pstore", "fuse", "loop")),
    "serial-getty@ttyS0.service",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "systemd-binfmt.service",
    "systemd-network-generator.service",
    "systemd-random-seed.service",
    "systemd-update-utmp.service",
    "user@.service",  # a login has its session without it, as on a server that nobody set up for users' services
)
"""Nothing waits for these, and under emulation each costs a good part of a second."""

EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


@dataclass(frozen=True)
class Image:
    """Files that guests are started from, which never change them."""

    directory: Path

    @property
    def root(self) -> Path:
        """The root file system."""
        return self.directory / "root.ext4"

    @property
    def kernel(self) -> Path:
        """The kernel."""
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """The initial RAM disk."""
        return self.directory / "initrd.img"


def cache() -> Path:
    """Return the directory in which images are kept."""
    return Path(os.environ.get("CALIBRATION_TESTBED_CACHE") or CHECKOUT / ".cache" / "testbed").resolve()


def sources() -> str:
    """Return the Debian archive of this machine's own apt, as lines of a sources.list."""
    if chosen := os.environ.get("CALIBRATION_TESTBED_SOURCES"):
        return Path(chosen).read_text(encoding="utf-8")
    command = ["apt-get", "indextargets", "--format", "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"]
    done = run([*command, "Created-By: Packages", "Origin: Debian"], "list this machine's package sources")
    lines = sorted({line for line in done.splitlines() if line.endswith(" main")})
    if not lines:
        msg = (
            "expected a Debian archive among this machine's package sources, found none. "
            "Run 'apt-get update'; on a machine that is no Debian, name a file in the form of Debian's sources.list in "
            "CALIBRATION_TESTBED_SOURCES"
        )
        raise TestbedError(msg)
    return "".join(f"{line}\n" for line in lines)


def archive_of(architecture: str) -> str:
    """Return the archive that an image is made from: where its kernel is newer than the release, the backports too."""
    lines = sources()
    if not ARCHITECTURES[architecture].backports:
        return lines
    for _, uri, suite, *_ in map(str.split, lines.splitlines()):
        if "-" not in suite:
            return f"{lines}deb {uri} {suite}{BACKPORTS} main\n"
    msg = f"expected a release of Debian among the package sources, to take its backports, found none in:\n{lines}"
    raise TestbedError(msg)


def recipe(architecture: str, archive: str) -> dict[str, object]:
    """Return all that decides what is in an image."""
    files = {
        str(path.relative_to(OVERLAY)): [path.stat().st_mode & 0o111, path.read_text(encoding="utf-8")]
        for path in sorted(OVERLAY.rglob("*"))
        if path.is_file()
    }
    return {
        "architecture": architecture,
        "command": command_of(architecture, archive),
        "archive": archive,
        "files": files,
    }


def command_of(architecture: str, archive: str) -> list[str]:
    """Return mmdebstrap's command, without its mode and where it writes to."""
    made = ARCHITECTURES[architecture]
    suites = [f"/{word}" for word in archive.split() if made.backports and word.endswith(BACKPORTS)]
    enter = 'chroot "$1"'
    owned = {f"/{path.relative_to(OVERLAY)}" for path in OVERLAY.rglob("*") if path.is_file()}
    essential = [
        'mkdir -p "$1/etc/initramfs-tools/conf.d"',
        'echo MODULES=list > "$1/etc/initramfs-tools/conf.d/testbed"',
        f'printf "%s\\n" {" ".join(MODULES)} > "$1/etc/initramfs-tools/modules"',
    ]
    customize = [
        *(f"{enter} useradd --create-home --shell /bin/bash {login}" for login in LOGINS),
        f"{enter} chown -R root:root {' '.join(sorted(owned))}",
        'chmod 0440 "$1/etc/sudoers.d/testbed"',
        'rm -f "$1"/etc/ssh/ssh_host_*',
        f"{enter} systemctl enable {' '.join(UNITS_ON)}",
        f"{enter} systemctl mask {' '.join(UNITS_OFF)}",
        f"{enter} systemctl set-default multi-user.target",
        # Empty, not missing: each boot makes one, and is not a first boot with all that this entails.
        ': > "$1/etc/machine-id"',
        'rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
    ]
    return [
        "mmdebstrap",
        f"--architectures={made.debian}",
        "--variant=essential",
        f"--include={','.join(sorted([*PACKAGES, ''.join([made.kernel, *suites])]))}",
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED),
        *(f"--essential-hook={line}" for line in essential),
        "--customize-hook=sync-in OVERLAY /",
        *(f"--customize-hook={line}" for line in customize),
    ]


def build(architecture: str = "x86_64") -> Image:
    """Return the image of this recipe, after building it if there is none."""
    need("apt-get", "apt")
    archive = archive_of(architecture)
    made = recipe(architecture, archive)
    text = json.dumps(made, indent=1, sort_keys=True) + "\n"
    directory = cache() / "images" / f"{architecture}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if directory.is_dir():
        return Image(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir():  # nobody else built it meanwhile
            say(f"building the image {directory.name}: about a minute, once")
            with tempfile.TemporaryDirectory(prefix=".building-", dir=directory.parent) as scratch:
                write(Path(scratch), architecture, archive)
                done = Path(scratch) / "image"
                (done / "recipe.json").write_text(text, encoding="utf-8")
                done.rename(directory)
    return Image(directory)


def write(scratch: Path, architecture: str, archive: str) -> None:
    """Make the image's files in *scratch*/image."""
    need("mmdebstrap", "mmdebstrap")
    need("mke2fs", "e2fsprogs")
    if os.geteuid() != 0 and not namespaces():
        msg = (
            "expected root, or a kernel that lets this user make user namespaces (with entries in /etc/subuid "
            "and /etc/subgid), found neither. Build the image as root; starting guests needs no rights"
        )
        raise TestbedError(msg)
    tree, done = scratch / "root.tar", scratch / "image"
    done.mkdir()
    overlay = scratch / "overlay"
    shutil.copytree(OVERLAY, overlay)
    for path in (overlay, *overlay.rglob("*")):  # whatever the umask was when this was checked out
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    command = [item.replace("OVERLAY", str(overlay)) for item in command_of(architecture, archive)]
    mode = "root" if os.geteuid() == 0 else "unshare"
    run([*command, f"--mode={mode}", "--format=tar", "", str(tree), "-"], "make the root file system", archive)
    # Owners and device files are those of the archive when it is unpacked by root, or by who is root in a namespace.
    script = (
        f'set -eu; PATH="$PATH:{":".join(SBIN)}"; '
        'mkdir "$1/tree"; tar -x -C "$1/tree" -f "$1/root.tar"; '
        'cp -L "$1/tree/vmlinuz" "$1/tree/initrd.img" "$1/image/"; '
        'size=$(( $(du -sm "$1/tree" | cut -f1) * 11 / 10 + $2 )); '
        'mke2fs -q -t ext4 -L testbed -m 0 -E lazy_itable_init=0,lazy_journal_init=0 -d "$1/tree" '
        '"$1/image/root.ext4" "${size}m"; '
        'rm -rf "$1/tree"; chmod 644 "$1"/image/*'
    )
    outer = [] if os.geteuid() == 0 else ["mmdebstrap", "--unshare-helper"]
    if outer:
        scratch.chmod(0o777)  # the namespace's root is another user here
        done.chmod(0o777)
    run([*outer, "sh", "-c", script, "sh", str(scratch), str(FREE_MIB)], "write the file system into an image")


def need(program: str, package: str) -> None:
    """Prove that a program is installed; administrators' ones need not be on everybody's PATH."""
    if shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", ""), *SBIN))) is None:
        msg = f"expected the program {program}, found none. Install it: apt-get install {package}"
        raise MissingProgramError(msg)


def namespaces() -> bool:
    """Return whether this user may make user namespaces."""
    return subprocess.run(["mmdebstrap", "--unshare-helper", "true"], capture_output=True, check=False).returncode == 0


def run(command: list[str], purpose: str, text: str | None = None) -> str:
    """Run *command*, with *text* as its input; return what it printed."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        msg = f"cannot {purpose}: {command[0]}: {error.strerror}"
        raise TestbedError(msg) from error
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        msg = f"cannot {purpose}: {command[0]} ended with {done.returncode}:\n{end}"
        raise TestbedError(msg)
    return done.stdout


def say(text: str) -> None:
    """Tell the person who waits."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a build and a boot take their time


def native() -> str:
    """Return the architecture of this machine, as guests are named."""
    return {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
