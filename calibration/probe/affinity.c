// SPDX-License-Identifier: Apache-2.0
#include "affinity.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocate.h"
#include "files.h"
#include "text.h"

#define ISOLATED "/sys/devices/system/cpu/isolated"
#define BITS (sizeof(unsigned long) * CHAR_BIT)
/* No machine has this many CPUs; a list that asks for more is a slip of the keyboard. */
#define CPU_LIMIT (1u << 20)

static size_t kernel_bytes; /* size of the kernel's CPU mask, found by asking */
static struct cpu_list allowed;
static struct cpu_list online_at_start; /* empty where the kernel does not list them */

/* The place of the first that is not below `cpu`. */
static size_t place_from(const struct cpu_list *list, unsigned cpu)
{
	size_t low = 0, high = list->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (list->cpus[middle] < cpu)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

size_t cpu_list_place(const struct cpu_list *list, unsigned cpu)
{
	size_t place = place_from(list, cpu);
	return place < list->count && list->cpus[place] == cpu ? place : SIZE_MAX;
}

bool cpu_list_has(const struct cpu_list *list, unsigned cpu)
{
	return cpu_list_place(list, cpu) != SIZE_MAX;
}

bool cpu_list_asked(struct cpu_list *list, const char *text, struct error *error)
{
	char line[4096] = "";
	if (strcmp(text, "isolated") != 0)
		return cpu_list_parse(list, text, error);
	if (!file_line(ISOLATED, line, sizeof(line)))
		return error_set(error, ERROR_UNSUPPORTED, "--cpus isolated: " ISOLATED ": %s; name the CPUs", strerror(errno));
	if (!line[0])
		return error_set(error, ERROR_UNSUPPORTED,
		                 "--cpus isolated: no isolated CPUs; boot with isolcpus=, or name the CPUs");
	return cpu_list_parse(list, line, error);
}

void cpu_list_add(struct cpu_list *list, unsigned cpu)
{
	size_t place = list->count && list->cpus[list->count - 1] < cpu ? list->count : place_from(list, cpu);
	if (place < list->count && list->cpus[place] == cpu)
		return;
	list->cpus = reallocate(list->cpus, list->count + 1, sizeof(*list->cpus));
	memmove(list->cpus + place + 1, list->cpus + place, (list->count - place) * sizeof(*list->cpus));
	list->cpus[place] = cpu;
	list->count++;
}

bool cpu_list_apart(const char *option, const struct cpu_list *list, const struct cpu_list *measured,
                    struct error *error)
{
	for (size_t i = 0; i < list->count; i++)
		if (cpu_list_has(measured, list->cpus[i]))
			return error_set(error, ERROR_USAGE, "%s: CPU %u is measured", option, list->cpus[i]);
	return true;
}

void cpu_list_free(struct cpu_list *list)
{
	free(list->cpus);
	*list = (struct cpu_list){0};
}

void cpu_list_write(struct json *json, const char *key, const struct cpu_list *list)
{
	json_array_begin(json, key);
	for (size_t i = 0; i < list->count; i++)
		json_u64(json, NULL, list->cpus[i]);
	json_array_end(json);
}

static bool parse_cpu(const char **text, unsigned *cpu)
{
	if (**text < '0' || **text > '9')
		return false;
	char *end;
	errno = 0;
	unsigned long value = strtoul(*text, &end, 10);
	if (errno || value >= CPU_LIMIT)
		return false;
	*text = end;
	*cpu = (unsigned)value;
	return true;
}

bool cpu_list_parse(struct cpu_list *list, const char *text, struct error *error)
{
	*list = (struct cpu_list){0};
	const char *at = text;
	do {
		unsigned first, last;
		if (!parse_cpu(&at, &first))
			goto bad;
		last = first;
		if (*at == '-') {
			at++;
			if (!parse_cpu(&at, &last) || last < first)
				goto bad;
		}
		for (unsigned cpu = first; cpu <= last; cpu++)
			cpu_list_add(list, cpu);
	} while (*at++ == ',');
	if (at[-1] == '\0')
		return true;
bad:
	cpu_list_free(list);
	return error_set(error, ERROR_USAGE, "not a list of CPUs such as 0-3,8: '%s'", text);
}

static bool mask_has(const unsigned long *mask, unsigned cpu)
{
	return cpu / CHAR_BIT < kernel_bytes && (mask[cpu / BITS] >> (cpu % BITS) & 1);
}

#define ONLINE "/sys/devices/system/cpu/online"

/* Whole, whatever its length: thousands of CPUs of which every other is offline make a long line. */
bool cpu_list_read(struct cpu_list *list, const char *path)
{
	struct error ignored = {0};
	char *text = file_read(path);
	*list = (struct cpu_list){0};
	if (text)
		text[strcspn(text, "\n")] = '\0';
	bool good = text && *text && cpu_list_parse(list, text, &ignored);
	free(text);
	return good;
}

struct cpu_list cpu_list_named(const char *directory, const char *before)
{
	struct cpu_list numbers = {0};
	DIR *listing = opendir(directory);
	for (const struct dirent *entry; listing && (entry = readdir(listing)) != NULL;) {
		const char *digits = text_after(entry->d_name, before);
		uint64_t number;
		if (digits && text_decimal(&digits, &number))
			cpu_list_add(&numbers, (unsigned)number);
	}
	if (listing)
		closedir(listing);
	return numbers;
}

bool affinity_begin(struct error *error)
{
	(void)cpu_list_read(&online_at_start, ONLINE);
	for (size_t bytes = 128; bytes <= CPU_LIMIT / CHAR_BIT; bytes *= 2) {
		unsigned long *mask = allocate(1, bytes);
		long got = syscall(SYS_sched_getaffinity, 0, bytes, mask);
		if (got > 0) {
			kernel_bytes = bytes;
			for (unsigned cpu = 0; cpu < bytes * CHAR_BIT; cpu++)
				if (mask_has(mask, cpu))
					cpu_list_add(&allowed, cpu);
			free(mask);
			return true;
		}
		free(mask);
		if (errno != EINVAL)
			break;
	}
	return error_set(error, ERROR_INTERNAL, "sched_getaffinity: %s", strerror(errno));
}

const struct cpu_list *affinity_online(void)
{
	return &online_at_start;
}

const struct cpu_list *affinity_allowed(void)
{
	return &allowed;
}

bool affinity_spares(const struct cpu_list *measured)
{
	const struct cpu_list *allowed = affinity_allowed();
	for (size_t i = 0; i < allowed->count; i++)
		if (!cpu_list_has(measured, allowed->cpus[i]))
			return true;
	return false;
}

static void set_offline(unsigned cpu, struct error *error)
{
	char *online = file_read(ONLINE);
	size_t length = online ? strcspn(online, "\n") : 0;
	error_set(error, ERROR_CPU_OFFLINE, "CPU %u is offline, online are %.*s%s; choose another CPU or bring it online",
	          cpu, (int)(length < 200 ? length : 200), online ? online : "", length > 200 ? "..." : "");
	free(online);
}

bool affinity_usable(unsigned cpu, struct error *error)
{
	struct cpu_list isolated = {0};
	if (affinity_offline(cpu)) {
		set_offline(cpu, error);
		return false;
	}
	/* The kernel starts every process outside the CPUs that isolcpus= isolates, but lets it go there when asked by number;
	 * whether a cpuset forbids it shows when it is pinned. */
	bool reachable = cpu_list_has(&allowed, cpu) ||
	                 (cpu_list_read(&isolated, "/sys/devices/system/cpu/isolated") && cpu_list_has(&isolated, cpu));
	cpu_list_free(&isolated);
	return reachable || error_set(error, ERROR_PIN_FAILED,
	                              "CPU %u is outside this process's affinity mask; start sutprobe with a wider one "
	                              "(taskset, cpuset)",
	                              cpu);
}

bool affinity_pin(unsigned cpu, struct error *error)
{
	if (!affinity_usable(cpu, error))
		return false;
	unsigned long *mask = allocate(1, kernel_bytes);
	mask[cpu / BITS] = 1ul << (cpu % BITS);
	long result = syscall(SYS_sched_setaffinity, 0, kernel_bytes, mask);
	int reason = errno;
	free(mask);
	if (result != 0)
		return error_set(error, ERROR_PIN_FAILED, "pinning to CPU %u: %s; check cpusets and permissions", cpu,
		                 strerror(reason));
	return affinity_verify(cpu) ||
	       error_set(error, ERROR_PIN_FAILED, "pinned to CPU %u but found running elsewhere", cpu);
}

bool affinity_verify(unsigned cpu)
{
	unsigned now, node;
	return syscall(SYS_getcpu, &now, &node, NULL) == 0 && now == cpu && affinity_kept(0, cpu);
}

bool affinity_kept(int thread, unsigned cpu)
{
	unsigned long *mask = allocate(1, kernel_bytes);
	bool alone = syscall(SYS_sched_getaffinity, thread, kernel_bytes, mask) > 0 && mask_has(mask, cpu);
	mask[cpu / BITS] &= ~(1ul << (cpu % BITS));
	for (size_t i = 0; alone && i < kernel_bytes / sizeof(*mask); i++)
		alone = mask[i] == 0;
	free(mask);
	return alone;
}

bool affinity_offline(unsigned cpu)
{
	struct cpu_list online;
	bool offline = cpu_list_read(&online, ONLINE) && !cpu_list_has(&online, cpu);
	cpu_list_free(&online);
	return offline;
}

bool affinity_left(unsigned cpu, struct error *error)
{
	return error_set(error, ERROR_CPU_LEFT,
	                 affinity_offline(cpu)
						 ? "CPU %u went offline during the measurement; bring it online and measure again"
						 : "the thread of CPU %u was moved to another CPU during the measurement",
	                 cpu);
}

bool affinity_stayed(unsigned cpu, struct error *error)
{
	return affinity_verify(cpu) || affinity_left(cpu, error);
}

bool affinity_gone(char *names, size_t size)
{
	struct cpu_list online;
	size_t length = 0;
	if (cpu_list_read(&online, ONLINE))
		for (size_t i = 0; i < online_at_start.count && length < size; i++)
			if (!cpu_list_has(&online, online_at_start.cpus[i]))
				length += (size_t)snprintf(names + length, size - length, length ? ", %u" : "CPU %u",
				                           online_at_start.cpus[i]);
	if (length >= size)
		memcpy(names + size - 4, "...", 4);
	cpu_list_free(&online);
	return length > 0;
}

/* The CPUs of the core that a CPU belongs to, none where the kernel does not tell. Read once for each: a matrix of pairs
 * asks for every CPU as often as it has others. Called by one thread at a time. */
static const struct cpu_list *core_of(unsigned cpu)
{
	static struct cpu_list none, *cores, known;
	if (!cores)
		cores = allocate(kernel_bytes * CHAR_BIT, sizeof(*cores));
	if (cpu >= kernel_bytes * CHAR_BIT)
		return &none;
	if (!cpu_list_has(&known, cpu)) {
		cpu_list_add(&known, cpu);
		char path[96];
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
		(void)cpu_list_read(&cores[cpu], path);
	}
	return &cores[cpu];
}

/* Allows a thread the CPUs of a mask; false where there are none, or the kernel refuses. */
static bool allow(int thread, const unsigned long *mask)
{
	bool any = false;
	for (size_t i = 0; i < kernel_bytes / sizeof(*mask); i++)
		any = any || mask[i];
	return any && syscall(SYS_sched_setaffinity, thread, kernel_bytes, mask) == 0;
}

static void mask_drop(unsigned long *mask, const struct cpu_list *cpus)
{
	for (size_t i = 0; i < cpus->count; i++)
		if (mask_has(mask, cpus->cpus[i]))
			mask[cpus->cpus[i] / BITS] &= ~(1ul << (cpus->cpus[i] % BITS));
}

void affinity_avoid(int thread, const struct cpu_list *measured)
{
	unsigned long *others = allocate(1, kernel_bytes), *apart = allocate(1, kernel_bytes);
	for (size_t i = 0; i < allowed.count; i++)
		others[allowed.cpus[i] / BITS] |= 1ul << (allowed.cpus[i] % BITS);
	mask_drop(others, measured);
	memcpy(apart, others, kernel_bytes);
	for (size_t i = 0; i < measured->count; i++)
		mask_drop(apart, core_of(measured->cpus[i]));
	/* A failure leaves the thread where it was: on a machine with no CPU to spare there is nowhere to go. */
	if (!allow(thread, apart))
		(void)allow(thread, others);
	free(others);
	free(apart);
}
