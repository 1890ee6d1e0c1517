// SPDX-License-Identifier: Apache-2.0
/* Samples of loads as PEBS, IBS and SPE leave them in a ring. */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

#include "generator.h"
#include "host.h"
#include "random.h"

/* Bytes as the kernel or the hardware would have left them in a ring, which they may fill and wrap around. */
struct made {
	unsigned char *bytes;
	size_t size;
	uint64_t tail, head;
};

static void made_add(struct made *made, const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		memcpy(&made->bytes[made->head++ % made->size], (const unsigned char *)bytes + i, 1);
}

static void made_record(struct made *made, uint32_t type, uint16_t mode, const void *body, size_t size)
{
	struct perf_event_header header = {.type = type, .misc = mode, .size = (uint16_t)(sizeof(header) + size)};
	made_add(made, &header, sizeof(header));
	made_add(made, body, size);
}

static void made_pebs(struct made *made, uint64_t weight, union perf_mem_data_src source)
{
	uint64_t body[2] = {weight, source.val};
	made_record(made, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, body, sizeof(body));
}

static void made_ibs(struct made *made, uint32_t caps, uint64_t data2, uint64_t data3)
{
	struct {
		uint32_t raw_bytes, caps;
		uint64_t registers[8];
	} body = {.raw_bytes = 4 + 8 * 8, .caps = caps, .registers = {[3] = data2, [4] = data3}};
	made_record(made, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, &body, sizeof(body));
}

/* A load of `latency` clocks: address, context, operation, events, counters, data source, time stamp. */
static void made_spe(struct made *made, unsigned operation, unsigned events, unsigned source, unsigned latency)
{
	// clang-format off: a packet a line
	const unsigned char packets[] = {
		0xb0, 1, 2, 3, 4, 5, 6, 7, 0x80, /* address of the instruction */
		0x65, 9, 0, 0, 0,                /* context */
		0x49, (unsigned char)operation,  /* load or store */
		0x52, (unsigned char)events, (unsigned char)(events >> 8),
		0x99, 7, 0,                      /* latency until it was issued */
		0x98, (unsigned char)latency, (unsigned char)(latency >> 8),
		0x43, (unsigned char)source,
		0x21, 0x98, 1, 2,                /* a counter with an index of two bytes */
		0x00, 0x00,                      /* padding */
		0x71, 1, 0, 0, 0, 0, 0, 0, 0,    /* time stamp */
	};
	// clang-format on
	made_add(made, packets, sizeof(packets));
}

static struct decoded made_decode(const struct made *made, enum decode_method method)
{
	const struct decode_ring ring = {made->bytes, made->size, made->tail, made->head};
	struct decoded decoded = {0};
	if (method == DECODE_SPE)
		decode_spe(&ring, 0xe, &decoded);
	else
		decode_records(&ring, method, &decoded);
	return decoded;
}

static bool pebs_as_known(struct made *made, struct error *error)
{
	const union perf_mem_data_src local = {.mem_op = PERF_MEM_OP_LOAD,
	                                       .mem_lvl = PERF_MEM_LVL_HIT | PERF_MEM_LVL_LOC_RAM,
	                                       .mem_lvl_num = PERF_MEM_LVLNUM_RAM,
	                                       .mem_dtlb = PERF_MEM_TLB_HIT | PERF_MEM_TLB_L1};
	union perf_mem_data_src remote = local, walked = local, cached = local, store = local;
	remote.mem_lvl = PERF_MEM_LVL_HIT | PERF_MEM_LVL_REM_RAM1;
	remote.mem_remote = 1;
	walked.mem_dtlb = PERF_MEM_TLB_MISS | PERF_MEM_TLB_L2;
	cached.mem_lvl = PERF_MEM_LVL_HIT | PERF_MEM_LVL_L3;
	cached.mem_lvl_num = PERF_MEM_LVLNUM_L3;
	store.mem_op = PERF_MEM_OP_STORE;
	const uint64_t lost[2] = {1, 17}, body[2] = {300, local.val}, cut = 5;
	made_pebs(made, 301, local);
	made_pebs(made, 302, remote);
	made_pebs(made, 303, walked);
	made_record(made, PERF_RECORD_LOST, 0, lost, sizeof(lost));
	made_pebs(made, 304, cached);
	made_pebs(made, 305, store);
	made_pebs(made, 0, local);
	made_record(made, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL, body, sizeof(body));
	made_record(made, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, &cut, sizeof(cut));
	made_record(made, PERF_RECORD_THROTTLE, 0, lost, sizeof(lost));
	made_record(made, PERF_RECORD_LOST_SAMPLES, 0, &cut, sizeof(cut));
	made_pebs(made, 306, local);
	struct decoded got = made_decode(made, DECODE_PEBS);
	bool right =
		got.taken == 9 && got.lost == 22 && got.count == 2 && got.latencies[0] == 301 && got.latencies[1] == 306;
	for (int i = 0; i < DECODE_REASONS; i++)
		right = right && got.reasons[i] == (i == DECODE_NOT_LOCAL ? 2 : 1);
	decoded_free(&got);
	EXPECT(right);
	return true;
}

