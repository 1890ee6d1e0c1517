/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the kernel's work made which gap: traced events of one CPU, read as text, joined with its gaps by time. */
#pragma once

#include <stdio.h>

#include "gaps.h"

enum cause_class {
	CAUSE_INTERRUPT, /* of a device, by its line */
	CAUSE_TIMER,     /* the timer's interrupt, and what its expiry calls */
	CAUSE_IPI,       /* asked for by another CPU */
	CAUSE_VECTOR,    /* any other interrupt */
	CAUSE_NMI,
	CAUSE_SOFTIRQ,
	CAUSE_TASK, /* another thread ran */
	CAUSE_WORK, /* a kernel worker ran a queued function */
};

/* An event that reports comes at the end of what it is about, and says how long that took. One that accounts does so too, in the
 * books of the kernel's tracer osnoise, which are kept apart from ours. */
enum event_role { EVENT_BEGINS, EVENT_ENDS, EVENT_SWITCHES, EVENT_REPORTS, EVENT_ACCOUNTS };

/* One event of the kernel: what it begins or ends, and the fields that name it. An end's name is that of its beginning but
 * for the last word. */
struct trace_event {
	const char *system, *name;
	enum event_role role;
	enum cause_class class;
	const char *cause; /* how the cause is called; NULL: as the text after `label` up to one of `label_end` */
	const char *label, *label_end;
	const char *function; /* text before the function; NULL: none is told */
	const char *number;   /* text before the number of the interrupt line; NULL: none is told */
};

extern const struct trace_event trace_events[];
extern const size_t trace_event_count;

/* More kinds of work than this are not told apart: the rest is one. */
#define CAUSES_MAX 256u

struct cause {
	enum cause_class class;
	char name[48], function[64];
	int64_t number; /* interrupt line or thread; negative: none, or several threads of the name */
	/* results; times are the cause's own, without what interrupted it */
	uint64_t gaps, owned, events;
	double ticks, longest;
	/* in the gap at hand */
	uint64_t now_events;
	double now_ticks;
};

/* Classes that osnoise tells apart. */
#define NOISE_CLASSES 4u

/* What it accounts for, of one class: of each name its events in gaps and their net times. */
struct noise {
	struct cause list[CAUSES_MAX];
	size_t count;
};

/* The longest gaps: each is reported with its own cause. */
#define LONG_GAPS 20u

#define LONG_GAPS_UNOWNED SIZE_MAX

struct long_gap {
	struct gap gap;
	size_t owner; /* place in the list; `LONG_GAPS_UNOWNED`: no work explains half of it */
};

struct remainder {
	uint64_t gaps;
	double ticks, longest;
};

struct causes {
	struct cause list[CAUSES_MAX];
	size_t count;
	uint64_t gaps; /* told of */
	double ticks;  /* their time */
	/* `edges`: of gaps with events, what these do not cover and is short; `unexplained`: gaps without any, and what is too
	 * long to be an edge */
	struct remainder edges, unexplained;
	uint64_t unexplained_whole;         /* gaps without any event */
	struct long_gap longest[LONG_GAPS]; /* the longest first */
	size_t longest_kept;
	uint64_t lines, unreadable;
	struct noise noise[NOISE_CLASSES];
};

/* How events are put on the gaps' clock. */
struct trace_clock {
	bool counter;                 /* their times are ticks already */
	double tolerance;             /* how far they may be off, ticks */
	double raw_ns, ticks, per_ns; /* else: ticks = ticks + (their ns - raw_ns) * per_ns */
};

/* `thread` is the measuring one; `asleep`: it sleeps when a gap begins, and another may run then. Where events were lost,
 * gaps before the first that is left are skipped. False when the text cannot be read. */
bool causes_read(struct causes *causes, FILE *text, const struct gap *gaps, size_t count, int thread, bool asleep,
                 const struct trace_clock *clock, bool events_lost);
/* Writes the longest gaps as the array `key`, each with its owner; `at` returns the time of one in ns. To be called before
 * causes_write, which sorts the list. */
void causes_longest_write(struct json *json, const char *key, const struct causes *causes,
                          double (*at)(const void *, uint64_t), const void *of);
/* Writes causes, edges and the unexplained as members of the object that is open. */
void causes_write(struct json *json, struct causes *causes);
/* Writes what osnoise accounts for, as the array `key`. */
void noise_write(struct json *json, const char *key, struct causes *causes);
