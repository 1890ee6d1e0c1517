/* SPDX-License-Identifier: Apache-2.0 */
/* Reads "NAME=PMU/TERM[,TERM...]/", in which events and samples are asked for. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct notation_term {
	const char *name; /* with its "=", unless it has no value */
	uint64_t *value;
	int base; /* 16: 0x and digits; 10; 0: no value, set to 1 */
};

/* Takes a word made of `characters` alone, which must end at `end`; false where it is not that, or has no room. */
bool notation_word(const char **at, const char *characters, char end, char *word, size_t size);
/* The name of a PMU as sysfs has it, which must end at a slash. */
bool notation_source(const char **at, char *source, size_t size);
/* Takes terms up to the slash behind them, each once, and a bit for each into `seen`; false at the first that is not one. */
bool notation_terms(const char **at, const struct notation_term *terms, size_t count, unsigned *seen);
