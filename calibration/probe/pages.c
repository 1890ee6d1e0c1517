// SPDX-License-Identifier: Apache-2.0
/* The proof of what regions were given: nodes and sizes of their pages, read back. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocate.h"
#include "hugetlb.h"
#include "json.h"
#include "mappings.h"
#include "memory.h"
#include "warning.h"

/* Every page is checked. One of base size costs some 0.5 us: from this many on it pays to find out first whether all are
 * huge ones, of which one look settles 512 pages. */
#define CHECK_EACH_PAGES 16384u
#define CHECK_BATCH 1024

static const char *const kind_names[] = {"auto", "thp", "base", "hugetlb"};

bool shares_fair(const uint64_t *shares, const unsigned *weights, size_t count, uint64_t grain)
{
	uint64_t total = 0, turn = 0;
	for (size_t i = 0; i < count; i++) {
		total += shares[i];
		turn += weights ? weights[i] : 1;
	}
	for (size_t i = 0; i < count; i++) {
		double fair = (double)total * (weights ? weights[i] : 1) / (double)turn;
		if (!shares[i] || fabs((double)shares[i] - fair) > 2 * (double)grain + fair / 20)
			return false;
	}
	return true;
}

/* Whether the pages of a region on each of its nodes are what they should be: exactly, if the program has spread them. */
static bool shares_right(const struct region *region, const uint64_t *shares)
{
	size_t count = region_nodes(region);
	uint64_t grain = region_page_bytes(region) / memory_base_page_bytes(), most = 1, turn = 0;
	uint64_t *exact = allocate(count, sizeof(*exact));
	bool known = region_shares(region, exact), right = !known || !memcmp(exact, shares, count * sizeof(*exact));
	free(exact);
	for (size_t i = 0; region->by_kernel && i < count; i++) {
		most = region->weights[i] > most ? region->weights[i] : most;
		turn += region->weights[i];
	}
	/* Of the kernel's turns one at least has to be whole. */
	return known ? right
	             : region->bytes / region_page_bytes(region) < turn ||
	                   shares_fair(shares, region->weights, count, most * grain);
}

/* The bytes of a region that lie in a mapping. */
static uint64_t shared_bytes(const struct region *region, const struct mapping *mapping)
{
	uint64_t from = (uintptr_t)region->start, to = from + region->bytes;
	uint64_t begin = from > mapping->low ? from : mapping->low, end = to < mapping->high ? to : mapping->high;
	return begin < end ? end - begin : 0;
}

/* Whether every byte of a region is on transparent huge pages: the mappings it lies in have no other pages at all. */
static bool all_on_huge_pages(const struct region *region)
{
	uint64_t found = 0;
	if (!mappings_lock(region->mapped))
		return false;
	const struct mapping *end = mappings_end();
	for (const struct mapping *mapping = mappings_from((uintptr_t)region->start);
	     mapping < end && shared_bytes(region, mapping); mapping++)
		if (mapping->huge == mapping->high - mapping->low)
			found += shared_bytes(region, mapping);
	mappings_unlock();
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
		                 "%" PRIu64 " of %" PRIu64
		                 " pages are not on node %u%s; free memory on the node, or stop what migrates pages",
		                 pages->elsewhere, pages->checked, region->node, count > 1 ? " or the others given" : "");
	if (count > 1 && !shares_right(region, shares))
		return error_set(error, ERROR_PLACEMENT_WRONG,
		                 "%" PRIu64 " pages in wrong shares on %zu nodes: %" PRIu64 " on node %u, %" PRIu64
		                 " on node %u; use a larger size or --pages base, or free memory on the nodes",
		                 pages->checked, count, shares[0], region_node(region, 0), shares[count - 1],
		                 region_node(region, count - 1));
	return true;
}

bool pages_read_nodes(struct pages *pages, const struct region *region, struct error *error)
{
	uint64_t *shares = allocate(region_nodes(region), sizeof(*shares));
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
	const struct mapping *end = mappings_end();
	for (const struct mapping *mapping = mappings_from((uintptr_t)region->start); mapping < end; mapping++) {
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
		mappings_unlock();
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

const char *pages_obtained(const struct pages *pages, char name[PAGES_NAME_BYTES])
{
	size_t units;
	if (pages->huge_fraction == 0)
		return "base";
	if (pages->huge_fraction < 1 || pages->some_hugetlb != pages->hugetlb)
		return "mixed";
	if (!pages->hugetlb)
		return "thp";
	const char unit = hugetlb_unit(pages->huge_bytes, &units);
	snprintf(name, PAGES_NAME_BYTES, "hugetlb_%zu%c", units, tolower(unit));
	return name;
}

void pages_write(struct json *json, const char *key, const struct pages *pages)
{
	char name[PAGES_NAME_BYTES];
	json_object_begin(json, key);
	json_text(json, "wanted", kind_names[pages->wanted]);
	json_text(json, "obtained", pages_obtained(pages, name));
	json_u64(json, "base_bytes", memory_base_page_bytes());
	json_u64_known(json, "huge_bytes", pages->huge_bytes > 0, pages->huge_bytes);
	json_f64(json, "huge_fraction", pages->huge_fraction);
	json_u64(json, "total", pages->total);
	json_u64(json, "checked", pages->checked);
	json_u64(json, "on_node", pages->on_node);
	json_u64(json, "elsewhere", pages->elsewhere);
	json_object_end(json);
}
