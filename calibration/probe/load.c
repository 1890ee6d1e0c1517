// SPDX-License-Identifier: Apache-2.0
#include "load.h"

#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "arch/arch.h"
#include "options.h"
#include "text.h"

/* The declared rule: a line that is read counts once, a line that is written counts once, and a regular store to a
 * line that was not read counts once more on x86_64 and POWER, because the core reads the line before it changes it. On
 * aarch64 cores see whole lines being written and skip that read, so there it counts nothing; elsewhere nothing is known of
 * it, and nothing is counted either.
 *
 * The read:write mixes are named by what memory sees, on all architectures alike: their written line is read by the
 * same step (an update), so that no core can skip or add a read and the ratio holds whatever it does with stores.
 *
 * line_reads and random_reads are those whose instructions ask for less than memory moves: 8 bytes of each 64, and at random of
 * each line, which is of 128 on POWER. */
// clang-format off: a table is read by its columns
const struct load_accounting load_mixes[MIXES] = {
	/*                    name            arrays summed updates writes reads stores regular_store sparse shuffled */
	[MIX_READS]        = {"reads",        1,     1,     false,  false, 1,    0,     false,         false, false},
	[MIX_3_1]          = {"3:1",          3,     2,     true,   false, 3,    1,     false,         false, false},
	[MIX_2_1]          = {"2:1",          2,     1,     true,   false, 2,    1,     false,         false, false},
	[MIX_1_1]          = {"1:1",          1,     0,     true,   false, 1,    1,     false,         false, false},
	[MIX_STREAM_TRIAD] = {"stream_triad", 3,     0,     false,  true,  2,    1,     false,         false, false},
	[MIX_WRITE]        = {"write",        1,     0,     false,  true,  0,    1,     true,          false, false},
	[MIX_WRITE_NT]     = {"write_nt",     1,     0,     false,  true,  0,    1,     false,         false, false},
	[MIX_COPY]         = {"copy",         2,     0,     false,  true,  1,    1,     true,          false, false},
	[MIX_COPY_NT]      = {"copy_nt",      2,     0,     false,  true,  1,    1,     false,         false, false},
	[MIX_TRIAD]        = {"triad",        3,     0,     false,  true,  2,    1,     true,          false, false},
	[MIX_LINE_READS]   = {"line_reads",   1,     1,     false,  false, 1,    0,     false,         true,  false},
	[MIX_RANDOM_READS] = {"random_reads", 1,     1,     false,  false, 1,    0,     false,         true,  true},
};
// clang-format on

bool load_mix_parse(const char *word, enum load_mix *mix)
{
	/* What it is beside the triad of regular stores; the document has the name of the published pages. */
	if (!strcmp(word, "triad_nt"))
		word = load_mixes[MIX_STREAM_TRIAD].name;
	for (unsigned i = 0; i < MIXES; i++)
		if (!strcmp(load_mixes[i].name, word)) {
			*mix = (enum load_mix)i;
			return true;
		}
	return false;
}

static const char *const hints[HINTS + 1] = {
	[HINT_T0] = "t0", [HINT_T1] = "t1", [HINT_NTA] = "nta", [HINT_W] = "w", [HINT_NONE] = "none",
};

static const char *const instructions[INSTRUCTIONS] = {
	[INSTRUCTION_VECTOR] = "vector",       [INSTRUCTION_CLZERO] = "clzero", [INSTRUCTION_MOVDIR64B] = "movdir64b",
	[INSTRUCTION_REP_STOSB] = "rep_stosb", [INSTRUCTION_DC_ZVA] = "dc_zva", [INSTRUCTION_LDNP] = "ldnp",
};

bool load_hint_parse(const char *word, enum load_hint *hint)
{
	int place = option_choice(LOAD_HINT_CHOICES, word);
	*hint = place < 0 ? HINT_T0 : (enum load_hint)place;
	return place >= 0;
}

bool load_instruction_parse(const char *word, enum load_instruction *instruction)
{
	int place = option_choice(LOAD_INSTRUCTION_CHOICES, word);
	*instruction = place < 0 ? INSTRUCTION_VECTOR : (enum load_instruction)place;
	return place >= 0;
}

const char *load_hint_name(const struct load_shape *shape)
{
	return hints[shape->prefetch_bytes ? shape->hint : HINT_NONE];
}

