// SPDX-License-Identifier: Apache-2.0
#include "jitter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "clock.h"
#include "files.h"
#include "interference.h"
#include "text.h"

struct label {
	char text[24];
	bool softirq, timer;
};

struct reading {
	uint64_t *counts; /* by label, then CPU; only as many labels as were known then */
	size_t labels;
	int64_t *threads; /* involuntary switches by CPU, then ns waited by CPU; -1: unknown */
};

void readings_open(struct readings *readings, const struct cpu_list *cpus, const int *threads, size_t capacity)
{
	*readings = (struct readings){.cpus = cpus, .threads = threads, .capacity = capacity};
	readings->at = allocate(capacity, sizeof(*readings->at));
	readings->list = allocate(capacity, sizeof(*readings->list));
}

static void reading_free(struct reading *reading)
{
	free(reading->counts);
	free(reading->threads);
	*reading = (struct reading){0};
}

void readings_forget(struct readings *readings)
{
	while (readings->count > 0)
		reading_free(&readings->list[--readings->count]);
}

size_t readings_room(const struct readings *readings, size_t bytes, size_t most)
{
	size_t reading_bytes = (readings->label_count + 2) * readings->cpus->count * sizeof(uint64_t),
		   room = bytes / reading_bytes;
	return room > most ? most : room < SLICES_MIN ? SLICES_MIN : room;
}

static size_t label_place(struct readings *readings, const struct counter_row *row, bool softirq)
{
	for (size_t i = 0; i < readings->label_count; i++)
		if (readings->labels[i].softirq == softirq && !strcmp(readings->labels[i].text, row->label))
			return i;
	readings->labels = reallocate(readings->labels, readings->label_count + 1, sizeof(*readings->labels));
	struct label *added = &readings->labels[readings->label_count];
	*added = (struct label){.softirq = softirq, .timer = row->timer};
	snprintf(added->text, sizeof(added->text), "%s", row->label);
	return readings->label_count++;
}

static void thread_read(int thread, int64_t *switches, int64_t *waited)
{
	char path[64];
	uint64_t value;
	snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
	char *text = file_read(path);
	*switches = text_number_of(text, "nonvoluntary_ctxt_switches:", &value) ? (int64_t)value : -1;
	free(text);
	/* Time run, time waited for a CPU, time slices. */
	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", thread);
	text = file_read(path);
	const char *at = text;
	bool known = at && text_decimal(&at, &value) && *(at = text_skip_blanks(at)) && text_decimal(&at, &value);
	*waited = known ? (int64_t)value : -1;
	free(text);
}

void readings_take(struct readings *readings)
{
	struct snapshot snapshot;
	size_t cpus = readings->cpus->count;
	if (readings->count == readings->capacity)
		reading_free(&readings->list[--readings->count]);
	struct reading *reading = &readings->list[readings->count];
	uint64_t before = clock_stop();
	snapshot_take_tables(&snapshot, readings->cpus);
	const struct counter_table *tables[] = {&snapshot.interrupts, &snapshot.softirqs};
	size_t most = readings->label_count + snapshot.interrupts.count + snapshot.softirqs.count;
	reading->threads = allocate(2 * cpus, sizeof(*reading->threads));
	for (size_t i = 0; i < cpus; i++)
		thread_read(readings->threads[i], &reading->threads[i], &reading->threads[cpus + i]);
	uint64_t after = clock_stop();
	reading->counts = allocate(most * cpus, sizeof(*reading->counts));
	for (unsigned t = 0; t < 2; t++)
		for (size_t r = 0; r < tables[t]->count; r++) {
			/* Most devices never interrupt a measured CPU. */
			if (!tables[t]->rows[r].values)
				continue;
			size_t place = label_place(readings, &tables[t]->rows[r], t == 1);
			memcpy(reading->counts + place * cpus, tables[t]->rows[r].values, cpus * sizeof(uint64_t));
		}
	reading->labels = readings->label_count;
	snapshot_free(&snapshot);
	readings->at[readings->count++] = before + (after - before) / 2;
}

/* The time in ns, whole: a slice has a hundred million. */
static void time_write(struct json *json, const char *key, uint64_t ticks)
{
	json_u64(json, key, (uint64_t)(clock_ns((double)ticks) + 0.5));
}

/* Gaps that begin in one slice. */
struct sum {
	uint64_t gaps, ticks;
};

static void add(struct sum *sum, const struct gap *gap)
{
	sum->gaps++;
	sum->ticks += gap->ticks;
}

