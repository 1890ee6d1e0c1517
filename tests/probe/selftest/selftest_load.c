// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "affinity.h"
#include "arch/arch.h"
#include "demand.h"
#include "generator.h"
#include "selftest.h"
#include "work.h"

bool case_core_work(struct error *error)
{
	static struct work_lanes lanes;
	EXPECT(work_find("scalar") == &works[0] && !work_find("mmx"));
	for (const struct work *work = works; work->name; work++) {
		if (work->supported && !work->supported())
			continue;
		work_begin(&lanes);
		EXPECT(work_lanes_right(work, &lanes));
		EXPECT(work_run(work, 3, &lanes) && work_run(work, 40, &lanes) && work_lanes_right(work, &lanes));
		EXPECT(!work_sum_right(work->run(3, &lanes), 4));
		/* That call was not entered into the books: every lane has done more than they say. */
		EXPECT(!work->vector_bytes || !work_lanes_right(work, &lanes));
		if (!work->vector_bytes)
			continue;
		const size_t last = WORK_ACCUMULATORS * work->vector_bytes() / sizeof(float) - 1;
		work_begin(&lanes);
		EXPECT(work_run(work, 1, &lanes) && lanes.lanes[0] == 1 + 1.0f / 2048 && lanes.lanes[last] == lanes.lanes[0]);
		lanes.lanes[last] = 1;
		EXPECT(!work_lanes_right(work, &lanes));
		/* The lane after the last belongs to no vector, so nothing may have written there. */
		EXPECT(work->vector_bytes() == WORK_VECTOR_BYTES_MAX || lanes.lanes[last + 1] == WORK_LANE_BEGIN);
	}
	return true;
}

#define TEST_BYTES 32768u

static uint64_t pattern(unsigned array, size_t word)
{
	return (word + 1) * 0x9e3779b97f4a7c15u + array;
}

/* What four passes over the arrays must leave, computed word by word. */
static bool one_variant(const struct load_width *width, const struct load_shape *shape, unsigned char *memory,
                        struct error *error)
{
	const struct load_accounting *a = &load_mixes[shape->mix];
	const enum load_instruction instruction = shape->instruction;
	struct load_call call = {.stream_bytes = TEST_BYTES / shape->streams,
	                         .prefetch_bytes = shape->prefetch_bytes,
	                         .delay = shape->delay,
	                         .streams = shape->streams,
	                         .passes = 1,
	                         .mark = 77};
	uint64_t *words[LOAD_ARRAYS_MAX], sum = 0, expected = 0;
	for (unsigned k = 0; k < LOAD_ARRAYS_MAX; k++) {
		call.arrays[k] = memory + k * TEST_BYTES;
		words[k] = (uint64_t *)(void *)call.arrays[k];
		for (size_t i = 0; i < TEST_BYTES / 8; i++)
			words[k][i] = pattern(k, i);
	}
	load_kernel kernel = load_kernel_find(width, shape);
	/* Two calls: a quarter of each stream, then the rest. What follows the first must be untouched after it. */
	size_t lines = call.stream_bytes / LOAD_LINE_BYTES, first = lines / 4 / LOAD_STEPS_PER_DELAY * LOAD_STEPS_PER_DELAY;
	call.steps = first;
	sum += kernel(&call);
	unsigned written = a->arrays - 1;
	bool stores = a->updates || a->writes, untouched = true;
	for (size_t i = first * LOAD_LINE_BYTES / 8; stores && i < call.stream_bytes / 8; i++)
		untouched = untouched && words[written][i] == pattern(written, i);
	call.offset = first * LOAD_LINE_BYTES;
	call.steps = lines - first;
	sum += kernel(&call);
	/* Three passes more in one call: each counts, and writes its own number. */
	call.offset = 0;
	call.steps = lines;
	call.passes = 3;
	call.mark = 78;
	sum += kernel(&call);
	const unsigned apart = a->shuffled ? ARCH_LINE_BYTES / 8 : a->sparse ? LOAD_LINE_WORDS : 1;
	const unsigned visits = 4 * (a->shuffled ? ARCH_LINE_BYTES / LOAD_LINE_BYTES : 1);
	bool right = untouched;
	for (size_t i = 0; i < TEST_BYTES / 8; i++) {
		for (unsigned k = 0; k < a->summed; k++)
			expected += i % apart ? 0 : visits * pattern(k, i);
		if (a->updates)
			right = right && words[written][i] == pattern(written, i) + 4;
		if (a->writes) {
			uint64_t value = load_word_written(instruction, 80);
			size_t in_stream = i % (call.stream_bytes / 8);
			if ((instruction == INSTRUCTION_CLZERO || instruction == INSTRUCTION_DC_ZVA) &&
			    in_stream == load_canary_line(80, lines) * LOAD_LINE_WORDS)
				value = 80;
			for (unsigned k = 0; k < written; k++)
				value += pattern(k, i);
			right = right && words[written][i] == value;
		}
	}
	uint64_t units = TEST_BYTES / LOAD_LINE_BYTES / LOAD_STEPS_PER_DELAY;
	right = right && sum == expected && call.carry == (a->sparse ? 0 : 4 * units * call.delay);
	return right ||
	       error_set(error, ERROR_CHECK_FAILED, "%s %s streams %u prefetch %s lines %u %s delay %d: wrong result",
	                 width->name, a->name, shape->streams, load_hint_name(shape), load_visit_lines(shape),
	                 load_instruction_name(instruction), shape->delay > 0);
}

