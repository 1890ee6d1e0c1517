// SPDX-License-Identifier: Apache-2.0
#include "march.h"

#include "arch/arch.h"
#include "random.h"

/* splitmix64 steps by this: line n has the nth number of a sequence. */
#define RANDOM_STEP 0x9e3779b97f4a7c15u

struct march_pattern march_pattern_of(uint64_t seed, uint64_t pass)
{
	struct march_pattern pattern = {.rule = pass / 2 % MARCH_RULES, .key = random_derive(seed, pass / 2, 0)};
	uint64_t words = random_derive(seed, pass / 2, 1), complement = pass % 2 ? UINT64_MAX : 0;
	for (unsigned i = 0; i < MARCH_LINE_WORDS; i++) {
		uint64_t own = pattern.rule == MARCH_RANDOM ? random_mix(&words) : pattern.rule == MARCH_ADDRESS ? 8 * i : 0;
		pattern.words[i] = own ^ complement;
	}
	return pattern;
}

/* What all words of a line have in common. */
static inline uint64_t line_key(const struct march_pattern *pattern, uint64_t line)
{
	uint64_t state = pattern->key + line * RANDOM_STEP;
	switch (pattern->rule) {
	case MARCH_RANDOM:
		return random_mix(&state);
	case MARCH_ADDRESS:
		return line * MARCH_LINE_BYTES;
	default:
		return (uint64_t)1 << ((line + pattern->key) % 64);
	}
}

uint64_t march_word(const struct march_pattern *pattern, uint64_t line, unsigned word)
{
	return pattern->words[word] ^ line_key(pattern, line);
}

static march_line *line_at(const struct march *march, uint64_t line)
{
	return (march_line *)(void *)(march->start + line * MARCH_LINE_BYTES);
}

static __attribute__((noinline, cold)) void differ(const struct march *march, uint64_t line, const march_line *found,
                                                   const struct march_pattern *held)
{
	const unsigned char *at = march->start + line * MARCH_LINE_BYTES;
	if (ARCH_FLUSHES)
		arch_flush_line(at);
	arch_full_fence();
	march_line again = *(const volatile march_line *)line_at(march, line);
	for (unsigned i = 0; i < MARCH_LINE_WORDS; i++) {
		uint64_t expected = march_word(held, march->number + line, i);
		if ((*found)[i] != expected)
			march->report(march->context, at + 8 * i, expected, (*found)[i], again[i]);
	}
}

/* Read once, so that what is compared is what is reported. */
static inline __attribute__((always_inline)) void verify(const struct march *march, uint64_t line,
                                                         const struct march_pattern *held)
{
	march_line found = *(const volatile march_line *)line_at(march, line);
	march_line wrong = found ^ held->words ^ line_key(held, march->number + line);
	uint64_t any = 0;
	for (unsigned i = 0; i < MARCH_LINE_WORDS; i++)
		any |= wrong[i];
	if (__builtin_expect(any != 0, 0)) {
		const march_line kept = found; /* not `found` itself, which would then be in memory for every line */
		differ(march, line, &kept, held);
	}
}

void march_write(const struct march *march, uint64_t first, uint64_t count, const struct march_pattern *next)
{
	for (uint64_t line = first; line < first + count; line++)
		*line_at(march, line) = next->words ^ line_key(next, march->number + line);
}

void march_verify(const struct march *march, uint64_t first, uint64_t count, const struct march_pattern *held)
{
	for (uint64_t line = first; line < first + count; line++)
		verify(march, line, held);
}

void march_turn(const struct march *march, uint64_t first, uint64_t count, const struct march_pattern *held,
                const struct march_pattern *next, int up)
{
	for (uint64_t k = 0; k < count; k++) {
		uint64_t line = first + (up ? k : count - 1 - k);
		verify(march, line, held);
		*line_at(march, line) = next->words ^ line_key(next, march->number + line);
	}
}
