/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the "CPU@NODE", "CPU@NODE+NODE", "CPULIST@NODE" and "CPULIST@NODE*WEIGHT,NODE*WEIGHT" notation. */
#pragma once

#include "affinity.h"
#include "demand.h"
#include "error.h"

bool place_parse_one(const char *text, unsigned *cpu, unsigned *node, struct error *error);
/* CPU@NODE[+NODE...]: memory of one node, or interleaved over several, each named once. */
bool place_parse_nodes(const char *text, unsigned *cpu, struct cpu_list *nodes, struct error *error);
bool place_parse_list(const char *text, size_t length, struct cpu_list *cpus, unsigned *node, struct error *error);
/* CPULIST@NODE, or memory of several nodes, each named once: CPULIST@NODE*WEIGHT[,NODE*WEIGHT...], or
 * CPULIST@NODE,NODE[,NODE...] with the weights that the kernel has for them, which are not read here. */
bool place_parse_spread(const char *text, struct cpu_list *cpus, struct spread *spread, struct error *error);
void spread_free(struct spread *spread);
/* Fills in the weights of what the kernel is to spread by its own. */
bool spread_kernel_weights(struct spread *spread, struct error *error);
/* How far the memory of one node is from another node, as the firmware says: 10 is the node itself. UINT_MAX where it does
 * not say. */
unsigned place_distance(unsigned from, unsigned to);
