/* SPDX-License-Identifier: Apache-2.0 */
/* What a subcommand is: one row of the const table that drives dispatch, usage and the document. */
#pragma once

#include "affinity.h"
#include "error.h"
#include "json.h"
#include "options.h"

struct subcommand {
	const char *name;
	const char *summary;
	const struct option *options;
	size_t option_count;
	/* Checks the options against one another; NULL when there is nothing to check. */
	bool (*prepare)(struct error *error);
	/* Measures, and writes one object. Runs in its own thread; false with the error when nothing was measured. Told to
	 * stop (stopping.h), it returns soon with what is complete; the document's error is then not its to set. */
	bool (*run)(struct json *result, struct error *error);
};

/* A table of options with its length, as the two fields have it. */
#define SUBCOMMAND_OPTIONS(table) (table), sizeof(table) / sizeof((table)[0])

/* Defines one. The build finds these in the sources, one a file at most, and makes the table of them. */
#define SUBCOMMAND(name)                                                                                               \
	extern const struct subcommand name##_subcommand;                                                                  \
	const struct subcommand name##_subcommand

/* Two that the build writes, in a file of their own, so that a change of any source or flag compiles no other file again:
 * all subcommands by name, ended by NULL, and how these bytes were made. */
extern const struct subcommand *const subcommands[];
extern const struct build_info {
	const char *version, *target, *compiler, *flags, *source_sha256;
} build_info;

/* Moves the supervising threads away from the CPUs about to be measured, where the affinity mask has others. */
void supervise_avoid(const struct cpu_list *measured);
