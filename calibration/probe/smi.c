// SPDX-License-Identifier: Apache-2.0
#include "smi.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "allocate.h"
#include "arch/arch.h"
#include "files.h"
#include "pmu.h"
#include "text.h"

/* Intel SDM, volume 4: MSR_SMI_COUNT. */
#define MSR_SMI_COUNT 0x34
#define MSR_EVENT PMU_SOURCES "/msr/events/smi"
/* AMD PPR, family 17h and later: PMCx02B, LsSmiRx, SMIs received. */
#define AMD_SMI_EVENT 0x2b
/* Of struct perf_event_attr, as in pmu.c: kernels of any age take it. */
#define ATTRIBUTES_PLAIN 64u

/* The counters of perf are open from the first reading on: they count only then. */
static struct source {
	bool tried;
	int descriptor;
	int reason; /* why there is none */
} *sources;
static size_t source_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *event_name(void)
{
	return arch_smi() == ARCH_SMI_AMD ? "cpu/event=0x2b/" : "msr/smi/";
}

/* The kernel's own event costs no counter; AMD's takes one of six. */
static bool event_find(struct pmu_spec *spec)
{
	char text[32];
	bool amd = arch_smi() == ARCH_SMI_AMD;
	*spec = (struct pmu_spec){.config = {AMD_SMI_EVENT}};
	snprintf(spec->source, sizeof(spec->source), "%s", amd ? "cpu" : "msr");
	if (amd)
		return pmu_find(spec);
	if (!pmu_find(spec) || !file_line(MSR_EVENT, text, sizeof(text)))
		return false;
	const char *at = text_after(text, "event=0x");
	return at && text_hex(&at, &spec->config[0]);
}

static int event_open(const struct pmu_spec *spec, unsigned cpu)
{
	struct perf_event_attr event = {.type = spec->type,
	                                .size = ATTRIBUTES_PLAIN,
	                                .config = spec->config[0],
	                                .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING};
	return pmu_descriptor(&event, &cpu, -1);
}

static struct source *source_of(unsigned cpu)
{
	struct pmu_spec spec;
	if (cpu >= source_count) {
		sources = reallocate(sources, cpu + 1, sizeof(*sources));
		memset(sources + source_count, 0, (cpu + 1 - source_count) * sizeof(*sources));
		source_count = cpu + 1;
	}
	struct source *source = &sources[cpu];
	if (!source->tried) {
		bool known = event_find(&spec);
		source->descriptor = known ? event_open(&spec, cpu) : -1;
		source->reason = known ? errno : ENOENT;
		source->tried = true;
	}
	return source;
}

static bool event_read(int descriptor, const char *name, int64_t *count, char text[SMI_TEXT_BYTES])
{
	struct pmu_reading reading;
	bool good = read(descriptor, &reading, sizeof(reading)) == (ssize_t)sizeof(reading);
	if (!good)
		snprintf(text, SMI_TEXT_BYTES, "reading the event %s: %s", name, strerror(errno));
	else if (reading.running_ns < reading.enabled_ns)
		snprintf(text, SMI_TEXT_BYTES, "the event %s shared its counter with other events", name);
	else
		snprintf(text, SMI_TEXT_BYTES, "the event %s", name);
	*count = (int64_t)reading.value;
	return good && reading.running_ns >= reading.enabled_ns;
}

static bool register_read(unsigned cpu, int64_t *count, char text[SMI_TEXT_BYTES])
{
	char path[64];
	uint64_t value = 0;
	snprintf(path, sizeof(path), "/dev/cpu/%u/msr", cpu);
	int descriptor = open(path, O_RDONLY | O_CLOEXEC);
	bool good = descriptor >= 0 && pread(descriptor, &value, sizeof(value), MSR_SMI_COUNT) == (ssize_t)sizeof(value);
	snprintf(text, SMI_TEXT_BYTES, "%s, register 0x%x%s%s", path, MSR_SMI_COUNT, good ? "" : ": ",
	         good ? "" : strerror(errno));
	if (descriptor >= 0)
		close(descriptor);
	*count = (int64_t)(value & 0xffffffffu);
	return good;
}

bool smi_read(unsigned cpu, int64_t *count, char text[SMI_TEXT_BYTES])
{
	if (arch_smi() == ARCH_SMI_NONE) {
		snprintf(text, SMI_TEXT_BYTES, "this processor does not count system management interrupts");
		return false;
	}
	pthread_mutex_lock(&lock);
	struct source source = *source_of(cpu);
	pthread_mutex_unlock(&lock);
	if (source.descriptor >= 0)
		return event_read(source.descriptor, event_name(), count, text);
	if (arch_smi() == ARCH_SMI_INTEL && register_read(cpu, count, text))
		return true;
	size_t length = arch_smi() == ARCH_SMI_INTEL ? strlen(text) : 0;
	snprintf(text + length, SMI_TEXT_BYTES - length, "%sthe event %s: %s", length ? "; " : "", event_name(),
	         strerror(source.reason));
	return false;
}

bool smi_count(unsigned cpu, int64_t *count, char text[SMI_TEXT_BYTES])
{
	char hypervisor[ARCH_HYPERVISOR_BYTES];
	if (!arch_hypervisor(hypervisor))
		return smi_read(cpu, count, text);
	/* What a guest reads is zero, or counts what its hypervisor made. */
	snprintf(text, SMI_TEXT_BYTES, "a guest (%s) does not see the system management interrupts of its host",
	         hypervisor);
	return false;
}
