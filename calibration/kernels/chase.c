// SPDX-License-Identifier: Apache-2.0
#include "chase.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "corefreq.h"
#include "generator.h"
#include "place.h"
#include "random.h"
#include "stopping.h"

/* A walk over the whole chain before the first window, for those that a cache may hold: 8 MiB of lines. The proof walked
 * longer ones in the same order just before, and a lap from memory would cost more than all windows together. */
#define WARM_LAP_NODES (1u << 17)
/* For the TLB, the core's clock and what the walk before left in the caches: some 2 ms from memory. */
#define WARM_HOPS 20000u
#define OVERHEAD_HOPS 64000u
/* Between asleep and awake, and back: clocks of uncore and fabric follow the load within 10 ms or so. */
#define SETTLE_NS 50000000u
/* More than a hop takes from any memory of the machine: room for samples is made by it. */
#define HOP_S 5e-7
/* Entries that copies log in each window at least: an edge between two is interpolated, over 1/32 of a window at most. */
#define CHUNKS_PER_WINDOW 32u
/* Copies far apart in speed: the fastest logs until the slowest is done. Beyond it every second entry is dropped. */
#define LOG_ENTRIES_PER_WINDOW (8 * CHUNKS_PER_WINDOW)
/* Where in a mapping a small chain lies, so that rounds see different huge pages and not always the first. */
#define ALIGN_BYTES (2u << 20)

/* One thread. */
struct chase_walker {
	struct chase_group *group;
	struct worker worker;
	unsigned cpu, node;
	size_t number; /* for its counters */
	bool started;
	bool busy;             /* with the job in hand */
	size_t building_bytes; /* at most, of any chain it is to build */
	double overhead_ticks;
	struct chase *chase; /* to walk */
};

/* The memory of a round, and the chain that lies in it. */
struct chase_home {
	const struct cpu_list *nodes;
	size_t memory, bytes, building_bytes;
	struct chase_walker *builder;
	struct region region;
	struct pages pages;
	uint64_t *shares;
	struct chain chain;
	const struct chase *first; /* of those to walk the chain */
	struct error error;        /* it cannot be used */
	struct error build_error;  /* of the chain in hand */
};

struct chase_log {
	struct log_entry *entries;
	bool *dirty; /* whether the stretch that ends with the entry was interrupted */
	size_t count, capacity;
	uint64_t every, skipped; /* of so many chunks one is logged */
};

double chase_seconds(uint64_t windows, uint64_t hops)
{
	return (double)(windows * hops) * HOP_S;
}

void chase_sample_free(struct chase_sample *sample)
{
	free(sample->shares);
	free(sample->window_ticks);
	free(sample->dirty);
	pmu_counts_free(sample->counters);
	free(sample->companion_rates);
	snapshot_free(&sample->before);
	snapshot_free(&sample->after);
	samples_free(&sample->samples);
	*sample = (struct chase_sample){0};
}

