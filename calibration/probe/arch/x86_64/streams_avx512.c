// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)

#include <immintrin.h>

#define VECTOR __m512i
#define VECTOR_BYTES 64
#define VECTOR_TARGET __attribute__((target("avx512f")))
#define VECTOR_LOAD(p) _mm512_load_si512((const void *)(p))
#define VECTOR_STORE(p, v) _mm512_store_si512((void *)(p), v)
#define VECTOR_STREAM(p, v) _mm512_stream_si512((void *)(p), v)
#define VECTOR_ADD(a, b) _mm512_add_epi64(a, b)
#define VECTOR_ALL(x) _mm512_set1_epi64((long long)(x))
#define VECTOR_TRIAD(b, a, s)                                                                                          \
	_mm512_castpd_si512(                                                                                               \
		_mm512_add_pd(_mm512_castsi512_pd(b), _mm512_mul_pd(_mm512_castsi512_pd(s), _mm512_castsi512_pd(a))))
#define VECTOR_KERNELS load_avx512
#include "../streams.h"

#endif
