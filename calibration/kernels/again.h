/* SPDX-License-Identifier: Apache-2.0 */
/* What the next command of the same options has to add to measure what this one chose, without choosing again. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json;

/* An option with these numbers, separated by commas. Once in a process, by the thread that measures. */
void again_with(const char *option, const uint64_t *numbers, size_t count);
/* Writes null where nothing was chosen; `known`: what was chosen may be read, because that thread has ended. */
void again_write(struct json *json, const char *key, bool known);
