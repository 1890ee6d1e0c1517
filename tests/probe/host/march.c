// SPDX-License-Identifier: Apache-2.0
/* The march over memory: what differs is reported, word by word, and nothing else is. */
#include <string.h>

#include "host.h"
#include "march.h"

#define LINES 300u
#define SEED 7u
#define CYCLE (2u * MARCH_RULES)

static _Alignas(MARCH_LINE_BYTES) unsigned char memory[LINES * MARCH_LINE_BYTES];

static struct {
	unsigned count;
	size_t at;
	uint64_t expected, found, again;
} reported;

static void report(void *context, const unsigned char *word, uint64_t expected, uint64_t found, uint64_t again)
{
	(void)context;
	reported.count++;
	reported.at = (size_t)(word - memory);
	reported.expected = expected;
	reported.found = found;
	reported.again = again;
}

static const struct march march = {memory, 1000, report, NULL};

static uint64_t *word_at(size_t line, unsigned word)
{
	return (uint64_t *)(void *)(memory + line * MARCH_LINE_BYTES) + word;
}

static void turn(uint64_t pass)
{
	const struct march_pattern held = march_pattern_of(SEED, pass), next = march_pattern_of(SEED, pass + 1);
	march_turn(&march, 0, LINES, &held, &next, pass % 2 == 0);
}

static void fill(uint64_t pass)
{
	const struct march_pattern pattern = march_pattern_of(SEED, pass);
	march_write(&march, 0, LINES, &pattern);
	reported.count = 0;
}

/* Memory that keeps what it is given has nothing to report, in either direction and at any pattern. */
static bool case_sound(struct error *error)
{
	fill(0);
	for (uint64_t pass = 0; pass < 2 * CYCLE; pass++)
		turn(pass);
	EXPECT(reported.count == 0);
	const struct march_pattern last = march_pattern_of(SEED, 2 * CYCLE);
	march_verify(&march, 0, LINES, &last);
	EXPECT(reported.count == 0);
	return true;
}

/* Every bit of every word is found wrong, in every pattern, with what was there. */
static bool case_flip(struct error *error)
{
	for (uint64_t pass = 0; pass < CYCLE; pass++)
		for (unsigned bit = 0; bit < 64; bit++) {
			size_t line = (bit * 37 + pass) % LINES;
			unsigned word = bit % MARCH_LINE_WORDS;
			fill(pass);
			uint64_t before = *word_at(line, word);
			*word_at(line, word) ^= 1ull << bit;
			turn(pass);
			EXPECT(reported.count == 1 && reported.at == line * MARCH_LINE_BYTES + 8 * word);
			EXPECT(reported.expected == before && reported.found == (before ^ 1ull << bit));
			EXPECT(reported.again == reported.found);
			turn(pass + 1); /* it was written since */
			EXPECT(reported.count == 1);
		}
	return true;
}

/* A cell that is stuck at 0 or at 1 shows in a pair of passes. */
static bool case_stuck(struct error *error)
{
	for (unsigned one = 0; one < 2; one++)
		for (uint64_t pass = 0; pass < CYCLE; pass += 2) {
			reported.count = 0;
			fill(pass);
			for (uint64_t k = 0; k < 2; k++) {
				uint64_t *word = word_at(5, 3);
				*word = one ? *word | 1ull << 17 : *word & ~(1ull << 17);
				turn(pass + k);
			}
			EXPECT(reported.count == 1);
		}
	return true;
}

/* A write that never arrived leaves the complement, and is found with all its words. */
static bool case_lost(struct error *error)
{
	unsigned char kept[MARCH_LINE_BYTES];
	for (uint64_t pass = 0; pass < CYCLE; pass += 2) {
		fill(pass);
		memcpy(kept, word_at(9, 0), sizeof(kept));
		turn(pass);
		memcpy(word_at(9, 0), kept, sizeof(kept));
		turn(pass + 1);
		EXPECT(reported.count == MARCH_LINE_WORDS);
	}
	return true;
}

/* Lines that one address line too few makes the same are found by two of the three patterns. */
static bool case_address(struct error *error)
{
	for (uint64_t pass = 0; pass < CYCLE; pass++) {
		fill(pass);
		memcpy(word_at(3, 0), word_at(3 + 128, 0), MARCH_LINE_BYTES);
		turn(pass);
		EXPECT((reported.count > 0) == (pass / 2 % MARCH_RULES != MARCH_WALKING));
	}
	return true;
}

static bool case_patterns(struct error *error)
{
	for (uint64_t pass = 0; pass < CYCLE; pass += 2) {
		const struct march_pattern one = march_pattern_of(SEED, pass), other = march_pattern_of(SEED, pass + 1);
		for (uint64_t line = 0; line < LINES; line++)
			for (unsigned i = 0; i < MARCH_LINE_WORDS; i++) {
				uint64_t value = march_word(&one, line, i);
				EXPECT(value == ~march_word(&other, line, i));
				EXPECT(one.rule != MARCH_WALKING || __builtin_popcountll(value) == 1);
				EXPECT(one.rule != MARCH_ADDRESS || value == line * MARCH_LINE_BYTES + 8 * i);
			}
	}
	/* what is random differs from cycle to cycle */
	const struct march_pattern now = march_pattern_of(SEED, 0), later = march_pattern_of(SEED, CYCLE);
	EXPECT(march_word(&now, 1, 1) != march_word(&later, 1, 1));
	return true;
}

HOST_CASES(CASE(sound), CASE(flip), CASE(stuck), CASE(lost), CASE(address), CASE(patterns))
