/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the kernel's texts in one pass. Some C libraries implement strchr, strcspn, strtok_r, strstr and strtoull with a
 * strlen of all that remains, which makes a table of a thousand lines quadratic: these are plain loops. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Cuts what comes before the next `end` off *rest, which moves past it; NULL once all is cut. Like strsep. */
char *text_cut(char **rest, char end);
/* Where `word` ends at the start of `text`; NULL where the text begins otherwise. */
const char *text_after(const char *text, const char *word);
/* The line after the one at `text`; NULL after the last. */
const char *text_next_line(const char *text);
/* The decimal number, after blanks, of a line that begins with `key`; of the first such line of a text. False where there
 * is none. */
bool text_line_number(const char *line, const char *key, uint64_t *value);
bool text_number_of(const char *text, const char *key, uint64_t *value);
/* Reads a hexadecimal number at *text, which moves past it; false, and nothing moves, where there is none. */
bool text_hex(const char **text, uint64_t *value);

/* The rest is called for every number of a table of a million, and is inlined for that. */

/* The first character that is neither blank nor tab. */
static inline const char *text_skip_blanks(const char *text)
{
	while (*text == ' ' || *text == '\t')
		text++;
	return text;
}

/* The same as text_hex for a decimal number. */
static inline bool text_decimal(const char **text, uint64_t *value)
{
	const char *at = *text;
	if (*at < '0' || *at > '9')
		return false;
	for (*value = 0; *at >= '0' && *at <= '9'; at++)
		*value = *value * 10 + (uint64_t)(*at - '0');
	*text = at;
	return true;
}
