/* SPDX-License-Identifier: Apache-2.0 */
/* A program of whoever runs sutprobe, started while it measures: how it ended, and the first of what it printed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "error.h"
#include "json.h"

/* Of its output; of the rest only the length is known. */
#define COMMAND_TEXT_BYTES 4096u
/* It is killed after so long. */
#define COMMAND_LIMIT_NS 30000000000u
/* Between two looks for what starts it, or for its end. */
#define COMMAND_LOOK_NS 10000000u

struct command {
	pid_t process; /* 0: there is none any more */
	int output, status;
	bool begun;
	bool killed;                 /* by us */
	uint64_t began_ns, ended_ns; /* CLOCK_MONOTONIC */
	uint64_t printed;            /* bytes */
	char text[COMMAND_TEXT_BYTES + 1];
	struct error error; /* why it could not be started */
};

/* Whether it can be started: an absolute path of a program that may be executed. */
bool command_usable(const char *option, const char *path, struct error *error);
/* Starts it with two numbers as its arguments, on the CPUs of this thread, and waits until it has ended, not beyond a
 * request to stop. Its children belong to our process group. */
void command_run(struct command *command, const char *path, uint64_t first, uint64_t second);
/* Writes null where it was not begun; `since_ns` is when what it was started for was seen. */
void command_write(struct json *json, const char *key, const struct command *command, uint64_t since_ns);
