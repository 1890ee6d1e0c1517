// SPDX-License-Identifier: Apache-2.0
#include "notation.h"

#include <stdlib.h>
#include <string.h>

#include "options.h"

#define SOURCE_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-:"
#define HEX_DIGITS "0123456789abcdefABCDEF"
/* "0x" and 16 digits. */
#define NUMBER_MAX 18u

bool notation_word(const char **at, const char *characters, char end, char *word, size_t size)
{
	size_t length = strspn(*at, characters);
	if (length == 0 || length >= size || (*at)[length] != end)
		return false;
	memcpy(word, *at, length);
	word[length] = '\0';
	*at += length + 1;
	return true;
}

bool notation_source(const char **at, char *source, size_t size)
{
	return **at != '.' && notation_word(at, SOURCE_CHARACTERS, '/', source, size);
}

static bool parse_number(const char *text, size_t length, int base, uint64_t *value)
{
	char digits[NUMBER_MAX + 1];
	if (length > NUMBER_MAX)
		return false;
	memcpy(digits, text, length);
	digits[length] = '\0';
	if (base == 10)
		return options_u64(digits, value);
	if (length < 3 || strncmp(digits, "0x", 2) != 0 || strspn(digits + 2, HEX_DIGITS) != length - 2)
		return false;
	*value = strtoull(digits, NULL, 16);
	return true;
}

static bool parse_term(const struct notation_term *term, const char *text, size_t length)
{
	size_t width = strlen(term->name);
	if (length < width || strncmp(text, term->name, width) != 0)
		return false;
	if (term->base)
		return parse_number(text + width, length - width, term->base, term->value);
	*term->value = 1;
	return length == width;
}

bool notation_terms(const char **at, const struct notation_term *terms, size_t count, unsigned *seen)
{
	for (bool more = true; more;) {
		size_t length = strcspn(*at, ",/"), number = 0;
		while (number < count && !parse_term(&terms[number], *at, length))
			number++;
		if (number == count || *seen >> number & 1 || (*at)[length] == '\0')
			return false;
		*seen |= 1u << number;
		more = (*at)[length] == ',';
		*at += length + 1;
	}
	return true;
}
