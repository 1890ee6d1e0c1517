// SPDX-License-Identifier: Apache-2.0
#include "cgroup.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "hugetlb.h"
#include "text.h"

/* Where the two versions of the interface keep the same numbers. */
static const struct version {
	const char *type; /* of the file system */
	bool unified;     /* one hierarchy for all controllers */
	const char *limit, *soft, *usage;
	const char *cache;   /* key in memory.stat of page cache that is dropped before anything is killed */
	const char *stopped; /* key in cpu.stat, with what a unit of it has of a ns */
	uint64_t stopped_ns;
} versions[] = {
	/* Above memory.high nothing is killed, but every allocation waits for memory to be reclaimed. */
	{"cgroup2", true, "memory.max", "memory.high", "memory.current", "inactive_file ", "throttled_usec ", 1000},
	{"cgroup", false, "memory.limit_in_bytes", NULL, "memory.usage_in_bytes", "total_inactive_file ", "throttled_time ",
	 1},
};
#define VERSIONS (sizeof(versions) / sizeof(versions[0]))

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
static char *group_path(char *text, const struct version *version, const char *controller)
{
	char *rest = text;
	for (char *line; (line = text_cut(&rest, '\n'));) {
		char *number = text_cut(&line, ':'), *controllers = text_cut(&line, ':');
		if (!line || !controllers)
			continue;
		if (version->unified ? !strcmp(number, "0") && !*controllers : has_word(controllers, controller))
			return line;
	}
	return NULL;
}

