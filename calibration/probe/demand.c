// SPDX-License-Identifier: Apache-2.0
#include "demand.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocate.h"
#include "cgroup.h"
#include "files.h"
#include "hugetlb.h"
#include "text.h"
#include "warning.h"

/* What rounding up to whole pages may waste of a region: an eighth is cleared in little time and is not missed. */
#define WASTE_SHARE 8u
/* And however small the region is, so much: less than one huge page of x86, which clears in 0.1 ms and without which even a
 * small buffer pays for address translation. */
#define WASTE_BYTES (2u << 20)
/* What is left to the machine when its memory is counted: without it the kernel may kill processes. */
#define KEEP_FREE_BYTES (64u << 20)
/* The program itself beside what its commands ask for: code, heap, the working thread, and what the kernel's accounting by
 * CPU holds in advance. 1 to 2 MiB were seen; too little would end in a kill. */
#define PROGRAM_BYTES (4u << 20)
/* A thread: 16 KiB of kernel stack and as much again for the kernel's other records of it, its own stack as far as it is
 * used, and their page tables. */
#define THREAD_BYTES (96u << 10)
/* A number in the document with its key. */
#define NUMBER_BYTES 40u
/* Whoever has one of these may start any number of tasks. */
#define CAP_SYS_ADMIN_BIT 21u
#define CAP_SYS_RESOURCE_BIT 24u
#define MIB(bytes) ((uint64_t)(bytes) >> 20)
#define MIB_UP(bytes) MIB((bytes) + (1u << 20) - 1)

size_t memory_base_page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

