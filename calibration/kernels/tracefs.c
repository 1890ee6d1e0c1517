// SPDX-License-Identifier: Apache-2.0
#include "tracefs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A directory of the kernel may be busy for moments after the last file in it was closed. */
#define REMOVE_TRIES 100
#define REMOVE_PAUSE_NS 10000000

bool tracefs_put(int directory, const char *path, const char *text)
{
	int descriptor = openat(directory, path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (descriptor < 0)
		return false;
	bool good = write(descriptor, text, strlen(text)) == (ssize_t)strlen(text);
	int saved = errno;
	close(descriptor);
	errno = saved;
	return good;
}

bool tracefs_get(int directory, const char *path, char *text, size_t size)
{
	size_t length = 0;
	int descriptor = openat(directory, path, O_RDONLY | O_CLOEXEC);
	if (descriptor < 0)
		return false;
	for (ssize_t got = 1; got > 0 && length + 1 < size; length += got > 0 ? (size_t)got : 0)
		got = read(descriptor, text + length, size - 1 - length);
	text[length] = '\0';
	close(descriptor);
	return length > 0;
}

bool tracefs_lists(int directory, const char *path, const char *word)
{
	char text[512], *at;
	if (!tracefs_get(directory, path, text, sizeof(text)))
		return false;
	for (const char *listed = strtok_r(text, " \n", &at); listed; listed = strtok_r(NULL, " \n", &at))
		if (!strcmp(listed, word))
			return true;
	return false;
}

DIR *tracefs_open(int directory)
{
	int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *listing = again < 0 ? NULL : fdopendir(again);
	if (!listing && again >= 0)
		close(again);
	return listing;
}

bool tracefs_remove(int instances, const char *name)
{
	const struct timespec pause = {.tv_nsec = REMOVE_PAUSE_NS};
	for (int i = 0; i < REMOVE_TRIES; i++) {
		if (unlinkat(instances, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return true;
		if (errno != EBUSY)
			break;
		nanosleep(&pause, NULL);
	}
	return false;
}
