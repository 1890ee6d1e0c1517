/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of this directory share. Each asks code of sutprobe that needs no SUT, prints a line for each case, and
 * exits with 0, or with 1 where an answer was wrong. */
#pragma once

#include <stdio.h>

#include "selftest.h"
#include "subcommand.h"

/* Main's, which has a main of its own. */
void supervise_avoid(const struct cpu_list *measured)
{
	(void)measured;
}

struct host_case {
	const char *name;
	bool (*run)(struct error *error);
};

static int host_run(const struct host_case *cases, size_t count)
{
	size_t failed = 0;
	for (size_t i = 0; i < count; i++) {
		struct error error = {0};
		bool good = cases[i].run(&error);
		printf("%s %s%s%s\n", good ? "ok" : "failed", cases[i].name, good ? "" : ": ", error.message);
		failed += !good;
	}
	return failed > 0;
}

#define CASE(name) {#name, case_##name}
/* The end of a program that has nothing else to do before its cases. */
#define HOST_CASES(...)                                                                                                \
	int main(void)                                                                                                     \
	{                                                                                                                  \
		static const struct host_case cases[] = {__VA_ARGS__};                                                         \
		return host_run(cases, sizeof(cases) / sizeof(cases[0]));                                                      \
	}
