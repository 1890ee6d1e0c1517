# SPDX-License-Identifier: Apache-2.0
"""The program that runs a plan on a SUT. Standard library only, Python 3.8 and later.

It holds the SUT, changes settings and restores them, runs the steps and keeps their output until it is collected.
``calibration.runner.bundle`` packs it, with sutprobe if wanted, into one file that ``python3 FILE`` runs.
"""
