// SPDX-License-Identifier: Apache-2.0
#include "generator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "corefreq.h"
#include "course.h"
#include "files.h"
#include "place.h"
#include "stopping.h"

/* A chunk of a quarter to one millisecond: long enough that its clock read costs nothing (0.03 %), short enough that
 * the interpolation at a window's edges stays below 1 % of a 100 ms window. */
#define CHUNK_MIN_S 0.00025
#define CHUNK_MAX_S 0.001
#define CHUNK_FIRST_STEPS 64u
/* Log entries per second and to begin with: chunks shrink below CHUNK_MIN_S only for an instant. */
#define LOG_PER_SECOND 8000
#define LOG_EXTRA 4096
#define STREAM_SKEW_LINES 68u
/* A delay is timed so often in a row, and the shortest of some such times is its length: one would be a clock read. */
#define DELAY_TURNS 64u
#define DELAY_TRIES 5
/* A look at whether to stop after so many words filled: some ten milliseconds. */
#define FILL_WORDS (1u << 20)
/* The threads run on so much longer than the last window. */
#define TAIL_S 0.005
#define FACTOR 0x9e3779b97f4a7c15u

size_t generator_thread_bytes(enum load_mix mix, size_t buffer_bytes)
{
	return load_mixes[mix].arrays * (buffer_bytes + LOAD_ARRAY_SKEW_BYTES);
}

static size_t stream_bytes(size_t buffer_bytes, unsigned streams)
{
	size_t lines = buffer_bytes / LOAD_LINE_BYTES / streams;
	lines -= lines % LOAD_STEPS_PER_DELAY;
	/* Large streams are shortened a little, so that their distance is no multiple of a page. */
	size_t period = 128;
	if (streams > 1 && lines > 16 * period) {
		lines -= (lines % period + period - STREAM_SKEW_LINES) % period;
	}
	return lines * LOAD_LINE_BYTES;
}

/* Word j of a buffer that no run has written to. */
static uint64_t filled(uint64_t word)
{
	return (word + 1) * FACTOR;
}

/* Not to the end when told to stop: filling gigabytes takes longer than a caller that has given up wants to wait. */
static void fill(struct buffer *buffer)
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
	unsigned __int128 sum = (2 * (unsigned __int128)(first + 1) + (unsigned __int128)(count - 1) * apart) * count / 2;
	return count ? (uint64_t)sum * FACTOR : 0;
}

static uint64_t expected_sum(const struct generator_thread *thread)
{
	const struct load_call *call = &thread->call;
	const struct generator_shape *shape = &thread->generator->shape;
	const struct load_accounting *a = &load_mixes[shape->mix];
	const unsigned apart = a->sparse ? LOAD_LINE_WORDS : 1;
	uint64_t full = 0, part = 0;
	for (unsigned k = 0; k < a->summed; k++)
		for (unsigned s = 0; s < shape->streams; s++) {
			uint64_t first = array_word(thread, k) + s * call->stream_bytes / 8;
			full += filled_sum(first, call->stream_bytes / 8 / apart, apart);
			part += filled_sum(first, call->offset / 8 / apart, apart);
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
		for (unsigned k = 0; k < written; k++, step += FACTOR)
			expected += filled(array_word(thread, k) + from);
	}
	uint64_t *words = (uint64_t *)(void *)thread->call.arrays[written] + from;
	return restore(words, count, expected, step, value);
}

/* Words of the written array that are not what so many passes must have left there. */
static uint64_t restore_written(const struct generator_thread *thread)
{
	const struct load_accounting *a = &load_mixes[thread->generator->shape.mix];
	const struct load_call *call = &thread->call;
	size_t stream = call->stream_bytes / 8, done = call->offset / 8;
	uint64_t wrong = 0;
	if (!a->updates && !a->writes)
		return 0;
	for (unsigned s = 0; s < thread->generator->shape.streams; s++)
		wrong += restore_part(thread, s * stream, done, thread->pass + 1) +
		         restore_part(thread, s * stream + done, stream - done, thread->pass);
	return wrong;
}