static bool ibs_as_known(struct made *made, struct error *error)
{
	/* load, miss, address valid, miss in L2 too */
	const uint64_t data3 = 1 | 1 << 7 | 1 << 17 | 1 << 20;
	const uint32_t zen3 = 0x3ff, zen4 = 0xfff;
	made_ibs(made, zen3, 3, data3 | 400ull << 32);
	made_ibs(made, zen4, 3, data3 | 401ull << 32);
	made_ibs(made, zen4, 3 | 1 << 6, data3 | 402ull << 32);          /* data source 11, by its high bits */
	made_ibs(made, zen3, 3 | 1 << 6, data3 | 403ull << 32);          /* which are none there */
	made_ibs(made, zen4, 3 | 1 << 4, data3 | 404ull << 32);          /* another node */
	made_ibs(made, zen4, 3, (data3 & ~(1ull << 7)) | 405ull << 32);  /* in L1 */
	made_ibs(made, zen4, 3, (data3 & ~(1ull << 20)) | 406ull << 32); /* in L2 */
	made_ibs(made, zen3, 3, data3 | 1 << 16 | 407ull << 32);         /* joined another's miss */
	made_ibs(made, zen4, 3, data3 | 1 << 16 | 408ull << 32);
	made_ibs(made, zen4, 3, data3 | 1 << 2 | 409ull << 32);           /* found in the second TLB */
	made_ibs(made, zen4, 3, data3 | 1 << 2 | 1 << 3 | 410ull << 32);  /* in none */
	made_ibs(made, zen4, 3, (data3 & ~1ull) | 1 << 1 | 411ull << 32); /* a store */
	made_ibs(made, zen4, 3, data3 | 1 << 21 | 412ull << 32);          /* a prefetch */
	made_ibs(made, zen4, 3, data3);
	struct decoded got = made_decode(made, DECODE_IBS);
	const uint32_t kept[] = {400, 401, 403, 408, 409};
	bool right = got.taken == 14 && got.lost == 0 && got.count == 5 && !memcmp(got.latencies, kept, sizeof(kept)) &&
	             got.reasons[DECODE_NOT_LOCAL] == 5 && got.reasons[DECODE_TLB_MISS] == 1 &&
	             got.reasons[DECODE_NOT_LOAD] == 2 && got.reasons[DECODE_NO_LATENCY] == 1;
	decoded_free(&got);
	EXPECT(right);
	return true;
}

static bool spe_as_known(struct made *made, struct error *error)
{
	const unsigned hit = 0x1e; /* retired, L1 access and refill, TLB access */
	const unsigned char aligned[] = {0x25, 0x00}, padding[64] = {0}, end = 0x01, unfinished[] = {0x49, 0x00};
	uint16_t local = 0;
	made_spe(made, 0, hit, 0xe, 500);
	made_spe(made, 1, hit, 0xe, 501);         /* a store */
	made_spe(made, 0, hit | 0x20, 0xe, 502);  /* walked the page tables */
	made_spe(made, 0, hit, 0xd, 503);         /* another chip */
	made_spe(made, 0, hit, 0xb, 504);         /* system cache */
	made_spe(made, 0, hit | 0x400, 0xe, 505); /* remote, as an event */
	made_spe(made, 0, hit, 0xe, 0);
	made_add(made, aligned, sizeof(aligned)); /* to the next multiple of 64, over what is not packets */
	made_add(made, "\xff\xff", 2);
	made->head = (made->head + 63) / 64 * 64;
	made_add(made, padding, sizeof(padding));
	made_add(made, &end, 1); /* ends nothing */
	made_spe(made, 0, hit, 0xe, 506);
	struct decoded got = made_decode(made, DECODE_SPE);
	bool right = got.taken == 8 && got.count == 2 && got.latencies[0] == 500 && got.latencies[1] == 506 &&
	             got.reasons[DECODE_NOT_LOAD] == 1 && got.reasons[DECODE_TLB_MISS] == 1 &&
	             got.reasons[DECODE_NOT_LOCAL] == 3 && got.reasons[DECODE_NO_LATENCY] == 1;
	decoded_free(&got);
	EXPECT(right);
	/* A record without an end, and a byte that begins no packet: counted, and nothing after it is. */
	made_add(made, unfinished, sizeof(unfinished));
	got = made_decode(made, DECODE_SPE);
	right = got.taken == 9 && got.count == 2 && got.reasons[DECODE_DAMAGED] == 1;
	decoded_free(&got);
	EXPECT(right);
	made_add(made, "\xff", 1);
	made_spe(made, 0, hit, 0xe, 507);
	got = made_decode(made, DECODE_SPE);
	right = got.taken == 9 && got.count == 2 && got.reasons[DECODE_DAMAGED] == 1;
	decoded_free(&got);
	EXPECT(right);
	EXPECT(decode_spe_local(0x410fd0c1, &local) && local == 0xe && decode_spe_local(0xc00fac40, &local) && local == 7);
	EXPECT(!decode_spe_local(0x480fd010, &local));
	return true;
}

