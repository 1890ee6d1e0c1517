# SPDX-License-Identifier: Apache-2.0
"""Calibration harness for test labs: the controller's side."""

import os

__version__ = "0.1.0"

# Ansible forks a process for each task. A fork does not inherit the threads that OpenBLAS starts when numpy is
# imported: it has to end them first, and a matrix product in the forked process can hang
# (https://github.com/OpenMathLib/OpenBLAS/issues/5520). No product here is large enough to benefit from threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
