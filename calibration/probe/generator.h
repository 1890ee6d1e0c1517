/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic: one thread per CPU, each on a buffer of its own, all loaded from the first window to the last. Each thread
 * logs how far it is every half millisecond; windows are cut afterwards out of the time when all were running.
 *
 * Buffers outlive a run: one placement serves every group of threads, every mix and every size up to its own. Between
 * runs each holds the pattern that it was filled with, which the proof of a run restores where the run wrote. */
#pragma once

#include <stdatomic.h>

#include "affinity.h"
#include "error.h"
#include "evidence.h"
#include "load.h"
#include "progress.h"
#include "worker.h"

/* The threads run on so much longer than the last window, and what walks beside them: two of the longest chunks, so that those
 * begun in the window end while all still run. */
#define GENERATOR_TAIL_S 0.002

/* Memory of one node, or spread over several, that one thread at a time works on. */
struct buffer {
	struct spread spread; /* its nodes; one, with no weight, where it is not spread */
	unsigned node;        /* the first of them */
	size_t bytes;         /* what any run needs of it */
	size_t filler;        /* the thread that maps and fills it: on its node, where there is one */
	struct region region;
	struct pages pages;
	uint64_t *shares;   /* pages on each of its nodes, where there are several; else NULL */
	struct error error; /* why it could not be had */
};

/* Threads that run together, and the buffer that each works on, by their places in the generator. */
struct group {
	char *text;
	struct cpu_list cpus, nodes;
	size_t *threads, *buffers;
	size_t *bytes; /* of each thread's arrays; 0: those of the run */
	size_t count;
};

struct generator;

struct generator_thread {
	struct worker worker; /* its context is this thread */
	struct generator *generator;
	unsigned cpu;
	struct buffer *buffer; /* of this run */
	size_t buffer_bytes;   /* of each array in this run */
	struct load_call call;
	uint64_t pass;
	uint64_t sum;       /* of all words read into the checksum in this run */
	size_t chunk_steps; /* per stream */
	struct progress log;
	_Atomic uint64_t started; /* ticks, 0 before */
	struct stretch stretch;
	struct sampling sampling;
	struct error wrong; /* what the proof of this run found */
};

struct generator {
	/* to be set before generator_open */
	const struct load_width *width;
	enum page_kind page_kind;
	struct page_choice chosen;            /* by generator_admit */
	const struct sample_request *sampled; /* loads of all threads; NULL: none */
	const struct cpu_list *watched;       /* CPUs whose counters are read around a run; NULL: those of the run */
	struct telemetry *telemetry;          /* read every `telemetry_interval_s` in the windows of a run; or NULL */
	double telemetry_interval_s;
	double log_every_s; /* entries of the log lie so far apart at least; 0: a chunk */
	struct pmu *pmu;    /* events counted around the windows of a run, with room for all threads; or NULL */
	/* of all groups */
	struct generator_thread *threads;
	size_t count;
	struct buffer *buffers;
	size_t buffer_count;
	struct group *groups;
	size_t group_count;
	struct pages sizes; /* of the pages of all buffers */
	/* in a run */
	const struct group *group;
	struct load_shape shape;
	load_kernel kernel;
	_Atomic bool stop;
	_Atomic size_t arrived;
	uint64_t ends;   /* ticks at which the threads are to stop */
	uint64_t begins; /* ticks at which the windows begin */
	double run_s;    /* at most, so that there is room for all samples */
	struct snapshot before, after;
	struct samples samples;
};

/* -- which threads on which buffers (generator_groups.c) -- */

/* Adds the group "0-3@0+4@1", or "0-3@0:65536+4@0*3,1*1" where a part may say how large its threads' arrays are, and how they
 * are spread over several nodes; a usage error where it is not that, or names a CPU twice. Threads and buffers are shared with
 * the groups before: a thread is a CPU's, and the nth thread of a group on a node, or spread so, has the nth such buffer. */
