#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: numa=fake= in Debian 12's kernels, linux-config-6.1 6.1.176-1
# Expected: all amd64 kernels of one version take it, the one for virtual machines above all: that is where it is tried
# Seen: linux-image-amd64 and -rt-amd64 have CONFIG_NUMA_EMU, -cloud-amd64 has not: there numa=fake=4 is ignored
# Source: the configurations that Debian publishes as linux-config-6.1; mm/numa_emulation.c of Linux
# Here: the testbed's shape emulated-nodes boots the real-time kernel, while the other x86_64 shapes boot the cloud kernel
set -eu

for program in apt-get dpkg-deb xz; do
    command -v "$program" >/dev/null || { echo "$program is missing"; exit 3; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"
apt-get -q download linux-config-6.1=6.1.176-1 >/dev/null 2>&1 || { echo "apt-get cannot download the package"; exit 3; }
dpkg-deb -x linux-config-6.1_*.deb .

state() {
    xz -dc "usr/src/linux-config-6.1/config.$1.xz" | grep -q '^CONFIG_NUMA_EMU=y$' && echo yes || echo no
}

seen="amd64: $(state amd64_none_amd64), rt: $(state amd64_rt_amd64), cloud: $(state amd64_none_cloud-amd64)"
echo "CONFIG_NUMA_EMU in $seen"
[ "$seen" = "amd64: yes, rt: yes, cloud: no" ]