const char *load_instruction_name(enum load_instruction instruction)
{
	return instructions[instruction];
}

static unsigned natural_visit(unsigned streams)
{
	return streams < LOAD_STEPS_PER_DELAY ? LOAD_STEPS_PER_DELAY / streams : 1;
}

unsigned load_visit_lines(const struct load_shape *shape)
{
	return shape->visit_lines ? shape->visit_lines : natural_visit(shape->streams);
}

static bool is_power_of_two(uint64_t value)
{
	return value > 0 && !(value & (value - 1));
}

/* Whether a line of the mix comes into the core to be changed there. */
static bool owns_lines(enum load_mix mix)
{
	return load_mixes[mix].updates || load_write_allocates(mix);
}

bool load_shape_known(const struct load_shape *shape, struct error *error)
{
	const struct load_accounting *a = &load_mixes[shape->mix];
	const enum load_instruction instruction = shape->instruction;
	const bool natural = load_visit_lines(shape) == natural_visit(shape->streams);
	if (!ARCH_STREAMS && !load_widths->kernels->streams[shape->mix][0][0][0])
		return error_set(error, ERROR_UNSUPPORTED, "--mix %s: this architecture has no non-temporal stores", a->name);
	if (a->sparse && (shape->streams != 1 || shape->prefetch_bytes != 0 || !natural))
		return error_set(
			error, ERROR_USAGE,
			"--mix %s: needs --streams 1, --prefetch-bytes 0 and --visit-lines 0: it reads lines in %s", a->name,
			a->shuffled ? "random order" : "ascending order and leaves them to the hardware's prefetchers");
	if (shape->hint == HINT_W && shape->prefetch_bytes && !owns_lines(shape->mix))
		return error_set(error, ERROR_USAGE, "--hint w: --mix %s reads no line that it then writes", a->name);
	if (instruction == INSTRUCTION_VECTOR)
		return true;
	const char *name = load_instruction_name(instruction);
	if (shape->mix != (instruction == INSTRUCTION_LDNP ? MIX_READS : MIX_WRITE_NT))
		return error_set(error, ERROR_USAGE, "--instruction %s: not for --mix %s", name, a->name);
	if (shape->prefetch_bytes || !natural || shape->delay)
		return error_set(error, ERROR_USAGE,
		                 "--instruction %s: needs --prefetch-bytes 0, --visit-lines 0 and --delay 0", name);
	if (instruction == INSTRUCTION_REP_STOSB && shape->streams != 1)
		return error_set(error, ERROR_USAGE, "--instruction %s: needs --streams 1: it fills whole stretches", name);
	return true;
}

bool load_size_known(enum load_mix mix, uint64_t buffer_bytes, struct error *error)
{
	return !load_mixes[mix].shuffled || is_power_of_two(buffer_bytes) ||
	       error_set(error, ERROR_USAGE, "--mix %s: needs arrays of a power of two of bytes, not %llu",
	                 load_mixes[mix].name, (unsigned long long)buffer_bytes);
}

bool load_numbers_good(const struct load_shape *shape, uint64_t buffer_bytes, struct error *error)
{
	if (!is_power_of_two(shape->streams))
		return error_set(error, ERROR_USAGE, "--streams: must be 1, 2, 4 or 8, not %u", shape->streams);
	if (shape->visit_lines && !is_power_of_two(shape->visit_lines))
		return error_set(error, ERROR_USAGE, "--visit-lines: must be 0, 1, 2 or 4, not %u", shape->visit_lines);
	return option_multiple("--prefetch-bytes", shape->prefetch_bytes, LOAD_LINE_BYTES, error) &&
	       option_multiple("--buffer-bytes", buffer_bytes, 4096, error);
}

bool load_instruction_there(enum load_instruction instruction, struct error *error)
{
	const struct load_lines *lines = &load_lines[instruction];
	return instruction == INSTRUCTION_VECTOR || (lines->supported && lines->supported()) ||
	       error_set(error, ERROR_UNSUPPORTED, "this processor has no %s; use --instruction vector",
	                 load_instruction_name(instruction));
}

