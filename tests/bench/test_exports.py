# SPDX-License-Identifier: Apache-2.0
"""The benchmark of exports: every row of the index reaches each of them."""

from click.testing import CliRunner

from bench.exports import exports


def test_every_row_is_exported() -> None:
    ended = CliRunner().invoke(exports, ["table", "--suts", "3", "--nights", "4", "--metrics", "5"])
    assert ended.exception is None
    rows = [line.split() for line in ended.output.splitlines() if line.startswith("``")]
    assert [(row[2], row[3]) for row in rows] == [("parquet``", "60"), ("influx``", "60")]