static void prove(struct generator_thread *thread)
{
	uint64_t wrong = restore_written(thread), expected = expected_sum(thread);
	thread->wrong = (struct error){0};
	if (thread->sum != expected)
		error_set(&thread->wrong, ERROR_CHECK_FAILED,
		          "CPU %u: expected the words read to sum to %llx, found %llx; a kernel "
		          "did not read what it was asked to, or memory is faulty",
		          thread->cpu, (unsigned long long)expected, (unsigned long long)thread->sum);
	else if (wrong)
		error_set(&thread->wrong, ERROR_CHECK_FAILED,
		          "CPU %u: expected every word written in every pass, found %llu that "
		          "were not; a kernel left work out, or memory is faulty",
		          thread->cpu, (unsigned long long)wrong);
}

/* Maps and fills what this thread is to. A buffer that cannot be had says why, and costs only those runs that need it. */
static void set_up(const struct generator *generator, size_t number)
{
	for (size_t i = 0; i < generator->buffer_count; i++) {
		struct buffer *buffer = &generator->buffers[i];
		if (buffer->filler == number && buffer->error.code == ERROR_NONE &&
		    region_map(&buffer->region, buffer->bytes, buffer->node, generator->chosen, &buffer->error))
			fill(buffer);
	}
	/* Only now, so that one reading of the mappings does for all that this thread has mapped. */
	for (size_t i = 0; i < generator->buffer_count; i++) {
		struct buffer *buffer = &generator->buffers[i];
		if (buffer->filler == number && buffer->error.code == ERROR_NONE)
			pages_read_nodes(&buffer->pages, &buffer->region, &buffer->error);
	}
}

static void tear_down(const struct generator *generator, size_t number)
{
	for (size_t i = 0; i < generator->buffer_count; i++) {
		struct buffer *buffer = &generator->buffers[i];
		struct pages again = {0};
		if (buffer->filler != number)
			continue;
		if (buffer->error.code == ERROR_NONE)
			pages_read_nodes(&again, &buffer->region, &buffer->error);
		region_unmap(&buffer->region);
	}
}

/* One chunk: so many steps of each stream, over the end of the buffers as often as it takes; whole passes in one call. */
static void run_chunk(struct generator_thread *thread, load_kernel kernel)
{
	struct load_call *call = &thread->call;
	size_t todo = thread->chunk_steps;
	while (todo) {
		size_t left = (call->stream_bytes - call->offset) / LOAD_LINE_BYTES;
		call->steps = todo < left ? todo : left;
		call->passes = call->offset == 0 && todo >= left ? todo / left : 1;
		call->mark = thread->pass + 1;
		thread->sum += kernel(call);
		todo -= call->steps * call->passes;
		call->offset += call->steps * LOAD_LINE_BYTES;
		if (call->offset == call->stream_bytes) {
			call->offset = 0;
			thread->pass += call->passes;
		}
	}
	arch_store_fence();
}

/* No allocation, no input or output, no look at options: kernel and shape are fixed before. */
static void run(struct generator_thread *thread)
{
	struct generator *generator = thread->generator;
	load_kernel kernel = generator->kernel;
	uint64_t streams = generator->shape.streams, lines = 0;
	uint64_t chunk_min = (uint64_t)(CHUNK_MIN_S * clock_now_used.hz),
			 chunk_max = (uint64_t)(CHUNK_MAX_S * clock_now_used.hz),
			 spacing = (uint64_t)(generator->log_every_s * clock_now_used.hz);
	atomic_fetch_add(&generator->arrived, 1);
	while (atomic_load_explicit(&generator->arrived, memory_order_acquire) < generator->group->count)
		arch_relax();
	uint64_t last = clock_start();
	thread->log[0] = (struct log_entry){last, 0};
	thread->logged = 1;
	atomic_store_explicit(&thread->started, last, memory_order_release);
	/* One more chunk after the end was seen: a thread that had to wait for its CPU has also logged beyond the end. */
	for (bool ending = false; !ending && thread->logged < thread->log_capacity;) {
		ending = atomic_load_explicit(&generator->stop, memory_order_relaxed);
		run_chunk(thread, kernel);
		uint64_t now = clock_stop();
		lines += thread->chunk_steps * streams;
		if (ending || now - thread->log[thread->logged - 1].ticks >= spacing)
			thread->log[thread->logged++] = (struct log_entry){now, lines};
		if (now - last < chunk_min)
			thread->chunk_steps *= 2;
		else if (now - last > chunk_max && thread->chunk_steps > CHUNK_FIRST_STEPS)
			thread->chunk_steps /= 2;
		last = now;
	}
}

