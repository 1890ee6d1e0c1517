/* SPDX-License-Identifier: Apache-2.0 */
/* What the control groups of this process let it have, however much the machine has: of memory, beyond which the kernel
 * kills it, of tasks, beyond which it starts none, and of CPU time, beyond which it stops threads for the rest of each
 * period. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CGROUP_NO_LIMIT UINT64_MAX

/* Bytes that may still be allocated under the tightest memory limit of the process's group and its ancestors, both
 * versions of the interface alike; CGROUP_NO_LIMIT where there is none. `where` then names the directory of that limit.
 * `root` is put before every path: "" for this machine. */
uint64_t cgroup_room(const char *root, char *where, size_t where_size);

/* The same for hugetlb pages of a size, which have limits of their own. */
uint64_t cgroup_hugetlb_room(const char *root, size_t page_bytes, char *where, size_t where_size);

/* The same for tasks: threads and processes that may still be started. */
uint64_t cgroup_tasks(const char *root, char *where, size_t where_size);

/* The CPU time that they may use, in CPUs, by the tightest quota; infinite where there is none. `where` as above. */
double cgroup_cpus(const char *root, char *where, size_t where_size);

/* How often a quota stopped threads, and for how long, all CPUs and groups together, since the groups were made. */
struct cgroup_stops {
	uint64_t periods, ns;
};
struct cgroup_stops cgroup_stops(const char *root);