/* Two triads with the places of source and target exchanged between, and what lies beyond each array. */
static bool doubles_right(const struct load_width *width, unsigned char *memory, struct error *error)
{
	const size_t bytes = TEST_BYTES - 2 * LOAD_LINE_BYTES;
	unsigned char *arrays[] = {memory, memory + TEST_BYTES, memory + 2 * (size_t)TEST_BYTES};
	const double last[] = {3.25, 2, 2.5};
	bool right = true;
	memset(memory, 0xdb, 3 * (size_t)TEST_BYTES);
	for (unsigned k = 0; k < 3; k++)
		width->kernels->fill(arrays[k] + LOAD_LINE_BYTES, k == 1 ? 2 : 1 - (double)k, bytes);
	width->kernels->triad(arrays[2] + LOAD_LINE_BYTES, arrays[1] + LOAD_LINE_BYTES, arrays[0] + LOAD_LINE_BYTES, 0.5,
	                      bytes);
	width->kernels->triad(arrays[0] + LOAD_LINE_BYTES, arrays[1] + LOAD_LINE_BYTES, arrays[2] + LOAD_LINE_BYTES, 0.5,
	                      bytes);
	for (unsigned k = 0; k < 3; k++)
		for (size_t i = 0; i < TEST_BYTES; i += sizeof(double)) {
			double value, poison;
			bool within = i >= LOAD_LINE_BYTES && i < TEST_BYTES - LOAD_LINE_BYTES;
			memcpy(&value, arrays[k] + i, sizeof(value));
			memset(&poison, 0xdb, sizeof(poison));
			right = right && value == (within ? last[k] : poison);
		}
	return right || error_set(error, ERROR_CHECK_FAILED, "%s: wrong doubles", width->name);
}

