/* SPDX-License-Identifier: Apache-2.0 */
/* The mappings of this process as /proc/self/smaps lists them. Threads map and prove hundreds of regions at once, so the list is
 * read once for as many as it serves: one that was read after a region had been mapped serves that region too. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct mapping {
	uint64_t low, high, huge; /* addresses; bytes that are on transparent huge pages */
};

/* Counts on with every region that is mapped and every time that the list is read. */
uint64_t mappings_count_on(void);
/* What is asked from here on is read anew: to be called before pages are proved to lie where they were found. */
void mappings_forget(void);
/* Locks a list that is later than a region; false with errno, and nothing is locked, where there is none. */
bool mappings_lock(uint64_t mapped);
void mappings_unlock(void);
/* Of the locked list, the first mapping that ends after an address, and the end of the list. */
const struct mapping *mappings_from(uint64_t address);
const struct mapping *mappings_end(void);
