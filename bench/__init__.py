# SPDX-License-Identifier: Apache-2.0
"""This project's program against its peers, on one machine, in alternation."""
