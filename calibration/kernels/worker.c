// SPDX-License-Identifier: Apache-2.0
#include "worker.h"

#include <errno.h>
#include <string.h>

#include "affinity.h"
#include "realtime.h"

static void wait(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0 && errno == EINTR)
		continue;
}

static void *begin(void *argument)
{
	struct worker *worker = argument;
	realtime_check();
	if (affinity_pin(worker->cpu, &worker->error))
		worker->body(worker);
	/* Anybody with the right to may have changed the policy meanwhile. */
	realtime_check();
	sem_post(&worker->to_supervisor);
	return NULL;
}

bool worker_start(struct worker *worker, unsigned cpu, void (*body)(struct worker *), void *context,
                  struct error *error)
{
	*worker = (struct worker){.cpu = cpu, .body = body, .context = context};
	sem_init(&worker->to_supervisor, 0, 0);
	sem_init(&worker->to_worker, 0, 0);
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 256u << 10);
	int reason = pthread_create(&worker->thread, &attributes, begin, worker);
	pthread_attr_destroy(&attributes);
	if (reason)
		return error_set(error, ERROR_INTERNAL, "starting a thread for CPU %u: %s", cpu, strerror(reason));
	return true;
}

void worker_pause(struct worker *worker)
{
	sem_post(&worker->to_supervisor);
	wait(&worker->to_worker);
}

bool worker_wait(struct worker *worker)
{
	wait(&worker->to_supervisor);
	return worker->error.code == ERROR_NONE;
}

void worker_continue(struct worker *worker)
{
	sem_post(&worker->to_worker);
}

void worker_join(struct worker *worker)
{
	/* More posts than pauses do no harm: the thread ends, and the semaphore with it. */
	for (int i = 0; i < 4; i++)
		sem_post(&worker->to_worker);
	pthread_join(worker->thread, NULL);
	sem_destroy(&worker->to_supervisor);
	sem_destroy(&worker->to_worker);
}
