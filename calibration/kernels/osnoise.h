/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's tracer osnoise, run without its own workload, so that it accounts for what interrupts ours. That it has none is
 * a setting of the whole machine: it is changed for as long as the tracer runs, and only where nobody else uses it. */
#pragma once

#include "affinity.h"

struct osnoise {
	char refused[256]; /* why it is not used; empty: it is */
	int settings;      /* their directory, locked while it is open; negative: none */
	/* The instance that the tracer runs in, apart from the recording one, which a change of tracer would empty. It exists as
	 * long as the setting is changed, so that whoever finds it knows. */
	char name[48];
	int held; /* a file of it: what is open cannot be removed by others; negative: the setting is as it was */
};

/* Looks whether it can be used for those CPUs; changes nothing. `instances` is the directory of tracefs's instances, in which
 * the recording one is called `own`. */
void osnoise_open(struct osnoise *osnoise, int instances, const char *own, const struct cpu_list *cpus);
/* Turns the workload off and the tracer on; false with `refused`, and all as it was. */
bool osnoise_take(struct osnoise *osnoise, int instances);
/* Turns the tracer off and the workload on; false where that is not what is read back. */
bool osnoise_give_back(struct osnoise *osnoise, int instances);
void osnoise_close(struct osnoise *osnoise);
/* Does what osnoise_give_back does for an instance that another process left, if there is one of that name. */
bool osnoise_mend(int instances, const char *name);
