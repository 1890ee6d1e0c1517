// SPDX-License-Identifier: Apache-2.0
#include "mappings.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "allocate.h"
#include "clock.h"
#include "counter_budget.h"
#include "files.h"
#include "text.h"

static _Atomic uint64_t mappings_now = 1;

uint64_t mappings_count_on(void)
{
	return atomic_fetch_add(&mappings_now, 1);
}

static bool mapping_begins(const char *line, struct mapping *mapping)
{
	*mapping = (struct mapping){0};
	if (!text_hex(&line, &mapping->low) || *line != '-')
		return false;
	line++;
	return text_hex(&line, &mapping->high);
}

/* Reads the mapping whose lines begin at *line, which moves to the next one; false at the end of the text. */
static bool next_mapping(const char **line, struct mapping *mapping)
{
	bool any = false;
	for (struct mapping next; *line; *line = text_next_line(*line)) {
		uint64_t kib;
		if (mapping_begins(*line, &next)) {
			if (any)
				return true;
			*mapping = next;
			any = true;
		} else if (any && text_line_number(*line, "AnonHugePages:", &kib)) {
			mapping->huge = kib * 1024;
		}
	}
	return any;
}

/* All mappings, ascending, as they were read last. */
static struct {
	pthread_mutex_t lock;
	struct mapping *list;
	size_t count, capacity;
	uint64_t read_at; /* later than all that had been mapped then */
	int reason;       /* errno, 0: it was read */
} mappings = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Atomic uint64_t mappings_forgotten;

void mappings_forget(void)
{
	atomic_store(&mappings_forgotten, mappings_count_on());
}

static void mappings_parse(const char *text)
{
	mappings.count = 0;
	for (struct mapping mapping; next_mapping(&text, &mapping);) {
		if (mappings.count == mappings.capacity) {
			mappings.capacity = mappings.capacity ? 2 * mappings.capacity : 64;
			mappings.list = reallocate(mappings.list, mappings.capacity, sizeof(*mappings.list));
		}
		mappings.list[mappings.count++] = mapping;
	}
}

bool mappings_lock(uint64_t mapped)
{
	pthread_mutex_lock(&mappings.lock);
	uint64_t forgotten = atomic_load(&mappings_forgotten);
	if (mappings.read_at <= (mapped > forgotten ? mapped : forgotten)) {
		uint64_t now = mappings_count_on(), start_ns = clock_cpu_ns();
		char *text = file_read("/proc/self/smaps");
		mappings.reason = text ? 0 : errno;
		mappings.count = 0;
		if (text)
			mappings_parse(text);
		free(text);
		mappings.read_at = now;
		counter_budget_end(COUNTER_PAGES, start_ns, true);
	}
	if (!mappings.reason)
		return true;
	errno = mappings.reason;
	pthread_mutex_unlock(&mappings.lock);
	return false;
}

const struct mapping *mappings_from(uint64_t address)
{
	size_t low = 0, high = mappings.count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (mappings.list[middle].high <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return mappings.list + low;
}

const struct mapping *mappings_end(void)
{
	return mappings.list + mappings.count;
}

void mappings_unlock(void)
{
	pthread_mutex_unlock(&mappings.lock);
}
