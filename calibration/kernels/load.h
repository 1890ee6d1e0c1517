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
 * are written, and skip the read. */
#if defined(__x86_64__)
#define LOAD_STORES_READ true
#else
#define LOAD_STORES_READ false
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
	MIXES,
};
#define LOAD_MIX_CHOICES "reads|3:1|2:1|1:1|stream_triad|write|write_nt|copy|copy_nt|triad|line_reads"

/* What one step of a mix does, in lines of 64 bytes. */
struct load_accounting {
	const char *name;
	unsigned arrays;    /* buffers a thread needs */
	unsigned summed;    /* of these, the first so many are read into the checksum */
	bool updates;       /* the array after those is read, changed and written in place */
	bool writes;        /* the last array is written */
	unsigned reads;     /* lines the instructions read */
	unsigned stores;    /* lines the instructions write */
	bool regular_store; /* a line is stored that was not read before: memory must give it first, on x86_64 */
	bool sparse;        /* of a line, one word is loaded; of one stream, without prefetches; a delay is no-ops */
};

extern const struct load_accounting load_mixes[MIXES];

bool load_mix_parse(const char *word, enum load_mix *mix);
/* False, with a usage error, where the mix has no such kernel. */
bool load_shape_known(enum load_mix mix, uint64_t streams, uint64_t prefetch_bytes, struct error *error);
/* The same for options, whose numbers and words are in range but not checked otherwise. */
bool load_options_good(const char *mix, uint64_t streams, uint64_t prefetch_bytes, uint64_t buffer_bytes,
                       struct error *error);
unsigned load_write_allocates(enum load_mix mix);
unsigned load_program_bytes(enum load_mix mix);
unsigned load_model_bytes(enum load_mix mix);
void load_accounting_write(struct json *json, enum load_mix mix);

/* One call of a compiled kernel: `steps` lines of each stream of each array, from `offset` bytes into each stream, and
 * that `passes` times. */
struct load_call {
	unsigned char *arrays[LOAD_ARRAYS_MAX];
	size_t stream_bytes; /* distance of the streams of one array */
	size_t offset;
	size_t steps;    /* per stream; a multiple of LOAD_STEPS_PER_DELAY */
	uint64_t passes; /* so many times over these steps; more than once only over whole streams */
	size_t prefetch_bytes;
	uint64_t delay;
	uint64_t mark; /* number of the first of these passes, added to what is written */
	uint64_t carry;
};

/* Returns the sum of all 64-bit words read into the checksum. */
typedef uint64_t (*load_kernel)(struct load_call *call);

/* The kernels of line_reads, which are of no vector width and stand in the table of each: a load of one word is the same
 * instruction everywhere. */
uint64_t line_reads(struct load_call *call);
uint64_t line_reads_delayed(struct load_call *call);

/* Arrays of doubles in regular stores, from ascending addresses, in whole lines; every array begins with one. */
struct load_doubles {
	void (*fill)(unsigned char *to, double value, size_t bytes);
	/* c[i] = b[i] + scalar * a[i] */
	void (*triad)(unsigned char *c, const unsigned char *b, const unsigned char *a, double scalar, size_t bytes);
};

struct load_width {
	const char *name;
	bool (*supported)(void);
	/* [mix][log2 streams][prefetch][delay]; NULL where load_shape_known is false */
	const load_kernel (*kernels)[4][2][2];
	const struct load_doubles *doubles;
};

/* Widest first; ended by a row without a name. */
extern const struct load_width load_widths[];
#define LOAD_WIDTH_CHOICES "auto|sse2|avx2|avx512|neon|sve"

const struct load_width *load_width_find(const char *name, struct error *error);
load_kernel load_kernel_find(const struct load_width *width, enum load_mix mix, unsigned streams, bool prefetch,
                             bool delay);
