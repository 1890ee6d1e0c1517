/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the "CPU@NODE", "CPU@NODE+NODE" and "CPULIST@NODE" notation. */
#pragma once

#include "affinity.h"
#include "error.h"

bool place_parse_one(const char *text, unsigned *cpu, unsigned *node, struct error *error);
/* CPU@NODE[+NODE...]: memory of one node, or interleaved over several, each named once. */
bool place_parse_nodes(const char *text, unsigned *cpu, struct cpu_list *nodes, struct error *error);
bool place_parse_list(const char *text, size_t length, struct cpu_list *cpus, unsigned *node, struct error *error);
/* How far the memory of one node is from another node, as the firmware says: 10 is the node itself. UINT_MAX where it does
 * not say. */
unsigned place_distance(unsigned from, unsigned to);
