# SPDX-License-Identifier: Apache-2.0
"""A made lab to try the commands on: its nights are variations of stored documents, not measurements."""
