// SPDX-License-Identifier: Apache-2.0
#include "pmu.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arch/arch.h"
#include "clock.h"
#include "files.h"
#include "json.h"
#include "stopping.h"

#define PARANOID "/proc/sys/kernel/perf_event_paranoid"
#define GENERIC_SOURCE "hardware"
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789_."
#define SOURCE_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-:"
#define HEX_DIGITS "0123456789abcdefABCDEF"
#define GROUP_MAX 63u
/* Of struct perf_event_attr, by linux/perf_event.h: the kernel accepts any size it knows, and larger ones only with zeros
 * behind what it knows. So the size is that of the last field in use: kernels of any age take what they can count. */
#define ATTRIBUTES_PLAIN 64u
#define ATTRIBUTES_CONFIG2 72u
/* The system's own header may be older than Linux 6.3, whose kernels have config3 there. */
#define ATTRIBUTES_CONFIG3 136u
#define CONFIG3_WORD 16u
/* Descriptors that stay free for the files that are read around the work. */
#define DESCRIPTORS_LEFT 64
/* Before the values of a group's members: how many there are, and the times enabled and running. */
#define HEAD_WORDS 3u

/* Asking another CPU takes some microseconds. A reading that takes longer was interrupted, and nobody knows when in it the
 * counter was read: it is made again, and the shortest counts. Where a busy machine interrupts all four, its length is part of
 * the uncertainty. */
#define READ_LONG_NS 50000.0
#define READ_TRIES 4u

enum moment { QUIET_BEGIN, QUIET_END, BEGIN, END, MOMENTS };

struct counter {
	const struct pmu_spec *spec;
	unsigned cpu; /* where it counts on one */
	int descriptor;
	size_t leader;  /* whose group it is in, by its number; its own where it is one */
	size_t member;  /* the place of its value among the group's */
	size_t members; /* of a leader: values of its group */
	size_t block;   /* of a leader: where its readings are */
	int failed;     /* of a leader: why it could not be read */
	uint64_t ticks[MOMENTS];
	uint64_t width[MOMENTS]; /* of a leader: how long its reading took */
};

struct refusal {
	const struct pmu_spec *spec;
	unsigned cpu;
	int code; /* 0: the kernel was not asked */
	char reason[PMU_REASON_BYTES];
};

/* Counters that are opened and read together: all of CPUs, or those of one thread. */
struct set {
	struct counter *counters;
	size_t count;
	struct refusal *refusals;
	size_t refused;
	uint64_t *words[MOMENTS];
	uint64_t *fresh; /* the reading at hand, of any group */
	bool no_memory;
};

struct pmu {
	struct pmu_spec *specs;
	size_t count;
	struct set cpus;
	struct set *threads;
	size_t thread_count;
	bool watched; /* before anything was measured */
	double background_s;
};

struct counted {
	const struct pmu_spec *spec;
	const char **sources;
	size_t source_count;
	unsigned cpu;
	size_t threads;
	uint64_t count;
	bool whole; /* nothing that belongs to it was refused, or never counted */
	double scaled, fraction, wall_ticks, uncertain_ticks;
	struct pmu_work work;
	bool quiet_whole;
	double quiet_scaled, quiet_ticks;
};

struct pmu_counts {
	bool watched;
	double background_s;
	struct counted *events;
	size_t count;
	struct refusal *refusals;
	size_t refused;
};

static const struct {
	int code;
	const char *name;
} codes[] = {
	{EPERM, "EPERM"},   {ENOENT, "ENOENT"}, {ESRCH, "ESRCH"},   {EINTR, "EINTR"},         {EIO, "EIO"},
	{E2BIG, "E2BIG"},   {EBADF, "EBADF"},   {EAGAIN, "EAGAIN"}, {ENOMEM, "ENOMEM"},       {EACCES, "EACCES"},
	{EFAULT, "EFAULT"}, {EBUSY, "EBUSY"},   {EEXIST, "EEXIST"}, {ENODEV, "ENODEV"},       {EINVAL, "EINVAL"},
	{ENFILE, "ENFILE"}, {EMFILE, "EMFILE"}, {ENOSPC, "ENOSPC"}, {ENOSYS, "ENOSYS"},       {ENODATA, "ENODATA"},
	{ENXIO, "ENXIO"},   {ERANGE, "ERANGE"}, {EPROTO, "EPROTO"}, {EOVERFLOW, "EOVERFLOW"}, {EOPNOTSUPP, "EOPNOTSUPP"},
};

const char *pmu_errno_name(int code)
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (codes[i].code == code)
			return codes[i].name;
	return "unknown";
}

