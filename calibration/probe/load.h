/* SPDX-License-Identifier: Apache-2.0 */
/* The traffic mixes, their accounting, and the table of compiled kernels for each vector width. */
#pragma once

#include "error.h"
#include "json.h"

#define LOAD_LINE_BYTES 64u
#define LOAD_ARRAYS_MAX 3
#define LOAD_STREAMS_MAX 8
/* Arrays of one thread begin this far apart beyond their size, and streams too: on huge pages equal distances of a
 * power of two would all fall into the same cache sets. More than a page, and never a multiple of one. */
#define LOAD_ARRAY_SKEW_BYTES (4096u + 17u * LOAD_LINE_BYTES)
#define LOAD_LINE_WORDS (LOAD_LINE_BYTES / 8)
/* Whether a regular store to a line that was not read makes the core read it first. Cores of aarch64 see that whole lines
 * are written, and skip the read; some of RISC-V do, and of others nothing is known. POWER has an instruction instead
 * (dcbz), which compilers do not use of their own accord. */
#if defined(__x86_64__) || defined(__powerpc__)
#define LOAD_STORES_READ 1
#else
#define LOAD_STORES_READ 0
#endif
/* A delay follows every four lines of each array: few enough that a delay of some ten clocks already thins the
 * traffic out, and what the articles on injection rates use. */
#define LOAD_STEPS_PER_DELAY 4u

enum load_mix {
	MIX_READS,
	MIX_3_1,
	MIX_2_1,
	MIX_1_1,
	MIX_STREAM_TRIAD,
	MIX_WRITE,
	MIX_WRITE_NT,
	MIX_COPY,
	MIX_COPY_NT,
	MIX_TRIAD,
	MIX_LINE_READS,
	MIX_RANDOM_READS,
	MIXES,
};
#define LOAD_MIX_CHOICES                                                                                               \
	"reads|3:1|2:1|1:1|stream_triad|write|write_nt|copy|copy_nt|triad|triad_nt|line_reads|random_reads"

/* What one step of a mix does, in lines of 64 bytes. */
struct load_accounting {
	const char *name;
	unsigned arrays;    /* buffers a thread needs */
	unsigned summed;    /* of these, the first so many are read into the checksum */
	bool updates;       /* the array after those is read, changed and written in place */
	bool writes;        /* the last array is written */
	unsigned reads;     /* lines the instructions read */
	unsigned stores;    /* lines the instructions write */
	bool regular_store; /* a line is stored that was not read before: memory must give it first, on x86_64 and POWER */
	bool sparse;        /* of a line, one word is loaded; of one stream, without prefetches; a delay is no-ops */
	bool shuffled;      /* lines are visited in the order of random_lines.h, which is of a power of two of them */
};

extern const struct load_accounting load_mixes[MIXES];

/* Where a prefetch puts a line, or what for: all caches, the second level and beyond, past the caches as far as the core can,
 * and to be written. W asks so for lines that the core will own, and T0 for the others. Not the third level alone (T2): from
 * memory a line is then still to be waited for, and most cores of x86_64 take it as T1. */
enum load_hint {
	HINT_T0,
	HINT_T1,
	HINT_NTA,
	HINT_W,
	HINT_NONE,
};
#define HINTS HINT_NONE
#define LOAD_HINT_CHOICES "t0|t1|nta|w"

/* What moves a line: vectors, or an instruction that takes a line at a time and is of no vector width. */
enum load_instruction {
	INSTRUCTION_VECTOR,
	INSTRUCTION_CLZERO,
	INSTRUCTION_MOVDIR64B,
	INSTRUCTION_REP_STOSB,
	INSTRUCTION_DC_ZVA,
	INSTRUCTION_LDNP,
	INSTRUCTIONS,
};
#define LOAD_INSTRUCTION_CHOICES "vector|clzero|movdir64b|rep_stosb|dc_zva|ldnp"

/* How a mix walks over its arrays; zeros but for mix and streams are the plain default. */
struct load_shape {
	enum load_mix mix;
	unsigned streams;
	size_t prefetch_bytes;
	enum load_hint hint;
	unsigned
		visit_lines; /* lines of a stream at each of its turns; 0: LOAD_STEPS_PER_DELAY over all streams, but one at least */
	enum load_instruction instruction;
	uint64_t delay;
};
#define LOAD_VISIT_LINES_MAX 4u
#define LOAD_PREFETCH_BYTES_MAX (1u << 20)

