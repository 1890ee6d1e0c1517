/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_MADE_FILES_H
#define HOST_MADE_FILES_H

#include <errno.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Files of a made-up machine, under a directory of their own. */
static bool put(const char *root, const char *path, const char *text)
{
	char whole[256];
	snprintf(whole, sizeof(whole), "%s%s", root, path);
	for (char *at = strchr(whole + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		if (mkdir(whole, 0700) != 0 && errno != EEXIST)
			return false;
		*at = '/';
	}
	FILE *file = fopen(whole, "w");
	if (!file)
		return false;
	bool good = fputs(text, file) >= 0;
	return fclose(file) == 0 && good;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

#endif