/* ---- the notation ---- */

/* The word as far as it is made of `characters` alone, which must be up to `end`; false where it is not or too long. */
static bool take_word(const char **at, const char *characters, char end, char *word, size_t size)
{
	size_t length = strspn(*at, characters);
	if (length == 0 || length >= size || (*at)[length] != end)
		return false;
	memcpy(word, *at, length);
	word[length] = '\0';
	*at += length + 1;
	return true;
}

static bool parse_hex(const char *text, size_t length, uint64_t *value)
{
	if (length < 3 || length > 18 || text[0] != '0' || text[1] != 'x' || strspn(text + 2, HEX_DIGITS) < length - 2)
		return false;
	*value = strtoull(text, NULL, 16);
	return true;
}

static bool parse_term(struct pmu_spec *spec, const char *text, size_t length, unsigned *seen)
{
	static const char *const names[] = {"config=", "config1=", "config2=", "config3="};
	unsigned bit;
	if (length == 4 && !strncmp(text, "user", length)) {
		bit = 1u << 5;
		spec->user = true;
	} else if (length > 6 && length <= 8 && !strncmp(text, "group=", 6)) {
		char digits[3] = {text[6], length > 7 ? text[7] : '\0', '\0'};
		uint64_t group;
		if (!options_u64(digits, &group) || group > GROUP_MAX)
			return false;
		bit = 1u << 4;
		spec->group = (int)group;
	} else {
		size_t n = 0, width = 0;
		for (; n < 4; n++) {
			width = strlen(names[n]);
			if (length > width && !strncmp(text, names[n], width))
				break;
		}
		if (n == 4 || !parse_hex(text + width, length - width, &spec->config[n]))
			return false;
		bit = 1u << n;
	}
	bool again = *seen & bit;
	*seen |= bit;
	return !again;
}

static bool parse_spec(struct pmu_spec *spec, const char *text, bool probes, struct error *error)
{
	const char *at = text;
	unsigned seen = 0;
	*spec = (struct pmu_spec){.group = -1};
	if (!take_word(&at, NAME_CHARACTERS, '=', spec->name, sizeof(spec->name)) ||
	    !take_word(&at, SOURCE_CHARACTERS, '/', spec->source, sizeof(spec->source)) || spec->source[0] == '.')
		return error_set(error, ERROR_USAGE,
		                 "--event: expected " PMU_NOTATION " with a name of 1 to %u of a-z, 0-9, '_' and '.', and a "
		                 "PMU of /sys/bus/event_source/devices or '" GENERIC_SOURCE "', found '%.200s'",
		                 PMU_NAME_MAX, text);
	for (bool more = true; more;) {
		size_t length = strcspn(at, ",/");
		if (!parse_term(spec, at, length, &seen) || at[length] == '\0')
			return error_set(error, ERROR_USAGE,
			                 "--event: expected terms from config=, config1=, config2=, config3= with 0x and up to 16 "
			                 "digits, group=0 to %u and user, each once, and a / behind them, found '%.*s' in '%.200s'",
			                 GROUP_MAX, (int)(length < 80 ? length : 80), at, text);
		more = at[length] == ',';
		at += length + 1;
	}
	if (*at == '@') {
		spec->on_cpus = true;
		struct error wrong = {0};
		if (!cpu_list_parse(&spec->cpus, at + 1, &wrong))
			return error_set(error, wrong.code, "--event: %s", wrong.message);
	} else if (*at) {
		return error_set(error, ERROR_USAGE, "--event: expected @CPULIST or nothing after the terms, found '%.200s'",
		                 text);
	}
	if (!strncmp(spec->name, PMU_OF_PROBES, strlen(PMU_OF_PROBES)) && (!probes || spec->on_cpus))
		return error_set(error, ERROR_USAGE,
		                 "--event: expected a name that begins with '" PMU_OF_PROBES "' only in loaded and without "
		                 "CPUs, because it is counted in the probes' threads, found '%.200s'",
		                 text);
	return true;
}

static void specs_free(struct pmu_spec *specs, size_t count)
{
	for (size_t i = 0; specs && i < count; i++)
		cpu_list_free(&specs[i].cpus);
	free(specs);
}

bool pmu_parse(const struct word_list *events, bool probes, struct error *error)
{
	for (size_t i = 0; i < events->count; i++) {
		struct pmu_spec spec;
		bool good = parse_spec(&spec, events->words[i], probes, error);
		cpu_list_free(&spec.cpus);
		if (!good)
			return false;
	}
	return true;
}

/* ---- why not ---- */