size_t memory_thp_bytes(void)
{
	long long bytes;
	if (!file_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", &bytes) || bytes <= 0)
		return 0;
	return (size_t)bytes;
}

/* Value in bytes of a "key: N kB" line, which in the text of a node has the node's name before it; false when there is none. */
static bool field_bytes(const char *text, const char *key, uint64_t *bytes)
{
	const char *at = strstr(text, key);
	if (!at)
		return false;
	at += strlen(key);
	at += strspn(at, ": \t");
	if (*at < '0' || *at > '9')
		return false;
	*bytes = strtoull(at, NULL, 10) * 1024;
	return true;
}

bool memory_usable_bytes(const char *meminfo, uint64_t *bytes)
{
	uint64_t cached = 0;
	if (!field_bytes(meminfo, "MemFree:", bytes))
		return false;
	/* Page cache in active use is left alone: taking it would make the machine read it again while we measure. */
	if (field_bytes(meminfo, "Inactive(file):", &cached))
		*bytes += cached;
	return true;
}

/* -- the sum -- */

static void add(struct demand *demand, struct demanded region)
{
	struct demanded *last = demand->regions && demand->count ? &demand->regions[demand->count - 1] : NULL;
	if (last && last->bytes == region.bytes && last->node == region.node && last->nodes == region.nodes &&
	    last->weights == region.weights) {
		last->count += region.count;
		return;
	}
	demand->regions = reallocate(demand->regions, demand->count + 1, sizeof(*demand->regions));
	demand->regions[demand->count++] = region;
}

void demand_regions(struct demand *demand, size_t bytes, uint64_t count, unsigned node)
{
	if (count)
		add(demand, (struct demanded){.bytes = bytes, .count = count, .node = node});
}

void demand_region_over(struct demand *demand, size_t bytes, const struct cpu_list *nodes)
{
	add(demand, (struct demanded){
					.bytes = bytes, .count = 1, .node = nodes->cpus[0], .nodes = nodes->count > 1 ? nodes : NULL});
}

void demand_region_spread(struct demand *demand, size_t bytes, const struct spread *spread)
{
	add(demand, (struct demanded){.bytes = bytes,
	                              .count = 1,
	                              .node = spread->nodes.cpus[0],
	                              .nodes = &spread->nodes,
	                              .weights = spread->weights});
}

uint64_t spread_most(uint64_t pages, const unsigned *weights, size_t count, size_t index)
{
	uint64_t turn = 0;
	for (size_t i = 0; i < count; i++)
		turn += weights ? weights[i] : 1;
	uint64_t turns = turn ? (pages + turn - 1) / turn : 0, most = turns * (weights ? weights[index] : 1);
	return most < pages ? most : pages;
}

void demand_other(struct demand *demand, uint64_t bytes, uint64_t count)
{
	if (bytes)
		demand->other_bytes += (bytes + memory_base_page_bytes()) * count;
}

void demand_document(struct demand *demand, uint64_t numbers)
{
	demand->other_bytes += 2 * numbers * NUMBER_BYTES;
}

void demand_threads(struct demand *demand, uint64_t count)
{
	demand->other_bytes += count * THREAD_BYTES;
	demand->tasks += count;
}

void demand_processes(struct demand *demand, uint64_t count)
{
	demand->tasks += count;
}

static void empty(struct demand *demand)
{
	free(demand->regions);
	demand->regions = NULL;
	demand->count = 0;
	demand->other_bytes = demand->tasks = 0;
}

static size_t nodes_of(const struct demanded *region)
{
	return region->nodes ? region->nodes->count : 1;
}

static unsigned node_of(const struct demanded *region, size_t index)
{
	return region->nodes ? region->nodes->cpus[index] : region->node;
}

/* Bytes that the regions take of each node, and page tables for all of them. Of a spread region any node may hold the pages
 * that do not divide evenly. False where a node cannot be. */
static bool by_node(const struct demand *demand, size_t page_bytes, uint64_t bytes[NODE_LIMIT], uint64_t *all)
{
	uint64_t base = memory_base_page_bytes();
	memset(bytes, 0, NODE_LIMIT * sizeof(*bytes));
	for (size_t i = 0; i < demand->count; i++) {
		const struct demanded *region = &demand->regions[i];
		uint64_t rounded = round_up(region->bytes, page_bytes), nodes = nodes_of(region);
		for (size_t k = 0; k < nodes; k++) {
			unsigned node = node_of(region, k);
			if (node == DEMAND_ANY_NODE)
				continue;
			if (node >= NODE_LIMIT)
				return false;
			bytes[node] += region->count * spread_most(rounded / page_bytes, region->weights, nodes, k) * page_bytes;
		}
		/* Eight bytes for each page of base size, which the kernel takes for a transparent huge page in advance too; and
		 * a table of each of the levels above, which has to begin somewhere. */
		*all += region->count * (rounded + round_up(rounded / base * 8, base) + 3 * base);
	}
	return true;
}

/* -- which pages -- */

bool pages_fit(size_t bytes, size_t page_bytes)
{
	uint64_t waste = round_up(bytes, page_bytes) - bytes;
	return waste < WASTE_BYTES || waste <= bytes / WASTE_SHARE;
}

static bool all_fit(const struct demand *demand, size_t page_bytes)
{
	for (size_t i = 0; i < demand->count; i++)
		if (!pages_fit(demand->regions[i].bytes, page_bytes))
			return false;
	return true;
}

/* Whether every node has the pages free, and the machine has them unreserved: else the error says which node has not. */
static bool hugetlb_available(struct demand *demand, size_t page_bytes, struct error *error)
{
	uint64_t bytes[NODE_LIMIT], unused = 0, all = 0, left = 0, reserved = 0;
	if (!by_node(demand, page_bytes, bytes, &unused))
		return error_set(error, ERROR_BIND_FAILED, "node ids from %u on are not supported", NODE_LIMIT);
	for (unsigned node = 0; node < NODE_LIMIT; node++) {
		uint64_t wanted = bytes[node] / page_bytes;
		left = 0;
		if (wanted && (!hugetlb_node_pool(node, page_bytes, "free", &left) || left < wanted)) {
			demand->refused_node = (int)node;
			return error_set(error, ERROR_NO_MEMORY,
			                 "needs %" PRIu64 " hugetlb pages of %zu KiB on node %u, %" PRIu64
			                 " available; reserve them or use --pages auto",
			                 wanted, page_bytes >> 10, node, left);
		}
	}
	for (size_t i = 0; i < demand->count; i++)
		all += demand->regions[i].count * (round_up(demand->regions[i].bytes, page_bytes) / page_bytes);
	if (hugetlb_pool(page_bytes, "free", &left) && hugetlb_pool(page_bytes, "resv", &reserved) &&
	    left < all + reserved) {
		demand->refused_node = -1;
		return error_set(error, ERROR_NO_MEMORY,
		                 "needs %" PRIu64 " hugetlb pages of %zu KiB, %" PRIu64
		                 " available that nobody reserved; reserve more or use --pages auto",
		                 all, page_bytes >> 10, left > reserved ? left - reserved : 0);
	}
	char where[256];
	left = cgroup_hugetlb_room("", page_bytes, where, sizeof(where)) / page_bytes;
	if (left < all) {
		demand->refused_node = -1;
		return error_set(error, ERROR_NO_MEMORY,
		                 "needs %" PRIu64 " hugetlb pages of %zu KiB, %" PRIu64
		                 " available under the limit of control group %s; raise it or use --pages auto",
		                 all, page_bytes >> 10, left, where);
	}
	return hugetlb_mappable(page_bytes, error);
}

/* Tells of nodes whose pool cannot hold the regions although the machine has such pages: elsewhere the same buffers may get
 * them. The free number is left out, so that one sentence stands for all buffers. */
static void warn_exhausted(const struct demand *demand, size_t page_bytes)
{
	uint64_t bytes[NODE_LIMIT], unused = 0, machine = 0;
	if (!hugetlb_pool(page_bytes, "nr", &machine) || machine == 0 || !by_node(demand, page_bytes, bytes, &unused))
		return;
	for (unsigned node = 0; node < NODE_LIMIT; node++) {
		uint64_t pool = 0, left = 0;
		if (bytes[node] && hugetlb_node_pool(node, page_bytes, "nr", &pool) &&
		    hugetlb_node_pool(node, page_bytes, "free", &left) && left < bytes[node] / page_bytes)
			warning_add("HUGEPAGE_EXHAUSTED",
			            "node %u has too few free hugetlb pages of %zu bytes for all buffers (%" PRIu64
			            " are reserved there, %" PRIu64 " on the machine)",
			            node, page_bytes, pool, machine);
	}
}

/* Of the sizes that waste little, the first that can be had; where such pages must be, and each wastes much, the one that
 * wastes least. */
static bool choose_hugetlb(struct demand *demand, struct error *error)
{
	struct hugetlb_sizes sizes;
	struct error first = {0};
	size_t smallest = 0;
	bool any = false;
	hugetlb_sizes(&sizes);
	for (size_t i = 0; i < sizes.count; i++) {
		struct error refused = {0};
		if (demand->hugetlb_bytes && sizes.bytes[i] != demand->hugetlb_bytes)
			continue;
		smallest = !smallest || sizes.bytes[i] < smallest ? sizes.bytes[i] : smallest;
		if (!all_fit(demand, sizes.bytes[i]))
			continue;
		any = true;
		if (hugetlb_available(demand, sizes.bytes[i], &refused)) {
			demand->pages = (struct page_choice){PAGES_HUGETLB, sizes.bytes[i]};
			return true;
		}
		warn_exhausted(demand, sizes.bytes[i]);
		first = first.code == ERROR_NONE ? refused : first;
	}
	if (!sizes.count)
		return error_set(error, ERROR_NO_MEMORY, "this kernel has no hugetlb pages; use --pages auto");
	if (!smallest)
		return error_set(error, ERROR_NO_MEMORY, "this kernel has no hugetlb pages of %zu KiB; use --pages auto",
		                 demand->hugetlb_bytes >> 10);
	if (any || demand->wanted != PAGES_HUGETLB)
		return error_set(error, first.code, "%s", first.message);
	if (!hugetlb_available(demand, smallest, error))
		return false;
	demand->pages = (struct page_choice){PAGES_HUGETLB, smallest};
	return true;
}

static bool choose_pages(struct demand *demand, struct error *error)
{
	struct error refused = {0};
	if (demand->pages.kind == PAGES_HUGETLB && demand->pages.bytes &&
	    hugetlb_available(demand, demand->pages.bytes, &refused))
		return true;
	if (demand->pages.bytes && demand->pages.kind != PAGES_HUGETLB)
		return true;
	if (demand->wanted == PAGES_HUGETLB)
		return choose_hugetlb(demand, error);
	if (demand->wanted == PAGES_AUTO && choose_hugetlb(demand, &refused))
		return true;
	size_t huge = demand->wanted == PAGES_BASE ? 0 : memory_thp_bytes();
	demand->pages = huge && all_fit(demand, huge) ? (struct page_choice){PAGES_THP, huge}
	                                              : (struct page_choice){PAGES_BASE, memory_base_page_bytes()};
	return true;
}

/* -- what there is -- */

bool kernel_has_nodes(void)
{
	return access("/sys/devices/system/node", F_OK) == 0;
}

static bool node_has(unsigned node, uint64_t bytes, struct error *error)
{
	char path[80];
	uint64_t usable = 0;
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u", node);
	if (kernel_has_nodes() && access(path, F_OK) != 0)
		return error_set(error, ERROR_BIND_FAILED,
		                 "no memory node %u in /sys/devices/system/node; choose one that exists", node);
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", node);
	char *text = file_read(path);
	if (!text && !kernel_has_nodes() && node == 0)
		text = file_read("/proc/meminfo");
	if (!text)
		return error_set(error, ERROR_BIND_FAILED, "memory node %u: %s cannot be read: %s; choose another node", node,
		                 path, strerror(errno));
	bool known = memory_usable_bytes(text, &usable);
	free(text);
	if (!known)
		return error_set(error, ERROR_BIND_FAILED, "%s has no MemFree", path);
	usable -= usable < KEEP_FREE_BYTES ? usable : KEEP_FREE_BYTES;
	return bytes <= usable || error_set(error, ERROR_NO_MEMORY,
	                                    "needs %" PRIu64 " MiB on node %u, %" PRIu64
	                                    " MiB available; use smaller buffers, fewer threads or another node",
	                                    MIB_UP(bytes), node, MIB(usable));
}

static bool machine_has(uint64_t bytes, struct error *error)
{
	char *text = file_read("/proc/meminfo"), where[256];
	uint64_t usable = 0;
	bool known = text && (field_bytes(text, "MemAvailable:", &usable) || memory_usable_bytes(text, &usable));
	free(text);
	usable -= usable < KEEP_FREE_BYTES ? usable : KEEP_FREE_BYTES;
	if (known && bytes > usable)
		return error_set(error, ERROR_NO_MEMORY,
		                 "needs %" PRIu64 " MiB, %" PRIu64
		                 " MiB available; use smaller buffers, or measure fewer CPUs at a time",
		                 MIB_UP(bytes), MIB(usable));
	uint64_t room = cgroup_room("", where, sizeof(where));
	return bytes <= room ||
	       error_set(
			   error, ERROR_NO_MEMORY,
			   "needs %" PRIu64 " MiB, %" PRIu64
			   " MiB available under the memory limit of control group %s; raise the limit, use smaller buffers, or "
			   "measure fewer CPUs at a time",
			   MIB_UP(bytes), MIB(room), where);
}

/* The tasks of this user that can be seen. */
static uint64_t tasks_of_user(void)
{
	uint64_t count = 0, threads;
	DIR *processes = opendir("/proc");
	if (!processes)
		return 0;
	for (const struct dirent *entry; (entry = readdir(processes));) {
		char path[288];
		struct stat found;
		snprintf(path, sizeof(path), "/proc/%s", entry->d_name);
		if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || stat(path, &found) != 0 || found.st_uid != getuid())
			continue;
		snprintf(path, sizeof(path), "/proc/%s/status", entry->d_name);
		char *text = file_read(path);
		count += text && text_number_of(text, "Threads:", &threads) ? threads : 0;
		free(text);
	}
	closedir(processes);
	return count;
}