double generator_delay_ticks(enum load_mix mix, uint64_t units)
{
	double best = 0;
	if (units == 0)
		return 0;
	uint64_t carry = 1;
	for (int i = 0; i < DELAY_TRIES; i++) {
		uint64_t before = clock_start();
		for (unsigned k = 0; k < DELAY_TURNS; k++)
			if (load_mixes[mix].sparse)
				arch_nops(units);
			else
				carry = arch_delay(carry, units);
		uint64_t after = clock_stop();
		double ticks = ((double)(after - before) - clock_now_used.read_cost_ticks) / DELAY_TURNS;
		if (i == 0 || ticks < best)
			best = ticks;
	}
	return best > 0 ? best : 0;
}

static void measure_delays(const struct generator *generator)
{
	for (size_t i = 0; i < generator->delay_count; i++) {
		double ticks = generator_delay_ticks(generator->shape.mix, generator->delays[i]),
			   *known = &generator->delay_ticks[i];
		*known = *known > 0 && *known < ticks ? *known : ticks;
	}
}

static void run_measured(struct generator_thread *thread)
{
	const struct generator *generator = thread->generator;
	struct thread_counts before = {0}, after = {0};
	sampling_open(&thread->sampling, generator->sampled, thread->cpu, generator->run_s);
	thread->core_before = corefreq_per_tick();
	thread_counts_read(&before);
	sampling_begin(&thread->sampling);
	run(thread);
	sampling_end(&thread->sampling);
	thread_counts_read(&after);
	thread->counts = thread_counts_since(&after, &before);
	thread->core_after = corefreq_per_tick();
	thread->verified = affinity_verify(thread->cpu);
}

static void body(struct worker *worker)
{
	struct generator_thread *thread = worker->context;
	struct generator *generator = thread->generator;
	size_t number = (size_t)(thread - generator->threads);
	set_up(generator, number);
	thread->core_before = corefreq_settle();
	if (number == 0)
		measure_delays(generator);
	pmu_open_thread(generator->pmu, number, "");
	worker_pause(worker);
	while (generator->again) {
		if (generator->prove)
			prove(thread);
		else
			run_measured(thread);
		worker_pause(worker);
	}
	tear_down(generator, number);
}

/* The place of the CPU's thread, which is made where there is none; SIZE_MAX without memory. */
static size_t thread_of(struct generator *generator, unsigned cpu)
{
	for (size_t i = 0; i < generator->count; i++)
		if (generator->threads[i].cpu == cpu)
			return i;
	struct generator_thread *grown = realloc(generator->threads, (generator->count + 1) * sizeof(*grown));
	if (!grown)
		return SIZE_MAX;
	generator->threads = grown;
	memset(&grown[generator->count], 0, sizeof(*grown));
	grown[generator->count].cpu = cpu;
	return generator->count++;
}

