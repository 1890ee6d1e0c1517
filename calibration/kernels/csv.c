// SPDX-License-Identifier: Apache-2.0
#include "csv.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"

static const char header[] =
	"size_kb,operation,bandwidth_mb_s,latency_ns,latency_stddev_ns,latency_samples,threads,iterations,elapsed_s\n";

static struct {
	char *text;
	size_t length;
	bool spoilt;
} rows;

void csv_add(const struct csv_row *row)
{
	char line[256];
	int length =
		snprintf(line, sizeof(line), "%" PRIu64 ",%s,%.2f,%.2f,%.2f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.6f\n",
		         row->size_bytes / 1024, row->operation, row->bandwidth_mb_s, row->latency_ns, row->latency_stddev_ns,
		         row->latency_samples, row->threads, row->iterations, row->elapsed_s);
	bool finite = isfinite(row->bandwidth_mb_s) && isfinite(row->latency_ns) && isfinite(row->latency_stddev_ns) &&
	              isfinite(row->elapsed_s);
	if (!finite || length < 0 || (size_t)length >= sizeof(line)) {
		rows.spoilt = true;
		return;
	}
	rows.text = reallocate(rows.text, rows.length + (size_t)length + 1, 1);
	memcpy(rows.text + rows.length, line, (size_t)length + 1);
	rows.length += (size_t)length;
}

void csv_lost(const char *what, const struct error *error)
{
	fprintf(stderr, "sutprobe: no row for %s: %s: %s\n", what, error_name(error->code), error->message);
}

char *csv_text(struct error *error)
{
	char *whole = rows.spoilt ? NULL : allocate(sizeof(header) + rows.length, 1);
	if (!whole) {
		error_set(error, ERROR_INTERNAL, "a figure of a row is not finite; this is a defect, please report it");
	} else {
		memcpy(whole, header, sizeof(header));
		memcpy(whole + sizeof(header) - 1, rows.text ? rows.text : "", rows.length + 1);
	}
	free(rows.text);
	rows.text = NULL;
	rows.length = 0;
	rows.spoilt = false;
	return whole;
}
