// SPDX-License-Identifier: Apache-2.0
/* Gaps and counts in slices. The source itself is compiled here. */
#include "slices.c"

#include "host.h"

static struct reading made(uint64_t *counts, size_t labels, int64_t *threads)
{
	return (struct reading){.counts = counts, .labels = labels, .threads = threads};
}

/* Two slices of the second of two CPUs; an interrupt that nobody had seen before the first ended, and a row of the other CPU. The
 * gap before the first reading is in none, nor is what came after the ring was full, or the last reading. */
static bool case_slices(struct error *error)
{
	clock_now_used.hz = 1e9;
	static const char expected[] =
		"[{\"length_ns\":[100,100],\"gaps\":[2,1],\"lost_ns\":[30,5],"
		"\"periods\":[{\"period_ns\":50,\"gaps\":[1,0],\"lost_ns\":[10,0]}],\"switches\":[1,0],\"waited_ns\":null,"
		"\"sources\":[{\"source\":\"LOC\",\"kind\":\"interrupt\",\"timer\":true,\"events\":[4,3]},"
		"{\"source\":\"40\",\"kind\":\"interrupt\",\"timer\":false,\"events\":[0,9]}],\"steal_ms\":10,\"smi\":null}]";
	uint64_t first[] = {0, 10, 5, 0}, second[] = {0, 14, 6, 0}, third[] = {0, 17, 7, 0, 0, 9};
	int64_t threads[][4] = {{0, 3, 0, -1}, {0, 4, 0, 7}, {0, 4, 0, 8}};
	struct reading list[] = {made(first, 2, threads[0]), made(second, 2, threads[1]), made(third, 3, threads[2]),
	                         made(third, 3, threads[2])};
	struct label labels[] = {{"LOC", false, true}, {"TIMER", true, false}, {"40", false, false}};
	uint64_t at[] = {1000, 1100, 1200, 1300};
	struct gap ring[] = {{990, 7}, {1010, 10}, {1090, 20}, {1100, 5}, {1205, 1}};
	const uint8_t owner[] = {PERIODS_NONE, 0, PERIODS_NONE, PERIODS_NONE, 0};
	const struct period period = {.ticks = 50};
	const struct cpu_list cpus = {(unsigned[]){0, 1}, 2};
	const struct readings readings = {
		.cpus = &cpus, .count = 4, .at = at, .list = list, .labels = labels, .label_count = 3};
	const struct gaps gaps = {.ring = ring, .kept = 5, .count = 6};
	const struct sliced sliced = {1, &gaps, &period, 1, owner};
	const struct readings one = {.cpus = &cpus, .count = 1, .at = at, .list = list};
	struct json json = {0}, none = {0};
	slices_write(&json, NULL, &readings, &sliced, 10, -1);
	slices_write(&none, NULL, &one, &sliced, 10, -1);
	bool good = !strcmp(json.text, expected), empty = !strcmp(none.text, "[]");
	if (!good)
		error_set(error, ERROR_CHECK_FAILED, "%s", json.text);
	json_free(&json);
	json_free(&none);
	EXPECT(good);
	EXPECT(empty);
	return true;
}

/* Few CPUs have as many slices as are of use, hundreds share what an answer has room for, and none has too few to regress. */
static bool case_most_slices(struct error *error)
{
	static const struct {
		size_t cpus;
		double gap_s;
		uint64_t slices;
	} cases[] = {{2, 2.5, 26},   {2, 1800, 600},  {50, 1800, 600},
	             {504, 2.5, 26}, {504, 1800, 59}, {4096, 1800, SLICES_MIN}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		jitter.cpus.count = cases[i].cpus;
		jitter_options.gap_s = cases[i].gap_s;
		EXPECT(jitter_slices() == cases[i].slices);
	}
	return true;
}

HOST_CASES(CASE(slices), CASE(most_slices))
