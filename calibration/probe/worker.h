/* SPDX-License-Identifier: Apache-2.0 */
/* One measuring thread: pinned, and in step with the thread that supervises it, which reads the machine's counters between. It
 * runs a body with pauses, or does one job after another as it is told. */
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include "error.h"

struct worker;
typedef void (*worker_job)(struct worker *worker);

struct worker {
	unsigned cpu;
	worker_job body; /* the thread is pinned when this is called; NULL: it does jobs */
	worker_job job;  /* the next; NULL: end */
	void *context;
	struct error error;
	bool started;
	pthread_t thread;
	sem_t to_supervisor;
	sem_t to_worker;
};

/* With a body, or NULL for jobs: then worker_wait tells when the thread is pinned and ready. */
bool worker_start(struct worker *worker, unsigned cpu, worker_job body, void *context, struct error *error);
/* In a body: tell the supervisor that this phase is over and wait for the next. */
void worker_pause(struct worker *worker);
/* In the supervisor: wait until the thread is at its next pause, has done its job, or has ended. False once it has an error. */
bool worker_wait(struct worker *worker);
void worker_continue(struct worker *worker);
/* Begins a job, which a thread that could not be pinned leaves undone; and the same with the wait for it. */
void worker_begin(struct worker *worker, worker_job job);
bool worker_do(struct worker *worker, worker_job job);
/* Lets the thread run to its end from whatever pause it is at, unless it never started. */
void worker_join(struct worker *worker);
