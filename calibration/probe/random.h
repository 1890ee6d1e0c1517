/* SPDX-License-Identifier: Apache-2.0 */
/* Reproducible random numbers: splitmix64 for seeds, xoshiro256** for streams (Blackman and Vigna, public domain). */
#pragma once

#include <stdint.h>

#include "allocate.h"

struct random {
	uint64_t state[4];
};

static inline uint64_t random_mix(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* The seed of one placement of one point, kept below 2^53 so that every JSON reader holds it exactly. */
static inline uint64_t random_derive(uint64_t seed, uint64_t point, uint64_t placement)
{
	uint64_t state = seed ^ (point * 0xd1342543de82ef95u) ^ (placement * 0xaf251af3b0f025b5u);
	return random_mix(&state) >> 11;
}

static inline void random_seed(struct random *random, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		random->state[i] = random_mix(&seed);
}

static inline uint64_t random_next(struct random *random)
{
	uint64_t *s = random->state;
	uint64_t product = s[1] * 5;
	uint64_t result = ((product << 7) | (product >> 57)) * 9;
	uint64_t t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = (s[3] << 45) | (s[3] >> 19);
	return result;
}

/* Uniform in [0, bound) for bound <= 2^32; the bias of multiply-and-shift, below 2^-32, is no matter for a chain. */
static inline uint32_t random_below(struct random *random, uint64_t bound)
{
	return (uint32_t)(((random_next(random) >> 32) * bound) >> 32);
}

/* The numbers below `count` in a random order; to be freed. */
static inline uint32_t *random_order(size_t count, uint64_t seed)
{
	uint32_t *order = allocate(count, sizeof(*order));
	struct random random;
	random_seed(&random, seed);
	for (size_t i = 0; i < count; i++) {
		size_t k = random_below(&random, i + 1);
		order[i] = order[k];
		order[k] = (uint32_t)i;
	}
	return order;
}
