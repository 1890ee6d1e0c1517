/* SPDX-License-Identifier: Apache-2.0 */
/* Gap detection: a loop that reads the clock and does nothing else; a step longer than a threshold is an interruption
 * with a start and a length. The time of every step is accounted for, so nothing is unobserved. */
#pragma once

#include "error.h"

/* Log2 buckets with eight parts each: a length is known to 12.5 % whatever its size. */
#define GAP_SUB_BITS 3
#define GAP_BUCKETS (64u << GAP_SUB_BITS)
/* What a ring holds: half an hour at 500 gaps a second. Beyond, gaps are counted, and only the longest are kept with
 * their time. */
#define GAP_RING (1u << 20)
/* What all rings of a process take: those of 32 CPUs are of full length, those of 255 hold 4000 gaps a second for half a
 * minute. */
#define GAP_RINGS_BYTES (512u << 20)
/* A core that slept takes some milliseconds to speed up, a governor looks every 10 ms. */
#define GAPS_WARM_UP_S 0.05
/* Once more after the last system call, for the caches. */
#define GAPS_LEAD_IN_S 0.001
/* Rates are reported of gaps at least so long. */
#define GAP_RATES 16u

struct gap {
	uint64_t at; /* ticks */
	uint64_t ticks;
};

struct gaps {
	/* to be set before gaps_run */
	uint64_t threshold_ticks;
	size_t capacity;
	struct gap *ring;    /* `capacity` entries, every page touched */
	struct gap *longest; /* a heap of the longest so far, the shortest of them first */
	size_t longest_wanted;
	const _Atomic bool *stop; /* looked at every 10 ms; NULL: nobody will */
	/* results */
	uint64_t begin, end; /* ticks */
	uint64_t turns;
	uint64_t count;
	uint64_t lost_ticks;
	uint64_t max_ticks;
	uint64_t recording_ticks;
	uint64_t backward; /* reads that came before the one before; the step was then taken again */
	uint64_t bucket_count[GAP_BUCKETS];
	uint64_t bucket_ticks[GAP_BUCKETS];
	size_t kept;
	size_t longest_kept;
	uint64_t rate_count[GAP_RATES];
};

struct gap_turns {
	double minimum, median; /* ticks */
};

/* Entries of each of so many rings. */
size_t gaps_capacity(size_t rings);
/* Bytes that gaps_open takes. */
size_t gaps_bytes(size_t capacity, size_t longest);
/* Memory for the ring and for so many longest gaps, locked where that is allowed. */
bool gaps_open(struct gaps *gaps, size_t capacity, size_t longest, struct error *error);
/* Times turns of the loop when nothing is recorded: what the threshold is derived from. */
struct gap_turns gaps_turns(void);
/* Enters one gap into the books. */
void gaps_record(struct gaps *gaps, uint64_t at, uint64_t ticks);
/* Ends the recording: puts the longest gaps into order, the longest first, and counts gaps by length. */
void gaps_close(struct gaps *gaps);
/* Runs the loop and its recording for so long and leaves no trace in the books: what is observed next does not begin with the
 * program's own faults and misses, and a core that speeds up. */
void gaps_warm_up(struct gaps *gaps, double seconds);
/* Observes for so many ticks, or until told to stop. */
void gaps_run(struct gaps *gaps, uint64_t ticks);
unsigned gaps_bucket(uint64_t ticks);
/* First length that falls into a bucket. */
uint64_t gaps_bucket_from(unsigned bucket);
/* Writes wall_s ... ring_full of what was closed; the rest of the object is the caller's. */
void gaps_write(struct json *json, const struct gaps *gaps, const struct gap_turns *turns);
