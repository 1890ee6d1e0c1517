// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocate.h"
#include "clock.h"
#include "files.h"
#include "notation.h"
#include "pmu_set.h"
#include "stopping.h"

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789_."
#define GROUP_MAX 63u
/* Of struct perf_event_attr, by linux/perf_event.h: the kernel accepts any size it knows, and larger ones only with zeros
 * behind what it knows. So the size is that of the last field in use: kernels of any age take what they can count. */
#define ATTRIBUTES_PLAIN 64u
#define ATTRIBUTES_CONFIG2 72u
/* The system's own header may be older than Linux 6.3, whose kernels have config3 there. */
#define ATTRIBUTES_CONFIG3 136u
#define CONFIG3_WORD 16u

/* Asking another CPU takes some microseconds. A reading that takes longer was interrupted, and nobody knows when in it the
 * counter was read: it is made again, and the shortest counts. Where a busy machine interrupts all four, its length is part of
 * the uncertainty. */
#define READ_LONG_NS 50000.0
#define READ_TRIES 4u

/* -- the notation -- */

static bool parse_spec(struct pmu_spec *spec, const char *text, bool probes, struct error *error)
{
	uint64_t group = 0, user = 0;
	const struct notation_term terms[] = {{"config=", &spec->config[0], 16},
	                                      {"config1=", &spec->config[1], 16},
	                                      {"config2=", &spec->config[2], 16},
	                                      {"config3=", &spec->config[3], 16},
	                                      {"group=", &group, 10},
	                                      {"user", &user, 0}};
	const char *at = text;
	unsigned seen = 0;
	*spec = (struct pmu_spec){0};
	if (!notation_word(&at, NAME_CHARACTERS, '=', spec->name, sizeof(spec->name)) ||
	    !notation_source(&at, spec->source, sizeof(spec->source)))
		return error_set(error, ERROR_USAGE,
		                 "--event: must be " PMU_NOTATION " with a name of 1 to %u of a-z, 0-9, '_' and '.', and a "
		                 "PMU of /sys/bus/event_source/devices or '" PMU_GENERIC_SOURCE "', not '%.200s'",
		                 PMU_NAME_MAX, text);
	if (!notation_terms(&at, terms, sizeof(terms) / sizeof(terms[0]), &seen) || group > GROUP_MAX)
		return error_set(
			error, ERROR_USAGE,
			"--event: '%.*s' in '%.200s' is not a term: config=, config1=, config2=, config3= with 0x and up "
			"to 16 digits, group=0 to %u and user, each once, with a / behind them",
			(int)strcspn(at, ",/"), at, text, GROUP_MAX);
	spec->group = seen >> 4 & 1 ? (int)group : -1;
	spec->user = user;
	if (*at == '@') {
		spec->on_cpus = true;
		struct error wrong = {0};
		if (!cpu_list_parse(&spec->cpus, at + 1, &wrong))
			return error_set(error, wrong.code, "--event: %s", wrong.message);
	} else if (*at) {
		return error_set(error, ERROR_USAGE, "--event: only @CPULIST may follow the terms, not '%.200s'", text);
	}
	return (strncmp(spec->name, PMU_OF_PROBES, strlen(PMU_OF_PROBES)) != 0 || (probes && !spec->on_cpus)) ||
	       error_set(error, ERROR_USAGE,
	                 "--event: names that begin with '" PMU_OF_PROBES
	                 "' are for the probes' threads, only in loaded and "
	                 "without CPUs, not '%.200s'",
	                 text);
}

bool pmu_parse(const struct word_list *events, bool probes, struct pmu **parsed, struct error *error)
{
	*parsed = NULL;
	if (!events->count)
		return true;
	struct pmu *pmu = *parsed = allocate(1, sizeof(*pmu));
	pmu->specs = allocate(events->count, sizeof(*pmu->specs));
	for (; pmu->count < events->count; pmu->count++)
		if (!parse_spec(&pmu->specs[pmu->count], events->words[pmu->count], probes, error))
			return false;
	return true;
}

bool pmu_find(struct pmu_spec *spec)
{
	char path[sizeof(PMU_SOURCES) + PMU_SOURCE_MAX + 8];
	long long type = PERF_TYPE_HARDWARE;
	spec->known = !strcmp(spec->source, PMU_GENERIC_SOURCE);
	if (!spec->known) {
		snprintf(path, sizeof(path), PMU_SOURCES "/%s/type", spec->source);
		spec->known = file_number(path, &type) && type >= 0 && type <= UINT32_MAX;
	}
	spec->type = (uint32_t)type;
	return spec->known;
}

