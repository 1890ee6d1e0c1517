// SPDX-License-Identifier: Apache-2.0
#include "warning.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "json.h"

/* Enough for every distinct warning this program can give; one line says so if that ever proves wrong. */
#define WARNINGS_MAX 64

static struct {
	char code[48];
	char message[320];
} warnings[WARNINGS_MAX];
static unsigned warning_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void warning_add(const char *code, const char *format, ...)
{
	char message[sizeof(warnings[0].message)];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	pthread_mutex_lock(&lock);
	bool known = false;
	for (unsigned i = 0; i < warning_count; i++)
		known = known || (!strcmp(warnings[i].code, code) && !strcmp(warnings[i].message, message));
	if (!known && warning_count < WARNINGS_MAX) {
		bool last = warning_count == WARNINGS_MAX - 1;
		snprintf(warnings[warning_count].code, sizeof(warnings[0].code), "%s", last ? "WARNINGS_LOST" : code);
		snprintf(warnings[warning_count].message, sizeof(warnings[0].message), "%s",
		         last ? "more warnings than this program keeps" : message);
		warning_count++;
	}
	pthread_mutex_unlock(&lock);
}

void warning_write(struct json *json, const char *key)
{
	json_array_begin(json, key);
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < warning_count; i++) {
		json_object_begin(json, NULL);
		json_text(json, "code", warnings[i].code);
		json_text(json, "message", warnings[i].message);
		json_object_end(json);
	}
	pthread_mutex_unlock(&lock);
	json_array_end(json);
}
