# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.fuzz``: texts that nobody would write, for the readers of other programs' output.

libFuzzer (through Atheris) changes the fixtures and the kept corpus, guided by what of the readers each text reaches.
No text may make a reader raise anything but a refusal, take long, or say a figure that does not stand in the text. Ends
with what the corpus covers of the readers; with ``--keep`` the smallest texts that cover it are kept.
"""
# ruff: noqa: T201 - this is a command

import argparse
import gzip
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.readings import CORPUS, PAGES, RAW, corpus, hold

LARGEST_BYTES = 12_000
SLOWEST_S = 10
ROUND_S = 60

WORDS = (
    "Intel(R) Memory Latency Checker - v3.9",
    "Command line parameters: --latency_matrix -a",
    "Measuring idle latencies (in ns)...",
    "Measuring Memory Bandwidths between nodes within system",
    "Measuring Peak Injection Memory Bandwidths for the system",
    "Measuring Maximum Memory Bandwidths for the system",
    "Measuring Loaded Latencies for the system",
    "Measuring cache-to-cache transfer latency (in ns)...",
    "Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)",
    "Each iteration took 231.5 core clocks ( 93.4 ns)",
    "Numa node            0       1",
    "Remote Socket L2->L2 HITM latency (data address homed in reader socket)",
    "Local Socket L2->L2 HITM latency",
    "Inject  Latency Bandwidth",
    "Delay   (ns)    MB/sec",
    "ALL Reads        :",
    "Stream-triad like:",
    "Linux Jitter testing program version 1.9",
    "Inst_Min,Inst_Max,Inst_jitter,last_Exec,Abs_min,Abs_max,tmp,Interval,Sample No",
    "Iterations=20",
    "core_id:7",
    "$ cat /proc/cmdline",
    "$ uname -a",
    "$ sudo taskset -c 3 ./jitter -i 30",
    "$ sudo ./mlc --c2c_latency",
    "::",
    "TBC",
    "isolcpus=1-3",
)
"""What libFuzzer may put into a text as a whole."""


def target(arguments: list[str]) -> None:
    """Be the program that is fuzzed: libFuzzer's own command line."""
    import atheris

    with atheris.instrument_imports(include=["calibration.formats"]):
        for name in [module for module in sys.modules if module.startswith(("calibration.formats", "tests.readings"))]:
            del sys.modules[name]
        from tests.readings import hold as checked

    # libFuzzer starts itself again to merge a corpus, through a shell and by this name
    atheris.Setup([f"{sys.executable} -m tests.fuzz --target", *arguments], checked)
    atheris.Fuzz()


def seeds() -> list[bytes]:
    """Return the texts to begin with: the fixtures."""
    return [text for path in (*RAW, *PAGES) if len(text := path.read_bytes()) <= LARGEST_BYTES]


def fuzz(folder: Path, words: Path, arguments: list[str]) -> None:
    """Run the fuzzed program once on *folder*. Raises ``CalledProcessError`` if it found something."""
    common = [f"-max_len={LARGEST_BYTES}", f"-timeout={SLOWEST_S}", f"-dict={words}", "-print_final_stats=1"]
    prefix = f"-artifact_prefix={folder.parent}/"
    subprocess.run([sys.executable, "-m", "tests.fuzz", "--target", *common, prefix, *arguments], check=True)


def coverage(place: Path, *arguments: str) -> None:
    """Run the program that measures coverage with its data in *place*."""
    command = [sys.executable, "-m", "coverage", arguments[0], f"--data-file={place / 'coverage'}", *arguments[1:]]
    subprocess.run(command, check=True)


def main(arguments: list[str]) -> int:
    """Fuzz for the wanted CPU time and say what was reached; 1 where a text broke a rule."""
    if arguments[:1] == ["--target"]:
        target(arguments[1:])
        return 0
    if arguments[:1] == ["--replay"]:
        for path in Path(arguments[1]).iterdir():
            hold(path.read_bytes())
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cpu-s", type=float, default=600.0, help="CPU time to fuzz for, in s")
    parser.add_argument("--keep", action="store_true", help="keep the smallest texts that reach what was reached")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="calibration-fuzz-") as name:
        place = Path(name)
        grown, kept, words = place / "grown", place / "kept", place / "words"
        grown.mkdir()
        kept.mkdir()
        words.write_text("".join(f'"{word}"\n' for word in WORDS), encoding="utf-8")
        for folder, texts in ((grown, corpus()), (grown, seeds()), (kept, seeds())):
            for text in texts:
                (folder / hashlib.sha256(text).hexdigest()).write_bytes(text)
        try:
            while (used := resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime) < options.cpu_s:
                print(f"{used:.0f} of {options.cpu_s:.0f} s, {len(list(grown.iterdir()))} texts", flush=True)
                fuzz(grown, words, [f"-max_total_time={min(ROUND_S, int(options.cpu_s - used) + 1)}", str(grown)])
            fuzz(grown, words, ["-merge=1", str(kept), str(grown)])
        except subprocess.CalledProcessError as error:
            for found in (path for path in place.iterdir() if path.is_file() and path != words):
                print(f"{found.name}: {found.read_bytes()!r}")
            print(f"a text broke a rule: the program ended with {error.returncode}")
            return 1
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        texts = sorted({path.read_bytes() for path in kept.iterdir()} - set(seeds()))
        print(f"{used:.0f} s of CPU time; {len(texts)} texts reach what no fixture does. All together:", flush=True)
        readers = "--include=*/calibration/formats/*"
        coverage(place, "run", "--branch", readers, "-m", "tests.fuzz", "--replay", str(kept))
        coverage(place, "report")
    if options.keep:
        lines = [json.dumps(text.decode("utf-8", errors="surrogateescape")) for text in texts]
        CORPUS.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode("ascii"), mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
