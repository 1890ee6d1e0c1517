/* SPDX-License-Identifier: Apache-2.0 */
/* How these bytes were made. The build writes the one source file that defines this, so that a change of any source or
 * flag compiles no other file again. */
#pragma once

extern const struct build_info {
	const char *version, *target, *compiler, *flags, *source_sha256;
} build_info;
