/* SPDX-License-Identifier: Apache-2.0 */
/* Errors with a code from a closed list and a message that says what is wrong and what to do. */
#pragma once

#include "json.h"

enum error_code {
	ERROR_NONE,
	ERROR_USAGE,
	ERROR_PIN_FAILED,
	ERROR_CPU_LEFT, /* a thread was found elsewhere after it had been pinned */
	ERROR_CPU_OFFLINE,
	ERROR_BIND_FAILED,
	ERROR_PLACEMENT_WRONG,
	ERROR_NO_MEMORY,
	ERROR_NO_PERMISSION,
	ERROR_UNSUPPORTED,
	ERROR_DEADLINE,
	ERROR_INTERRUPTED,
	ERROR_CHECK_FAILED,
	ERROR_INTERNAL,
};

struct error {
	enum error_code code;
	char message[480];
};

/* Fills in the error unless one is there already: the first cause is the one to report. Always returns false. */
bool error_set(struct error *error, enum error_code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Of a command whose parts have errors of their own: true where one part at least has none, else the error is that of the
 * first. */
bool error_of_parts(struct error *error, const char *part, size_t failed, size_t parts, const struct error *first);
/* Whether the work was told to end, rather than failed. */
bool error_is_stop(const struct error *error);
/* Takes an error over unless one is there already. Returns whether there is none now. */
bool error_take(struct error *error, const struct error *other);
const char *error_name(enum error_code code);
/* Writes the member "error" of the object that is open: code and message, or null where there is no error. */
void error_write(struct json *json, const struct error *error);
/* The exit status a process ends with for this error. */
int error_exit_status(enum error_code code);
