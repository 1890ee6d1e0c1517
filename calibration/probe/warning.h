/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader of the values must know but what does not stop the measurement. Safe from any thread. */
#pragma once

struct json;

/* The same code and message twice is one warning. */
void warning_add(const char *code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void warning_write(struct json *json, const char *key);
