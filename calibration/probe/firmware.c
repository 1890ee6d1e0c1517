// SPDX-License-Identifier: Apache-2.0
/* Latency of hardware and firmware: with interrupts off, nothing of the operating system's takes a CPU. The kernel's tracer
 * hwlat looks for gaps in the clock; beside it are the counts of system management interrupts and of thermal throttling. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocate.h"
#include "clock.h"
#include "files.h"
#include "interference.h"
#include "option_rows.h"
#include "smi.h"
#include "stopping.h"
#include "subcommand.h"
#include "text.h"
#include "tracing.h"

/* In the document, of a CPU. */
#define NUMBERS_OF_CPU 20u
#define LINE_BYTES 512u

static struct {
	const char *cpus;
	double seconds;
	uint64_t width_us, window_us, longest;
} options;

static const struct option table[] = {
	OPTION_ROW_TEXT("--cpus", &options.cpus, "LIST", NULL, "CPUs to observe, all at once"),
	/* What comes once a second is seen ten times; nothing rarer than a few per minute is. */
	OPTION_ROW_F64("--seconds", &options.seconds, "S", "10", 0, 86400, "how long to observe"),
	/* Nothing else runs on the CPU for so long: longer than this and the kernel's own timers come noticeably late. */
	OPTION_ROW_U64("--width-us", &options.width_us, "US", "90000", 1000, 900000,
	               "time with interrupts off in each window"),
	/* The rest is for what has waited; less than 10 ms is less than three ticks of a kernel with 250 Hz. */
	OPTION_ROW_U64("--window-us", &options.window_us, "US", "100000", 2000, 1000000, "length of a window"),
	OPTION_ROW_U64("--longest", &options.longest, "N", "20", 1, 1000,
	               "longest gaps of each CPU to list with their time"),
};

enum counted { COUNTED_SMI, COUNTED_CORE_THROTTLE, COUNTED_PACKAGE_THROTTLE, COUNTED };

struct station {
	unsigned cpu;
	int64_t before[COUNTED], after[COUNTED]; /* negative: unknown */
	uint64_t ran_ns;                         /* that the tracer's thread ran */
	uint64_t windows, gaps, nmi_windows;
	struct hwlat_window *longest; /* the longest first */
	size_t kept;
	int64_t lost_windows;
	struct error error; /* why it was not observed */
};

static struct {
	struct cpu_list cpus;
	struct station *stations;
	struct tracing tracing;
	char refused[320];
	uint64_t threshold_ns;
	double wall_s;
	const char *stopped;
	bool counted;                  /* system management interrupts, on any CPU */
	char smi_text[SMI_TEXT_BYTES]; /* where the counts come from, or why there are none */
} state;

static bool prepare(struct error *error)
{
	if (!cpu_list_parse(&state.cpus, options.cpus, error) || !option_positive("--seconds", options.seconds, error))
		return false;
	return options.width_us < options.window_us ||
	       error_set(error, ERROR_USAGE, "--width-us: must be below --window-us, %llu",
	                 (unsigned long long)options.window_us);
}

static bool refuse(const char *reason)
{
	if (!state.refused[0])
		snprintf(state.refused, sizeof(state.refused), "%s", reason);
	return false;
}

/* A window counts with its longest gap: the tracer tells no more of it. */
static void keep(struct station *station, const struct hwlat_window *window)
{
	size_t at = station->kept < options.longest ? station->kept++ : options.longest;
	for (; at > 0 && station->longest[at - 1].longest_us < window->longest_us; at--)
		if (at < options.longest)
			station->longest[at] = station->longest[at - 1];
	if (at < options.longest)
		station->longest[at] = *window;
}

