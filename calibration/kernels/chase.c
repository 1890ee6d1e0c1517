// SPDX-License-Identifier: Apache-2.0
#include "chase.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "corefreq.h"
#include "generator.h"
#include "random.h"
#include "stopping.h"

/* A walk over the whole chain before the first window, for those that a cache may hold: 8 MiB of lines. The proof walked
 * longer ones in the same order just before, and a lap from memory would cost more than all windows together. */
#define WARM_LAP_NODES (1u << 17)
#define WARM_HOPS 50000u
#define OVERHEAD_HOPS 64000u
/* More than a hop takes from any memory of the machine: room for samples is made by it. */
#define HOP_S 5e-7
/* Entries that copies log in each window at least: an edge between two is interpolated, over 1/32 of a window at most. */
#define CHUNKS_PER_WINDOW 32u
/* Copies far apart in speed: the fastest logs until the slowest is done. Beyond it every second entry is dropped. */
#define LOG_ENTRIES_PER_WINDOW (8 * CHUNKS_PER_WINDOW)
/* Where in a mapping a small chain lies, so that rounds see different huge pages and not always the first. */
#define ALIGN_BYTES (2u << 20)

struct chase_log {
	struct log_entry *entries;
	bool *dirty; /* whether the stretch that ends with the entry was interrupted */
	size_t count, capacity;
	uint64_t every, skipped; /* of so many chunks one is logged */
};

void chase_sample_free(struct chase_sample *sample)
{
	free(sample->shares);
	free(sample->window_ticks);
	free(sample->dirty);
	pmu_counts_free(sample->counters);
	snapshot_free(&sample->before);
	snapshot_free(&sample->after);
	samples_free(&sample->samples);
	*sample = (struct chase_sample){0};
}

/* One line that links to itself: what is left is the load from L1 and the loop around it. */
static double measure_overhead(void *line)
{
	double best = 0;
	*(void **)line = line;
	for (int i = 0; i < 3; i++) {
		uint64_t before = clock_start();
		(void)arch_chase_pointers(line, OVERHEAD_HOPS / 64);
		uint64_t after = clock_stop();
		double ticks = (double)(after - before) / OVERHEAD_HOPS;
		if (i == 0 || ticks < best)
			best = ticks;
	}
	return best;
}

static bool read_back(struct chase_copy *copy, struct error *error)
{
	copy->pages = (struct pages){.wanted = copy->group->pages, .shares = copy->shares};
	memset(copy->shares, 0, copy->nodes->count * sizeof(*copy->shares));
	if (!pages_read_nodes(&copy->pages, &copy->region, error))
		return false;
	pages_read_sizes(&copy->pages, &copy->region, 1);
	return true;
}

static bool map(struct chase_copy *copy)
{
	struct error *error = &copy->worker.error;
	corefreq_settle();
	if (!region_map_over(&copy->region, copy->group->bytes, copy->nodes, copy->group->pages, error) ||
	    !read_back(copy, error))
		return false;
	copy->overhead_ticks = measure_overhead(copy->region.start);
	return true;
}

static bool build(struct chase_copy *copy)
{
	const struct chase_task *task = copy->group->task;
	uint64_t state = copy->sample->seed;
	size_t places = (copy->region.bytes - task->size_bytes) / ALIGN_BYTES + 1;
	/* Interleaved pages are counted from the start of the mapping. */
	size_t place = copy->region.nodes ? 0 : (size_t)(random_mix(&state) % places);
	copy->chain = (struct chain){.base = copy->region.start + place * ALIGN_BYTES,
	                             .size_bytes = task->size_bytes,
	                             .stride_bytes = task->stride_bytes,
	                             .line_bytes = task->line_bytes,
	                             .order = task->order,
	                             .window_bytes = task->window_bytes,
	                             .seed = copy->sample->seed};
	bool good = chain_build(&copy->chain, &copy->error);
	copy->sample->order = copy->chain.check;
	return good;
}

static void walk(struct chain *chain, uint64_t hops, size_t words)
{
	if (words)
		chain_walk_payload(chain, hops, words);
	else
		chain_walk(chain, hops / 64);
}

static bool disturbed(const struct thread_counts *now, const struct thread_counts *before)
{
	struct thread_counts during = thread_counts_since(now, before);
	return during.involuntary || during.voluntary || during.minor_faults || during.major_faults;
}

