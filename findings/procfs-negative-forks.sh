#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: github.com/prometheus/procfs 0.17.0, Stat(), on /proc/stat as kernels with a signed count of forks print it
# Expected: the times of the CPUs, whatever stands in another row
# Seen: after 2^31 forks the row is "processes -1948031333", and the call returns no CPU at all
# Source: prometheus/procfs#831, prometheus/node_exporter#1882
# Here: calibration/context/cpu_load.py looks at the rows of CPUs alone
set -eu
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod GOPATH="$work/go"
mkdir proc
cat > proc/stat <<'EOF'
cpu  20 4 6 80 10 0 2 0 0 0
cpu0 10 2 3 40 5 0 1 0 0 0
cpu1 10 2 3 40 5 0 1 0 0 0
intr 5 5
ctxt 100
btime 1418183276
processes -1948031333
procs_running 1
procs_blocked 0
softirq 0 0 0 0 0 0 0 0 0 0 0
EOF
cat > main.go <<'EOF'
package main

import (
	"fmt"

	"github.com/prometheus/procfs"
)

func main() {
	fs, err := procfs.NewFS("proc")
	if err != nil {
		panic(err)
	}
	found, err := fs.Stat()
	fmt.Printf("CPUs counted: %d, error: %v\n", len(found.CPU), err)
}
EOF
go mod init seen > made.log 2>&1
go get github.com/prometheus/procfs@v0.17.0 >> made.log 2>&1
seen=$(go run .)
echo "$seen"
case $seen in
    "CPUs counted: 0, error: "*processes*) exit 0 ;;
    *) exit 1 ;;
esac
