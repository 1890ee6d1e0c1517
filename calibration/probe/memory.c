// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/mman.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocate.h"
#include "files.h"
#include "hugetlb.h"
#include "warning.h"

#define POLICY_BIND 2
#define POLICY_LOCAL 4
#define POLICY_INTERLEAVE 3
#define POLICY_WEIGHTED_INTERLEAVE 6 /* Linux 6.9 and later */
#define BIND_STRICT_AND_MOVE 3       /* MPOL_MF_STRICT | MPOL_MF_MOVE */
#define BITS (sizeof(unsigned long) * CHAR_BIT)
/* NUMA balancing makes pages inaccessible, in the measured thread itself, to see which node touches them. It passes over
 * mappings whose policy lacks MPOL_F_MOF (task_numa_work, vma_policy_mof): bound buffers do, and so does what has no policy
 * of its own in a task with one, where the default of a task that never set any has the flag. MPOL_LOCAL places pages as the
 * default does. Threads inherit it. */
void memory_keep_local(void)
{
	long long balancing;
	if (syscall(SYS_set_mempolicy, POLICY_LOCAL, NULL, 0) == 0)
		return;
	int reason = errno;
	if (file_number("/proc/sys/kernel/numa_balancing", &balancing) && balancing)
		warning_add(
			"POLICY_REFUSED",
			"set_mempolicy: %s; NUMA balancing is on and may scan the program's stacks and tables in measured threads",
			strerror(reason));
}

size_t memory_line_bytes(void)
{
	long long bytes;
	if (!file_number("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size", &bytes) || bytes < 16 ||
	    bytes > 1024)
		bytes = (long long)getauxval(AT_DCACHEBSIZE); /* of POWER, whose guests may have no such directory */
	return bytes > 0 ? (size_t)bytes : 64;
}

size_t memory_l2_bytes(unsigned cpu)
{
	/* What most cores with a second level have of it, where the kernel does not say. */
	size_t found = 1u << 20;
	for (unsigned i = 0; i < 8; i++) {
		char path[96];
		long long level, kib;
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/cache/index%u/level", cpu, i);
		if (!file_number(path, &level) || level != 2)
			continue;
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/cache/index%u/size", cpu, i);
		if (file_number(path, &kib) && kib > 0) /* as "512K": always in K */
			found = (size_t)kib << 10;
	}
	return found;
}

bool only_node_with_memory(unsigned node)
{
	char line[256], *end;
	if (!file_line("/sys/devices/system/node/has_memory", line, sizeof(line)))
		return node == 0 && !kernel_has_nodes();
	unsigned long found = strtoul(line, &end, 10);
	return end != line && *end == '\0' && found == node;
}

size_t region_nodes(const struct region *region)
{
	return region->nodes ? region->nodes->count : 1;
}

unsigned region_node(const struct region *region, size_t index)
{
	return region->nodes ? region->nodes->cpus[index] : region->node;
}

/* Pages by weights other than the kernel's own are placed as they are touched (populate_spread). */
static bool placed_by_hand(const struct region *region)
{
	return region->weights && !region->by_kernel;
}

static bool bind_to_nodes(const struct region *region, struct error *error)
{
	unsigned long mask[NODE_LIMIT / BITS] = {0};
	size_t count = region_nodes(region);
	const int policy = count == 1 ? POLICY_BIND : region->by_kernel ? POLICY_WEIGHTED_INTERLEAVE : POLICY_INTERLEAVE;
	for (size_t i = 0; i < count; i++) {
		unsigned node = region_node(region, i);
		if (node >= NODE_LIMIT)
			return error_set(error, ERROR_BIND_FAILED, "node %u: ids from %u on are not supported", node, NODE_LIMIT);
		mask[node / BITS] |= 1ul << (node % BITS);
	}
	/* The kernel's maxnode counts one bit too many, so the number of bits + 1 makes it read them all. */
	if (placed_by_hand(region) ||
	    syscall(SYS_mbind, region->start, region->bytes, policy, mask, NODE_LIMIT + 1, BIND_STRICT_AND_MOVE) == 0)
		return true;
	int reason = errno;
	if (region->by_kernel && reason == EINVAL)
		return error_set(error, ERROR_UNSUPPORTED,
		                 "mbind: %s; the kernel has weighted interleaving from 6.9 on, and nodes need memory",
		                 strerror(reason));
	if (count == 1 && (reason == ENOSYS || reason == EPERM) && only_node_with_memory(region->node)) {
		warning_add("BOUND_BY_TOPOLOGY", "mbind: %s; node %u is the only one with memory, so nothing can lie elsewhere",
		            strerror(reason), region->node);
		return true;
	}
	return error_set(error, reason == EPERM ? ERROR_NO_PERMISSION : ERROR_BIND_FAILED,
	                 "%s %zu bytes to node %u%s: %s; choose nodes with memory that this process may use",
	                 count > 1 ? "interleaving" : "binding", region->bytes, region->node,
	                 count > 1 ? " and others" : "", strerror(reason));
}

