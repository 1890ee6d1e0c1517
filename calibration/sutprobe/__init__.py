# SPDX-License-Identifier: Apache-2.0
"""The JSON documents of ``sutprobe``: typed models, one module per subcommand.

Documents are read strictly: a missing, unknown, mistyped or non-finite field is an error. Sizes are bytes, times ns or
s, rates MB/s (10^6 bytes).
"""
