/* SPDX-License-Identifier: Apache-2.0 */
/* The bandwidth kernels, written once over an abstract vector. A file per width defines, then includes this:
 *   VECTOR            the type                        VECTOR_BYTES       its size
 *   VECTOR_TARGET     function attribute              VECTOR_LOAD(p)     aligned load
 *   VECTOR_STORE(p,v) regular aligned store           VECTOR_STREAM(p,v) non-temporal aligned store, where there is one
 *   VECTOR_ADD(a,b)   64-bit lanes added              VECTOR_ALL(x)      x in every lane
 *   VECTOR_TRIAD(b,a,s) b + s * a, of lanes that are doubles
 *   VECTOR_KERNELS    name of the kernels to define, and VECTOR_TOTAL(x), the sum of all lanes, where memory cannot tell it
 * A vector may be of a type whose size the compiler does not know (SVE): no arrays of it, no structures with it.
 * Reading one line of four streams in turn, and not four lines of one, keeps more misses in flight: one stream is limited by
 * how far its prefetcher dares to run ahead. */
#include "../load.h"
#include "arch.h"

#define PER_LINE (LOAD_LINE_BYTES / VECTOR_BYTES)
#define INLINE VECTOR_TARGET static inline __attribute__((always_inline))

#ifdef VECTOR_STREAM
#define KERNELS_OF_STREAMED(mix) KERNELS_OF_MIX(mix)
#define ROW_STREAMED(mix) ROW(mix)
#define VISITS_OF_STREAMED(mix) VISITS_OF_READS(mix)
#define VISIT_ROWS_STREAMED(mix) [mix] = {VISIT_ROWS(mix)}
#else
#define KERNELS_OF_STREAMED(mix)
#define ROW_STREAMED(mix) [mix] = {{{NULL}}}
#define VISITS_OF_STREAMED(mix)
#define VISIT_ROWS_STREAMED(mix) [mix] = {{NULL}}
#define VECTOR_STREAM(p, v) VECTOR_STORE(p, v) /* of no kernel that is compiled */
#endif

#ifndef VECTOR_TOTAL
#define VECTOR_TOTAL(x) total_of_words(x)
INLINE uint64_t total_of_words(VECTOR value)
{
	uint64_t words[VECTOR_BYTES / 8], total = 0;
	__builtin_memcpy(words, &value, sizeof(words));
	for (unsigned i = 0; i < VECTOR_BYTES / 8; i++)
		total += words[i];
	return total;
}
#endif

/* Four sums, taken in turn, hide the latency of an addition at two loads a clock, and at more on cores that add in one
 * clock; fewer would make loads from the nearest cache wait for additions. `number` is known when this is compiled. */
INLINE void add_to_sums(unsigned number, VECTOR *sum0, VECTOR *sum1, VECTOR *sum2, VECTOR *sum3, VECTOR value)
{
	VECTOR *sum = number % 4 == 0 ? sum0 : number % 4 == 1 ? sum1 : number % 4 == 2 ? sum2 : sum3;
	*sum = VECTOR_ADD(*sum, value);
}

/* `hint` is known when this is compiled; `owned`: the line will be written. */
INLINE void prefetch_line(const unsigned char *line, enum load_hint hint, bool owned)
{
	if (hint == HINT_W && owned)
		arch_prefetch_to_write(line);
	else if (hint == HINT_T0 || hint == HINT_W)
		__builtin_prefetch(line, 0, 3);
	else if (hint == HINT_T1)
		__builtin_prefetch(line, 0, 2);
	else if (hint == HINT_NTA)
		__builtin_prefetch(line, 0, 0);
}

