// SPDX-License-Identifier: Apache-2.0
/* Sources: the kernel's perf_event.h for records; AMD, Processor Programming Reference, IbsOpData2 and IbsOpData3; Arm,
 * Architecture Reference Manual, chapter on the statistical profiling extension, and the manuals of the cores for what a
 * data source is. */
#include "samples.h"

#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

const char *const decode_reasons[DECODE_REASONS] = {
	[DECODE_DAMAGED] = "damaged",   [DECODE_KERNEL] = "in the kernel",     [DECODE_NOT_LOAD] = "not a load",
	[DECODE_TLB_MISS] = "TLB miss", [DECODE_NOT_LOCAL] = "not local DRAM", [DECODE_NO_LATENCY] = "no latency",
};

static void drop(struct decoded *decoded, enum decode_reason reason)
{
	decoded->taken++;
	decoded->reasons[reason]++;
}

static void keep(struct decoded *decoded, uint64_t latency)
{
	if (latency == 0 || latency > UINT32_MAX) {
		drop(decoded, DECODE_NO_LATENCY);
		return;
	}
	decoded->taken++;
	if (decoded->count == decoded->capacity) {
		size_t capacity = decoded->capacity ? 2 * decoded->capacity : 1024;
		uint32_t *grown = realloc(decoded->latencies, capacity * sizeof(*grown));
		if (!grown) {
			decoded->no_memory = true;
			return;
		}
		decoded->latencies = grown;
		decoded->capacity = capacity;
	}
	decoded->latencies[decoded->count++] = (uint32_t)latency;
}

/* False where the ring holds fewer bytes from there. */
static bool copy(const struct decode_ring *ring, uint64_t at, void *to, size_t bytes)
{
	if (ring->head - at < bytes)
		return false;
	for (size_t i = 0; i < bytes; i++)
		((unsigned char *)to)[i] = ring->bytes[(at + i) & (ring->size - 1)];
	return true;
}

static bool sound(const struct decode_ring *ring)
{
	return ring->size && !(ring->size & (ring->size - 1)) && ring->head - ring->tail <= ring->size;
}

/* PERF_SAMPLE_WEIGHT | PERF_SAMPLE_DATA_SRC */
static void pebs_sample(const unsigned char *bytes, size_t size, struct decoded *decoded)
{
	uint64_t weight;
	union perf_mem_data_src source;
	if (size < sizeof(weight) + sizeof(source)) {
		drop(decoded, DECODE_DAMAGED);
		return;
	}
	memcpy(&weight, bytes, sizeof(weight));
	memcpy(&source, bytes + sizeof(weight), sizeof(source));
	bool remote = source.mem_remote || source.mem_lvl & (PERF_MEM_LVL_REM_RAM1 | PERF_MEM_LVL_REM_RAM2);
	bool memory = source.mem_lvl & PERF_MEM_LVL_LOC_RAM || source.mem_lvl_num == PERF_MEM_LVLNUM_RAM;
	if (!(source.mem_op & PERF_MEM_OP_LOAD))
		drop(decoded, DECODE_NOT_LOAD);
	else if (!(source.mem_dtlb & PERF_MEM_TLB_HIT) || source.mem_dtlb & PERF_MEM_TLB_MISS)
		drop(decoded, DECODE_TLB_MISS);
	else if (!memory || remote)
		drop(decoded, DECODE_NOT_LOCAL);
	else
		keep(decoded, weight);
}

#define IBS_CAPS_ZEN4 (1u << 11)
#define IBS_SOURCE_DRAM 3u

/* PERF_SAMPLE_RAW, because kernels before 6.2 fill in neither data source nor weight of IBS, and these come from the same
 * registers: IbsOpCtl, IbsOpRip, IbsOpData, IbsOpData2, IbsOpData3 and more, after the capabilities. */
