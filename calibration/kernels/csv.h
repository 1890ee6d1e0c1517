/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in the columns that sc-membench prints, for tools that read those. A subcommand that offers --csv adds a row for
 * each point; they are printed in place of the document. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "error.h"

/* What does not apply to an operation is 0, as in the original. */
struct csv_row {
	uint64_t size_bytes;   /* of one array of one thread; printed in whole KiB */
	const char *operation; /* "read", "write", "copy", "latency", or a name of our own without a comma */
	double bandwidth_mb_s; /* program bytes of all threads, 10^6 B/s; a copy counts the bytes copied once */
	double latency_ns;     /* median */
	double latency_stddev_ns;
	uint64_t latency_samples;
	uint64_t threads;
	uint64_t iterations; /* passes over the buffer; samples for latency */
	double elapsed_s;    /* time measured for this row */
};

/* From the working thread only. */
void csv_add(const struct csv_row *row);
/* Instead of a row for what has no figure, since 0 would be one: said on stderr, with the reason. */
void csv_lost(const char *what, const struct error *error);

/* For the supervising thread, when the working one has ended: the header and all rows, to be freed by the caller. NULL
 * with the error when a figure was not finite. */
char *csv_text(struct error *error);