/* Every shape of a mix: proved where it is known, and without a kernel where it is not. */
static bool every_shape(const struct load_width *width, enum load_mix mix, unsigned char *memory, struct error *error)
{
	bool good = true;
	for (unsigned streams = 1; streams <= LOAD_STREAMS_MAX; streams *= 2)
		for (unsigned hint = 0; hint <= HINT_NONE; hint++)
			for (unsigned visit = 0; visit <= LOAD_VISIT_LINES_MAX; visit += visit ? visit : 1)
				for (unsigned delay = 0; good && delay <= 35; delay += 35) {
					struct error unknown = {0};
					struct load_shape shape = {.mix = mix,
					                           .streams = streams,
					                           .prefetch_bytes = hint == HINT_NONE ? 0 : 512,
					                           .hint = hint == HINT_NONE ? HINT_T0 : (enum load_hint)hint,
					                           .visit_lines = visit,
					                           .delay = delay};
					bool known = load_shape_known(&shape, &unknown);
					if (known == (load_kernel_find(width, &shape) == NULL))
						good = error_set(error, ERROR_CHECK_FAILED,
						                 "%s streams %u %s lines %u: a kernel is missing, or too much",
						                 load_mixes[mix].name, streams, load_hint_name(&shape), visit);
					else if (known)
						good = one_variant(width, &shape, memory, error);
				}
	return good;
}

/* What takes whole lines, where the processor has it, and its refusal where it has not. */
static bool every_instruction(unsigned char *memory, struct error *error)
{
	bool good = true;
	for (unsigned i = INSTRUCTION_VECTOR + 1; good && i < INSTRUCTIONS; i++)
		for (unsigned streams = 1; good && streams <= LOAD_STREAMS_MAX; streams *= 2) {
			struct error unknown = {0}, refused = {0};
			struct load_shape shape = {.mix = i == INSTRUCTION_LDNP ? MIX_READS : MIX_WRITE_NT,
			                           .streams = streams,
			                           .instruction = (enum load_instruction)i};
			if (!load_instruction_there(shape.instruction, &refused))
				good = refused.code == ERROR_UNSUPPORTED;
			else if (load_shape_known(&shape, &unknown))
				good = one_variant(load_widths, &shape, memory, error);
		}
	return good;
}

bool case_kernels(struct error *error)
{
	unsigned char *memory = aligned_alloc(64, LOAD_ARRAYS_MAX * TEST_BYTES);
	bool good = memory != NULL;
	unsigned widths = 0;
	for (const struct load_width *width = load_widths; good && width->name; width++) {
		if (!width->supported())
			continue;
		widths++;
		good = doubles_right(width, memory, error);
		for (int mix = 0; good && mix < MIXES; mix++)
			good = every_shape(width, (enum load_mix)mix, memory, error);
	}
	good = good && every_instruction(memory, error);
	free(memory);
	if (!good)
		return error_set(error, ERROR_INTERNAL, "no memory");
	EXPECT(widths > 0);
	return true;
}

static void generator_free(struct generator *generator)
{
	for (size_t i = 0; i < generator->count; i++)
		free(generator->threads[i].log.entries);
	for (size_t i = 0; i < generator->group_count; i++) {
		struct group *group = &generator->groups[i];
		free(group->text);
		free(group->threads);
		free(group->buffers);
		free(group->bytes);
		cpu_list_free(&group->cpus);
		cpu_list_free(&group->nodes);
	}
	for (size_t i = 0; i < generator->buffer_count; i++) {
		cpu_list_free(&generator->buffers[i].spread.nodes);
		free(generator->buffers[i].spread.weights);
		free(generator->buffers[i].shares);
	}
	free(generator->threads);
	free(generator->buffers);
	free(generator->groups);
	snapshot_free(&generator->before);
	snapshot_free(&generator->after);
	samples_free(&generator->samples);
	*generator = (struct generator){0};
}

