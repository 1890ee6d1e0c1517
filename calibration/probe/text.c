// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include <stddef.h>

char *text_cut(char **rest, char end)
{
	char *start = *rest, *at = start;
	if (!start)
		return NULL;
	while (*at && *at != end)
		at++;
	*rest = *at ? at + 1 : NULL;
	*at = '\0';
	return start;
}

const char *text_after(const char *text, const char *word)
{
	while (*word && *text == *word) {
		text++;
		word++;
	}
	return *word ? NULL : text;
}

const char *text_next_line(const char *text)
{
	while (*text && *text != '\n')
		text++;
	return text[0] && text[1] ? text + 1 : NULL;
}

static int hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

bool text_hex(const char **text, uint64_t *value)
{
	const char *at = *text;
	if (hex_digit(*at) < 0)
		return false;
	for (*value = 0; hex_digit(*at) >= 0; at++)
		*value = *value * 16 + (uint64_t)hex_digit(*at);
	*text = at;
	return true;
}

bool text_line_number(const char *line, const char *key, uint64_t *value)
{
	const char *at = text_after(line, key);
	if (!at)
		return false;
	at = text_skip_blanks(at);
	return text_decimal(&at, value);
}

bool text_number_of(const char *text, const char *key, uint64_t *value)
{
	for (const char *line = text; line; line = text_next_line(line))
		if (text_line_number(line, key, value))
			return true;
	return false;
}
