// SPDX-License-Identifier: Apache-2.0
#include "hugetlb.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "affinity.h"
#include "files.h"
#include "text.h"

#define POOLS "/sys/kernel/mm/hugepages"

char hugetlb_unit(size_t page_bytes, size_t *units)
{
	unsigned shift = page_bytes >> 30 ? 30 : page_bytes >> 20 ? 20 : 10;
	*units = page_bytes >> shift;
	return shift == 30 ? 'G' : shift == 20 ? 'M' : 'K';
}

void hugetlb_sizes(struct hugetlb_sizes *sizes)
{
	char *text = file_read("/proc/meminfo");
	uint64_t preferred = 0;
	*sizes = (struct hugetlb_sizes){.count = 0};
	if (text && text_number_of(text, "Hugepagesize:", &preferred))
		sizes->bytes[sizes->count++] = preferred *= 1024;
	free(text);
	struct cpu_list kib = cpu_list_named(POOLS, "hugepages-");
	for (size_t i = kib.count; i-- > 0 && sizes->count < HUGETLB_SIZES;)
		if (kib.cpus[i] && (size_t)kib.cpus[i] * 1024 != preferred)
			sizes->bytes[sizes->count++] = (size_t)kib.cpus[i] * 1024;
	cpu_list_free(&kib);
}

bool hugetlb_pool_in(const char *pools, size_t page_bytes, const char *which, uint64_t *pages)
{
	char path[160];
	long long value;
	snprintf(path, sizeof(path), "%s/hugepages-%zukB/%s_hugepages", pools, page_bytes / 1024, which);
	bool known = file_number(path, &value) && value >= 0;
	if (known)
		*pages = (uint64_t)value;
	return known;
}

bool hugetlb_pool(size_t page_bytes, const char *which, uint64_t *pages)
{
	return hugetlb_pool_in(POOLS, page_bytes, which, pages);
}

bool hugetlb_node_pool(unsigned node, size_t page_bytes, const char *which, uint64_t *pages)
{
	char pools[80];
	snprintf(pools, sizeof(pools), "/sys/devices/system/node/node%u/hugepages", node);
	return hugetlb_pool_in(pools, page_bytes, which, pages) || (node == 0 && hugetlb_pool(page_bytes, which, pages));
}

void *hugetlb_map(size_t bytes, size_t page_bytes)
{
	int size = __builtin_ctzll(page_bytes) << MAP_HUGE_SHIFT;
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | size, -1, 0);
}

bool hugetlb_mappable(size_t page_bytes, struct error *error)
{
	void *start = hugetlb_map(page_bytes, page_bytes);
	if (start == MAP_FAILED)
		return error_set(error, ERROR_NO_MEMORY, "mapping a hugetlb page of %zu KiB: %s; use --pages auto",
		                 page_bytes >> 10, strerror(errno));
	munmap(start, page_bytes);
	return true;
}
