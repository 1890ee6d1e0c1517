/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one JSON value into memory. A number that is not finite spoils the document instead of being written. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
	char *text;
	size_t length;
	size_t capacity;
	bool comma;
	bool spoilt;         /* a number was not finite, or memory ran out */
	char spoilt_key[64]; /* the key of the first value that spoilt the document */
};

/* `key` is NULL inside arrays and for the outermost value. */
void json_object_begin(struct json *json, const char *key);
void json_object_end(struct json *json);
void json_array_begin(struct json *json, const char *key);
void json_array_end(struct json *json);
void json_i64(struct json *json, const char *key, int64_t value);
void json_u64(struct json *json, const char *key, uint64_t value);
void json_f64(struct json *json, const char *key, double value);
void json_bool(struct json *json, const char *key, bool value);
void json_text(struct json *json, const char *key, const char *value); /* NULL writes null */
void json_null(struct json *json, const char *key);
/* Writes null, and returns false, unless the value is known. */
bool json_known(struct json *json, const char *key, bool known);
void json_u64_known(struct json *json, const char *key, bool known, uint64_t value);
void json_i64_known(struct json *json, const char *key, bool known, int64_t value);
void json_f64_known(struct json *json, const char *key, bool known, double value);
/* Begin it, or write null and return false. */
bool json_object_known(struct json *json, const char *key, bool known);
bool json_array_known(struct json *json, const char *key, bool known);
/* Arrays of numbers; of doubles each times a factor. */
void json_u64s(struct json *json, const char *key, const uint64_t *values, size_t count);
void json_f64s(struct json *json, const char *key, const double *values, size_t count, double factor);
/* An array of the places at which `flags` are set. */
void json_places(struct json *json, const char *key, const bool *flags, size_t count);
/* Null for each of these keys, ended by NULL. */
void json_nulls(struct json *json, const char *const *keys);
#define JSON_NULLS(json, ...) json_nulls(json, (const char *const[]){__VA_ARGS__, NULL})
void json_raw(struct json *json, const char *key, const struct json *value);
void json_free(struct json *json);
