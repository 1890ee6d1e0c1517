// SPDX-License-Identifier: Apache-2.0
#include "tracing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "warning.h"

#define TRACEFS 0x74726163
#define PREFIX "sutprobe-"
/* Of the new mount calls, for headers that have none. */
#define FSCONFIG_CREATE 6
/* The text has times of the raw clock in whole microseconds. */
#define RAW_STEP_NS 1000

/* How the text must look for causes_read, whatever the machine's settings are; names that a kernel does not know change
 * nothing there. */
static const char *const trace_options[] = {
	"context-info", "irq-info",         "overwrite",     "noraw",      "nohex",
	"nobin",        "nolatency-format", "norecord-tgid", "noannotate", "nofields",
};
static const char *const noise_tracers[] = {"osnoise", "timerlat", "hwlat"};

__attribute__((format(printf, 2, 3))) static bool refuse(struct tracing *tracing, const char *format, ...)
{
	va_list arguments;
	if (tracing->refused[0])
		return false;
	va_start(arguments, format);
	vsnprintf(tracing->refused, sizeof(tracing->refused), format, arguments);
	va_end(arguments);
	return false;
}

/* Where tracefs is not mounted it is mounted nowhere: the descriptor is the only way to it, and it is gone with the
 * process. */
static int mount_apart(void)
{
	int context = (int)syscall(SYS_fsopen, "tracefs", 1), directory = -1;
	if (context < 0)
		return -1;
	if (syscall(SYS_fsconfig, context, FSCONFIG_CREATE, NULL, NULL, 0) == 0)
		directory = (int)syscall(SYS_fsmount, context, 1, 0);
	int saved = errno;
	close(context);
	errno = saved;
	return directory;
}

