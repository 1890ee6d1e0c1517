/* SPDX-License-Identifier: Apache-2.0 */
/* A latency probe beside a load: one thread walks a chain and logs how far it is, until told to stop. */
#pragma once

#include <stdatomic.h>

#include "chain.h"
#include "demand.h"
#include "evidence.h"
#include "memory.h"
#include "pmu.h"
#include "progress.h"
#include "worker.h"

struct probe {
	struct worker worker;
	/* to be set before probe_open */
	unsigned cpu, node;
	struct chain chain;
	enum page_kind page_kind;
	struct page_choice chosen;
	struct pmu *pmu; /* events of probes to count, or NULL, and which of its threads this one is */
	size_t pmu_thread;
	/* state */
	struct region region;
	struct pages pages;
	struct progress log;
	_Atomic bool stop;
	_Atomic uint64_t started;
	struct stretch stretch;
};

/* What probe_open and runs of so many seconds take, of a probe that is set but for its seed. */
void probe_demand(const struct probe *probe, double seconds, struct demand *demand);
/* Starts the thread, which builds its chain and proves it in place. */
bool probe_open(struct probe *probe, struct error *error);
/* Returns when the probe walks; it does until probe_end, for so many seconds at most. */
void probe_begin(struct probe *probe, double seconds);
bool probe_end(struct probe *probe, struct error *error);
/* Ticks per hop in each of so many windows from `begin`. False when it made no hop in one, which no latency can explain. */
bool probe_cut_windows(const struct probe *probe, uint64_t begin, double window_ticks, uint64_t windows, double *ticks,
                       double *hops_per_tick);
/* Proves that the chain is still in place, and ends the thread. */
void probe_close(struct probe *probe, struct error *error);
