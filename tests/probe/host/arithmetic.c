// SPDX-License-Identifier: Apache-2.0
/* Arithmetic: random numbers, medians and intervals, scaled counters, the search for a core clock, accounting of mixes. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "clock.h"
#include "corefreq.h"
#include "generator.h"
#include "host.h"
#include "pmu_set.h"
#include "random.h"
#include "statistics.h"

static bool case_random(struct error *error)
{
	uint64_t state = 0;
	EXPECT(random_mix(&state) == 0xe220a8397b1dcdafu); /* first output of splitmix64 from 0, as published */
	struct random one, two;
	random_seed(&one, 7);
	random_seed(&two, 7);
	uint64_t sum = 0;
	for (int i = 0; i < 1000; i++) {
		uint32_t value = random_below(&one, 10);
		EXPECT(value < 10 && value == random_below(&two, 10));
		sum += value;
	}
	EXPECT(sum > 4000 && sum < 5000);
	EXPECT(random_derive(1, 2, 3) == random_derive(1, 2, 3) && random_derive(1, 2, 3) != random_derive(1, 3, 2));
	EXPECT(random_derive(UINT64_MAX, 9, 9) < 1ull << 53);
	return true;
}

static bool case_statistics(struct error *error)
{
	const double odd[] = {3, 1, 2}, even[] = {4, 1, 2, 3};
	EXPECT(statistics_median(odd, 3) == 2 && statistics_median(even, 4) == 2.5);
	return true;
}

static bool case_counters(struct error *error)
{
	const struct pmu_reading before = {1000, 500, 400};
	struct pmu_reading all = {1100, 700, 600}, quarter = {1050, 1500, 650}, never = {1000, 900, 400}, idle = before;
	double scaled, fraction;
	EXPECT(pmu_scale(&before, &all, &scaled, &fraction) && scaled == 100 && fraction == 1);
	EXPECT(pmu_scale(&before, &quarter, &scaled, &fraction) && scaled == 200 && fraction == 0.25);
	EXPECT(!pmu_scale(&before, &never, &scaled, &fraction) && scaled == 0 && fraction == 0);
	EXPECT(!pmu_scale(&before, &idle, &scaled, &fraction) && scaled == 0 && fraction == 0);
	const struct pmu_reading last = {UINT64_MAX - 9, 0, 0}, wrapped = {10, 3, 3};
	EXPECT(pmu_scale(&last, &wrapped, &scaled, &fraction) && scaled == 20);
	const char *words[] = {
		"a.b_1=uncore_cha-0/config=0x1,config1=0xffffFFFFffffffff,config2=0x0,config3=0x2,group=63,user/@0-3,7",
		"probe.a=hardware/group=0/"};
	const struct word_list both = {words, 2}, first = {words, 1};
	static struct pmu *pmus[3];
	struct error refused = {0};
	EXPECT(pmu_parse(&both, true, &pmus[0], error) && pmu_parse(&first, false, &pmus[1], error));
	EXPECT(!pmu_parse(&both, false, &pmus[2], &refused) && refused.code == ERROR_USAGE);
	return true;
}

/* Two threads, each with a counter that another had for a part of its time: in the document are their sum, the least part, and
 * the mean of their times. */
static bool case_threads(struct error *error)
{
	static struct pmu_counts *counts; /* never freed */
	struct pmu_spec spec = {.name = "misses", .source = "core"};
	uint64_t begin[][4] = {{1, 100, 50, 7}, {1, 0, 0, 0}}, end[][4] = {{1, 1100, 300, 17}, {1, 1000, 1000, 5}};
	struct pmu_counter counters[] = {{.spec = &spec, .ticks = {[PMU_BEGIN] = 5000, [PMU_END] = 5100}},
	                                 {.spec = &spec, .ticks = {[PMU_BEGIN] = 6000, [PMU_END] = 6300}}};
	struct pmu_set threads[2];
	for (unsigned i = 0; i < 2; i++)
		threads[i] = (struct pmu_set){
			.counters = &counters[i], .count = 1, .words = {[PMU_BEGIN] = begin[i], [PMU_END] = end[i]}};
	const struct pmu pmu = {.specs = &spec, .count = 1, .threads = threads, .thread_count = 2};
	struct clock kept = clock_now_used;
	struct json json = {0};
	clock_now_used.hz = 1e3;
	counts = pmu_take(&pmu, PMU_ALL, NULL, NULL);
	pmu_counts_write(&json, NULL, counts);
	clock_now_used = kept;
	bool right =
		strstr(json.text, "\"threads\":2,\"count\":15,\"scaled\":45,\"running_fraction\":0.25,\"wall_s\":0.2,");
	json_free(&json);
	EXPECT(right);
	return true;
}