static void ibs_sample(const unsigned char *bytes, size_t size, struct decoded *decoded)
{
	uint32_t raw_bytes, caps;
	uint64_t registers[5];
	if (size < sizeof(raw_bytes) + sizeof(caps) + sizeof(registers)) {
		drop(decoded, DECODE_DAMAGED);
		return;
	}
	memcpy(&raw_bytes, bytes, sizeof(raw_bytes));
	memcpy(&caps, bytes + sizeof(raw_bytes), sizeof(caps));
	memcpy(registers, bytes + sizeof(raw_bytes) + sizeof(caps), sizeof(registers));
	if (raw_bytes < sizeof(caps) + sizeof(registers)) {
		drop(decoded, DECODE_DAMAGED);
		return;
	}
	uint64_t data2 = registers[3], data3 = registers[4];
	bool load = data3 & 1, tlb1_miss = data3 >> 2 & 1, tlb2_miss = data3 >> 3 & 1, miss = data3 >> 7 & 1,
		 uncached = data3 >> 14 & 1, shared_miss = data3 >> 16 & 1, address = data3 >> 17 & 1,
		 l2_miss = data3 >> 20 & 1, prefetch = data3 >> 21 & 1, remote = data2 >> 4 & 1, zen4 = caps & IBS_CAPS_ZEN4;
	unsigned source = data2 & 7;
	if (zen4)
		source |= (unsigned)(data2 >> 6 & 3) << 3;
	/* Before Zen 4 the source of a load that joined a miss already under way may be that of another (erratum 1293). */
	bool known = zen4 || !shared_miss;
	if (!load || prefetch)
		drop(decoded, DECODE_NOT_LOAD);
	else if (!address || (tlb1_miss && tlb2_miss))
		drop(decoded, DECODE_TLB_MISS);
	else if (!miss || !l2_miss || uncached || remote || !known || source != IBS_SOURCE_DRAM)
		drop(decoded, DECODE_NOT_LOCAL);
	else
		keep(decoded, data3 >> 32 & 0xffff);
}

/* The largest record that is ours: samples of IBS, some hundred bytes. */
#define RECORD_BYTES 512

void decode_records(const struct decode_ring *ring, enum decode_method method, struct decoded *decoded)
{
	struct perf_event_header header;
	unsigned char body[RECORD_BYTES];
	if (!sound(ring)) {
		drop(decoded, DECODE_DAMAGED);
		return;
	}
	for (uint64_t at = ring->tail; at != ring->head; at += header.size) {
		if (!copy(ring, at, &header, sizeof(header)) || header.size < sizeof(header) || header.size > ring->head - at) {
			drop(decoded, DECODE_DAMAGED); /* and where the next one begins is not known */
			return;
		}
		size_t size = header.size - sizeof(header);
		uint64_t words[3] = {0};
		size = size < sizeof(body) ? size : sizeof(body);
		copy(ring, at + sizeof(header), body, size);
		memcpy(words, body, size < sizeof(words) ? size : sizeof(words));
		switch (header.type) {
		case PERF_RECORD_SAMPLE:
			if (method == DECODE_SPE)
				break; /* its samples are packets */
			if ((header.misc & PERF_RECORD_MISC_CPUMODE_MASK) != PERF_RECORD_MISC_USER)
				drop(decoded, DECODE_KERNEL);
			else if (method == DECODE_PEBS)
				pebs_sample(body, size, decoded);
			else
				ibs_sample(body, size, decoded);
			break;
		case PERF_RECORD_LOST: /* id, number */
			decoded->lost += words[1];
			break;
		case PERF_RECORD_LOST_SAMPLES: /* number */
			decoded->lost += words[0];
			break;
		case PERF_RECORD_AUX: /* offset, size, flags: how many went is not said */
			decoded->lost +=
				(words[2] & (PERF_AUX_FLAG_TRUNCATED | PERF_AUX_FLAG_PARTIAL | PERF_AUX_FLAG_COLLISION)) != 0;
			break;
		default:
			break;
		}
	}
}

/* One packet: its kind, what it carries, and how long it is. */
struct packet {
	enum { PADDING, END, EVENTS, SOURCE, OPERATION, COUNTER, OTHER } kind;
	unsigned index;
	uint64_t payload;
	size_t bytes;
};

static bool read_packet(const struct decode_ring *ring, uint64_t at, struct packet *packet)
{
	unsigned char bytes[10] = {0};
	size_t there = ring->head - at < sizeof(bytes) ? (size_t)(ring->head - at) : sizeof(bytes), headers = 1;
	copy(ring, at, bytes, there);
	unsigned first = bytes[0], header = first;
	*packet = (struct packet){.kind = OTHER, .bytes = 1};
	if (first == 0x00) {
		packet->kind = PADDING;
		return true;
	}
	if (first == 0x01) {
		packet->kind = END;
		return true;
	}
	if ((first & 0xf0) == 0x20 && there > 1 && bytes[1] == 0x00) {
		uint64_t alignment = (uint64_t)2 << (first & 0xf);
		packet->kind = PADDING;
		packet->bytes = (size_t)(alignment - (at & (alignment - 1)));
		return packet->bytes <= ring->head - at;
	}
	if ((first & 0xfc) == 0x20) { /* a header of two bytes: the index is longer */
		header = bytes[1];
		headers = 2;
	}
	packet->index = header & 7;
	if (headers == 2)
		packet->index |= (first & 3) << 3;
	if (first == 0x71)
		packet->kind = END; /* a time stamp ends a record too */
	else if ((first & 0xcf) == 0x42)
		packet->kind = EVENTS;
	else if ((first & 0xcf) == 0x43)
		packet->kind = SOURCE;
	else if ((first & 0xfc) == 0x48) {
		packet->kind = OPERATION;
		packet->index = first & 3;
	} else if ((header & 0xf8) == 0x98)
		packet->kind = COUNTER;
	else if ((header & 0xf8) != 0xb0 && (first & 0xfc) != 0x64) /* address, context */
		return false;
	size_t length = (size_t)1 << (header >> 4 & 3);
	packet->bytes = headers + length;
	for (size_t i = 0; i < length && headers + i < there; i++)
		packet->payload |= (uint64_t)bytes[headers + i] << 8 * i;
	return packet->bytes <= there;
}

