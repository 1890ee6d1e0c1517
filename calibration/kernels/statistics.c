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

size_t statistics_interval_rank(size_t count)
{
	/* P(fewer than k of n values lie below the median), summed from the binomial with p = 1/2. */
	double tail = 0, term = pow(0.5, (double)count);
	size_t rank = 0;
	for (size_t k = 1; 2 * k <= count; k++) {
		tail += term;
		if (1 - 2 * tail < 0.95)
			break;
		rank = k;
		term *= (double)(count - k + 1) / (double)k;
	}
	return rank;
}

bool statistics_half_width(const double *values, size_t count, double *relative)
{
	size_t rank = statistics_interval_rank(count);
	double *order = rank ? sorted(values, count) : NULL;
	if (!order)
		return false;
	double low = order[rank - 1], high = order[count - rank];
	free(order);
	double median = statistics_median(values, count);
	*relative = (high - low) / 2 / median;
	return isfinite(*relative);
}