bool pmu_paranoid(long long *value)
{
	return file_number(PARANOID, value);
}

bool pmu_find(struct pmu_spec *spec)
{
	char path[sizeof(PMU_SOURCES) + PMU_SOURCE_MAX + 8];
	long long type = PERF_TYPE_HARDWARE;
	spec->known = !strcmp(spec->source, GENERIC_SOURCE);
	if (!spec->known) {
		snprintf(path, sizeof(path), PMU_SOURCES "/%s/type", spec->source);
		spec->known = file_number(path, &type) && type >= 0 && type <= UINT32_MAX;
	}
	spec->type = (uint32_t)type;
	return spec->known;
}

/* Whether any PMU of sysfs is a core's: the kernel names these alike on all machines of an architecture. */
static bool core_source_found(void)
{
	DIR *directory = opendir(PMU_SOURCES);
	bool found = false;
	if (!directory)
		return false;
	for (const struct dirent *entry; !found && (entry = readdir(directory)) != NULL;)
		found =
			!strcmp(entry->d_name, "cpu") || !strncmp(entry->d_name, "cpu_", 4) || !strncmp(entry->d_name, "armv", 4);
	closedir(directory);
	return found;
}

static void say_absent(const char *what, char *reason)
{
	char hypervisor[ARCH_HYPERVISOR_BYTES];
	if (arch_hypervisor(hypervisor))
		snprintf(reason, PMU_REASON_BYTES,
		         "this machine has no %s: it is a guest of the hypervisor '%s', which shows it none", what, hypervisor);
	else
		snprintf(reason, PMU_REASON_BYTES,
		         "this machine has no %s: a guest has what its hypervisor shows it, and another machine needs the "
		         "kernel's driver for its model",
		         what);
}

static void say_forbidden(const struct pmu_spec *spec, const unsigned *cpu, char *reason)
{
	const char *what = cpu          ? "what runs on a CPU"
	                   : spec->user ? "a thread's own work"
	                                : "a thread with the kernel's work";
	long long most = cpu ? 0 : spec->user ? 2 : 1, paranoid = 0;
	bool known = pmu_paranoid(&paranoid), able = capability_has(PMU_CAP_PERFMON),
		 admin = capability_has(PMU_CAP_SYS_ADMIN);
	char found[32] = "unreadable";
	if (known)
		snprintf(found, sizeof(found), "%lld", paranoid);
	if (able || admin || (known && paranoid <= most))
		snprintf(
			reason, PMU_REASON_BYTES,
			"the kernel refuses although perf_event_paranoid is %s and the process %s: a filter of system calls as "
			"containers have, a security module, or capabilities of a user namespace only",
			found,
			able    ? "has CAP_PERFMON"
			: admin ? "has CAP_SYS_ADMIN"
			        : "needs no capability");
	else
		snprintf(reason, PMU_REASON_BYTES,
		         "not permitted: to count %s takes perf_event_paranoid of %lld at most, or CAP_PERFMON (before Linux "
		         "5.8 CAP_SYS_ADMIN); found perf_event_paranoid %s and neither capability",
		         what, most, found);
}

/* False only where the kernel lists the CPUs online, and this one is not among them. */
static bool cpu_online(unsigned cpu)
{
	struct cpu_list online = {0};
	struct error unread = {0};
	char *text = file_read("/sys/devices/system/cpu/online");
	if (text)
		text[strcspn(text, "\n")] = '\0';
	bool found = !text || !cpu_list_parse(&online, text, &unread) || cpu_list_has(&online, cpu);
	cpu_list_free(&online);
	free(text);
	return found;
}

static void say_invalid(const struct pmu_spec *spec, const unsigned *cpu, const char *words, char *reason)
{
	char path[sizeof(PMU_SOURCES) + PMU_SOURCE_MAX + 12];
	snprintf(path, sizeof(path), PMU_SOURCES "/%s/cpumask", spec->source);
	if (cpu && !cpu_online(*cpu))
		snprintf(reason, PMU_REASON_BYTES, "CPU %u is not online", *cpu);
	else if (!cpu && access(path, F_OK) == 0)
		snprintf(reason, PMU_REASON_BYTES,
		         "the PMU %s counts on CPUs and not in threads; ask for it with the CPUs of its cpumask, @CPULIST",
		         spec->source);
	else
		snprintf(reason, PMU_REASON_BYTES, "the PMU %s does not take %s%s%s", spec->source, words,
		         spec->user ? " without the kernel's work" : "",
		         spec->group >= 0 ? ", or has no room for all events of the group" : "");
}

