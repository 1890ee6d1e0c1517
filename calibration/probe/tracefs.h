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

/* A tracer whose settings are the machine's: they are changed while it runs, and only where nobody else uses it. All that
 * have the directory of tracefs's instances return false with `refused`. */
struct tracer {
	char refused[256]; /* why it is not used; empty: it is */
	int settings;      /* their directory, locked while it is open; negative: none */
	/* An instance that exists as long as the settings are changed: whoever finds it can put them back, whatever became of
	 * this process. */
	char name[96];
	int held; /* a file of it: what is open cannot be removed by others; negative: the settings are as they were */
};
#define TRACER_CLOSED {.settings = -1, .held = -1}

bool tracer_refuse(struct tracer *tracer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes it the tracer of an instance; false with errno set. */
bool tracer_set(int instances, const char *name, const char *tracer);
/* Whether no instance has the tracer `one`, or `other` (NULL: only one). */
bool tracer_unused(struct tracer *tracer, int instances, const char *one, const char *other);
/* Locks its settings, a directory. */
bool tracer_lock(struct tracer *tracer, int instances, const char *settings, const char *name);
/* Makes the instance that tells of changed settings. */
bool tracer_remember(struct tracer *tracer, int instances);
/* Closes what is open; the settings stay as they are. */
void tracer_close(struct tracer *tracer);