/* The place of the node's nth buffer, likewise. */
static size_t buffer_of(struct generator *generator, unsigned node, size_t number)
{
	for (size_t i = 0; i < generator->buffer_count; i++)
		if (generator->buffers[i].node == node && number-- == 0)
			return i;
	struct buffer *grown = realloc(generator->buffers, (generator->buffer_count + 1) * sizeof(*grown));
	if (!grown)
		return SIZE_MAX;
	generator->buffers = grown;
	grown[generator->buffer_count] = (struct buffer){.node = node};
	return generator->buffer_count++;
}

static bool group_add(struct generator *generator, struct group *group, unsigned cpu, unsigned node)
{
	size_t before = 0, *threads = realloc(group->threads, (group->count + 1) * sizeof(*threads));
	if (threads)
		group->threads = threads;
	size_t *buffers = realloc(group->buffers, (group->count + 1) * sizeof(*buffers));
	if (buffers)
		group->buffers = buffers;
	if (!threads || !buffers)
		return false;
	for (size_t i = 0; i < group->count; i++)
		before += generator->buffers[buffers[i]].node == node;
	size_t thread = thread_of(generator, cpu), buffer = buffer_of(generator, node, before);
	if (thread == SIZE_MAX || buffer == SIZE_MAX || !cpu_list_add(&group->cpus, cpu) ||
	    !cpu_list_add(&group->nodes, node))
		return false;
	threads[group->count] = thread;
	buffers[group->count++] = buffer;
	return true;
}

static bool group_parse(struct generator *generator, struct group *group, struct error *error)
{
	for (const char *at = group->text;;) {
		size_t length = strcspn(at, "+");
		struct cpu_list cpus = {0};
		unsigned node;
		if (!place_parse_list(at, length, &cpus, &node, error))
			return false;
		bool good = true;
		for (size_t i = 0; good && i < cpus.count; i++) {
			if (cpu_list_has(&group->cpus, cpus.cpus[i]))
				good = error_set(error, ERROR_USAGE, "expected each CPU once in a group, found CPU %u twice in '%s'",
				                 cpus.cpus[i], group->text);
			else if (!group_add(generator, group, cpus.cpus[i], node))
				good = error_set(error, ERROR_INTERNAL, "no memory for the group %s", group->text);
		}
		cpu_list_free(&cpus);
		if (!good || at[length] == '\0')
			return good;
		at += length + 1;
	}
}

bool generator_parse_group(struct generator *generator, const char *text, struct error *error)
{
	struct group *grown = realloc(generator->groups, (generator->group_count + 1) * sizeof(*grown));
	if (!grown)
		return error_set(error, ERROR_INTERNAL, "no memory for the group %s", text);
	generator->groups = grown;
	struct group *group = &grown[generator->group_count++];
	*group = (struct group){.text = strdup(text)};
	if (!group->text)
		return error_set(error, ERROR_INTERNAL, "no memory for the group %s", text);
	return group_parse(generator, group, error);
}

void generator_need(struct generator *generator, const struct group *group, size_t bytes)
{
	for (size_t i = 0; i < group->count; i++) {
		struct buffer *buffer = &generator->buffers[group->buffers[i]];
		buffer->bytes = bytes > buffer->bytes ? bytes : buffer->bytes;
	}
}

static size_t log_capacity(const struct generator *generator, double seconds)
{
	double per_s = generator->log_every_s * LOG_PER_SECOND > 1 ? 1 / generator->log_every_s : LOG_PER_SECOND;
	return (size_t)(seconds * per_s) + LOG_EXTRA;
}

void generator_demand(const struct generator *generator, double seconds, struct demand *demand)
{
	demand_threads(demand, generator->count);
	for (size_t i = 0; i < generator->buffer_count; i++)
		if (generator->buffers[i].error.code == ERROR_NONE)
			demand_regions(demand, generator->buffers[i].bytes, 1, generator->buffers[i].node);
	seconds += TAIL_S;
	demand_other(demand, log_capacity(generator, seconds) * sizeof(struct log_entry), generator->count);
	demand_other(demand, sampling_bytes(generator->sampled, seconds), generator->count);
}