/* Writes to every page, so that each is there, is our own, and lies where the policy says. */
static bool touch(const struct region *region, size_t from, size_t bytes, unsigned node, struct error *error)
{
	if (madvise(region->start + from, bytes, MADV_POPULATE_WRITE) == 0)
		return true;
	int reason = errno;
	if (reason == EINVAL || reason == ENOSYS) {
		/* Kernels before 5.14: by hand. A hugetlb page that cannot be had would kill us, but they were counted. */
		size_t step = memory_base_page_bytes();
		for (size_t at = from; at < from + bytes; at += step)
			*(volatile unsigned char *)(region->start + at) = 0;
		return true;
	}
	return error_set(error, ERROR_NO_MEMORY, "touching %zu bytes on node %u: %s; use smaller buffers or another node",
	                 region->bytes, node, strerror(reason));
}

/* For each page the place of its node: of the one that is furthest behind its weight, so that any stretch of pages has nearly
 * its shares. */
static unsigned *order_of(const struct region *region, size_t pages)
{
	size_t count = region->nodes->count;
	unsigned *order = allocate(pages, sizeof(*order));
	long *behind = allocate(count, sizeof(*behind)), turn = 0;
	for (size_t i = 0; i < count; i++)
		turn += region->weights[i];
	for (size_t page = 0; page < region->first + pages; page++) {
		unsigned chosen = 0;
		for (unsigned i = 0; i < count; i++) {
			behind[i] += region->weights[i];
			chosen = behind[i] > behind[chosen] ? i : chosen;
		}
		behind[chosen] -= turn;
		if (page >= region->first)
			order[page - region->first] = chosen;
	}
	free(behind);
	return order;
}

bool region_shares(const struct region *region, uint64_t *shares)
{
	size_t step = region_page_bytes(region), pages = region->bytes / step;
	if (!placed_by_hand(region))
		return false;
	unsigned *order = order_of(region, pages);
	for (size_t page = 0; page < pages; page++)
		shares[order[page]] += step / memory_base_page_bytes();
	free(order);
	return true;
}

/* Touches the pages of one node under a policy of the thread: one of the mapping would cut it into as many as it has pages,
 * and the kernel allows some 65530. */
static bool touch_share(const struct region *region, const unsigned *order, unsigned index, struct error *error)
{
	unsigned long mask[NODE_LIMIT / BITS] = {0};
	unsigned node = region->nodes->cpus[index];
	size_t step = region_page_bytes(region);
	mask[node / BITS] = 1ul << (node % BITS);
	if (syscall(SYS_set_mempolicy, POLICY_BIND, mask, NODE_LIMIT + 1) != 0)
		return error_set(error, errno == EPERM ? ERROR_NO_PERMISSION : ERROR_BIND_FAILED,
		                 "binding to node %u: %s; choose nodes with memory that this process may use", node,
		                 strerror(errno));
	for (size_t page = 0; page < region->bytes / step; page++)
		if (order[page] == index && !touch(region, page * step, step, node, error))
			return false;
	return true;
}

static bool populate(const struct region *region, struct error *error)
{
	bool good = true;
	if (!placed_by_hand(region))
		return touch(region, 0, region->bytes, region->node, error);
	unsigned *order = order_of(region, region->bytes / region_page_bytes(region));
	for (unsigned i = 0; good && i < region->nodes->count; i++)
		good = touch_share(region, order, i, error);
	free(order);
	memory_keep_local();
	return good;
}

