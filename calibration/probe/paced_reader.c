// SPDX-License-Identifier: Apache-2.0
#include "paced_reader.h"

#include <time.h>

#include "clock.h"

/* Lines read at once, independent of one another, then taken out of the caches: the next lap reads memory again, however
 * large the caches are. */
#define BATCH_LINES 8u
#define LINE_BYTES 64u
/* 300 MB/s, a line every 0.2 us: never is a fabric without a request for long enough to slow down, and a percent at most of
 * what one channel of memory moves, so that the chase waits for none of it. */
#define LIGHT_BYTES_PER_S 300e6
/* Spread over all channels of a node. Base pages: a reserved huge page is not to be spent on it. */
#define BUFFER_BYTES (1u << 20)

static void read_batch(const unsigned char *from)
{
	for (unsigned i = 0; i < BATCH_LINES; i++)
		(void)*(const volatile uint64_t *)(const volatile void *)(from + (size_t)i * LINE_BYTES);
	for (unsigned i = 0; i < BATCH_LINES; i++)
		arch_flush_line(from + (size_t)i * LINE_BYTES);
}

static void run(struct worker *worker)
{
	struct paced_reader *reader = worker->context;
	const double bytes_per_s = reader->bytes_per_s > 0 ? reader->bytes_per_s : LIGHT_BYTES_PER_S;
	const uint64_t period = (uint64_t)(BATCH_LINES * LINE_BYTES / bytes_per_s * clock_now_used.hz);
	uint64_t began = clock_start(), due = began, now, batches = 0;
	do {
		read_batch(reader->region.start + batches * BATCH_LINES * LINE_BYTES % BUFFER_BYTES);
		batches++;
		atomic_store_explicit(&reader->reading, true, memory_order_release);
		due += period;
		while ((now = clock_stop()) < due)
			arch_relax();
		due = now > due + period ? now : due; /* what an interruption took is not caught up with */
	} while (!atomic_load_explicit(&reader->stop, memory_order_relaxed));
	reader->bytes_per_tick = (double)(batches * BATCH_LINES * LINE_BYTES) / (double)(now - began);
	(void)affinity_stayed(reader->cpu, &worker->error);
}

static void map(struct worker *worker)
{
	struct paced_reader *reader = worker->context;
	if (region_map(&reader->region, BUFFER_BYTES, reader->node, reader->chosen, &worker->error))
		(void)pages_read_back(&reader->pages, &reader->region, 1, PAGES_BASE, &worker->error);
}

/* False with the first error of any. */
static bool wait_all(struct paced_reader *readers, size_t count, struct error *error)
{
	for (size_t i = 0; i < count; i++)
		if (readers[i].worker.started && !worker_wait(&readers[i].worker))
			error_take(error, &readers[i].worker.error);
	return error->code == ERROR_NONE;
}

static void begin_all(struct paced_reader *readers, size_t count, worker_job job)
{
	for (size_t i = 0; i < count; i++)
		if (readers[i].worker.started)
			worker_begin(&readers[i].worker, job);
}

bool paced_readers_open(struct paced_reader *readers, size_t count, struct error *error)
{
	struct demand demand = {.wanted = PAGES_BASE};
	if (count && !ARCH_FLUSHES)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"reading memory at a rate needs an instruction that takes a line out of the caches, which this "
			"architecture has not");
	for (size_t i = 0; i < count; i++)
		demand_regions(&demand, BUFFER_BYTES, 1, readers[i].node);
	demand_threads(&demand, count);
	if (count && !demand_admit(&demand, error))
		return false;
	for (size_t i = 0; i < count && error->code == ERROR_NONE; i++) {
		readers[i].chosen = demand.pages;
		(void)worker_start(&readers[i].worker, readers[i].cpu, NULL, &readers[i], error);
	}
	if (wait_all(readers, count, error)) {
		begin_all(readers, count, map);
		if (wait_all(readers, count, error))
			return true;
	}
	paced_readers_close(readers, count);
	return false;
}

void paced_readers_begin(struct paced_reader *readers, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		atomic_store(&readers[i].stop, false);
		atomic_store(&readers[i].reading, false);
	}
	begin_all(readers, count, run);
	for (size_t i = 0; i < count; i++)
		while (!atomic_load_explicit(&readers[i].reading, memory_order_acquire))
			nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

bool paced_readers_end(struct paced_reader *readers, size_t count, struct error *error)
{
	for (size_t i = 0; i < count; i++)
		atomic_store(&readers[i].stop, true);
	return wait_all(readers, count, error);
}

void paced_readers_close(struct paced_reader *readers, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		worker_join(&readers[i].worker);
		region_unmap(&readers[i].region);
	}
}
