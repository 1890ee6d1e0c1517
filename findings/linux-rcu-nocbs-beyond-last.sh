#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: CPU lists beyond the last CPU, of Linux 6.12.107 (Debian 13's cloud kernel)
# Expected: isolcpus=2-99 nohz_full=2-99 rcu_nocbs=2-99 means CPUs 2 and 3 of four, or none
# Seen: the first two are refused whole, the third offloads all CPUs, the boot CPU included: its list cannot be read either. What shows
#       it is that no thread rcuop/N is parked
# Source: kernel/rcu/tree_nocb.h, rcu_nocb_setup(), "bad CPU range, all CPUs set"; kernel/sched/isolation.c
# Here: calibration/context/boot_rules.py has both rules by version, calibration/context/isolation.py reads the threads
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/guest"
guest_kernel trixie linux-image-6.12.107+deb13-cloud-amd64=6.12.107-1
look() {
    guest_run "$1" << 'END'
cd /sys/devices/system/cpu
offloaded=
for cpu in 0 1 2 3; do
    for status in /proc/[0-9]*/status; do
        grep -qsx "Name:	rcuop/$cpu" "$status" && ! grep -qs 'State:	P' "$status" && offloaded="$offloaded$cpu"
    done
done
echo "isolated=[$(cat isolated)] nohz_full=$(cat nohz_full) offloaded=[$offloaded]"
END
}
beyond=$(look "isolcpus=2-99 nohz_full=2-99 rcu_nocbs=2-99")
within=$(look "isolcpus=2-3 nohz_full=2-3 rcu_nocbs=2-3")
echo "2-99: $beyond; 2-3: $within"
[ "$beyond" = "isolated=[] nohz_full=(null) offloaded=[0123]" ]
[ "$within" = "isolated=[2-3] nohz_full=2-3 offloaded=[23]" ]