bool generator_admit(struct generator *generator, struct demand *demand, struct error *error)
{
	demand->wanted = generator->page_kind;
	bool good = demand_admit(demand, error);
	generator->chosen = demand->pages;
	return good;
}

bool generator_refuse(struct generator *generator, unsigned node, const struct error *error)
{
	bool any = false;
	for (size_t i = 0; i < generator->buffer_count; i++) {
		struct buffer *buffer = &generator->buffers[i];
		if (buffer->node == node)
			buffer->error = *error;
		any = any || buffer->error.code == ERROR_NONE;
	}
	return any;
}

/* The first thread that works on the buffer in any group. */
static size_t first_user(const struct generator *generator, size_t buffer)
{
	for (size_t g = 0; g < generator->group_count; g++)
		for (size_t i = 0; i < generator->groups[g].count; i++)
			if (generator->groups[g].buffers[i] == buffer)
				return generator->groups[g].threads[i];
	return 0;
}

/* The CPUs of a node; none where it has none or the kernel does not say. */
static void node_cpus(struct cpu_list *cpus, unsigned node)
{
	char path[80];
	struct error ignored = {0};
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist", node);
	char *text = file_read(path);
	size_t length = text ? strcspn(text, "\n") : 0;
	if (length) {
		text[length] = '\0';
		cpu_list_parse(cpus, text, &ignored);
	}
	free(text);
}

/* Buffers are filled by the CPUs of their node in turn, because a fill from afar is slower than the reading; where the node
 * has none that take part, by those that will use them. */
static void choose_fillers(struct generator *generator)
{
	struct cpu_list cpus = {0};
	for (size_t i = 0, turn = 0; i < generator->buffer_count; i++) {
		struct buffer *buffer = &generator->buffers[i];
		if (i == 0 || buffer->node != generator->buffers[i - 1].node) {
			cpu_list_free(&cpus);
			node_cpus(&cpus, buffer->node);
		}
		buffer->filler = first_user(generator, i);
		for (size_t tried = 0; tried < generator->count; tried++, turn++)
			if (cpu_list_has(&cpus, generator->threads[turn % generator->count].cpu)) {
				buffer->filler = turn++ % generator->count;
				break;
			}
	}
	cpu_list_free(&cpus);
}

bool generator_take_errors(struct generator *generator, struct error *error)
{
	for (size_t i = 0; i < generator->count; i++)
		if (generator->threads[i].worker.error.code != ERROR_NONE && error->code == ERROR_NONE)
			*error = generator->threads[i].worker.error;
	return error->code == ERROR_NONE;
}

bool generator_alive(const struct generator *generator)
{
	for (size_t i = 0; i < generator->count; i++)
		if (generator->threads[i].worker.error.code != ERROR_NONE)
			return false;
	return true;
}

static void join_all(struct generator *generator, size_t count)
{
	generator->again = false;
	mappings_forget();
	atomic_store(&generator->stop, true);
	for (size_t i = 0; i < count; i++)
		worker_join(&generator->threads[i].worker);
}

void generator_read_sizes(struct generator *generator)
{
	struct region *regions = calloc(generator->buffer_count, sizeof(*regions));
	size_t count = 0;
	generator->sizes = (struct pages){.wanted = generator->page_kind};
	for (size_t i = 0; regions && i < generator->buffer_count; i++)
		if (generator->buffers[i].error.code == ERROR_NONE)
			regions[count++] = generator->buffers[i].region;
	if (count)
		pages_read_sizes(&generator->sizes, regions, count);
	free(regions);
}

struct pages generator_pages(const struct generator *generator)
{
	struct pages pages = generator->sizes;
	pages.total = pages.checked = pages.on_node = pages.elsewhere = 0;
	for (size_t i = 0; i < generator->group->count; i++) {
		const struct buffer *buffer = &generator->buffers[generator->group->buffers[i]];
		pages.total += buffer->region.bytes / memory_base_page_bytes();
		pages.checked += buffer->pages.checked;
		pages.on_node += buffer->pages.on_node;
		pages.elsewhere += buffer->pages.elsewhere;
	}
	return pages;
}

