// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void spoil(struct json *json, const char *key)
{
	if (!json->spoilt)
		snprintf(json->spoilt_key, sizeof(json->spoilt_key), "%s", key ? key : "array element");
	json->spoilt = true;
}

static void append(struct json *json, const char *text, size_t length)
{
	if (json->length + length + 1 > json->capacity) {
		size_t capacity = (json->length + length + 1) * 2 + 4096;
		char *grown = realloc(json->text, capacity);
		if (!grown) {
			spoil(json, "out of memory");
			return;
		}
		json->text = grown;
		json->capacity = capacity;
	}
	memcpy(json->text + json->length, text, length);
	json->length += length;
	json->text[json->length] = '\0';
}

static void append_text(struct json *json, const char *text)
{
	append(json, text, strlen(text));
}

/* Bytes of the UTF-8 sequence at `text`, or 0 where it is not one: what /proc or argv hold may be any bytes. */
static size_t utf8_length(const unsigned char *text)
{
	if (text[0] >= 0xc2 && text[0] <= 0xdf && (text[1] & 0xc0) == 0x80)
		return 2;
	if ((text[0] & 0xf0) == 0xe0 && (text[1] & 0xc0) == 0x80 && (text[2] & 0xc0) == 0x80 &&
	    !(text[0] == 0xe0 && text[1] < 0xa0) && !(text[0] == 0xed && text[1] > 0x9f))
		return 3;
	if (text[0] >= 0xf0 && text[0] <= 0xf4 && (text[1] & 0xc0) == 0x80 && (text[2] & 0xc0) == 0x80 &&
	    (text[3] & 0xc0) == 0x80 && !(text[0] == 0xf0 && text[1] < 0x90) && !(text[0] == 0xf4 && text[1] > 0x8f))
		return 4;
	return 0;
}

static void append_quoted(struct json *json, const char *value)
{
	append_text(json, "\"");
	for (const unsigned char *c = (const unsigned char *)value; *c; c++) {
		char escaped[8];
		size_t sequence;
		if (*c == '"' || *c == '\\') {
			snprintf(escaped, sizeof(escaped), "\\%c", *c);
			append_text(json, escaped);
		} else if (*c < 0x20 || *c == 0x7f) {
			snprintf(escaped, sizeof(escaped), "\\u%04x", *c);
			append_text(json, escaped);
		} else if (*c < 0x80) {
			append(json, (const char *)c, 1);
		} else if ((sequence = utf8_length(c)) != 0) {
			append(json, (const char *)c, sequence);
			c += sequence - 1;
		} else {
			append_text(json, "\\ufffd");
		}
	}
	append_text(json, "\"");
}

static void begin_value(struct json *json, const char *key)
{
	if (json->comma)
		append_text(json, ",");
	if (key) {
		append_quoted(json, key);
		append_text(json, ":");
	}
	json->comma = true;
}

static void begin_group(struct json *json, const char *key, const char *bracket)
{
	begin_value(json, key);
	append_text(json, bracket);
	json->comma = false;
}

static void end_group(struct json *json, const char *bracket)
{
	append_text(json, bracket);
	json->comma = true;
}

void json_object_begin(struct json *json, const char *key)
{
	begin_group(json, key, "{");
}

void json_object_end(struct json *json)
{
	end_group(json, "}");
}

void json_array_begin(struct json *json, const char *key)
{
	begin_group(json, key, "[");
}

void json_array_end(struct json *json)
{
	end_group(json, "]");
}

void json_i64(struct json *json, const char *key, int64_t value)
{
	char text[32];
	snprintf(text, sizeof(text), "%" PRId64, value);
	begin_value(json, key);
	append_text(json, text);
}

void json_u64(struct json *json, const char *key, uint64_t value)
{
	char text[32];
	snprintf(text, sizeof(text), "%" PRIu64, value);
	begin_value(json, key);
	append_text(json, text);
}

void json_f64(struct json *json, const char *key, double value)
{
	char text[40];
	if (!isfinite(value)) {
		spoil(json, key);
		return;
	}
	snprintf(text, sizeof(text), "%.12g", value);
	begin_value(json, key);
	append_text(json, text);
}

void json_bool(struct json *json, const char *key, bool value)
{
	begin_value(json, key);
	append_text(json, value ? "true" : "false");
}

void json_text(struct json *json, const char *key, const char *value)
{
	if (!json_known(json, key, value != NULL))
		return;
	begin_value(json, key);
	append_quoted(json, value);
}

void json_null(struct json *json, const char *key)
{
	begin_value(json, key);
	append_text(json, "null");
}

bool json_known(struct json *json, const char *key, bool known)
{
	if (!known)
		json_null(json, key);
	return known;
}

void json_u64_known(struct json *json, const char *key, bool known, uint64_t value)
{
	if (json_known(json, key, known))
		json_u64(json, key, value);
}

void json_i64_known(struct json *json, const char *key, bool known, int64_t value)
{
	if (json_known(json, key, known))
		json_i64(json, key, value);
}

void json_f64_known(struct json *json, const char *key, bool known, double value)
{
	if (json_known(json, key, known))
		json_f64(json, key, value);
}

bool json_object_known(struct json *json, const char *key, bool known)
{
	if (json_known(json, key, known))
		json_object_begin(json, key);
	return known;
}

bool json_array_known(struct json *json, const char *key, bool known)
{
	if (json_known(json, key, known))
		json_array_begin(json, key);
	return known;
}

void json_f64s(struct json *json, const char *key, const double *values, size_t count, double factor)
{
	json_array_begin(json, key);
	for (size_t i = 0; i < count; i++)
		json_f64(json, NULL, values[i] * factor);
	json_array_end(json);
}

void json_u64s(struct json *json, const char *key, const uint64_t *values, size_t count)
{
	json_array_begin(json, key);
	for (size_t i = 0; i < count; i++)
		json_u64(json, NULL, values[i]);
	json_array_end(json);
}

void json_places(struct json *json, const char *key, const bool *flags, size_t count)
{
	json_array_begin(json, key);
	for (size_t i = 0; i < count; i++)
		if (flags[i])
			json_u64(json, NULL, i);
	json_array_end(json);
}

void json_nulls(struct json *json, const char *const *keys)
{
	for (; *keys; keys++)
		json_null(json, *keys);
}

void json_raw(struct json *json, const char *key, const struct json *value)
{
	begin_value(json, key);
	append(json, value->text ? value->text : "null", value->text ? value->length : 4);
	if (value->spoilt && !json->spoilt)
		spoil(json, value->spoilt_key);
}

void json_free(struct json *json)
{
	free(json->text);
	*json = (struct json){0};
}