/* A line that links to itself: what is left is the load from L1 and the loop around it. */
static double measure_overhead(void)
{
	double best = 0;
	_Alignas(64) void *line[8];
	line[0] = line;
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

static bool read_back(struct chase_group *group, struct chase_home *home)
{
	home->pages = (struct pages){.wanted = group->pages, .shares = home->shares};
	memset(home->shares, 0, home->nodes->count * sizeof(*home->shares));
	if (!pages_read_nodes(&home->pages, &home->region, &home->error))
		return false;
	pages_read_sizes(&home->pages, &home->region, 1);
	return true;
}

static void read_back_one(struct chase_group *group, struct chase_home *home)
{
	(void)read_back(group, home);
}

/* The jobs of a builder: what it does for each of its homes that has no error. */
static void for_homes(struct chase_walker *walker, void (*act)(struct chase_group *, struct chase_home *))
{
	struct chase_group *group = walker->group;
	for (size_t i = 0; i < group->home_count; i++)
		if (group->homes[i].builder == walker && group->homes[i].error.code == ERROR_NONE)
			act(group, &group->homes[i]);
}

static void map(struct chase_group *group, struct chase_home *home)
{
	if (region_map_over(&home->region, home->bytes, home->nodes, group->chosen, &home->error))
		read_back_one(group, home);
}

/* Whether a chain of this size can be spread over all nodes, in the pages obtained. */
static bool spreads(struct chase_home *home, size_t size_bytes)
{
	size_t step = region_page_bytes(&home->region) * home->nodes->count;
	return home->nodes->count == 1 || size_bytes % step == 0 ||
	       error_set(&home->build_error, ERROR_UNSUPPORTED,
	                 "expected a size in multiples of %zu bytes, one page on each of %zu nodes, found %zu; use "
	                 "such a size or --pages base",
	                 step, home->nodes->count, size_bytes);
}

static void build(struct chase_group *group, struct chase_home *home)
{
	(void)group;
	if (!home->first || stop_error(&home->build_error) || !spreads(home, home->first->task->size_bytes))
		return;
	const struct chase_task *task = home->first->task;
	uint64_t seed = home->first->samples[CHASE_ASLEEP]->seed, state = seed;
	size_t places = (home->region.bytes - task->size_bytes) / ALIGN_BYTES + 1;
	/* Interleaved pages are counted from the start of the mapping. */
	size_t place = home->region.nodes ? 0 : (size_t)(random_mix(&state) % places);
	home->chain = (struct chain){.base = home->region.start + place * ALIGN_BYTES,
	                             .size_bytes = task->size_bytes,
	                             .stride_bytes = task->stride_bytes,
	                             .line_bytes = task->line_bytes,
	                             .order = task->order,
	                             .window_bytes = task->window_bytes,
	                             .seed = seed};
	(void)chain_build(&home->chain, &home->build_error);
}

static void map_all(struct chase_walker *walker)
{
	for_homes(walker, map);
}

static void build_all(struct chase_walker *walker)
{
	for_homes(walker, build);
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

/* Around the timed work and nothing else. Events of CPUs are for all that walk together: the first one reads them. */
static void count_begin(struct chase *chase)
{
	struct chase_group *group = chase->walker->group;
	if (!group->together || chase == group->chases)
		pmu_begin_cpus(group->pmu);
	pmu_begin_thread(group->pmu, chase->walker->number);
}

static void count_end(struct chase *chase)
{
	struct chase_group *group = chase->walker->group;
	pmu_end_thread(group->pmu, chase->walker->number);
	if (!group->together || chase == group->chases)
		pmu_end_cpus(group->pmu);
}

/* No allocation, no input or output; the thread's own counts are read between windows, not in them. */
static void run_alone(struct chase *chase)
{
	const struct chase_task *task = chase->task;
	struct chase_sample *sample = chase->sample;
	struct thread_counts first, before, after = {0};
	count_begin(chase);
	thread_counts_read(&first);
	before = first;
	chase->begin = clock_start();
	for (uint64_t i = 0; i < task->windows; i++) {
		uint64_t start = clock_start();
		walk(&chase->home->chain, task->hops, task->payload_words);
		uint64_t stop = clock_stop();
		thread_counts_read(&after);
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
static void run_together(struct chase *chase)
{
	struct chase_group *group = chase->walker->group;
	const struct chase_task *task = chase->task;
	struct chase_log *log = chase->log;
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
	count_begin(chase);
	uint64_t last = clock_start();
	chase->begin = last;
	log->entries[log->count++] = (struct log_entry){last, 0};
	while (atomic_load_explicit(&group->finished, memory_order_relaxed) < group->count && !stop_requested()) {
		walk(&chase->home->chain, chunk, task->payload_words);
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
	chase->hops = hops;
	count_end(chase);
	thread_counts_read(&after);
	chase->sample->counts = thread_counts_since(&after, &first);
	stop_error(&chase->error);
}

static void run(struct chase *chase)
{
	const struct chase_task *task = chase->task;
	struct chase_sample *sample = chase->sample;
	uint64_t nodes = chase->home->chain.nodes, warm = nodes <= WARM_LAP_NODES ? nodes : WARM_HOPS;
	walk(&chase->home->chain, (warm + 63) / 64 * 64, task->payload_words);
	sampling_open(&chase->sampling, chase->walker->group->sampled, chase->cpu,
	              chase_seconds(task->windows, task->hops));
	sample->core_before = corefreq_per_tick();
	sampling_begin(&chase->sampling);
	if (chase->walker->group->together)
		run_together(chase);
	else
		run_alone(chase);
	sampling_end(&chase->sampling);
	sample->core_after = corefreq_per_tick();
	sample->cpu_verified = affinity_verify(chase->cpu);
	if (!sample->cpu_verified)
		affinity_left(chase->cpu, &chase->error);
}

static void run_own(struct chase_walker *walker)
{
	run(walker->chase);
}

static void body(struct worker *worker)
{
	struct chase_walker *walker = worker->context;
	unsigned cpu;
	if (syscall(SYS_getcpu, &cpu, &walker->node, NULL) != 0) {
		error_set(&worker->error, ERROR_INTERNAL, "getcpu: %s", strerror(errno));
		return;
	}
	corefreq_settle();
	walker->overhead_ticks = measure_overhead();
	pmu_open_thread(walker->group->pmu, walker->number, "");
	worker_pause(worker);
	for (void (*job)(struct chase_walker *); (job = walker->group->job) != NULL; worker_pause(worker))
		job(walker);
}

/* Lets all that are busy do a job, and waits for them. */
static void work(struct chase_group *group, void (*job)(struct chase_walker *))
{
	group->job = job;
	for (size_t i = 0; i < group->walker_count; i++)
		if (group->walkers[i].busy)
			worker_continue(&group->walkers[i].worker);
	for (size_t i = 0; i < group->walker_count; i++)
		if (group->walkers[i].busy)
			worker_wait(&group->walkers[i].worker);
}

static void build_with(struct chase_group *group, void (*job)(struct chase_walker *))
{
	for (size_t i = 0; i < group->walker_count; i++)
		group->walkers[i].busy = false;
	for (size_t i = 0; i < group->home_count; i++)
		if (group->homes[i].builder)
			group->homes[i].builder->busy = true;
	work(group, job);
}

static void log_free(struct chase *chase)
{
	if (!chase->log)
		return;
	free(chase->log->entries);
	free(chase->log->dirty);
	free(chase->log);
	chase->log = NULL;
}

static void end(struct chase_group *group)
{
	group->job = NULL;
	for (size_t i = 0; i < group->walker_count; i++)
		if (group->walkers[i].started)
			worker_join(&group->walkers[i].worker);
	for (size_t i = 0; i < group->home_count; i++) {
		region_unmap(&group->homes[i].region);
		free(group->homes[i].shares);
	}
	for (size_t i = 0; i < group->count; i++)
		log_free(&group->chases[i]);
	free(group->walkers);
	free(group->homes);
	group->walkers = NULL;
	group->homes = NULL;
	group->walker_count = group->home_count = 0;
}

static struct chase_walker *walker_for(struct chase_group *group, unsigned cpu)
{
	for (size_t i = 0; i < group->walker_count; i++)
		if (group->walkers[i].cpu == cpu)
			return &group->walkers[i];
	struct chase_walker *walker = &group->walkers[group->walker_count];
	*walker = (struct chase_walker){.group = group, .cpu = cpu, .number = group->walker_count++};
	return walker;
}

static struct chase_home *home_for(struct chase_group *group, const struct chase *chase)
{
	struct chase_home *home = group->homes;
	while (home < group->homes + group->home_count && home->memory != chase->memory)
		home++;
	if (home == group->homes + group->home_count) {
		*home = (struct chase_home){.nodes = chase->nodes, .memory = chase->memory};
		group->home_count++;
	}
	home->bytes = chase->bytes > home->bytes ? chase->bytes : home->bytes;
	home->building_bytes = chase->building_bytes > home->building_bytes ? chase->building_bytes : home->building_bytes;
	return home;
}

static bool ready(const struct chase_walker *walker)
{
	return walker->started && walker->worker.error.code == ERROR_NONE;
}

/* Of the CPUs that are there, the nearest to a home's memory, and of those the one with fewest homes so far. */
static void choose_builder(struct chase_group *group, struct chase_home *home)
{
	uint64_t best = UINT64_MAX;
	for (size_t i = 0; i < group->walker_count; i++) {
		struct chase_walker *walker = &group->walkers[i];
		uint64_t built = 0;
		if (!ready(walker))
			continue;
		for (const struct chase_home *other = group->homes; other < home; other++)
			built += other->builder == walker;
		uint64_t cost = (uint64_t)place_distance(walker->node, home->nodes->cpus[0]) << 32 | built;
		if (cost < best) {
			best = cost;
			home->builder = walker;
		}
	}
}

/* What happened to a thread or a memory happened to all that need it. */
static void pass_errors_on(struct chase_group *group)
{
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		const struct error *errors[] = {chase->walker ? &chase->walker->worker.error : NULL,
		                                chase->home ? &chase->home->error : NULL};
		for (size_t k = 0; k < 2; k++)
			if (errors[k] && errors[k]->code != ERROR_NONE && chase->error.code == ERROR_NONE)
				chase->error = *errors[k];
	}
}

static size_t log_capacity(uint64_t windows)
{
	return windows * LOG_ENTRIES_PER_WINDOW;
}

static bool to_map(const struct chase_home *home)
{
	return home->builder && home->error.code == ERROR_NONE;
}

/* A builder makes the chains of its homes one after another; all that walk together are logged and sampled together. */
static void demand_all(const struct chase_group *group, struct demand *demand)
{
	if (!group->admitted)
		demand_other(demand, group->kept_bytes, 1);
	for (size_t i = 0; i < group->walker_count; i++)
		group->walkers[i].building_bytes = 0;
	for (size_t i = 0; i < group->home_count; i++) {
		const struct chase_home *home = &group->homes[i];
		if (!to_map(home))
			continue;
		demand_region_over(demand, home->bytes, home->nodes);
		if (home->building_bytes > home->builder->building_bytes)
			home->builder->building_bytes = home->building_bytes;
	}
	for (size_t i = 0; i < group->walker_count; i++)
		demand_other(demand, group->walkers[i].building_bytes, 1);
	for (size_t i = 0; i < group->count; i++) {
		const struct chase *chase = &group->chases[i];
		if (i == 0 || group->together)
			demand_other(demand, sampling_bytes(group->sampled, chase->longest_s), 1);
		if (group->together)
			demand_other(demand, log_capacity(chase->windows) * (sizeof(struct log_entry) + sizeof(bool)), 1);
	}
}

static bool lies_on(const struct chase_home *home, int node)
{
	for (size_t i = 0; i < home->nodes->count; i++)
		if (node < 0 || home->nodes->cpus[i] == (unsigned)node)
			return true;
	return false;
}

/* Of the memories on the node that has too little, or of all, the largest do without. */
static void give_up_largest(struct chase_group *group, int node, const struct error *error)
{
	size_t largest = 0;
	for (size_t i = 0; i < group->home_count; i++)
		if (to_map(&group->homes[i]) && lies_on(&group->homes[i], node) && group->homes[i].bytes > largest)
			largest = group->homes[i].bytes;
	for (size_t i = 0; i < group->home_count; i++)
		if (to_map(&group->homes[i]) && lies_on(&group->homes[i], node) && group->homes[i].bytes == largest)
			group->homes[i].error = *error;
}

/* What cannot be had does without memory, and has the error. */
static void admit(struct chase_group *group)
{
	for (bool any = true; any;) {
		struct demand demand = {.wanted = group->pages, .pages = group->chosen, .again = group->admitted};
		struct error refused = {0};
		demand_all(group, &demand);
		if (demand_admit(&demand, &refused)) {
			group->chosen = demand.pages;
			group->admitted = true;
			return;
		}
		give_up_largest(group, demand.refused_node, &refused);
		any = false;
		for (size_t i = 0; i < group->home_count; i++)
			any = any || to_map(&group->homes[i]);
	}
}

bool chase_open(struct chase_group *group, struct error *error)
{
	group->walker_count = group->home_count = 0;
	group->walkers = calloc(group->count, sizeof(*group->walkers));
	group->homes = calloc(group->count, sizeof(*group->homes));
	if (!group->walkers || !group->homes) {
		end(group);
		return error_set(error, ERROR_INTERNAL, "no memory for %zu chases", group->count);
	}
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		chase->error = (struct error){0};
		chase->walker = chase->bytes ? walker_for(group, chase->cpu) : NULL;
		chase->home = chase->bytes ? home_for(group, chase) : NULL;
	}
	group->job = map_all;
	for (size_t i = 0; i < group->walker_count; i++) {
		struct chase_walker *walker = &group->walkers[i];
		walker->started = worker_start(&walker->worker, walker->cpu, body, walker, &walker->worker.error);
	}
	for (size_t i = 0; i < group->walker_count; i++)
		if (group->walkers[i].started)
			worker_wait(&group->walkers[i].worker);
	for (size_t i = 0; i < group->home_count; i++) {
		struct chase_home *home = &group->homes[i];
		home->shares = calloc(home->nodes->count, sizeof(*home->shares));
		if (!home->shares)
			error_set(&home->error, ERROR_INTERNAL, "no memory for %zu nodes", home->nodes->count);
		else if (group->together)
			home->builder = ready(&group->walkers[i]) ? &group->walkers[i] : NULL;
		else
			choose_builder(group, home);
	}
	admit(group);
	build_with(group, map_all);
	pass_errors_on(group);
	for (size_t i = 0; i < group->count; i++)
		if (group->chases[i].error.code != ERROR_NONE)
			group->chases[i].bytes = group->chases[i].home->bytes;
	return true;
}

static void read_back_all(struct chase_walker *walker)
{
	for_homes(walker, read_back_one);
}

void chase_close(struct chase_group *group)
{
	mappings_forget();
	build_with(group, read_back_all);
	for (size_t i = 0; i < group->count; i++)
		group->chases[i].error = (struct error){0};
	pass_errors_on(group);
	end(group);
}

static bool log_prepare(struct chase *chase)
{
	if (chase->log)
		return true;
	size_t capacity = log_capacity(chase->task->windows);
	chase->log = calloc(1, sizeof(*chase->log));
	if (!chase->log)
		return false;
	chase->log->capacity = capacity;
	chase->log->entries = malloc(capacity * sizeof(*chase->log->entries));
	chase->log->dirty = malloc(capacity * sizeof(*chase->log->dirty));
	if (!chase->log->entries || !chase->log->dirty)
		return false;
	memset(chase->log->entries, 0,
	       capacity * sizeof(*chase->log->entries)); /* touched here and not in a timed stretch */
	return true;
}

static void sample_prepare(struct chase *chase)
{
	const struct chase_task *task = chase->task;
	const struct chase_home *home = chase->home;
	struct chase_sample *sample = chase->sample;
	size_t nodes = home->nodes->count;
	sample->pages = home->pages;
	sample->pages.shares = NULL;
	sample->order = home->chain.check;
	sample->overhead_ticks = chase->walker->overhead_ticks;
	sample->window_ticks = calloc(task->windows, sizeof(*sample->window_ticks));
	sample->dirty = calloc(task->windows, sizeof(*sample->dirty));
	sample->shares = nodes > 1 ? calloc(nodes, sizeof(*sample->shares)) : NULL;
	chase->hops = 0;
	if (!sample->window_ticks || !sample->dirty || (nodes > 1 && !sample->shares) ||
	    (chase->walker->group->together && !log_prepare(chase)))
		error_set(&chase->error, ERROR_INTERNAL, "no memory for %llu windows", (unsigned long long)task->windows);
	else if (nodes > 1)
		memcpy(sample->shares, home->shares, nodes * sizeof(*sample->shares));
}

/* Cuts the windows out of the time when all copies were running. */
static bool cut(struct chase_group *group, struct error *error)
{
	uint64_t begin = 0, close = UINT64_MAX;
	for (size_t i = 0; i < group->count; i++) {
		const struct chase_log *log = group->chases[i].log;
		begin = log->entries[0].ticks > begin ? log->entries[0].ticks : begin;
		close = log->entries[log->count - 1].ticks < close ? log->entries[log->count - 1].ticks : close;
	}
	for (size_t i = 0; i < group->count; i++) {
		const struct chase *chase = &group->chases[i];
		const struct chase_log *log = chase->log;
		uint64_t windows = chase->task->windows;
		double length = close > begin ? (double)(close - begin) / (double)windows : 0;
		double before = log_at(log->entries, log->count, begin);
		for (uint64_t k = 0; k < windows; k++) {
			uint64_t from = begin + (uint64_t)(length * (double)k), to = begin + (uint64_t)(length * (double)(k + 1));
			double until = log_at(log->entries, log->count, to);
			if (!(until > before))
				return error_set(error, ERROR_CHECK_FAILED,
				                 "expected the copy on CPU %u to make way in every window, found none in one; raise "
				                 "--hops, or keep other work off the CPUs",
				                 chase->cpu);
			chase->sample->window_ticks[k] = (double)(to - from) / (until - before);
			before = until;
			for (size_t n = 1; n < log->count; n++)
				if (log->entries[n].ticks > from && log->entries[n - 1].ticks < to)
					chase->sample->dirty[k] = chase->sample->dirty[k] || log->dirty[n];
		}
	}
	return true;
}

/* Hops that the counters have seen: a thread reads its own before its first hop and after its last. Those of CPUs are read
 * while other copies walk. */
static struct pmu_work progress(void *context, size_t thread, uint64_t ticks)
{
	const struct chase_group *group = context;
	struct pmu_work work = {.steps = -1};
	for (size_t i = 0; i < group->count; i++) {
		const struct chase *chase = &group->chases[i];
		if (!chase->walking)
			continue;
		if (thread == PMU_ALL && group->together)
			work.hops += log_at(chase->log->entries, chase->log->count, ticks);
		else if (thread == PMU_ALL || thread == chase->walker->number)
			work.hops += ticks < chase->begin ? 0 : (double)chase->hops;
	}
	return work;
}

static bool good(const struct chase *chase)
{
	return chase->task && chase->error.code == ERROR_NONE;
}

/* Lets the chases that are `walking` walk at the same time, and takes what they counted and sampled. */
static void walk_and_take(struct chase_group *group)
{
	for (size_t i = 0; i < group->walker_count; i++)
		group->walkers[i].busy = false;
	for (size_t i = 0; i < group->count; i++)
		if (group->chases[i].walking) {
			group->chases[i].walker->chase = &group->chases[i];
			group->chases[i].walker->busy = true;
		}
	work(group, run_own);
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		if (!chase->walking)
			continue;
		samples_collect(&chase->sample->samples, group->sampled, &chase->sampling);
		if (good(chase))
			pmu_take(group->pmu, chase->walker->number, progress, group, &chase->sample->counters, &chase->error);
	}
}

/* All at the same time: what happens to one spoils the windows of all. */
static void run_all(struct chase_group *group)
{
	struct error error = {0};
	for (size_t i = 0; i < group->count && error.code == ERROR_NONE; i++)
		error = group->chases[i].error;
	atomic_store(&group->arrived, 0);
	atomic_store(&group->finished, 0);
	for (size_t i = 0; i < group->count; i++)
		group->chases[i].walking = error.code == ERROR_NONE;
	if (error.code == ERROR_NONE)
		walk_and_take(group);
	for (size_t i = 0; i < group->count && error.code == ERROR_NONE; i++)
		error = group->chases[i].error;
	if (error.code == ERROR_NONE)
		(void)cut(group, &error);
	for (size_t i = 0; i < group->count; i++)
		group->chases[i].error = error;
}

/* One after another. A walk goes on where the one before it ended: the first at the start of the cycle, whose lines the
 * builder has not touched for longer than any others. So each line that is asked for was last touched, on whatever CPU,
 * as long ago as can be: a whole lap, or never since the chain was built. While the walks of a round do not come as far as
 * what the builder's caches still hold of the end of the cycle, no line comes out of another CPU's cache. */
static void run_in_turn(struct chase_group *group)
{
	for (size_t i = 0; i < group->count; i++)
		group->chases[i].walking = false;
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		if (!good(chase) || stop_error(&chase->error))
			continue;
		chase->walking = true;
		walk_and_take(group);
		chase->walking = false;
	}
}

/* Every chase of a home gets the error of its chain. */
static void build_chains(struct chase_group *group)
{
	for (size_t i = 0; i < group->home_count; i++) {
		group->homes[i].first = NULL;
		group->homes[i].build_error = (struct error){0};
	}
	for (size_t i = group->count; i-- > 0;)
		if (good(&group->chases[i]))
			group->chases[i].home->first = &group->chases[i];
	build_with(group, build_all);
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		if (good(chase) && chase->home->build_error.code != ERROR_NONE)
			chase->error = chase->home->build_error;
	}
}

