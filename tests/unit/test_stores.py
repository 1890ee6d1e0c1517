# SPDX-License-Identifier: Apache-2.0

import pytest

from calibration.context.model import Context
from calibration.measurements.stores import stores_flags
from tests.captures import captured


def machine(architecture: str, vendor: str, family: str, model: str) -> Context:
    context = captured("x86_64-two-nodes-smt")
    cpu = context.processor.models[0].model_copy(update={"vendor": vendor, "family": family, "model": model})
    processor = context.processor.model_copy(update={"architecture": architecture, "models": (cpu,)})
    return context.model_copy(update={"processor": processor})


SAPPHIRE_RAPIDS = machine("x86_64", "GenuineIntel", "6", "143")
CASCADE_LAKE = machine("x86_64", "GenuineIntel", "6", "85")
GENOA = machine("x86_64", "AuthenticAMD", "25", "17")
GRACE = machine("aarch64", "ARM", "8", "0xd4f")


@pytest.mark.parametrize(("context", "word"), [(SAPPHIRE_RAPIDS, "SpecI2M"), (GRACE, "write-streaming")])
def test_flags_stores_with_dynamic_write_allocate(context: Context, word: str) -> None:
    (found,) = stores_flags(context, ["reads", "write", "copy"], counted=False)
    assert found.code == "STORES_ASSUMED"
    assert found.reason.startswith("copy, write: ")
    assert word in found.reason


@pytest.mark.parametrize("context", [CASCADE_LAKE, GENOA])
def test_no_flag_if_every_store_reads_its_line(context: Context) -> None:
    assert not list(stores_flags(context, ["write"], counted=False))


@pytest.mark.parametrize("mixes", [["reads", "3:1", "1:1"], ["write_nt", "copy_nt", "stream_triad"]])
def test_no_flag_for_updates_and_streaming_stores(mixes: list[str]) -> None:
    assert not list(stores_flags(SAPPHIRE_RAPIDS, mixes, counted=False))


def test_what_rep_stosb_reads_is_unknown_until_it_is_counted() -> None:
    (found,) = stores_flags(GENOA, ["write_nt"], counted=False, instructions=["vector", "rep_stosb"])
    assert found.code == "STORES_ASSUMED"
    assert "rep_stosb" in found.reason
    assert not list(stores_flags(GENOA, ["write_nt"], counted=True, instructions=["rep_stosb"]))
    assert not list(stores_flags(GENOA, ["write_nt"], counted=False, instructions=["clzero"]))


def test_counted_bytes_need_no_assumption() -> None:
    assert not list(stores_flags(SAPPHIRE_RAPIDS, ["write"], counted=True))
