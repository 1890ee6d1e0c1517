// SPDX-License-Identifier: Apache-2.0
#include "generator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "corefreq.h"
#include "course.h"
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
#define POISON 0xdbdbdbdbdbdbdbdbu

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

/* Word j of array k when it is filled. */
static uint64_t filled(unsigned array, uint64_t word)
{
	return (word + ((uint64_t)array << 40)) * FACTOR;
}

/* Which arrays hold a pattern that is read; the others hold poison until they are written. */
static bool is_read(enum load_mix mix, unsigned array)
{
	return !(load_mixes[mix].writes && array == load_mixes[mix].arrays - 1);
}

/* False when told to stop meanwhile: filling gigabytes takes longer than a caller that has given up wants to wait. */
static bool fill(struct generator_thread *thread, struct error *error)
{
	const struct generator *generator = thread->generator;
	enum load_mix mix = generator->shape.mix;
	for (unsigned k = 0; k < load_mixes[mix].arrays; k++) {
		uint64_t *words = (uint64_t *)(void *)thread->call.arrays[k], value = filled(k, 0);
		bool pattern = is_read(mix, k);
		for (size_t i = 0; i < generator->buffer_bytes / 8; i++, value += FACTOR) {
			if (i % FILL_WORDS == 0 && stop_error(error))
				return false;
			words[i] = pattern ? value : POISON;
		}
	}
	thread->call.stream_bytes = stream_bytes(generator->buffer_bytes, generator->streams_next);
	thread->call.offset = 0;
	thread->pass = 0;
	thread->sum = 0;
	return true;
}

/* Sum of filled(array, j) for `count` words, every `apart`th from word `first`, modulo 2^64. */
static uint64_t filled_sum(unsigned array, uint64_t first, uint64_t count, unsigned apart)
{
	unsigned __int128 low = first + ((uint64_t)array << 40);
	unsigned __int128 sum = (2 * low + (unsigned __int128)(count - 1) * apart) * count / 2;
	return count ? (uint64_t)sum * FACTOR : 0;
}

static uint64_t expected_sum(const struct generator_thread *thread, unsigned streams)
{
	const struct load_call *call = &thread->call;
	const struct load_accounting *a = &load_mixes[thread->generator->shape.mix];
	const unsigned apart = a->sparse ? LOAD_LINE_WORDS : 1;
	uint64_t full = 0, part = 0;
	for (unsigned k = 0; k < a->summed; k++)
		for (unsigned s = 0; s < streams; s++) {
			uint64_t first = s * call->stream_bytes / 8;
			full += filled_sum(k, first, call->stream_bytes / 8 / apart, apart);
			part += filled_sum(k, first, call->offset / 8 / apart, apart);
		}
	return thread->pass * full + part;
}

/* Words of the written array that are not what so many passes must have left there. */
static uint64_t wrong_words(const struct generator_thread *thread, unsigned streams)
{
	enum load_mix mix = thread->generator->shape.mix;
	const struct load_accounting *a = &load_mixes[mix];
	const struct load_call *call = &thread->call;
	unsigned written = a->arrays - 1;
	uint64_t wrong = 0;
	if (!a->updates && !a->writes)
		return 0;
	for (unsigned s = 0; s < streams; s++) {
		size_t first = s * call->stream_bytes / 8;
		for (size_t i = 0; i < call->stream_bytes / 8; i++) {
			uint64_t passes = thread->pass + (i * 8 < call->offset), expected;
			if (a->updates) {
				expected = filled(written, first + i) + passes;
			} else {
				expected = passes;
				for (unsigned k = 0; k < written; k++)
					expected += filled(k, first + i);
				if (passes == 0)
					expected = POISON;
			}
			wrong += ((const uint64_t *)(const void *)call->arrays[written])[first + i] != expected;
		}
	}
	return wrong;
}

