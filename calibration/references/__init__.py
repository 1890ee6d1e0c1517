# SPDX-License-Identifier: Apache-2.0
"""Is it normal? References of calibration figures as data, and the comparison of a run with them.

``published/`` has one file of figures for each source; a lab's own are in its results. A page says what is usual for
the hardware, or that there is no reference.
"""
