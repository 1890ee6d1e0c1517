// SPDX-License-Identifier: Apache-2.0
#include "again.h"

#include <inttypes.h>
#include <stdio.h>

#include "allocate.h"
#include "json.h"

/* "18446744073709551615,", or its end */
#define NUMBER_BYTES 21

static struct {
	const char *option;
	char *value;
} chosen;

void again_with(const char *option, const uint64_t *numbers, size_t count)
{
	size_t room = count * NUMBER_BYTES, length = 0;
	chosen.value = allocate(room, 1);
	for (size_t i = 0; i < count; i++)
		length += (size_t)snprintf(chosen.value + length, room - length, "%s%" PRIu64, length ? "," : "", numbers[i]);
	chosen.option = option;
}

void again_write(struct json *json, const char *key, bool known)
{
	if (!json_array_known(json, key, known && chosen.option))
		return;
	json_text(json, NULL, chosen.option);
	json_text(json, NULL, chosen.value);
	json_array_end(json);
}
