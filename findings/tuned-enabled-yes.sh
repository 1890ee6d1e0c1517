#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: TuneD 2.20.0 (Debian 12), sections of a profile
# Expected: enabled=yes switches a section on, and a profile that includes another keeps what that one switched off
# Seen: anything but 1, true and True is off; a later section of the same name without enabled= switches it on again
# Source: tuned/profiles/unit.py, tuned/profiles/merger.py
# Here: calibration/runner/profiles.py merges profiles in the same way
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"
apt-get download -q tuned=2.20.0-1 > /dev/null 2>&1
dpkg-deb -x tuned_2.20.0-1_all.deb .
PYTHONPATH=$work/usr/lib/python3/dist-packages python3 - <<'END'
import logging
import sys

logging.disable(logging.CRITICAL)
from tuned.profiles.merger import Merger
from tuned.profiles.profile import Profile

off = Profile("base", {"sysctl": {"enabled": "0", "vm.swappiness": "1"}})
later = Profile("own", {"sysctl": {"kernel.nmi_watchdog": "0"}})
yes = Profile("yes", {"sysctl": {"enabled": "yes"}}).units["sysctl"].enabled
merged = Merger().merge([off, later]).units["sysctl"].enabled
print(f"enabled=yes: {'on' if yes else 'off'}; off, then named again: {'on' if merged else 'off'}")
sys.exit((yes, merged) != (False, True))
END
