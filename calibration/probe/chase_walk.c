// SPDX-License-Identifier: Apache-2.0
#include "chase.h"

#include "allocate.h"
#include "clock.h"
#include "corefreq.h"
#include "stopping.h"

/* A walk over the whole chain before the first window, for those that a cache may hold: 8 MiB of lines. The proof walked
 * longer ones in the same order just before, and a lap from memory would cost more than all windows together. */
#define WARM_LAP_NODES (1u << 17)
/* For the TLB, the core's clock and what the walk before left in the caches: some 2 ms from memory. */
#define WARM_HOPS 20000u
#define OVERHEAD_HOPS 64000u
/* In each turn of the loop of one chain. */
#define HOPS_UNROLLED 64u
/* More than a hop takes from any memory of the machine: room for samples is made by it. */
#define HOP_S 5e-7
/* Entries that copies log in each window at least: an edge between two is interpolated, over 1/32 of a window at most. */
#define CHUNKS_PER_WINDOW 32u
/* Copies far apart in speed: the fastest logs until the slowest is done. Beyond it every second entry is dropped. */
#define LOG_ENTRIES_PER_WINDOW (8 * CHUNKS_PER_WINDOW)

double chase_seconds(uint64_t windows, uint64_t hops)
{
	return (double)(windows * hops) * HOP_S;
}

uint64_t chase_hops_unit(const struct chase_task *task)
{
	return task->chains ? task->chains : HOPS_UNROLLED;
}

/* So many hops or a few more. */
static uint64_t whole(const struct chase_task *task, uint64_t hops)
{
	uint64_t unit = chase_hops_unit(task);
	return (hops + unit - 1) / unit * unit;
}

/* Lines that link to themselves: what is left is the load from L1 and the loop around it. */
double chase_overhead(unsigned chains)
{
	double best = 0;
	_Alignas(64) uint64_t lines[CHAIN_CURSORS_MAX][8];
	uint64_t at[CHAIN_CURSORS_MAX];
	for (unsigned k = 0; k < CHAIN_CURSORS_MAX; k++)
		at[k] = lines[k][0] = (uint64_t)(uintptr_t)lines[k];
	uint64_t hops = chains ? OVERHEAD_HOPS / chains * chains : OVERHEAD_HOPS;
	for (int i = 0; i < 3; i++) {
		uint64_t before = clock_start();
		if (chains)
			chain_walk_cursors(0, at, chains, hops / chains);
		else
			(void)arch_chase_pointers(lines[0], OVERHEAD_HOPS / HOPS_UNROLLED);
		uint64_t after = clock_stop();
		double ticks = (double)(after - before) / (double)hops;
		if (i == 0 || ticks < best)
			best = ticks;
	}
	return best;
}

static size_t log_capacity(uint64_t windows)
{
	return windows * LOG_ENTRIES_PER_WINDOW;
}

uint64_t chase_log_bytes(uint64_t windows)
{
	return log_capacity(windows) * (sizeof(struct log_entry) + sizeof(bool));
}

void chase_log_reserve(struct chase *chase)
{
	size_t capacity = log_capacity(chase->task->windows);
	if (chase->log.progress.capacity < capacity)
		chase->log.dirty = allocate_touched(capacity, sizeof(*chase->log.dirty));
	progress_reserve(&chase->log.progress, capacity);
}

static void walk(struct chain *chain, uint64_t hops, size_t words)
{
	if (chain->cursors)
		chain_walk_all(chain, hops / chain->cursors->count);
	else if (words)
		chain_walk_payload(chain, hops, words);
	else
		chain_walk(chain, hops / HOPS_UNROLLED);
}

static bool disturbed(const struct thread_counts *now, const struct thread_counts *before)
{
	struct thread_counts during = thread_counts_since(now, before);
	return during.involuntary || during.voluntary || during.minor_faults || during.major_faults;
}

