// SPDX-License-Identifier: Apache-2.0
#include "generator.h"
#include "random_lines.h"
#include "stopping.h"

/* A look at whether to stop after so many words filled: some ten milliseconds. */
#define FILL_WORDS (1u << 20)
#define FACTOR 0x9e3779b97f4a7c15u

/* Word j of a buffer that no run has written to. */
static uint64_t filled(uint64_t word)
{
	return (word + 1) * FACTOR;
}

/* Not to the end when told to stop: filling gigabytes takes longer than a caller that has given up wants to wait. */
void buffer_fill(struct buffer *buffer)
{
	uint64_t *words = (uint64_t *)(void *)buffer->region.start, value = filled(0);
	for (size_t i = 0; i < buffer->bytes / 8; i++, value += FACTOR) {
		if (i % FILL_WORDS == 0 && stop_error(&buffer->error))
			return;
		words[i] = value;
	}
}

/* Number in its buffer of the first word of a thread's array. */
static uint64_t array_word(const struct generator_thread *thread, unsigned array)
{
	return (uint64_t)(thread->call.arrays[array] - thread->buffer->region.start) / 8;
}

/* Sum of filled(j) for `count` words, every `apart`th from word `first`, modulo 2^64. */
static uint64_t filled_sum(uint64_t first, uint64_t count, unsigned apart)
{
	/* The first and the last of them together, so many times by half; that one of the two is even, every machine can do. */
	uint64_t ends = 2 * (first + 1) + (count - 1) * apart;
	return (count % 2 ? ends / 2 * count : count / 2 * ends) * FACTOR;
}

/* The same for the first `count` visits of random_reads, one word of each line. */
static uint64_t shuffled_sum(uint64_t first, uint64_t count, uint64_t lines)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < count; i++)
		sum += filled(first + random_line(i, lines) / 8);
	return sum;
}

static uint64_t expected_sum(const struct generator_thread *thread)
{
	const struct load_call *call = &thread->call;
	const struct load_shape *shape = &thread->generator->shape;
	const struct load_accounting *a = &load_mixes[shape->mix];
	const unsigned apart = a->sparse ? LOAD_LINE_WORDS : 1;
	uint64_t full = 0, part = 0;
	for (unsigned k = 0; k < a->summed; k++)
		for (unsigned s = 0; s < shape->streams; s++) {
			uint64_t first = array_word(thread, k) + s * call->stream_bytes / 8;
			if (a->shuffled) {
				uint64_t lines = call->stream_bytes / ARCH_LINE_BYTES;
				full += RANDOM_LINES_VISITS * filled_sum(first, lines, ARCH_LINE_BYTES / 8);
				part += shuffled_sum(first, call->offset / LOAD_LINE_BYTES, lines);
			} else {
				full += filled_sum(first, call->stream_bytes / 8 / apart, apart);
				part += filled_sum(first, call->offset / 8 / apart, apart);
			}
		}
	return thread->pass * full + part;
}

/* Counts the words that are not `expected`, which grows by `step` from word to word, and fills them anew from `value`. */
static uint64_t restore(uint64_t *words, size_t count, uint64_t expected, uint64_t step, uint64_t value)
{
	uint64_t wrong = 0;
	for (size_t i = 0; i < count; i++, expected += step, value += FACTOR) {
		wrong += words[i] != expected;
		words[i] = value;
	}
	return wrong;
}

/* The same for a part of a stream of the written array, which starts at that word of each array and was passed over so
 * often. */
static uint64_t restore_part(const struct generator_thread *thread, size_t from, size_t count, uint64_t passes)
{
	const struct load_accounting *a = &load_mixes[thread->generator->shape.mix];
	unsigned written = a->arrays - 1;
	uint64_t value = filled(array_word(thread, written) + from), expected = passes, step = 0;
	if (a->updates || passes == 0) {
		expected += value;
		step = FACTOR;
	} else {
		expected = load_word_written(thread->generator->shape.instruction, passes);
		for (unsigned k = 0; k < written; k++, step += FACTOR)
			expected += filled(array_word(thread, k) + from);
	}
	uint64_t *words = (uint64_t *)(void *)thread->call.arrays[written] + from;
	return restore(words, count, expected, step, value);
}

/* Zeros tell nothing of the pass that wrote them: the last complete one left its number in a line of each stream, which the
 * next pass clears with the rest. Counts the lines where that is not so, and clears them. */
static uint64_t clear_canaries(const struct generator_thread *thread)
{
	const struct load_call *call = &thread->call;
	const enum load_instruction instruction = thread->generator->shape.instruction;
	size_t line = load_canary_line(thread->pass, call->stream_bytes / LOAD_LINE_BYTES);
	uint64_t wrong = 0;
	if ((instruction != INSTRUCTION_CLZERO && instruction != INSTRUCTION_DC_ZVA) || thread->pass == 0 ||
	    line < call->offset / LOAD_LINE_BYTES)
		return 0;
	for (unsigned s = 0; s < thread->generator->shape.streams; s++) {
		uint64_t *word = (uint64_t *)(void *)(call->arrays[0] + s * call->stream_bytes + line * LOAD_LINE_BYTES);
		wrong += *word != thread->pass;
		*word = 0;
	}
	return wrong;
}

/* Words of the written array that are not what so many passes must have left there. */
static uint64_t restore_written(const struct generator_thread *thread)
{
	const struct load_accounting *a = &load_mixes[thread->generator->shape.mix];
	const struct load_call *call = &thread->call;
	size_t stream = call->stream_bytes / 8, done = call->offset / 8;
	if (!a->updates && !a->writes)
		return 0;
	uint64_t wrong = clear_canaries(thread);
	for (unsigned s = 0; s < thread->generator->shape.streams; s++)
		wrong += restore_part(thread, s * stream, done, thread->pass + 1) +
		         restore_part(thread, s * stream + done, stream - done, thread->pass);
	return wrong;
}

void generator_prove_thread(struct worker *worker)
{
	struct generator_thread *thread = worker->context;
	uint64_t wrong = restore_written(thread), expected = expected_sum(thread);
	thread->wrong = (struct error){0};
	if (thread->sum != expected)
		error_set(
			&thread->wrong, ERROR_CHECK_FAILED,
			"CPU %u: the words read sum to %llx, not %llx; the load did not read what it was asked to, or memory is "
			"faulty",
			thread->cpu, (unsigned long long)thread->sum, (unsigned long long)expected);
	else if (wrong)
		error_set(&thread->wrong, ERROR_CHECK_FAILED,
		          "CPU %u: %llu words were not written in every pass; the load left work out, or memory is faulty",
		          thread->cpu, (unsigned long long)wrong);
}
