/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic: one thread per CPU, each on its own buffers, all loaded from the first window to the last. Each thread
 * logs how far it is every half millisecond; windows are cut afterwards out of the time when all were running. */
#ifndef SUTPROBE_GENERATOR_H
#define SUTPROBE_GENERATOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "affinity.h"
#include "error.h"
#include "interference.h"
#include "load.h"
#include "memory.h"
#include "pmu.h"
#include "samples.h"
#include "worker.h"

struct generator_shape {
	enum load_mix mix;
	unsigned streams;
	size_t prefetch_bytes;
	uint64_t delay;
};

struct log_entry {
	uint64_t ticks;
	uint64_t lines; /* steps done since the start of this run, in lines of each array */
};

/* Lines done until `ticks`, interpolated between the entries around it. */
double log_at(const struct log_entry *log, size_t count, uint64_t ticks);

struct generator;

struct generator_thread {
	struct worker worker;
	struct generator *generator;
	unsigned cpu, node;
	struct region region;
	struct pages pages;
	struct load_call call;
	uint64_t pass;
	uint64_t sum;       /* of all words read into the checksum since the buffers were filled */
	size_t chunk_steps; /* per stream */
	struct log_entry *log;
	size_t log_capacity, logged;
	_Atomic uint64_t started; /* ticks, 0 before */
	double core_before, core_after;
	struct thread_counts counts;
	struct sampling sampling;
	bool verified; /* CPU */
};

struct generator {
	/* to be set before generator_open */
	const char *group;
	struct generator_shape shape;
	const struct load_width *width;
	size_t buffer_bytes;
	enum page_kind page_kind;
	struct page_choice chosen; /* by generator_admit */
	const uint64_t
		*delays; /* delays whose length the first thread measures on its CPU before it loads memory, or NULL */
	size_t delay_count;
	double *delay_ticks;                  /* one for each: the shortest found so far, 0 before */
	const struct sample_request *sampled; /* loads of all threads; NULL: none */
	const struct cpu_list *watched;       /* CPUs whose counters are read around a run; NULL: those of the group */
	struct course *course;                /* read every `course_s` in the windows of a run; or NULL */
	double course_s;
	double log_every_s; /* entries of the log lie so far apart at least; 0: a chunk */
	struct pmu *pmu;    /* events counted around the windows of a run, with room for all threads; or NULL */
	/* of the group */
	struct generator_thread *threads;
	size_t count;
	struct cpu_list cpus, nodes;
	struct pages pages;
	/* in a run */
	load_kernel kernel;
	bool again;  /* another run follows, else the threads check and end */
	bool refill; /* the shape changed so that the buffers must be proved and filled anew before the run */
	unsigned streams_next;
	_Atomic bool stop;
	_Atomic size_t arrived;
	uint64_t ends;   /* ticks at which the threads are to stop */
	uint64_t begins; /* ticks at which the windows begin */
	double run_s;    /* at most, so that there is room for all samples */
	struct snapshot before, after;
	struct samples samples;
};

/* Reads "0-3@0+4@1" into threads; a usage error where it is not that, or names a CPU twice. */
bool generator_parse_group(struct generator *generator, const char *group, struct error *error);
/* Asks for all that the demand has, and for these threads which pages they are to map. */
bool generator_admit(struct generator *generator, struct demand *demand, struct error *error);
/* Once admitted, starts the threads: pinned, buffers mapped, filled and proved in place; then waits for all. */
bool generator_open(struct generator *generator, struct error *error);
/* Changes streams, prefetch distance and delay between two runs of the same mix. */
void generator_reshape(struct generator *generator, const struct generator_shape *shape);
/* Lets all threads run for `seconds` counted from when the last of them began, then stops them. */
bool generator_run(struct generator *generator, double seconds, struct error *error);
/* The same for windows of so many seconds together, which begin (`begins`) when the threads have had time to settle and,
 * where events are counted, the counters have been read; they are read again when the windows have ended. */
bool generator_run_windows(struct generator *generator, double settle_s, double windows_s, struct error *error);
/* What the counters are told of the last run: steps of a thread, or of all. `context` is the generator. */
struct pmu_work generator_progress(void *context, size_t thread, uint64_t ticks);
/* False once a thread has ended with an error, after which there is no other run. */
bool generator_alive(const struct generator *generator);
/* The shortest time any thread needed between two entries of its log in the last run, of the slowest thread. */
uint64_t generator_chunk_ticks(const struct generator *generator);
/* The same of one log: what lies closer together than this is interpolated. */
uint64_t log_step(const struct log_entry *log, size_t count);
/* Ticks at which all threads were running in the last run; they run at least until its end. */
uint64_t generator_all_started(const struct generator *generator);
uint64_t generator_start_skew(const struct generator *generator);
/* Lines of each array one thread did until `ticks`, interpolated within its chunk. */
double generator_lines_at(const struct generator_thread *thread, uint64_t ticks);
/* Proves the work of all runs, and ends the threads. False with the first error found. */
bool generator_close(struct generator *generator, struct error *error);
void generator_free(struct generator *generator);
struct thread_counts generator_counts(const struct generator *generator);
double generator_core_before(const struct generator *generator);
double generator_core_after(const struct generator *generator);
bool generator_verified(const struct generator *generator);
/* The length of a delay of this mix on the calling thread's CPU, by itself: the shortest of a few tries. */
double generator_delay_ticks(enum load_mix mix, uint64_t units);
/* For those whose threads, as parsed, do other work: what all threads take with so many bytes each, and the logs of runs of so
 * many seconds; the first error of any thread, false where there is one; page sizes of all regions, their nodes having been
 * read. */
void generator_demand(const struct generator *generator, size_t thread_bytes, double seconds, struct demand *demand);
bool generator_take_errors(struct generator *generator, struct error *error);
void generator_read_sizes(struct generator *generator);
/* Bytes one thread maps. */
size_t generator_thread_bytes(enum load_mix mix, size_t buffer_bytes);

#endif
