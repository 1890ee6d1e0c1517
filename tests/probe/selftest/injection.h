/* SPDX-License-Identifier: Apache-2.0 */
/* Known answers for the gap loop: interruptions of known number, length and period are made on the measured CPU, and each
 * must be found, on top of whatever else disturbs the machine. */
#pragma once

#include <signal.h>
#include <stdatomic.h>

#include "error.h"
#include "gaps.h"
#include "json.h"

/* musl has this name for the thread a timer signals; older glibc has only the member behind it. */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* Gaps made on purpose: when each was, and for how long. */
struct made_gaps {
	struct gap *list;
	size_t capacity;
	_Atomic size_t count;
};

/* Takes the CPU for so many ticks and notes when. */
void make_gap(struct made_gaps *made, uint64_t ticks);

/* Seconds that each mechanism is watched for. */
extern double injection_s;

/* 5 us at 1 kHz, 20 us at 250 Hz and 200 us at 10 Hz at the same time: by timer signals on the measuring thread, and by
 * injector threads on its CPU. False when something was missed that this machine let be found. */
bool injection_by_signal(struct error *error);
bool injection_by_injector(struct error *error);
/* What was found of each train so far, as a member "injections". */
void injection_write(struct json *json);
