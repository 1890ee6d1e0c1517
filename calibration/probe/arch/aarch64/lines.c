// SPDX-License-Identifier: Apache-2.0
/* Lines cleared by DC ZVA, and loaded by LDNP, which like STNP takes a pair of registers. */
#if defined(__aarch64__)

#include <arm_neon.h>

#include "../../load.h"
#include "../lines.h"

/* DCZID_EL0: the block's size in words of 4 bytes, as a power of two, and whether the instruction is prohibited. */
#define BLOCK_MASK 0xfu
#define PROHIBITED (1u << 4)

static bool has_dc_zva(void)
{
	uint64_t dczid;
	__asm__("mrs %0, dczid_el0" : "=r"(dczid));
	return !(dczid & PROHIBITED) && 4u << (dczid & BLOCK_MASK) == LOAD_LINE_BYTES;
}

static bool has_ldnp(void)
{
	return true; /* part of armv8-a */
}

static inline __attribute__((always_inline)) void clear(unsigned char *line)
{
	__asm__ volatile("dc zva, %0" ::"r"(line) : "memory");
}

static uint64_t dc_zva(struct load_call *call)
{
	return clear_lines(call, clear);
}

static uint64_t ldnp(struct load_call *call)
{
	const size_t begin = call->offset, end = begin + call->steps * LOAD_LINE_BYTES;
	const size_t streams = call->streams, stream_bytes = call->stream_bytes;
	unsigned char *const array = call->arrays[0];
	uint64x2_t sums[4] = {vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0)};
	for (uint64_t pass = 0; pass < call->passes; pass++)
		for (size_t at = begin; at < end; at += LOAD_LINE_BYTES) {
			const unsigned char *line = array + at;
			for (size_t s = 0; s < streams; s++, line += stream_bytes) {
				uint64x2_t a, b, c, d;
				__asm__ volatile("ldnp %q0, %q1, [%4]\n\tldnp %q2, %q3, [%4, #32]"
				                 : "=&w"(a), "=&w"(b), "=&w"(c), "=&w"(d)
				                 : "r"(line)
				                 : "memory");
				sums[0] = vaddq_u64(sums[0], a);
				sums[1] = vaddq_u64(sums[1], b);
				sums[2] = vaddq_u64(sums[2], c);
				sums[3] = vaddq_u64(sums[3], d);
			}
		}
	return vaddvq_u64(vaddq_u64(vaddq_u64(sums[0], sums[1]), vaddq_u64(sums[2], sums[3])));
}

const struct load_lines load_lines[INSTRUCTIONS] = {
	[INSTRUCTION_DC_ZVA] = {has_dc_zva, dc_zva},
	[INSTRUCTION_LDNP] = {has_ldnp, ldnp},
};

#endif
