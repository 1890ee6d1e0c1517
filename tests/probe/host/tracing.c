// SPDX-License-Identifier: Apache-2.0
/* Text of the kernel about what it did, and the settings of its osnoise tracer on a made tracefs. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/perf_event.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch/arch.h"
#include "host.h"
#include "made_files.h"
#include "pmu.h"
#include "smi.h"
#include "tracing.h"

static const struct cause *caused(const struct causes *causes, const char *name, const char *function)
{
	static const struct cause none;
	for (size_t i = 0; i < causes->count; i++)
		if (!strcmp(causes->list[i].name, name) && !strcmp(causes->list[i].function, function))
			return &causes->list[i];
	return &none;
}

/* Text as kernels of several versions print it, with gaps of known causes: time inside of other work is counted once, and what
 * a task calls itself misleads nobody. */
static bool case_trace_text(struct error *error)
{
	static char text[] =
		"# tracer: nop\n#\n"
		"CPU:1 [LOST 12 EVENTS]\n"
		/* 1: a tick with what it calls, a softirq after it with a timer of the wheel */
		"        sutprobe-77      [001] d.h1. 1000100: local_timer_entry: vector=236\n"
		"        sutprobe-77      [001] d.h1. 1000200: hrtimer_expire_entry: hrtimer=00000000b1 "
		"function=tick_nohz_handler now=1\n"
		"        sutprobe-77      [001] d.h1. 1000500: hrtimer_expire_exit: hrtimer=00000000b1\n"
		"        sutprobe-77      [001] d.h1. 1000690: irq_noise: local_timer:236 start 5.000000110 duration 500 ns\n"
		"        sutprobe-77      [001] d.h1. 1000700: local_timer_exit: vector=236\n"
		"        sutprobe-77      [001] ..s1. 1000800: softirq_entry: vec=1 [action=TIMER]\n"
		"        sutprobe-77      [001] ..s1. 1000900: timer_expire_entry: timer=0 function=delayed_work_timer_fn "
		"now=4 baseclk=4\n"
		"        sutprobe-77      [001] ..s1. 1000950: timer_expire_exit: timer=0\n"
		"        sutprobe-77      [001] ..s1. 1000990: softirq_noise:    TIMER:1 start 5.000000810 duration 180 ns\n"
		"        sutprobe-77      [001] ..s1. 1001000: softirq_exit: vec=1 [action=TIMER]\n"
		/* 2: a task with a name that looks like fields, a worker after it, an interrupt in that. osnoise knows no start of what
	       ran when it began to watch, and tells of the measuring thread too. */
		"        sutprobe-77      [001] d..2. 2000090: thread_noise: sutprobe:77 start 4.000000000 duration 999 ns\n"
		"        sutprobe-77      [001] d..2. 2000100: sched_switch: prev_comm=sutprobe prev_pid=77 prev_prio=120 "
		"prev_state=R "
		"==> next_comm=a next_pid=77 = next_pid=9 next_prio=120\n"
		" a next_pid=77 =-9       [001] d..2. 2003090: thread_noise: a start 5.0 duration 7 ns:9 start 5.001000110 "
		"duration "
		"2900 ns\n"
		" a next_pid=77 =-9       [001] d..2. 2003090: thread_noise:   before:8 start 0.000000000 duration 800 ns\n"
		" a next_pid=77 =-9       [001] d..2. 2003090: thread_noise:     long:8 start 5.000000000 duration 4001 ns\n"
		" a next_pid=77 =-9       [001] d..2. 2003100: sched_switch: prev_comm=a next_pid=77 = prev_pid=9 "
		"prev_prio=120 "
		"prev_state=S ==> next_comm=kworker/1:2 next_pid=41 next_prio=120\n"
		"     kworker/1:2-41      [001] ..... 2003200: workqueue_execute_start: work struct 0000000034: function "
		"vmstat_update\n"
		"     kworker/1:2-41      [001] d.h1. 2003300: irq_handler_entry: irq=36 name=virtio1-req.0\n"
		"     kworker/1:2-41      [001] d.h1. 2003390: irq_noise: virtio1-req.0:36 start 5.001003310 duration 80 ns\n"
		"     kworker/1:2-41      [001] d.h1. 2003400: irq_handler_exit: irq=36 ret=handled\n"
		"     kworker/1:2-41      [001] ..... 2003700: workqueue_execute_end: work struct 0000000034: function "
		"vmstat_update\n"
		"     kworker/1:2-41      [001] d..2. 2003790: thread_noise: kworker/1:2:41 start 5.001003110 duration 580 ns\n"
		"     kworker/1:2-41      [001] d..2. 2003800: sched_switch: prev_comm=kworker/1:2 prev_pid=41 prev_prio=120 "
		"prev_state=I ==> next_comm=sutprobe next_pid=77 next_prio=120\n"
		/* between gaps: of no gap */
		"        sutprobe-77      [001] d.h1. 2400000: irq_noise: reschedule:253 start 5.001400000 duration 10 ns\n"
		"        sutprobe-77      [001] d.h1. 2500000: reschedule_entry: vector=253\n"
		"        sutprobe-77      [001] d.h1. 2500010: reschedule_exit: vector=253\n"
		/* 3: an NMI told of at its end; and an end whose beginning was lost. Without flags, as where irq-info is off. */
		"        sutprobe-77      [001]  3000500: nmi_handler: perf_event_nmi_handler() delta_ns: 100 handled: 1\n"
		"        sutprobe-77      [001]  3000550: nmi_noise: start 5.003000400 duration 120 ns\n"
		"        sutprobe-77      [001]  3000560: irq_noise: nothing that it is known by\n"
		"        sutprobe-77      [001]  3000600: irq_handler_exit: irq=36 ret=handled\n"
		"no event at all\n"
		/* 5: a late tick that does not explain a gap of a million ticks */
		"        sutprobe-77      [001] d.h1. 5900000: local_timer_entry: vector=236\n"
		"        sutprobe-77      [001] d.h1. 5900100: local_timer_exit: vector=236\n";
	const struct gap gaps[] = {{1000000, 1100}, {2000000, 4000}, {3000000, 700}, {4000000, 600}, {5000000, 901000}};
	const struct trace_clock ticks = {.counter = true};
	static struct causes causes;
	struct clock kept = clock_now_used;
	FILE *file = fmemopen(text, sizeof(text) - 1, "r");
	EXPECT(file);
	clock_now_used.hz = 1e9;
	bool read = causes_read(&causes, file, gaps, 5, 77, false, &ticks, false);
	(void)fclose(file);
	double unexplained = clock_ns(causes.unexplained.ticks);
	clock_now_used = kept;
	EXPECT(read && causes.gaps == 5 && causes.unreadable == 2 && causes.ticks == 907400);
	EXPECT(caused(&causes, "local timer", "")->ticks == 400 && caused(&causes, "local timer", "")->gaps == 2);
	EXPECT(caused(&causes, "hrtimer", "tick_nohz_handler")->ticks == 300);
	EXPECT(caused(&causes, "TIMER", "")->ticks == 150);
	EXPECT(caused(&causes, "timer wheel", "delayed_work_timer_fn")->ticks == 50);
	EXPECT(caused(&causes, "a next_pid=77 =", "")->ticks == 3000 && caused(&causes, "a next_pid=77 =", "")->owned == 1);
	EXPECT(caused(&causes, "kworker/1:2", "")->ticks == 200 && caused(&causes, "kworker/1:2", "")->number == 41);
	EXPECT(caused(&causes, "kworker/1:2", "vmstat_update")->ticks == 400);
	EXPECT(caused(&causes, "virtio1-req.0", "")->ticks == 100 && caused(&causes, "virtio1-req.0", "")->number == 36);
	EXPECT(caused(&causes, "perf_event_nmi_handler", "")->ticks == 100);
	EXPECT(caused(&causes, "reschedule", "")->events == 0);
	EXPECT(causes.edges.gaps == 3 && causes.edges.ticks == 300 + 300 + 600);
	const struct long_gap *longest = causes.longest;
	EXPECT(causes.longest_kept == 5 && longest[0].gap.at == 5000000 && longest[0].owner == LONG_GAPS_UNOWNED);
	EXPECT(longest[1].gap.ticks == 4000 && causes.list[longest[1].owner].class == CAUSE_TASK);
	EXPECT(longest[4].gap.at == 4000000 && longest[4].owner == LONG_GAPS_UNOWNED);
	EXPECT(causes.unexplained.gaps == 2 && causes.unexplained_whole == 1 && unexplained == 600 + 900900);
	const struct noise *irqs = &causes.noise[0], *nmis = &causes.noise[1], *softirqs = &causes.noise[2];
	const struct noise *threads = &causes.noise[3];
	EXPECT(irqs->count == 2 && !strcmp(irqs->list[0].name, "local_timer") && irqs->list[0].number == 236);
	EXPECT(irqs->list[0].ticks == 500 && !strcmp(irqs->list[1].name, "virtio1-req.0") && irqs->list[1].ticks == 80);
	EXPECT(nmis->count == 1 && nmis->list[0].events == 1 && nmis->list[0].ticks == 120);
	EXPECT(softirqs->count == 1 && !strcmp(softirqs->list[0].name, "TIMER") && softirqs->list[0].ticks == 180);
	EXPECT(threads->count == 2 && !strcmp(threads->list[0].name, "a start 5.0 duration 7 ns") &&
	       threads->list[0].number == 9 && threads->list[0].ticks == 2900);
	EXPECT(!strcmp(threads->list[1].name, "kworker/1:2") && threads->list[1].longest == 580);
	/* Whole microseconds of the raw clock, and only what came after the first event that is left is told of. */
	static char coarse[] =
		"        sutprobe-77      [001] d.h1.   99.999950: reschedule_exit: vector=253\n"
		"        sutprobe-77      [001] d.h1.  100.000002: irq_handler_entry: irq=3 name=arch_timer\n"
		"        sutprobe-77      [001] d.h1.  100.000007: irq_handler_exit: irq=3 ret=handled\n"
		"        sutprobe-77      [001] d.h1.  100.000007: irq_handler_entry: irq=17 name=IPI-1\n"
		"        sutprobe-77      [001] d.h1.  100.000008: irq_handler_exit: irq=17 ret=handled\n";
	const struct gap later[] = {{0, 900}, {1002, 6}};
	const struct trace_clock raw = {.raw_ns = 100e9, .ticks = 1000, .per_ns = 1e-3, .tolerance = 1};
	file = fmemopen(coarse, sizeof(coarse) - 1, "r");
	EXPECT(file && causes_read(&causes, file, later, 2, 77, false, &raw, true));
	(void)fclose(file);
	EXPECT(causes.gaps == 1 && fabs(caused(&causes, "arch_timer", "")->ticks - 5) < 1e-3);
	EXPECT(caused(&causes, "IPI-1", "")->class == CAUSE_IPI);
	/* Another thread ran when the gap began: its time is all but the interrupt's. The idle task is left out. */
	static char asleep[] =
		"           rival-9       [001] d.h1. 1000300: local_timer_entry: vector=236\n"
		"           rival-9       [001] d.h1. 1000400: local_timer_exit: vector=236\n"
		"           rival-9       [001] d..2. 1001000: sched_switch: prev_comm=rival prev_pid=9 prev_prio=9 "
		"prev_state=S ==> next_comm=sutprobe next_pid=77 next_prio=120\n"
		"          <idle>-0       [001] d.h1. 2000300: local_timer_entry: vector=236\n"
		"          <idle>-0       [001] d.h1. 2000400: local_timer_exit: vector=236\n";
	const struct gap sleeping[] = {{1000000, 1100}, {2000000, 500}};
	file = fmemopen(asleep, sizeof(asleep) - 1, "r");
	EXPECT(file && causes_read(&causes, file, sleeping, 2, 77, true, &ticks, false));
	(void)fclose(file);
	EXPECT(causes.count == 2 && caused(&causes, "rival", "")->ticks == 900 &&
	       caused(&causes, "rival", "")->number == 9);
	EXPECT(caused(&causes, "local timer", "")->ticks == 200 && caused(&causes, "rival", "")->owned == 1);
	return true;
}