static bool map_hugetlb(struct region *region, size_t bytes, size_t page_bytes, struct error *error)
{
	size_t rounded = round_up(bytes, page_bytes), count = region_nodes(region);
	/* All regions were asked for together; a page that somebody else has taken since would kill us where it is touched. */
	for (size_t i = 0; i < count; i++) {
		uint64_t left = 0, wanted = spread_most(rounded / page_bytes, region->weights, count, i);
		if (!hugetlb_node_pool(region_node(region, i), page_bytes, "free", &left) || left < wanted)
			return error_set(error, ERROR_NO_MEMORY,
			                 "needs %" PRIu64 " hugetlb pages of %zu KiB on node %u, %" PRIu64
			                 " available; reserve them or use --pages auto",
			                 wanted, page_bytes >> 10, region_node(region, i), left);
	}
	void *start = hugetlb_map(rounded, page_bytes);
	if (start == MAP_FAILED)
		return error_set(error, ERROR_NO_MEMORY,
		                 "mapping %zu bytes of hugetlb pages: %s; reserve more or use --pages auto", rounded,
		                 strerror(errno));
	region->start = start;
	region->bytes = rounded;
	region->kind = PAGES_HUGETLB;
	region->hugetlb_bytes = page_bytes;
	return true;
}

/* Ordinary memory, aligned to and made of whole huge pages unless base pages are wanted. */
static bool map_ordinary(struct region *region, size_t bytes, struct page_choice pages, struct error *error)
{
	enum page_kind kind = pages.kind;
	size_t step = pages.bytes, huge = kind == PAGES_THP ? step : 0;
	size_t rounded = round_up(bytes, step), slack = huge;
	unsigned char *start = mmap(NULL, rounded + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (start == MAP_FAILED)
		return error_set(error, ERROR_NO_MEMORY, "mapping %zu bytes: %s; use smaller buffers", rounded,
		                 strerror(errno));
	unsigned char *aligned = (unsigned char *)round_up((uintptr_t)start, step);
	size_t before = (size_t)(aligned - start);
	if (before)
		munmap(start, before);
	if (slack - before)
		munmap(aligned + rounded, slack - before);
	region->start = aligned;
	region->bytes = rounded;
	region->kind = kind;
	region->hugetlb_bytes = 0;
	/* Advice may fail where the kernel has no such pages; what was obtained is read back, never assumed. */
	(void)madvise(aligned, rounded, kind == PAGES_THP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return true;
}

static bool map(struct region *region, size_t bytes, struct page_choice pages, struct error *error)
{
	bool mapped = pages.kind == PAGES_HUGETLB ? map_hugetlb(region, bytes, pages.bytes, error)
	                                          : map_ordinary(region, bytes, pages, error);
	if (!mapped)
		return false;
	if (!bind_to_nodes(region, error) || !populate(region, error)) {
		region_unmap(region);
		return false;
	}
	if (region->kind == PAGES_THP && !region->by_kernel)
		/* Makes huge pages of what was given as small ones (6.1 and later); refusal shows in the read-back. The kernel may
		 * have spread small ones over several nodes. */
		(void)madvise(region->start, region->bytes, MADV_COLLAPSE);
	region->mapped = mappings_count_on();
	return true;
}

bool region_map(struct region *region, size_t bytes, unsigned node, struct page_choice pages, struct error *error)
{
	*region = (struct region){.node = node};
	return map(region, bytes, pages, error);
}

bool region_map_over(struct region *region, size_t bytes, const struct cpu_list *nodes, struct page_choice pages,
                     struct error *error)
{
	*region = (struct region){.node = nodes->cpus[0], .nodes = nodes->count > 1 ? nodes : NULL};
	return map(region, bytes, pages, error);
}

bool region_map_spread(struct region *region, size_t bytes, const struct spread *spread, unsigned first,
                       struct page_choice pages, struct error *error)
{
	*region = (struct region){.node = spread->nodes.cpus[0],
	                          .nodes = &spread->nodes,
	                          .weights = spread->weights,
	                          .by_kernel = spread->by_kernel,
	                          .first = first};
	return map(region, bytes, pages, error);
}

size_t region_page_bytes(const struct region *region)
{
	if (region->kind == PAGES_HUGETLB)
		return region->hugetlb_bytes;
	size_t huge = region->kind == PAGES_THP ? memory_thp_bytes() : 0;
	return huge ? huge : memory_base_page_bytes();
}

void region_unmap(struct region *region)
{
	if (region->start)
		munmap(region->start, region->bytes);
	region->start = NULL;
}