/* What is known of a pass as a whole goes to the first of its samples. */
static void share(struct chase_group *group, enum chase_condition condition, const struct chase_sample *of_pass)
{
	struct chase_sample *first = NULL;
	for (size_t i = 0; i < group->count; i++) {
		const struct chase *chase = &group->chases[i];
		if (!good(chase))
			continue;
		struct chase_sample *sample = chase->samples[condition];
		if (!first) {
			first = sample;
			first->before = of_pass->before;
			first->after = of_pass->after;
			first->companion_rates = of_pass->companion_rates;
		}
		sample->around = first;
	}
}

/* One walk of all chases. */
static void pass(struct chase_group *group, enum chase_condition condition, struct chase_sample *of_pass)
{
	struct error error = {0};
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		chase->sample = chase->samples[condition];
		if (good(chase))
			sample_prepare(chase);
	}
	if (condition == CHASE_AWAKE) {
		of_pass->companion_rates = calloc(group->companion_count, sizeof(*of_pass->companion_rates));
		if (!of_pass->companion_rates)
			error_set(&error, ERROR_INTERNAL, "no memory for %zu companions", group->companion_count);
		companions_begin(group->companions, group->companion_count);
	}
	if (group->companion_count)
		stop_sleep_ns(SETTLE_NS);
	snapshot_take(&of_pass->before, group->cpus);
	if (group->together)
		run_all(group);
	else
		run_in_turn(group);
	snapshot_take_again(&of_pass->after, &of_pass->before);
	if (condition == CHASE_AWAKE)
		companions_end(group->companions, group->companion_count, &error);
	for (size_t i = 0; of_pass->companion_rates && i < group->companion_count; i++)
		of_pass->companion_rates[i] = group->companions[i].bytes_per_tick;
	for (size_t i = 0; i < group->count; i++)
		if (good(&group->chases[i]) && error.code != ERROR_NONE)
			group->chases[i].error = error;
}

void chase_measure(struct chase_group *group)
{
	struct chase_sample of_pass[CHASE_CONDITIONS] = {0};
	const size_t passes = group->companion_count ? CHASE_CONDITIONS : 1;
	bool first_awake = group->companion_count && group->awake_first;
	bool any = false;
	for (size_t i = 0; i < group->count; i++)
		if (group->chases[i].task)
			group->chases[i].error = (struct error){0};
	build_chains(group);
	for (size_t i = 0; i < group->count; i++)
		any = any || good(&group->chases[i]);
	for (size_t i = 0; any && i < passes; i++) {
		enum chase_condition condition = (i == 0) == first_awake ? CHASE_AWAKE : CHASE_ASLEEP;
		pass(group, condition, &of_pass[condition]);
	}
	any = false;
	for (size_t i = 0; i < group->count; i++) {
		const struct chase *chase = &group->chases[i];
		any = any || good(chase);
		for (size_t k = 0; k < passes && chase->task && !good(chase); k++)
			chase_sample_free(chase->samples[k]);
	}
	for (size_t k = 0; k < passes; k++)
		if (any)
			share(group, k, &of_pass[k]);
		else
			chase_sample_free(&of_pass[k]);
}
