// SPDX-License-Identifier: Apache-2.0
#include "place.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "options.h"

/* Only a slip of the keyboard is above this; whether the node exists is asked when memory is bound to it. */
#define NODE_LIMIT (1u << 20)

bool place_parse_list(const char *text, size_t length, struct cpu_list *cpus, unsigned *node, struct error *error)
{
	char *copy = strndup(text, length);
	if (!copy)
		return error_set(error, ERROR_INTERNAL, "no memory for a place");
	char *at = strchr(copy, '@');
	uint64_t value;
	bool good = at != NULL;
	if (good)
		*at = '\0';
	good = good && options_u64(at + 1, &value) && value < NODE_LIMIT && cpu_list_parse(cpus, copy, error);
	if (good)
		*node = (unsigned)value;
	else
		error_set(error, ERROR_USAGE, "expected CPUS@NODE such as 0-3@0, found '%.*s'", (int)length, text);
	free(copy);
	return good;
}

bool place_parse_one(const char *text, unsigned *cpu, unsigned *node, struct error *error)
{
	struct cpu_list cpus = {0};
	if (!place_parse_list(text, strlen(text), &cpus, node, error))
		return false;
	bool one = cpus.count == 1 && cpus.cpus;
	if (one)
		*cpu = cpus.cpus[0];
	cpu_list_free(&cpus);
	return one || error_set(error, ERROR_USAGE, "expected one CPU in CPU@NODE, found '%s'", text);
}

bool place_parse_nodes(const char *text, unsigned *cpu, struct cpu_list *nodes, struct error *error)
{
	char *copy = strdup(text);
	if (!copy)
		return error_set(error, ERROR_INTERNAL, "no memory for a place");
	*nodes = (struct cpu_list){0};
	char *plus = strchr(copy, '+');
	if (plus)
		*plus++ = '\0';
	unsigned node = 0;
	bool good = place_parse_one(copy, cpu, &node, error) && cpu_list_add(nodes, node);
	while (good && plus) {
		char *next = strchr(plus, '+');
		if (next)
			*next++ = '\0';
		uint64_t value;
		good = options_u64(plus, &value) && value < NODE_LIMIT && !cpu_list_has(nodes, (unsigned)value) &&
		       cpu_list_add(nodes, (unsigned)value);
		plus = next;
	}
	free(copy);
	if (good)
		return true;
	cpu_list_free(nodes);
	return error_set(error, ERROR_USAGE, "expected CPU@NODE[+NODE...] such as 0@0+1, each node once, found '%s'", text);
}

unsigned place_distance(unsigned from, unsigned to)
{
	char path[64];
	struct cpu_list online = {0};
	struct error ignored = {0};
	unsigned distance = UINT_MAX;
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/distance", from);
	char *nodes = file_read("/sys/devices/system/node/online"), *row = file_read(path);
	if (nodes && row) {
		nodes[strcspn(nodes, "\n")] = '\0';
		char *at = row, *after;
		bool listed = cpu_list_parse(&online, nodes, &ignored);
		/* One number for each node online, in ascending order. */
		for (size_t i = 0; listed && i < online.count; i++, at = after) {
			unsigned long value = strtoul(at, &after, 10);
			if (after != at && online.cpus[i] == to)
				distance = (unsigned)value;
		}
	}
	cpu_list_free(&online);
	free(nodes);
	free(row);
	return distance;
}
