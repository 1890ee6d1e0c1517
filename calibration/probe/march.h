/* SPDX-License-Identifier: Apache-2.0 */
/* A march over memory: every line is read, compared with what the pass before wrote there, and written with the next
 * pattern; one pass goes up, the next one down. Each pattern is followed by its complement, so that every bit is seen as 0
 * and as 1 and has changed in both directions:
 *   random   what a line holds follows from its number and the pass: a line at a wrong address, or an old one, differs
 *   address  a word holds its own number of bytes: two addresses that lead to one place differ
 *   walking  one bit of each word is set, another one from line to line: bits that influence their neighbours */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MARCH_LINE_BYTES 64u
#define MARCH_LINE_WORDS (MARCH_LINE_BYTES / 8)

typedef uint64_t march_line __attribute__((vector_size(MARCH_LINE_BYTES), may_alias));

enum march_rule { MARCH_RANDOM, MARCH_ADDRESS, MARCH_WALKING, MARCH_RULES };

struct march_pattern {
	enum march_rule rule;
	uint64_t key;
	march_line words; /* what distinguishes the words of a line, and the complement */
};

/* Called for each word that differs. `again` is what it holds when it is read once more, past the caches where an
 * instruction can do that. */
typedef void (*march_report)(void *context, const unsigned char *word, uint64_t expected, uint64_t found,
                             uint64_t again);

/* Lines in a row; the first has this number among all lines that are tested. */
struct march {
	unsigned char *start; /* of a line */
	uint64_t number;
	march_report report;
	void *context;
};

/* The pattern of a pass. */
struct march_pattern march_pattern_of(uint64_t seed, uint64_t pass);
/* The value of a word of the line with this number. */
uint64_t march_word(const struct march_pattern *pattern, uint64_t line, unsigned word);
/* `count` lines from `first` on, of those that begin at `start`. */
void march_write(const struct march *march, uint64_t first, uint64_t count, const struct march_pattern *next);
void march_verify(const struct march *march, uint64_t first, uint64_t count, const struct march_pattern *held);
/* Verifies each line and writes it, upwards or downwards. */
void march_turn(const struct march *march, uint64_t first, uint64_t count, const struct march_pattern *held,
                const struct march_pattern *next, int up);
