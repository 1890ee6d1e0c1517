/* SPDX-License-Identifier: Apache-2.0 */
/* Reads small files of /proc and /sys whole, and what they say. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text of a file, ended by a zero byte, to be freed; NULL with errno set when it cannot be read. */
char *file_read(const char *path);
/* The same, given up with ETIME where it takes more CPU time than that. */
char *file_read_within(const char *path, double cpu_s);
/* The same of a file of a directory. */
char *file_read_in(const char *directory, const char *name);
/* The number after a key at the start of a line of such a file; without a key (""), at the start of the file. */
bool file_number_in(const char *directory, const char *name, const char *key, uint64_t *value);
/* The first line into `line`, without its newline; false when the file cannot be read. */
bool file_line(const char *path, char *line, size_t size);
/* The number a file begins with; false when it cannot be read or begins with none. */
bool file_number(const char *path, long long *value);
/* Whether the process has a capability, by its number, in effect. */
bool capability_has(unsigned number);
