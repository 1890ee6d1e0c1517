# SPDX-License-Identifier: Apache-2.0
# Boots a pinned kernel of Debian under QEMU's emulation, for the findings about Linux that source this file; finds nothing by itself.
#
#   guest_kernel SUITE PACKAGE=VERSION   fetch and unpack the kernel
#   guest_run 'ARGUMENTS' << 'END'       boot it with four CPUs and ARGUMENTS; run the lines that follow; print their output
#
# Needs Debian's apt-get, dpkg-deb and keyring, and qemu-system-x86_64. The packages come from Debian's public mirror.

for program in apt-get dpkg-deb qemu-system-x86_64; do
    command -v "$program" > /dev/null || { echo "$program is missing" >&2; exit 3; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

guest_apt() {
    apt-get -qq -o APT::Sandbox::User=root -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" "$@" > apt.log 2>&1 || { cat apt.log >&2; exit 3; }
}

guest_kernel() {
    mkdir -p lists/partial cache/archives/partial unpacked
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    for suite in $(printf '%s\n' bookworm "$1" | sort -u); do
        echo "deb [signed-by=$keyring] http://deb.debian.org/debian $suite main"
    done > sources.list
    guest_apt update
    guest_apt download "$2" busybox-static=1:1.35.0-4+deb12u1+b1
    for package in *.deb; do dpkg-deb -x "$package" unpacked; done
    vmlinuz=$(find unpacked -type f -name 'vmlinuz*')
    busybox=$work/unpacked/bin/busybox
}

guest_run() {
    rm -rf root
    mkdir -p root/bin root/proc root/sys
    cp "$busybox" root/bin/busybox
    {
        echo '#!/bin/busybox sh'
        echo '/bin/busybox --install -s /bin'
        echo 'mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t debugfs debugfs /sys/kernel/debug'
        echo '{'
        cat
        echo '} > /seen 2>&1'
        echo 'sed "s/^/SEEN /" /seen'
        echo 'poweroff -f'
    } > root/init
    chmod +x root/init
    (cd root && find . | "$busybox" cpio -o -H newc 2> /dev/null) > initramfs
    # Emulated timers get lost now and then on a busy machine, and the guest hangs or panics.
    for _ in 1 2 3; do
        timeout 300 qemu-system-x86_64 -accel tcg -smp 4 -m 1024 -nographic -no-reboot -kernel "$vmlinuz" \
            -initrd initramfs -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check $1" \
            < /dev/null > console 2> /dev/null || continue
        ! grep -q SEEN console || break
    done
    tr -d '\r' < console | sed -n 's/^.*SEEN //p'
}
