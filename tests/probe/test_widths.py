# SPDX-License-Identifier: Apache-2.0
"""Every vector width on emulated processors that have it: offered, used, and its work proved."""

import platform
from pathlib import Path

import pytest

from calibration.build import BuiltProbe
from tests.probe.conftest import Probe
from tests.tools import emulator

SVE_BITS = (128, 256, 512, 1024, 2048)
EVERY_MIX = "reads,3:1,2:1,1:1,stream_triad,write,write_nt,copy,copy_nt,triad"


def emulated(architecture: str, model: str, binary: Path) -> Probe:
    return Probe(emulator(architecture), "-cpu", model, str(binary))


def sve_of(bits: int) -> str:
    """Name a processor whose SVE registers have so many bits and no fewer are used."""
    shorter = ",".join(f"sve{bit}=on" for bit in SVE_BITS if bit < bits)
    longer = ",".join(f"sve{bit}=off" for bit in SVE_BITS if bit > bits)
    return ",".join(part for part in ("max", f"sve{bits}=on", shorter, longer) if part)


@pytest.mark.parametrize("bits", SVE_BITS)
def test_sve_of_every_length_is_proved(bits: int, built_aarch64: BuiltProbe) -> None:
    if platform.machine() == "aarch64":
        pytest.skip("aarch64 is native here")
    probe = emulated("aarch64", sve_of(bits), built_aarch64.path)
    # Longer registers come first; of equal length NEON does, so that values of both kinds of processor compare.
    assert probe("info").document["result"]["widths"] == (["neon", "sve"] if bits == 128 else ["sve", "neon"])
    done = probe(
        "bandwidth", "--group", "0@0", "--mix", EVERY_MIX, "--buffer-bytes", "4096,20480", "--width", "sve",
        "--window-s", "0.002", "--windows", "1", "--placements", "1",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    points = done.document["result"]["points"]
    assert len(points) == 20
    assert all(point["checked"] and point["width"] == "sve" for point in points)


def test_sve_is_refused_where_there_is_none(built_aarch64: BuiltProbe) -> None:
    if platform.machine() == "aarch64":
        pytest.skip("aarch64 is native here")
    probe = emulated("aarch64", "max,sve=off", built_aarch64.path)
    assert probe("info").document["result"]["widths"] == ["neon"]
    done = probe("bandwidth", "--group", "0@0", "--mix", "reads", "--buffer-bytes", "4096", "--width", "sve")
    assert done.code == 3
    assert done.document["error"]["code"] == "unsupported"


@pytest.mark.parametrize(("model", "widths"), [("Nehalem", ["sse2"]), ("Haswell", ["avx2", "sse2"])])
def test_narrower_x86_processors_are_proved(model: str, widths: list[str], built_x86_64: BuiltProbe) -> None:
    probe = emulated("x86_64", model, built_x86_64.path)
    assert probe("info").document["result"]["widths"] == widths
    for width in widths:
        done = probe(
            "bandwidth", "--group", "0@0", "--mix", EVERY_MIX, "--buffer-bytes", "4096,20480", "--width", width,
            "--window-s", "0.002", "--windows", "1", "--placements", "1",
        )  # fmt: skip
        assert done.code == 0, done.stderr
        assert all(point["checked"] and point["width"] == width for point in done.document["result"]["points"])


@pytest.mark.parametrize(
    ("mix", "instruction", "model"),
    [("write_nt", "dc_zva", "neoverse-n1"), ("write_nt", "dc_zva", "max"), ("reads", "ldnp", "neoverse-n1")],
)
def test_instructions_of_aarch64_are_proved_or_refused(
    mix: str, instruction: str, model: str, built_aarch64: BuiltProbe
) -> None:
    if platform.machine() == "aarch64":
        pytest.skip("aarch64 is native here")
    done = emulated("aarch64", model, built_aarch64.path)(
        "bandwidth", "--group", "0@0", "--mix", mix, "--instruction", instruction, "--buffer-bytes", "4096,20480",
        "--window-s", "0.002", "--windows", "1", "--placements", "1",
    )  # fmt: skip
    if model == "max":  # it clears 512 bytes at once, which is no line
        assert done.document["error"]["code"] == "unsupported"
        return
    assert done.code == 0, done.stderr
    assert all(point["checked"] and point["instruction"] == instruction for point in done.document["result"]["points"])
