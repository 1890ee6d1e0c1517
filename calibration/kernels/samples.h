/* SPDX-License-Identifier: Apache-2.0 */
/* Loads sampled by the hardware: what --sample asks for, opened in each thread that loads, left to itself while that runs,
 * and read by the thread that supervises once the run is over. What cannot be had is refused with the kernel's answer; no
 * measurement ends for it. */
#pragma once

#include "decode.h"
#include "error.h"
#include "pmu.h"

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
