// SPDX-License-Identifier: Apache-2.0
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "text.h"

char *file_read_within(const char *path, double cpu_s)
{
	uint64_t began_ns = clock_cpu_ns();
	int descriptor = open(path, O_RDONLY | O_CLOEXEC);
	if (descriptor < 0)
		return NULL;
	size_t capacity = 16384, length = 0;
	char *text = malloc(capacity);
	ssize_t got = 1;
	while (text && got != 0) {
		if (length + 1 == capacity) {
			char *grown = realloc(text, capacity *= 2);
			if (!grown)
				break;
			text = grown;
		}
		got = read(descriptor, text + length, capacity - length - 1);
		if (got < 0 && errno != EINTR)
			break;
		length += got > 0 ? (size_t)got : 0;
		if (got > 0 && (double)(clock_cpu_ns() - began_ns) > cpu_s * 1e9) {
			errno = ETIME;
			break;
		}
	}
	int saved = errno;
	close(descriptor);
	if (got != 0) {
		free(text);
		text = NULL;
	} else if (text) {
		text[length] = '\0';
	}
	errno = saved;
	return text;
}

char *file_read(const char *path)
{
	return file_read_within(path, INFINITY);
}

char *file_read_in(const char *directory, const char *name)
{
	char path[PATH_MAX];
	return snprintf(path, sizeof(path), "%s/%s", directory, name) < (int)sizeof(path) ? file_read(path) : NULL;
}

bool file_number_in(const char *directory, const char *name, const char *key, uint64_t *value)
{
	char *text = file_read_in(directory, name);
	bool found = text_number_of(text, key, value);
	free(text);
	return found;
}

bool file_line(const char *path, char *line, size_t size)
{
	char *text = file_read(path);
	if (!text)
		return false;
	snprintf(line, size, "%.*s", (int)strcspn(text, "\n"), text);
	free(text);
	return true;
}

bool file_number(const char *path, long long *value)
{
	char line[64], *end;
	if (!file_line(path, line, sizeof(line)))
		return false;
	errno = 0;
	*value = strtoll(line, &end, 10);
	return end != line && errno == 0;
}

bool capability_has(unsigned number)
{
	char *text = file_read("/proc/self/status");
	const char *at = text ? strstr(text, "\nCapEff:") : NULL;
	bool found = at && (strtoull(at + strlen("\nCapEff:"), NULL, 16) >> number & 1);
	free(text);
	return found;
}
