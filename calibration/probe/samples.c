// SPDX-License-Identifier: Apache-2.0
#include "samples.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files.h"
#include "memory.h"
#include "notation.h"

#define MIDR "/sys/devices/system/cpu/cpu%u/regs/identification/midr_el1"
/* The kernel takes no more samples in a second unless it is told to; a record of PEBS has 24 bytes, one of IBS about
 * 100, one of SPE 64. */
#define SAMPLES_PER_SECOND 100000.0
#define RECORD_BYTES 100.0
#define RECORD_BYTES_MIN 24u
/* Rings are locked memory, of which a user without privileges has little: what is refused is asked for again in half. */
#define RING_BYTES_MAX (16u << 20)
#define RING_BYTES_MIN (64u << 10)
/* IBS counts in sixteens. */
#define IBS_GRAIN 16u
/* IBS: the kernel leaves out its own work only where this bit of config2 asks for it, which older ones do not know; without
 * it what was sampled in the kernel is left out afterwards. */
#define IBS_FILTER 1u
#define READ_LOST (1u << 4) /* PERF_FORMAT_LOST, Linux 6.0 */

static const char *const methods[DECODE_METHODS] = {[DECODE_PEBS] = "pebs", [DECODE_IBS] = "ibs", [DECODE_SPE] = "spe"};

bool sample_parse(const char *text, struct sample_request *request, struct error *error)
{
	const struct notation_term terms[] = {{"config=", &request->spec.config[0], 16},
	                                      {"config1=", &request->spec.config[1], 16},
	                                      {"config2=", &request->spec.config[2], 16},
	                                      {"aux=", &request->leader, 16},
	                                      {"period=", &request->period, 10}};
	char method[8];
	const char *at = text;
	unsigned seen = 0;
	*request = (struct sample_request){.method = DECODE_METHODS, .spec = {.name = "sample", .group = -1}};
	bool good = notation_word(&at, "abcdefghijklmnopqrstuvwxyz", '=', method, sizeof(method)) &&
	            notation_source(&at, request->spec.source, sizeof(request->spec.source)) &&
	            notation_terms(&at, terms, sizeof(terms) / sizeof(terms[0]), &seen) && *at == '\0';
	for (unsigned i = 0; good && i < DECODE_METHODS; i++)
		if (!strcmp(method, methods[i]))
			request->method = (enum decode_method)i;
	request->grouped = seen >> 3 & 1;
	if (!good || request->method == DECODE_METHODS || request->period == 0 ||
	    (request->method == DECODE_IBS && request->period % IBS_GRAIN))
		return error_set(
			error, ERROR_USAGE,
			"--sample: must be " SAMPLES_NOTATION " with the method pebs, ibs or spe, a PMU of " PMU_SOURCES
			", terms from config=, config1=, config2=, aux= with 0x and digits, and period= of 1 or more (of "
			"sixteens for ibs), each once, not '%.200s'",
			text);
	request->spec.user = request->method != DECODE_IBS || request->spec.config[2] & IBS_FILTER;
	(void)pmu_find(&request->spec); /* that there is none is said for the threads */
	return true;
}

static void refuse(struct sampling *sampling, int code)
{
	sampling->refused = true;
	sampling->code = code;
}

static int open_event(const struct sample_request *request, bool leads, int leader, bool counts_lost)
{
	struct perf_event_attr attributes = {.type = request->spec.type,
	                                     .size = sizeof(attributes),
	                                     .config = leads ? request->leader : request->spec.config[0],
	                                     .disabled = leader < 0,
	                                     .exclude_kernel = request->spec.user,
	                                     .exclude_hv = request->spec.user};
	if (!leads) {
		attributes.config1 = request->spec.config[1];
		attributes.config2 = request->spec.config[2];
		attributes.sample_period = request->period;
		attributes.sample_type = request->method == DECODE_PEBS  ? PERF_SAMPLE_WEIGHT | PERF_SAMPLE_DATA_SRC
		                         : request->method == DECODE_IBS ? PERF_SAMPLE_RAW
		                                                         : 0;
		attributes.precise_ip = request->method == DECODE_PEBS ? 2 : 0;
		attributes.read_format = counts_lost ? READ_LOST : 0;
	}
	return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
}

static bool open_events(struct sampling *sampling, const struct sample_request *request)
{
	if (request->grouped) {
		sampling->leader = open_event(request, true, -1, false);
		if (sampling->leader < 0)
			return false;
	}
	sampling->counts_lost = true;
	sampling->event = open_event(request, false, sampling->leader, true);
	if (sampling->event < 0 && errno == EINVAL) {
		sampling->counts_lost = false;
		sampling->event = open_event(request, false, sampling->leader, false);
	}
	if (sampling->leader < 0)
		sampling->leader = sampling->event;
	return sampling->event >= 0;
}

/* Maps a ring of as much as is allowed, after `head` bytes of control and the ring before it. NULL with errno set where
 * not even little is. */
