/* SPDX-License-Identifier: Apache-2.0 */
/* The load of CPUs that are not measured: they start and reap processes, fault pages, set timers and call the kernel. */
#pragma once

#include "affinity.h"
#include "demand.h"
#include "error.h"

struct forker;

struct housekeeping {
	struct cpu_list cpus;
	/* state */
	struct forker *forkers;
	uint64_t began_ns;
};

/* The CPUs in `text`, none of which is measured. */
bool housekeeping_parse(struct housekeeping *load, const char *text, const struct cpu_list *measured,
                        struct error *error);
void housekeeping_demand(const struct housekeeping *load, struct demand *demand);
/* Forks a process for each CPU, which waits: before there is memory that forking would make threads fault on. */
bool housekeeping_open(struct housekeeping *load, struct error *error);
bool housekeeping_begin(struct housekeeping *load, struct error *error);
/* To be called even where it did not begin on all CPUs. Returns how many processes were started per second; the error says which CPU was not loaded to the end. */
double housekeeping_end(struct housekeeping *load, struct error *error);
void housekeeping_close(struct housekeeping *load);
