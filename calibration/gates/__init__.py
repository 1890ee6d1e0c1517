# SPDX-License-Identifier: Apache-2.0
"""Gates of a night: Robot Framework suites that read as a specification, and their keywords."""
