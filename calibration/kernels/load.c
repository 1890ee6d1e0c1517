// SPDX-License-Identifier: Apache-2.0
#include "load.h"

#include <string.h>

#include "options.h"

/* The declared rule: a line that is read counts once, a line that is written counts once, and a regular store to a
 * line that was not read counts once more on x86_64, because the core reads the line before it changes it. On aarch64
 * cores see whole lines being written and skip that read, so there it counts nothing.
 *
 * The read:write mixes are named by what memory sees, on both architectures alike: their written line is read by the
 * same step (an update), so that no core can skip or add a read and the ratio holds whatever it does with stores.
 *
 * line_reads is the one whose instructions ask for less than memory moves: 8 bytes of each line of 64. */
// clang-format off: a table is read by its columns
const struct load_accounting load_mixes[MIXES] = {
	/*                    name            arrays summed updates writes reads stores regular_store sparse */
	[MIX_READS]        = {"reads",        1,     1,     false,  false, 1,    0,     false,         false},
	[MIX_3_1]          = {"3:1",          3,     2,     true,   false, 3,    1,     false,         false},
	[MIX_2_1]          = {"2:1",          2,     1,     true,   false, 2,    1,     false,         false},
	[MIX_1_1]          = {"1:1",          1,     0,     true,   false, 1,    1,     false,         false},
	[MIX_STREAM_TRIAD] = {"stream_triad", 3,     0,     false,  true,  2,    1,     false,         false},
	[MIX_WRITE]        = {"write",        1,     0,     false,  true,  0,    1,     true,          false},
	[MIX_WRITE_NT]     = {"write_nt",     1,     0,     false,  true,  0,    1,     false,         false},
	[MIX_COPY]         = {"copy",         2,     0,     false,  true,  1,    1,     true,          false},
	[MIX_COPY_NT]      = {"copy_nt",      2,     0,     false,  true,  1,    1,     false,         false},
	[MIX_TRIAD]        = {"triad",        3,     0,     false,  true,  2,    1,     true,          false},
	[MIX_LINE_READS]   = {"line_reads",   1,     1,     false,  false, 1,    0,     false,         true},
};
// clang-format on

bool load_mix_parse(const char *word, enum load_mix *mix)
{
	for (unsigned i = 0; i < MIXES; i++)
		if (!strcmp(load_mixes[i].name, word)) {
			*mix = (enum load_mix)i;
			return true;
		}
	return false;
}

bool load_shape_known(enum load_mix mix, uint64_t streams, uint64_t prefetch_bytes, struct error *error)
{
	return !load_mixes[mix].sparse || (streams == 1 && prefetch_bytes == 0) ||
	       error_set(
			   error, ERROR_USAGE,
			   "--mix %s: needs --streams 1 and --prefetch-bytes 0, not %llu and %llu: it reads lines in ascending "
			   "order and leaves them to the hardware's prefetchers",
			   load_mixes[mix].name, (unsigned long long)streams, (unsigned long long)prefetch_bytes);
}

bool load_options_good(const char *mix, uint64_t streams, uint64_t prefetch_bytes, uint64_t buffer_bytes,
                       struct error *error)
{
	enum load_mix known;
	if (streams & (streams - 1))
		return error_set(error, ERROR_USAGE, "--streams: must be 1, 2, 4 or 8, not %llu", (unsigned long long)streams);
	return option_multiple("--prefetch-bytes", prefetch_bytes, LOAD_LINE_BYTES, error) &&
	       option_multiple("--buffer-bytes", buffer_bytes, 4096, error) && load_mix_parse(mix, &known) &&
	       load_shape_known(known, streams, prefetch_bytes, error);
}

unsigned load_write_allocates(enum load_mix mix)
{
	return LOAD_STORES_READ && load_mixes[mix].regular_store ? 1 : 0;
}

unsigned load_program_bytes(enum load_mix mix)
{
	const struct load_accounting *a = &load_mixes[mix];
	return a->reads * LOAD_LINE_BYTES / (a->sparse ? LOAD_LINE_WORDS : 1) + a->stores * LOAD_LINE_BYTES;
}

unsigned load_model_bytes(enum load_mix mix)
{
	return (load_mixes[mix].reads + load_mixes[mix].stores + load_write_allocates(mix)) * LOAD_LINE_BYTES;
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

load_kernel load_kernel_find(const struct load_width *width, enum load_mix mix, unsigned streams, bool prefetch,
                             bool delay)
{
	return width->kernels[mix][__builtin_ctz(streams)][prefetch][delay];
}
