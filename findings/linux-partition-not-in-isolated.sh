#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: isolated cpuset partitions of Linux 6.1 (Debian 12's 6.1.0-56-cloud-amd64, under QEMU's emulation)
# Expected: /sys/devices/system/cpu/isolated lists the CPUs without balancing of load, and root may run on them with taskset, as it may
#           on those of isolcpus=
# Seen: the file stays empty, no other file of the machine lists them (cpuset.cpus.isolated came with 6.7), the only trace outside of the
#       partition is that the root group's cpuset.cpus.effective lacks them, and sched_setaffinity refuses them to root with EINVAL
# Source: Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition: the CPUs are taken from the parent
# Here: calibration/runner/cpusets.py looks through the groups beside a partition, if the root group lacks CPUs; a login outside of the
#       partition is told why it cannot measure them
set -eu
for program in apt-get dpkg-deb qemu-system-x86_64; do command -v "$program" > /dev/null || exit 3; done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
kernel=6.1.0-56-cloud-amd64
apt-get download -qq "linux-image-$kernel=6.1.192-2" busybox-static=1:1.35.0-4+deb12u1+b1 > /dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" unpacked; done
busybox=$work/unpacked/bin/busybox
mkdir -p root/bin root/proc root/sys
cp "$busybox" root/bin/busybox
cat > root/init << 'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup /sys/fs/cgroup
cd /sys/fs/cgroup
echo +cpuset > cgroup.subtree_control
mkdir part
echo 2-3 > part/cpuset.cpus
echo isolated > part/cpuset.cpus.partition
allowed=refused
taskset 4 true 2> /dev/null && allowed=granted
echo "SEEN partition=$(cat part/cpuset.cpus.partition) isolated=[$(cat /sys/devices/system/cpu/isolated)]" \
     "listed=$(ls cpuset.cpus.isolated 2> /dev/null) root=$(cat cpuset.cpus.effective) taskset=$allowed"
poweroff -f
END
chmod +x root/init
(cd root && find . | "$busybox" cpio -o -H newc 2> /dev/null) > initramfs
seen=$(timeout 300 qemu-system-x86_64 -accel tcg -cpu max -smp 4 -m 256 -nographic -no-reboot \
    -kernel "unpacked/boot/vmlinuz-$kernel" -initrd initramfs -append "console=ttyS0 quiet panic=-1" |
    tr -d '\r' | grep -o 'SEEN .*')
echo "$seen"
[ "$seen" = "SEEN partition=isolated isolated=[] listed= root=0-1 taskset=refused" ]
