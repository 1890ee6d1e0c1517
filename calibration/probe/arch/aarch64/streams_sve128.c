// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)

#define VECTOR_BYTES 16
#define VECTOR_TABLE load_kernels_sve128
#define VECTOR_DOUBLES load_doubles_sve128
#define VECTOR_VISITS load_visits_sve128
#include "sve.h"

#endif