/* What is undisturbed after so many runs that all were interrupted, each for another time. */
struct crowd {
	unsigned interrupted, asked;
};

static double crowded_run(void *context)
{
	struct crowd *crowd = context;
	unsigned number = crowd->asked++;
	return number < crowd->interrupted ? 1.2 / (1.1 + 0.03 * (number * 7 % 257)) : 1.2;
}

static double falling_run(void *context)
{
	double *rate = context;
	return *rate *= 0.98;
}

static bool case_core_clock(struct error *error)
{
	struct crowd calm = {0}, busy = {.interrupted = 60}, last_moment = {.interrupted = COREFREQ_RUNS_MAX - 3},
				 never = {.interrupted = UINT32_MAX};
	EXPECT(fabs(corefreq_search(crowded_run, &calm) - 1.2) < 1e-12 && calm.asked == COREFREQ_RUNS_MIN);
	EXPECT(fabs(corefreq_search(crowded_run, &busy) - 1.2) < 1e-12 && busy.asked == 63);
	EXPECT(fabs(corefreq_search(crowded_run, &last_moment) - 1.2) < 1e-12);
	/* No answer but the fastest where all are interrupted; and an end. */
	EXPECT(corefreq_search(crowded_run, &never) < 1.2 && never.asked == COREFREQ_RUNS_MAX);
	double rate = 1;
	EXPECT(fabs(corefreq_search(falling_run, &rate) - 0.98) < 1e-12);
	/* The real one, twice: the clock of a core may change, but not without end. */
	double first = corefreq_settle(), second = corefreq_per_tick();
	EXPECT(isfinite(first) && isfinite(second) && first > 0 && second > 0);
	return true;
}

static bool case_accounting(struct error *error)
{
	/* lines read, written, allocated by the declared rule; by hand from what the loops do */
	static const struct {
		const char *name;
		unsigned reads, writes, allocates, program_bytes;
	} known[] = {{"reads", 1, 0, 0, 64},    {"3:1", 3, 1, 0, 256},          {"2:1", 2, 1, 0, 192},
	             {"1:1", 1, 1, 0, 128},     {"stream_triad", 2, 1, 0, 192}, {"write", 0, 1, 1, 64},
	             {"write_nt", 0, 1, 0, 64}, {"copy", 1, 1, 1, 128},         {"copy_nt", 1, 1, 0, 128},
	             {"triad", 2, 1, 1, 192},   {"line_reads", 1, 0, 0, 8},     {"random_reads", 1, 0, 0, 8}};
	EXPECT(sizeof(known) / sizeof(known[0]) == MIXES);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		enum load_mix mix;
		EXPECT(load_mix_parse(known[i].name, &mix));
		unsigned allocates = load_write_allocates(mix);
#if defined(__x86_64__)
		EXPECT(allocates == known[i].allocates);
#else
		EXPECT(allocates == 0);
#endif
		EXPECT(load_mixes[mix].reads == known[i].reads && load_mixes[mix].stores == known[i].writes);
		EXPECT(load_program_bytes(mix) == known[i].program_bytes);
		EXPECT(load_model_bytes(mix) == 64 * (known[i].reads + known[i].writes + allocates));
	}
	struct log_entry entries[] = {{100, 0}, {200, 1000}, {400, 1000}, {500, 2000}};
	const struct progress log = {.entries = entries, .count = 4};
	EXPECT(progress_at(&log, 50) == 0 && progress_at(&log, 150) == 500 && progress_at(&log, 300) == 1000);
	EXPECT(progress_at(&log, 450) == 1500 && progress_at(&log, 900) == 2000);
	return true;
}

HOST_CASES(CASE(random), CASE(statistics), CASE(counters), CASE(core_clock), CASE(accounting), CASE(threads))