#define WORKLOAD_ON "DEFAULTS OSNOISE_WORKLOAD NO_PANIC_ON_STOP \n"

static bool option_is(int instances, const char *option)
{
	return tracefs_lists(instances, "../osnoise/options", option);
}

/* Takes the tracer and is killed: what it leaves is the guardian's. */
static _Noreturn void take_and_die(int instances, const struct cpu_list *cpus)
{
	struct tracing tracing = {.instances = instances, .name = "own", .guardian_socket = -1};
	osnoise_open(&tracing.osnoise, instances, tracing.name, cpus);
	if (tracing_guard(&tracing, cpus) && osnoise_take(&tracing.osnoise, instances) &&
	    option_is(instances, "NO_OSNOISE_WORKLOAD"))
		(void)raise(SIGKILL);
	_exit(1);
}

/* Events that found the buffer full, and those that were not written: "commit overrun" is neither. */
static bool lost_checks(const char *root, int instances, struct error *error)
{
	const struct tracing tracing = {.instance = instances};
	EXPECT(tracing_lost(&tracing, 3) == -1);
	EXPECT(put(root, "/instances/per_cpu/cpu3/stats",
	           "entries: 50\noverrun: 3\ncommit overrun: 70\nbytes: 100\ndropped events: 4\nread events: 9\n"));
	EXPECT(tracing_lost(&tracing, 3) == 7);
	return true;
}

