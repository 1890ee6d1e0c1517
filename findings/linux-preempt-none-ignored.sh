#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: preempt=none of Linux 7.3.4 on x86 (Debian 13 backports' cloud kernel)
# Expected: no preemption of the kernel, as PREEMPT_DYNAMIC in the version and the parameter's name say, and as up to 6.19
# Seen: an unsupported mode: the kernel stays with lazy preemption and hands the parameter to init; what the command line shows is not
#       what runs, and only a file of debugfs says so
# Source: kernel/sched/core.c, sched_dynamic_mode()
# Here: calibration/runner/capture.py copies debug/sched/preempt; the page shows the kernel's choice and the difference
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/guest"
guest_kernel trixie-backports "linux-binary-7.3.4+deb13-cloud-amd64=7.3.4-1~bpo13+1"
seen=$(guest_run preempt=none << 'END'
echo "$(cat /sys/kernel/debug/sched/preempt)"
END
)
echo "preempt=none: $seen"
[ "$seen" = "full (lazy) " ] || [ "$seen" = "full (lazy)" ]
