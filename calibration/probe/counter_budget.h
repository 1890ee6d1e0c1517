/* SPDX-License-Identifier: Apache-2.0 */
/* What reading the machine's counters may cost. The kernel makes its tables anew for every reader: with hundreds of CPUs
 * and thousands of interrupt lines one reading takes as long as a measurement. All of them together may take a small share
 * of a command's time; what costs more is read around fewer measurements, and the document says so. Reading costs CPU
 * time: having to wait for a CPU, or for a lock, is no cost of it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct json;

enum counter_source {
	COUNTER_STAT,
	COUNTER_SOFTIRQS,
	COUNTER_VMSTAT,
	COUNTER_THROTTLE,
	COUNTER_SMI,
	COUNTER_INTERRUPTS,
	COUNTER_PAGES,
	COUNTER_SOURCES
};

/* The command's time runs from here on. */
void counter_budget_begin(void);
/* After one reading, by any thread; `start_ns` is what clock_cpu_ns gave before. `whole`: it was not given up. */
void counter_budget_end(enum counter_source source, uint64_t start_ns, bool whole);
/* Seconds that the first of so many readings may take now: 0 where they would take too long, no limit where it is known
 * that they do not. */
double counter_budget_limit(enum counter_source source, unsigned readings);
/* A measurement is looked at; this was left out, because it would take too long. */
void counter_budget_count(void);
void counter_budget_leave_out(enum counter_source source);
/* Around how many measurements it was. */
uint64_t counter_budget_left_out(enum counter_source source);
/* Whether any measurement was looked at. */
bool counter_budget_any(void);
/* Warns of all that was left out. */
void counter_budget_warn(void);
/* Members of the object that is open: what reading took, and what was left out how often. */
void counter_budget_write(struct json *json);