bool load_mix_parse(const char *word, enum load_mix *mix);
bool load_hint_parse(const char *word, enum load_hint *hint);
bool load_instruction_parse(const char *word, enum load_instruction *instruction);
/* "reads=4/2048/t0/1/vector": all but the delay, which is none. */
bool load_shape_parse(const char *text, struct load_shape *shape, struct error *error);
/* What the document calls it; "none" without prefetches. */
const char *load_hint_name(const struct load_shape *shape);
const char *load_instruction_name(enum load_instruction instruction);
/* Lines of a stream at each of its turns. */
unsigned load_visit_lines(const struct load_shape *shape);
/* False, with an error, where there is no such kernel, or where it needs stores that this architecture has not. */
bool load_shape_known(const struct load_shape *shape, struct error *error);
/* The same for the size of each array. */
bool load_size_known(enum load_mix mix, uint64_t buffer_bytes, struct error *error);
/* Whether a shape and a size of options, whose numbers are in range but not checked otherwise, are possible at all. */
bool load_numbers_good(const struct load_shape *shape, uint64_t buffer_bytes, struct error *error);
unsigned load_write_allocates(enum load_mix mix);
/* Whether memory gives the core any line, so that there is something to prefetch. */
bool load_fetches(enum load_mix mix);
unsigned load_program_bytes(enum load_mix mix);
unsigned load_model_bytes(enum load_mix mix);
void load_accounting_write(struct json *json, enum load_mix mix);

/* One call of a compiled kernel: `steps` lines of each stream of each array, from `offset` bytes into each stream, and
 * that `passes` times. */
struct load_call {
	unsigned char *arrays[LOAD_ARRAYS_MAX];
	size_t stream_bytes; /* distance of the streams of one array */
	size_t offset;
	size_t steps;    /* per stream; a multiple of LOAD_STEPS_PER_DELAY, not 0 */
	uint64_t passes; /* so many times over these steps, not 0; more than once only over whole streams */
	size_t prefetch_bytes;
	uint64_t delay;
	uint64_t mark; /* number of the first of these passes, added to what is written */
	uint64_t carry;
	size_t streams;
};

/* Where an instruction that stores zeros leaves the number of a pass, once that is complete, in each stream: another line
 * after every pass, which the next pass has to clear. */
static inline size_t load_canary_line(uint64_t pass, size_t lines)
{
	return (size_t)(pass * 0x9e3779b97f4a7c15u >> 32) % lines;
}

/* Leaves them there, if `call` went to the end of its streams. */
static inline void load_canaries_write(const struct load_call *call, uint64_t pass)
{
	const size_t lines = call->stream_bytes / LOAD_LINE_BYTES;
	if (call->offset / LOAD_LINE_BYTES + call->steps != lines)
		return;
	unsigned char *line = call->arrays[0] + load_canary_line(pass, lines) * LOAD_LINE_BYTES;
	for (size_t s = 0; s < call->streams; s++, line += call->stream_bytes)
		*(volatile uint64_t *)(void *)line = pass;
}

/* Returns the sum of all 64-bit words read into the checksum. */
typedef uint64_t (*load_kernel)(struct load_call *call);

/* The kernels of line_reads, which are of no vector width and stand in the table of each: a load of one word is the same
 * instruction everywhere. */
uint64_t line_reads(struct load_call *call);
uint64_t line_reads_delayed(struct load_call *call);
/* The same of random_reads. */
uint64_t random_reads(struct load_call *call);
uint64_t random_reads_delayed(struct load_call *call);

struct load_kernels {
	/* [mix][log2 streams][prefetch][delay]; NULL where load_shape_known is false */
	const load_kernel (*streams)[4][2][2];
	/* [mix][hint][log2 visit_lines], of any number of streams, with or without delay; NULL where load_shape_known is false */
	const load_kernel (*visits)[HINTS + 1][3];
	/* Arrays of doubles in regular stores, from ascending addresses, in whole lines; every array begins with one. */
	void (*fill)(unsigned char *to, double value, size_t bytes);
	/* c[i] = b[i] + scalar * a[i] */
	void (*triad)(unsigned char *c, const unsigned char *b, const unsigned char *a, double scalar, size_t bytes);
};

struct load_width {
	const char *name;
	bool (*supported)(void);
	const struct load_kernels *kernels;
};

/* Lines taken whole. A processor that has not got the instruction does not run the kernel. */
struct load_lines {
	bool (*supported)(void);
	load_kernel kernel;
};
/* By instruction; without a kernel where the architecture has none. */
extern const struct load_lines load_lines[INSTRUCTIONS];
/* What a word of a line holds after that pass over it, unless it is what was loaded and more. */
uint64_t load_word_written(enum load_instruction instruction, uint64_t pass);
/* False with the error where this processor has no such instruction. */
bool load_instruction_there(enum load_instruction instruction, struct error *error);

/* Widest first; ended by a row without a name. */
extern const struct load_width load_widths[];
#define LOAD_WIDTH_CHOICES "auto|sse2|avx2|avx512|neon|sve|generic"

const struct load_width *load_width_find(const char *name, struct error *error);
load_kernel load_kernel_find(const struct load_width *width, const struct load_shape *shape);
