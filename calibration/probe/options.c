// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "text.h"

bool options_u64(const char *text, uint64_t *value)
{
	if (*text == '\0' || strspn(text, "0123456789") != strlen(text))
		return false;
	errno = 0;
	*value = strtoull(text, NULL, 10);
	return errno == 0;
}

static bool parse_f64(const char *text, double *value)
{
	char *end;
	if (*text == '\0' || *text == '+' || strspn(text, "0123456789.eE-+") != strlen(text))
		return false;
	errno = 0;
	*value = strtod(text, &end);
	return errno == 0 && *end == '\0' && isfinite(*value);
}

static int choose(const char *choices, const char *word, size_t length)
{
	const char *at = choices;
	for (int place = 0; *at; place++) {
		size_t width = strcspn(at, "|");
		if (width == length && !strncmp(at, word, length))
			return place;
		at += width + (at[width] == '|');
	}
	return -1;
}

int option_choice(const char *choices, const char *word)
{
	return choose(choices, word, strlen(word));
}

static void append_word(struct word_list *list, const char *word, size_t length)
{
	list->words = reallocate(list->words, list->count + 1, sizeof(*list->words));
	list->words[list->count++] = allocate_text(word, length);
}

static bool range_error(const struct option *option, const char *text, struct error *error)
{
	return error_set(error, ERROR_USAGE, "%s: must be %s from %" PRIu64 " to %" PRIu64 ", not '%s'", option->name,
	                 option->kind == OPTION_F64        ? "a number"
	                 : option->kind == OPTION_U64_LIST ? "whole numbers"
	                                                   : "a whole number",
	                 option->minimum, option->maximum, text);
}

bool option_positive(const char *name, double value, struct error *error)
{
	return value > 0 || error_set(error, ERROR_USAGE, "%s: must be more than 0, not %g", name, value);
}

bool option_multiple(const char *name, uint64_t value, uint64_t of, struct error *error)
{
	return value % of == 0 ||
	       error_set(error, ERROR_USAGE, "%s: must be a multiple of %" PRIu64 ", not %" PRIu64, name, of, value);
}

static bool parse_u64_list(const struct option *option, const char *text, struct error *error)
{
	struct u64_list *list = option->value;
	char *copy = allocate_text(text, strlen(text)), *rest = copy;
	bool good = true;
	list->count = 0;
	for (char *at = text_cut(&rest, ','); good && at; at = text_cut(&rest, ',')) {
		uint64_t value = 0;
		good = options_u64(at, &value) && value >= option->minimum && value <= option->maximum;
		list->values = reallocate(list->values, list->count + 1, sizeof(*list->values));
		list->values[list->count++] = value;
	}
	free(copy);
	return good || range_error(option, text, error);
}

static bool parse_words(const struct option *option, const char *text, struct error *error)
{
	struct word_list *list = option->value;
	list->count = 0;
	for (const char *at = text;;) {
		size_t width = strcspn(at, ",");
		if (choose(option->choices, at, width) < 0)
			return error_set(error, ERROR_USAGE, "%s: must be words of %s separated by commas, not '%s'", option->name,
			                 option->choices, text);
		append_word(list, at, width);
		if (at[width] == '\0')
			return true;
		at += width + 1;
	}
}

static bool parse_value(const struct option *option, const char *text, struct error *error)
{
	switch (option->kind) {
	case OPTION_U64: {
		uint64_t value;
		if (!options_u64(text, &value) || value < option->minimum || value > option->maximum)
			return range_error(option, text, error);
		*(uint64_t *)option->value = value;
		return true;
	}
	case OPTION_F64: {
		double value;
		if (!parse_f64(text, &value) || value < (double)option->minimum || value > (double)option->maximum)
			return range_error(option, text, error);
		*(double *)option->value = value;
		return true;
	}
	case OPTION_WORD:
		if (option_choice(option->choices, text) < 0)
			return error_set(error, ERROR_USAGE, "%s: must be one of %s, not '%s'", option->name, option->choices,
			                 text);
		*(const char **)option->value = text;
		return true;
	case OPTION_WORDS:
		return parse_words(option, text, error);
	case OPTION_U64_LIST:
		return parse_u64_list(option, text, error);
	case OPTION_TEXT:
		*(const char **)option->value = text;
		return true;
	case OPTION_REPEATED:
		append_word(option->value, text, strlen(text));
		return true;
	case OPTION_FLAG:
		break; /* has no value to parse */
	}
	return error_set(error, ERROR_INTERNAL, "option %s takes no value", option->name);
}

