// SPDX-License-Identifier: Apache-2.0
#include "telemetry.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "clock.h"
#include "files.h"

/* Eight packages with a clock, four RAPL domains and three temperatures each. More are left out, lowest names first. */
#define SOURCES_MAX 64u
#define CPU "/sys/devices/system/cpu/cpu%u/"
#define POWERCAP "/sys/class/powercap"
#define THERMAL "/sys/class/thermal"
#define HWMON "/sys/class/hwmon"

enum kind { CLOCK, ENERGY, TEMPERATURE, KINDS };

static const struct {
	const char *name, *unit;
	double scale; /* from what the kernel counts in: kHz, uJ, m degC */
} kinds[KINDS] = {{"clock", "Hz", 1e3}, {"energy", "J", 1e-6}, {"temperature", "degC", 1e-3}};

struct source {
	enum kind kind;
	char name[64];
	char path[192];
	double range; /* at which an energy counter wraps; 0: it does not */
};

struct telemetry {
	struct source sources[SOURCES_MAX];
	size_t count;
	char refused[KINDS][96]; /* why there is nothing of a kind */
	size_t readings, capacity;
	uint64_t *at_ns;
	double *values; /* of each reading, those of all sources; NAN: could not be read */
};

/* Adds a source that can be read now, or notes why not. */
static void add(struct telemetry *telemetry, enum kind kind, const char *name, const char *path)
{
	long long value;
	if (telemetry->count == SOURCES_MAX)
		return;
	if (!file_number(path, &value)) {
		snprintf(telemetry->refused[kind], sizeof(telemetry->refused[kind]), "%s: %s", path, strerror(errno));
		return;
	}
	struct source *source = &telemetry->sources[telemetry->count++];
	*source = (struct source){.kind = kind};
	snprintf(source->name, sizeof(source->name), "%s", name);
	snprintf(source->path, sizeof(source->path), "%s", path);
}

static void find_clocks(struct telemetry *telemetry, const struct cpu_list *cpus)
{
	long long package, seen[SOURCES_MAX];
	size_t packages = 0;
	char path[192], name[64];
	for (size_t i = 0; i < cpus->count && packages < SOURCES_MAX; i++) {
		snprintf(path, sizeof(path), CPU "topology/physical_package_id", cpus->cpus[i]);
		if (!file_number(path, &package))
			package = -1;
		size_t k = 0;
		while (k < packages && seen[k] != package)
			k++;
		if (k < packages)
			continue;
		seen[packages++] = package;
		snprintf(path, sizeof(path), CPU "cpufreq/scaling_cur_freq", cpus->cpus[i]);
		snprintf(name, sizeof(name), "CPU %u", cpus->cpus[i]);
		add(telemetry, CLOCK, name, path);
	}
}

/* RAPL: the directories that have a counter, each with the name of its domain, "package-0" or "dram". */
static void add_energy(struct telemetry *telemetry, const char *entry)
{
	char path[192], domain[40], name[64];
	long long range;
	snprintf(path, sizeof(path), POWERCAP "/%.64s/name", entry);
	if (!file_line(path, domain, sizeof(domain)))
		return; /* the control type itself, which has domains and no counter */
	snprintf(name, sizeof(name), "%s (%.20s)", domain, entry);
	snprintf(path, sizeof(path), POWERCAP "/%.64s/energy_uj", entry);
	size_t before = telemetry->count;
	add(telemetry, ENERGY, name, path);
	snprintf(path, sizeof(path), POWERCAP "/%.64s/max_energy_range_uj", entry);
	if (telemetry->count > before && file_number(path, &range))
		telemetry->sources[before].range = (double)range * kinds[ENERGY].scale;
}

static void add_zone(struct telemetry *telemetry, const char *entry)
{
	char path[192], type[40];
	snprintf(path, sizeof(path), THERMAL "/%.64s/type", entry);
	if (strncmp(entry, "thermal_zone", 12) != 0 || !file_line(path, type, sizeof(type)))
		return;
	snprintf(path, sizeof(path), THERMAL "/%.64s/temp", entry);
	add(telemetry, TEMPERATURE, type, path);
}

