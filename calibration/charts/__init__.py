# SPDX-License-Identifier: Apache-2.0
"""Charts: typed values in, a Vega-Lite specification out, or ``None`` if a sentence is enough."""