uint64_t load_word_written(enum load_instruction instruction, uint64_t pass)
{
	switch (instruction) {
	case INSTRUCTION_CLZERO:
	case INSTRUCTION_DC_ZVA:
		return 0;
	case INSTRUCTION_REP_STOSB:
		return (pass & 0xff) * 0x0101010101010101u;
	default:
		return pass;
	}
}

unsigned load_write_allocates(enum load_mix mix)
{
	return LOAD_STORES_READ && load_mixes[mix].regular_store ? 1 : 0;
}

bool load_fetches(enum load_mix mix)
{
	return load_mixes[mix].reads + load_write_allocates(mix) > 0;
}

unsigned load_program_bytes(enum load_mix mix)
{
	const struct load_accounting *a = &load_mixes[mix];
	return a->reads * LOAD_LINE_BYTES / (a->sparse ? LOAD_LINE_WORDS : 1) + a->stores * LOAD_LINE_BYTES;
}

unsigned load_model_bytes(enum load_mix mix)
{
	const unsigned lines = load_mixes[mix].reads + load_mixes[mix].stores + load_write_allocates(mix);
	return lines * LOAD_LINE_BYTES * (load_mixes[mix].shuffled ? ARCH_LINE_BYTES / LOAD_LINE_BYTES : 1);
}

void load_accounting_write(struct json *json, enum load_mix mix)
{
	json_object_begin(json, "accounting");
	json_u64(json, "reads_per_step", load_mixes[mix].reads);
	json_u64(json, "writes_per_step", load_mixes[mix].stores);
	json_u64(json, "write_allocate_reads_per_step", load_write_allocates(mix));
	json_u64(json, "program_bytes_per_step", load_program_bytes(mix));
	json_u64(json, "model_dram_bytes_per_step", load_model_bytes(mix));
	json_object_end(json);
}

bool load_shape_parse(const char *text, struct load_shape *shape, struct error *error)
{
	char *copy = allocate_text(text, strlen(text)), *rest = copy;
	const char *mix = text_cut(&rest, '='), *streams = text_cut(&rest, '/'), *prefetch = text_cut(&rest, '/'),
			   *hint = text_cut(&rest, '/'), *visit = text_cut(&rest, '/'), *instruction = text_cut(&rest, '/');
	uint64_t numbers[3] = {0};
	*shape = (struct load_shape){0};
	bool good = instruction && !rest && load_mix_parse(mix, &shape->mix) && options_u64(streams, &numbers[0]) &&
	            options_u64(prefetch, &numbers[1]) && load_hint_parse(hint, &shape->hint) &&
	            options_u64(visit, &numbers[2]) && load_instruction_parse(instruction, &shape->instruction) &&
	            numbers[0] >= 1 && numbers[0] <= LOAD_STREAMS_MAX && numbers[1] <= LOAD_PREFETCH_BYTES_MAX &&
	            numbers[2] <= LOAD_VISIT_LINES_MAX;
	shape->streams = (unsigned)numbers[0];
	shape->prefetch_bytes = numbers[1];
	shape->visit_lines = (unsigned)numbers[2];
	free(copy);
	return good || error_set(error, ERROR_USAGE, "--shape: not MIX=S/P/HINT/L/INSTRUCTION: '%s'", text);
}

const struct load_width *load_width_find(const char *name, struct error *error)
{
	bool automatic = !strcmp(name, "auto");
	for (const struct load_width *width = load_widths; width->name; width++) {
		if (!automatic && strcmp(width->name, name) != 0)
			continue;
		if (width->supported())
			return width;
	}
	error_set(error, ERROR_UNSUPPORTED, "this processor has no %s; use --width auto", name);
	return NULL;
}

load_kernel load_kernel_find(const struct load_width *width, const struct load_shape *shape)
{
	unsigned visit = load_visit_lines(shape);
	bool prefetch = shape->prefetch_bytes > 0;
	if (shape->instruction != INSTRUCTION_VECTOR)
		return load_lines[shape->instruction].kernel;
	if (visit == natural_visit(shape->streams) && (!prefetch || shape->hint == HINT_T0))
		return width->kernels->streams[shape->mix][__builtin_ctz(shape->streams)][prefetch][shape->delay > 0];
	return width->kernels->visits[shape->mix][prefetch ? shape->hint : HINT_NONE][__builtin_ctz(visit)];
}
