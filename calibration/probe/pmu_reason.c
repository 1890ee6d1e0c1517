// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "arch/arch.h"
#include "files.h"
#include "pmu.h"

#define PARANOID "/proc/sys/kernel/perf_event_paranoid"

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

bool pmu_paranoid(long long *value)
{
	return file_number(PARANOID, value);
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

static void say_invalid(const struct pmu_spec *spec, const unsigned *cpu, const char *words, char *reason)
{
	char path[sizeof(PMU_SOURCES) + PMU_SOURCE_MAX + 12];
	snprintf(path, sizeof(path), PMU_SOURCES "/%s/cpumask", spec->source);
	if (cpu && affinity_offline(*cpu))
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
		if (!strcmp(spec->source, PMU_GENERIC_SOURCE) && !core_source_found())
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
		if (cpu && affinity_offline(*cpu))
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
		         (uint64_t)files.rlim_max, PMU_DESCRIPTORS_LEFT);
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
