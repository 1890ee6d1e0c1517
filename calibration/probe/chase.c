// SPDX-License-Identifier: Apache-2.0
#include "chase.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocate.h"
#include "corefreq.h"
#include "place.h"
#include "random.h"
#include "stopping.h"

/* Between an idle and an active package, and back: clocks of uncore and fabric follow the load within 10 ms or so, and every walk
 * warms up besides. */
#define SETTLE_NS 20000000u
/* Where in a mapping a small chain lies, so that rounds see different huge pages and not always the first. */
#define ALIGN_BYTES (2u << 20)

static void read_back(struct chase_group *group, struct chase_home *home)
{
	home->pages = (struct pages){.wanted = group->pages, .shares = home->shares};
	memset(home->shares, 0, home->nodes->count * sizeof(*home->shares));
	if (pages_read_nodes(&home->pages, &home->region, &home->error))
		pages_read_sizes(&home->pages, &home->region, 1);
}

/* The job of a builder: what is to be done with each of its homes that has no error. */
static void do_homes(struct worker *worker)
{
	const struct chase_walker *walker = worker->context;
	struct chase_group *group = walker->group;
	for (size_t i = 0; i < group->home_count; i++)
		if (group->homes[i].builder == walker && group->homes[i].error.code == ERROR_NONE)
			group->home_job(group, &group->homes[i]);
}

static void map(struct chase_group *group, struct chase_home *home)
{
	if (region_map_over(&home->region, home->bytes, home->nodes, group->chosen, &home->error))
		read_back(group, home);
}

/* Whether a chain of this size can be spread over all nodes, in the pages obtained. */
static bool spreads(struct chase_home *home, size_t size_bytes)
{
	size_t step = region_page_bytes(&home->region) * home->nodes->count;
	return home->nodes->count == 1 || size_bytes % step == 0 ||
	       error_set(&home->build_error, ERROR_UNSUPPORTED,
	                 "%zu bytes are no multiple of %zu, one page on each of %zu nodes; use such a size or --pages base",
	                 size_bytes, step, home->nodes->count);
}

static void build(struct chase_group *group, struct chase_home *home)
{
	(void)group;
	if (!home->first || stop_error(&home->build_error) || !spreads(home, home->first->task->size_bytes))
		return;
	const struct chase_task *task = home->first->task;
	uint64_t seed = home->first->samples[CHASE_PACKAGE_IDLE]->evidence.seed, state = seed;
	size_t places = (home->region.bytes - task->size_bytes) / ALIGN_BYTES + 1;
	/* Interleaved pages are counted from the start of the mapping. */
	size_t place = home->region.nodes ? 0 : (size_t)(random_mix(&state) % places);
	if (task->chains && !home->cursors)
		home->cursors = allocate(1, sizeof(*home->cursors));
	/* Another number of chains in the next part of the same cycle, which takes far longer to build than to walk. */
	if (task->chains && home->chain.proved && home->chain.seed == seed) {
		chain_begin(&home->chain, task->chains, task->part, task->parts);
		return;
	}
	home->chain = (struct chain){.base = home->region.start + place * ALIGN_BYTES,
	                             .size_bytes = task->size_bytes,
	                             .stride_bytes = task->stride_bytes,
	                             .line_bytes = task->line_bytes,
	                             .order = task->order,
	                             .window_bytes = task->window_bytes,
	                             .seed = seed,
	                             .cursors = task->chains ? home->cursors : NULL};
	if (chain_build(&home->chain, &home->build_error) && task->chains)
		chain_begin(&home->chain, task->chains, task->part, task->parts);
}

static void settle(struct worker *worker)
{
	struct chase_walker *walker = worker->context;
	unsigned cpu;
	if (syscall(SYS_getcpu, &cpu, &walker->node, NULL) != 0) {
		error_set(&worker->error, ERROR_INTERNAL, "getcpu: %s", strerror(errno));
		return;
	}
	corefreq_settle();
	walker->overhead_ticks = chase_overhead(0);
	pmu_open_thread(walker->group->pmu, walker->number, "");
}

