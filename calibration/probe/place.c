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
/* The kernel's own largest weight. */
#define WEIGHT_MAX 255u

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

/* "0*3": a node and its weight; 0 where it has none. */
static bool parse_weighted(char *text, unsigned *node, unsigned *weight)
{
	char *rest = text;
	uint64_t value = 0;
	(void)text_cut(&rest, '*');
	bool good = parse_node(text, node) && (!rest || (options_u64(rest, &value) && value >= 1 && value <= WEIGHT_MAX));
	*weight = (unsigned)value;
	return good;
}

void spread_free(struct spread *spread)
{
	cpu_list_free(&spread->nodes);
	free(spread->weights);
	*spread = (struct spread){0};
}

static bool parse_spread(char *text, struct spread *spread)
{
	size_t weighted = 0;
	for (char *word = text_cut(&text, ','); word; word = text_cut(&text, ',')) {
		unsigned node, weight;
		if (!parse_weighted(word, &node, &weight) || cpu_list_has(&spread->nodes, node))
			return false;
		cpu_list_add(&spread->nodes, node);
		spread->weights = reallocate(spread->weights, spread->nodes.count, sizeof(*spread->weights));
		spread->weights[spread->nodes.count - 1] = weight;
		weighted += weight > 0;
	}
	spread->by_kernel = spread->nodes.count > 1 && weighted == 0;
	return spread->nodes.count == 1 ? weighted == 0 : weighted == 0 || weighted == spread->nodes.count;
}

bool place_parse_spread(const char *text, struct cpu_list *cpus, struct spread *spread, struct error *error)
{
	char *copy = allocate_text(text, strlen(text)), *places = copy;
	const char *list = text_cut(&places, '@');
	*spread = (struct spread){0};
	bool good = places && parse_spread(places, spread) && cpu_list_parse(cpus, list, error);
	free(copy);
	if (!good)
		error_set(error, ERROR_USAGE,
		          "not CPUS@NODE such as 0-3@0, or weights of several nodes such as 0-3@0*3,1*1: '%s'", text);
	if (!good)
		spread_free(spread);
	return good;
}

bool spread_kernel_weights(struct spread *spread, struct error *error)
{
	for (size_t i = 0; spread->by_kernel && i < spread->nodes.count; i++) {
		char path[80];
		long long value;
		snprintf(path, sizeof(path), "/sys/kernel/mm/mempolicy/weighted_interleave/node%u", spread->nodes.cpus[i]);
		if (!file_number(path, &value) || value < 1 || value > WEIGHT_MAX)
			return error_set(error, ERROR_UNSUPPORTED, "no weight in %s, which Linux has from 6.9 on", path);
		spread->weights[i] = (unsigned)value;
	}
	return true;
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
