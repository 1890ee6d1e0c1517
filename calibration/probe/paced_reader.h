/* SPDX-License-Identifier: Apache-2.0 */
/* A load at a rate. Light, beside a chase, it asks for so few lines that nobody waits for it, and keeps awake what falls asleep when
 * nobody asks for memory: the uncore, the fabric, and a package whose CPUs are all idle. */
#pragma once

#include <stdatomic.h>

#include "error.h"
#include "memory.h"
#include "worker.h"

struct paced_reader {
	/* to be set before paced_readers_open */
	unsigned cpu, node;
	double bytes_per_s; /* at most: what an interruption took is not caught up with; 0: a light load's */
	/* state */
	struct worker worker;
	struct page_choice chosen;
	struct region region;
	struct pages pages;
	_Atomic bool stop, reading;
	double bytes_per_tick; /* of the last run */
};

/* Starts the threads, pinned, with their memory proved in place; they sleep in the kernel. All end where one fails. */
bool paced_readers_open(struct paced_reader *readers, size_t count, struct error *error);
/* Returns once every reader is reading memory. */
void paced_readers_begin(struct paced_reader *readers, size_t count);
/* They sleep again when it returns. False with the error of one that was not on its CPU. */
bool paced_readers_end(struct paced_reader *readers, size_t count, struct error *error);
void paced_readers_close(struct paced_reader *readers, size_t count);