/* Lets all that are busy do a job, and waits for them. */
static void work(struct chase_group *group, worker_job job)
{
	for (size_t i = 0; i < group->walker_count; i++)
		if (group->walkers[i].busy)
			worker_begin(&group->walkers[i].worker, job);
	for (size_t i = 0; i < group->walker_count; i++)
		if (group->walkers[i].busy)
			worker_wait(&group->walkers[i].worker);
}

static void with_homes(struct chase_group *group, void (*job)(struct chase_group *, struct chase_home *))
{
	group->home_job = job;
	for (size_t i = 0; i < group->walker_count; i++)
		group->walkers[i].busy = false;
	for (size_t i = 0; i < group->home_count; i++)
		if (group->homes[i].builder)
			group->homes[i].builder->busy = true;
	work(group, do_homes);
}

static void end(struct chase_group *group)
{
	for (size_t i = 0; i < group->walker_count; i++)
		worker_join(&group->walkers[i].worker);
	for (size_t i = 0; i < group->home_count; i++) {
		region_unmap(&group->homes[i].region);
		free(group->homes[i].shares);
		free(group->homes[i].cursors);
	}
	for (size_t i = 0; i < group->count; i++) {
		struct chase_log *log = &group->chases[i].log;
		free(log->progress.entries);
		free(log->dirty);
		*log = (struct chase_log){0};
	}
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
	return walker->worker.started && walker->worker.error.code == ERROR_NONE;
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
		if (chase->walker)
			error_take(&chase->error, &chase->walker->worker.error);
		if (chase->home)
			error_take(&chase->error, &chase->home->error);
	}
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
			demand_other(demand, chase_log_bytes(chase->windows), 1);
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
		struct demand demand = {.wanted = group->pages,
		                        .hugetlb_bytes = group->hugetlb_bytes,
		                        .pages = group->chosen,
		                        .again = group->admitted};
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

void chase_open(struct chase_group *group)
{
	group->walker_count = group->home_count = 0;
	group->walkers = allocate(group->count, sizeof(*group->walkers));
	group->homes = allocate(group->count, sizeof(*group->homes));
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		chase->error = (struct error){0};
		chase->walker = chase->bytes ? walker_for(group, chase->cpu) : NULL;
		chase->home = chase->bytes ? home_for(group, chase) : NULL;
	}
	for (size_t i = 0; i < group->walker_count; i++) {
		struct chase_walker *walker = &group->walkers[i];
		walker->busy = worker_start(&walker->worker, walker->cpu, NULL, walker, &walker->worker.error);
	}
	for (size_t i = 0; i < group->walker_count; i++)
		if (group->walkers[i].busy)
			worker_wait(&group->walkers[i].worker);
	work(group, settle);
	for (size_t i = 0; i < group->home_count; i++) {
		struct chase_home *home = &group->homes[i];
		home->shares = allocate(home->nodes->count, sizeof(*home->shares));
		if (group->together)
			home->builder = ready(&group->walkers[i]) ? &group->walkers[i] : NULL;
		else
			choose_builder(group, home);
	}
	admit(group);
	with_homes(group, map);
	pass_errors_on(group);
	for (size_t i = 0; i < group->count; i++)
		if (group->chases[i].error.code != ERROR_NONE)
			group->chases[i].bytes = group->chases[i].home->bytes;
}

void chase_close(struct chase_group *group)
{
	mappings_forget();
	with_homes(group, read_back);
	for (size_t i = 0; i < group->count; i++)
		group->chases[i].error = (struct error){0};
	pass_errors_on(group);
	end(group);
}

