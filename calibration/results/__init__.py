# SPDX-License-Identifier: Apache-2.0
"""The run document: its typed model, its JSON Schema, and its store."""
