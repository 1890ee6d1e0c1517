/* SPDX-License-Identifier: Apache-2.0 */
/* Loads sampled by the hardware: what --sample asks for, opened in each thread that loads, left to itself while that runs,
 * and read by the thread that supervises once the run is over. What cannot be had is refused with the kernel's answer; no
 * measurement ends for it. */
#pragma once

#include "error.h"
#include "pmu.h"

/* -- what sampling hardware wrote of the loads it looked at: pure functions over buffers, for three kinds of it. Whatever a
 * buffer holds, it is read within its bounds, and what cannot be understood is counted and not guessed at.
 *
 * Kept are loads of the program's own that hit a TLB and were served by local memory, with their latency in core clocks:
 * what paper and vendor count from the moment at which the load is sent to the caches, or is taken up (Arm) (decode.c). -- */

enum decode_method {
	DECODE_PEBS, /* Intel: load latency, as the kernel's data source and weight */
	DECODE_IBS,  /* AMD: the registers of instruction-based sampling, raw */
	DECODE_SPE,  /* Arm: packets of the statistical profiling extension */
	DECODE_METHODS,
};

/* Why a sample is not kept, in the order in which it is asked. */
enum decode_reason {
	DECODE_DAMAGED,
	DECODE_KERNEL,
	DECODE_NOT_LOAD,
	DECODE_TLB_MISS,
	DECODE_NOT_LOCAL,
	DECODE_NO_LATENCY,
	DECODE_REASONS,
};
extern const char *const decode_reasons[DECODE_REASONS];

struct decoded {
	uint64_t taken; /* samples found, kept or not */
	uint64_t lost;  /* as the buffer says; at least */
	uint64_t reasons[DECODE_REASONS];
	uint32_t *latencies; /* of those kept */
	size_t count, capacity;
	bool no_memory; /* some that should have been kept are not */
};

/* A ring as the kernel fills it: positions only grow, and are taken modulo the size, a power of two. */
struct decode_ring {
	const unsigned char *bytes;
	size_t size;
	uint64_t tail, head;
};

/* The records of perf: samples of PEBS and IBS, and what was lost of any. */
void decode_records(const struct decode_ring *ring, enum decode_method method, struct decoded *decoded);
/* The packets of SPE; `local` is what the data source is where local memory served a load. */
void decode_spe(const struct decode_ring *ring, uint16_t local, struct decoded *decoded);
/* That value for a processor by its MIDR; false where it is not known. */
bool decode_spe_local(uint64_t midr, uint16_t *local);
/* Adds what one thread's buffer held to that of others. */
void decoded_add(struct decoded *sum, const struct decoded *more);
void decoded_free(struct decoded *decoded);
/* Least latency of the same bin of a histogram whose bins are quarters of octaves. */
uint32_t decode_bin(uint32_t latency);
/* And of the bin after it. */
uint32_t decode_bin_next(uint32_t latency);

/* -- what --sample asks for (samples.c) -- */

#define SAMPLES_NOTATION "METHOD=PMU/TERM[,TERM...]/"
/* Of the options that every subcommand with samples has. */
#define SAMPLES_HELP                                                                                                   \
	"sample loads of each measuring thread by the method pebs, ibs or spe; terms: config=, config1=, config2=, aux= "  \
	"with 0x and digits, period="

/* One --sample. */
struct sample_request {
	enum decode_method method;
	struct pmu_spec spec; /* the PMU and the words of the event */
	bool grouped;
	uint64_t leader; /* config of the event that leads the group */
	uint64_t period;
};

/* False, with a usage error, where it is not in the notation. */
bool sample_parse(const char *text, struct sample_request *request, struct error *error);

/* One thread's sampling, for one run. */
struct sampling {
	bool open, refused;
	int code; /* of what was refused; 0 where the kernel was not asked */
	char reason[PMU_REASON_BYTES];
	int event, leader; /* the leader is the event itself where there is no group */
	bool counts_lost;
	unsigned char *ring, *packets;
	size_t ring_bytes, packets_bytes;
	uint16_t local;
};

/* Bytes that a thread takes for samples of so many seconds, at most; the request is NULL where nothing was asked, which all of
 * these accept. */
uint64_t sampling_bytes(const struct sample_request *request, double seconds);
/* In the thread, before its work. */
void sampling_open(struct sampling *sampling, const struct sample_request *request, unsigned cpu, double seconds);
void sampling_begin(struct sampling *sampling);
void sampling_end(struct sampling *sampling);

/* Of all threads of one run. */
struct samples {
	bool refused;
	int code;
	char reason[PMU_REASON_BYTES];
	struct decoded decoded;
};

/* Reads what one thread's run left, adds it, and closes. */
void samples_collect(struct samples *samples, const struct sample_request *request, struct sampling *sampling);
/* Writes null where nothing was asked. */
void samples_write(struct json *json, const char *key, const struct sample_request *request,
                   const struct samples *samples);
void samples_free(struct samples *samples);
