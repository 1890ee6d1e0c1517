/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's pools of hugetlb pages. */
#pragma once

#include "error.h"

/* No architecture has more sizes: aarch64 with 64 KiB pages has five. */
#define HUGETLB_SIZES 8

/* The default first, then the others from the largest. */
struct hugetlb_sizes {
	size_t bytes[HUGETLB_SIZES], count;
};

/* The unit in which the kernel names a size of pages, 'K', 'M' or 'G', and the size in it. */
char hugetlb_unit(size_t page_bytes, size_t *units);
void hugetlb_sizes(struct hugetlb_sizes *sizes);
/* Reads nr_hugepages, free_hugepages or resv_hugepages of the pools in a directory; of the machine's. */
bool hugetlb_pool_in(const char *pools, size_t page_bytes, const char *which, uint64_t *pages);
bool hugetlb_pool(size_t page_bytes, const char *which, uint64_t *pages);
/* The same of one node, which knows no resv_hugepages. */
bool hugetlb_node_pool(unsigned node, size_t page_bytes, const char *which, uint64_t *pages);
/* Maps whole pages of this size, on no node yet; MAP_FAILED and errno where the kernel does not. */
void *hugetlb_map(size_t bytes, size_t page_bytes);
/* Whether one can be mapped: an emulator may not map the pages that its machine has free. */
bool hugetlb_mappable(size_t page_bytes, struct error *error);
