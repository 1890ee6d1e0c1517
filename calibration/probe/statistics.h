/* SPDX-License-Identifier: Apache-2.0 */
/* The median of what is compared while it is measured, no more. */
#pragma once

#include <stddef.h>

/* For qsort. */
int compare_doubles(const void *left, const void *right);
int compare_u64(const void *left, const void *right);
/* Sorts a copy. count >= 1. */
double statistics_median(const double *values, size_t count);
