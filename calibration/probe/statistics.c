// SPDX-License-Identifier: Apache-2.0
#include "statistics.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"

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

double statistics_median(const double *values, size_t count)
{
	double *order = allocate(count, sizeof(*order));
	memcpy(order, values, count * sizeof(*order));
	qsort(order, count, sizeof(*order), compare_doubles);
	double median = count % 2 ? order[count / 2] : (order[count / 2 - 1] + order[count / 2]) / 2;
	free(order);
	return median;
}
