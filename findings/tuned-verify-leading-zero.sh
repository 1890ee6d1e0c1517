#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: TuneD 2.20.0 (Debian 12), the comparison of `tuned-adm verify`
# Expected: kernel.watchdog_cpumask=0,2 differs from 2, and vm.swappiness=010, which sets 8, from 10
# Seen: both are verified: leading zeros are dropped of any value with digits and commas, here of a list the CPU 0
# Source: tuned/plugins/base.py, _norm_value and _verify_value; kernel/sysctl.c, proc_get_long
# Here: calibration/comparisons.py compares by what the file holds, and reads a leading zero as octal
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
from tuned.plugins.base import Plugin
from tuned.utils.commands import commands

plugin = Plugin.__new__(Plugin)
plugin._cmd = commands()
pairs = [("kernel.watchdog_cpumask", "0,2", "2"), ("vm.swappiness", "010", "10"), ("vm.swappiness", "1", "2")]
found = [plugin._verify_value(name, wanted, value, True) for name, wanted, value in pairs]
print(*(f"{name}={wanted} {'verified' if met else 'refused'} at {value};" for met, (name, wanted, value) in zip(found, pairs)))
sys.exit(found != [True, True, False])
END