static unsigned char *map_ring(int event, struct perf_event_mmap_page *control, size_t head, size_t wanted,
                               size_t *bytes)
{
	for (*bytes = wanted;; *bytes /= 2) {
		if (control)
			control->aux_size = *bytes;
		void *start = mmap(NULL, head + *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, event,
		                   control ? (off_t)control->aux_offset : 0);
		if (start != MAP_FAILED)
			return start;
		if ((errno != EPERM && errno != ENOMEM) || *bytes / 2 < RING_BYTES_MIN)
			return NULL;
	}
}

static size_t ring_bytes_wanted(double seconds)
{
	size_t wanted = RING_BYTES_MIN;
	while (wanted < RING_BYTES_MAX && (double)wanted < seconds * SAMPLES_PER_SECOND * RECORD_BYTES)
		wanted *= 2;
	return wanted;
}

uint64_t sampling_bytes(const struct sample_request *request, double seconds)
{
	/* The ring, one of control records where the samples have a ring of their own, and what is kept of each sample. */
	size_t ring = ring_bytes_wanted(seconds);
	return request ? ring + RING_BYTES_MIN + ring / RECORD_BYTES_MIN * sizeof(uint32_t) : 0;
}

static bool map_rings(struct sampling *sampling, const struct sample_request *request, double seconds)
{
	size_t page = memory_base_page_bytes(), wanted = ring_bytes_wanted(seconds);
	bool packets = request->method == DECODE_SPE;
	sampling->ring = map_ring(sampling->event, NULL, page, packets ? RING_BYTES_MIN : wanted, &sampling->ring_bytes);
	if (!sampling->ring || !packets)
		return sampling->ring != NULL;
	struct perf_event_mmap_page *control = (void *)sampling->ring;
	control->aux_offset = page + sampling->ring_bytes;
	sampling->packets = map_ring(sampling->event, control, 0, wanted, &sampling->packets_bytes);
	return sampling->packets != NULL;
}

static bool find_local(struct sampling *sampling, unsigned cpu)
{
	char path[sizeof(MIDR) + 10], line[64] = "";
	snprintf(path, sizeof(path), MIDR, cpu);
	if (!file_line(path, line, sizeof(line)) || !decode_spe_local(strtoull(line, NULL, 16), &sampling->local)) {
		snprintf(sampling->reason, sizeof(sampling->reason),
		         "what this processor writes for a load that local memory served is not known: its MIDR is '%.32s'",
		         line);
		return false;
	}
	return true;
}

/* Unmaps what is open without reading it; accepts what never was. */
static void close_sampling(struct sampling *sampling)
{
	if (!sampling->open)
		return;
	if (sampling->packets)
		munmap(sampling->packets, sampling->packets_bytes);
	if (sampling->ring)
		munmap(sampling->ring, memory_base_page_bytes() + sampling->ring_bytes);
	if (sampling->leader >= 0 && sampling->leader != sampling->event)
		close(sampling->leader);
	if (sampling->event >= 0)
		close(sampling->event);
	sampling->packets = sampling->ring = NULL;
	sampling->open = false;
}

void sampling_open(struct sampling *sampling, const struct sample_request *request, unsigned cpu, double seconds)
{
	close_sampling(sampling);
	*sampling = (struct sampling){.event = -1, .leader = -1};
	if (!request)
		return;
	if (!request->spec.known) {
		sampling->refused = true;
		pmu_reason(&request->spec, NULL, 0, sampling->reason);
		return;
	}
	if (request->method == DECODE_SPE && !find_local(sampling, cpu)) {
		sampling->refused = true;
		return;
	}
	sampling->open = true;
	if (!open_events(sampling, request)) {
		refuse(sampling, errno);
		pmu_reason(&request->spec, NULL, sampling->code, sampling->reason);
	} else if (!map_rings(sampling, request, seconds)) {
		refuse(sampling, errno);
		snprintf(sampling->reason, sizeof(sampling->reason),
		         "the kernel gives no memory for samples (%s), not even %u KiB: raise perf_event_mlock_kb or "
		         "RLIMIT_MEMLOCK, or give CAP_IPC_LOCK",
		         strerror(sampling->code), RING_BYTES_MIN >> 10);
	}
}

static void switch_to(struct sampling *sampling, unsigned long request)
{
	if (!sampling->open || sampling->refused || ioctl(sampling->leader, request, PERF_IOC_FLAG_GROUP) == 0)
		return;
	refuse(sampling, errno);
	snprintf(sampling->reason, sizeof(sampling->reason), "it was opened, and could not be started or stopped: %s",
	         strerror(sampling->code));
}

void sampling_begin(struct sampling *sampling)
{
	switch_to(sampling, PERF_EVENT_IOC_ENABLE);
}

void sampling_end(struct sampling *sampling)
{
	switch_to(sampling, PERF_EVENT_IOC_DISABLE);
}

/* What the event itself counted tells how many samples there should have been where the kernel does not say how many it
 * could not write, and nothing was left to write them to. */