/* Every cut of what is right, and what is random: no more is found than there can be, and nothing outside is read, as a
 * sanitizer would say. */
static bool nonsense_is_survived(struct made *made, enum decode_method method, struct error *error)
{
	uint64_t head = made->head;
	for (uint64_t shorter = made->tail; shorter <= head; shorter++) {
		made->head = shorter;
		struct decoded got = made_decode(made, method);
		uint64_t told = got.count;
		for (int i = 0; i < DECODE_REASONS; i++)
			told += got.reasons[i];
		bool right = told == got.taken && got.reasons[DECODE_DAMAGED] <= 2 && !got.no_memory;
		decoded_free(&got);
		EXPECT(right);
	}
	struct random random;
	random_seed(&random, 7);
	for (int i = 0; i < 2000; i++) {
		for (size_t k = 0; k < made->size; k++)
			made->bytes[k] = (unsigned char)(i % 2 ? random_below(&random, 256) : 0x40 + random_below(&random, 0x60));
		made->tail = random_below(&random, 1000);
		made->head = made->tail + random_below(&random, made->size + 2);
		struct decoded got = made_decode(made, method);
		bool right = got.taken <= made->size;
		decoded_free(&got);
		EXPECT(right);
	}
	return true;
}

static bool case_samples(struct error *error)
{
	bool (*const known[DECODE_METHODS])(struct made *, struct error *) = {
		[DECODE_PEBS] = pebs_as_known, [DECODE_IBS] = ibs_as_known, [DECODE_SPE] = spe_as_known};
	for (int method = 0; method < DECODE_METHODS; method++)
		/* A ring that is large enough, entered so that what is written wraps around its end. */
		for (uint64_t start = 0; start < 4096; start += 960) {
			struct made made = {.bytes = calloc(1, 2048), .size = 2048, .tail = start, .head = start};
			if (!made.bytes)
				return error_set(error, ERROR_INTERNAL, "no memory");
			bool good = known[method](&made, error) && nonsense_is_survived(&made, (enum decode_method)method, error);
			free(made.bytes);
			if (!good)
				return false;
		}
	struct decoded none = {0}, one = {.taken = 3, .lost = 2, .reasons = {[DECODE_TLB_MISS] = 2}}, sum = {0};
	uint32_t latency = 9;
	one.latencies = &latency;
	one.count = 1;
	decoded_add(&sum, &one);
	decoded_add(&sum, &one);
	decoded_add(&sum, &none);
	bool right =
		sum.taken == 6 && sum.lost == 4 && sum.count == 2 && sum.latencies[1] == 9 && sum.reasons[DECODE_TLB_MISS] == 4;
	decoded_free(&sum);
	EXPECT(right);
	/* Bins: each begins where the one before ends, is no wider than a quarter of where it begins, and holds its own. */
	for (uint32_t from = 0; from < 100000; from = decode_bin_next(from)) {
		EXPECT(decode_bin(from) == from && decode_bin(decode_bin_next(from) - 1) == from);
		EXPECT(decode_bin_next(from) - from <= 1 + from / 4);
	}
	EXPECT(decode_bin_next(UINT32_MAX) == UINT32_MAX);
	return true;
}

HOST_CASES(CASE(samples))
