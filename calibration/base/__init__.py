# SPDX-License-Identifier: Apache-2.0
"""What every other part uses: errors, files, text, units, models, estimates, flags and trust."""
