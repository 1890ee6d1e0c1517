// SPDX-License-Identifier: Apache-2.0
#include "probe.h"

#include <stdlib.h>
#include <time.h>

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

static void probe_map(struct worker *worker)
{
	struct probe *probe = worker->context;
	struct error *error = &worker->error;
	corefreq_settle();
	if (!region_map(&probe->region, probe->chain.size_bytes, probe->node, probe->chosen, error))
		return;
	probe->chain.base = probe->region.start;
	if (chain_build(&probe->chain, error) && pages_read_back(&probe->pages, &probe->region, 1, probe->page_kind, error))
		pmu_open_thread(probe->pmu, probe->pmu_thread, PMU_OF_PROBES);
}

static void probe_walk(struct probe *probe)
{
	struct progress *log = &probe->log;
	uint64_t hops = 0, now = clock_start(), logged = now;
	/* A chain in a cache is walked faster than the log has room for: it is entered no more often than that. */
	const uint64_t spacing = (uint64_t)(clock_now_used.hz / LOG_PER_SECOND);
	log->entries[0] = (struct log_entry){now, 0};
	log->count = 1;
	atomic_store_explicit(&probe->started, now, memory_order_release);
	/* As the load's threads do: the last entry is beyond the end. */
	for (bool ending = false; !ending && log->count < log->capacity;) {
		ending = atomic_load_explicit(&probe->stop, memory_order_relaxed);
		chain_walk(&probe->chain, CHUNK_HOPS / 64);
		hops += CHUNK_HOPS;
		now = clock_stop();
		if (!ending && now - logged < spacing)
			continue;
		log->entries[log->count++] = (struct log_entry){now, hops};
		logged = now;
	}
}

static void probe_run(struct worker *worker)
{
	struct probe *probe = worker->context;
	stretch_begin(&probe->stretch);
	probe_walk(probe);
	stretch_end(&probe->stretch, probe->cpu);
}

static void probe_check(struct worker *worker)
{
	const struct probe *probe = worker->context;
	struct pages again;
	(void)pages_read_back(&again, &probe->region, 1, probe->page_kind, &worker->error);
}

static void probe_free(struct probe *probe, struct error *error)
{
	worker_join(&probe->worker);
	region_unmap(&probe->region);
	free(probe->log.entries);
	probe->log = (struct progress){0};
	error_take(error, &probe->worker.error);
}

bool probe_open(struct probe *probe, struct error *error)
{
	if (!worker_start(&probe->worker, probe->cpu, NULL, probe, error))
		return false;
	if (worker_wait(&probe->worker) && worker_do(&probe->worker, probe_map))
		return true;
	probe_free(probe, error);
	return false;
}

void probe_begin(struct probe *probe, double seconds)
{
	progress_reserve(&probe->log, log_capacity(seconds));
	atomic_store(&probe->stop, false);
	atomic_store(&probe->started, 0);
	worker_begin(&probe->worker, probe_run);
	while (!atomic_load_explicit(&probe->started, memory_order_acquire))
		nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

bool probe_end(struct probe *probe, struct error *error)
{
	atomic_store(&probe->stop, true);
	worker_wait(&probe->worker);
	if (probe->log.count == probe->log.capacity)
		return error_set(error, ERROR_INTERNAL, "a probe logged more than %zu chunks", probe->log.capacity);
	return error_take(error, &probe->worker.error);
}

void probe_close(struct probe *probe, struct error *error)
{
	mappings_forget();
	worker_do(&probe->worker, probe_check);
	probe_free(probe, error);
}

bool probe_cut_windows(const struct probe *probe, uint64_t begin, double window_ticks, uint64_t windows, double *ticks,
                       double *hops_per_tick)
{
	double last = progress_at(&probe->log, begin), first = last;
	for (uint64_t i = 0; i < windows; i++) {
		double next = progress_at(&probe->log, begin + (uint64_t)(window_ticks * (double)(i + 1)));
		if (next <= last)
			return false;
		ticks[i] = window_ticks / (next - last);
		last = next;
	}
	*hops_per_tick = (last - first) / (window_ticks * (double)windows);
	return true;
}
