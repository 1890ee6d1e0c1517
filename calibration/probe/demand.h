/* SPDX-License-Identifier: Apache-2.0 */
/* What a command is about to take of the machine's memory and tasks, summed before any of it is taken: all of it is admitted,
 * or the command is refused with what it asks and what is available. What the kernel has not got it kills for. */
#pragma once

#include <limits.h>

#include "affinity.h"
#include "error.h"

/* The kernel's largest possible node id is below this (MAX_NUMNODES with NODES_SHIFT = 10). */
#define NODE_LIMIT 1024u

enum page_kind { PAGES_AUTO, PAGES_THP, PAGES_BASE, PAGES_HUGETLB };
#define MEMORY_PAGE_CHOICES "auto|thp|base|hugetlb"

/* In place of a node: whichever, known only later. */
#define DEMAND_ANY_NODE UINT_MAX

/* The pages that regions are made of. `bytes` is 0 before they are chosen. */
struct page_choice {
	enum page_kind kind;
	size_t bytes;
};

/* Nodes that pages are spread over: so many on each in turn, by the program itself or by the kernel's weighted interleaving,
 * whose own weights these are then. */
struct spread {
	struct cpu_list nodes;
	unsigned *weights;
	bool by_kernel;
};

struct demanded {
	size_t bytes;
	uint64_t count;
	unsigned node;
	const struct cpu_list *nodes; /* pages are spread over these; NULL: all on `node` */
	const unsigned *weights;      /* of each of them; NULL: all alike */
};

struct demand {
	/* to be set before demand_admit */
	enum page_kind wanted;
	size_t hugetlb_bytes; /* of pages wanted as hugetlb; 0: whichever can be had */
	/* set before, it is kept as long as such pages can be had */
	struct page_choice pages;
	/* What the command holds from its first admission to its end was asked for then. */
	bool again;
	/* state */
	struct demanded *regions;
	size_t count;
	uint64_t other_bytes;
	uint64_t tasks;
	/* set by demand_admit where it refuses: the node that has too little; -1: the machine or a control group */
	int refused_node;
};

/* `count` regions of so many bytes each, as region_map makes them. */
void demand_regions(struct demand *demand, size_t bytes, uint64_t count, unsigned node);
/* One region over several nodes, which must outlive the demand. */
void demand_region_over(struct demand *demand, size_t bytes, const struct cpu_list *nodes);
void demand_region_spread(struct demand *demand, size_t bytes, const struct spread *spread);
/* The most of so many pages in a row that a node may get. */
uint64_t spread_most(uint64_t pages, const unsigned *weights, size_t count, size_t index);
/* `count` mappings or allocations of so many bytes each on whatever node, with the page that each may begin. */
void demand_other(struct demand *demand, uint64_t bytes, uint64_t count);
/* Threads with their stacks, of both the kernel and the program. */
void demand_threads(struct demand *demand, uint64_t count);
/* Processes that are there at the same time, whose memory is asked for apart. */
void demand_processes(struct demand *demand, uint64_t count);
/* So many numbers of the document, which is there twice when it is put together. */
void demand_document(struct demand *demand, uint64_t numbers);
/* Chooses the pages, one size for all regions, and asks whether nodes, machine and control groups have everything together.
 * The demand is empty afterwards, and `pages` is what regions are to be mapped with. */
bool demand_admit(struct demand *demand, struct error *error);

static inline uint64_t round_up(uint64_t value, uint64_t step)
{
	return (value + step - 1) / step * step;
}

/* Whether the kernel tells of memory nodes. */
bool kernel_has_nodes(void);
/* Whether a region of so many bytes may be made of such pages: what rounding it up wastes is little. */
bool pages_fit(size_t bytes, size_t page_bytes);
/* What may be used of a meminfo text: free memory, and page cache that was not used lately and is dropped on demand.
 * False where it does not say. */
bool memory_usable_bytes(const char *meminfo, uint64_t *bytes);
size_t memory_base_page_bytes(void);
/* Size of a transparent huge page, 0 where the kernel has none. */
size_t memory_thp_bytes(void);