bool generator_parse_group(struct generator *generator, const char *text, bool sized, struct error *error);
/* Makes the buffers of a group large enough for so many arrays of `buffer_bytes`, or of what their part says. */
void generator_need(struct generator *generator, const struct group *group, unsigned arrays, size_t buffer_bytes);
/* How large the arrays of the group's nth thread are in a run with `buffer_bytes`. */
size_t generator_thread_bytes(const struct group *group, size_t thread, size_t buffer_bytes);
/* Where the kth array of a thread begins. */
unsigned char *generator_array(const struct generator_thread *thread, unsigned k);
/* Adds what buffers and threads take, and the logs of runs of so many seconds. */
void generator_demand(const struct generator *generator, double seconds, struct demand *demand);
/* Begins a placement: forgets why buffers could not be had before, and reads the weights of those that the kernel spreads. */
void generator_begin(struct generator *generator);
/* Asks for all that the demand has, and for these buffers which pages are to be mapped. */
bool generator_admit(struct generator *generator, struct demand *demand, struct error *error);
/* Gives up the buffers of a node that has no room for them; false where none are left. */
bool generator_refuse(struct generator *generator, unsigned node, const struct error *error);
/* Entries that a log of so many seconds has room for. */
size_t generator_log_capacity(const struct generator *generator, double seconds);
/* Says for each buffer which thread maps and fills it. */
void generator_choose_fillers(struct generator *generator);
/* Pages of the buffers of the group that runs. */
struct pages generator_pages(const struct generator *generator);
/* Of those that are spread, how many lie on each of `nodes`, which it fills; NULL where none is. */
uint64_t *generator_shares(const struct generator *generator, struct cpu_list *nodes);

/* -- what buffers hold, and the proof of a run (generator_proof.c) -- */

void buffer_fill(struct buffer *buffer);
/* A job of a thread: proves its last run word by word where it wrote, and makes the buffer what it was before. */
void generator_prove_thread(struct worker *worker);

/* -- runs -- */

/* Once admitted, starts the threads: pinned, buffers mapped, filled and proved in place, by threads on their node where there are any;
 * then waits for all. Buffers that could not be had, and threads that could not be pinned while others were, are no error of it. */
bool generator_open(struct generator *generator, struct error *error);
/* False with the reason where a thread of a group could not be pinned, or a buffer could not be had or, once closed, did not
 * stay where it was. */
bool generator_has(const struct generator *generator, const struct group *group, struct error *error);
/* Says who runs next, how, and on how much of the buffers; false where one of these could not be had. */
bool generator_select(struct generator *generator, const struct group *group, const struct load_shape *shape,
                      size_t buffer_bytes, struct error *error);
/* Lets all threads of the group do a job; false with the first error of any. */
bool generator_do(struct generator *generator, worker_job job, struct error *error);
/* Lets all threads run for windows of so many seconds together, then stops them. The windows begin (`begins`) when the last
 * thread runs, all have had time to settle and, where events are counted, the counters have been read; they are read again
 * when the windows have ended. */
bool generator_run_windows(struct generator *generator, double settle_s, double windows_s, struct error *error);
/* Moves what is known of the last run into the evidence, but for its seed and counters. */
void generator_take_evidence(struct generator *generator, struct evidence *evidence);
/* Adds the lines of each array per tick of all threads, in each of so many windows of the last run, and of each thread over
 * all of them to `thread_rates` unless that is NULL. */
void generator_add_rates(const struct generator *generator, double *window_rates, double *thread_rates,
                         uint64_t windows, double window_ticks);
/* The work of the last run that counters divide by: steps of a thread, or of all. `context` is the generator. */
struct pmu_work generator_progress(void *context, size_t thread, uint64_t ticks);
/* Proves the work of the last run, and makes the buffers what they were before it. */
bool generator_prove(struct generator *generator, struct error *error);
/* False once a thread of the group has an error, after which it has no other run. */
bool generator_alive(const struct generator *generator);
/* The shortest time any thread needed between two entries of its log in the last run, of the slowest thread. */
uint64_t generator_chunk_ticks(const struct generator *generator);
/* How long after the first thread the last one began. */
uint64_t generator_start_skew(const struct generator *generator);
/* Proves the buffers to be in place still, each by itself, and ends the threads. */
void generator_close(struct generator *generator);
/* The length of a delay of this mix on the calling thread's CPU, by itself: the shortest of a few tries. */
double generator_delay_ticks(enum load_mix mix, uint64_t units);
