// SPDX-License-Identifier: Apache-2.0
#include "jitter.h"

#include <stdatomic.h>

#include "clock.h"
#include "stopping.h"

/* Executions before the first interval, as many as the original primes its code with: 60 ms of the published work, in which
 * caches and the core's clock settle. The original then throws away a whole interval too, which would double what a command
 * of one interval takes. */
#define WARM_UP_EXECUTIONS 1000u

void pma_run(struct pma *pma)
{
	uint64_t absolute_least = UINT64_MAX, absolute_most = 0, last_end = clock_start();
	uint64_t warm_up = pma->executions < WARM_UP_EXECUTIONS ? pma->executions : WARM_UP_EXECUTIONS;
	uint32_t loops = pma->loops, tmp = 0, seed = (uint32_t)last_end;
	struct thread_counts before = {0};
	for (uint64_t number = 0; number <= pma->wanted; number++) {
		uint64_t least = UINT64_MAX, most = 0, last = 0, worked = 0, end = last_end;
		uint64_t executions = number == 0 ? warm_up : pma->executions, i = 0;
		/* Told to stop, an interval is left where it is, and is not reported. */
		for (; i < executions && !stop_requested() && !atomic_load_explicit(pma->stop, memory_order_relaxed); i++) {
			uint64_t begin = clock_start();
			tmp += arch_pma_work(loops, seed);
			end = clock_stop();
			last = end - begin;
			worked += last;
			least = last < least ? last : least;
			most = last > most ? last : most;
		}
		if (i < executions)
			break;
		struct thread_counts after = thread_counts_now();
		if (number > 0) {
			absolute_least = least < absolute_least ? least : absolute_least;
			absolute_most = most > absolute_most ? most : absolute_most;
			pma->intervals[number - 1] = (struct pma_interval){.least = least,
			                                                   .most = most,
			                                                   .last = last,
			                                                   .absolute_least = absolute_least,
			                                                   .absolute_most = absolute_most,
			                                                   .tmp = tmp,
			                                                   .ticks = end - last_end,
			                                                   .worked = worked,
			                                                   .counts = thread_counts_since(&after, &before)};
		} else {
			pma->expected_ticks = (double)(end - last_end) * (double)pma->executions / (double)warm_up;
		}
		before = after;
		last_end = end;
		atomic_store_explicit(&pma->finished, number + 1, memory_order_release);
	}
	atomic_store_explicit(&pma->over, true, memory_order_release);
}

static uint64_t total_ticks(const struct pma *pma, uint64_t count)
{
	uint64_t total = 0;
	for (uint64_t i = 0; i < count; i++)
		total += pma->intervals[i].ticks;
	return total;
}

bool pma_timed(const struct pma *pma, uint64_t count)
{
	return total_ticks(pma, count) > 0;
}

void pma_write(struct json *json, const char *key, const struct pma *pma, uint64_t count, const char *stopped,
               const struct snapshot *snapshots, const struct cpu_list *self)
{
	uint64_t worked = 0;
	for (uint64_t i = 0; i < count; i++)
		worked += pma->intervals[i].worked;
	json_object_begin(json, key);
	json_u64(json, "loops", pma->loops);
	json_u64(json, "executions", pma->executions);
	json_f64(json, "tick_hz", clock_now_used.hz);
	json_f64(json, "blind_fraction", 1 - (double)worked / (double)total_ticks(pma, count));
	json_text(json, "stopped", stopped);
	json_array_begin(json, "intervals");
	for (uint64_t i = 0; i < count; i++) {
		const struct pma_interval *interval = &pma->intervals[i];
		json_object_begin(json, NULL);
		json_u64(json, "inst_min_cycles", interval->least);
		json_u64(json, "inst_max_cycles", interval->most);
		json_u64(json, "inst_jitter_cycles", interval->most - interval->least);
		json_u64(json, "last_exec_cycles", interval->last);
		json_u64(json, "abs_min_cycles", interval->absolute_least);
		json_u64(json, "abs_max_cycles", interval->absolute_most);
		json_u64(json, "tmp", interval->tmp);
		json_u64(json, "interval_cycles", interval->ticks);
		json_u64(json, "sample", i + 1);
		interference_write(json, "interference", &interval->counts, &snapshots[i], &snapshots[i + 1], self);
		json_object_end(json);
	}
	json_array_end(json);
	json_object_end(json);
}
