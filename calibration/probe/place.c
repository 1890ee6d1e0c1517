// SPDX-License-Identifier: Apache-2.0
#include "place.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "files.h"
#include "options.h"
#include "text.h"

/* Only a slip of the keyboard is above this; whether the node exists is asked when memory is bound to it. */
#define NODE_MAX (1u << 20)

static bool parse_node(const char *text, unsigned *node)
{
	uint64_t value;
	bool good = options_u64(text, &value) && value < NODE_MAX;
	*node = good ? (unsigned)value : 0;
	return good;
}

bool place_parse_list(const char *text, size_t length, struct cpu_list *cpus, unsigned *node, struct error *error)
{
	char *copy = allocate_text(text, length), *digits = copy;
	const char *list = text_cut(&digits, '@');
	bool good = digits && parse_node(digits, node) && cpu_list_parse(cpus, list, error);
	if (!good)
		error_set(error, ERROR_USAGE, "not CPUS@NODE such as 0-3@0: '%.*s'", (int)length, text);
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
	return one || error_set(error, ERROR_USAGE, "not one CPU in CPU@NODE: '%s'", text);
}

bool place_parse_nodes(const char *text, unsigned *cpu, struct cpu_list *nodes, struct error *error)
{
	char *copy = allocate_text(text, strlen(text)), *rest = copy;
	unsigned node = 0;
	*nodes = (struct cpu_list){0};
	bool good = place_parse_one(text_cut(&rest, '+'), cpu, &node, error);
	while (good) {
		cpu_list_add(nodes, node);
		const char *next = text_cut(&rest, '+');
		if (!next)
			break;
		good = parse_node(next, &node) && !cpu_list_has(nodes, node);
	}
	free(copy);
	if (good)
		return true;
	cpu_list_free(nodes);
	return error_set(error, ERROR_USAGE, "not CPU@NODE[+NODE...] such as 0@0+1, each node once: '%s'", text);
}

unsigned place_distance(unsigned from, unsigned to)
{
	char path[64];
	struct cpu_list online = {0};
	unsigned distance = UINT_MAX;
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/distance", from);
	char *row = file_read(path), *at = row, *after;
	/* One number for each node online, in ascending order. */
	if (row && cpu_list_read(&online, "/sys/devices/system/node/online"))
		for (size_t i = 0; i < online.count; i++, at = after) {
			unsigned long value = strtoul(at, &after, 10);
			if (after != at && online.cpus[i] == to)
				distance = (unsigned)value;
		}
	cpu_list_free(&online);
	free(row);
	return distance;
}
