/* SPDX-License-Identifier: Apache-2.0 */
/* How far a thread was at which time, logged by itself: windows are cut out of it afterwards. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct log_entry {
	uint64_t ticks;
	uint64_t done; /* since the start of the run: lines of each array, or hops */
};

struct progress {
	struct log_entry *entries;
	size_t count, capacity;
};

/* Room for so many entries, every page touched, so that none is faulted in while something is measured. */
void progress_reserve(struct progress *progress, size_t capacity);
/* Done until `ticks`, interpolated between the entries around it. */
double progress_at(const struct progress *progress, uint64_t ticks);
/* The shortest time between two entries: what lies closer together is interpolated. */
uint64_t progress_step(const struct progress *progress);