bool options_parse(const struct option *options, size_t count, int argc, char **argv, struct error *error)
{
	bool *seen = allocate(count, sizeof(*seen)), good = true;
	for (int i = 0; good && i < argc; i++) {
		size_t found = 0;
		while (found < count && strcmp(options[found].name, argv[i]) != 0)
			found++;
		if (found == count)
			good =
				error_set(error, ERROR_USAGE, "'%s' is not an option of this subcommand; --help lists them", argv[i]);
		else if (seen[found] && options[found].kind != OPTION_REPEATED)
			good = error_set(error, ERROR_USAGE, "%s is given twice; give it once", argv[i]);
		else if (options[found].kind == OPTION_FLAG)
			*(bool *)options[found].value = true;
		else if (i + 1 == argc)
			good = error_set(error, ERROR_USAGE, "%s: needs a value", argv[i]);
		else
			good = parse_value(&options[found], argv[++i], error);
		if (good)
			seen[found] = true;
	}
	for (size_t i = 0; good && i < count; i++) {
		if (seen[i] || options[i].optional)
			continue;
		if (options[i].kind == OPTION_FLAG)
			*(bool *)options[i].value = false;
		else if (!options[i].initial)
			good = error_set(error, ERROR_USAGE, "%s is required and missing; --help explains it", options[i].name);
		else
			good = parse_value(&options[i], options[i].initial, error);
	}
	free(seen);
	return good;
}

void options_usage(const struct option *options, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct option *option = &options[i];
		fprintf(stderr, "  %s", option->name);
		if (option->kind != OPTION_FLAG)
			fprintf(stderr, " %s", option->choices ? option->choices : option->placeholder);
		if (option->kind == OPTION_WORDS)
			fprintf(stderr, "[,...]");
		if (option->kind == OPTION_REPEATED)
			fprintf(stderr, " (may be given several times)");
		fprintf(stderr, "\n      %s", option->help);
		if (option->initial)
			fprintf(stderr, " (default %s)", option->initial);
		else if (!option->optional && option->kind != OPTION_FLAG)
			fprintf(stderr, " (required)");
		fprintf(stderr, "\n");
	}
}

void options_write(const struct option *options, size_t count, struct json *json)
{
	for (size_t i = 0; i < count; i++) {
		const struct option *option = &options[i];
		char key[64];
		snprintf(key, sizeof(key), "%s", option->name + 2);
		for (char *c = key; *c; c++)
			if (*c == '-')
				*c = '_';
		const struct u64_list *numbers = option->value;
		const struct word_list *words = option->value;
		switch (option->kind) {
		case OPTION_U64:
			json_u64(json, key, *(const uint64_t *)option->value);
			break;
		case OPTION_F64:
			json_f64(json, key, *(const double *)option->value);
			break;
		case OPTION_FLAG:
			json_bool(json, key, *(const bool *)option->value);
			break;
		case OPTION_WORD:
		case OPTION_TEXT:
			json_text(json, key, *(const char *const *)option->value);
			break;
		case OPTION_U64_LIST:
			json_u64s(json, key, numbers->values, numbers->count);
			break;
		case OPTION_WORDS:
		case OPTION_REPEATED:
			json_array_begin(json, key);
			for (size_t k = 0; k < words->count; k++)
				json_text(json, NULL, words->words[k]);
			json_array_end(json);
			break;
		}
	}
}
