// SPDX-License-Identifier: Apache-2.0
/* What this binary finds on this machine: instruction sets, page sizes, privileges and what each missing one costs. The
 * build and the clock are in the envelope of every document. Nothing is measured and nothing stays changed. */
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "affinity.h"
#include "arch/arch.h"
#include "cgroup.h"
#include "files.h"
#include "gaps.h"
#include "hugetlb.h"
#include "load.h"
#include "memory.h"
#include "realtime.h"
#include "smi.h"
#include "subcommand.h"
#include "text.h"

#define THP_ENABLED "/sys/kernel/mm/transparent_hugepage/enabled"
#define THP_DEFRAG "/sys/kernel/mm/transparent_hugepage/defrag"
#define HUGETLB "/sys/kernel/mm/hugepages"
#define NODES "/sys/devices/system/node"
#define CLOCK_SOURCE "/sys/devices/system/clocksource/clocksource0/"
#define CAP_IPC_LOCK_BIT 14
/* As many of the longest gaps as jitter lists by default: what its ring needs locked. */
#define GAPS_LISTED 20

/* How a privilege was looked for and what was found, in words. */
struct finding {
	char text[320];
};

__attribute__((format(printf, 2, 3))) static void say(struct finding *finding, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(finding->text, sizeof(finding->text), format, arguments);
	va_end(arguments);
}

static bool real_time(struct finding *finding)
{
	struct sched_param wanted = {.sched_priority = 1}, ordinary = {0};
	int refused = pthread_setschedparam(pthread_self(), SCHED_FIFO, &wanted);
	if (refused == 0)
		refused = pthread_setschedparam(pthread_self(), SCHED_OTHER, &ordinary);
	if (refused)
		say(finding, "SCHED_FIFO: %s (needs CAP_SYS_NICE or an rtprio limit)", strerror(refused));
	else
		say(finding, "SCHED_FIFO: permitted");
	return refused == 0;
}

static bool real_time_unthrottled(struct finding *finding)
{
	struct realtime_limit limit = realtime_limit();
	if (limit.known)
		say(finding, "sched_rt_runtime_us is %lld of %lld", limit.runtime_us, limit.period_us);
	else
		say(finding, "/proc/sys/kernel/sched_rt_runtime_us: %s", strerror(errno));
	return limit.known && !realtime_throttled(&limit);
}

static bool locked_memory(struct finding *finding)
{
	struct rlimit locked = {0};
	uint64_t needed = gaps_bytes(GAP_RING, GAPS_LISTED);
	bool any = capability_has(CAP_IPC_LOCK_BIT);
	if (getrlimit(RLIMIT_MEMLOCK, &locked) != 0) {
		say(finding, "RLIMIT_MEMLOCK: %s", strerror(errno));
		return any;
	}
	if (any || locked.rlim_cur == RLIM_INFINITY)
		say(finding, "without a limit");
	else
		say(finding, "RLIMIT_MEMLOCK is %" PRIu64 " bytes, jitter locks %" PRIu64 " for each CPU",
		    (uint64_t)locked.rlim_cur, needed);
	return any || locked.rlim_cur >= needed;
}

