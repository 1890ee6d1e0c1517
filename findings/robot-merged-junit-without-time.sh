#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: Robot Framework 7.5, rebot --merge --xunit
# Expected: the merged JUnit file has the time of the run, as that of each run has; JUnit's schema requires it
# Seen: timestamp="" on the outermost test suite
# Source: robot/reporting/xunitwriter.py
# Here: docs/guide/gates.rst says so; the gates' own JUnit file is never a merged one
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv tools
tools/bin/pip install --quiet robotframework==7.5
printf '*** Test Cases ***\nOne\n    Log    1\n' > one.robot
tools/bin/robot --log NONE --report NONE --output one.xml --xunit alone.xml one.robot > log.txt
tools/bin/rebot --log NONE --report NONE --merge --xunit merged.xml one.xml one.xml > log.txt
alone=$(grep -o 'timestamp="[^"]*"' alone.xml | head -n 1)
merged=$(grep -o 'timestamp="[^"]*"' merged.xml | head -n 1)
echo "alone: $alone, merged: $merged"
[ "$alone" != 'timestamp=""' ] && [ "$merged" = 'timestamp=""' ]
