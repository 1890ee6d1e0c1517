#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: nohz_full= followed by isolcpus=nohz,... with the same list, of Linux 7.3.4 (Debian 13 backports' cloud kernel)
# Expected: CPUs 2 and 3 isolated and without ticks, as up to Linux 6.19: both name the same CPUs
# Seen: the second argument repeats a flag and is refused with all its flags ("nohz_full= must match isolcpus="), so that nothing is
#       isolated. From 7.0 on the earlier list is compared before it can be read: it stands for all possible CPUs. In the other order,
#       or without the flag nohz, both apply
# Source: kernel/sched/isolation.c, housekeeping_setup() and housekeeping_cpumask()
# Here: calibration/context/boot_rules.py knows the rule of 7.0; the page, the audit and the preflight check say what is lost
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/guest"
guest_kernel trixie-backports "linux-binary-7.3.4+deb13-cloud-amd64=7.3.4-1~bpo13+1"
seen=
for line in "nohz_full=2-3 isolcpus=nohz,domain,2-3" "isolcpus=nohz,domain,2-3 nohz_full=2-3" "nohz_full=2-3 isolcpus=domain,2-3"; do
    seen="$seen$(guest_run "$line" << 'END'
cd /sys/devices/system/cpu
echo "isolated=[$(cat isolated)] nohz_full=[$(cat nohz_full)];"
END
)"
done
echo "$seen"
[ "$seen" = "isolated=[] nohz_full=[2-3];isolated=[2-3] nohz_full=[2-3];isolated=[2-3] nohz_full=[2-3];" ]
