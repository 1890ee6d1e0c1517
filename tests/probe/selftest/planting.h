/* SPDX-License-Identifier: Apache-2.0 */
/* Known answers for the tracing: disturbances of known kind and number are planted on the measured CPU, and each must be found
 * under its name. */
#pragma once

#include "error.h"
#include "json.h"

/* A timer that wakes a thread at 100 Hz, a thread that runs for 300 us at 40 Hz, and interrupts from another CPU at 200 Hz, for
 * so many seconds. False when one was missed. Where the kernel cannot be traced, or lets one of them not be planted, `note` says
 * so. */
bool planting_check(double seconds, char *note, size_t size, struct error *error);
/* What was planted and what was found, as a member "plantings"; null where nothing was. */
void planting_write(struct json *json);
