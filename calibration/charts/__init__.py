# SPDX-License-Identifier: Apache-2.0
"""Charts: typed values in, a Vega-Lite specification out, or ``None`` where a sentence says more."""