void pmu_reason(const struct pmu_spec *spec, const unsigned *cpu, int code, char reason[PMU_REASON_BYTES])
{
	char words[128], what[PMU_SOURCE_MAX + 8];
	struct rlimit files = {0};
	int at = snprintf(words, sizeof(words), "config=0x%" PRIx64, spec->config[0]);
	for (int i = 1; i < 4; i++)
		if (spec->config[i])
			at += snprintf(words + at, sizeof(words) - (size_t)at, ",config%d=0x%" PRIx64, i, spec->config[i]);
	switch (code) {
	case 0:
		snprintf(what, sizeof(what), "PMU %s", spec->source);
		say_absent(what, reason);
		return;
	case EACCES:
	case EPERM:
		say_forbidden(spec, cpu, reason);
		return;
	case ENOENT:
		if (!strcmp(spec->source, GENERIC_SOURCE) && !core_source_found())
			say_absent("core PMU", reason);
		else
			snprintf(reason, PMU_REASON_BYTES, "the PMU %s of this machine has no event %s: it is not on this model",
			         spec->source, words);
		return;
	case EINVAL:
		say_invalid(spec, cpu, words, reason);
		return;
	case ENODEV:
	case ENXIO:
		if (cpu && !cpu_online(*cpu))
			snprintf(reason, PMU_REASON_BYTES, "CPU %u is not online", *cpu);
		else
			snprintf(reason, PMU_REASON_BYTES, "the PMU %s does not count %s here", spec->source,
			         cpu ? "on this CPU" : "in threads");
		return;
	case EBUSY:
		snprintf(reason, PMU_REASON_BYTES,
		         "the counter that %s needs is taken: by another user of the PMU, or by the kernel's NMI watchdog",
		         words);
		return;
	case EMFILE:
		(void)getrlimit(RLIMIT_NOFILE, &files);
		snprintf(reason, PMU_REASON_BYTES,
		         "each counter takes a file descriptor, and of the %" PRIu64 " that are allowed %d stay free for other "
		         "files; raise the hard limit of RLIMIT_NOFILE",
		         (uint64_t)files.rlim_max, DESCRIPTORS_LEFT);
		return;
	case ENOSYS:
		snprintf(reason, PMU_REASON_BYTES,
		         "there is no perf_event_open here: the kernel was built without it, or an emulator or a sandbox does "
		         "not pass it on");
		return;
	case E2BIG:
		snprintf(reason, PMU_REASON_BYTES, "this kernel does not know all of %s; config3 came with Linux 6.3", words);
		return;
	case EOPNOTSUPP:
		snprintf(reason, PMU_REASON_BYTES, "the PMU %s cannot do what is asked: %s%s", spec->source, words,
		         spec->user ? " without the kernel's work" : "");
		return;
	default:
		snprintf(reason, PMU_REASON_BYTES, "perf_event_open for %s of the PMU %s: %s", words, spec->source,
		         strerror(code));
	}
}

/* ---- opening ---- */

/* For the calling thread (NULL) or on a CPU; a leader (-1) is opened stopped, and its group with it. */
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
	struct rlimit files = {0};
	int descriptor =
		(int)syscall(SYS_perf_event_open, known, cpu ? -1 : 0, cpu ? (int)*cpu : -1, leader, PERF_FLAG_FD_CLOEXEC);
	if (descriptor >= 0 && getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY &&
	    (rlim_t)descriptor + DESCRIPTORS_LEFT >= files.rlim_cur) {
		close(descriptor);
		errno = EMFILE;
		descriptor = -1;
	}
	return descriptor;
}

static void set_close(struct set *set)
{
	for (size_t i = 0; i < set->count; i++)
		close(set->counters[i].descriptor);
	for (int m = 0; m < MOMENTS; m++)
		free(set->words[m]);
	free(set->fresh);
	free(set->counters);
	free(set->refusals);
	*set = (struct set){0};
}

static bool refuse(struct refusal **refusals, size_t *count, const struct refusal *refusal)
{
	struct refusal *grown = realloc(*refusals, (*count + 1) * sizeof(*grown));
	if (!grown)
		return false;
	*refusals = grown;
	grown[(*count)++] = *refusal;
	return true;
}