static bool count_events(struct perf_event_attr *attributes, int process, int cpu, struct finding *finding)
{
	char paranoid[32];
	attributes->size = sizeof(*attributes);
	attributes->disabled = 1;
	int descriptor = (int)syscall(SYS_perf_event_open, attributes, process, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	int reason = errno;
	if (descriptor >= 0)
		close(descriptor);
	if (!file_line("/proc/sys/kernel/perf_event_paranoid", paranoid, sizeof(paranoid)))
		snprintf(paranoid, sizeof(paranoid), "not there");
	say(finding, "perf_event_open: %s; perf_event_paranoid is %s", descriptor < 0 ? strerror(reason) : "granted",
	    paranoid);
	return descriptor >= 0;
}

static bool own_cycles(struct finding *finding)
{
	struct perf_event_attr cycles = {
		.type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_CPU_CYCLES, .exclude_kernel = 1, .exclude_hv = 1};
	return count_events(&cycles, 0, -1, finding);
}

static bool machine_events(struct finding *finding)
{
	struct perf_event_attr clock = {.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_CPU_CLOCK};
	return count_events(&clock, -1, (int)affinity_allowed()->cpus[0], finding);
}

#if defined(__x86_64__)
static bool smi_counts(struct finding *finding)
{
	unsigned cpu = affinity_allowed()->cpus[0];
	int64_t count;
	char text[SMI_TEXT_BYTES];
	bool good = smi_count(cpu, &count, text);
	say(finding, "%s%s", text, good ? ": was read" : "");
	return good;
}
#endif

/* A page of our own, touched; NULL where not even that is to be had. */
static void *own_page(struct finding *finding)
{
	void *page = mmap(NULL, memory_base_page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED) {
		say(finding, "mapping a page: %s", strerror(errno));
		return NULL;
	}
	*(volatile unsigned char *)page = 1;
	return page;
}

static bool pages_node(struct finding *finding)
{
	void *page = own_page(finding);
	int status = -1;
	if (!page)
		return false;
	long result = syscall(SYS_move_pages, 0, 1ul, &page, NULL, &status, 0);
	if (result != 0)
		say(finding, "move_pages: %s", strerror(errno));
	else if (status < 0)
		say(finding, "move_pages: no node: %s", strerror(-status));
	else
		say(finding, "move_pages: a page of this process lies on node %d", status);
	munmap(page, memory_base_page_bytes());
	return result == 0 && status >= 0;
}

static bool memory_policy(struct finding *finding)
{
	void *page = own_page(finding);
	if (!page)
		return false;
	/* The default policy asks for no node, so that the call itself is what is allowed or not. */
	long result = syscall(SYS_mbind, page, memory_base_page_bytes(), 0, NULL, 0ul, 0u);
	say(finding, "mbind: %s", result == 0 ? "granted" : strerror(errno));
	munmap(page, memory_base_page_bytes());
	return result == 0;
}

static bool hugetlb_pages(struct finding *finding)
{
	char *text = file_read("/proc/meminfo");
	uint64_t pages = 0;
	(void)text_number_of(text, "HugePages_Free:", &pages);
	free(text);
	say(finding, "%" PRIu64 " pages of the default size are free", pages);
	return pages > 0;
}

static bool transparent_pages(struct finding *finding)
{
	char line[128];
	if (!file_line(THP_ENABLED, line, sizeof(line))) {
		say(finding, THP_ENABLED ": %s", strerror(errno));
		return false;
	}
	say(finding, THP_ENABLED ": %s", line);
	return strstr(line, "[never]") == NULL;
}

static bool interrupt_counts(struct finding *finding)
{
	bool readable = access("/proc/interrupts", R_OK) == 0 && access("/proc/softirqs", R_OK) == 0;
	say(finding, "/proc/interrupts and /proc/softirqs: %s", readable ? "readable" : strerror(errno));
	return readable;
}

static bool all_cpus(struct finding *finding)
{
	const struct cpu_list *online = affinity_online();
	size_t excluded = 0;
	for (size_t i = 0; i < online->count; i++)
		excluded += !cpu_list_has(affinity_allowed(), online->cpus[i]);
	if (online->count)
		say(finding, "%zu of %zu CPUs online are outside the affinity mask", excluded, online->count);
	else
		say(finding, "the CPUs online cannot be read");
	return online->count && excluded == 0;
}

static bool all_memory(struct finding *finding)
{
	char where[256];
	uint64_t room = cgroup_room("", where, sizeof(where));
	if (room == CGROUP_NO_LIMIT)
		say(finding, "no control group limits it");
	else
		say(finding, "%" PRIu64 " bytes are left under the limit in %.200s", room, where);
	return room == CGROUP_NO_LIMIT;
}

static bool all_cpu_time(struct finding *finding)
{
	char where[256];
	double cpus = cgroup_cpus("", where, sizeof(where));
	if (isinf(cpus))
		say(finding, "no control group limits it");
	else
		say(finding, "the quota of %.200s is %g CPUs", where, cpus);
	return isinf(cpus) != 0;
}

static const struct {
	const char *name;
	bool (*present)(struct finding *finding);
	const char *cost; /* of not having it */
} privileges[] = {
	{"real_time_priority", real_time,
	 "jitter --fifo is refused; ordinary tasks may preempt what is measured, which the counts of context switches "
	 "show"},
	{"real_time_unthrottled", real_time_unthrottled,
	 "the kernel itself stops a SCHED_FIFO thread for the rest of each period, so that jitter --fifo would measure "
	 "that"},
	{"locked_memory", locked_memory,
	 "jitter cannot lock its record of gaps: paging under memory pressure could appear as gaps"},
	{"own_cycle_counter", own_cycles,
	 "no counter confirms the core clock, which a chain of dependent additions measures in any case"},
	{"machine_event_counters", machine_events,
	 "no counter confirms the bytes that memory moved: they follow from the declared model of each traffic mix"},
#if defined(__x86_64__)
	{"smi_counts", smi_counts,
	 "system management interrupts are not counted: one looks like any other gap, and 'smi' is null"},
#endif
	{"page_nodes", pages_node,
	 "the node of a buffer's pages cannot be read back: results are invalid unless only one node has memory"},
	{"memory_policy", memory_policy,
	 "buffers cannot be bound to a node: measurements fail unless only one node has memory"},
	{"hugetlb_pages", hugetlb_pages,
	 "--pages hugetlb fails and auto takes transparent huge pages, of which the kernel gives what it has"},
	{"transparent_huge_pages", transparent_pages,
	 "without reserved pages buffers lie on base pages: latency then has the cost of translating addresses in it"},
	{"interrupt_counts", interrupt_counts,
	 "interrupts and softirqs of a disturbed window are not named: their counts are null"},
	{"all_cpus", all_cpus, "the CPUs outside the mask cannot be measured, and no load can be put on them"},
	{"all_cpu_time", all_cpu_time,
	 "threads beyond the quota are stopped for the rest of each period, and that is measured too"},
	{"all_memory", all_memory,
	 "buffers beyond what is left are refused: a measurement of memory may have to stay within a cache"},
};

static void privileges_write(struct json *json)
{
	json_array_begin(json, "privileges");
	for (size_t i = 0; i < sizeof(privileges) / sizeof(privileges[0]); i++) {
		struct finding finding = {0};
		bool present = privileges[i].present(&finding);
		json_object_begin(json, NULL);
		json_text(json, "name", privileges[i].name);
		json_bool(json, "present", present);
		json_text(json, "found", finding.text);
		json_text(json, "cost", present ? NULL : privileges[i].cost);
		json_object_end(json);
	}
	json_array_end(json);
}

static void count_write(struct json *json, const char *key, const char *directory, unsigned kib)
{
	uint64_t pages = 0;
	bool known = hugetlb_pool_in(directory, (size_t)kib * 1024, key, &pages);
	json_u64_known(json, key, known, pages);
}

static void pages_of_size_write(struct json *json, unsigned kib, const struct cpu_list *nodes)
{
	json_object_begin(json, NULL);
	json_u64(json, "bytes", (uint64_t)kib * 1024);
	count_write(json, "nr", HUGETLB, kib);
	count_write(json, "free", HUGETLB, kib);
	json_array_begin(json, "nodes");
	for (size_t i = 0; i < nodes->count; i++) {
		char directory[80];
		snprintf(directory, sizeof(directory), NODES "/node%u/hugepages", nodes->cpus[i]);
		json_object_begin(json, NULL);
		json_u64(json, "node", nodes->cpus[i]);
		count_write(json, "nr", directory, kib);
		count_write(json, "free", directory, kib);
		json_object_end(json);
	}
	json_array_end(json);
	json_object_end(json);
}

static void line_write(struct json *json, const char *key, const char *path)
{
	char line[256];
	json_text(json, key, file_line(path, line, sizeof(line)) ? line : NULL);
}

/* The words of a line; an empty list where it cannot be read. */
static void words_write(struct json *json, const char *key, const char *path)
{
	char line[256] = "";
	json_array_begin(json, key);
	if (file_line(path, line, sizeof(line))) {
		char *rest = line;
		for (char *word; (word = strsep(&rest, " ")) != NULL;)
			if (*word)
				json_text(json, NULL, word);
	}
	json_array_end(json);
}

static void pages_kinds_write(struct json *json)
{
	struct cpu_list sizes = cpu_list_named(HUGETLB, "hugepages-"), nodes = cpu_list_named(NODES, "node");
	json_object_begin(json, "page_kinds");
	json_u64(json, "base_bytes", memory_base_page_bytes());
	json_u64_known(json, "thp_bytes", memory_thp_bytes() > 0, memory_thp_bytes());
	line_write(json, "thp_enabled", THP_ENABLED);
	line_write(json, "thp_defrag", THP_DEFRAG);
	json_array_begin(json, "hugetlb");
	for (size_t i = 0; i < sizes.count; i++)
		pages_of_size_write(json, sizes.cpus[i], &nodes);
	json_array_end(json);
	json_object_end(json);
	cpu_list_free(&sizes);
	cpu_list_free(&nodes);
}

static void features_write(struct json *json)
{
	const char *name;
	bool found;
	json_object_begin(json, "instruction_sets");
	for (size_t i = 0; (name = arch_feature(i, &found)) != NULL; i++)
		json_bool(json, name, found);
	json_object_end(json);
	json_u64_known(json, "sve_vector_bytes", arch_sve_bytes() > 0, arch_sve_bytes());
	json_array_begin(json, "widths");
	for (const struct load_width *width = load_widths; width->name; width++)
		if (width->supported())
			json_text(json, NULL, width->name);
	json_array_end(json);
}

static bool measure(struct json *result, struct error *error)
{
	struct demand demand = {0};
	if (!demand_admit(&demand, error))
		return false;
	json_object_begin(result, NULL);
	features_write(result);
	cpu_list_write(result, "allowed_cpus", affinity_allowed());
	json_u64(result, "line_bytes", memory_line_bytes());
	line_write(result, "clocksource", CLOCK_SOURCE "current_clocksource");
	words_write(result, "clocksources", CLOCK_SOURCE "available_clocksource");
	pages_kinds_write(result);
	json_u64(result, "uid", geteuid());
	privileges_write(result);
	json_object_end(result);
	return true;
}

SUBCOMMAND(info) = {
	.name = "info",
	.summary = "build, clock, instruction sets, page sizes and privileges found, and what a missing one costs",
	.run = measure,
};