/* The user's own limit, which is for all of the user's tasks on the machine. */
static bool user_may_start(uint64_t tasks, struct error *error)
{
	struct rlimit limit;
	if (getuid() == 0 || getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
	    capability_has(CAP_SYS_ADMIN_BIT) || capability_has(CAP_SYS_RESOURCE_BIT))
		return true;
	uint64_t used = tasks_of_user(), room = limit.rlim_cur > used ? limit.rlim_cur - used : 0;
	return tasks <= room || error_set(error, ERROR_UNSUPPORTED,
	                                  "needs %" PRIu64 " threads and processes, %" PRIu64
	                                  " available under the limit of this user's processes, %" PRIu64
	                                  "; raise it (ulimit -u), or measure fewer CPUs at a time",
	                                  tasks, room, (uint64_t)limit.rlim_cur);
}

/* Each thread and each process is a task; those that the program has at its start are counted already. */
static bool tasks_available(uint64_t tasks, struct error *error)
{
	char where[256];
	if (tasks && !user_may_start(tasks, error))
		return false;
	uint64_t room = cgroup_tasks("", where, sizeof(where));
	return tasks <= room || error_set(error, ERROR_UNSUPPORTED,
	                                  "needs %" PRIu64 " threads and processes, %" PRIu64
	                                  " available under pids.max of control group %s; raise it, or measure fewer CPUs "
	                                  "at a time",
	                                  tasks, room, where);
}

static bool available(struct demand *demand, struct error *error)
{
	uint64_t bytes[NODE_LIMIT], all = 0;
	bool ordinary = demand->pages.kind != PAGES_HUGETLB;
	demand->refused_node = -1; /* not that of pages that auto could not have */
	if (!tasks_available(demand->tasks, error))
		return false;
	if (!by_node(demand, demand->pages.bytes, bytes, &all))
		return error_set(error, ERROR_BIND_FAILED, "node ids from %u on are not supported", NODE_LIMIT);
	for (unsigned node = 0; ordinary && node < NODE_LIMIT; node++)
		if (bytes[node] && !node_has(node, bytes[node], error)) {
			demand->refused_node = (int)node;
			return false;
		}
	return machine_has((ordinary ? all : 0) + demand->other_bytes + (demand->again ? 0 : PROGRAM_BYTES), error);
}

bool demand_admit(struct demand *demand, struct error *error)
{
	demand->refused_node = -1;
	bool good = choose_pages(demand, error) && available(demand, error);
	empty(demand);
	return good;
}