static bool add(struct set *set, const struct pmu_spec *spec, const unsigned *cpu)
{
	size_t leader = set->count;
	for (size_t i = 0; i < set->count && spec->group >= 0; i++) {
		const struct counter *other = &set->counters[i];
		if (other->spec->group == spec->group && other->leader == i && (!cpu || other->cpu == *cpu))
			leader = i;
	}
	struct counter *grown = realloc(set->counters, (set->count + 1) * sizeof(*grown));
	if (!grown)
		return false;
	set->counters = grown;
	struct counter *counter = &grown[set->count];
	*counter = (struct counter){.spec = spec, .cpu = cpu ? *cpu : 0, .leader = leader};
	errno = 0;
	counter->descriptor = spec->known ? event_open(spec, cpu, leader < set->count ? grown[leader].descriptor : -1) : -1;
	if (counter->descriptor < 0) {
		struct refusal refusal = {.spec = spec, .cpu = counter->cpu, .code = spec->known ? errno : 0};
		pmu_reason(spec, cpu, refusal.code, refusal.reason);
		return refuse(&set->refusals, &set->refused, &refusal);
	}
	counter->member = grown[leader].members++;
	set->count++;
	return true;
}

/* Room for all readings, written once, so that reading faults no page in. */
static bool make_room(struct set *set)
{
	size_t words = 0, most = 0;
	for (size_t i = 0; i < set->count; i++)
		if (set->counters[i].leader == i) {
			size_t block = HEAD_WORDS + set->counters[i].members;
			set->counters[i].block = words;
			words += block;
			most = block > most ? block : most;
		}
	for (int m = 0; m < MOMENTS && words; m++) {
		set->words[m] = malloc(words * sizeof(uint64_t));
		if (!set->words[m])
			return false;
		memset(set->words[m], 0, words * sizeof(uint64_t));
	}
	set->fresh = calloc(most + 1, sizeof(uint64_t));
	return set->fresh != NULL;
}

bool pmu_open(struct pmu **opened, const struct word_list *events, struct error *error)
{
	struct rlimit files;
	*opened = NULL;
	if (!events->count)
		return true;
	struct pmu *pmu = calloc(1, sizeof(*pmu));
	bool good = pmu && (pmu->specs = calloc(events->count, sizeof(*pmu->specs))) != NULL;
	/* A counter is a descriptor, and a server has hundreds of boxes. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files); /* what is refused for it later says so */
	}
	for (size_t i = 0; good && i < events->count; i++) {
		struct pmu_spec *spec = &pmu->specs[i];
		pmu->count++;
		if (!parse_spec(spec, events->words[i], true, error)) {
			pmu_close(pmu);
			return false;
		}
		(void)pmu_find(spec); /* that there is none is said for each counter */
		for (size_t c = 0; good && c < spec->cpus.count; c++)
			good = add(&pmu->cpus, spec, &spec->cpus.cpus[c]);
	}
	if (good && make_room(&pmu->cpus)) {
		*opened = pmu;
		return true;
	}
	pmu_close(pmu);
	return error_set(error, ERROR_INTERNAL, "no memory for the counters of %zu events", events->count);
}

static void threads_close(struct pmu *pmu)
{
	for (size_t i = 0; i < pmu->thread_count; i++)
		set_close(&pmu->threads[i]);
	free(pmu->threads);
	pmu->threads = NULL;
	pmu->thread_count = 0;
}

void pmu_close(struct pmu *pmu)
{
	if (!pmu)
		return;
	threads_close(pmu);
	set_close(&pmu->cpus);
	specs_free(pmu->specs, pmu->count);
	free(pmu);
}

bool pmu_threads(struct pmu *pmu, size_t count, struct error *error)
{
	if (!pmu)
		return true;
	threads_close(pmu);
	pmu->threads = calloc(count, sizeof(*pmu->threads));
	if (!pmu->threads)
		return error_set(error, ERROR_INTERNAL, "no memory for the counters of %zu threads", count);
	pmu->thread_count = count;
	return true;
}

void pmu_open_thread(struct pmu *pmu, size_t thread, const char *which)
{
	if (!pmu)
		return;
	struct set *set = &pmu->threads[thread];
	bool good = true;
	set_close(set);
	for (size_t i = 0; good && i < pmu->count; i++) {
		const struct pmu_spec *spec = &pmu->specs[i];
		bool probes = !strncmp(spec->name, PMU_OF_PROBES, strlen(PMU_OF_PROBES));
		if (!spec->on_cpus && probes == !strcmp(which, PMU_OF_PROBES))
			good = add(set, spec, NULL);
	}
	set->no_memory = !good || !make_room(set);
}

/* ---- reading ---- */

static void switch_all(struct set *set, unsigned long request)
{
	for (size_t i = 0; i < set->count; i++) {
		struct counter *counter = &set->counters[i];
		if (counter->leader == i && ioctl(counter->descriptor, request, PERF_IOC_FLAG_GROUP) != 0)
			counter->failed = errno;
	}
}

