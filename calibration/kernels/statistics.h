/* SPDX-License-Identifier: Apache-2.0 */
/* Median and its distribution-free interval: of what is compared while it is measured, no more. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* For qsort. */
int compare_doubles(const void *left, const void *right);
int compare_u64(const void *left, const void *right);
/* Sorts a copy; NaN only when memory is out. count >= 1. */
double statistics_median(const double *values, size_t count);
/* Half the width of the narrowest order-statistic interval [x(k), x(n+1-k)] that covers the median with at least
 * 95 %, divided by the median; false when there are fewer than six values, for which no such interval exists. */
bool statistics_half_width(const double *values, size_t count, double *relative);
/* The k of that interval, 1 = [min, max]; 0 when there is none. */
size_t statistics_interval_rank(size_t count);
