// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)

#include "../../work.h"

#include "../arch.h"

/* P adds a product, Q takes the other one away. */
#define NEON_P(i) "fmla v" #i ".4s, v12.4s, v13.4s\n\t"
#define NEON_Q(i) "fmls v" #i ".4s, v14.4s, v15.4s\n\t"
#define SVE_P(i) "fmla z" #i ".s, p0/m, z12.s, z13.s\n\t"
#define SVE_Q(i) "fmls z" #i ".s, p0/m, z14.s, z15.s\n\t"
#define ADD "add %[sum], %[sum], %[one]\n\t"
#define GROUP(A, i, B, j, C, k)                                                                                        \
	ADD A(i)                                                                                                           \
	ADD B(j)                                                                                                           \
	ADD C(k) ADD
#define ROUND(A, B) GROUP(A, 0, A, 1, B, 2) GROUP(B, 3, A, 4, A, 5) GROUP(B, 6, B, 7, A, 8) GROUP(A, 9, B, 10, B, 11)
#define MOVE_ALL(MOVE) MOVE(0) MOVE(1) MOVE(2) MOVE(3) MOVE(4) MOVE(5) MOVE(6) MOVE(7) MOVE(8) MOVE(9) MOVE(10) MOVE(11)
#define NEON_LOAD(i) "ldr q" #i ", [%[lanes], #16*" #i "]\n\t"
#define NEON_STORE(i) "str q" #i ", [%[lanes], #16*" #i "]\n\t"
#define SVE_LOAD(i) "ldr z" #i ", [%[lanes], #" #i ", mul vl]\n\t"
#define SVE_STORE(i) "str z" #i ", [%[lanes], #" #i ", mul vl]\n\t"
#define CLOBBERS                                                                                                       \
	"cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15"

static uint64_t run_neon(uint64_t blocks, struct work_lanes *lanes)
{
	uint64_t sum = 1, one = 1;
	__asm__ volatile("ld4r {v12.4s, v13.4s, v14.4s, v15.4s}, [%[factors]]\n\t" MOVE_ALL(
						 NEON_LOAD) ".p2align 4\n"
	                                "1:\n\t" ROUND(NEON_P, NEON_Q) ROUND(NEON_Q, NEON_P) ROUND(NEON_P, NEON_Q)
	                                    ROUND(NEON_Q, NEON_P) "subs %[blocks], %[blocks], #1\n\t"
	                                                          "b.ne 1b\n\t" MOVE_ALL(NEON_STORE)
	                 : [sum] "+&r"(sum), [blocks] "+&r"(blocks)
	                 : [one] "r"(one), [factors] "r"(lanes->factors), [lanes] "r"(lanes->lanes)
	                 : CLOBBERS);
	return sum;
}

__attribute__((target("+sve"))) static uint64_t run_sve(uint64_t blocks, struct work_lanes *lanes)
{
	uint64_t sum = 1, one = 1;
	__asm__ volatile("ptrue p0.s\n\t"
	                 "ld1rw {z12.s}, p0/z, [%[factors]]\n\t"
	                 "ld1rw {z13.s}, p0/z, [%[factors], #4]\n\t"
	                 "ld1rw {z14.s}, p0/z, [%[factors], #8]\n\t"
	                 "ld1rw {z15.s}, p0/z, [%[factors], #12]\n\t" MOVE_ALL(
						 SVE_LOAD) ".p2align 4\n"
	                               "1:\n\t" ROUND(SVE_P, SVE_Q) ROUND(SVE_Q, SVE_P) ROUND(SVE_P, SVE_Q)
	                                   ROUND(SVE_Q, SVE_P) "subs %[blocks], %[blocks], #1\n\t"
	                                                       "b.ne 1b\n\t" MOVE_ALL(SVE_STORE)
	                 : [sum] "+&r"(sum), [blocks] "+&r"(blocks)
	                 : [one] "r"(one), [factors] "r"(lanes->factors), [lanes] "r"(lanes->lanes)
	                 : "p0", CLOBBERS);
	return sum;
}

ARCH_HAS(neon)
ARCH_HAS(sve)

static size_t bytes_neon(void)
{
	return 16;
}

const struct work works[] = {
	WORK_SCALAR,
	{"neon", has_neon, run_neon, bytes_neon},
	{"sve", has_sve, run_sve, arch_sve_bytes},
	{0},
};

#endif
