// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files.h"
#include "json.h"
#include "looking.h"
#include "text.h"
#include "warning.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define POLICY_BIND 2
#define POLICY_LOCAL 4
#define POLICY_INTERLEAVE 3
#define BIND_STRICT_AND_MOVE 3 /* MPOL_MF_STRICT | MPOL_MF_MOVE */
#define BITS (sizeof(unsigned long) * CHAR_BIT)
/* The kernel's largest possible node id is below this (MAX_NUMNODES with NODES_SHIFT = 10); a mask, not an array. */
#define NODE_LIMIT 1024u
/* Every page is checked. One of base size costs some 0.5 us: from this many on it pays to find out first whether all are
 * huge ones, of which one look settles 512 pages. */
#define CHECK_EACH_PAGES 16384u
#define CHECK_BATCH 1024

/* Goes on with every region that is mapped and every time that mappings are read. */
static _Atomic uint64_t mappings_now = 1;

static const char *const kind_names[] = {"auto", "thp", "base", "hugetlb"};

bool page_kind_parse(const char *word, enum page_kind *kind)
{
	for (unsigned i = 0; i < 4; i++)
		if (!strcmp(word, kind_names[i])) {
			*kind = (enum page_kind)i;
			return true;
		}
	return false;
}

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
		return 64;
	return (size_t)bytes;
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

static bool kernel_has_nodes(void)
{
	return access("/sys/devices/system/node", F_OK) == 0;
}

/* Whether all memory of this machine lies on this node, so that nothing can lie elsewhere. */
static bool only_node_with_memory(unsigned node)
{
	char line[256], *end;
	if (!file_line("/sys/devices/system/node/has_memory", line, sizeof(line)))
		return node == 0 && !kernel_has_nodes();
	unsigned long found = strtoul(line, &end, 10);
	return end != line && *end == '\0' && found == node;
}

static size_t region_nodes(const struct region *region)
{
	return region->nodes ? region->nodes->count : 1;
}

static unsigned region_node(const struct region *region, size_t index)
{
	return region->nodes ? region->nodes->cpus[index] : region->node;
}