/* -- opening -- */

int pmu_descriptor(struct perf_event_attr *attributes, const unsigned *cpu, int leader)
{
	struct rlimit files = {0};
	int descriptor =
		(int)syscall(SYS_perf_event_open, attributes, cpu ? -1 : 0, cpu ? (int)*cpu : -1, leader, PERF_FLAG_FD_CLOEXEC);
	if (descriptor >= 0 && getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY &&
	    (rlim_t)descriptor + PMU_DESCRIPTORS_LEFT >= files.rlim_cur) {
		close(descriptor);
		errno = EMFILE;
		return -1;
	}
	return descriptor;
}

/* A leader (-1) is opened stopped, and its group with it. */
static int event_open(const struct pmu_spec *spec, const unsigned *cpu, int leader)
{
	union {
		struct perf_event_attr known;
		uint64_t words[64];
	} attributes = {.words = {0}};
	struct perf_event_attr *known = &attributes.known;
	known->type = spec->type;
	known->config = spec->config[0];
	known->config1 = spec->config[1];
	known->config2 = spec->config[2];
	attributes.words[CONFIG3_WORD] = spec->config[3];
	known->size = spec->config[3] ? ATTRIBUTES_CONFIG3 : spec->config[2] ? ATTRIBUTES_CONFIG2 : ATTRIBUTES_PLAIN;
	known->read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
	known->disabled = leader < 0;
	known->exclude_kernel = spec->user;
	known->exclude_hv = spec->user;
	return pmu_descriptor(known, cpu, leader);
}

static void set_close(struct pmu_set *set)
{
	for (size_t i = 0; i < set->count; i++)
		close(set->counters[i].descriptor);
	for (int m = 0; m < PMU_MOMENTS; m++)
		free(set->words[m]);
	free(set->fresh);
	free(set->counters);
	free(set->refusals);
	*set = (struct pmu_set){0};
}

void pmu_refuse(struct pmu_refusal **refusals, size_t *count, const struct pmu_refusal *refusal)
{
	*refusals = reallocate(*refusals, *count + 1, sizeof(**refusals));
	(*refusals)[(*count)++] = *refusal;
}

static void add(struct pmu_set *set, const struct pmu_spec *spec, const unsigned *cpu)
{
	size_t leader = set->count;
	for (size_t i = 0; i < set->count && spec->group >= 0; i++) {
		const struct pmu_counter *other = &set->counters[i];
		if (other->spec->group == spec->group && other->leader == i && (!cpu || other->cpu == *cpu))
			leader = i;
	}
	set->counters = reallocate(set->counters, set->count + 1, sizeof(*set->counters));
	struct pmu_counter *counter = &set->counters[set->count];
	*counter = (struct pmu_counter){.spec = spec, .cpu = cpu ? *cpu : 0, .leader = leader};
	errno = 0;
	counter->descriptor =
		spec->known ? event_open(spec, cpu, leader < set->count ? set->counters[leader].descriptor : -1) : -1;
	if (counter->descriptor < 0) {
		struct pmu_refusal refusal = {.spec = spec, .cpu = counter->cpu, .code = spec->known ? errno : 0};
		pmu_reason(spec, cpu, refusal.code, refusal.reason);
		pmu_refuse(&set->refusals, &set->refused, &refusal);
		return;
	}
	counter->member = set->counters[leader].members++;
	set->count++;
}

/* Room for all readings, touched, so that reading faults no page in. */
static void make_room(struct pmu_set *set)
{
	size_t words = 0, most = 0;
	for (size_t i = 0; i < set->count; i++)
		if (set->counters[i].leader == i) {
			size_t block = PMU_HEAD_WORDS + set->counters[i].members;
			set->counters[i].block = words;
			words += block;
			most = block > most ? block : most;
		}
	for (int m = 0; m < PMU_MOMENTS; m++)
		set->words[m] = allocate_touched(words, sizeof(uint64_t));
	set->fresh = allocate_touched(most, sizeof(uint64_t));
}