/* Around the timed work and nothing else. Events of CPUs are for all that walk together: the first one reads them. */
static void count_begin(struct chase *chase)
{
	struct chase_group *group = chase->walker->group;
	if (!group->together || chase == group->chases)
		pmu_begin(group->pmu, PMU_CPUS);
	pmu_begin(group->pmu, chase->walker->number);
}

static void count_end(struct chase *chase)
{
	struct chase_group *group = chase->walker->group;
	pmu_end(group->pmu, chase->walker->number);
	if (!group->together || chase == group->chases)
		pmu_end(group->pmu, PMU_CPUS);
}

/* No allocation, no input or output; the thread's own counts are read between windows, not in them. */
static void run_alone(struct chase *chase)
{
	const struct chase_task *task = chase->task;
	struct chase_sample *sample = chase->sample;
	count_begin(chase);
	struct thread_counts first = thread_counts_now(), before = first, after = first;
	chase->begin = clock_start();
	for (uint64_t i = 0; i < task->windows; i++) {
		uint64_t start = clock_start();
		walk(&chase->home->chain, task->hops, task->payload_words);
		uint64_t stop = clock_stop();
		after = thread_counts_now();
		sample->window_ticks[i] = (double)(stop - start) / (double)task->hops;
		sample->dirty[i] = disturbed(&after, &before);
		before = after;
		chase->hops += task->hops;
		if (stop_requested()) {
			stop_error(&chase->error);
			break;
		}
	}
	count_end(chase);
	sample->evidence.threads.counts = thread_counts_since(&after, &first);
}

/* Keeps every second entry of a full log. The last may go: whether its stretch was interrupted is the next one's. */
static bool log_thin(struct chase_log *log)
{
	struct progress *progress = &log->progress;
	bool dropped = progress->count % 2 == 0 && log->dirty[progress->count - 1];
	size_t kept = 1;
	for (size_t i = 2; i < progress->count; i += 2, kept++) {
		progress->entries[kept] = progress->entries[i];
		log->dirty[kept] = log->dirty[i] || log->dirty[i - 1];
	}
	progress->count = kept;
	log->every *= 2;
	return dropped;
}

/* All begin together, and go on until each has done its hops, so that none is alone in any window. */
static void run_together(struct chase *chase)
{
	struct chase_group *group = chase->walker->group;
	const struct chase_task *task = chase->task;
	struct chase_log *log = &chase->log;
	struct progress *entries = &log->progress;
	uint64_t chunk = whole(task, task->hops / CHUNKS_PER_WINDOW), hops = 0, shortest = UINT64_MAX;
	bool done = false, hit = false;
	entries->count = 0;
	log->every = 1;
	log->skipped = 0;
	struct thread_counts first = thread_counts_now(), before = first, after = first;
	atomic_fetch_add(&group->arrived, 1);
	while (atomic_load_explicit(&group->arrived, memory_order_acquire) < group->count && !stop_requested())
		continue;
	count_begin(chase);
	uint64_t last = clock_start();
	chase->begin = last;
	entries->entries[entries->count++] = (struct log_entry){last, 0};
	while (atomic_load_explicit(&group->finished, memory_order_relaxed) < group->count && !stop_requested()) {
		walk(&chase->home->chain, chunk, task->payload_words);
		uint64_t now = clock_stop(), took = now - last;
		hops += chunk;
		shortest = took < shortest ? took : shortest;
		/* Asking the kernel costs as much as a hundred hops in L1; an interruption makes its chunk a long one. */
		if (took > shortest + shortest / 2) {
			after = thread_counts_now();
			hit = hit || disturbed(&after, &before);
			before = after;
		}
		if (++log->skipped >= log->every) {
			if (entries->count == entries->capacity)
				hit = log_thin(log) || hit;
			log->dirty[entries->count] = hit;
			entries->entries[entries->count++] = (struct log_entry){now, hops};
			log->skipped = 0;
			hit = false;
		}
		if (!done && hops >= task->windows * task->hops) {
			done = true;
			atomic_fetch_add(&group->finished, 1);
		}
		last = now;
	}
	chase->hops = hops;
	count_end(chase);
	after = thread_counts_now();
	chase->sample->evidence.threads.counts = thread_counts_since(&after, &first);
	stop_error(&chase->error);
}