static void sample_prepare(struct chase *chase)
{
	const struct chase_task *task = chase->task;
	const struct chase_home *home = chase->home;
	struct chase_sample *sample = chase->sample;
	size_t nodes = home->nodes->count;
	sample->evidence.pages = home->pages;
	sample->evidence.pages.shares = NULL;
	sample->order = home->chain.check;
	sample->overhead_ticks = chase->walker->overhead_ticks;
	sample->window_ticks = allocate(task->windows, sizeof(*sample->window_ticks));
	sample->dirty = allocate(task->windows, sizeof(*sample->dirty));
	if (task->single_loads)
		sample->single = allocate_touched(1, sizeof(*sample->single));
	if (nodes > 1) {
		sample->shares = allocate(nodes, sizeof(*sample->shares));
		memcpy(sample->shares, home->shares, nodes * sizeof(*sample->shares));
	}
	chase->hops = 0;
	if (chase->walker->group->together)
		chase_log_reserve(chase);
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
	work(group, chase_run);
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		if (!chase->walking)
			continue;
		struct evidence *evidence = &chase->sample->evidence;
		samples_collect(&evidence->samples, group->sampled, &chase->sampling);
		if (good(chase))
			evidence->counters = pmu_take(group->pmu, chase->walker->number, chase_progress, group);
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
		(void)chase_cut(group, &error);
	for (size_t i = 0; i < group->count; i++)
		group->chases[i].error = error;
}

/* One after another, in a random order, so that what drifts meanwhile does not follow the CPUs. A walk goes on where the one
 * before it ended: the first at the start of the cycle, whose lines the builder has not touched for longer than any others.
 * So each line that is asked for was last touched, on whatever CPU, as long ago as can be: a whole lap, or never since the
 * chain was built. While the walks of a round do not come as far as what the builder's caches still hold of the end of the
 * cycle, no line comes out of another CPU's cache. */
static void run_in_turn(struct chase_group *group)
{
	uint64_t seed = 0;
	for (size_t i = group->count; i-- > 0;) {
		group->chases[i].walking = false;
		if (good(&group->chases[i]))
			seed = group->chases[i].samples[CHASE_PACKAGE_IDLE]->evidence.seed;
	}
	uint32_t *order = random_order(group->count, seed);
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[order[i]];
		if (!good(chase) || stop_error(&chase->error))
			continue;
		chase->walking = true;
		walk_and_take(group);
		chase->walking = false;
	}
	free(order);
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
	with_homes(group, build);
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		if (good(chase) && chase->home->build_error.code != ERROR_NONE)
			chase->error = chase->home->build_error;
	}
}

/* One walk of all chases. What is known of it as a whole goes to all of its samples. */
static void pass(struct chase_group *group, enum chase_condition condition)
{
	struct error error = {0};
	struct snapshot before, after = {0};
	double *rates = allocate(group->reader_count, sizeof(*rates));
	bool taken = false;
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		chase->sample = chase->samples[condition];
		if (good(chase))
			sample_prepare(chase);
	}
	if (condition == CHASE_PACKAGE_ACTIVE)
		paced_readers_begin(group->readers, group->reader_count);
	if (group->reader_count)
		stop_sleep_ns(SETTLE_NS);
	snapshot_take(&before, group->cpus);
	if (group->together)
		run_all(group);
	else
		run_in_turn(group);
	snapshot_take_again(&after, &before);
	if (condition == CHASE_PACKAGE_ACTIVE)
		paced_readers_end(group->readers, group->reader_count, &error);
	for (size_t i = 0; i < group->reader_count; i++)
		rates[i] = group->readers[i].bytes_per_tick;
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		if (!good(chase) || !error_take(&chase->error, &error))
			continue;
		chase->sample->evidence.before = before;
		chase->sample->evidence.after = after;
		chase->sample->reader_rates = rates;
		taken = true;
	}
	if (!taken) {
		snapshot_free(&before);
		snapshot_free(&after);
		free(rates);
	}
}

void chase_measure(struct chase_group *group)
{
	const size_t passes = group->reader_count ? CHASE_CONDITIONS : 1;
	bool active_at_first = group->reader_count && group->active_first, any = false;
	for (size_t i = 0; i < group->count; i++)
		if (group->chases[i].task)
			group->chases[i].error = (struct error){0};
	build_chains(group);
	for (size_t i = 0; i < group->count; i++)
		any = any || good(&group->chases[i]);
	for (size_t i = 0; any && i < passes; i++)
		pass(group, (i == 0) == active_at_first ? CHASE_PACKAGE_ACTIVE : CHASE_PACKAGE_IDLE);
}
