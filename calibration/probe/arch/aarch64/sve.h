/* SPDX-License-Identifier: Apache-2.0 */
/* SVE leaves the size of a register to the processor. A file per share of a line that one register takes defines
 * VECTOR_BYTES and VECTOR_KERNELS, then includes this: the instructions are the same on every length of register from
 * that one up, and touch just VECTOR_BYTES of it, so that bytes declared and bytes moved agree on all of them. */
#include <arm_sve.h>

#if VECTOR_BYTES == 16
#define VECTOR_LANES SV_VL2
#elif VECTOR_BYTES == 32
#define VECTOR_LANES SV_VL4
#else
#define VECTOR_LANES SV_VL8
#endif

#define VECTOR svuint64_t
#define VECTOR_TARGET __attribute__((target("sve")))
#define VECTOR_WORDS(p) ((uint64_t *)(void *)(p))
#define VECTOR_LOAD(p) svld1_u64(svptrue_pat_b64(VECTOR_LANES), VECTOR_WORDS(p))
#define VECTOR_STORE(p, v) svst1_u64(svptrue_pat_b64(VECTOR_LANES), VECTOR_WORDS(p), v)
#define VECTOR_STREAM(p, v) svstnt1_u64(svptrue_pat_b64(VECTOR_LANES), VECTOR_WORDS(p), v)
#define VECTOR_ADD(a, b) svadd_u64_x(svptrue_b64(), a, b)
#define VECTOR_ALL(x) svdup_n_u64(x)
#define VECTOR_F64(x) svreinterpret_f64_u64(x)
#define VECTOR_TRIAD(b, a, s)                                                                                          \
	svreinterpret_u64_f64(                                                                                             \
		svadd_f64_x(svptrue_b64(), VECTOR_F64(b), svmul_f64_x(svptrue_b64(), VECTOR_F64(s), VECTOR_F64(a))))
#define VECTOR_TOTAL(x) svaddv_u64(svptrue_pat_b64(VECTOR_LANES), x)
#include "../streams.h"
