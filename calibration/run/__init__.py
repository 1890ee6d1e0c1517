# SPDX-License-Identifier: Apache-2.0
"""One SUT's run: its plan, session, records, and the document that is assembled from them."""
