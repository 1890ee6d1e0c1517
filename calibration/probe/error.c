// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const names[] = {
	[ERROR_NONE] = "none",
	[ERROR_USAGE] = "usage",
	[ERROR_PIN_FAILED] = "pin_failed",
	[ERROR_CPU_LEFT] = "cpu_left",
	[ERROR_CPU_OFFLINE] = "cpu_offline",
	[ERROR_BIND_FAILED] = "bind_failed",
	[ERROR_PLACEMENT_WRONG] = "placement_wrong",
	[ERROR_NO_MEMORY] = "no_memory",
	[ERROR_NO_PERMISSION] = "no_permission",
	[ERROR_UNSUPPORTED] = "unsupported",
	[ERROR_DEADLINE] = "deadline",
	[ERROR_INTERRUPTED] = "interrupted",
	[ERROR_CHECK_FAILED] = "check_failed",
	[ERROR_INTERNAL] = "internal",
};

bool error_set(struct error *error, enum error_code code, const char *format, ...)
{
	if (error->code != ERROR_NONE)
		return false;
	error->code = code;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
	return false;
}

bool error_of_parts(struct error *error, const char *part, size_t failed, size_t parts, const struct error *first)
{
	return failed < parts ||
	       error_set(error, first->code, "no %s could be measured; the first: %s", part, first->message);
}

bool error_is_stop(const struct error *error)
{
	return error->code == ERROR_INTERRUPTED || error->code == ERROR_DEADLINE;
}

bool error_take(struct error *error, const struct error *other)
{
	if (error->code == ERROR_NONE)
		*error = *other;
	return error->code == ERROR_NONE;
}

const char *error_name(enum error_code code)
{
	return names[code];
}

int error_exit_status(enum error_code code)
{
	switch (code) {
	case ERROR_NONE:
		return 0;
	case ERROR_USAGE:
		return 2;
	case ERROR_INTERRUPTED:
		return 4;
	default:
		return 3;
	}
}

void error_write(struct json *json, const struct error *error)
{
	if (!json_object_known(json, "error", error->code != ERROR_NONE))
		return;
	json_text(json, "code", error_name(error->code));
	json_text(json, "message", error->message);
	json_object_end(json);
}
