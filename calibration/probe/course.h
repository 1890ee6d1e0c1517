/* SPDX-License-Identifier: Apache-2.0 */
/* The course of a load over seconds: core clock, energy and temperatures, read by the thread that supervises. */
#pragma once

#include "affinity.h"

struct json;
struct course;

/* Finds what can be read: the clock of one of `cpus` in each package, RAPL energy, package temperatures. Room for
 * `readings`. */
struct course *course_open(const struct cpu_list *cpus, size_t readings);
/* Takes a reading of everything, unless there is no room; NULL is accepted here and below. */
void course_read(struct course *course);
/* Writes null for NULL. */
void course_write(struct json *json, const char *key, const struct course *course);
