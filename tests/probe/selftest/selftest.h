/* SPDX-License-Identifier: Apache-2.0 */
/* Known answers: each case computes something whose answer is known by other means, and several break it on purpose to see
 * that the break is found. No case asserts how long anything takes. */
#pragma once

#include <sys/mman.h>

#include "error.h"
#include "gaps.h"
#include "memory.h"

#define EXPECT(condition)                                                                                              \
	do {                                                                                                               \
		if (!(condition))                                                                                              \
			return error_set(error, ERROR_CHECK_FAILED, "line %d: expected %s", __LINE__, #condition);                 \
	} while (0)

/* Gives back what gaps_open took; a program that measures once has no need to. */
static inline void gaps_free(struct gaps *gaps)
{
	if (gaps->ring)
		munmap(gaps->ring, gaps_bytes(gaps->capacity, gaps->longest_wanted));
	gaps->ring = gaps->longest = NULL;
}

/* What the case at hand has to say beside its outcome. */
void selftest_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Maps base, huge or any pages on a node once they are known to be available. */
bool selftest_map(struct region *region, size_t bytes, unsigned node, enum page_kind wanted, struct error *error);

bool case_clock(struct error *error);
bool case_instructions(struct error *error);
bool case_gap_books(struct error *error);
bool case_chain(struct error *error);
bool case_large_chain(struct error *error);
bool case_interleave(struct error *error);
bool case_affinity(struct error *error);
bool case_placement(struct error *error);
bool case_core_work(struct error *error);
bool case_kernels(struct error *error);
bool case_generator(struct error *error);