static int open_tracefs(struct tracing *tracing)
{
	static const char *const places[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
	int reason = ENOENT;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct statfs found;
		int directory = open(places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (directory >= 0 && fstatfs(directory, &found) == 0 && (unsigned long)found.f_type == TRACEFS)
			return directory;
		if (directory >= 0)
			close(directory);
		else if (errno != ENOENT)
			reason = errno;
	}
	int directory = mount_apart();
	if (directory >= 0)
		return directory;
	if (errno == ENODEV)
		refuse(tracing, "this kernel has no tracefs (CONFIG_TRACING)");
	else if (errno == EPERM || errno == EACCES || reason == EACCES)
		refuse(tracing, "no permission for tracefs (%s): tracing needs root", strerror(errno));
	else
		refuse(tracing, "tracefs is not mounted and cannot be mounted apart (%s); mount it at /sys/kernel/tracing",
		       strerror(errno));
	return -1;
}

/* Instances of processes that are gone. One in use is not removed: the kernel refuses. */
static void remove_stale(int instances)
{
	DIR *directory = tracefs_open(instances);
	if (!directory)
		return;
	for (const struct dirent *entry; (entry = readdir(directory));) {
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
			continue;
		long process = strtol(entry->d_name + strlen(PREFIX), NULL, 10);
		if (process > 0 && kill((pid_t)process, 0) != 0 && errno == ESRCH && osnoise_mend(instances, entry->d_name) &&
		    hwlat_mend(instances, entry->d_name))
			(void)unlinkat(instances, entry->d_name, AT_REMOVEDIR);
	}
	closedir(directory);
}

/* A process of its own that does nothing until this one has ended, by whatever signal, and then puts right what is machine-wide
 * and removes the instance. It holds nothing else open, so that whoever waits for the end of our output does not wait for it. */
static _Noreturn void guard(const struct tracing *tracing, int end)
{
	char unused;
	(void)setsid();
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	long limit = sysconf(_SC_OPEN_MAX);
	for (int i = 0; i < (limit > 0 && limit < 65536 ? (int)limit : 65536); i++)
		if (i != tracing->instances && i != tracing->osnoise.settings && i != tracing->hwlat.settings && i != end)
			close(i);
	/* From here on nothing but SIGKILL to itself ends it. */
	if (write(end, "", 1) != 1)
		_exit(1);
	while (read(end, &unused, 1) < 0 && errno == EINTR)
		continue;
	bool mended =
		osnoise_mend(tracing->instances, tracing->osnoise.name) && hwlat_mend(tracing->instances, tracing->hwlat.name);
	_exit(tracefs_remove(tracing->instances, tracing->name) && mended ? 0 : 1);
}

bool tracing_guard(struct tracing *tracing, const struct cpu_list *cpus)
{
	int ends[2];
	char unused;
	ssize_t ready;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return refuse(tracing, "a socket for the guardian of the tracing: %s", strerror(errno));
	tracing->guardian = fork();
	if (tracing->guardian == 0)
		guard(tracing, ends[0]);
	close(ends[0]);
	if (tracing->guardian < 0) {
		close(ends[1]);
		return refuse(tracing, "starting the guardian of the tracing: %s", strerror(errno));
	}
	/* What ends this process and its group must not end a guardian that is not apart yet. */
	while ((ready = read(ends[1], &unused, 1)) < 0 && errno == EINTR)
		continue;
	tracing->guardian_socket = ends[1];
	affinity_avoid(tracing->guardian, cpus);
	return ready == 1 || refuse(tracing, "starting the guardian of the tracing: it ended at once");
}

/* The kernel's form of a CPU mask: hexadecimal words of 32 bits, the highest first, with commas between them. */
static char *mask_text(const struct cpu_list *cpus)
{
	size_t words = cpus->cpus[cpus->count - 1] / 32 + 1, length = 0;
	char *text = malloc(words * 9 + 1);
	for (size_t word = words; text && word-- > 0;) {
		unsigned long bits = 0;
		for (size_t i = 0; i < cpus->count; i++)
			if (cpus->cpus[i] / 32 == word)
				bits |= 1ul << (cpus->cpus[i] % 32);
		length += (size_t)sprintf(text + length, "%08lx%s", bits, word ? "," : "");
	}
	return text;
}

size_t tracing_bytes(size_t cpus)
{
	size_t bytes = TRACING_BYTES_ALL / cpus;
	return bytes < TRACING_BYTES ? bytes : TRACING_BYTES;
}

static bool set_up(struct tracing *tracing, const struct cpu_list *cpus)
{
	char path[64], size[24], clocks[256] = "", *mask = mask_text(cpus);
	bool good = tracefs_put(tracing->instance, "tracing_on", "0") && mask &&
	            tracefs_put(tracing->instance, "tracing_cpumask", mask);
	free(mask);
	if (!good)
		return refuse(tracing, "restricting the tracing to the measured CPUs: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(trace_options) / sizeof(trace_options[0]); i++)
		(void)tracefs_put(tracing->instance, "trace_options", trace_options[i]);
	(void)tracefs_get(tracing->instance, "trace_clock", clocks, sizeof(clocks));
	tracing->counter =
		clock_now_used.counter && strstr(clocks, "x86-tsc") && tracefs_put(tracing->instance, "trace_clock", "x86-tsc");
	if (!tracing->counter && !tracefs_put(tracing->instance, "trace_clock", "mono_raw"))
		return refuse(tracing, "setting the clock mono_raw of the tracing: %s", strerror(errno));
	/* A page for every CPU, and the room for those that are measured. */
	snprintf(size, sizeof(size), "%zu", tracing_bytes(cpus->count) >> 10);
	(void)tracefs_put(tracing->instance, "buffer_size_kb", "4");
	for (size_t i = 0; i < cpus->count; i++) {
		snprintf(path, sizeof(path), "per_cpu/cpu%u/buffer_size_kb", cpus->cpus[i]);
		if (!tracefs_put(tracing->instance, path, size))
			return refuse(tracing, "a buffer of %s KiB for the events of CPU %u: %s", size, cpus->cpus[i],
			              strerror(errno));
	}
	tracing->on = openat(tracing->instance, "tracing_on", O_WRONLY | O_CLOEXEC);
	return tracing->on >= 0 || refuse(tracing, "turning the tracing on: %s", strerror(errno));
}

static void list_tracers(struct tracing *tracing, int root)
{
	char text[512] = "";
	(void)tracefs_get(root, "available_tracers", text, sizeof(text));
	for (char *at, *word = strtok_r(text, " \n", &at); word; word = strtok_r(NULL, " \n", &at))
		for (size_t i = 0; i < sizeof(noise_tracers) / sizeof(noise_tracers[0]); i++)
			if (!strcmp(word, noise_tracers[i])) {
				size_t length = strlen(tracing->tracers);
				snprintf(tracing->tracers + length, sizeof(tracing->tracers) - length, "%s%s", length ? " " : "", word);
			}
}

bool tracing_open(struct tracing *tracing, const struct cpu_list *cpus, const struct hwlat_settings *hwlat)
{
	*tracing = (struct tracing){.instances = -1,
	                            .instance = -1,
	                            .on = -1,
	                            .guardian_socket = -1,
	                            .firmware = hwlat != NULL,
	                            .wanted = hwlat ? *hwlat : (struct hwlat_settings){0},
	                            .osnoise = TRACER_CLOSED,
	                            .hwlat = TRACER_CLOSED};
	int root = open_tracefs(tracing);
	if (root < 0)
		return false;
	list_tracers(tracing, root);
	tracing->instances = openat(root, "instances", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int reason = errno;
	close(root);
	if (tracing->instances < 0)
		return refuse(tracing, "no instances of tracing (%s): %s", strerror(reason),
		              reason == EACCES || reason == EPERM ? "tracing needs root" : "this kernel has none");
	remove_stale(tracing->instances);
	snprintf(tracing->name, sizeof(tracing->name), PREFIX "%ld", (long)getpid());
	if (!hwlat)
		osnoise_open(&tracing->osnoise, tracing->instances, tracing->name, cpus);
	else
		hwlat_open(&tracing->hwlat, tracing->instances, tracing->name);
	if (tracing->hwlat.refused[0]) {
		tracing_close(tracing);
		return refuse(tracing, "%s", tracing->hwlat.refused);
	}
	/* Before the instance, so that there is no moment at which it could stay behind. */
	if (!tracing_guard(tracing, cpus)) {
		tracing_close(tracing);
		return false;
	}
	if (mkdirat(tracing->instances, tracing->name, 0700) != 0)
		refuse(tracing, "an instance of tracing of our own: %s%s", strerror(errno),
		       errno == EPERM || errno == EACCES ? " (it needs root, and a kernel that is not locked down)" : "");
	else if ((tracing->instance = openat(tracing->instances, tracing->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		refuse(tracing, "the instance of tracing: %s", strerror(errno));
	else
		set_up(tracing, cpus);
	if (tracing->refused[0])
		tracing_close(tracing);
	return !tracing->refused[0];
}

static size_t events_enable(const struct tracing *tracing, const char *value)
{
	char path[96];
	size_t count = 0;
	for (size_t i = 0; i < trace_event_count; i++) {
		/* Somebody else's tracer may make these, of another workload. */
		if (trace_events[i].role == EVENT_ACCOUNTS && tracing->osnoise.refused[0])
			continue;
		snprintf(path, sizeof(path), "events/%s/%s/enable", trace_events[i].system, trace_events[i].name);
		count += tracefs_put(tracing->instance, path, value);
	}
	return count;
}

static void end_events(struct tracing *tracing)
{
	(void)events_enable(tracing, "0");
	/* What fails is tried again by the guardian. */
	(void)osnoise_give_back(&tracing->osnoise, tracing->instances);
}

static bool start_hwlat(struct tracing *tracing)
{
	if (!hwlat_take(&tracing->hwlat, tracing->instances, tracing->name, &tracing->wanted))
		return refuse(tracing, "%s", tracing->hwlat.refused);
	return write(tracing->on, "1", 1) == 1 || refuse(tracing, "turning the tracing on: %s", strerror(errno));
}

bool tracing_start(struct tracing *tracing)
{
	if (tracing->firmware)
		return start_hwlat(tracing);
	(void)osnoise_take(&tracing->osnoise, tracing->instances);
	tracing->events = events_enable(tracing, "1");
	if (!tracing->events) {
		int reason = errno;
		end_events(tracing);
		return refuse(tracing, "no event of interrupts or of the scheduler could be enabled: %s", strerror(reason));
	}
	if (!tracing->counter && clock_now_used.counter && !tracing->began.raw_ns)
		tracing->began = clock_bracket_take();
	if (write(tracing->on, "1", 1) == 1)
		return true;
	int reason = errno;
	end_events(tracing);
	return refuse(tracing, "turning the tracing on: %s", strerror(reason));
}

void tracing_stop(struct tracing *tracing)
{
	/* Nothing that is recorded after this belongs to a gap, so a failure costs room alone. */
	(void)!write(tracing->on, "0", 1);
	if (!tracing->firmware)
		end_events(tracing);
}

struct trace_clock tracing_clock(const struct tracing *tracing)
{
	if (tracing->counter)
		return (struct trace_clock){.counter = true};
	if (!clock_now_used.counter)
		return (struct trace_clock){.per_ns = 1, .tolerance = RAW_STEP_NS};
	struct clock_bracket now = clock_bracket_take(), began = tracing->began;
	double per_ns = (double)(now.ticks - began.ticks) / (double)(now.raw_ns - began.raw_ns);
	return (struct trace_clock){.raw_ns = (double)began.raw_ns,
	                            .ticks = (double)began.ticks,
	                            .per_ns = per_ns,
	                            .tolerance = RAW_STEP_NS * per_ns + (double)(began.width + now.width) / 2};
}

FILE *tracing_text(const struct tracing *tracing, unsigned cpu)
{
	char path[64];
	snprintf(path, sizeof(path), "per_cpu/cpu%u/trace", cpu);
	int descriptor = openat(tracing->instance, path, O_RDONLY | O_CLOEXEC);
	FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "r");
	if (!file && descriptor >= 0)
		close(descriptor);
	return file;
}

int64_t tracing_lost(const struct tracing *tracing, unsigned cpu)
{
	static const char *const fields[] = {"overrun: ", "dropped events: "};
	char path[64], text[1024];
	int64_t lost = 0;
	snprintf(path, sizeof(path), "per_cpu/cpu%u/stats", cpu);
	if (!tracefs_get(tracing->instance, path, text, sizeof(text)))
		return -1;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		/* At the start of a line: "commit overrun" is another. */
		const char *at = strstr(text, fields[i]);
		while (at && at > text && at[-1] != '\n')
			at = strstr(at + 1, fields[i]);
		if (!at)
			return -1;
		lost += strtoll(at + strlen(fields[i]), NULL, 10);
	}
	return lost;
}

void tracing_close(struct tracing *tracing)
{
	if (tracing->on >= 0)
		close(tracing->on);
	if (tracing->instance >= 0)
		close(tracing->instance);
	tracer_close(&tracing->osnoise);
	tracer_close(&tracing->hwlat);
	/* The guardian does what it is there for: it restores what was changed, and removes the instance now. */
	if (tracing->guardian_socket >= 0) {
		int status = 0;
		close(tracing->guardian_socket);
		while (waitpid(tracing->guardian, &status, 0) < 0 && errno == EINTR)
			continue;
		if (status != 0)
			warning_add(
				"TRACING_LEFT",
				"tracing could not be restored: remove instances/%s* in tracefs, and write OSNOISE_WORKLOAD into "
				"osnoise/options where that file exists; the name of an instance with '-hwlat-' ends in what width, "
				"window "
				"and mode of hwlat_detector were",
				tracing->name);
	}
	if (tracing->instances >= 0)
		close(tracing->instances);
	tracing->on = tracing->instance = tracing->instances = tracing->guardian_socket = -1;
}
