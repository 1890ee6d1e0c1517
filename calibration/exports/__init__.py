# SPDX-License-Identifier: Apache-2.0
"""Metrics for other programs: a text for Prometheus, lines for InfluxDB, and the whole history as Parquet."""
