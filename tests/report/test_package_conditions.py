# SPDX-License-Identifier: Apache-2.0
"""The latencies with the package idle and active on a page."""

from calibration.measurements.idle_latency import IdleLatencyValues
from calibration.measurements.latency_matrix import LatencyMatrixValues
from calibration.measurements.table import TableRow
from calibration.sutprobe.latency import KeepAwakeThread
from tests.report.report_documents import (
    index_of,
    page_of,
    parsed,
    replace,
    run_document,
    scaled,
    with_nodes,
    with_rows,
)

KEEP_AWAKE = (KeepAwakeThread(cpu=7, node=0, mb_s=299.6), KeepAwakeThread(cpu=9, node=1, mb_s=287.1))


def test_a_page_has_both_latencies_and_the_one_of_record() -> None:
    document = with_nodes(run_document(), 2)
    index = index_of(document, "idle_latency")
    values = document.measurements[index].values
    assert isinstance(values, IdleLatencyValues)
    idle, active = scaled(values.latency_ns, 1.25), values.latency_ns
    beside = {
        "condition": "package_active",
        "package_idle_ns": idle,
        "package_active_ns": active,
        "keep_awake": KEEP_AWAKE[:1],
    }
    document = replace(document, index, values=values.model_copy(update=beside))
    index = index_of(document, "latency_matrix")
    matrix = document.measurements[index].values
    assert isinstance(matrix, LatencyMatrixValues)
    rows = [
        TableRow(
            row
            | {
                "condition": "package_active",
                "package_idle_ns": scaled(row.latency_ns, 1.25),
                "package_active_ns": row.latency_ns,
            }
        )
        for row in matrix.table.rows[:3]
    ]
    matrix = with_rows(matrix, [*rows, matrix.table.rows[3]])
    document = replace(document, index, values=matrix.model_copy(update={"keep_awake": KEEP_AWAKE}))
    text = " ".join(parsed(page_of(document)).astext().split())
    assert (
        f"a load took {idle.value:.1f} ns; package active, while CPU 7 read 300 MB/s, {active.value:.1f} ns. "
        "The headline metric is the one with the package active."
    ) in text
    assert "active, while CPUs 7, 9 read 287 to 300 MB/s each." in text
    cell = rows[0].latency_ns
    assert f"{cell.value * 1.25:.1f} / {cell.value:.1f}*" in text
    assert "-" in text.split("idle / active:")[1].split("An asterisk")[0]
