# SPDX-License-Identifier: Apache-2.0
"""Pages of runs, the site, and what commands and services print on a terminal.

A page is a pure function of its run document and the references: no clock, no look-up on the host, stable order, the
same bytes each time.
"""