void chase_run(struct worker *worker)
{
	const struct chase_walker *walker = worker->context;
	struct chase *chase = walker->chase;
	const struct chase_task *task = chase->task;
	struct evidence *evidence = &chase->sample->evidence;
	uint64_t nodes = chase->home->chain.nodes, warm = nodes <= WARM_LAP_NODES ? nodes : WARM_HOPS;
	if (task->chains)
		chase->sample->overhead_ticks = chase_overhead(task->chains);
	walk(&chase->home->chain, whole(task, warm), task->payload_words);
	sampling_open(&chase->sampling, walker->group->sampled, chase->cpu, chase_seconds(task->windows, task->hops));
	evidence->threads.core_before = corefreq_per_tick();
	sampling_begin(&chase->sampling);
	if (walker->group->together)
		run_together(chase);
	else
		run_alone(chase);
	sampling_end(&chase->sampling);
	if (task->single_loads && chase->error.code == ERROR_NONE) {
		single_loads_run(&chase->home->chain, task->single_loads, chase->sample->single);
		stop_error(&chase->error);
	}
	evidence->threads.core_after = corefreq_per_tick();
	evidence->threads.verified = affinity_stayed(chase->cpu, &chase->error);
	if (task->chains && !chain_arrived(&chase->home->chain))
		error_set(&chase->error, ERROR_CHECK_FAILED,
		          "CPU %u: a chain is not where its hops lead to; the walk left work out, or memory is faulty",
		          chase->cpu);
}

static bool cut_one(const struct chase *chase, uint64_t begin, uint64_t close, struct error *error)
{
	const struct progress *log = &chase->log.progress;
	uint64_t windows = chase->task->windows;
	double length = close > begin ? (double)(close - begin) / (double)windows : 0;
	double before = progress_at(log, begin);
	for (uint64_t k = 0; k < windows; k++) {
		uint64_t from = begin + (uint64_t)(length * (double)k), to = begin + (uint64_t)(length * (double)(k + 1));
		double until = progress_at(log, to);
		if (!(until > before))
			return error_set(
				error, ERROR_CHECK_FAILED,
				"the copy on CPU %u made no progress in a window; raise --hops, or keep other work off the "
				"CPUs",
				chase->cpu);
		chase->sample->window_ticks[k] = (double)(to - from) / (until - before);
		before = until;
		for (size_t n = 1; n < log->count; n++)
			if (log->entries[n].ticks > from && log->entries[n - 1].ticks < to)
				chase->sample->dirty[k] = chase->sample->dirty[k] || chase->log.dirty[n];
	}
	return true;
}

/* Cuts the windows out of the time when all copies were running. */
bool chase_cut(struct chase_group *group, struct error *error)
{
	uint64_t begin = 0, close = UINT64_MAX;
	for (size_t i = 0; i < group->count; i++) {
		const struct progress *log = &group->chases[i].log.progress;
		uint64_t first = log->entries[0].ticks, last = log->entries[log->count - 1].ticks;
		begin = first > begin ? first : begin;
		close = last < close ? last : close;
	}
	for (size_t i = 0; i < group->count; i++)
		if (!cut_one(&group->chases[i], begin, close, error))
			return false;
	return true;
}

/* Hops that the counters have seen: a thread reads its own before its first hop and after its last. Those of CPUs are read
 * while other copies walk. */
struct pmu_work chase_progress(void *context, size_t thread, uint64_t ticks)
{
	const struct chase_group *group = context;
	struct pmu_work work = {.steps = -1};
	for (size_t i = 0; i < group->count; i++) {
		const struct chase *chase = &group->chases[i];
		if (!chase->walking)
			continue;
		if (thread == PMU_ALL && group->together)
			work.hops += progress_at(&chase->log.progress, ticks);
		else if (thread == PMU_ALL || thread == chase->walker->number)
			work.hops += ticks < chase->begin ? 0 : (double)chase->hops;
	}
	return work;
}
