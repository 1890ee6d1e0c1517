/* SPDX-License-Identifier: Apache-2.0 */
/* What the control groups of this process let it allocate: beyond that the kernel kills it, however much is free. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CGROUP_NO_LIMIT UINT64_MAX

/* Bytes that may still be allocated under the tightest memory limit of the process's group and its ancestors, both
 * versions of the interface alike; CGROUP_NO_LIMIT where there is none. `where` then names the directory of that limit.
 * `root` is put before every path: "" for this machine. */
uint64_t cgroup_room(const char *root, char *where, size_t where_size);
