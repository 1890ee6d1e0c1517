// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)

#define VECTOR_BYTES 16
#define VECTOR_KERNELS load_sve128
#include "sve.h"

#endif