#define SPE_LOAD_OR_STORE 1u
#define SPE_TOTAL_LATENCY 0u
#define SPE_TLB_WALK (1u << 5)
#define SPE_REMOTE (1u << 10)

void decode_spe(const struct decode_ring *ring, uint16_t local, struct decoded *decoded)
{
	static const struct operation {
		bool begun, load, events_known, source_known;
		uint64_t events, source, latency;
	} none;
	struct operation now = none;
	struct packet packet;
	if (!sound(ring)) {
		drop(decoded, DECODE_DAMAGED);
		return;
	}
	for (uint64_t at = ring->tail; at != ring->head; at += packet.bytes) {
		if (!read_packet(ring, at, &packet)) {
			drop(decoded, DECODE_DAMAGED); /* what follows a packet that is none cannot be told from one */
			return;
		}
		now.begun = now.begun || (packet.kind != PADDING && packet.kind != END);
		if (packet.kind == EVENTS) {
			now.events = packet.payload;
			now.events_known = true;
		} else if (packet.kind == SOURCE) {
			now.source = packet.payload;
			now.source_known = true;
		} else if (packet.kind == OPERATION) {
			now.load = packet.index == SPE_LOAD_OR_STORE && !(packet.payload & 1);
		} else if (packet.kind == COUNTER && packet.index == SPE_TOTAL_LATENCY) {
			now.latency = packet.payload;
		} else if (packet.kind == END && now.begun) {
			if (!now.load)
				drop(decoded, DECODE_NOT_LOAD);
			else if (!now.events_known || now.events & SPE_TLB_WALK)
				drop(decoded, DECODE_TLB_MISS);
			else if (!now.source_known || now.source != local || now.events & SPE_REMOTE)
				drop(decoded, DECODE_NOT_LOCAL);
			else
				keep(decoded, now.latency);
			now = none;
		}
	}
	if (now.begun)
		drop(decoded, DECODE_DAMAGED);
}

bool decode_spe_local(uint64_t midr, uint16_t *local)
{
	/* Implementer and part, and the data source that the manual of the core calls memory of this chip. */
	static const struct {
		unsigned implementer, part;
		uint16_t local;
	} known[] = {
		{0x41, 0xd0c, 0xe}, /* Neoverse N1 */
		{0x41, 0xd40, 0xe}, /* Neoverse V1 */
		{0x41, 0xd49, 0xe}, /* Neoverse N2 */
		{0x41, 0xd4f, 0xe}, /* Neoverse V2 */
		{0xc0, 0xac4, 0x7}, /* AmpereOne */
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if ((midr >> 24 & 0xff) == known[i].implementer && (midr >> 4 & 0xfff) == known[i].part) {
			*local = known[i].local;
			return true;
		}
	return false;
}

void decoded_add(struct decoded *sum, const struct decoded *more)
{
	uint64_t taken = sum->taken + more->taken;
	for (size_t i = 0; i < more->count; i++)
		keep(sum, more->latencies[i]);
	for (int i = 0; i < DECODE_REASONS; i++)
		sum->reasons[i] += more->reasons[i];
	sum->taken = taken;
	sum->lost += more->lost;
	sum->no_memory = sum->no_memory || more->no_memory;
}

void decoded_free(struct decoded *decoded)
{
	free(decoded->latencies);
	*decoded = (struct decoded){0};
}

static unsigned bin_shift(uint32_t latency)
{
	return latency < 4 ? 0 : 29 - (unsigned)__builtin_clz(latency);
}

uint32_t decode_bin(uint32_t latency)
{
	return latency >> bin_shift(latency) << bin_shift(latency);
}

uint32_t decode_bin_next(uint32_t latency)
{
	uint64_t next = (uint64_t)decode_bin(latency) + ((uint64_t)1 << bin_shift(latency));
	return next > UINT32_MAX ? UINT32_MAX : (uint32_t)next;
}
