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

static void do_jobs(struct worker *worker, bool pinned)
{
	for (worker_pause(worker); worker->job; worker_pause(worker))
		if (pinned)
			worker->job(worker);
}

static void *begin(void *argument)
{
	struct worker *worker = argument;
	realtime_check();
	bool pinned = affinity_pin(worker->cpu, &worker->error);
	if (!worker->body)
		do_jobs(worker, pinned);
	else if (pinned)
		worker->body(worker);
	/* Anybody with the right to may have changed the policy meanwhile. */
	realtime_check();
	sem_post(&worker->to_supervisor);
	return NULL;
}

bool worker_start(struct worker *worker, unsigned cpu, worker_job body, void *context, struct error *error)
{
	*worker = (struct worker){.cpu = cpu, .body = body, .context = context};
	sem_init(&worker->to_supervisor, 0, 0);
	sem_init(&worker->to_worker, 0, 0);
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 256u << 10);
	int reason = pthread_create(&worker->thread, &attributes, begin, worker);
	pthread_attr_destroy(&attributes);
	worker->started = reason == 0;
	return worker->started ||
	       error_set(error, ERROR_INTERNAL, "starting a thread for CPU %u: %s", cpu, strerror(reason));
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

void worker_begin(struct worker *worker, worker_job job)
{
	worker->job = job;
	worker_continue(worker);
}

bool worker_do(struct worker *worker, worker_job job)
{
	worker_begin(worker, job);
	return worker_wait(worker);
}

void worker_join(struct worker *worker)
{
	if (!worker->started)
		return;
	worker->started = false;
	worker->job = NULL;
	/* More posts than pauses do no harm: the thread ends, and the semaphore with it. */
	for (int i = 0; i < 4; i++)
		sem_post(&worker->to_worker);
	pthread_join(worker->thread, NULL);
	sem_destroy(&worker->to_supervisor);
	sem_destroy(&worker->to_worker);
}
