/* SPDX-License-Identifier: Apache-2.0 */
/* Memory on a wanted node and on wanted pages, and the proof of what was obtained. */
#pragma once

#include "affinity.h"
#include "demand.h"
#include "error.h"
#include "mappings.h"

struct region {
	unsigned char *start;
	size_t bytes;                 /* as mapped: whole huge pages unless base pages were wanted */
	unsigned node;                /* the first, where pages are spread over several */
	const struct cpu_list *nodes; /* pages are spread over these; NULL: all on `node` */
	const unsigned *weights;      /* pages on each of them in turn; NULL: one, by the kernel */
	bool by_kernel;               /* it spreads by weights too */
	unsigned first;               /* pages of the order that come before those of the region */
	enum page_kind kind;          /* what was asked of the kernel, never PAGES_AUTO */
	size_t hugetlb_bytes;
	uint64_t mapped; /* when, by the count that mappings_forget goes on with */
};

struct pages {
	enum page_kind wanted;
	double huge_fraction;
	size_t huge_bytes; /* 0: none obtained */
	bool hugetlb;      /* of all regions */
	bool some_hugetlb; /* of one at least */
	uint64_t total;    /* pages of base size that the regions are made of */
	uint64_t checked;  /* of these, those whose node was read back: all, or none where the kernel does not say */
	uint64_t on_node;
	uint64_t elsewhere;
	uint64_t *shares; /* NULL, or where to count what lies on each of the nodes that a region is spread over */
};

/* Keeps NUMA balancing off the program's own memory; to be called before other threads begin. */
void memory_keep_local(void);
/* Maps, binds and touches `bytes` on a node, from the calling thread, which must be pinned already. What it takes must have
 * been admitted (demand.h), which also chose the pages. */
bool region_map(struct region *region, size_t bytes, unsigned node, struct page_choice pages, struct error *error);
/* The same with the pages interleaved over several nodes, which must outlive the region; over one it is region_map. */
bool region_map_over(struct region *region, size_t bytes, const struct cpu_list *nodes, struct page_choice pages,
                     struct error *error);
/* The same by weights. The order of nodes begins with page `first`: threads that begin together at the start of their regions
 * would otherwise all be at the same node, and wait for it together, time and again. */
bool region_map_spread(struct region *region, size_t bytes, const struct spread *spread, unsigned first,
                       struct page_choice pages, struct error *error);
void region_unmap(struct region *region);
/* The nodes that a region lies on. */
size_t region_nodes(const struct region *region);
unsigned region_node(const struct region *region, size_t index);
/* Whether all memory of this machine lies on this node, so that nothing can lie elsewhere. */
bool only_node_with_memory(unsigned node);
/* Reads back the node and the page size of what several regions were given; an error where pages lie elsewhere. */
bool pages_read_back(struct pages *pages, const struct region *regions, size_t count, enum page_kind wanted,
                     struct error *error);
/* The two halves of it: the nodes of one region, counted into `pages`, by any thread; the page sizes of all regions. */
bool pages_read_nodes(struct pages *pages, const struct region *region, struct error *error);
void pages_read_sizes(struct pages *pages, const struct region *regions, size_t count);
/* The pages of base size that each node of a region has if the program itself spreads them; false where the kernel does. */
bool region_shares(const struct region *region, uint64_t *shares);
/* Whether pages counted on each of several nodes are spread as they should be: each node has its fair share by weights (NULL:
 * all alike), give or take two grains and 5 %. A grain is what comes to a node at a time, in pages of base size. */
bool shares_fair(const uint64_t *shares, const unsigned *weights, size_t count, uint64_t grain);
/* The size of the pages that a region was mapped for: what interleaving steps by. */
size_t region_page_bytes(const struct region *region);
#define PAGES_NAME_BYTES 40
/* The word for what was obtained, "thp" or "hugetlb_64k" for example; `name` has room for it. */
const char *pages_obtained(const struct pages *pages, char name[PAGES_NAME_BYTES]);
void pages_write(struct json *json, const char *key, const struct pages *pages);
/* Line size of the caches, 64 where the kernel does not say. */
size_t memory_line_bytes(void);
/* Size of the second-level cache of a CPU, 1 MiB where the kernel does not say. */
size_t memory_l2_bytes(unsigned cpu);