INLINE void one_line(enum load_mix mix, unsigned number, VECTOR *sum0, VECTOR *sum1, VECTOR *sum2, VECTOR *sum3,
                     unsigned char *const *arrays, size_t at, VECTOR mark, size_t prefetch_bytes, enum load_hint hint)
{
	const struct load_accounting a = {
		.summed = mix == MIX_READS || mix == MIX_2_1 ? 1
		          : mix == MIX_3_1                   ? 2
		                                             : 0,
		.updates = mix == MIX_3_1 || mix == MIX_2_1 || mix == MIX_1_1,
	};
	const unsigned sources = mix == MIX_STREAM_TRIAD || mix == MIX_TRIAD ? 2
	                         : mix == MIX_COPY || mix == MIX_COPY_NT     ? 1
	                                                                     : 0;
	const bool stream = mix == MIX_STREAM_TRIAD || mix == MIX_WRITE_NT || mix == MIX_COPY_NT;
	if (hint != HINT_NONE) {
		/* Lines to be loaded, and those that a store reads anyway. A core that stores whole lines without reading them
		 * would be made to read them by a prefetch; lines written past the cache are not read either. */
		const unsigned owned = LOAD_STORES_READ && (mix == MIX_WRITE || mix == MIX_COPY || mix == MIX_TRIAD);
		const unsigned wanted = a.summed + a.updates + sources + owned;
		for (unsigned i = 0; i < wanted; i++)
			prefetch_line(arrays[i] + at + prefetch_bytes, hint, i + 1 == wanted && (a.updates || owned));
	}
#pragma GCC unroll 4
	for (unsigned v = 0; v < PER_LINE; v++) {
		size_t place = at + v * VECTOR_BYTES;
		unsigned loads = (number * PER_LINE + v) * a.summed;
		if (a.summed > 0)
			add_to_sums(loads, sum0, sum1, sum2, sum3, VECTOR_LOAD(arrays[0] + place));
		if (a.summed > 1)
			add_to_sums(loads + 1, sum0, sum1, sum2, sum3, VECTOR_LOAD(arrays[1] + place));
		if (a.updates) {
			unsigned char *updated = arrays[a.summed] + place;
			VECTOR_STORE(updated, VECTOR_ADD(VECTOR_LOAD(updated), mark));
		} else if (a.summed == 0) {
			/* What is written carries the number of the pass, so that each pass can be proved afterwards. */
			VECTOR value = mark;
			if (sources > 0)
				value = VECTOR_ADD(value, VECTOR_LOAD(arrays[0] + place));
			if (sources > 1)
				value = VECTOR_ADD(value, VECTOR_LOAD(arrays[1] + place));
			if (stream)
				VECTOR_STREAM(arrays[sources] + place, value);
			else
				VECTOR_STORE(arrays[sources] + place, value);
		}
	}
}

INLINE uint64_t run_steps(struct load_call *call, enum load_mix mix, unsigned streams, bool prefetch, bool delay)
{
	unsigned char *arrays[LOAD_ARRAYS_MAX] = {call->arrays[0], call->arrays[1], call->arrays[2]};
	const size_t stream_bytes = call->stream_bytes, prefetch_bytes = call->prefetch_bytes;
	const size_t begin = call->offset, end = begin + call->steps * LOAD_LINE_BYTES;
	/* An update adds one in every pass; a plain write stores the number of the pass. */
	const bool updates = mix == MIX_3_1 || mix == MIX_2_1 || mix == MIX_1_1;
	VECTOR mark = VECTOR_ALL(updates ? 1 : call->mark);
	VECTOR sum0 = VECTOR_ALL(0), sum1 = VECTOR_ALL(0), sum2 = VECTOR_ALL(0), sum3 = VECTOR_ALL(0);
	const uint64_t units = call->delay;
	uint64_t carry = call->carry;
	/* LOAD_STEPS_PER_DELAY lines in each turn: four of one stream, two of two, one of four, half the streams of eight. */
	const unsigned run = streams < LOAD_STEPS_PER_DELAY ? LOAD_STEPS_PER_DELAY / streams : 1;
	/* Over and over in here, so that buffers of a few KiB are not a matter of calls and returns. A loop that asked before its
	 * first turn would jump twice more at the end of a pass, for which a Zen 5 read its nearest cache a tenth slower. */
	uint64_t passes = call->passes;
	do {
		__asm__ volatile("" ::: "memory"); /* what was loaded in one pass is loaded again in the next */
		size_t at = begin;
		do {
#pragma GCC unroll 8
			for (unsigned s = 0; s < streams; s++) {
#pragma GCC unroll 4
				for (unsigned line = 0; line < run; line++)
					one_line(mix, s * run + line, &sum0, &sum1, &sum2, &sum3, arrays,
					         s * stream_bytes + at + line * LOAD_LINE_BYTES, mark, prefetch_bytes,
					         prefetch ? HINT_T0 : HINT_NONE);
				if (delay && (s + 1) * run % LOAD_STEPS_PER_DELAY == 0)
					carry = arch_delay(carry, units);
			}
			at += run * LOAD_LINE_BYTES;
		} while (at < end);
		if (!updates)
			mark = VECTOR_ADD(mark, VECTOR_ALL(1));
	} while (--passes);
	call->carry = carry;
	return VECTOR_TOTAL(VECTOR_ADD(VECTOR_ADD(sum0, sum1), VECTOR_ADD(sum2, sum3)));
}

/* The same with so many lines of each stream in its turn, and any hint. The number of streams is not compiled in, nor whether
 * there is a delay: counting streams costs a few operations a visit, which matters in the nearest cache alone, and each
 * number of streams would have 14 kernels more for each mix. */
