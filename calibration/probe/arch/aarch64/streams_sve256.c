// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)

#define VECTOR_BYTES 32
#define VECTOR_KERNELS load_sve256
#include "sve.h"

#endif
