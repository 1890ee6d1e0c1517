// SPDX-License-Identifier: Apache-2.0
#include "tracing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
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

bool tracer_refuse(struct tracer *tracer, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(tracer->refused, sizeof(tracer->refused), format, arguments);
	va_end(arguments);
	return false;
}

bool tracer_set(int instances, const char *name, const char *tracer)
{
	char path[320];
	snprintf(path, sizeof(path), "%s/current_tracer", name);
	return tracefs_put(instances, path, tracer);
}

bool tracer_unused(struct tracer *tracer, int instances, const char *one, const char *other)
{
	char path[320];
	DIR *directory = tracefs_open(instances);
	if (!directory)
		return tracer_refuse(tracer, "the instances of tracing cannot be listed, one of which may use it");
	for (const struct dirent *entry; (entry = readdir(directory));) {
		snprintf(path, sizeof(path), "%s/current_tracer", entry->d_name);
		/* The parent directory is that of the tracing that is no instance. */
		if (strcmp(entry->d_name, ".") != 0 &&
		    (tracefs_lists(instances, path, one) || (other && tracefs_lists(instances, path, other))))
			(void)tracer_refuse(tracer, "%s%s%s is in use (current_tracer in instances/%s)", one, other ? " or " : "",
			                    other ? other : "", entry->d_name);
	}
	closedir(directory);
	return !tracer->refused[0];
}

bool tracer_lock(struct tracer *tracer, int instances, const char *settings, const char *name)
{
	tracer->settings = openat(instances, settings, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (tracer->settings < 0)
		return tracer_refuse(tracer, "opening its settings: %s", strerror(errno));
	return flock(tracer->settings, LOCK_EX | LOCK_NB) == 0 ||
	       tracer_refuse(tracer, "%s is in use, for example by another sutprobe (its settings are locked)", name);
}

bool tracer_remember(struct tracer *tracer, int instances)
{
	char path[128];
	/* One that is there already stands for nothing: it has the name of this process. */
	if (mkdirat(instances, tracer->name, 0700) != 0 && errno != EEXIST)
		return tracer_refuse(tracer, "an instance of tracing for it: %s", strerror(errno));
	/* It records nothing. */
	snprintf(path, sizeof(path), "%s/buffer_size_kb", tracer->name);
	(void)tracefs_put(instances, path, "4");
	snprintf(path, sizeof(path), "%s/tracing_on", tracer->name);
	tracer->held = openat(instances, path, O_RDONLY | O_CLOEXEC);
	return tracer->held >= 0 || tracer_refuse(tracer, "opening the instance of tracing for it: %s", strerror(errno));
}

void tracer_close(struct tracer *tracer)
{
	if (tracer->held >= 0)
		close(tracer->held);
	if (tracer->settings >= 0)
		close(tracer->settings);
	tracer->held = tracer->settings = -1;
}
