#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: Apache Otava 0.8.0, analyze, a CSV file with a missing value as NaN
# Expected: the change is found as without it, or the value is refused as an empty one is
# Seen: no change of the series is found, and nothing is said
# Source: fetch_data in otava/importer.py; float("nan") is a number
# Here: calibration/exports/tracking.py writes a file for each metric, with the runs that have it
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv tools
tools/bin/pip install --quiet apache-otava==0.8.0
for name in whole gap; do
  echo time,value > $name.csv
  for day in 01 02 03 04 05 06 07 08 09 10; do echo "2026-10-${day}T00:00:00Z,100.$day" >> $name.csv; done
  for day in 11 12 13 14 15 16 17 18 19 20; do echo "2026-10-${day}T00:00:00Z,120.$day" >> $name.csv; done
done
sed -i 's/100.03/nan/' gap.csv
cat > otava.yaml <<'END'
tests:
  whole: {type: csv, file: whole.csv, metrics: {whole: {column: value}}}
  gap: {type: csv, file: gap.csv, metrics: {gap: {column: value}}}
END
export OTAVA_CONFIG=otava.yaml
for name in whole gap; do
  tools/bin/otava analyze $name --since 2026-01-01 --until 2026-10-30 > $name.txt 2>&1
  echo "$name: $(grep -c '+19\|+20' $name.txt || true) changes"
done
grep -q '+19\|+20' whole.txt && ! grep -q '%' gap.txt
