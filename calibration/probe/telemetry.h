/* SPDX-License-Identifier: Apache-2.0 */
/* Telemetry of a load over seconds: core clock, energy and temperatures, read by the thread that supervises. */
#pragma once

#include "affinity.h"

struct json;
struct telemetry;

/* Finds what can be read: the clock of one of `cpus` in each package, RAPL energy, package temperatures. Room for
 * `readings`. */
struct telemetry *telemetry_open(const struct cpu_list *cpus, size_t readings);
/* Takes a reading of everything, unless there is no room; NULL is accepted here and below. */
void telemetry_read(struct telemetry *telemetry);
/* Writes null for NULL. */
void telemetry_write(struct json *json, const char *key, const struct telemetry *telemetry);
