/* SPDX-License-Identifier: Apache-2.0 */
/* What reading the machine's counters may cost. The kernel makes its tables anew for every reader: with hundreds of CPUs
 * and thousands of interrupt lines one reading takes as long as a measurement. All of them together may take a small share
 * of a command's time; what costs more is read around fewer measurements, and the document says so. Looking costs CPU
 * time: having to wait for a CPU, or for a lock, is no cost of it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct json;

enum look { LOOK_STAT, LOOK_SOFTIRQS, LOOK_VMSTAT, LOOK_THROTTLE, LOOK_SMI, LOOK_INTERRUPTS, LOOK_PAGES, LOOKS };

/* The command's time runs from here on. */
void looking_begin(void);
/* After one reading, by any thread; `start_ns` is what clock_cpu_ns gave before. `whole`: it was not given up. */
void looking_end(enum look look, uint64_t start_ns, bool whole);
/* Seconds that the first of so many readings may take now: 0 where they would take too long, no limit where it is known
 * that they do not. */
double looking_limit(enum look look, unsigned readings);
/* A measurement is looked at; this was left out, because it would take too long. */
void looking_count(void);
void looking_leave_out(enum look look);
/* Around how many measurements it was. */
uint64_t looking_left_out(enum look look);
/* Whether any measurement was looked at. */
bool looking_any(void);
/* Warns of all that was left out. */
void looking_warn(void);
/* Members of the object that is open: what looking took, and what was left out how often. */
void looking_write(struct json *json);
