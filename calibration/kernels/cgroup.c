// SPDX-License-Identifier: Apache-2.0
#include "cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "text.h"

/* Where the two versions of the interface keep the same three numbers. */
static const struct version {
	const char *type;       /* of the file system */
	const char *controller; /* NULL: the one hierarchy of version 2 */
	const char *limit, *usage;
	const char *cache; /* key in memory.stat of page cache that is dropped before anything is killed */
} versions[] = {
	{"cgroup2", NULL, "memory.max", "memory.current", "inactive_file "},
	{"cgroup", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
};

static bool has_word(const char *list, const char *word)
{
	size_t length = strlen(word);
	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, word, length) && (at[length] == '\0' || at[length] == ','))
			return true;
	}
	return false;
}

/* The group's path in a hierarchy, from lines "number:controllers:path". The text is cut up. */
static char *group_path(char *text, const struct version *version)
{
	char *rest = text;
	for (char *line; (line = text_cut(&rest, '\n'));) {
		char *number = text_cut(&line, ':'), *controllers = text_cut(&line, ':');
		if (!line || !controllers)
			continue;
		if (version->controller ? has_word(controllers, version->controller) : !strcmp(number, "0") && !*controllers)
			return line;
	}
	return NULL;
}

/* Where a hierarchy is mounted, and which of its groups is the top there. The text is cut up. */
static char *mount_point(char *text, const struct version *version, char **top)
{
	char *rest = text;
	for (char *line; (line = text_cut(&rest, '\n'));) {
		char *kind = strstr(line, " - ");
		if (!kind)
			continue;
		*kind = '\0';
		kind += 3;
		char *type = text_cut(&kind, ' '), *source = text_cut(&kind, ' '), *point = NULL;
		if (!source || !kind || strcmp(type, version->type) != 0 ||
		    (version->controller && !has_word(kind, version->controller)))
			continue;
		for (unsigned field = 0; field < 3; field++)
			(void)text_cut(&line, ' ');
		*top = text_cut(&line, ' ');
		point = text_cut(&line, ' ');
		if (*top && point)
			return point;
	}
	return NULL;
}

static bool number_in(const char *directory, const char *name, uint64_t *value)
{
	char path[PATH_MAX];
	long long found;
	if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path) || !file_number(path, &found) ||
	    found < 0)
		return false;
	*value = (uint64_t)found;
	return true;
}

/* False where this group sets no limit of its own. */
static bool room_in(const char *directory, const struct version *version, uint64_t *room)
{
	uint64_t limit, usage, cache = 0;
	char path[PATH_MAX];
	/* "max" is no number; version 1 says no limit with the largest number of pages there is. */
	if (!number_in(directory, version->limit, &limit) || limit > INT64_MAX / 2 ||
	    !number_in(directory, version->usage, &usage))
		return false;
	if (snprintf(path, sizeof(path), "%s/memory.stat", directory) < (int)sizeof(path)) {
		char *text = file_read(path);
		(void)text_number_of(text, version->cache, &cache);
		free(text);
	}
	usage -= cache < usage ? cache : usage;
	*room = limit > usage ? limit - usage : 0;
	return true;
}

static char *read_under(const char *root, const char *path)
{
	char whole[PATH_MAX];
	return snprintf(whole, sizeof(whole), "%s%s", root, path) < (int)sizeof(whole) ? file_read(whole) : NULL;
}

uint64_t cgroup_room(const char *root, char *where, size_t where_size)
{
	uint64_t least = CGROUP_NO_LIMIT;
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		char *groups = read_under(root, "/proc/self/cgroup"), *mounts = read_under(root, "/proc/self/mountinfo");
		char *top = NULL, *path = groups ? group_path(groups, &versions[i]) : NULL;
		char *point = mounts ? mount_point(mounts, &versions[i], &top) : NULL;
		char directory[PATH_MAX];
		if (path && point) {
			/* In a container the top that is mounted may be a group far down in the host's tree. */
			size_t cut = strcmp(top, "/") != 0 ? strlen(top) : 0;
			if (strncmp(path, top, cut) == 0 && (path[cut] == '/' || path[cut] == '\0'))
				path += cut;
			size_t floor = strlen(root) + strlen(point);
			int length = snprintf(directory, sizeof(directory), "%s%s%s", root, point, path);
			while (length >= (int)floor && length < (int)sizeof(directory)) {
				uint64_t room;
				if (room_in(directory, &versions[i], &room) && room < least) {
					least = room;
					snprintf(where, where_size, "%s", directory);
				}
				char *cutting = strrchr(directory, '/');
				if (!cutting || cutting < directory + floor)
					break;
				*cutting = '\0';
			}
		}
		free(groups);
		free(mounts);
	}
	return least;
}