INLINE uint64_t run_visits(struct load_call *call, enum load_mix mix, unsigned lines, enum load_hint hint)
{
	unsigned char *arrays[LOAD_ARRAYS_MAX] = {call->arrays[0], call->arrays[1], call->arrays[2]};
	const size_t stream_bytes = call->stream_bytes, prefetch_bytes = call->prefetch_bytes;
	const size_t begin = call->offset, end = begin + call->steps * LOAD_LINE_BYTES, streams = call->streams;
	const bool updates = mix == MIX_3_1 || mix == MIX_2_1 || mix == MIX_1_1;
	VECTOR mark = VECTOR_ALL(updates ? 1 : call->mark);
	VECTOR sum0 = VECTOR_ALL(0), sum1 = VECTOR_ALL(0), sum2 = VECTOR_ALL(0), sum3 = VECTOR_ALL(0);
	const uint64_t units = call->delay;
	uint64_t carry = call->carry;
	unsigned since_delay = 0;
	for (uint64_t pass = 0; pass < call->passes; pass++) {
		__asm__ volatile("" ::: "memory");
		for (size_t at = begin; at < end; at += lines * LOAD_LINE_BYTES) {
			size_t place = at;
#pragma GCC unroll 1
			for (size_t s = 0; s < streams; s++, place += stream_bytes) {
#pragma GCC unroll 4
				for (unsigned line = 0; line < lines; line++)
					one_line(mix, line, &sum0, &sum1, &sum2, &sum3, arrays, place + line * LOAD_LINE_BYTES, mark,
					         prefetch_bytes, hint);
				if (units && (since_delay += lines) % LOAD_STEPS_PER_DELAY == 0)
					carry = arch_delay(carry, units);
			}
		}
		if (!updates)
			mark = VECTOR_ADD(mark, VECTOR_ALL(1));
	}
	call->carry = carry;
	return VECTOR_TOTAL(VECTOR_ADD(VECTOR_ADD(sum0, sum1), VECTOR_ADD(sum2, sum3)));
}

#define KERNEL(mix, streams, prefetch, delay)                                                                          \
	VECTOR_TARGET static uint64_t mix##_##streams##_##prefetch##_##delay(struct load_call *call)                       \
	{                                                                                                                  \
		return run_steps(call, mix, streams, prefetch, delay);                                                         \
	}
#define KERNELS_OF_STREAMS(mix, streams)                                                                               \
	KERNEL(mix, streams, 0, 0) KERNEL(mix, streams, 0, 1) KERNEL(mix, streams, 1, 0) KERNEL(mix, streams, 1, 1)
#define KERNELS_OF_MIX(mix)                                                                                            \
	KERNELS_OF_STREAMS(mix, 1) KERNELS_OF_STREAMS(mix, 2) KERNELS_OF_STREAMS(mix, 4) KERNELS_OF_STREAMS(mix, 8)

KERNELS_OF_MIX(MIX_READS)
KERNELS_OF_MIX(MIX_3_1)
KERNELS_OF_MIX(MIX_2_1)
KERNELS_OF_MIX(MIX_1_1)
KERNELS_OF_STREAMED(MIX_STREAM_TRIAD)
KERNELS_OF_MIX(MIX_WRITE)
KERNELS_OF_STREAMED(MIX_WRITE_NT)
KERNELS_OF_MIX(MIX_COPY)
KERNELS_OF_STREAMED(MIX_COPY_NT)
KERNELS_OF_MIX(MIX_TRIAD)

