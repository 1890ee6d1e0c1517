#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: thp_anon=64K:always of Linux 6.12.107 (Debian 13's cloud kernel)
# Expected: transparent huge pages of 64 KiB beside those of 2 MiB: transparent_hugepage/enabled says [always]
# Seen: hugepages-2048kB/enabled, which is [inherit] otherwise, is [never]: no program gets pages of 2 MiB, whatever "enabled" says
# Source: mm/huge_memory.c, setup_thp_anon(); admin-guide/mm/transhuge.rst
# Here: calibration/context/model.py, TransparentHugePages.mode takes the file of the largest size first
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/guest"
guest_kernel trixie linux-image-6.12.107+deb13-cloud-amd64=6.12.107-1
seen=
for line in thp_anon=64K:always audit=0; do
    seen="$seen$(guest_run "transparent_hugepage=always $line" << 'END'
cd /sys/kernel/mm/transparent_hugepage
echo "$(cat enabled): $(cat hugepages-2048kB/enabled);"
END
)"
done
echo "$seen"
[ "$seen" = "[always] madvise never: always inherit madvise [never];[always] madvise never: always [inherit] madvise never;" ]