static bool check(struct generator_thread *thread, struct error *error)
{
	unsigned streams = thread->generator->shape.streams;
	uint64_t wrong = wrong_words(thread, streams), expected = expected_sum(thread, streams);
	if (thread->sum != expected)
		return error_set(error, ERROR_CHECK_FAILED,
		                 "CPU %u: expected the words read to sum to %llx, found %llx; a kernel "
		                 "did not read what it was asked to, or memory is faulty",
		                 thread->cpu, (unsigned long long)expected, (unsigned long long)thread->sum);
	if (wrong)
		return error_set(error, ERROR_CHECK_FAILED,
		                 "CPU %u: expected every word written in every pass, found %llu that "
		                 "were not; a kernel left work out, or memory is faulty",
		                 thread->cpu, (unsigned long long)wrong);
	return true;
}

static bool setup(struct generator_thread *thread, struct error *error)
{
	struct generator *generator = thread->generator;
	if (!region_map(&thread->region, generator_thread_bytes(generator->shape.mix, generator->buffer_bytes),
	                thread->node, generator->chosen, error))
		return false;
	for (unsigned k = 0; k < load_mixes[generator->shape.mix].arrays; k++)
		thread->call.arrays[k] = thread->region.start + k * (generator->buffer_bytes + LOAD_ARRAY_SKEW_BYTES) /
		                                                    LOAD_LINE_BYTES * LOAD_LINE_BYTES;
	thread->chunk_steps = CHUNK_FIRST_STEPS;
	return fill(thread, error) && pages_read_nodes(&thread->pages, &thread->region, error);
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
			 chunk_max = (uint64_t)(CHUNK_MAX_S * clock_now_used.hz);
	atomic_fetch_add(&generator->arrived, 1);
	while (atomic_load_explicit(&generator->arrived, memory_order_acquire) < generator->count)
		arch_relax();
	const uint64_t spacing = (uint64_t)(generator->log_every_s * clock_now_used.hz);
	uint64_t last = clock_start(), logged = last;
	thread->log[0] = (struct log_entry){last, 0};
	thread->logged = 1;
	atomic_store_explicit(&thread->started, last, memory_order_release);
	/* One more chunk after the end was seen: a thread that had to wait for its CPU has also logged beyond the end. */
	for (bool ending = false; !ending && thread->logged < thread->log_capacity;) {
		ending = atomic_load_explicit(&generator->stop, memory_order_relaxed);
		run_chunk(thread, kernel);
		uint64_t now = clock_stop();
		lines += thread->chunk_steps * streams;
		if (ending || now - logged >= spacing) {
			thread->log[thread->logged++] = (struct log_entry){now, lines};
			logged = now;
		}
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

static void body(struct worker *worker)
{
	struct generator_thread *thread = worker->context;
	struct generator *generator = thread->generator;
	if (setup(thread, &worker->error)) {
		thread->core_before = corefreq_settle();
		if (thread == generator->threads)
			measure_delays(generator);
		pmu_open_thread(generator->pmu, (size_t)(thread - generator->threads), "");
		worker_pause(worker);
		while (generator->again) {
			struct thread_counts before = {0}, after = {0};
			if (generator->refill) {
				/* The streams of the run before end here: their work is proved before it is overwritten. */
				if (!check(thread, &worker->error) || !fill(thread, &worker->error))
					break;
				worker_pause(worker);
				if (!generator->again)
					break; /* another thread found its work wrong: no run will begin */
			}
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
			worker_pause(worker);
		}
		if (worker->error.code == ERROR_NONE)
			check(thread, &worker->error);
		if (worker->error.code == ERROR_NONE) {
			struct pages again = {0};
			pages_read_nodes(&again, &thread->region, &worker->error);
		}
	}
	region_unmap(&thread->region);
}

bool generator_parse_group(struct generator *generator, const char *group, struct error *error)
{
	generator->group = group;
	for (const char *at = group;;) {
		size_t length = strcspn(at, "+");
		struct cpu_list cpus = {0};
		unsigned node;
		if (!place_parse_list(at, length, &cpus, &node, error))
			return false;
		for (size_t i = 0; i < cpus.count; i++) {
			if (cpu_list_has(&generator->cpus, cpus.cpus[i])) {
				error_set(error, ERROR_USAGE, "expected each CPU once in a group, found CPU %u twice in '%s'",
				          cpus.cpus[i], group);
				cpu_list_free(&cpus);
				return false;
			}
			struct generator_thread *grown =
				realloc(generator->threads, (generator->count + 1) * sizeof(*generator->threads));
			if (grown)
				generator->threads = grown;
			if (!grown || !cpu_list_add(&generator->cpus, cpus.cpus[i]) || !cpu_list_add(&generator->nodes, node)) {
				cpu_list_free(&cpus);
				return error_set(error, ERROR_INTERNAL, "no memory for the group %s", group);
			}
			struct generator_thread *thread = &generator->threads[generator->count++];
			memset(thread, 0, sizeof(*thread));
			thread->cpu = cpus.cpus[i];
			thread->node = node;
		}
		cpu_list_free(&cpus);
		if (at[length] == '\0')
			return true;
		at += length + 1;
	}
}

static size_t log_capacity(const struct generator *generator, double seconds)
{
	double per_s = generator->log_every_s * LOG_PER_SECOND > 1 ? 1 / generator->log_every_s : LOG_PER_SECOND;
	return (size_t)(seconds * per_s) + LOG_EXTRA;
}

void generator_demand(const struct generator *generator, size_t thread_bytes, double seconds, struct demand *demand)
{
	demand_threads(demand, generator->count);
	for (size_t i = 0; i < generator->count; i++)
		demand_regions(demand, thread_bytes, 1, generator->threads[i].node);
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
	struct region *regions = calloc(generator->count, sizeof(*regions));
	generator->pages = (struct pages){.wanted = generator->page_kind};
	for (size_t i = 0; regions && i < generator->count; i++) {
		struct generator_thread *thread = &generator->threads[i];
		regions[i] = thread->region;
		generator->pages.checked += thread->pages.checked;
		generator->pages.on_node += thread->pages.on_node;
		generator->pages.elsewhere += thread->pages.elsewhere;
	}
	if (regions)
		pages_read_sizes(&generator->pages, regions, generator->count);
	free(regions);
}

bool generator_open(struct generator *generator, struct error *error)
{
	generator->again = true;
	generator->refill = false;
	generator->streams_next = generator->shape.streams;
	for (size_t i = 0; i < generator->count; i++) {
		struct generator_thread *thread = &generator->threads[i];
		thread->generator = generator;
		thread->pages = (struct pages){.wanted = generator->page_kind};
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

void generator_reshape(struct generator *generator, const struct generator_shape *shape)
{
	generator->refill = shape->streams != generator->shape.streams;
	generator->streams_next = shape->streams;
	if (!generator->refill)
		generator->shape = *shape;
	else {
		generator->shape.prefetch_bytes = shape->prefetch_bytes;
		generator->shape.delay = shape->delay;
	}
}

static bool step_all(struct generator *generator, struct error *error)
{
	for (size_t i = 0; i < generator->count; i++)
		worker_continue(&generator->threads[i].worker);
	for (size_t i = 0; i < generator->count; i++)
		worker_wait(&generator->threads[i].worker);
	return generator_take_errors(generator, error);
}

/* Lets the threads go, with logs for so many seconds, and returns once all of them run. */
static bool run_begin(struct generator *generator, double seconds, struct error *error)
{
	if (generator->refill) {
		/* Checked and filled in all threads at once; then the new shape holds. */
		if (!step_all(generator, error))
			return false;
		generator->shape.streams = generator->streams_next;
		generator->refill = false;
	}
	const struct generator_shape *shape = &generator->shape;
	generator->kernel =
		load_kernel_find(generator->width, shape->mix, shape->streams, shape->prefetch_bytes != 0, shape->delay != 0);
	generator->run_s = seconds;
	atomic_store(&generator->stop, false);
	atomic_store(&generator->arrived, 0);
	for (size_t i = 0; i < generator->count; i++) {
		struct generator_thread *thread = &generator->threads[i];
		thread->call.prefetch_bytes = shape->prefetch_bytes;
		thread->call.delay = shape->delay;
		thread->chunk_steps = CHUNK_FIRST_STEPS;
		atomic_store(&thread->started, 0);
		size_t capacity = log_capacity(generator, seconds);
		if (capacity > thread->log_capacity) {
			struct log_entry *grown = realloc(thread->log, capacity * sizeof(*grown));
			if (!grown)
				return error_set(error, ERROR_INTERNAL, "no memory for a log of %zu entries", capacity);
			/* Every page written once, so that none is faulted in while it is being measured. */
			memset(grown, 0, capacity * sizeof(*grown));
			thread->log = grown;
			thread->log_capacity = capacity;
		}
	}
	snapshot_free(&generator->before);
	snapshot_free(&generator->after);
	samples_free(&generator->samples);
	snapshot_take(&generator->before, generator->watched ? generator->watched : &generator->cpus);
	for (size_t i = 0; i < generator->count; i++)
		worker_continue(&generator->threads[i].worker);
	for (size_t i = 0; i < generator->count; i++)
		while (!atomic_load_explicit(&generator->threads[i].started, memory_order_acquire))
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
	for (size_t i = 0; i < generator->count; i++)
		worker_wait(&generator->threads[i].worker);
	snapshot_take_again(&generator->after, &generator->before);
	for (size_t i = 0; i < generator->count; i++)
		samples_collect(&generator->samples, generator->sampled, &generator->threads[i].sampling);
	if (cut && stop_error(error))
		return false;
	for (size_t i = 0; i < generator->count; i++)
		if (generator->threads[i].logged == generator->threads[i].log_capacity)
			return error_set(error, ERROR_INTERNAL,
			                 "expected at most %zu chunks, found more; use a longer --delay or buffer",
			                 generator->threads[i].log_capacity);
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
	for (size_t i = 0; i < generator->count; i++)
		if (generator->threads[i].started > last)
			last = generator->threads[i].started;
	return last;
}

uint64_t generator_start_skew(const struct generator *generator)
{
	uint64_t first = UINT64_MAX;
	for (size_t i = 0; i < generator->count; i++)
		if (generator->threads[i].started < first)
			first = generator->threads[i].started;
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
	for (size_t i = 0; i < generator->count; i++) {
		uint64_t step = log_step(generator->threads[i].log, generator->threads[i].logged);
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
	for (size_t i = 0; i < generator->count; i++)
		if (thread == PMU_ALL || thread == i)
			work.steps += generator_lines_at(&generator->threads[i], ticks);
	return work;
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
	free(generator->threads);
	cpu_list_free(&generator->cpus);
	cpu_list_free(&generator->nodes);
	snapshot_free(&generator->before);
	snapshot_free(&generator->after);
	samples_free(&generator->samples);
	*generator = (struct generator){0};
}

struct thread_counts generator_counts(const struct generator *generator)
{
	struct thread_counts sum = {0};
	for (size_t i = 0; i < generator->count; i++)
		thread_counts_add(&sum, &generator->threads[i].counts);
	return sum;
}

double generator_core_before(const struct generator *generator)
{
	double slowest = INFINITY;
	for (size_t i = 0; i < generator->count; i++)
		slowest = fmin(slowest, generator->threads[i].core_before);
	return slowest;
}

double generator_core_after(const struct generator *generator)
{
	double slowest = INFINITY;
	for (size_t i = 0; i < generator->count; i++)
		slowest = fmin(slowest, generator->threads[i].core_after);
	return slowest;
}

bool generator_verified(const struct generator *generator)
{
	for (size_t i = 0; i < generator->count; i++)
		if (!generator->threads[i].verified)
			return false;
	return true;
}