static uint64_t lost_of(const struct sampling *sampling, uint64_t period, uint64_t taken, bool full)
{
	uint64_t values[2] = {0}; /* count, and lost where it is told */
	size_t wanted = sampling->counts_lost ? sizeof(values) : sizeof(values[0]);
	if (read(sampling->event, values, wanted) != (ssize_t)wanted)
		return 0;
	uint64_t expected = values[0] / period;
	if (sampling->counts_lost)
		return values[1];
	return !full ? 0 : expected > taken ? expected - taken : 1;
}

void samples_collect(struct samples *samples, const struct sample_request *request, struct sampling *sampling)
{
	if (!request)
		return;
	if (sampling->refused && !samples->refused) {
		samples->refused = true;
		samples->code = sampling->code;
		memcpy(samples->reason, sampling->reason, sizeof(samples->reason));
	}
	if (sampling->open && !sampling->refused) {
		struct perf_event_mmap_page *control = (void *)sampling->ring;
		struct decode_ring records = {.bytes = sampling->ring + memory_base_page_bytes(),
		                              .size = sampling->ring_bytes,
		                              .tail = control->data_tail,
		                              .head = control->data_head};
		struct decoded decoded = {0};
		atomic_thread_fence(memory_order_acquire);
		decode_records(&records, request->method, &decoded);
		if (sampling->packets) {
			struct decode_ring packets = {.bytes = sampling->packets,
			                              .size = sampling->packets_bytes,
			                              .tail = control->aux_tail,
			                              .head = control->aux_head};
			decode_spe(&packets, sampling->local, &decoded);
		}
		bool full = records.head - records.tail + (uint64_t)(2 * RECORD_BYTES) > records.size;
		uint64_t lost = lost_of(sampling, request->period, decoded.taken, full);
		decoded.lost = lost > decoded.lost ? lost : decoded.lost;
		decoded_add(&samples->decoded, &decoded);
		decoded_free(&decoded);
	}
	close_sampling(sampling);
}

static int by_value(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	return (a > b) - (a < b);
}

/* The value below which this part of those sorted lies, between two of them where none is there. */
static double part_of(const uint32_t *sorted, size_t count, double part)
{
	double place = part * (double)(count - 1);
	size_t below = (size_t)place;
	double more = below + 1 < count ? (double)(sorted[below + 1] - sorted[below]) : 0;
	return (double)sorted[below] + (place - (double)below) * more;
}

static void latencies_write(struct json *json, uint32_t *latencies, size_t count)
{
	double sum = 0;
	if (!json_known(json, "latency_cycles", count > 0)) {
		json_array_begin(json, "histogram");
		json_array_end(json);
		return;
	}
	qsort(latencies, count, sizeof(*latencies), by_value);
	for (size_t i = 0; i < count; i++)
		sum += latencies[i];
	json_object_begin(json, "latency_cycles");
	json_f64(json, "mean", sum / (double)count);
	json_f64(json, "median", part_of(latencies, count, 0.5));
	json_f64(json, "p10", part_of(latencies, count, 0.1));
	json_f64(json, "p90", part_of(latencies, count, 0.9));
	json_f64(json, "min", latencies[0]);
	json_f64(json, "max", latencies[count - 1]);
	json_object_end(json);
	json_array_begin(json, "histogram");
	uint32_t from = decode_bin(latencies[0]);
	for (size_t i = 0; i < count; from = decode_bin_next(from)) {
		size_t first = i;
		while (i < count && decode_bin(latencies[i]) == from)
			i++;
		json_object_begin(json, NULL);
		json_u64(json, "from_cycles", from);
		json_u64(json, "count", i - first);
		json_object_end(json);
	}
	json_array_end(json);
}

/* Samples that some threads were refused are of other threads than those measured: none is reported then. */
void samples_write(struct json *json, const char *key, const struct sample_request *request,
                   const struct samples *samples)
{
	static const struct decoded none;
	const struct decoded *decoded = samples->refused || samples->decoded.no_memory ? &none : &samples->decoded;
	if (!json_object_known(json, key, request))
		return;
	json_text(json, "method", methods[request->method]);
	json_u64(json, "period", request->period);
	json_u64(json, "taken", decoded->taken);
	json_u64(json, "lost", decoded->lost);
	json_u64(json, "kept", decoded->count);
	json_object_begin(json, "reasons");
	for (unsigned i = 0; i < DECODE_REASONS; i++)
		json_u64(json, decode_reasons[i], decoded->reasons[i]);
	json_object_end(json);
	latencies_write(json, decoded->latencies, decoded->count);
	if (json_object_known(json, "refused", samples->refused || samples->decoded.no_memory)) {
		json_text(json, "errno", samples->code ? pmu_errno_name(samples->code) : NULL);
		json_text(json, "reason", samples->refused ? samples->reason : "no memory for the samples that were taken");
		json_object_end(json);
	}
	json_object_end(json);
}

void samples_free(struct samples *samples)
{
	decoded_free(&samples->decoded);
	*samples = (struct samples){0};
}
