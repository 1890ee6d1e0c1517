/* SPDX-License-Identifier: Apache-2.0 */
/* How these bytes were made; the build defines each of these on the compiler's command line. */
#ifndef SUTPROBE_BUILD_INFO_H
#define SUTPROBE_BUILD_INFO_H

#if !defined(SUTPROBE_VERSION) || !defined(SUTPROBE_TARGET) || !defined(SUTPROBE_FLAGS) ||                             \
	!defined(SUTPROBE_SOURCE_SHA256) || !defined(SUTPROBE_COMPILER)
#error "build with `calibration build`, which records version, target, compiler, flags and the sources' hash"
#endif

#endif