static void read_group(struct set *set, struct counter *leader, enum moment moment)
{
	size_t bytes = (HEAD_WORDS + leader->members) * sizeof(uint64_t);
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

static void read_all(struct set *set, enum moment moment)
{
	for (size_t i = 0; i < set->count; i++)
		if (set->counters[i].leader == i)
			read_group(set, &set->counters[i], moment);
}

static void set_begin(struct set *set, enum moment moment)
{
	for (size_t i = 0; i < set->count; i++)
		set->counters[i].failed = 0;
	switch_all(set, PERF_EVENT_IOC_ENABLE);
	read_all(set, moment);
}

static void set_end(struct set *set, enum moment moment)
{
	read_all(set, moment);
	switch_all(set, PERF_EVENT_IOC_DISABLE);
}

void pmu_begin_cpus(struct pmu *pmu)
{
	if (pmu)
		set_begin(&pmu->cpus, BEGIN);
}

void pmu_end_cpus(struct pmu *pmu)
{
	if (pmu)
		set_end(&pmu->cpus, END);
}

void pmu_begin_thread(struct pmu *pmu, size_t thread)
{
	if (pmu && !pmu->threads[thread].no_memory)
		set_begin(&pmu->threads[thread], BEGIN);
}

void pmu_end_thread(struct pmu *pmu, size_t thread)
{
	if (pmu && !pmu->threads[thread].no_memory)
		set_end(&pmu->threads[thread], END);
}

void pmu_begin(struct pmu *pmu)
{
	pmu_begin_cpus(pmu);
	for (size_t i = 0; pmu && i < pmu->thread_count; i++)
		pmu_begin_thread(pmu, i);
}

void pmu_end(struct pmu *pmu)
{
	pmu_end_cpus(pmu);
	for (size_t i = 0; pmu && i < pmu->thread_count; i++)
		pmu_end_thread(pmu, i);
}

void pmu_background(struct pmu *pmu, double seconds)
{
	if (!pmu || seconds <= 0 || !pmu->cpus.count)
		return;
	set_begin(&pmu->cpus, QUIET_BEGIN);
	bool stopped = stop_sleep_ns((uint64_t)(seconds * 1e9));
	set_end(&pmu->cpus, QUIET_END);
	pmu->watched = !stopped;
	pmu->background_s = seconds;
}

/* ---- what was counted ---- */

bool pmu_scale(const struct pmu_reading *before, const struct pmu_reading *after, double *scaled, double *fraction)
{
	/* Modulo 2^64, so that a counter may wrap. */
	uint64_t value = after->value - before->value, enabled = after->enabled_ns - before->enabled_ns,
			 running = after->running_ns - before->running_ns;
	*scaled = 0;
	*fraction = 0;
	if (enabled == 0 || running == 0)
		return false;
	*scaled = (double)value * ((double)enabled / (double)running);
	*fraction = (double)running / (double)enabled;
	return true;
}

static struct pmu_reading reading(const struct set *set, const struct counter *counter, enum moment moment)
{
	const uint64_t *block = set->words[moment] + set->counters[counter->leader].block;
	return (struct pmu_reading){
		.value = block[HEAD_WORDS + counter->member], .enabled_ns = block[1], .running_ns = block[2]};
}

/* Whether they are one figure: of one name, and both on this CPU or both in threads. */
static bool same(const struct pmu_spec *one, unsigned one_cpu, const struct pmu_spec *other, unsigned other_cpu)
{
	return one->on_cpus == other->on_cpus && one_cpu == other_cpu && !strcmp(one->name, other->name);
}

static bool name_source(struct counted *event, const char *source)
{
	for (size_t i = 0; i < event->source_count; i++)
		if (!strcmp(event->sources[i], source))
			return true;
	const char **grown = realloc(event->sources, (event->source_count + 1) * sizeof(*grown));
	if (!grown)
		return false;
	event->sources = grown;
	grown[event->source_count++] = source;
	return true;
}

/* Adds what the counters of one set have counted of an event; false where memory ran out. */
static bool add_set(struct counted *event, const struct pmu *pmu, const struct set *set, size_t thread,
                    pmu_progress progress, void *context)
{
	double begin = 0, end = 0, quiet = 0, uncertain = 0;
	size_t found = 0;
	for (size_t i = 0; i < set->refused; i++)
		if (same(set->refusals[i].spec, set->refusals[i].cpu, event->spec, event->cpu))
			event->whole = event->quiet_whole = false;
	for (size_t i = 0; i < set->count; i++) {
		const struct counter *counter = &set->counters[i], *leader = &set->counters[counter->leader];
		double scaled, fraction;
		if (!same(counter->spec, counter->cpu, event->spec, event->cpu))
			continue;
		if (!name_source(event, counter->spec->source))
			return false;
		if (leader->failed) {
			event->whole = event->quiet_whole = false;
			continue;
		}
		struct pmu_reading before = reading(set, counter, BEGIN), after = reading(set, counter, END);
		event->whole = pmu_scale(&before, &after, &scaled, &fraction) && event->whole;
		event->count += after.value - before.value;
		event->scaled += scaled;
		event->fraction = fraction < event->fraction ? fraction : event->fraction;
		begin += (double)(leader->ticks[BEGIN] - set->counters[0].ticks[BEGIN]);
		end += (double)(leader->ticks[END] - set->counters[0].ticks[BEGIN]);
		uncertain += (double)(leader->width[BEGIN] + leader->width[END]) / 2;
		found++;
		if (pmu->watched && event->spec->on_cpus) {
			before = reading(set, counter, QUIET_BEGIN);
			after = reading(set, counter, QUIET_END);
			event->quiet_whole = pmu_scale(&before, &after, &scaled, &fraction) && event->quiet_whole;
			event->quiet_scaled += scaled;
			quiet += (double)(leader->ticks[QUIET_END] - leader->ticks[QUIET_BEGIN]);
		}
	}
	if (!found)
		return true;
	/* Counters are read one after another: what they count together was counted, in the mean, between the means. */
	begin /= (double)found;
	end /= (double)found;
	event->wall_ticks += end - begin;
	event->uncertain_ticks += uncertain / (double)found;
	event->quiet_ticks += quiet / (double)found;
	event->threads++;
	if (progress) {
		uint64_t origin = set->counters[0].ticks[BEGIN];
		struct pmu_work until = progress(context, thread, origin + (uint64_t)end),
						from = progress(context, thread, origin + (uint64_t)begin);
		event->work.steps = until.steps < 0 ? -1 : event->work.steps + until.steps - from.steps;
		event->work.hops = until.hops < 0 ? -1 : event->work.hops + until.hops - from.hops;
	}
	return true;
}

static bool keep_refusals(struct pmu_counts *counts, const struct set *set)
{
	bool good = true;
	for (size_t i = 0; good && i < set->refused; i++) {
		const struct refusal *refusal = &set->refusals[i];
		bool known = false; /* threads are refused the same for the same reason, and say it once */
		for (size_t k = 0; !known && !refusal->spec->on_cpus && k < counts->refused; k++)
			known = counts->refusals[k].spec == refusal->spec && counts->refusals[k].code == refusal->code;
		good = known || refuse(&counts->refusals, &counts->refused, refusal);
	}
	for (size_t i = 0; good && i < set->count; i++) {
		const struct counter *counter = &set->counters[i];
		int code = set->counters[counter->leader].failed;
		struct refusal lost = {.spec = counter->spec, .cpu = counter->cpu, .code = code};
		if (!code)
			continue;
		snprintf(lost.reason, sizeof(lost.reason), "it was opened, and could not be read: %s", strerror(code));
		good = refuse(&counts->refusals, &counts->refused, &lost);
	}
	return good;
}

/* One event on one CPU (or in threads, for which it is 0), unless one asked before it was the same. */
static bool take_event(const struct pmu *pmu, size_t number, unsigned cpu, size_t thread, pmu_progress progress,
                       void *context, struct pmu_counts *counts)
{
	const struct pmu_spec *spec = &pmu->specs[number];
	struct counted event = {.spec = spec, .cpu = cpu, .whole = true, .quiet_whole = true, .fraction = 1};
	bool good = true;
	if (!progress)
		event.work = (struct pmu_work){-1, -1};
	for (size_t i = 0; i < counts->count; i++)
		if (same(counts->events[i].spec, counts->events[i].cpu, spec, cpu))
			return true;
	if (spec->on_cpus)
		good = add_set(&event, pmu, &pmu->cpus, PMU_ALL, progress, context);
	for (size_t i = 0; good && !spec->on_cpus && i < pmu->thread_count; i++)
		if (thread == PMU_ALL || thread == i)
			good = add_set(&event, pmu, &pmu->threads[i], i, progress, context);
	struct counted *grown =
		good && event.threads ? realloc(counts->events, (counts->count + 1) * sizeof(*grown)) : NULL;
	if (grown) {
		event.wall_ticks /= (double)event.threads;
		event.uncertain_ticks /= (double)event.threads;
		counts->events = grown;
		grown[counts->count++] = event;
		return true;
	}
	free(event.sources);
	return good && !event.threads; /* nothing of it was counted, and the refusals say why */
}

bool pmu_take(const struct pmu *pmu, size_t thread, pmu_progress progress, void *context, struct pmu_counts **counts,
              struct error *error)
{
	*counts = NULL;
	if (!pmu)
		return true;
	struct pmu_counts *taken = calloc(1, sizeof(*taken));
	bool good = taken && keep_refusals(taken, &pmu->cpus);
	for (size_t i = 0; good && i < pmu->thread_count; i++)
		if (thread == PMU_ALL || thread == i)
			good = !pmu->threads[i].no_memory && keep_refusals(taken, &pmu->threads[i]);
	for (size_t i = 0; good && i < pmu->count; i++) {
		const struct pmu_spec *spec = &pmu->specs[i];
		for (size_t c = 0; good && c < spec->cpus.count; c++)
			good = take_event(pmu, i, spec->cpus.cpus[c], thread, progress, context, taken);
		if (good && !spec->on_cpus)
			good = take_event(pmu, i, 0, thread, progress, context, taken);
	}
	if (!good) {
		pmu_counts_free(taken);
		return error_set(error, ERROR_INTERNAL, "no memory for what was counted");
	}
	taken->watched = pmu->watched;
	taken->background_s = pmu->background_s;
	*counts = taken;
	return true;
}

void pmu_counts_free(struct pmu_counts *counts)
{
	if (!counts)
		return;
	for (size_t i = 0; i < counts->count; i++)
		free(counts->events[i].sources);
	free(counts->events);
	free(counts->refusals);
	free(counts);
}

size_t pmu_counted(const struct pmu_counts *counts)
{
	return counts ? counts->count : 0;
}

const char *pmu_first_refusal(const struct pmu_counts *counts)
{
	return counts && counts->refused ? counts->refusals[0].reason : NULL;
}

static void optional_write(struct json *json, const char *key, bool known, double value)
{
	if (known)
		json_f64(json, key, value);
	else
		json_null(json, key);
}

static void cpu_write(struct json *json, const struct pmu_spec *spec, unsigned cpu)
{
	if (spec->on_cpus)
		json_u64(json, "cpu", cpu);
	else
		json_null(json, "cpu");
}

static void counted_write(struct json *json, const struct pmu_counts *counts, const struct counted *event)
{
	bool watched = counts->watched && event->spec->on_cpus;
	json_object_begin(json, NULL);
	json_text(json, "name", event->spec->name);
	json_array_begin(json, "pmus");
	for (size_t i = 0; i < event->source_count; i++)
		json_text(json, NULL, event->sources[i]);
	json_array_end(json);
	cpu_write(json, event->spec, event->cpu);
	if (event->spec->on_cpus)
		json_null(json, "threads");
	else
		json_u64(json, "threads", event->threads);
	json_u64(json, "count", event->count);
	optional_write(json, "scaled", event->whole, event->scaled);
	json_f64(json, "running_fraction", event->fraction);
	json_f64(json, "wall_s", clock_ns(event->wall_ticks) / 1e9);
	json_f64(json, "wall_uncertainty_s", clock_ns(event->uncertain_ticks) / 1e9);
	optional_write(json, "steps", event->work.steps >= 0, event->work.steps);
	optional_write(json, "hops", event->work.hops >= 0, event->work.hops);
	optional_write(json, "background_count", watched && event->quiet_whole, event->quiet_scaled);
	optional_write(json, "background_wall_s", watched, clock_ns(event->quiet_ticks) / 1e9);
	json_object_end(json);
}

void pmu_counts_write(struct json *json, const char *key, const struct pmu_counts *counts)
{
	if (!counts) {
		json_null(json, key);
		return;
	}
	json_object_begin(json, key);
	optional_write(json, "background_s", counts->watched, counts->background_s);
	json_array_begin(json, "events");
	for (size_t i = 0; i < counts->count; i++)
		counted_write(json, counts, &counts->events[i]);
	json_array_end(json);
	json_array_begin(json, "refused");
	for (size_t i = 0; i < counts->refused; i++) {
		const struct refusal *refusal = &counts->refusals[i];
		json_object_begin(json, NULL);
		json_text(json, "name", refusal->spec->name);
		json_text(json, "pmu", refusal->spec->source);
		cpu_write(json, refusal->spec, refusal->cpu);
		json_text(json, "errno", refusal->code ? pmu_errno_name(refusal->code) : NULL);
		json_text(json, "reason", refusal->reason);
		json_object_end(json);
	}
	json_array_end(json);
	json_object_end(json);
}
