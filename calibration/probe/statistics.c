// SPDX-License-Identifier: Apache-2.0
#include "statistics.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int compare_doubles(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return (a > b) - (a < b);
}

int compare_u64(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return (a > b) - (a < b);
}

static double *sorted(const double *values, size_t count)
{
	double *copy = malloc(count * sizeof(*copy));
	if (copy) {
		memcpy(copy, values, count * sizeof(*copy));
		qsort(copy, count, sizeof(*copy), compare_doubles);
	}
	return copy;
}

double statistics_median(const double *values, size_t count)
{
	double *order = sorted(values, count);
	if (!order)
		return NAN;
	double median = count % 2 ? order[count / 2] : (order[count / 2 - 1] + order[count / 2]) / 2;
	free(order);
	return median;
}