/* Around the timed work and nothing else. Events of CPUs are for all copies: the first one reads them. */
static void count_begin(struct chase_copy *copy)
{
	struct pmu *pmu = copy->group->pmu;
	size_t number = (size_t)(copy - copy->group->copies);
	if (number == 0)
		pmu_begin_cpus(pmu);
	pmu_begin_thread(pmu, number);
}

static void count_end(struct chase_copy *copy)
{
	struct pmu *pmu = copy->group->pmu;
	size_t number = (size_t)(copy - copy->group->copies);
	pmu_end_thread(pmu, number);
	if (number == 0)
		pmu_end_cpus(pmu);
}

/* No allocation, no input or output; the thread's own counts are read between windows, not in them. */
static void run_alone(struct chase_copy *copy)
{
	const struct chase_task *task = copy->group->task;
	struct chase_sample *sample = copy->sample;
	struct thread_counts first, before, after = {0};
	count_begin(copy);
	thread_counts_read(&first);
	before = first;
	copy->begin = clock_start();
	for (uint64_t i = 0; i < task->windows; i++) {
		uint64_t start = clock_start();
		walk(&copy->chain, task->hops, task->payload_words);
		uint64_t stop = clock_stop();
		thread_counts_read(&after);
		sample->window_ticks[i] = (double)(stop - start) / (double)task->hops;
		sample->dirty[i] = disturbed(&after, &before);
		before = after;
		copy->hops += task->hops;
		if (stop_requested()) {
			stop_error(&copy->error);
			break;
		}
	}
	count_end(copy);
	sample->counts = thread_counts_since(&after, &first);
}

/* Keeps every second entry of a full log. The last may go: whether its stretch was interrupted is the next one's. */
static bool log_thin(struct chase_log *log)
{
	bool dropped = log->count % 2 == 0 && log->dirty[log->count - 1];
	size_t kept = 1;
	for (size_t i = 2; i < log->count; i += 2, kept++) {
		log->entries[kept] = log->entries[i];
		log->dirty[kept] = log->dirty[i] || log->dirty[i - 1];
	}
	log->count = kept;
	log->every *= 2;
	return dropped;
}

/* All begin together, and go on until each has done its hops, so that none is alone in any window. */
static void run_together(struct chase_copy *copy)
{
	struct chase_group *group = copy->group;
	const struct chase_task *task = group->task;
	struct chase_log *log = copy->log;
	struct thread_counts first, before, after = {0};
	uint64_t chunk = (task->hops / CHUNKS_PER_WINDOW + 63) / 64 * 64, hops = 0, shortest = UINT64_MAX;
	bool done = false, hit = false;
	log->count = 0;
	log->every = 1;
	log->skipped = 0;
	thread_counts_read(&first);
	before = after = first;
	atomic_fetch_add(&group->arrived, 1);
	while (atomic_load_explicit(&group->arrived, memory_order_acquire) < group->count && !stop_requested())
		continue;
	count_begin(copy);
	uint64_t last = clock_start();
	copy->begin = last;
	log->entries[log->count++] = (struct log_entry){last, 0};
	while (atomic_load_explicit(&group->finished, memory_order_relaxed) < group->count && !stop_requested()) {
		walk(&copy->chain, chunk, task->payload_words);
		uint64_t now = clock_stop(), took = now - last;
		hops += chunk;
		shortest = took < shortest ? took : shortest;
		/* Asking the kernel costs as much as a hundred hops in L1; an interruption makes its chunk a long one. */
		if (took > shortest + shortest / 2) {
			thread_counts_read(&after);
			hit = hit || disturbed(&after, &before);
			before = after;
		}
		if (++log->skipped >= log->every) {
			if (log->count == log->capacity)
				hit = log_thin(log) || hit;
			log->dirty[log->count] = hit;
			log->entries[log->count++] = (struct log_entry){now, hops};
			log->skipped = 0;
			hit = false;
		}
		if (!done && hops >= task->windows * task->hops) {
			done = true;
			atomic_fetch_add(&group->finished, 1);
		}
		last = now;
	}
	copy->hops = hops;
	count_end(copy);
	thread_counts_read(&after);
	copy->sample->counts = thread_counts_since(&after, &first);
	stop_error(&copy->error);
}

static void run(struct chase_copy *copy)
{
	const struct chase_task *task = copy->group->task;
	struct chase_sample *sample = copy->sample;
	uint64_t nodes = copy->chain.nodes, warm = nodes <= WARM_LAP_NODES ? nodes : WARM_HOPS;
	walk(&copy->chain, (warm + 63) / 64 * 64, task->payload_words);
	sampling_open(&copy->sampling, copy->group->sampled, copy->cpu, (double)(task->windows * task->hops) * HOP_S);
	sample->core_before = corefreq_per_tick();
	sampling_begin(&copy->sampling);
	if (copy->group->count > 1)
		run_together(copy);
	else
		run_alone(copy);
	sampling_end(&copy->sampling);
	sample->core_after = corefreq_per_tick();
	sample->cpu_verified = affinity_verify(copy->cpu);
	if (!sample->cpu_verified)
		affinity_left(copy->cpu, &copy->error);
}

