#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: github.com/prometheus/procfs 0.17.0, SystemCpufreq() of its package sysfs
# Expected: the clocks of the CPUs whose driver knows them, and nothing for a CPU whose clock is unknown
# Seen: one scaling_cur_freq of "<unknown>" fails the whole call: no CPU has a clock, a limit or a governor
# Source: prometheus/node_exporter#1710; show_scaling_cur_freq() in drivers/cpufreq/cpufreq.c prints the word
# Here: calibration/context/frequency.py takes the word for an unknown clock, and no file for unreadable
set -eu
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod GOPATH="$work/go"
for cpu in 0 1; do
    place=sys/devices/system/cpu/cpu$cpu/cpufreq
    mkdir -p "$place"
    for file in cpuinfo_max_freq cpuinfo_min_freq scaling_max_freq scaling_min_freq scaling_cur_freq; do
        echo 2400000 > "$place/$file"
    done
    for file in scaling_available_governors scaling_driver scaling_governor related_cpus scaling_setspeed; do
        echo conservative > "$place/$file"
    done
done
echo '<unknown>' > sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq
echo 0-1 > sys/devices/system/cpu/online
: > sys/devices/system/cpu/offline
cat > main.go <<'EOF'
package main

import (
	"fmt"

	"github.com/prometheus/procfs/sysfs"
)

func main() {
	fs, err := sysfs.NewFS("sys")
	if err != nil {
		panic(err)
	}
	found, err := fs.SystemCpufreq()
	fmt.Printf("CPUs with a frequency: %d, error: %v\n", len(found), err)
}
EOF
go mod init seen > made.log 2>&1
go get github.com/prometheus/procfs/sysfs@v0.17.0 >> made.log 2>&1
seen=$(go run .)
echo "$seen"
case $seen in
    "CPUs with a frequency: 0, error: "*unknown*) exit 0 ;;
    *) exit 1 ;;
esac
