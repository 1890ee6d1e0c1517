# SPDX-License-Identifier: Apache-2.0
"""Runs on known hardware, and references of it: made from the recorded run of the machine with two sockets."""

from datetime import date
from typing import Any

from calibration.context.model import Dimm
from calibration.references.library import Library
from calibration.references.metrics import Instrument, Metric
from calibration.references.model import Figure, Memory, ReferenceMachine, Source
from calibration.results.model import RunDocument

PROCESSOR = "Intel(R) Xeon(R) Gold 6252N CPU @ 2.30GHz"


def on_metal(
    document: RunDocument, processor: str = PROCESSOR, mt_s: int = 2933, channels: int = 6, sut: str | None = None
) -> RunDocument:
    """Return *document* as if measured on a server with two sockets, each with *channels* of memory of *mt_s* MT/s."""
    assert document.context is not None
    context = document.context.parsed
    dimms = tuple(
        Dimm(
            locator=f"CPU{socket}_DIMM_{letter}1", bank=None, size_bytes=16 << 30, type="DDR4", form_factor="DIMM",
            data_width_bits=64, total_width_bits=72, ranks=2, speed_mt_s=mt_s, configured_mt_s=mt_s,
            manufacturer="Example", part="EX-1",
        )
        for socket in (0, 1)
        for letter in "ABCDEFGH"[:channels]
    )  # fmt: skip
    (model, *_) = context.processor.models
    changed = {
        "virtualization": context.virtualization.model_copy(update={"guest": False}),
        "processor": context.processor.model_copy(update={"models": (model.model_copy(update={"name": processor}),)}),
        "firmware": context.firmware.model_copy(update={"dimms": dimms}),
    }
    captured = document.context.model_copy(update={"parsed": context.model_copy(update=changed)})
    run = document.run if sut is None else document.run.model_copy(update={"sut": sut})
    return document.model_copy(update={"context": captured, "run": run})


SOURCE = Source(title="Example lab", date=date(2026, 1, 31), date_is="measured", licence="CC0-1.0")


def machine(
    name: str,
    value: float,
    metric: Metric = "idle_latency_local_ns",
    instrument: Instrument = "sutprobe",
    how: str | None = None,
    **fields: Any,
) -> ReferenceMachine:
    """Return a reference of the hardware of ``on_metal``; *fields* replace its conditions."""
    memory = {"type": "DDR4", "mt_s": 2933, "channels_per_socket": 6}
    known: dict[str, Any] = {"processor": PROCESSOR, "sockets": 2, "cores_per_socket": 2, "nodes_per_socket": 1}
    of_memory = {key: fields.pop(key) for key in memory if key in fields}
    return ReferenceMachine(
        name=name,
        instrument=instrument,
        memory=Memory(**(memory | of_memory)),
        figures=(Figure(metric=metric, value=value, how=how),),
        **(known | fields),
    )


def library_of(*machines: ReferenceMachine) -> Library:
    """Return a library of *machines*, from one source."""
    return Library(tuple((SOURCE, item) for item in machines))
