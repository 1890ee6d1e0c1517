// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)

#include <immintrin.h>

#define VECTOR __m128i
#define VECTOR_BYTES 16
#define VECTOR_TARGET
#define VECTOR_LOAD(p) _mm_load_si128((const __m128i *)(p))
#define VECTOR_STORE(p, v) _mm_store_si128((__m128i *)(p), v)
#define VECTOR_STREAM(p, v) _mm_stream_si128((__m128i *)(p), v)
#define VECTOR_ADD(a, b) _mm_add_epi64(a, b)
#define VECTOR_ALL(x) _mm_set1_epi64x((long long)(x))
#define VECTOR_TRIAD(b, a, s)                                                                                          \
	_mm_castpd_si128(_mm_add_pd(_mm_castsi128_pd(b), _mm_mul_pd(_mm_castsi128_pd(s), _mm_castsi128_pd(a))))
#define VECTOR_KERNELS load_sse2
#include "../streams.h"

#endif