bool generator_open(struct generator *generator, struct error *error)
{
	generator->again = true;
	choose_fillers(generator);
	for (size_t i = 0; i < generator->buffer_count; i++) {
		generator->buffers[i].region = (struct region){0};
		generator->buffers[i].pages = (struct pages){.wanted = generator->page_kind};
	}
	for (size_t i = 0; i < generator->count; i++) {
		struct generator_thread *thread = &generator->threads[i];
		thread->generator = generator;
		if (!worker_start(&thread->worker, thread->cpu, body, thread, error)) {
			join_all(generator, i);
			return false;
		}
	}
	for (size_t i = 0; i < generator->count; i++)
		worker_wait(&generator->threads[i].worker);
	if (!generator_take_errors(generator, error)) {
		join_all(generator, generator->count);
		return false;
	}
	generator_read_sizes(generator);
	return true;
}

bool generator_has(const struct generator *generator, const struct group *group, struct error *error)
{
	for (size_t i = 0; i < group->count; i++) {
		const struct error *found = &generator->buffers[group->buffers[i]].error;
		if (found->code != ERROR_NONE) {
			*error = *found;
			return false;
		}
	}
	return true;
}

bool generator_select(struct generator *generator, const struct group *group, const struct generator_shape *shape,
                      size_t buffer_bytes, struct error *error)
{
	generator->group = group;
	generator->shape = *shape;
	generator->buffer_bytes = buffer_bytes;
	for (size_t i = 0; i < group->count; i++)
		generator->threads[group->threads[i]].buffer = &generator->buffers[group->buffers[i]];
	return generator_has(generator, group, error);
}

/* The nth thread of those that run. */
static struct generator_thread *running(const struct generator *generator, size_t number)
{
	return &generator->threads[generator->group->threads[number]];
}

static bool step_running(struct generator *generator, struct error *error)
{
	for (size_t i = 0; i < generator->group->count; i++)
		worker_continue(&running(generator, i)->worker);
	for (size_t i = 0; i < generator->group->count; i++)
		worker_wait(&running(generator, i)->worker);
	return generator_take_errors(generator, error);
}

/* Which words a thread begins at: the buffers' first, as every run does. */
static void prepare(struct generator_thread *thread)
{
	const struct generator *generator = thread->generator;
	const struct generator_shape *shape = &generator->shape;
	thread->call = (struct load_call){.stream_bytes = stream_bytes(generator->buffer_bytes, shape->streams),
	                                  .prefetch_bytes = shape->prefetch_bytes,
	                                  .delay = shape->delay};
	for (unsigned k = 0; k < load_mixes[shape->mix].arrays; k++)
		thread->call.arrays[k] = thread->buffer->region.start + k * (generator->buffer_bytes + LOAD_ARRAY_SKEW_BYTES) /
		                                                            LOAD_LINE_BYTES * LOAD_LINE_BYTES;
	thread->pass = 0;
	thread->sum = 0;
	thread->chunk_steps = CHUNK_FIRST_STEPS;
	atomic_store(&thread->started, 0);
}

static bool make_log(struct generator_thread *thread, size_t capacity, struct error *error)
{
	if (capacity <= thread->log_capacity)
		return true;
	struct log_entry *grown = realloc(thread->log, capacity * sizeof(*grown));
	if (!grown)
		return error_set(error, ERROR_INTERNAL, "no memory for a log of %zu entries", capacity);
	/* Every page written once, so that none is faulted in while it is being measured. */
	memset(grown, 0, capacity * sizeof(*grown));
	thread->log = grown;
	thread->log_capacity = capacity;
	return true;
}

