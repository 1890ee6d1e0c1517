/* SPDX-License-Identifier: Apache-2.0 */
/* One measuring thread: pinned, and in step with the thread that supervises it. The phases are
 * setup | worker_ready | run | worker_done | check and teardown; the supervisor reads the machine's counters between. */
#ifndef SUTPROBE_WORKER_H
#define SUTPROBE_WORKER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

#include "error.h"

struct worker {
	unsigned cpu;
	void (*body)(struct worker *worker); /* the thread is pinned when this is called */
	void *context;
	struct error error;
	pthread_t thread;
	sem_t to_supervisor;
	sem_t to_worker;
};

bool worker_start(struct worker *worker, unsigned cpu, void (*body)(struct worker *), void *context,
                  struct error *error);
/* In the thread: tell the supervisor that this phase is over and wait for the next. */
void worker_pause(struct worker *worker);
/* In the supervisor: wait until the thread is at its next pause, or has ended with an error. */
bool worker_wait(struct worker *worker);
void worker_continue(struct worker *worker);
/* Lets the thread run to its end from whatever pause it is at. */
void worker_join(struct worker *worker);

#endif