static void body(struct worker *worker)
{
	struct chase_copy *copy = worker->context;
	if (map(copy)) {
		pmu_open_thread(copy->group->pmu, (size_t)(copy - copy->group->copies), "");
		worker_pause(worker);
		while (copy->group->again) {
			build(copy);
			worker_pause(worker);
			if (!copy->group->abandon)
				run(copy);
			worker_pause(worker);
		}
		read_back(copy, &worker->error);
	}
	region_unmap(&copy->region);
}

static void end(struct chase_group *group, size_t started, struct error *error)
{
	group->again = false;
	group->abandon = true;
	for (size_t i = 0; i < started; i++) {
		struct chase_copy *copy = &group->copies[i];
		worker_join(&copy->worker);
		if (copy->worker.error.code != ERROR_NONE && error->code == ERROR_NONE)
			*error = copy->worker.error;
	}
	for (size_t i = 0; i < group->count; i++) {
		struct chase_copy *copy = &group->copies[i];
		free(copy->shares);
		copy->shares = NULL;
		if (copy->log) {
			free(copy->log->entries);
			free(copy->log->dirty);
			free(copy->log);
			copy->log = NULL;
		}
	}
}

bool chase_open(struct chase_group *group, size_t bytes, struct error *error)
{
	size_t started = 0;
	group->bytes = bytes;
	group->again = true;
	for (size_t i = 0; i < group->count; i++) {
		group->copies[i].group = group;
		group->copies[i].shares = calloc(group->copies[i].nodes->count, sizeof(uint64_t));
		if (!group->copies[i].shares)
			error_set(error, ERROR_INTERNAL, "no memory for %zu copies", group->count);
	}
	while (started < group->count && error->code == ERROR_NONE) {
		struct chase_copy *copy = &group->copies[started];
		started += worker_start(&copy->worker, copy->cpu, body, copy, error);
	}
	for (size_t i = 0; i < started; i++)
		if (!worker_wait(&group->copies[i].worker) && error->code == ERROR_NONE)
			*error = group->copies[i].worker.error;
	if (error->code == ERROR_NONE)
		return true;
	end(group, started, error);
	return false;
}

bool chase_close(struct chase_group *group, struct error *error)
{
	end(group, group->count, error);
	return error->code == ERROR_NONE;
}

bool chase_spreads(const struct chase_group *group, size_t size_bytes, struct error *error)
{
	for (size_t i = 0; i < group->count; i++) {
		const struct chase_copy *copy = &group->copies[i];
		size_t step = region_page_bytes(&copy->region) * copy->nodes->count;
		if (copy->nodes->count > 1 && size_bytes % step)
			return error_set(error, ERROR_UNSUPPORTED,
			                 "expected a size in multiples of %zu bytes, one page on each of %zu nodes, found %zu; use "
			                 "such a size or --pages base",
			                 step, copy->nodes->count, size_bytes);
	}
	return true;
}

static bool sample_prepare(struct chase_copy *copy, const struct chase_task *task, struct error *error)
{
	struct chase_sample *sample = copy->sample;
	size_t nodes = copy->nodes->count;
	sample->pages = copy->pages;
	sample->pages.shares = NULL;
	sample->overhead_ticks = copy->overhead_ticks;
	sample->window_ticks = calloc(task->windows, sizeof(*sample->window_ticks));
	sample->dirty = calloc(task->windows, sizeof(*sample->dirty));
	sample->shares = nodes > 1 ? calloc(nodes, sizeof(*sample->shares)) : NULL;
	bool good = sample->window_ticks && sample->dirty && (nodes == 1 || sample->shares);
	if (good && nodes > 1)
		memcpy(sample->shares, copy->shares, nodes * sizeof(*sample->shares));
	if (good && copy->group->count > 1 && !copy->log) {
		size_t capacity = task->windows * LOG_ENTRIES_PER_WINDOW;
		copy->log = calloc(1, sizeof(*copy->log));
		if (copy->log) {
			copy->log->capacity = capacity;
			copy->log->entries = malloc(capacity * sizeof(*copy->log->entries));
			copy->log->dirty = malloc(capacity * sizeof(*copy->log->dirty));
		}
		good = copy->log && copy->log->entries && copy->log->dirty;
		if (good) /* touched here and not in a timed stretch */
			memset(copy->log->entries, 0, capacity * sizeof(*copy->log->entries));
	}
	copy->error = (struct error){0};
	copy->hops = 0;
	return good || error_set(error, ERROR_INTERNAL, "no memory for %llu windows", (unsigned long long)task->windows);
}

