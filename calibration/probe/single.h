/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of a chain timed one by one. The clock costs as much as a cache miss of an inner level, so loads of a line in L1 are
 * timed by the same instructions in turn with them: what those took is the clock's and the machine's, not memory's. */
#pragma once

#include "chain.h"
#include "evidence.h"
#include "histogram.h"

struct single_loads {
	struct histogram memory, reference; /* ticks from before each load to after it, of as many loads each */
	struct thread_counts counts;        /* meanwhile */
};

/* Numbers of the document at most, for so many loads. */
uint64_t single_loads_numbers(uint64_t loads);
/* Walks on from where the last walk ended; ends early when told to stop. No allocation, no input or output. */
void single_loads_run(struct chain *chain, uint64_t loads, struct single_loads *found);
/* Writes null where there are none. */
void single_loads_write(struct json *json, const char *key, const struct single_loads *found);