static void sums_write(struct json *json, const struct sum *sums, size_t slices)
{
	json_array_begin(json, "gaps");
	for (size_t r = 0; r < slices; r++)
		json_u64(json, NULL, sums[r].gaps);
	json_array_end(json);
	json_array_begin(json, "lost_ns");
	for (size_t r = 0; r < slices; r++)
		time_write(json, NULL, sums[r].ticks);
	json_array_end(json);
}

/* The gaps of each slice: all, and those of each period. */
static void gaps_of_slices_write(struct json *json, const uint64_t *bounds, size_t slices, const struct sliced *sliced)
{
	const struct gaps *gaps = sliced->gaps;
	struct sum *sums = allocate((1 + sliced->period_count) * slices, sizeof(*sums));
	for (size_t i = 0, slice = 0; i < gaps->kept; i++) {
		const struct gap *gap = &gaps->ring[i];
		while (slice < slices && gap->at >= bounds[slice + 1])
			slice++;
		if (slice == slices)
			break;
		if (gap->at < bounds[0])
			continue;
		add(&sums[slice], gap);
		if (sliced->owner[i] != PERIODS_NONE)
			add(&sums[(1 + sliced->owner[i]) * slices + slice], gap);
	}
	sums_write(json, sums, slices);
	json_array_begin(json, "periods");
	for (size_t p = 0; p < sliced->period_count; p++) {
		json_object_begin(json, NULL);
		json_f64(json, "period_ns", clock_ns(sliced->periods[p].ticks));
		sums_write(json, sums + (1 + p) * slices, slices);
		json_object_end(json);
	}
	json_array_end(json);
	free(sums);
}

/* What changed in each slice; null where one of the readings is unknown. */
static void thread_write(struct json *json, const char *key, const struct readings *readings, size_t place,
                         size_t slices)
{
	bool known = true;
	for (size_t r = 0; r <= slices; r++)
		known = known && readings->list[r].threads[place] >= 0;
	if (!json_array_known(json, key, known))
		return;
	for (size_t r = 0; r < slices; r++)
		json_i64(json, NULL, readings->list[r + 1].threads[place] - readings->list[r].threads[place]);
	json_array_end(json);
}

/* Events of one row on one CPU in each slice; returns their sum. */
static uint64_t row_events(const struct readings *readings, size_t label, size_t cpu, size_t slices, uint64_t *events)
{
	size_t place = label * readings->cpus->count + cpu;
	uint64_t sum = 0;
	for (size_t r = 0; r < slices; r++) {
		const struct reading *old = &readings->list[r], *new = &readings->list[r + 1];
		uint64_t from = label < old->labels ? old->counts[place] : 0;
		uint64_t to = label < new->labels ? new->counts[place] : from;
		events[r] = to > from ? to - from : 0;
		sum += events[r];
	}
	return sum;
}

/* Of hundreds of rows few count something on one CPU: only those are written. */
static void sources_write(struct json *json, const struct readings *readings, size_t cpu, size_t slices)
{
	uint64_t *events = allocate(slices, sizeof(*events));
	json_array_begin(json, "sources");
	for (size_t l = 0; l < readings->label_count; l++) {
		const struct label *label = &readings->labels[l];
		if (!row_events(readings, l, cpu, slices, events))
			continue;
		json_object_begin(json, NULL);
		json_text(json, "source", label->text);
		json_text(json, "kind", label->softirq ? "softirq" : "interrupt");
		json_bool(json, "timer", label->timer);
		json_u64s(json, "events", events, slices);
		json_object_end(json);
	}
	json_array_end(json);
	free(events);
}

void slices_write(struct json *json, const char *key, const struct readings *readings, const struct sliced *sliced,
                  double steal_ms, int64_t smi)
{
	const struct gaps *gaps = sliced->gaps;
	/* Where the ring is full nothing is known of the later gaps' times. */
	uint64_t known = gaps->kept < gaps->count ? gaps->ring[gaps->kept - 1].at : UINT64_MAX;
	size_t slices = 0;
	while (slices + 1 < readings->count && readings->at[slices + 1] <= known)
		slices++;
	json_array_begin(json, key);
	if (slices > 0) {
		json_object_begin(json, NULL);
		json_array_begin(json, "length_ns");
		for (size_t r = 0; r < slices; r++)
			time_write(json, NULL, readings->at[r + 1] - readings->at[r]);
		json_array_end(json);
		gaps_of_slices_write(json, readings->at, slices, sliced);
		thread_write(json, "switches", readings, sliced->cpu, slices);
		thread_write(json, "waited_ns", readings, readings->cpus->count + sliced->cpu, slices);
		sources_write(json, readings, sliced->cpu, slices);
		json_f64_known(json, "steal_ms", steal_ms >= 0, steal_ms);
		json_i64_known(json, "smi", smi >= 0, smi);
		json_object_end(json);
	}
	json_array_end(json);
}
