# SPDX-License-Identifier: Apache-2.0
"""What ``sutprobe`` prints: the typed form of its JSON documents, one module per subcommand.

A document is read strictly: a field that is missing, unknown, of another type or not finite is an error, because a
result that is not understood must never become a figure. Sizes are bytes, times ns or s, rates MB/s (10^6 bytes).
"""
