// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)

#define VECTOR_BYTES 64
#define VECTOR_TABLE load_kernels_sve512
#define VECTOR_DOUBLES load_doubles_sve512
#define VECTOR_VISITS load_visits_sve512
#include "sve.h"

#endif
