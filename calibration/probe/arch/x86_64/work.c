// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)

#include "../../work.h"

#include "../arch.h"

/* V is the register's letter: y for 256 bits, z for 512. P adds a product, Q takes the other one away. */
#define P(V, i) "vfmadd231ps %%" V "mm13, %%" V "mm12, %%" V "mm" #i "\n\t"
#define Q(V, i) "vfnmadd231ps %%" V "mm15, %%" V "mm14, %%" V "mm" #i "\n\t"
#define ADD "add %[one], %[sum]\n\t"
#define GROUP(V, A, i, B, j, C, k)                                                                                     \
	ADD A(V, i)                                                                                                        \
	ADD B(V, j)                                                                                                        \
	ADD C(V, k) ADD
#define ROUND(V, A, B)                                                                                                 \
	GROUP(V, A, 0, A, 1, B, 2) GROUP(V, B, 3, A, 4, A, 5) GROUP(V, B, 6, B, 7, A, 8) GROUP(V, A, 9, B, 10, B, 11)
#define MOVE(V, bytes, FROM, i) FROM(V, #i, #i "*" bytes "(%[lanes])")
#define LOAD(V, i, place) "vmovaps " place ", %%" V "mm" i "\n\t"
#define STORE(V, i, place) "vmovaps %%" V "mm" i ", " place "\n\t"
#define MOVE_ALL(V, bytes, FROM)                                                                                       \
	MOVE(V, bytes, FROM, 0)                                                                                            \
	MOVE(V, bytes, FROM, 1)                                                                                            \
	MOVE(V, bytes, FROM, 2)                                                                                            \
	MOVE(V, bytes, FROM, 3)                                                                                            \
	MOVE(V, bytes, FROM, 4)                                                                                            \
	MOVE(V, bytes, FROM, 5)                                                                                            \
	MOVE(V, bytes, FROM, 6)                                                                                            \
	MOVE(V, bytes, FROM, 7)                                                                                            \
	MOVE(V, bytes, FROM, 8)                                                                                            \
	MOVE(V, bytes, FROM, 9)                                                                                            \
	MOVE(V, bytes, FROM, 10)                                                                                           \
	MOVE(V, bytes, FROM, 11)
/* VZEROUPPER at the end: upper halves left dirty would slow the chain alone down, or keep the clock low after it. */
#define RUN(name, V, bytes)                                                                                            \
	static uint64_t name(uint64_t blocks, struct work_lanes *lanes)                                                    \
	{                                                                                                                  \
		uint64_t sum = 1, one = 1;                                                                                     \
		__asm__ volatile("vbroadcastss 0(%[factors]), %%" V "mm12\n\t"                                                 \
		                 "vbroadcastss 4(%[factors]), %%" V "mm13\n\t"                                                 \
		                 "vbroadcastss 8(%[factors]), %%" V "mm14\n\t"                                                 \
		                 "vbroadcastss 12(%[factors]), %%" V "mm15\n\t" MOVE_ALL(                                      \
							 V, bytes, LOAD) ".p2align 4\n"                                                            \
		                                     "1:\n\t" ROUND(V, P, Q) ROUND(V, Q, P) ROUND(V, P, Q)                     \
		                                         ROUND(V, Q, P) "dec %[blocks]\n\t"                                    \
		                                                        "jnz 1b\n\t" MOVE_ALL(V, bytes, STORE) "vzeroupper"    \
		                 : [sum] "+&r"(sum), [blocks] "+&r"(blocks)                                                    \
		                 : [one] "r"(one), [factors] "r"(lanes->factors), [lanes] "r"(lanes->lanes)                    \
		                 : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",     \
		                   "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                              \
		return sum;                                                                                                    \
	}

RUN(run_avx2, "y", "32")
RUN(run_avx512, "z", "64")

static bool has_avx2(void)
{
	return arch_has("avx2") && arch_has("fma");
}

ARCH_HAS(avx512f)

static size_t bytes_avx2(void)
{
	return 32;
}

static size_t bytes_avx512(void)
{
	return 64;
}

const struct work works[] = {
	WORK_SCALAR,
	{"avx2", has_avx2, run_avx2, bytes_avx2},
	{"avx512", has_avx512f, run_avx512, bytes_avx512},
	{0},
};

#endif
