/* SPDX-License-Identifier: Apache-2.0 */
/* The files of tracefs, by a directory that is open: it need not be mounted anywhere. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>

/* Writes the text in one piece; false with errno set. */
bool tracefs_put(int directory, const char *path, const char *text);
/* Reads the beginning of a file, as far as it fits; false when there is none. */
bool tracefs_get(int directory, const char *path, char *text, size_t size);
/* Whether a list of words, which the kernel separates by blanks, has one. */
bool tracefs_lists(int directory, const char *path, const char *word);
/* Lists a directory from its beginning; NULL where it cannot be read. */
DIR *tracefs_open(int directory);
/* Removes an instance of tracing; true also where there is none. */
bool tracefs_remove(int instances, const char *name);
