#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: isolcpus=nohz,domain,2-3 on Linux 5.10.223 without CONFIG_NO_HZ_FULL (Debian 11's cloud kernel)
# Expected: the CPUs are isolated, and only the flag nohz has no effect: the kernel has the flag domain
# Seen: the whole argument is refused and nothing is isolated; isolcpus=domain,2-3 nohz_full=2-3 isolates them. There is no file nohz_full
#       and no thread rcuop/N: rcu_nocbs=2-3 is no parameter of this kernel either. Nothing fails
# Source: kernel/sched/isolation.c, "nohz unsupported. Build with CONFIG_NO_HZ_FULL"
# Here: calibration/context/isolation.py knows such a kernel by the missing file, and takes neither parameter's CPUs
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/guest"
guest_kernel bullseye linux-image-5.10.0-32-cloud-amd64=5.10.223-1
seen=
for line in "isolcpus=nohz,domain,2-3" "isolcpus=domain,2-3 nohz_full=2-3 rcu_nocbs=2-3"; do
    seen="$seen$(guest_run "$line" << 'END'
cd /sys/devices/system/cpu
echo "isolated=[$(cat isolated)] files=$(ls nohz_full 2> /dev/null | wc -l) threads=$(grep -l '^Name:.rcuo' /proc/[0-9]*/status | wc -l);"
END
)"
done
echo "$seen"
[ "$seen" = "isolated=[] files=0 threads=0;isolated=[2-3] files=0 threads=0;" ]
