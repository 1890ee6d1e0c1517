/* SPDX-License-Identifier: Apache-2.0 */
/* Clears the lines of all streams, those of one number in turn. A line of each stream is marked after every pass, which the
 * next pass has to clear. */
#pragma once

#include "../load.h"

static inline __attribute__((always_inline)) uint64_t clear_lines(struct load_call *call,
                                                                  void (*clear)(unsigned char *))
{
	const size_t begin = call->offset, end = begin + call->steps * LOAD_LINE_BYTES;
	const size_t streams = call->streams, stream_bytes = call->stream_bytes;
	unsigned char *const array = call->arrays[0];
	for (uint64_t pass = 0; pass < call->passes; pass++) {
		for (size_t at = begin; at < end; at += LOAD_LINE_BYTES) {
			unsigned char *line = array + at;
			for (size_t s = 0; s < streams; s++, line += stream_bytes)
				clear(line);
		}
		load_canaries_write(call, call->mark + pass);
	}
	return 0;
}
