// SPDX-License-Identifier: Apache-2.0
#include "probe.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "affinity.h"
#include "clock.h"
#include "corefreq.h"

/* 1024 hops are some 0.1 ms idle and 1 ms under the heaviest load: short against a window, long against a clock read. */
#define CHUNK_HOPS 1024u
/* Entries every 10 us at most are fine enough for windows of milliseconds; a chain in memory makes a tenth of these. */
#define LOG_PER_SECOND 100000
#define LOG_EXTRA 4096

static size_t log_capacity(double seconds)
{
	return (size_t)(seconds * LOG_PER_SECOND) + LOG_EXTRA;
}

void probe_demand(const struct probe *probe, double seconds, struct demand *demand)
{
	const struct chain *chain = &probe->chain;
	demand_threads(demand, 1);
	demand_regions(demand, chain->size_bytes, 1, probe->node);
	demand_other(demand, log_capacity(seconds) * sizeof(struct log_entry), 1);
	demand_other(demand,
	             chain_building_bytes(chain->size_bytes, chain->stride_bytes, chain->order, chain->window_bytes), 1);
}

static bool setup(struct probe *probe, struct error *error)
{
	corefreq_settle();
	if (!region_map(&probe->region, probe->chain.size_bytes, probe->node, probe->chosen, error))
		return false;
	probe->chain.base = probe->region.start;
	return chain_build(&probe->chain, error) &&
	       pages_read_back(&probe->pages, &probe->region, 1, probe->page_kind, error);
}

static void run(struct probe *probe)
{
	uint64_t hops = 0, now = clock_start(), logged = now;
	/* A chain in a cache is walked faster than the log has room for: it is entered no more often than that. */
	const uint64_t spacing = (uint64_t)(clock_now_used.hz / LOG_PER_SECOND);
	probe->log[0] = (struct log_entry){now, 0};
	probe->logged = 1;
	atomic_store_explicit(&probe->started, now, memory_order_release);
	/* As the load's threads do: the last entry is beyond the end. */
	for (bool ending = false; !ending && probe->logged < probe->log_capacity;) {
		ending = atomic_load_explicit(&probe->stop, memory_order_relaxed);
		chain_walk(&probe->chain, CHUNK_HOPS / 64);
		hops += CHUNK_HOPS;
		now = clock_stop();
		if (!ending && now - logged < spacing)
			continue;
		probe->log[probe->logged++] = (struct log_entry){now, hops};
		logged = now;
	}
}

static void body(struct worker *worker)
{
	struct probe *probe = worker->context;
	if (setup(probe, &worker->error)) {
		pmu_open_thread(probe->pmu, probe->pmu_thread, PMU_OF_PROBES);
		worker_pause(worker);
		while (probe->again) {
			struct thread_counts before = {0}, after = {0};
			probe->core_before = corefreq_per_tick();
			thread_counts_read(&before);
			run(probe);
			thread_counts_read(&after);
			probe->counts = thread_counts_since(&after, &before);
			probe->core_after = corefreq_per_tick();
			probe->verified = affinity_verify(probe->cpu);
			worker_pause(worker);
		}
		struct pages again;
		pages_read_back(&again, &probe->region, 1, probe->page_kind, &worker->error);
	}
	region_unmap(&probe->region);
}

bool probe_open(struct probe *probe, struct error *error)
{
	probe->again = true;
	if (!worker_start(&probe->worker, probe->cpu, body, probe, error))
		return false;
	if (worker_wait(&probe->worker))
		return true;
	*error = probe->worker.error;
	worker_join(&probe->worker);
	return false;
}

bool probe_begin(struct probe *probe, double seconds, struct error *error)
{
	size_t capacity = log_capacity(seconds);
	if (capacity > probe->log_capacity) {
		struct log_entry *grown = realloc(probe->log, capacity * sizeof(*grown));
		if (!grown)
			return error_set(error, ERROR_INTERNAL, "no memory for a log of %zu entries", capacity);
		memset(grown, 0, capacity * sizeof(*grown));
		probe->log = grown;
		probe->log_capacity = capacity;
	}
	atomic_store(&probe->stop, false);
	atomic_store(&probe->started, 0);
	worker_continue(&probe->worker);
	while (!atomic_load_explicit(&probe->started, memory_order_acquire))
		nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
	return true;
}

bool probe_end(struct probe *probe, struct error *error)
{
	atomic_store(&probe->stop, true);
	worker_wait(&probe->worker);
	if (probe->logged == probe->log_capacity)
		return error_set(error, ERROR_INTERNAL, "expected at most %zu chunks of a probe, found more",
		                 probe->log_capacity);
	if (probe->worker.error.code != ERROR_NONE)
		*error = probe->worker.error;
	return error->code == ERROR_NONE;
}

double probe_hops_at(const struct probe *probe, uint64_t ticks)
{
	return log_at(probe->log, probe->logged, ticks);
}

bool probe_close(struct probe *probe, struct error *error)
{
	probe->again = false;
	mappings_forget();
	atomic_store(&probe->stop, true);
	worker_join(&probe->worker);
	free(probe->log);
	probe->log = NULL;
	probe->log_capacity = 0;
	if (probe->worker.error.code != ERROR_NONE && error->code == ERROR_NONE)
		*error = probe->worker.error;
	return error->code == ERROR_NONE;
}
