// SPDX-License-Identifier: Apache-2.0
#include "generator.h"

#include <stdlib.h>
#include <time.h>

#include "allocate.h"
#include "clock.h"
#include "corefreq.h"
#include "stopping.h"
#include "telemetry.h"

/* A chunk of a quarter to one millisecond: long enough that its clock read costs nothing (0.03 %), short enough that
 * the interpolation at a window's edges stays below 1 % of a 100 ms window. */
#define CHUNK_MIN_S 0.00025
#define CHUNK_MAX_S 0.001
#define CHUNK_FIRST_STEPS 64u
#define STREAM_SKEW_LINES 68u
/* A delay is timed so often in a row, and the shortest of some such times is its length: one would be a clock read. */
#define DELAY_TURNS 64u
#define DELAY_TRIES 5

static size_t stream_bytes(size_t buffer_bytes, unsigned streams)
{
	size_t lines = buffer_bytes / LOAD_LINE_BYTES / streams;
	lines -= lines % LOAD_STEPS_PER_DELAY;
	/* Streams of 64 KiB, after which the sets of many second levels begin again, and more are shortened a little, so that
	 * their distance is no multiple of a page. Four streams 128 KiB apart read a Zen 5's second level a fifth slower than
	 * one or two; 64 KiB apart they copied in a Zen 3's 6 % slower than skewed. */
	const size_t period = 128;
	if (streams > 1 && lines >= 8 * period)
		lines -= (lines % period + period - STREAM_SKEW_LINES) % period;
	return lines * LOAD_LINE_BYTES;
}

static bool buffer_map(struct buffer *buffer, unsigned number, struct page_choice pages)
{
	if (!buffer->shares)
		return region_map(&buffer->region, buffer->bytes, buffer->node, pages, &buffer->error);
	return region_map_spread(&buffer->region, buffer->bytes, &buffer->spread, number, pages, &buffer->error);
}

/* Maps and fills what this thread is to. A buffer that cannot be had says why, and costs only those runs that need it. */
static void set_up(struct worker *worker)
{
	struct generator_thread *thread = worker->context;
	struct generator *generator = thread->generator;
	size_t number = (size_t)(thread - generator->threads);
	for (size_t i = 0; i < generator->buffer_count; i++) {
		struct buffer *buffer = &generator->buffers[i];
		if (buffer->filler == number && buffer->error.code == ERROR_NONE &&
		    buffer_map(buffer, (unsigned)i, generator->chosen))
			buffer_fill(buffer);
	}
	/* Only now, so that one reading of the mappings does for all that this thread has mapped. */
	for (size_t i = 0; i < generator->buffer_count; i++) {
		struct buffer *buffer = &generator->buffers[i];
		if (buffer->filler == number && buffer->error.code == ERROR_NONE)
			pages_read_nodes(&buffer->pages, &buffer->region, &buffer->error);
	}
	corefreq_settle();
	pmu_open_thread(generator->pmu, number, "");
}