/* Cuts the windows out of the time when all copies were running. */
static bool cut(struct chase_group *group, const struct chase_task *task, struct error *error)
{
	uint64_t begin = 0, close = UINT64_MAX;
	for (size_t i = 0; i < group->count; i++) {
		const struct chase_log *log = group->copies[i].log;
		begin = log->entries[0].ticks > begin ? log->entries[0].ticks : begin;
		close = log->entries[log->count - 1].ticks < close ? log->entries[log->count - 1].ticks : close;
	}
	for (size_t i = 0; i < group->count; i++) {
		const struct chase_copy *copy = &group->copies[i];
		const struct chase_log *log = copy->log;
		double length = close > begin ? (double)(close - begin) / (double)task->windows : 0;
		double before = log_at(log->entries, log->count, begin);
		for (uint64_t k = 0; k < task->windows; k++) {
			uint64_t from = begin + (uint64_t)(length * (double)k), to = begin + (uint64_t)(length * (double)(k + 1));
			double until = log_at(log->entries, log->count, to);
			if (!(until > before))
				return error_set(error, ERROR_CHECK_FAILED,
				                 "expected the copy on CPU %u to make way in every window, found none in one; raise "
				                 "--hops, or keep other work off the CPUs",
				                 copy->cpu);
			copy->sample->window_ticks[k] = (double)(to - from) / (until - before);
			before = until;
			for (size_t n = 1; n < log->count; n++)
				if (log->entries[n].ticks > from && log->entries[n - 1].ticks < to)
					copy->sample->dirty[k] = copy->sample->dirty[k] || log->dirty[n];
		}
	}
	return true;
}

/* What the counters are told: a copy's counters are read when none of its hops is done, and when all are. Those of CPUs
 * are read while other copies walk. */
static struct pmu_work progress(void *context, size_t thread, uint64_t ticks)
{
	const struct chase_group *group = context;
	struct pmu_work work = {.steps = -1};
	for (size_t i = 0; i < group->count; i++) {
		const struct chase_copy *copy = &group->copies[i];
		if (thread == PMU_ALL && group->count > 1)
			work.hops += log_at(copy->log->entries, copy->log->count, ticks);
		else if (thread == PMU_ALL || thread == i)
			work.hops += ticks < copy->begin ? 0 : (double)copy->hops;
	}
	return work;
}

/* Lets all copies do their next phase. */
static bool phase(struct chase_group *group, struct error *error)
{
	for (size_t i = 0; i < group->count; i++)
		worker_continue(&group->copies[i].worker);
	for (size_t i = 0; i < group->count; i++)
		worker_wait(&group->copies[i].worker);
	for (size_t i = 0; i < group->count; i++)
		if (group->copies[i].error.code != ERROR_NONE && error->code == ERROR_NONE)
			*error = group->copies[i].error;
	return error->code == ERROR_NONE;
}

bool chase_measure(struct chase_group *group, const struct chase_task *task, struct chase_sample *const *samples,
                   struct error *error)
{
	bool good = true;
	group->task = task;
	for (size_t i = 0; i < group->count; i++) {
		group->copies[i].sample = samples[i];
		good = sample_prepare(&group->copies[i], task, error) && good;
	}
	atomic_store(&group->arrived, 0);
	atomic_store(&group->finished, 0);
	if (good) {
		group->abandon = false;
		good = phase(group, error);
		group->abandon = !good;
		if (good)
			snapshot_take(&samples[0]->before, group->cpus);
		good = phase(group, error) && good;
		if (good)
			snapshot_take(&samples[0]->after, group->cpus);
		for (size_t i = 0; i < group->count; i++)
			samples_collect(&samples[i]->samples, group->sampled, &group->copies[i].sampling);
		good = good && (group->count == 1 || cut(group, task, error));
		for (size_t i = 0; good && i < group->count; i++)
			good = pmu_take(group->pmu, i, progress, group, &samples[i]->counters, error);
	}
	for (size_t i = 0; i < group->count && !good; i++)
		chase_sample_free(samples[i]);
	return good;
}
