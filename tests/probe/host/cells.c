// SPDX-License-Identifier: Apache-2.0
/* What is kept of a pair of a matrix. The source itself is compiled here. */
#include "c2c.c"

#include "host.h"

/* All placements: their windows in order, counts added up, the clock before the first and after the last. */
static bool case_placements(struct error *error)
{
	enum { PLACEMENTS = 3, WINDOWS = 2 };
	double ticks[PLACEMENTS][WINDOWS] = {{1, 2}, {3, 4}, {5, 6}};
	struct placement placements[PLACEMENTS] = {0};
	static struct pair pair;
	struct cell cell;
	struct matrix matrix = {.cells = &cell};
	for (unsigned i = 0; i < PLACEMENTS; i++) {
		struct stretch *threads = &placements[i].evidence.threads;
		placements[i].window_ticks = ticks[i];
		threads->core_before = 10 + i;
		threads->core_after = 20 + i;
		threads->counts = (struct thread_counts){1ull << i, 8ull << i, 64ull << i, 512ull << i};
	}
	pair.placements = placements;
	pair.count = PLACEMENTS;
	pair.extent.windows = WINDOWS;
	cell_keep(&matrix, &pair);
	bool windows = true;
	for (unsigned i = 0; i < PLACEMENTS * WINDOWS; i++)
		windows = windows && cell.window_ticks[i] == i + 1;
	free(cell.window_ticks);
	const struct thread_counts *counts = &cell.threads.counts, *all = &matrix.counts;
	EXPECT(matrix.count == 1 && cell.count == PLACEMENTS && windows);
	EXPECT(cell.threads.core_before == 10 && cell.threads.core_after == 22);
	EXPECT(counts->involuntary == 7 && counts->voluntary == 7 * 8 && counts->minor_faults == 7 * 64 &&
	       counts->major_faults == 7 * 512);
	EXPECT(all->involuntary == 7 && all->major_faults == 7 * 512);
	return true;
}

HOST_CASES(CASE(placements))
