// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)

#include <immintrin.h>

#define VECTOR __m256i
#define VECTOR_BYTES 32
#define VECTOR_TARGET __attribute__((target("avx2")))
#define VECTOR_LOAD(p) _mm256_load_si256((const __m256i *)(p))
#define VECTOR_STORE(p, v) _mm256_store_si256((__m256i *)(p), v)
#define VECTOR_STREAM(p, v) _mm256_stream_si256((__m256i *)(p), v)
#define VECTOR_ADD(a, b) _mm256_add_epi64(a, b)
#define VECTOR_ALL(x) _mm256_set1_epi64x((long long)(x))
#define VECTOR_TRIAD(b, a, s)                                                                                          \
	_mm256_castpd_si256(                                                                                               \
		_mm256_add_pd(_mm256_castsi256_pd(b), _mm256_mul_pd(_mm256_castsi256_pd(s), _mm256_castsi256_pd(a))))
#define VECTOR_KERNELS load_avx2
#include "../streams.h"

#endif