/* Lets the threads go, with logs for so many seconds, and returns once all of them run. */
static bool run_begin(struct generator *generator, double seconds, struct error *error)
{
	const struct generator_shape *shape = &generator->shape;
	const struct cpu_list *watched = generator->watched ? generator->watched : &generator->group->cpus;
	generator->kernel =
		load_kernel_find(generator->width, shape->mix, shape->streams, shape->prefetch_bytes != 0, shape->delay != 0);
	generator->run_s = seconds;
	generator->prove = false;
	atomic_store(&generator->stop, false);
	atomic_store(&generator->arrived, 0);
	for (size_t i = 0; i < generator->group->count; i++) {
		prepare(running(generator, i));
		if (!make_log(running(generator, i), log_capacity(generator, seconds), error))
			return false;
	}
	snapshot_free(&generator->before);
	snapshot_free(&generator->after);
	samples_free(&generator->samples);
	snapshot_take(&generator->before, watched);
	for (size_t i = 0; i < generator->group->count; i++)
		worker_continue(&running(generator, i)->worker);
	for (size_t i = 0; i < generator->group->count; i++)
		while (!atomic_load_explicit(&running(generator, i)->started, memory_order_acquire))
			nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
	return true;
}

/* Sleeps until then; false when told to stop before. */
static bool sleep_until(uint64_t ticks)
{
	for (uint64_t now; (now = clock_stop()) < ticks;)
		if (stop_sleep_ns((uint64_t)clock_ns((double)(ticks - now)) + 1))
			return false;
	return true;
}

static bool run_end(struct generator *generator, struct error *error)
{
	bool cut = !sleep_until(generator->ends);
	atomic_store(&generator->stop, true);
	for (size_t i = 0; i < generator->group->count; i++)
		worker_wait(&running(generator, i)->worker);
	snapshot_take_again(&generator->after, &generator->before);
	for (size_t i = 0; i < generator->group->count; i++)
		samples_collect(&generator->samples, generator->sampled, &running(generator, i)->sampling);
	if (cut && stop_error(error))
		return false;
	for (size_t i = 0; i < generator->group->count; i++)
		if (running(generator, i)->logged == running(generator, i)->log_capacity)
			return error_set(error, ERROR_INTERNAL,
			                 "expected at most %zu chunks, found more; use a longer --delay or buffer",
			                 running(generator, i)->log_capacity);
	return generator_take_errors(generator, error);
}

bool generator_run(struct generator *generator, double seconds, struct error *error)
{
	if (!run_begin(generator, seconds, error))
		return false;
	generator->ends = generator_all_started(generator) + (uint64_t)(seconds * clock_now_used.hz);
	return run_end(generator, error);
}

bool generator_run_windows(struct generator *generator, double settle_s, double windows_s, struct error *error)
{
	const double hz = clock_now_used.hz;
	if (!run_begin(generator, settle_s + windows_s + TAIL_S, error))
		return false;
	generator->begins = generator_all_started(generator) + (uint64_t)(settle_s * hz);
	if (generator->pmu || generator->course) {
		/* Told to stop meanwhile, run_end is too. */
		(void)sleep_until(generator->begins);
		pmu_begin(generator->pmu);
		generator->begins = clock_stop();
		bool go_on = generator->course != NULL;
		for (double at = 0; go_on && at < windows_s - generator->course_s / 2; at += generator->course_s) {
			go_on = sleep_until(generator->begins + (uint64_t)(at * hz));
			course_read(generator->course);
		}
		(void)sleep_until(generator->begins + (uint64_t)(windows_s * hz));
		course_read(generator->course);
		pmu_end(generator->pmu);
	}
	generator->ends = generator->begins + (uint64_t)((windows_s + TAIL_S) * hz);
	return run_end(generator, error);
}

uint64_t generator_all_started(const struct generator *generator)
{
	uint64_t last = 0;
	for (size_t i = 0; i < generator->group->count; i++)
		if (running(generator, i)->started > last)
			last = running(generator, i)->started;
	return last;
}