/* Where a hierarchy is mounted, and which of its groups is the top there. The text is cut up. */
static char *mount_point(char *text, const struct version *version, const char *controller, char **top)
{
	char *rest = text;
	for (char *line; (line = text_cut(&rest, '\n'));) {
		char *kind = strstr(line, " - ");
		if (!kind)
			continue;
		*kind = '\0';
		kind += 3;
		char *type = text_cut(&kind, ' '), *source = text_cut(&kind, ' '), *point = NULL;
		if (!source || !kind || strcmp(type, version->type) != 0 || (!version->unified && !has_word(kind, controller)))
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

/* What is asked of the process's group and each of its ancestors that is to be seen. */
struct question {
	void (*of)(struct question *question, const char *directory, const struct version *version);
	char *where; /* the directory that the answer is from */
	size_t where_size;
	size_t page_bytes;
	uint64_t least;
	double least_cpus;
	struct cgroup_stops stops;
};

static void climb(const char *root, const char *controller, struct question *question)
{
	for (size_t i = 0; i < VERSIONS; i++) {
		const struct version *version = &versions[i];
		char *groups = file_read_in(root, "proc/self/cgroup"), *mounts = file_read_in(root, "proc/self/mountinfo");
		char *top = NULL, *path = groups ? group_path(groups, version, controller) : NULL;
		char *point = mounts ? mount_point(mounts, version, controller, &top) : NULL;
		char directory[PATH_MAX];
		if (path && point) {
			/* In a container the top that is mounted may be a group far down in the host's tree. */
			size_t cut = strcmp(top, "/") != 0 ? strlen(top) : 0;
			if (strncmp(path, top, cut) == 0 && (path[cut] == '/' || path[cut] == '\0'))
				path += cut;
			size_t floor = strlen(root) + strlen(point);
			int length = snprintf(directory, sizeof(directory), "%s%s%s", root, point, path);
			while (length >= (int)floor && length < (int)sizeof(directory)) {
				question->of(question, directory, version);
				char *cutting = strrchr(directory, '/');
				if (!cutting || cutting < directory + floor)
					break;
				*cutting = '\0';
			}
		}
		free(groups);
		free(mounts);
	}
}

static void answered_by(struct question *question, const char *directory)
{
	snprintf(question->where, question->where_size, "%s", directory);
}

static void keep_least(struct question *question, const char *directory, uint64_t limit, uint64_t usage)
{
	uint64_t room = limit > usage ? limit - usage : 0;
	if (room < question->least) {
		question->least = room;
		answered_by(question, directory);
	}
}

static void ask_room(struct question *question, const char *directory, const struct version *version)
{
	uint64_t limit = CGROUP_NO_LIMIT, soft, usage, cache = 0;
	/* "max" is no number; version 1 says no limit with the largest number of pages there is. */
	(void)file_number_in(directory, version->limit, "", &limit);
	if (version->soft && file_number_in(directory, version->soft, "", &soft) && soft < limit)
		limit = soft;
	if (limit > INT64_MAX / 2 || !file_number_in(directory, version->usage, "", &usage))
		return;
	(void)file_number_in(directory, "memory.stat", version->cache, &cache);
	keep_least(question, directory, limit, usage - (cache < usage ? cache : usage));
}

uint64_t cgroup_room(const char *root, char *where, size_t where_size)
{
	struct question question = {.of = ask_room, .where = where, .where_size = where_size, .least = CGROUP_NO_LIMIT};
	climb(root, "memory", &question);
	return question.least;
}

/* "200000 100000", or "max 100000" */
static void read_quota(const char *directory, uint64_t *quota_us, uint64_t *period_us)
{
	char *text = file_read_in(directory, "cpu.max");
	const char *at = text;
	if (at && text_decimal(&at, quota_us)) {
		at = text_skip_blanks(at);
		(void)text_decimal(&at, period_us);
	}
	free(text);
}

/* Pages are counted when they are touched, and where they are mapped too ("rsvd"). */
static void ask_hugetlb(struct question *question, const char *directory, const struct version *version)
{
	static const char *const counted[] = {"", "rsvd."};
	size_t units;
	const char unit = hugetlb_unit(question->page_bytes, &units);
	for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++) {
		char limit_name[64], usage_name[64];
		uint64_t limit = 0, usage = 0;
		snprintf(limit_name, sizeof(limit_name), "hugetlb.%zu%cB.%s%s", units, unit, counted[i],
		         version->unified ? "max" : "limit_in_bytes");
		snprintf(usage_name, sizeof(usage_name), "%.*s%s", (int)(strrchr(limit_name, '.') + 1 - limit_name), limit_name,
		         version->unified ? "current" : "usage_in_bytes");
		if (!file_number_in(directory, limit_name, "", &limit) || limit > INT64_MAX / 2 ||
		    !file_number_in(directory, usage_name, "", &usage))
			continue;
		keep_least(question, directory, limit, usage);
	}
}

uint64_t cgroup_hugetlb_room(const char *root, size_t page_bytes, char *where, size_t where_size)
{
	struct question question = {.of = ask_hugetlb,
	                            .where = where,
	                            .where_size = where_size,
	                            .page_bytes = page_bytes,
	                            .least = CGROUP_NO_LIMIT};
	climb(root, "hugetlb", &question);
	return question.least;
}

static void ask_tasks(struct question *question, const char *directory, const struct version *version)
{
	uint64_t limit = 0, usage = 0;
	(void)version; /* both have the same files */
	if (file_number_in(directory, "pids.max", "", &limit) && file_number_in(directory, "pids.current", "", &usage))
		keep_least(question, directory, limit, usage);
}

uint64_t cgroup_tasks(const char *root, char *where, size_t where_size)
{
	struct question question = {.of = ask_tasks, .where = where, .where_size = where_size, .least = CGROUP_NO_LIMIT};
	climb(root, "pids", &question);
	return question.least;
}

static void ask_cpus(struct question *question, const char *directory, const struct version *version)
{
	uint64_t quota_us = 0, period_us = 0;
	if (version->unified)
		read_quota(directory, &quota_us, &period_us);
	else
		(void)(file_number_in(directory, "cpu.cfs_quota_us", "", &quota_us) &&
		       file_number_in(directory, "cpu.cfs_period_us", "", &period_us));
	double cpus = period_us ? (double)quota_us / (double)period_us : INFINITY;
	if (cpus < question->least_cpus) {
		question->least_cpus = cpus;
		answered_by(question, directory);
	}
}

double cgroup_cpus(const char *root, char *where, size_t where_size)
{
	struct question question = {.of = ask_cpus, .where = where, .where_size = where_size, .least_cpus = INFINITY};
	climb(root, "cpu", &question);
	return question.least_cpus;
}

static void ask_stops(struct question *question, const char *directory, const struct version *version)
{
	uint64_t periods = 0, time = 0;
	(void)(file_number_in(directory, "cpu.stat", "nr_throttled ", &periods) &&
	       file_number_in(directory, "cpu.stat", version->stopped, &time));
	question->stops.periods += periods;
	question->stops.ns += time * version->stopped_ns;
}

struct cgroup_stops cgroup_stops(const char *root)
{
	struct question question = {.of = ask_stops};
	climb(root, "cpu", &question);
	return question.stops;
}
