# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background with Ctrl-C ignored, and so would every program that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
