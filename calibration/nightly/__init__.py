# SPDX-License-Identifier: Apache-2.0
"""What a nightly calibration does besides measuring: locking, judging, publishing and retention."""