/* A whole run of real threads on a small buffer, proved; then the same with a word spoilt under its hands. */
bool case_generator(struct error *error)
{
	const enum load_mix mixes[] = {MIX_READS, MIX_3_1,        MIX_1_1,          MIX_COPY_NT, MIX_STREAM_TRIAD,
	                               MIX_WRITE, MIX_LINE_READS, MIX_RANDOM_READS, MIX_WRITE_NT};
	/* What this processor has of instructions that store whole lines is run as write_nt. */
	const enum load_instruction stores[] = {INSTRUCTION_CLZERO, INSTRUCTION_DC_ZVA, INSTRUCTION_REP_STOSB};
	enum load_instruction store = INSTRUCTION_VECTOR;
	for (unsigned i = 0; store == INSTRUCTION_VECTOR && i < sizeof(stores) / sizeof(stores[0]); i++) {
		struct error none = {0};
		if (load_instruction_there(stores[i], &none))
			store = stores[i];
	}
	for (unsigned i = 0; i < 2 * sizeof(mixes) / sizeof(mixes[0]); i++) {
		bool sparse = load_mixes[mixes[i / 2]].sparse;
		struct error unknown = {0};
		if (!load_shape_known(&(struct load_shape){.mix = mixes[i / 2], .streams = 1}, &unknown))
			continue;
		struct load_shape shapes[] = {
			{.mix = mixes[i / 2], .streams = sparse ? 1 : 2, .visit_lines = sparse ? 0 : 4},
			{.mix = mixes[i / 2], .streams = sparse ? 1 : 8, .prefetch_bytes = sparse ? 0 : 256, .delay = 1}};
		if (mixes[i / 2] == MIX_WRITE_NT)
			shapes[1] = (struct load_shape){.mix = MIX_WRITE_NT, .streams = 1, .instruction = store};
		struct generator generator = {
			.shape = shapes[0], .page_kind = PAGES_BASE, .width = load_width_find("auto", error)};
		struct error spoilt = {0};
		char group[64];
		const struct cpu_list *allowed = affinity_allowed();
		snprintf(group, sizeof(group), allowed->count > 1 ? "%u@0+%u@0" : "%u@0", allowed->cpus[0],
		         allowed->cpus[allowed->count - 1]);
		bool good = generator.width && generator_parse_group(&generator, group, false, error), spoil = i & 1;
		if (good)
			generator_need(&generator, generator.groups, load_mixes[mixes[i / 2]].arrays, 65536);
		struct demand demand = {0};
		generator_demand(&generator, 0.005, &demand);
		good = good && generator_admit(&generator, &demand, error) && generator_open(&generator, error);
		if (good) {
			/* The second run needs the buffers as they were before the first. */
			for (unsigned k = 0; good && k < 2; k++)
				good = generator_select(&generator, generator.groups, &shapes[k], k ? 65536 : 32768, error) &&
				       generator_run_windows(&generator, 0, 0.005, error) &&
				       (k == 1 || generator_prove(&generator, error));
			if (good && spoil) { /* a run that was told to end has given its buffers back */
				struct generator_thread *last = &generator.threads[generator.count - 1];
				const struct load_accounting *a = &load_mixes[generator.shape.mix];
				/* A read array is proved by the sum of what was read, so that sum is spoilt; a written one by its words. */
				if (a->updates || a->writes)
					last->call.arrays[a->arrays - 1][1000] ^= 4;
				else
					last->sum ^= 4;
			}
			bool proved = good && generator_prove(&generator, spoil ? &spoilt : error);
			double delay_ticks = generator_delay_ticks(mixes[i / 2], 1000);
			good = good && generator_delay_ticks(mixes[i / 2], 0) == 0 && delay_ticks > 0 &&
			       generator_delay_ticks(mixes[i / 2], 20000) > delay_ticks;
			good = good && proved == !spoil && (!spoil || spoilt.code == ERROR_CHECK_FAILED);
			/* What was spoilt is found once: the proof has made the buffers whole. */
			good = good && generator_run_windows(&generator, 0, 0.005, error) && generator_prove(&generator, error);
			generator_close(&generator);
		}
		generator_free(&generator);
		if (!good)
			return error_set(error, ERROR_CHECK_FAILED, "%s %s: %s", load_mixes[mixes[i / 2]].name,
			                 i & 1 ? "with a word spoilt" : "whole", spoilt.message);
	}
	return true;
}
