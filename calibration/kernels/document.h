/* SPDX-License-Identifier: Apache-2.0 */
/* The document that a command prints: the envelope that is alike for all, around the result of one. */
#pragma once

#include "cgroup.h"
#include "error.h"
#include "json.h"

struct document {
	int argc;
	char **argv;
	uint64_t started_unix_ns, started_raw_ns;
	struct cgroup_stops stops; /* when it started */
	struct json parameters, result;
	struct error error;
	bool given_up; /* the working thread was not waited for, and may still be at work */
};

void document_compose(struct json *json, const struct document *document);
