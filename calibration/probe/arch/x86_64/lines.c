// SPDX-License-Identifier: Apache-2.0
/* Stores of whole lines, by one instruction each or by one for a stretch. None is documented to read the line first. */
#if defined(__x86_64__)

#include "../lines.h"
#include "../../load.h"
#include "../arch.h"

ARCH_HAS(clzero)
ARCH_HAS(movdir64b)
/* Without "enhanced REP" it stores byte by byte. */
ARCH_HAS(erms)

static inline __attribute__((always_inline)) void clear(unsigned char *line)
{
	__asm__ volatile("clzero" ::"a"(line) : "memory");
}

static uint64_t clzero(struct load_call *call)
{
	return clear_lines(call, clear);
}

static uint64_t movdir64b(struct load_call *call)
{
	_Alignas(LOAD_LINE_BYTES) uint64_t words[LOAD_LINE_WORDS];
	const size_t begin = call->offset, end = begin + call->steps * LOAD_LINE_BYTES;
	const size_t streams = call->streams, stream_bytes = call->stream_bytes;
	unsigned char *const array = call->arrays[0];
	for (uint64_t pass = 0; pass < call->passes; pass++) {
		for (unsigned i = 0; i < LOAD_LINE_WORDS; i++)
			words[i] = call->mark + pass;
		for (size_t at = begin; at < end; at += LOAD_LINE_BYTES) {
			unsigned char *line = array + at;
			for (size_t s = 0; s < streams; s++, line += stream_bytes)
				__asm__ volatile("movdir64b (%0), %1" ::"r"(words), "r"(line) : "memory");
		}
	}
	return 0;
}

/* A stretch at once: each start takes tens of clocks. */
static uint64_t rep_stosb(struct load_call *call)
{
	for (uint64_t pass = 0; pass < call->passes; pass++) {
		unsigned char *to = call->arrays[0] + call->offset;
		size_t bytes = call->steps * LOAD_LINE_BYTES;
		__asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"((int)((call->mark + pass) & 0xff)) : "memory");
	}
	return 0;
}

const struct load_lines load_lines[INSTRUCTIONS] = {
	[INSTRUCTION_CLZERO] = {has_clzero, clzero},
	[INSTRUCTION_MOVDIR64B] = {has_movdir64b, movdir64b},
	[INSTRUCTION_REP_STOSB] = {has_erms, rep_stosb},
};

#endif