static void tear_down(struct worker *worker)
{
	const struct generator_thread *thread = worker->context;
	const struct generator *generator = thread->generator;
	for (size_t i = 0; i < generator->buffer_count; i++) {
		struct buffer *buffer = &generator->buffers[i];
		struct pages again = {0};
		if (buffer->filler != (size_t)(thread - generator->threads))
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
	struct progress *log = &thread->log;
	log->entries[0] = (struct log_entry){last, 0};
	log->count = 1;
	atomic_store_explicit(&thread->started, last, memory_order_release);
	/* One more chunk after the end was seen: a thread that had to wait for its CPU has also logged beyond the end. */
	for (bool ending = false; !ending && log->count < log->capacity;) {
		ending = atomic_load_explicit(&generator->stop, memory_order_relaxed);
		run_chunk(thread, kernel);
		uint64_t now = clock_stop();
		lines += thread->chunk_steps * streams;
		if (ending || now - log->entries[log->count - 1].ticks >= spacing)
			log->entries[log->count++] = (struct log_entry){now, lines};
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

static void run_measured(struct worker *worker)
{
	struct generator_thread *thread = worker->context;
	const struct generator *generator = thread->generator;
	sampling_open(&thread->sampling, generator->sampled, thread->cpu, generator->run_s);
	stretch_begin(&thread->stretch);
	sampling_begin(&thread->sampling);
	run(thread);
	sampling_end(&thread->sampling);
	stretch_end(&thread->stretch, thread->cpu);
}

/* -- what the supervising thread makes of them -- */

/* The nth thread of those that run. */
static struct generator_thread *running(const struct generator *generator, size_t number)
{
	return &generator->threads[generator->group->threads[number]];
}

static bool take_errors(const struct generator *generator, struct error *error)
{
	for (size_t i = 0; i < generator->group->count; i++)
		error_take(error, &running(generator, i)->worker.error);
	return error->code == ERROR_NONE;
}

bool generator_alive(const struct generator *generator)
{
	struct error none = {0};
	return take_errors(generator, &none);
}

static void do_all(struct generator *generator, worker_job job)
{
	for (size_t i = 0; i < generator->count; i++)
		worker_begin(&generator->threads[i].worker, job);
	for (size_t i = 0; i < generator->count; i++)
		worker_wait(&generator->threads[i].worker);
}

static void join_all(struct generator *generator)
{
	for (size_t i = 0; i < generator->count; i++)
		worker_join(&generator->threads[i].worker);
}

static void read_sizes(struct generator *generator)
{
	struct region *regions = allocate(generator->buffer_count, sizeof(*regions));
	size_t count = 0;
	generator->sizes = (struct pages){.wanted = generator->page_kind};
	for (size_t i = 0; i < generator->buffer_count; i++)
		if (generator->buffers[i].error.code == ERROR_NONE)
			regions[count++] = generator->buffers[i].region;
	if (count)
		pages_read_sizes(&generator->sizes, regions, count);
	free(regions);
}

/* Waits until the threads are pinned; false where none is, with the error of the first. */
static bool any_pinned(struct generator *generator, struct error *error)
{
	size_t pinned = 0;
	for (size_t i = 0; i < generator->count; i++)
		pinned += worker_wait(&generator->threads[i].worker);
	return pinned > 0 || error_take(error, &generator->threads[0].worker.error);
}

bool generator_open(struct generator *generator, struct error *error)
{
	for (size_t i = 0; i < generator->buffer_count; i++) {
		generator->buffers[i].region = (struct region){0};
		generator->buffers[i].pages =
			(struct pages){.wanted = generator->page_kind, .shares = generator->buffers[i].shares};
		for (size_t k = 0; generator->buffers[i].shares && k < generator->buffers[i].spread.nodes.count; k++)
			generator->buffers[i].shares[k] = 0;
	}
	bool good = true;
	for (size_t i = 0; good && i < generator->count; i++) {
		struct generator_thread *thread = &generator->threads[i];
		thread->generator = generator;
		good = worker_start(&thread->worker, thread->cpu, NULL, thread, error);
	}
	if (good && any_pinned(generator, error)) {
		generator_choose_fillers(generator);
		do_all(generator, set_up);
		read_sizes(generator);
		return true;
	}
	join_all(generator);
	return false;
}

bool generator_has(const struct generator *generator, const struct group *group, struct error *error)
{
	struct error found = {0};
	for (size_t i = 0; i < group->count; i++)
		if (!error_take(&found, &generator->threads[group->threads[i]].worker.error) ||
		    !error_take(&found, &generator->buffers[group->buffers[i]].error)) {
			*error = found;
			return false;
		}
	return true;
}

bool generator_select(struct generator *generator, const struct group *group, const struct load_shape *shape,
                      size_t buffer_bytes, struct error *error)
{
	generator->group = group;
	generator->shape = *shape;
	for (size_t i = 0; i < group->count; i++) {
		struct generator_thread *thread = &generator->threads[group->threads[i]];
		thread->buffer = &generator->buffers[group->buffers[i]];
		thread->buffer_bytes = generator_thread_bytes(group, i, buffer_bytes);
	}
	return generator_has(generator, group, error);
}

bool generator_do(struct generator *generator, worker_job job, struct error *error)
{
	for (size_t i = 0; i < generator->group->count; i++)
		worker_begin(&running(generator, i)->worker, job);
	for (size_t i = 0; i < generator->group->count; i++)
		worker_wait(&running(generator, i)->worker);
	return take_errors(generator, error);
}

/* Which words a thread begins at: the buffers' first, as every run does. */
static void prepare(struct generator_thread *thread)
{
	const struct generator *generator = thread->generator;
	const struct load_shape *shape = &generator->shape;
	thread->call = (struct load_call){.stream_bytes = stream_bytes(thread->buffer_bytes, shape->streams),
	                                  .prefetch_bytes = shape->prefetch_bytes,
	                                  .delay = shape->delay,
	                                  .streams = shape->streams};
	for (unsigned k = 0; k < load_mixes[shape->mix].arrays; k++)
		thread->call.arrays[k] = generator_array(thread, k);
	thread->pass = 0;
	thread->sum = 0;
	thread->chunk_steps = CHUNK_FIRST_STEPS;
	progress_reserve(&thread->log, generator_log_capacity(generator, generator->run_s));
	atomic_store(&thread->started, 0);
}

/* Ticks at which all threads were running in the last run; they run at least until its end. */
static uint64_t all_started(const struct generator *generator)
{
	uint64_t last = 0;
	for (size_t i = 0; i < generator->group->count; i++)
		if (running(generator, i)->started > last)
			last = running(generator, i)->started;
	return last;
}

/* Lets the threads go, for so many seconds at most, and returns once all of them run. */
static void run_begin(struct generator *generator, double seconds)
{
	generator->kernel = load_kernel_find(generator->width, &generator->shape);
	generator->run_s = seconds;
	atomic_store(&generator->stop, false);
	atomic_store(&generator->arrived, 0);
	for (size_t i = 0; i < generator->group->count; i++)
		prepare(running(generator, i));
	snapshot_free(&generator->before);
	snapshot_free(&generator->after);
	samples_free(&generator->samples);
	snapshot_take(&generator->before, generator->watched ? generator->watched : &generator->group->cpus);
	for (size_t i = 0; i < generator->group->count; i++)
		worker_begin(&running(generator, i)->worker, run_measured);
	for (size_t i = 0; i < generator->group->count; i++)
		while (!atomic_load_explicit(&running(generator, i)->started, memory_order_acquire))
			nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
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
		if (running(generator, i)->log.count == running(generator, i)->log.capacity)
			return error_set(error, ERROR_INTERNAL, "a log of %zu chunks is full; use a longer --delay or buffer",
			                 running(generator, i)->log.capacity);
	return take_errors(generator, error);
}

bool generator_run_windows(struct generator *generator, double settle_s, double windows_s, struct error *error)
{
	const double hz = clock_now_used.hz;
	run_begin(generator, settle_s + windows_s + GENERATOR_TAIL_S);
	generator->begins = all_started(generator) + (uint64_t)(settle_s * hz);
	if (generator->pmu || generator->telemetry) {
		/* Told to stop meanwhile, run_end is too. */
		(void)sleep_until(generator->begins);
		pmu_begin(generator->pmu, PMU_ALL);
		generator->begins = clock_stop();
		bool go_on = generator->telemetry != NULL;
		for (double at = 0; go_on && at < windows_s - generator->telemetry_interval_s / 2;
		     at += generator->telemetry_interval_s) {
			go_on = sleep_until(generator->begins + (uint64_t)(at * hz));
			telemetry_read(generator->telemetry);
		}
		(void)sleep_until(generator->begins + (uint64_t)(windows_s * hz));
		telemetry_read(generator->telemetry);
		pmu_end(generator->pmu, PMU_ALL);
	}
	generator->ends = generator->begins + (uint64_t)((windows_s + GENERATOR_TAIL_S) * hz);
	return run_end(generator, error);
}

uint64_t generator_start_skew(const struct generator *generator)
{
	uint64_t first = UINT64_MAX;
	for (size_t i = 0; i < generator->group->count; i++)
		if (running(generator, i)->started < first)
			first = running(generator, i)->started;
	return all_started(generator) - first;
}

uint64_t generator_chunk_ticks(const struct generator *generator)
{
	uint64_t slowest = 0;
	for (size_t i = 0; i < generator->group->count; i++) {
		uint64_t step = progress_step(&running(generator, i)->log);
		slowest = step > slowest ? step : slowest;
	}
	return slowest;
}

void generator_add_rates(const struct generator *generator, double *window_rates, double *thread_rates,
                         uint64_t windows, double window_ticks)
{
	for (size_t t = 0; t < generator->group->count; t++) {
		const struct progress *log = &running(generator, t)->log;
		double first = progress_at(log, generator->begins), last = first;
		for (uint64_t i = 0; i < windows; i++) {
			double next = progress_at(log, generator->begins + (uint64_t)(window_ticks * (double)(i + 1)));
			window_rates[i] += (next - last) / window_ticks;
			last = next;
		}
		if (thread_rates)
			thread_rates[t] += (last - first) / (window_ticks * (double)windows);
	}
}

struct pmu_work generator_progress(void *context, size_t thread, uint64_t ticks)
{
	const struct generator *generator = context;
	struct pmu_work work = {.hops = -1};
	for (size_t i = 0; i < generator->group->count; i++)
		if (thread == PMU_ALL || thread == generator->group->threads[i])
			work.steps += progress_at(&running(generator, i)->log, ticks);
	return work;
}

bool generator_prove(struct generator *generator, struct error *error)
{
	if (!generator_do(generator, generator_prove_thread, error))
		return false;
	for (size_t i = 0; i < generator->group->count; i++)
		if (running(generator, i)->wrong.code != ERROR_NONE) {
			*error = running(generator, i)->wrong;
			return false;
		}
	return true;
}

void generator_close(struct generator *generator)
{
	mappings_forget();
	do_all(generator, tear_down);
	join_all(generator);
}

void generator_take_evidence(struct generator *generator, struct evidence *evidence)
{
	evidence->pages = generator_pages(generator);
	evidence->threads = running(generator, 0)->stretch;
	for (size_t i = 1; i < generator->group->count; i++)
		stretch_add(&evidence->threads, &running(generator, i)->stretch);
	evidence->before = generator->before;
	evidence->after = generator->after;
	evidence->samples = generator->samples;
	generator->before = generator->after = (struct snapshot){0};
	generator->samples = (struct samples){0};
}
