# SPDX-License-Identifier: Apache-2.0
"""Third-party formats: output of other programs, and files of other projects."""