uint64_t generator_start_skew(const struct generator *generator)
{
	uint64_t first = UINT64_MAX;
	for (size_t i = 0; i < generator->group->count; i++)
		if (running(generator, i)->started < first)
			first = running(generator, i)->started;
	return generator_all_started(generator) - first;
}

double log_at(const struct log_entry *log, size_t count, uint64_t ticks)
{
	size_t low = 0, high = count - 1;
	if (ticks <= log[0].ticks)
		return 0;
	if (ticks >= log[high].ticks)
		return (double)log[high].lines;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		if (log[middle].ticks <= ticks)
			low = middle;
		else
			high = middle;
	}
	double part = (double)(ticks - log[low].ticks) / (double)(log[high].ticks - log[low].ticks);
	return (double)log[low].lines + part * (double)(log[high].lines - log[low].lines);
}

uint64_t log_step(const struct log_entry *log, size_t count)
{
	uint64_t shortest = UINT64_MAX;
	for (size_t i = 1; i < count; i++)
		if (log[i].ticks - log[i - 1].ticks < shortest)
			shortest = log[i].ticks - log[i - 1].ticks;
	return shortest;
}

uint64_t generator_chunk_ticks(const struct generator *generator)
{
	uint64_t slowest = 0;
	for (size_t i = 0; i < generator->group->count; i++) {
		uint64_t step = log_step(running(generator, i)->log, running(generator, i)->logged);
		slowest = step > slowest ? step : slowest;
	}
	return slowest;
}

double generator_lines_at(const struct generator_thread *thread, uint64_t ticks)
{
	return log_at(thread->log, thread->logged, ticks);
}

struct pmu_work generator_progress(void *context, size_t thread, uint64_t ticks)
{
	const struct generator *generator = context;
	struct pmu_work work = {.hops = -1};
	for (size_t i = 0; i < generator->group->count; i++)
		if (thread == PMU_ALL || thread == generator->group->threads[i])
			work.steps += generator_lines_at(running(generator, i), ticks);
	return work;
}

bool generator_prove(struct generator *generator, struct error *error)
{
	generator->prove = true;
	if (!step_running(generator, error))
		return false;
	for (size_t i = 0; i < generator->group->count; i++)
		if (running(generator, i)->wrong.code != ERROR_NONE) {
			*error = running(generator, i)->wrong;
			return false;
		}
	return true;
}

bool generator_close(struct generator *generator, struct error *error)
{
	join_all(generator, generator->count);
	return generator_take_errors(generator, error);
}

void generator_free(struct generator *generator)
{
	for (size_t i = 0; i < generator->count; i++)
		free(generator->threads[i].log);
	for (size_t i = 0; i < generator->group_count; i++) {
		struct group *group = &generator->groups[i];
		free(group->text);
		free(group->threads);
		free(group->buffers);
		cpu_list_free(&group->cpus);
		cpu_list_free(&group->nodes);
	}
	free(generator->threads);
	free(generator->buffers);
	free(generator->groups);
	snapshot_free(&generator->before);
	snapshot_free(&generator->after);
	samples_free(&generator->samples);
	*generator = (struct generator){0};
}

struct thread_counts generator_counts(const struct generator *generator)
{
	struct thread_counts sum = {0};
	for (size_t i = 0; i < generator->group->count; i++)
		thread_counts_add(&sum, &running(generator, i)->counts);
	return sum;
}

double generator_core_before(const struct generator *generator)
{
	double slowest = INFINITY;
	for (size_t i = 0; i < generator->group->count; i++)
		slowest = fmin(slowest, running(generator, i)->core_before);
	return slowest;
}

double generator_core_after(const struct generator *generator)
{
	double slowest = INFINITY;
	for (size_t i = 0; i < generator->group->count; i++)
		slowest = fmin(slowest, running(generator, i)->core_after);
	return slowest;
}

bool generator_verified(const struct generator *generator)
{
	for (size_t i = 0; i < generator->group->count; i++)
		if (!running(generator, i)->verified)
			return false;
	return true;
}
