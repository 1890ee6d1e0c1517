// SPDX-License-Identifier: Apache-2.0
/* The compiler's own vectors: a register of POWER's VSX; where the baseline has no vectors, as many words as fill one. */
#include "../arch.h"

#ifdef ARCH_GENERIC

#include <stdint.h>

typedef uint64_t words __attribute__((vector_size(16)));
typedef double doubles __attribute__((vector_size(16)));

#define VECTOR words
#define VECTOR_BYTES 16
#define VECTOR_TARGET
#define VECTOR_LOAD(p) (*(const words *)(const void *)(p))
#define VECTOR_STORE(p, v) (*(words *)(void *)(p) = (v))
#define VECTOR_ADD(a, b) ((a) + (b))
#define VECTOR_ALL(x) ((words){(x), (x)})
#define VECTOR_TRIAD(b, a, s) ((words)((doubles)(b) + (doubles)(s) * (doubles)(a)))
#define VECTOR_KERNELS load_generic
#include "../streams.h"

#endif
