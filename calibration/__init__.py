# SPDX-License-Identifier: Apache-2.0
"""Calibration harness for test labs: the controller's side."""

import os

__version__ = "0.1.0"

# Ansible forks a process for each task. The threads that OpenBLAS starts when numpy is imported do not go with a fork:
# each fork has to end them first, and a product that would be shared among them can wait for good in a forked process
# (https://github.com/OpenMathLib/OpenBLAS/issues/5520). No product here is large enough to gain by them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
