// SPDX-License-Identifier: Apache-2.0
/* A reader stopped right after its start has read memory. The source itself is compiled here, to see what it begins. */
#include <math.h>

#include "worker.h"

static unsigned stale;
static void begin_seen(struct worker *worker, worker_job job);
#define worker_begin begin_seen
#include "paced_reader.c"
#undef worker_begin

#include "affinity.h"
#include "host.h"

#define RUNS 100u

/* What is read before a run began is of the run before, and would end the wait for this one. */
static void begin_seen(struct worker *worker, worker_job job)
{
	const struct paced_reader *reader = worker->context;
	stale += job == run && atomic_load(&reader->reading);
	worker_begin(worker, job);
}

static bool case_has_read(struct error *error)
{
	clock_begin();
	struct paced_reader reader = {0};
	unsigned read = 0;
	if (!affinity_begin(error))
		return false;
	reader.cpu = affinity_allowed()->cpus[0];
	if (!paced_readers_open(&reader, 1, error))
		return false;
	for (unsigned turn = 0; turn < RUNS; turn++) {
		paced_readers_begin(&reader, 1);
		read += paced_readers_end(&reader, 1, error) && isfinite(reader.bytes_per_tick) && reader.bytes_per_tick > 0;
	}
	paced_readers_close(&reader, 1);
	EXPECT(read == RUNS && stale == 0);
	return true;
}

HOST_CASES(CASE(has_read))
