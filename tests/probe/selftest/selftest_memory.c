// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "affinity.h"
#include "demand.h"
#include "selftest.h"

bool selftest_map(struct region *region, size_t bytes, unsigned node, enum page_kind wanted, struct error *error)
{
	struct demand demand = {.wanted = wanted};
	demand_regions(&demand, bytes, 1, node);
	return demand_admit(&demand, error) && region_map(region, bytes, node, demand.pages, error);
}

/* A buffer on one node that is claimed to be spread over two, evenly and by weights. */
bool case_interleave(struct error *error)
{
	struct cpu_list both = {0};
	struct region region;
	struct pages pages = {0};
	struct error wrong = {0}, refused = {0};
	cpu_list_add(&both, 0);
	cpu_list_add(&both, 1023);
	if (!selftest_map(&region, 4u << 20, 0, PAGES_BASE, error)) {
		cpu_list_free(&both);
		return false;
	}
	region.nodes = &both;
	bool fooled = pages_read_nodes(&pages, &region, &wrong);
	const unsigned weights[] = {8, 1};
	struct pages weighted = {0};
	struct error wrong_weights = {0};
	region.weights = weights;
	fooled = fooled || pages_read_nodes(&weighted, &region, &wrong_weights);
	region_unmap(&region);
	struct demand demand = {0};
	demand_region_over(&demand, 4u << 20, &both);
	bool admitted = demand_admit(&demand, &refused);
	cpu_list_free(&both);
	/* Where pages cannot be read back (a user-mode emulator), that alone refuses a buffer that is to be spread. */
	EXPECT(!fooled && wrong.code != ERROR_NONE && (pages.checked == 0 || strstr(wrong.message, "wrong shares")));
	EXPECT(wrong_weights.code != ERROR_NONE &&
	       (weighted.checked == 0 || strstr(wrong_weights.message, "wrong shares")));
	EXPECT(!admitted && refused.code == ERROR_BIND_FAILED && demand.refused_node == 1023);
	return true;
}

bool case_placement(struct error *error)
{
	const enum page_kind kinds[] = {PAGES_BASE, PAGES_THP, PAGES_AUTO};
	for (unsigned i = 0; i < 3; i++) {
		struct region region;
		struct pages pages, elsewhere = {0};
		struct error wrong = {0};
		if (!selftest_map(&region, 4u << 20, 0, kinds[i], error))
			return false;
		bool good = pages_read_back(&pages, &region, 1, kinds[i], error);
		/* Claim another node than the one bound to: the read-back must contradict. */
		region.node = 1;
		bool fooled = pages_read_nodes(&elsewhere, &region, &wrong);
		region_unmap(&region);
		if (!good)
			return false;
		EXPECT(pages.on_node == pages.checked && pages.elsewhere == 0);
		EXPECT(pages.total == (4u << 20) / memory_base_page_bytes());
		EXPECT(pages.checked == 0 || pages.checked == pages.total);
		EXPECT(kinds[i] != PAGES_BASE || pages.huge_fraction == 0);
		EXPECT(!fooled && wrong.code != ERROR_NONE && elsewhere.on_node == 0);
	}
	/* Two regions of hugetlb pages are that; one of them and another are mixed. */
	const struct region both[] = {{.bytes = 4u << 20, .kind = PAGES_HUGETLB, .hugetlb_bytes = 2u << 20},
	                              {.bytes = 4u << 20, .kind = PAGES_HUGETLB, .hugetlb_bytes = 2u << 20}};
	struct region one[] = {both[0], {0}};
	struct pages alike = {0}, unlike = {0};
	pages_read_sizes(&alike, both, 2);
	if (!selftest_map(&one[1], 4u << 20, 0, PAGES_THP, error))
		return false;
	pages_read_sizes(&unlike, one, 2);
	region_unmap(&one[1]);
	char name[PAGES_NAME_BYTES];
	EXPECT(!strcmp(pages_obtained(&alike, name), "hugetlb_2m") && !strcmp(pages_obtained(&unlike, name), "mixed"));
	struct region region;
	struct error refused = {0};
	EXPECT(!selftest_map(&region, 1u << 20, 1000, PAGES_BASE, &refused) && refused.code == ERROR_BIND_FAILED);
	refused = (struct error){0};
	EXPECT(!selftest_map(&region, (size_t)3 << (8 * sizeof(size_t) - 2), 0, PAGES_BASE, &refused) &&
	       refused.code == ERROR_NO_MEMORY);
	return true;
}

bool case_affinity(struct error *error)
{
	const struct cpu_list *allowed = affinity_allowed();
	for (size_t i = 0; i < allowed->count; i++) {
		if (!affinity_pin(allowed->cpus[i], error))
			return false;
		EXPECT(affinity_verify(allowed->cpus[i]));
		EXPECT(!affinity_verify(allowed->cpus[(i + 1) % allowed->count]) || allowed->count == 1);
	}
	struct error refused = {0};
	EXPECT(!affinity_pin(1000000, &refused) && refused.code != ERROR_NONE);
	struct cpu_list none = {0};
	affinity_avoid(0, &none); /* back to all CPUs, for the cases that follow */
	return true;
}