void pmu_open(struct pmu *pmu)
{
	struct rlimit files;
	if (!pmu)
		return;
	/* A counter is a descriptor, and a server has hundreds of boxes. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files); /* what is refused for it later says so */
	}
	for (size_t i = 0; i < pmu->count; i++) {
		struct pmu_spec *spec = &pmu->specs[i];
		(void)pmu_find(spec); /* that there is none is said for each counter */
		for (size_t c = 0; c < spec->cpus.count; c++)
			add(&pmu->cpus, spec, &spec->cpus.cpus[c]);
	}
	make_room(&pmu->cpus);
}

void pmu_threads(struct pmu *pmu, size_t count)
{
	if (!pmu)
		return;
	for (size_t i = 0; i < pmu->thread_count; i++)
		set_close(&pmu->threads[i]);
	free(pmu->threads);
	pmu->threads = allocate(count, sizeof(*pmu->threads));
	pmu->thread_count = count;
}

void pmu_open_thread(struct pmu *pmu, size_t thread, const char *which)
{
	if (!pmu)
		return;
	struct pmu_set *set = &pmu->threads[thread];
	set_close(set);
	for (size_t i = 0; i < pmu->count; i++) {
		const struct pmu_spec *spec = &pmu->specs[i];
		bool probes = !strncmp(spec->name, PMU_OF_PROBES, strlen(PMU_OF_PROBES));
		if (!spec->on_cpus && probes == !strcmp(which, PMU_OF_PROBES))
			add(set, spec, NULL);
	}
	make_room(set);
}

/* -- reading -- */

static void switch_all(struct pmu_set *set, unsigned long request)
{
	for (size_t i = 0; i < set->count; i++) {
		struct pmu_counter *counter = &set->counters[i];
		if (counter->leader == i && ioctl(counter->descriptor, request, PERF_IOC_FLAG_GROUP) != 0)
			counter->failed = errno;
	}
}

static void read_group(struct pmu_set *set, struct pmu_counter *leader, enum pmu_moment moment)
{
	size_t bytes = (PMU_HEAD_WORDS + leader->members) * sizeof(uint64_t);
	uint64_t enough = (uint64_t)(READ_LONG_NS * clock_now_used.hz / 1e9);
	leader->width[moment] = UINT64_MAX;
	for (unsigned i = 0; i < READ_TRIES && leader->width[moment] > enough; i++) {
		uint64_t before = clock_start();
		ssize_t got = read(leader->descriptor, set->fresh, bytes);
		uint64_t width = clock_stop() - before;
		if (got != (ssize_t)bytes) {
			leader->failed = got < 0 ? errno : ENODATA;
			return;
		}
		if (width < leader->width[moment]) {
			leader->width[moment] = width;
			leader->ticks[moment] = before + width / 2;
			memcpy(set->words[moment] + leader->block, set->fresh, bytes);
		}
	}
}

static void read_all(struct pmu_set *set, enum pmu_moment moment)
{
	for (size_t i = 0; i < set->count; i++)
		if (set->counters[i].leader == i)
			read_group(set, &set->counters[i], moment);
}

static void set_begin(struct pmu_set *set, enum pmu_moment moment)
{
	for (size_t i = 0; i < set->count; i++)
		set->counters[i].failed = 0;
	switch_all(set, PERF_EVENT_IOC_ENABLE);
	read_all(set, moment);
}

static void set_end(struct pmu_set *set, enum pmu_moment moment)
{
	read_all(set, moment);
	switch_all(set, PERF_EVENT_IOC_DISABLE);
}

static void read_sets(struct pmu *pmu, size_t which, void (*read)(struct pmu_set *, enum pmu_moment),
                      enum pmu_moment moment)
{
	if (pmu && which >= PMU_CPUS)
		read(&pmu->cpus, moment);
	for (size_t i = 0; pmu && i < pmu->thread_count; i++)
		if (which == PMU_ALL || which == i)
			read(&pmu->threads[i], moment);
}

void pmu_begin(struct pmu *pmu, size_t which)
{
	read_sets(pmu, which, set_begin, PMU_BEGIN);
}

void pmu_end(struct pmu *pmu, size_t which)
{
	read_sets(pmu, which, set_end, PMU_END);
}

void pmu_background(struct pmu *pmu, double seconds)
{
	if (!pmu || seconds <= 0 || !pmu->cpus.count)
		return;
	set_begin(&pmu->cpus, PMU_QUIET_BEGIN);
	bool stopped = stop_sleep_ns((uint64_t)(seconds * 1e9));
	set_end(&pmu->cpus, PMU_QUIET_END);
	pmu->watched = !stopped;
	pmu->background_s = seconds;
}