static void windows_read(struct station *station)
{
	char line[LINE_BYTES];
	struct hwlat_window window;
	FILE *text = tracing_text(&state.tracing, station->cpu);
	if (!text) {
		error_set(&station->error, ERROR_INTERNAL, "the trace of CPU %u cannot be read", station->cpu);
		return;
	}
	while (fgets(line, sizeof(line), text)) {
		if (!hwlat_line(line, &window))
			continue;
		station->windows++;
		/* The processor's own interrupts that cannot be masked, of the kernel's watchdog and of perf. */
		if (window.nmis) {
			station->nmi_windows++;
			continue;
		}
		station->gaps += window.gaps;
		keep(station, &window);
	}
	(void)fclose(text);
	station->lost_windows = tracing_lost(&state.tracing, station->cpu);
}

/* The tracer's threads do nothing but look, and are booked as running for as long as they did. */
static void ran_read(void)
{
	char path[64], name[32];
	long long ran_ns;
	DIR *processes = opendir("/proc");
	if (!processes)
		return;
	for (const struct dirent *entry; (entry = readdir(processes));) {
		uint64_t cpu;
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%.16s/comm", entry->d_name);
		const char *at = file_line(path, name, sizeof(name)) ? text_after(name, "hwlatd/") : NULL;
		size_t place = at && text_decimal(&at, &cpu) ? cpu_list_place(&state.cpus, (unsigned)cpu) : SIZE_MAX;
		snprintf(path, sizeof(path), "/proc/%.16s/schedstat", entry->d_name);
		if (place != SIZE_MAX && file_number(path, &ran_ns))
			state.stations[place].ran_ns = (uint64_t)ran_ns;
	}
	closedir(processes);
}

/* Of a window that has not ended nothing is printed. Where the CPU has no tick (nohz_full) another one books some of it all the
 * same, so only whole windows count: what the thread does between two of them adds up to one after a thousand. Windows
 * with a gap and an interrupt that cannot be masked are not judged. */
static uint64_t windows_observed(const struct station *station)
{
	const uint64_t windows = station->ran_ns / (options.width_us * 1000);
	return windows > station->nmi_windows ? windows - station->nmi_windows : 0;
}

static double observed_s(const struct station *station)
{
	return (double)(windows_observed(station) * options.width_us) / 1e6;
}

/* A CPU that was not observed costs no other its gaps. */
static bool any_observed(void)
{
	bool any = false;
	for (size_t i = 0; i < state.cpus.count; i++) {
		struct station *station = &state.stations[i];
		if (station->error.code == ERROR_NONE && !windows_observed(station))
			error_set(&station->error, ERROR_UNSUPPORTED,
			          station->nmi_windows
						  ? "an interrupt that cannot be masked came in every window"
						  : "no window has ended, or it is unknown for how long the tracer observed: no thread "
						    "hwlatd/%u in /proc, or no schedstat of it",
			          station->cpu);
		any = any || station->error.code == ERROR_NONE;
	}
	return any || refuse(state.stations[0].error.message);
}

/* Values here, which are read however long that takes: a few microseconds for each CPU. */
static void counts_read(const struct station *station, int64_t counts[COUNTED])
{
	char text[SMI_TEXT_BYTES] = "";
	bool counted = smi_count(station->cpu, &counts[COUNTED_SMI], text);
	if (!counted)
		counts[COUNTED_SMI] = -1;
	/* One CPU that cannot be asked is not the reason of all. */
	if (counted || !state.counted)
		memcpy(state.smi_text, text, sizeof(text));
	state.counted = state.counted || counted;
	counts[COUNTED_CORE_THROTTLE] = throttle_count(station->cpu, "core");
	counts[COUNTED_PACKAGE_THROTTLE] = throttle_count(station->cpu, "package");
}

