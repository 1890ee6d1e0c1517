// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)

#include <arm_neon.h>

/* Two registers make one vector, because the non-temporal store of aarch64 (STNP) stores a pair. */
static inline __attribute__((always_inline)) uint64x2x2_t load_pair(const unsigned char *at)
{
	const uint64_t *words = (const uint64_t *)(const void *)at;
	return (uint64x2x2_t){{vld1q_u64(words), vld1q_u64(words + 2)}};
}

static inline __attribute__((always_inline)) void store_pair(unsigned char *at, uint64x2x2_t value)
{
	vst1q_u64((uint64_t *)(void *)at, value.val[0]);
	vst1q_u64((uint64_t *)(void *)at + 2, value.val[1]);
}

static inline __attribute__((always_inline)) void stream_pair(unsigned char *at, uint64x2x2_t value)
{
	__asm__ volatile("stnp %q1, %q2, [%0]" ::"r"(at), "w"(value.val[0]), "w"(value.val[1]) : "memory");
}

static inline __attribute__((always_inline)) uint64x2x2_t add_pair(uint64x2x2_t a, uint64x2x2_t b)
{
	return (uint64x2x2_t){{vaddq_u64(a.val[0], b.val[0]), vaddq_u64(a.val[1], b.val[1])}};
}

static inline __attribute__((always_inline)) uint64x2x2_t all_pair(uint64_t x)
{
	return (uint64x2x2_t){{vdupq_n_u64(x), vdupq_n_u64(x)}};
}

static inline __attribute__((always_inline)) uint64x2_t triad_half(uint64x2_t b, uint64x2_t a, uint64x2_t s)
{
	float64x2_t product = vmulq_f64(vreinterpretq_f64_u64(s), vreinterpretq_f64_u64(a));
	return vreinterpretq_u64_f64(vaddq_f64(vreinterpretq_f64_u64(b), product));
}

static inline __attribute__((always_inline)) uint64x2x2_t triad_pair(uint64x2x2_t b, uint64x2x2_t a, uint64x2x2_t s)
{
	return (uint64x2x2_t){{triad_half(b.val[0], a.val[0], s.val[0]), triad_half(b.val[1], a.val[1], s.val[1])}};
}

#define VECTOR uint64x2x2_t
#define VECTOR_BYTES 32
#define VECTOR_TARGET
#define VECTOR_LOAD(p) load_pair(p)
#define VECTOR_STORE(p, v) store_pair(p, v)
#define VECTOR_STREAM(p, v) stream_pair(p, v)
#define VECTOR_ADD(a, b) add_pair(a, b)
#define VECTOR_ALL(x) all_pair(x)
#define VECTOR_TRIAD(b, a, s) triad_pair(b, a, s)
#define VECTOR_KERNELS load_neon
#include "../streams.h"

#endif
