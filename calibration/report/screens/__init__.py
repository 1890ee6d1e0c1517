# SPDX-License-Identifier: Apache-2.0
"""Text for terminals, of what is judged: one screen each."""