/* Package sensors of processors whose temperature is no thermal zone. */
static void add_sensor(struct telemetry *telemetry, const char *entry)
{
	static const char *const labels[] = {"Package", "Physical", "Tctl", "Tdie"};
	char path[192], chip[40], label[40], name[64];
	snprintf(path, sizeof(path), HWMON "/%.64s/name", entry);
	if (!file_line(path, chip, sizeof(chip)))
		return;
	for (unsigned i = 1; i <= 3; i++) {
		snprintf(path, sizeof(path), HWMON "/%.64s/temp%u_label", entry, i);
		if (!file_line(path, label, sizeof(label)))
			continue;
		for (size_t k = 0; k < sizeof(labels) / sizeof(labels[0]); k++)
			if (!strncmp(label, labels[k], strlen(labels[k]))) {
				snprintf(name, sizeof(name), "%.20s %.36s", chip, label);
				snprintf(path, sizeof(path), HWMON "/%.64s/temp%u_input", entry, i);
				add(telemetry, TEMPERATURE, name, path);
			}
	}
}

static void find(struct telemetry *telemetry, const char *directory, enum kind kind,
                 void (*add_entry)(struct telemetry *, const char *))
{
	struct dirent **entries;
	int count = scandir(directory, &entries, NULL, alphasort);
	if (count < 0 && !telemetry->refused[kind][0])
		snprintf(telemetry->refused[kind], sizeof(telemetry->refused[kind]), "%s: %s", directory, strerror(errno));
	for (int i = 0; i < count; i++) {
		if (entries[i]->d_name[0] != '.')
			add_entry(telemetry, entries[i]->d_name);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

struct telemetry *telemetry_open(const struct cpu_list *cpus, size_t readings)
{
	struct telemetry *telemetry = allocate(1, sizeof(*telemetry));
	find_clocks(telemetry, cpus);
	find(telemetry, POWERCAP, ENERGY, add_energy);
	find(telemetry, THERMAL, TEMPERATURE, add_zone);
	find(telemetry, HWMON, TEMPERATURE, add_sensor);
	telemetry->capacity = readings;
	telemetry->at_ns = allocate(readings, sizeof(*telemetry->at_ns));
	telemetry->values = allocate(readings * telemetry->count, sizeof(*telemetry->values));
	return telemetry;
}

void telemetry_read(struct telemetry *telemetry)
{
	if (!telemetry || telemetry->readings == telemetry->capacity)
		return;
	telemetry->at_ns[telemetry->readings] = clock_raw_ns();
	double *values = telemetry->values + telemetry->readings++ * telemetry->count;
	for (size_t i = 0; i < telemetry->count; i++) {
		long long value;
		bool known = file_number(telemetry->sources[i].path, &value);
		values[i] = known ? (double)value * kinds[telemetry->sources[i].kind].scale : NAN;
	}
}

/* Energy counts from the first reading on, across one wrap: RAPL counts to 262 kJ, ten minutes at 400 W. */
static double value_of(const struct telemetry *telemetry, size_t reading, size_t index)
{
	const struct source *source = &telemetry->sources[index];
	double value = telemetry->values[reading * telemetry->count + index], first = telemetry->values[index];
	if (source->kind != ENERGY)
		return value;
	return value < first ? value - first + source->range : value - first;
}

void telemetry_write(struct json *json, const char *key, const struct telemetry *telemetry)
{
	bool any[KINDS] = {false};
	if (!json_object_known(json, key, telemetry))
		return;
	json_array_begin(json, "sources");
	for (size_t i = 0; i < telemetry->count; i++) {
		const struct source *source = &telemetry->sources[i];
		any[source->kind] = true;
		json_object_begin(json, NULL);
		json_text(json, "kind", kinds[source->kind].name);
		json_text(json, "name", source->name);
		json_text(json, "unit", kinds[source->kind].unit);
		json_object_end(json);
	}
	json_array_end(json);
	json_array_begin(json, "readings");
	for (size_t i = 0; i < telemetry->readings; i++) {
		json_object_begin(json, NULL);
		json_f64(json, "s", (double)(telemetry->at_ns[i] - telemetry->at_ns[0]) / 1e9);
		json_array_begin(json, "values");
		for (size_t k = 0; k < telemetry->count; k++) {
			double value = value_of(telemetry, i, k);
			json_f64_known(json, NULL, isfinite(value), value);
		}
		json_array_end(json);
		json_object_end(json);
	}
	json_array_end(json);
	json_array_begin(json, "unreadable");
	for (int kind = 0; kind < KINDS; kind++) {
		if (any[kind])
			continue;
		json_object_begin(json, NULL);
		json_text(json, "kind", kinds[kind].name);
		json_text(json, "reason", telemetry->refused[kind][0] ? telemetry->refused[kind] : "the kernel lists none");
		json_object_end(json);
	}
	json_array_end(json);
	json_object_end(json);
}
