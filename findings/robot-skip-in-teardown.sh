#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: Robot Framework 7.5 (7.0 too), Skip in the teardown of a test and of a suite
# Expected: a test whose body failed stays failed, as with a failure in the teardown; the exit code is 2
# Seen: both tests count as skipped, JUnit has no failure, and the exit code is 0
# Source: Robot Framework User Guide, "Skip in teardown"; robot/result/suiteteardownfailed.py
# Here: calibration/gates/library.py lets a gate that failed stay failed
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv tools
tools/bin/pip install --quiet robotframework==7.5
cat > one.robot <<'EOF'
*** Test Cases ***
One
    Fail    broken
    [Teardown]    Skip    no matter
EOF
cat > two.robot <<'EOF'
*** Settings ***
Suite Teardown    Skip    no matter
*** Test Cases ***
Two
    Fail    broken
EOF
code=0
tools/bin/robot --xunit junit.xml one.robot two.robot > log.txt || code=$?
seen="exit code $code, $(grep -c '<skipped' junit.xml) skipped, $(grep -c '<failure' junit.xml || true) failed"
echo "$seen"
[ "$seen" = "exit code 0, 2 skipped, 0 failed" ]