#define ROW_OF_STREAMS(mix, streams)                                                                                   \
	{                                                                                                                  \
		{mix##_##streams##_0_0, mix##_##streams##_0_1},                                                                \
		{mix##_##streams##_1_0, mix##_##streams##_1_1},                                                                \
	}
#define ROW(mix)                                                                                                       \
	[mix] = {ROW_OF_STREAMS(mix, 1), ROW_OF_STREAMS(mix, 2), ROW_OF_STREAMS(mix, 4), ROW_OF_STREAMS(mix, 8)}

static const load_kernel of_streams[MIXES][4][2][2] = {
	ROW(MIX_READS),
	ROW(MIX_3_1),
	ROW(MIX_2_1),
	ROW(MIX_1_1),
	ROW_STREAMED(MIX_STREAM_TRIAD),
	ROW(MIX_WRITE),
	ROW_STREAMED(MIX_WRITE_NT),
	ROW(MIX_COPY),
	ROW_STREAMED(MIX_COPY_NT),
	ROW(MIX_TRIAD),
	[MIX_LINE_READS] = {{{line_reads, line_reads_delayed}}},
	[MIX_RANDOM_READS] = {{{random_reads, random_reads_delayed}}},
};

#define VISIT(mix, lines, hint)                                                                                        \
	VECTOR_TARGET static uint64_t visit_##mix##_##lines##_##hint(struct load_call *call)                               \
	{                                                                                                                  \
		return run_visits(call, mix, lines, hint);                                                                     \
	}
#define VISITS_OF_HINT(mix, hint) VISIT(mix, 1, hint) VISIT(mix, 2, hint) VISIT(mix, 4, hint)
#define VISITS_OF_READS(mix)                                                                                           \
	VISITS_OF_HINT(mix, HINT_NONE)                                                                                     \
	VISITS_OF_HINT(mix, HINT_T0)                                                                                       \
	VISITS_OF_HINT(mix, HINT_T1)                                                                                       \
	VISITS_OF_HINT(mix, HINT_NTA)
#define VISITS_OF_OWNED(mix) VISITS_OF_READS(mix) VISITS_OF_HINT(mix, HINT_W)

VISITS_OF_READS(MIX_READS)
VISITS_OF_OWNED(MIX_3_1)
VISITS_OF_OWNED(MIX_2_1)
VISITS_OF_OWNED(MIX_1_1)
VISITS_OF_STREAMED(MIX_STREAM_TRIAD)
VISITS_OF_STREAMED(MIX_COPY_NT)
#if LOAD_STORES_READ
VISITS_OF_OWNED(MIX_WRITE)
VISITS_OF_OWNED(MIX_COPY)
VISITS_OF_OWNED(MIX_TRIAD)
#else
VISITS_OF_READS(MIX_WRITE)
VISITS_OF_READS(MIX_COPY)
VISITS_OF_READS(MIX_TRIAD)
#endif
VISITS_OF_STREAMED(MIX_WRITE_NT)

#define VISIT_ROW(mix, hint) [hint] = {visit_##mix##_1_##hint, visit_##mix##_2_##hint, visit_##mix##_4_##hint}
#define VISIT_ROWS(mix)                                                                                                \
	VISIT_ROW(mix, HINT_NONE), VISIT_ROW(mix, HINT_T0), VISIT_ROW(mix, HINT_T1), VISIT_ROW(mix, HINT_NTA)
#define VISIT_ROWS_OWNED(mix) VISIT_ROWS(mix), VISIT_ROW(mix, HINT_W)

static const load_kernel of_visits[MIXES][HINTS + 1][3] = {
	[MIX_READS] = {VISIT_ROWS(MIX_READS)},       [MIX_3_1] = {VISIT_ROWS_OWNED(MIX_3_1)},
	[MIX_2_1] = {VISIT_ROWS_OWNED(MIX_2_1)},     [MIX_1_1] = {VISIT_ROWS_OWNED(MIX_1_1)},
	VISIT_ROWS_STREAMED(MIX_STREAM_TRIAD),       VISIT_ROWS_STREAMED(MIX_COPY_NT),
	VISIT_ROWS_STREAMED(MIX_WRITE_NT),
#if LOAD_STORES_READ
	[MIX_WRITE] = {VISIT_ROWS_OWNED(MIX_WRITE)}, [MIX_COPY] = {VISIT_ROWS_OWNED(MIX_COPY)},
	[MIX_TRIAD] = {VISIT_ROWS_OWNED(MIX_TRIAD)},
#else
	[MIX_WRITE] = {VISIT_ROWS(MIX_WRITE)},   [MIX_COPY] = {VISIT_ROWS(MIX_COPY)},
	[MIX_TRIAD] = {VISIT_ROWS(MIX_TRIAD)},
#endif
};

static inline uint64_t bits_of(double value)
{
	uint64_t bits;
	__builtin_memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Written out store by store, because a library's fill may choose stores that do not read the line first. */
VECTOR_TARGET static void fill_doubles(unsigned char *to, double value, size_t bytes)
{
	VECTOR all = VECTOR_ALL(bits_of(value));
	for (size_t at = 0; at < bytes; at += LOAD_LINE_BYTES)
#pragma GCC unroll 4
		for (unsigned v = 0; v < PER_LINE; v++)
			VECTOR_STORE(to + at + v * VECTOR_BYTES, all);
}

VECTOR_TARGET static void triad_doubles(unsigned char *c, const unsigned char *b, const unsigned char *a, double scalar,
                                        size_t bytes)
{
	VECTOR all = VECTOR_ALL(bits_of(scalar));
	for (size_t at = 0; at < bytes; at += LOAD_LINE_BYTES)
#pragma GCC unroll 4
		for (unsigned v = 0; v < PER_LINE; v++) {
			size_t place = at + v * VECTOR_BYTES;
			VECTOR_STORE(c + place, VECTOR_TRIAD(VECTOR_LOAD(b + place), VECTOR_LOAD(a + place), all));
		}
}

extern const struct load_kernels VECTOR_KERNELS;
const struct load_kernels VECTOR_KERNELS = {of_streams, of_visits, fill_doubles, triad_doubles};
