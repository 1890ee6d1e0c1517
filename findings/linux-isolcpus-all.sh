#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: isolcpus=all of Linux 6.12.107 (Debian 13's cloud kernel)
# Expected: all CPUs but the boot CPU isolated, as nohz_full=all and rcu_nocbs=all name all of them, and isolcpus=0-N does isolate them
# Seen: "all" begins with a letter and is skipped as an unknown flag; the kernel then takes the next argument for another flag, and
#       isolates no CPU. isolcpus=N and isolcpus=domain,all do the same; nothing fails
# Source: kernel/sched/isolation.c, housekeeping_isolcpus_setup(); admin-guide/kernel-parameters.rst has "all" for all CPU lists
# Here: calibration/context/cmdline.py takes what begins with a letter for a flag, and the page says that the argument was refused
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/guest"
guest_kernel trixie linux-image-6.12.107+deb13-cloud-amd64=6.12.107-1
seen=
for list in all 0-N; do
    seen="$seen$(guest_run "isolcpus=$list audit=0" << 'END'
echo "isolated=[$(cat /sys/devices/system/cpu/isolated)] $(dmesg | grep -c 'isolcpus: Skipped unknown flag all') skipped;"
END
)"
done
echo "all, 0-N: $seen"
[ "$seen" = "isolated=[] 1 skipped;isolated=[1-3] 0 skipped;" ]
