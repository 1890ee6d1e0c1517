/* SPDX-License-Identifier: Apache-2.0 */
/* Options as a table: one row gives the parser, the usage text and the "parameters" object of the document. */
#pragma once

#include "error.h"

enum option_kind {
	OPTION_U64,      /* uint64_t, plain decimal digits */
	OPTION_F64,      /* double */
	OPTION_WORD,     /* const char *, one of `choices` */
	OPTION_WORDS,    /* struct word_list, each one of `choices`, separated by commas */
	OPTION_U64_LIST, /* struct u64_list, separated by commas */
	OPTION_TEXT,     /* const char * */
	OPTION_REPEATED, /* struct word_list, one word each time the option is given */
	OPTION_FLAG,     /* bool, true when the option is given; it takes no value */
};

struct u64_list {
	uint64_t *values;
	size_t count;
};

struct word_list {
	const char **words;
	size_t count;
};

struct option {
	const char *name; /* with its two dashes */
	enum option_kind kind;
	void *value;
	const char *placeholder;
	const char *help;
	const char *initial; /* as it would be typed; NULL: the option is required */
	const char *choices; /* "a|b|c", for words */
	uint64_t minimum;
	uint64_t maximum;
	bool optional; /* may be left out although it has no initial value */
};

bool options_parse(const struct option *options, size_t count, int argc, char **argv, struct error *error);
void options_usage(const struct option *options, size_t count);
void options_write(const struct option *options, size_t count, struct json *json);
/* False, with a usage error, where the value of an option is not more than 0, or no multiple. */
bool option_positive(const char *name, double value, struct error *error);
bool option_multiple(const char *name, uint64_t value, uint64_t of, struct error *error);
/* The place of a word among choices "a|b|c"; negative where it is none of them. */
int option_choice(const char *choices, const char *word);
/* Whole text as a decimal number, no sign, no blanks. */
bool options_u64(const char *text, uint64_t *value);