/* A made tracefs, whose options are a file: what is written replaces them. */
static bool osnoise_checks(const char *root, int instances, struct error *error)
{
	unsigned numbers[] = {1, 3};
	struct cpu_list cpus = {numbers, 2};
	struct tracer osnoise, second;
	int status = 0;
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(!strcmp(osnoise.refused, "this kernel has no osnoise tracer") && osnoise.settings < 0);
	EXPECT(put(root, "/available_tracers", "timerlat osnoise nop\n") && put(root, "/osnoise/cpus", "0-2\n"));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(strstr(osnoise.refused, "cannot leave its workload out"));
	EXPECT(put(root, "/osnoise/options", WORKLOAD_ON));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(strstr(osnoise.refused, "'0-2'"));
	/* Whoever else uses it, or is about to, is left alone. */
	EXPECT(put(root, "/osnoise/cpus", "0-3\n") && put(root, "/current_tracer", "timerlat\n"));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(strstr(osnoise.refused, "is in use"));
	EXPECT(put(root, "/current_tracer", "nop\n") && put(root, "/instances/other/current_tracer", "osnoise\n"));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(strstr(osnoise.refused, "instances/other"));
	EXPECT(put(root, "/instances/other/current_tracer", "nop\n") &&
	       put(root, "/osnoise/options", "NO_DEFAULTS NO_OSNOISE_WORKLOAD \n"));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(strstr(osnoise.refused, "is configured otherwise") && option_is(instances, "NO_DEFAULTS"));
	EXPECT(put(root, "/osnoise/options", WORKLOAD_ON));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(!osnoise.refused[0] && option_is(instances, "DEFAULTS"));
	osnoise_open(&second, instances, "own", &cpus);
	EXPECT(strstr(second.refused, "locked"));
	/* Taken, given back, and taken no more where somebody else came meanwhile. */
	EXPECT(put(root, "/instances/own-osnoise/current_tracer", "nop\n") &&
	       put(root, "/instances/own-osnoise/tracing_on", "1\n"));
	EXPECT(osnoise_take(&osnoise, instances) && option_is(instances, "NO_OSNOISE_WORKLOAD"));
	EXPECT(tracefs_lists(instances, "own-osnoise/current_tracer", "osnoise"));
	/* A directory of ordinary files is not removed as an instance is; everything else is as it was. */
	EXPECT(!osnoise_give_back(&osnoise, instances) && option_is(instances, "OSNOISE_WORKLOAD"));
	EXPECT(tracefs_lists(instances, "own-osnoise/current_tracer", "nop"));
	EXPECT(put(root, "/instances/other/current_tracer", "timerlat\n") && !osnoise_take(&osnoise, instances));
	EXPECT(strstr(osnoise.refused, "instances/other") && option_is(instances, "OSNOISE_WORKLOAD"));
	tracer_close(&osnoise);
	EXPECT(put(root, "/instances/other/current_tracer", "nop\n"));
	pid_t child = fork();
	if (child == 0)
		take_and_die(instances, &cpus);
	EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	/* The guardian has the lock until it is done. */
	int settings = openat(instances, "../osnoise", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	EXPECT(settings >= 0);
	int locked = flock(settings, LOCK_EX);
	close(settings);
	EXPECT(locked == 0 && option_is(instances, "OSNOISE_WORKLOAD"));
	EXPECT(tracefs_lists(instances, "own-osnoise/current_tracer", "nop"));
	/* What a guardian that was killed too left is put right by its name; an instance of another name is not touched. */
	EXPECT(put(root, "/osnoise/options", "NO_OSNOISE_WORKLOAD\n"));
	EXPECT(osnoise_mend(instances, "own") && osnoise_mend(instances, "gone-osnoise"));
	EXPECT(option_is(instances, "NO_OSNOISE_WORKLOAD"));
	/* While the tracer cannot be turned off, its workload would start. */
	EXPECT(put(root, "/instances/stuck-osnoise/current_tracer/directory", ""));
	EXPECT(!osnoise_mend(instances, "stuck-osnoise") && option_is(instances, "NO_OSNOISE_WORKLOAD"));
	(void)osnoise_mend(instances, "own-osnoise");
	EXPECT(option_is(instances, "OSNOISE_WORKLOAD"));
	return true;
}

static bool hwlat_is(int instances, const char *width, const char *window, const char *mode)
{
	return tracefs_lists(instances, "../hwlat_detector/width", width) &&
	       tracefs_lists(instances, "../hwlat_detector/window", window) &&
	       tracefs_lists(instances, "../hwlat_detector/mode", mode);
}

/* Takes the tracer and is killed: what it leaves is the guardian's. */
static _Noreturn void take_hwlat_and_die(int instances, const struct hwlat_settings *wanted)
{
	unsigned numbers[] = {1};
	struct cpu_list cpus = {numbers, 1};
	struct tracing tracing = {.instances = instances, .name = "own", .guardian_socket = -1, .osnoise = TRACER_CLOSED};
	hwlat_open(&tracing.hwlat, instances, tracing.name);
	if (tracing_guard(&tracing, &cpus) && hwlat_take(&tracing.hwlat, instances, tracing.name, wanted) &&
	    hwlat_is(instances, "90000", "100000", "per-cpu"))
		(void)raise(SIGKILL);
	_exit(1);
}

/* A made tracefs, where a mode that is written replaces the list: the one in use is then its only word. */
static bool hwlat_checks(const char *root, int instances, struct error *error)
{
	const struct hwlat_settings wanted = {90000, 100000, "per-cpu"};
	const char *memory = "/instances/own-hwlat-400000-800000-round-robin";
	struct tracer hwlat, second;
	char path[128];
	int status = 0;
	hwlat_open(&hwlat, instances, "own");
	EXPECT(strstr(hwlat.refused, "CONFIG_HWLAT_TRACER") && hwlat.settings < 0);
	EXPECT(put(root, "/available_tracers", "timerlat hwlat nop\n") && put(root, "/hwlat_detector/width", "400000\n") &&
	       put(root, "/hwlat_detector/window", "800000\n"));
	hwlat_open(&hwlat, instances, "own");
	EXPECT(strstr(hwlat.refused, "Linux 5.14"));
	/* Whoever else uses it is left alone. */
	EXPECT(put(root, "/hwlat_detector/mode", "none [round-robin] per-cpu\n") &&
	       put(root, "/current_tracer", "hwlat\n"));
	hwlat_open(&hwlat, instances, "own");
	EXPECT(strstr(hwlat.refused, "is in use") && hwlat.settings < 0);
	EXPECT(put(root, "/current_tracer", "nop\n") && put(root, "/instances/other/current_tracer", "hwlat\n"));
	hwlat_open(&hwlat, instances, "own");
	EXPECT(strstr(hwlat.refused, "instances/other"));
	EXPECT(put(root, "/instances/other/current_tracer", "nop\n"));
	hwlat_open(&hwlat, instances, "own");
	EXPECT(!hwlat.refused[0] && !strcmp(hwlat.name, memory + strlen("/instances/")));
	EXPECT(hwlat_is(instances, "400000", "800000", "[round-robin]"));
	hwlat_open(&second, instances, "own");
	EXPECT(strstr(second.refused, "locked"));
	/* Ours now; the threshold is read back, and 0 means unknown. */
	snprintf(path, sizeof(path), "%s/tracing_on", memory);
	EXPECT(put(root, path, "1\n") && put(root, "/instances/own/current_tracer", "nop\n"));
	EXPECT(hwlat_take(&hwlat, instances, "own", &wanted) && hwlat_is(instances, "90000", "100000", "per-cpu"));
	EXPECT(tracefs_lists(instances, "own/current_tracer", "hwlat"));
	EXPECT(put(root, "/tracing_thresh", "10\n") && hwlat_threshold_ns(&hwlat, instances) == 10000 && !hwlat.refused[0]);
	EXPECT(put(root, "/tracing_thresh", "0\n") && hwlat_threshold_ns(&hwlat, instances) == 0 && hwlat.refused[0]);
	tracer_close(&hwlat);
	/* The name tells what to put back; that of others tells nothing. A directory of files is not removed as an instance is. */
	EXPECT(hwlat_mend(instances, "own") && hwlat_mend(instances, "gone-hwlat-1-2-none"));
	EXPECT(hwlat_is(instances, "90000", "100000", "per-cpu"));
	EXPECT(!hwlat_mend(instances, hwlat.name) && hwlat_is(instances, "400000", "800000", "round-robin"));
	EXPECT(tracefs_lists(instances, "own/current_tracer", "nop"));
	EXPECT(put(root, "/instances/own-hwlat-mended/x", "") && !hwlat_mend(instances, "own-hwlat-mended"));
	/* Killed, with the guardian alive, which has the lock until it is done. */
	EXPECT(put(root, "/hwlat_detector/mode", "none [round-robin] per-cpu\n"));
	pid_t child = fork();
	if (child == 0)
		take_hwlat_and_die(instances, &wanted);
	EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	int settings = openat(instances, "../hwlat_detector", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	EXPECT(settings >= 0);
	int locked = flock(settings, LOCK_EX);
	close(settings);
	EXPECT(locked == 0 && hwlat_is(instances, "400000", "800000", "round-robin"));
	EXPECT(tracefs_lists(instances, "own/current_tracer", "nop"));
	return true;
}

/* Runs checks on a made tracefs. */
static bool on_made_tracefs(bool (*checks)(const char *root, int instances, struct error *error), struct error *error)
{
	char root[] = "/tmp/sutprobe-selftest-XXXXXX", path[64];
	if (!mkdtemp(root))
		return error_set(error, ERROR_UNSUPPORTED, "a directory in /tmp: %s", strerror(errno));
	snprintf(path, sizeof(path), "%s/instances", root);
	int instances = put(root, "/instances/other/current_tracer", "nop\n") && put(root, "/current_tracer", "nop\n")
	                    ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
	                    : -1;
	bool good = instances >= 0 ? checks(root, instances, error)
	                           : error_set(error, ERROR_UNSUPPORTED, "files in %s: %s", root, strerror(errno));
	if (instances >= 0)
		close(instances);
	nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return good;
}

static bool case_trace_osnoise(struct error *error)
{
	return on_made_tracefs(osnoise_checks, error);
}

static bool case_trace_lost(struct error *error)
{
	return on_made_tracefs(lost_checks, error);
}

static bool case_trace_hwlat(struct error *error)
{
	return on_made_tracefs(hwlat_checks, error);
}

/* Lines as kernels of several versions print them. */
static bool case_trace_hwlat_text(struct error *error)
{
	struct hwlat_window window;
	EXPECT(hwlat_line("      <...>-4603    [002] d....  5530.226260: #1     inner/outer(us):   13/17    "
	                  "ts:1748106483.010950304 count:2\n",
	                  &window));
	EXPECT(window.longest_us == 17 && window.gaps == 2 && window.nmis == 0 && window.at_unix_ns == 1748106483010950304);
	EXPECT(
		hwlat_line("      hwlatd/3-99   [003] dn...  5530.2: #77    inner/outer(us): 6619/0     ts:5.000000007 count:1 "
		           "nmi-total:4 nmi-count:1\n",
		           &window));
	EXPECT(window.longest_us == 6619 && window.nmis == 1 && window.at_unix_ns == 5000000007);
	EXPECT(hwlat_line(": #7 inner/outer(us):   12/9 ts:5.0 count:1 nmi-count:3\n", &window) && window.nmis == 3);
	EXPECT(!hwlat_line("# tracer: hwlat\n", &window));
	EXPECT(!hwlat_line("      <...>-1 [003] d.... 1.0: #6 inner/outer(us):   12/9\n", &window));
	return true;
}

/* By whatever this machine has: a count that does not go back, or a reason. Asked again the source is the same. */
static bool case_smi(struct error *error)
{
	char text[SMI_TEXT_BYTES] = "", again[SMI_TEXT_BYTES] = "";
	int64_t first = -1, second = -1;
	unsigned cpu = (unsigned)sched_getcpu();
	bool counted = smi_read(cpu, &first, text);
	EXPECT(smi_read(cpu, &second, again) == counted && !strcmp(text, again) && text[0]);
	EXPECT(!counted || (first >= 0 && second >= first));
	struct pmu_spec msr = {.source = "msr"};
	bool event = arch_smi() == ARCH_SMI_INTEL && pmu_find(&msr) && access(PMU_SOURCES "/msr/events/smi", R_OK) == 0;
	long long paranoid = 0;
	bool allowed = geteuid() == 0 && pmu_paranoid(&paranoid);
	EXPECT(!event || !allowed || (counted && !strcmp(text, "the event msr/smi/")));
	/* What a guest reads is no count of its host's. */
	char hypervisor[ARCH_HYPERVISOR_BYTES];
	EXPECT(!arch_hypervisor(hypervisor) || (!smi_count(cpu, &first, text) && strstr(text, "a guest")) ||
	       arch_smi() == ARCH_SMI_NONE);
	return true;
}

HOST_CASES(CASE(trace_hwlat), CASE(trace_hwlat_text), CASE(smi), CASE(trace_text), CASE(trace_osnoise),
           CASE(trace_lost))
