// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <stdlib.h>

#include "allocate.h"

void progress_reserve(struct progress *progress, size_t capacity)
{
	if (capacity <= progress->capacity)
		return;
	free(progress->entries);
	progress->entries = allocate_touched(capacity, sizeof(*progress->entries));
	progress->capacity = capacity;
}

double progress_at(const struct progress *progress, uint64_t ticks)
{
	const struct log_entry *entries = progress->entries;
	size_t low = 0, high = progress->count - 1;
	if (ticks <= entries[0].ticks)
		return 0;
	if (ticks >= entries[high].ticks)
		return (double)entries[high].done;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		if (entries[middle].ticks <= ticks)
			low = middle;
		else
			high = middle;
	}
	const struct log_entry *before = &entries[low], *after = &entries[high];
	double part = (double)(ticks - before->ticks) / (double)(after->ticks - before->ticks);
	return (double)before->done + part * (double)(after->done - before->done);
}

uint64_t progress_step(const struct progress *progress)
{
	uint64_t shortest = UINT64_MAX;
	for (size_t i = 1; i < progress->count; i++) {
		uint64_t step = progress->entries[i].ticks - progress->entries[i - 1].ticks;
		shortest = step < shortest ? step : shortest;
	}
	return shortest;
}