static bool bind_to_nodes(const struct region *region, struct error *error)
{
	unsigned long mask[NODE_LIMIT / BITS] = {0};
	size_t count = region_nodes(region);
	for (size_t i = 0; i < count; i++) {
		unsigned node = region_node(region, i);
		if (node >= NODE_LIMIT)
			return error_set(error, ERROR_BIND_FAILED, "expected a node below %u, found %u", NODE_LIMIT, node);
		mask[node / BITS] |= 1ul << (node % BITS);
	}
	/* The kernel's maxnode counts one bit too many, so the number of bits + 1 makes it read them all. */
	if (syscall(SYS_mbind, region->start, region->bytes, count > 1 ? POLICY_INTERLEAVE : POLICY_BIND, mask,
	            NODE_LIMIT + 1, BIND_STRICT_AND_MOVE) == 0)
		return true;
	int reason = errno;
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
static bool populate(const struct region *region, struct error *error)
{
	if (madvise(region->start, region->bytes, MADV_POPULATE_WRITE) == 0)
		return true;
	int reason = errno;
	if (reason == EINVAL || reason == ENOSYS) {
		/* Kernels before 5.14: by hand. A hugetlb page that cannot be had would kill us, but they were counted. */
		size_t step = memory_base_page_bytes();
		for (size_t at = 0; at < region->bytes; at += step)
			*(volatile unsigned char *)(region->start + at) = 0;
		return true;
	}
	return error_set(error, ERROR_NO_MEMORY, "touching %zu bytes on node %u: %s; use smaller buffers or another node",
	                 region->bytes, region->node, strerror(reason));
}

static size_t round_up(size_t value, size_t step)
{
	return (value + step - 1) / step * step;
}

static bool map_hugetlb(struct region *region, size_t bytes, size_t page_bytes, struct error *error)
{
	size_t rounded = round_up(bytes, page_bytes), count = region_nodes(region);
	/* All regions were asked for together; a page that somebody else has taken since would kill us where it is touched. */
	for (size_t i = 0; i < count; i++) {
		uint64_t left = 0, each = (rounded / page_bytes + count - 1) / count;
		if (!hugetlb_free(region_node(region, i), page_bytes, &left) || left < each)
			return error_set(error, ERROR_NO_MEMORY,
			                 "needs %" PRIu64 " hugetlb pages of %zu KiB on node %u, %" PRIu64
			                 " available; reserve them or use --pages auto",
			                 each, page_bytes >> 10, region_node(region, i), left);
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
	if (region->kind == PAGES_THP)
		/* Makes huge pages of what was given as small ones (6.1 and later); refusal shows in the read-back. */
		(void)madvise(region->start, region->bytes, MADV_COLLAPSE);
	region->mapped = atomic_fetch_add(&mappings_now, 1);
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

bool shares_even(const uint64_t *shares, size_t count, uint64_t grain)
{
	uint64_t total = 0;
	for (size_t i = 0; i < count; i++)
		total += shares[i];
	double fair = (double)total / (double)count;
	for (size_t i = 0; i < count; i++)
		if (!shares[i] || fabs((double)shares[i] - fair) > 2 * (double)grain + fair / 20)
			return false;
	return true;
}

/* A mapping of this process as /proc/self/smaps lists it, and the bytes of it that are on transparent huge pages. */
struct mapping {
	uint64_t low, high, huge;
};

static bool mapping_begins(const char *line, struct mapping *mapping)
{
	*mapping = (struct mapping){0};
	if (!text_hex(&line, &mapping->low) || *line != '-')
		return false;
	line++;
	return text_hex(&line, &mapping->high);
}

/* Reads the mapping whose lines begin at *line, which moves to the next one; false at the end of the text. */
static bool next_mapping(const char **line, struct mapping *mapping)
{
	bool any = false;
	for (struct mapping next; *line; *line = text_next_line(*line)) {
		uint64_t kib;
		if (mapping_begins(*line, &next)) {
			if (any)
				return true;
			*mapping = next;
			any = true;
		} else if (any && text_line_number(*line, "AnonHugePages:", &kib)) {
			mapping->huge = kib * 1024;
		}
	}
	return any;
}

/* The bytes of a region that lie in a mapping. */
static uint64_t shared_bytes(const struct region *region, const struct mapping *mapping)
{
	uint64_t from = (uintptr_t)region->start, to = from + region->bytes;
	uint64_t begin = from > mapping->low ? from : mapping->low, end = to < mapping->high ? to : mapping->high;
	return begin < end ? end - begin : 0;
}

/* All mappings, ascending, as they were read last. Threads map and prove hundreds of regions at once: a list that was read
 * after a region had been mapped serves that region too, so that whoever waits for it need not read it again. */
static struct {
	pthread_mutex_t lock;
	struct mapping *each;
	size_t count, capacity;
	uint64_t read_at; /* later than all that had been mapped then */
	int reason;       /* errno, 0: it was read */
} mappings = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Atomic uint64_t mappings_forgotten;

void mappings_forget(void)
{
	atomic_store(&mappings_forgotten, atomic_fetch_add(&mappings_now, 1));
}

static void mappings_parse(const char *text)
{
	mappings.count = 0;
	for (struct mapping mapping; next_mapping(&text, &mapping);) {
		if (mappings.count == mappings.capacity) {
			size_t capacity = mappings.capacity ? 2 * mappings.capacity : 64;
			struct mapping *grown = realloc(mappings.each, capacity * sizeof(*grown));
			if (!grown) {
				mappings.reason = ENOMEM;
				return;
			}
			mappings.each = grown;
			mappings.capacity = capacity;
		}
		mappings.each[mappings.count++] = mapping;
	}
}

/* Locks a list that is later than a region; false with errno, and nothing is locked, where there is none. */
static bool mappings_lock(uint64_t mapped)
{
	pthread_mutex_lock(&mappings.lock);
	uint64_t forgotten = atomic_load(&mappings_forgotten);
	if (mappings.read_at <= (mapped > forgotten ? mapped : forgotten)) {
		uint64_t now = atomic_fetch_add(&mappings_now, 1), start_ns = looking_start();
		char *text = file_read("/proc/self/smaps");
		mappings.reason = text ? 0 : errno;
		mappings.count = 0;
		if (text)
			mappings_parse(text);
		free(text);
		mappings.read_at = now;
		looking_end(LOOK_PAGES, start_ns, true);
	}
	if (!mappings.reason)
		return true;
	errno = mappings.reason;
	pthread_mutex_unlock(&mappings.lock);
	return false;
}

/* The first mapping that ends after an address. */
static const struct mapping *mapping_from(uint64_t address)
{
	size_t low = 0, high = mappings.count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (mappings.each[middle].high <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return mappings.each + low;
}

/* Whether every byte of a region is on transparent huge pages: the mappings it lies in have no other pages at all. */
static bool all_on_huge_pages(const struct region *region)
{
	uint64_t found = 0;
	if (!mappings_lock(region->mapped))
		return false;
	const struct mapping *end = mappings.each + mappings.count;
	for (const struct mapping *mapping = mapping_from((uintptr_t)region->start);
	     mapping < end && shared_bytes(region, mapping); mapping++)
		if (mapping->huge == mapping->high - mapping->low)
			found += shared_bytes(region, mapping);
	pthread_mutex_unlock(&mappings.lock);
	return found == region->bytes;
}

/* The bytes that lie on one node together: a look at any page in them tells of all. */
static size_t settled_by_one(const struct region *region)
{
	size_t base = memory_base_page_bytes(), huge = memory_thp_bytes();
	if (region->kind == PAGES_HUGETLB)
		return region->hugetlb_bytes;
	bool worth = region->kind == PAGES_THP && huge && region->bytes / base > CHECK_EACH_PAGES;
	return worth && all_on_huge_pages(region) ? huge : base;
}

static void count_pages(struct pages *pages, const struct region *region, uint64_t *shares, int status, uint64_t count)
{
	pages->checked += count;
	for (size_t i = 0; i < region_nodes(region); i++)
		if (status == (int)region_node(region, i)) {
			pages->on_node += count;
			shares[i] += count;
			return;
		}
	pages->elsewhere += count;
}

static bool read_nodes(struct pages *pages, const struct region *region, uint64_t *shares, struct error *error)
{
	size_t base = memory_base_page_bytes(), step = settled_by_one(region), looks = region->bytes / step;
	size_t count = region_nodes(region);
	void *addresses[CHECK_BATCH];
	int status[CHECK_BATCH];
	for (size_t done = 0; done < looks;) {
		size_t batch = looks - done < CHECK_BATCH ? looks - done : CHECK_BATCH;
		for (size_t i = 0; i < batch; i++)
			addresses[i] = region->start + (done + i) * step;
		if (syscall(SYS_move_pages, 0, batch, addresses, NULL, status, 0) != 0) {
			int reason = errno;
			if (count == 1 && only_node_with_memory(region->node)) {
				warning_add("PLACEMENT_BY_TOPOLOGY", "move_pages: %s; node %u is the only one with memory",
				            strerror(reason), region->node);
				return true; /* nothing checked, and the document says so: checked = 0 */
			}
			return error_set(error, reason == EPERM ? ERROR_NO_PERMISSION : ERROR_PLACEMENT_WRONG,
			                 "reading page placement back: %s", strerror(reason));
		}
		for (size_t i = 0; i < batch; i++)
			count_pages(pages, region, shares, status[i], step / base);
		done += batch;
	}
	if (pages->elsewhere)
		return error_set(error, ERROR_PLACEMENT_WRONG,
		                 "expected all pages on node %u%s, found %" PRIu64 " of %" PRIu64
		                 " elsewhere; free memory on the node, or stop what migrates pages",
		                 region->node, count > 1 ? " and the others given" : "", pages->elsewhere, pages->checked);
	if (count > 1 && !shares_even(shares, count, region_page_bytes(region) / base))
		return error_set(error, ERROR_PLACEMENT_WRONG,
		                 "expected even shares of %" PRIu64 " pages on %zu nodes, found %" PRIu64
		                 " on node %u and %" PRIu64
		                 " on node %u among them; use a larger size or --pages base, or free memory on the nodes",
		                 pages->checked, count, shares[0], region_node(region, 0), shares[count - 1],
		                 region_node(region, count - 1));
	return true;
}

bool pages_read_nodes(struct pages *pages, const struct region *region, struct error *error)
{
	uint64_t *shares = calloc(region_nodes(region), sizeof(*shares));
	if (!shares)
		return error_set(error, ERROR_INTERNAL, "no memory for a count of pages by node");
	bool good = read_nodes(pages, region, shares, error);
	for (size_t i = 0; pages->shares && i < region_nodes(region); i++)
		pages->shares[i] += shares[i];
	free(shares);
	return good;
}

/* Adds the bytes of a region that are in mappings, and those that are on huge pages of them; mappings of equal kind may have
 * been merged. */
static void add_huge(struct pages *pages, const struct region *region, uint64_t *mapped, uint64_t *huge)
{
	const struct mapping *end = mappings.each + mappings.count;
	for (const struct mapping *mapping = mapping_from((uintptr_t)region->start); mapping < end; mapping++) {
		uint64_t overlap = shared_bytes(region, mapping);
		if (!overlap)
			break;
		*mapped += overlap;
		/* A mapping that is larger than what we asked for can only have been merged with an equal one. */
		*huge += (uint64_t)((double)mapping->huge * (double)overlap / (double)(mapping->high - mapping->low));
		if (mapping->huge && !pages->huge_bytes)
			pages->huge_bytes = memory_thp_bytes();
	}
}

void pages_read_sizes(struct pages *pages, const struct region *regions, size_t count)
{
	uint64_t total = 0, huge = 0, mapped = 0, last = 0;
	pages->hugetlb = count > 0;
	pages->total = 0;
	for (size_t i = 0; i < count; i++) {
		pages->total += regions[i].bytes / memory_base_page_bytes();
		pages->hugetlb = pages->hugetlb && regions[i].kind == PAGES_HUGETLB;
		total += regions[i].bytes;
		last = regions[i].mapped > last ? regions[i].mapped : last;
		if (regions[i].kind == PAGES_HUGETLB) {
			pages->some_hugetlb = true;
			pages->huge_bytes = regions[i].hugetlb_bytes;
			huge += regions[i].bytes;
			mapped += regions[i].bytes;
		}
	}
	if (mappings_lock(last)) {
		for (size_t i = 0; i < count; i++)
			if (regions[i].kind != PAGES_HUGETLB)
				add_huge(pages, &regions[i], &mapped, &huge);
		pthread_mutex_unlock(&mappings.lock);
		if (mapped != total)
			warning_add("PAGES_UNREADABLE", "/proc/self/smaps accounts for %" PRIu64 " of %" PRIu64 " bytes", mapped,
			            total);
	} else {
		warning_add("PAGES_UNREADABLE", "/proc/self/smaps: %s; transparent huge pages count as not obtained",
		            strerror(errno));
	}
	pages->huge_fraction = total ? (double)huge / (double)total : 0;
}

bool pages_read_back(struct pages *pages, const struct region *regions, size_t count, enum page_kind wanted,
                     struct error *error)
{
	*pages = (struct pages){.wanted = wanted};
	for (size_t i = 0; i < count; i++)
		if (!pages_read_nodes(pages, &regions[i], error))
			return false;
	pages_read_sizes(pages, regions, count);
	return true;
}

const char *pages_obtained(const struct pages *pages)
{
	if (pages->huge_fraction == 0)
		return "base";
	if (pages->huge_fraction < 1 || pages->some_hugetlb != pages->hugetlb)
		return "mixed";
	if (!pages->hugetlb)
		return "thp";
	return pages->huge_bytes == 1u << 30 ? "hugetlb_1g" : "hugetlb_2m";
}

void pages_write(struct json *json, const char *key, const struct pages *pages)
{
	json_object_begin(json, key);
	json_text(json, "wanted", kind_names[pages->wanted]);
	json_text(json, "obtained", pages_obtained(pages));
	json_u64(json, "base_bytes", memory_base_page_bytes());
	if (pages->huge_bytes)
		json_u64(json, "huge_bytes", pages->huge_bytes);
	else
		json_null(json, "huge_bytes");
	json_f64(json, "huge_fraction", pages->huge_fraction);
	json_u64(json, "total", pages->total);
	json_u64(json, "checked", pages->checked);
	json_u64(json, "on_node", pages->on_node);
	json_u64(json, "elsewhere", pages->elsewhere);
	json_object_end(json);
}