static void observe(void)
{
	const struct hwlat_settings settings = {options.width_us, options.window_us, "per-cpu"};
	bool good = tracing_open(&state.tracing, &state.cpus, &settings);
	for (size_t i = 0; i < state.cpus.count; i++)
		counts_read(&state.stations[i], state.stations[i].before);
	good = good && tracing_start(&state.tracing);
	uint64_t start_ns = clock_raw_ns();
	state.stopped = stop_sleep_ns((uint64_t)(options.seconds * 1e9)) ? "interrupted" : "time";
	state.wall_s = (double)(clock_raw_ns() - start_ns) / 1e9;
	if (good) {
		state.threshold_ns = hwlat_threshold_ns(&state.tracing.hwlat, state.tracing.instances);
		ran_read();
		tracing_stop(&state.tracing);
		for (size_t i = 0; i < state.cpus.count; i++)
			windows_read(&state.stations[i]);
		(void)(state.threshold_ns ? any_observed() : refuse(state.tracing.hwlat.refused));
	} else {
		(void)refuse(state.tracing.refused);
	}
	for (size_t i = 0; i < state.cpus.count; i++)
		counts_read(&state.stations[i], state.stations[i].after);
	tracing_close(&state.tracing);
}

static void station_gaps_write(struct json *json, const struct station *station)
{
	if (!json_object_known(json, "gaps", !state.refused[0] && station->error.code == ERROR_NONE))
		return;
	json_f64(json, "observed_s", observed_s(station));
	json_u64(json, "count", station->gaps);
	json_u64(json, "nmi_windows", station->nmi_windows);
	json_i64_known(json, "lost_windows", station->lost_windows >= 0, station->lost_windows);
	json_array_begin(json, "longest");
	for (size_t i = 0; i < station->kept; i++) {
		json_object_begin(json, NULL);
		json_i64(json, "at_unix_ns", station->longest[i].at_unix_ns);
		json_f64(json, "length_ns", (double)station->longest[i].longest_us * 1e3);
		json_object_end(json);
	}
	json_array_end(json);
	json_object_end(json);
}

static void station_write(struct json *json, const struct station *station)
{
	static const char *const keys[COUNTED] = {"smi", "core_throttle", "package_throttle"};
	json_object_begin(json, NULL);
	json_u64(json, "cpu", station->cpu);
	error_write(json, &station->error);
	station_gaps_write(json, station);
	for (size_t i = 0; i < COUNTED; i++)
		json_i64_known(json, keys[i], station->before[i] >= 0 && station->after[i] >= 0,
		               station->after[i] - station->before[i]);
	json_object_end(json);
}

static void document_write(struct json *json)
{
	json_object_begin(json, NULL);
	json_text(json, "instrument", state.refused[0] ? NULL : "hwlat");
	json_text(json, "refused", state.refused[0] ? state.refused : NULL);
	json_f64_known(json, "threshold_ns", !state.refused[0], (double)state.threshold_ns);
	json_f64(json, "wall_s", state.wall_s);
	json_text(json, "stopped", state.stopped);
	json_text(json, "smi_source", state.counted ? state.smi_text : NULL);
	json_text(json, "smi_refused", state.counted ? NULL : state.smi_text);
	json_array_begin(json, "cpus");
	for (size_t i = 0; i < state.cpus.count; i++)
		station_write(json, &state.stations[i]);
	json_array_end(json);
	json_object_end(json);
}

static bool run(struct json *result, struct error *error)
{
	struct demand demand = {0};
	demand_other(&demand, tracing_bytes(state.cpus.count) + (options.longest + 1) * sizeof(struct hwlat_window),
	             state.cpus.count);
	demand_document(&demand, state.cpus.count * (2 * options.longest + NUMBERS_OF_CPU));
	if (!demand_admit(&demand, error))
		return false;
	state.stations = allocate(state.cpus.count, sizeof(*state.stations));
	size_t usable = 0;
	for (size_t i = 0; i < state.cpus.count; i++) {
		struct station *station = &state.stations[i];
		*station = (struct station){.cpu = state.cpus.cpus[i],
		                            .longest = allocate(options.longest, sizeof(struct hwlat_window))};
		usable += affinity_usable(station->cpu, &station->error);
	}
	if (!usable)
		return error_take(error, &state.stations[0].error);
	supervise_avoid(&state.cpus);
	observe();
	document_write(result);
	return true;
}

SUBCOMMAND(firmware) = {
	"firmware", "what takes a CPU whose interrupts are off", SUBCOMMAND_OPTIONS(table), prepare, run,
};
