// SPDX-License-Identifier: Apache-2.0
/* Volume: a known number of bytes, to hold counters against. STREAM's triad over arrays of doubles with regular stores: one
 * initialisation that writes all three arrays of each thread, then so many passes, and nothing else that moves lines. */
#include <stdatomic.h>

#include "allocate.h"
#include "arch/arch.h"
#include "clock.h"
#include "generator.h"
#include "load.h"
#include "option_rows.h"
#include "pmu.h"
#include "stopping.h"
#include "subcommand.h"

#define ARRAYS 3u
/* STREAM's values of a and b; c is not zero, whose fill a compiler or a library may do in its own way. */
#define A_FIRST 1.0
#define B_FIRST 2.0
#define C_FIRST (-1.0)
/* With a half, the value of pass p is 4 - 3/2^p: exact, and another for each p, while 2 + p bits fit a double's 53. */
#define SCALAR 0.5
#define PASSES_MAX 50u
/* A look at whether to stop after so many bytes checked. */
#define CHECK_BYTES (64u << 20)

static struct {
	const char *group;
	uint64_t array_bytes;
	uint64_t passes;
	uint64_t repeats;
} options;

static const struct option table[] = {
	OPTION_ROW_TEXT("--group", &options.group, "CPULIST@NODE[+CPULIST@NODE...]", NULL,
	                "one thread per CPU, its arrays on that node"),
	OPTION_ROW_U64("--array-bytes", &options.array_bytes, "B", NULL, 4096, 1ull << 40,
	               "size of each of the three arrays of each thread"),
	/* As the paper that this rebuilds has it. */
	OPTION_ROW_U64("--passes", &options.passes, "N", "10", 1, PASSES_MAX, "triads after the initialisation"),
	OPTION_ROW_U64("--repeats", &options.repeats, "K", "6", 1, 1000, "initialisations with their triads"),
	OPTIONS_WIDTH,
	OPTIONS_PAGES,
	OPTIONS_EVENT,
	OPTIONS_BACKGROUND,
};

struct part {
	uint64_t begin, filled, triads_begin, end; /* ticks */
	bool whole;                                /* not told to stop meanwhile */
};

struct repeat {
	double ticks, init_ticks, triad_ticks;
	struct evidence evidence;
};

static struct {
	struct generator generator; /* its threads, with memory and pages; their work is this file's */
	struct part *parts;
	struct repeat *repeats;
	size_t count;
	_Atomic size_t filled;
} volume;

static bool prepare(struct error *error)
{
	return option_multiple("--array-bytes", options.array_bytes, 4096, error) &&
	       generator_parse_group(&volume.generator, options.group, false, error) &&
	       common_parse(false, &volume.generator.sampled, &volume.generator.pmu, error);
}

static struct part *part_of(const struct generator_thread *thread)
{
	return &volume.parts[thread - volume.generator.threads];
}

/* No allocation, no input or output. Source and target change places after each pass, so that what is left tells how many
 * passes there were; each reads two arrays and writes one. */
static void run(const struct generator_thread *thread, struct part *part)
{
	const struct load_kernels *kernels = volume.generator.width->kernels;
	unsigned char *a = generator_array(thread, 0), *b = generator_array(thread, 1), *c = generator_array(thread, 2);
	size_t bytes = options.array_bytes;
	uint64_t passes = options.passes, done = 0;
	*part = (struct part){.begin = clock_start()};
	kernels->fill(a, A_FIRST, bytes);
	kernels->fill(b, B_FIRST, bytes);
	kernels->fill(c, C_FIRST, bytes);
	part->filled = clock_stop();
	atomic_fetch_add(&volume.filled, 1);
	while (atomic_load_explicit(&volume.filled, memory_order_acquire) < volume.generator.count && !stop_requested())
		arch_relax();
	part->triads_begin = clock_start();
	for (; done < passes && !stop_requested(); done++) {
		kernels->triad(c, b, a, SCALAR, bytes);
		unsigned char *written = c;
		c = a;
		a = written;
	}
	part->end = clock_stop();
	part->whole = done == passes;
}

/* Every double, exactly: the same operations on one element give what all of them must be. */
static bool check(const struct generator_thread *thread, struct error *error)
{
	volatile double values[ARRAYS] = {A_FIRST, B_FIRST, C_FIRST};
	unsigned source = 0, target = 2;
	for (uint64_t pass = 0; pass < options.passes; pass++) {
		values[target] = values[1] + SCALAR * values[source];
		unsigned written = target;
		target = source;
		source = written;
	}
	for (unsigned k = 0; k < ARRAYS; k++) {
		const double *array = (const double *)(const void *)generator_array(thread, k), expected = values[k];
		uint64_t wrong = 0;
		for (size_t i = 0; i < options.array_bytes / sizeof(double); i++) {
			if (i % (CHECK_BYTES / sizeof(double)) == 0 && stop_error(error))
				return false;
			wrong += array[i] != expected;
		}
		if (wrong)
			return error_set(error, ERROR_CHECK_FAILED,
			                 "CPU %u: %llu elements of array %c are not %.17g after %llu passes; the load left work "
			                 "out, or memory is "
			                 "faulty",
			                 thread->cpu, (unsigned long long)wrong, "abc"[k], expected,
			                 (unsigned long long)options.passes);
	}
	return true;
}

static void run_counted(struct worker *worker)
{
	struct generator_thread *thread = worker->context;
	struct thread_counts before = thread_counts_now(), after;
	run(thread, part_of(thread));
	after = thread_counts_now();
	thread->stretch =
		(struct stretch){.verified = affinity_verify(thread->cpu), .counts = thread_counts_since(&after, &before)};
}

static void check_whole(struct worker *worker)
{
	const struct generator_thread *thread = worker->context;
	struct error wrong = {0};
	if (part_of(thread)->whole && !check(thread, &wrong) && !error_is_stop(&wrong))
		worker->error = wrong;
}

/* The phases as a whole: from the first thread that begins one to the last that ends it. */
static void keep_times(struct repeat *repeat)
{
	const struct part *first = &volume.parts[0];
	uint64_t begin = first->begin, filled = first->filled, triads_begin = first->triads_begin, end = first->end;
	for (size_t i = 1; i < volume.generator.count; i++) {
		const struct part *part = &volume.parts[i];
		begin = part->begin < begin ? part->begin : begin;
		filled = part->filled > filled ? part->filled : filled;
		triads_begin = part->triads_begin < triads_begin ? part->triads_begin : triads_begin;
		end = part->end > end ? part->end : end;
	}
	repeat->ticks = (double)(end - begin);
	repeat->init_ticks = (double)(filled - begin);
	repeat->triad_ticks = (double)(end - triads_begin);
}

/* One repeat, counted, then proved; false with the error where it is not whole. */
static bool measure_repeat(struct repeat *repeat, struct error *error)
{
	struct generator *generator = &volume.generator;
	bool whole = true;
	if (stop_error(error))
		return false;
	atomic_store(&volume.filled, 0);
	snapshot_take(&generator->before, &generator->group->cpus);
	pmu_begin(generator->pmu, PMU_ALL);
	bool good = generator_do(generator, run_counted, error);
	pmu_end(generator->pmu, PMU_ALL);
	snapshot_take_again(&generator->after, &generator->before);
	for (size_t i = 0; i < generator->count; i++)
		whole = whole && volume.parts[i].whole;
	keep_times(repeat);
	generator_take_evidence(generator, &repeat->evidence);
	if (!good || !generator_do(generator, check_whole, error))
		return false;
	/* Told to stop, not everything was checked. */
	if (!whole || stop_requested()) {
		stop_error(error);
		return false;
	}
	repeat->evidence.counters = pmu_take(generator->pmu, PMU_ALL, NULL, NULL);
	return true;
}

static bool measure_all(struct error *error)
{
	struct generator *generator = &volume.generator;
	if (!generator_open(generator, error))
		return false;
	bool good = generator_has(generator, generator->group, error);
	if (good)
		pmu_background(generator->pmu, common.background_s);
	for (; good && volume.count < options.repeats; volume.count += good)
		good = measure_repeat(&volume.repeats[volume.count], error);
	/* Told to stop, the repeats before are as good as ever. */
	if (!good && volume.count && error_is_stop(error)) {
		*error = (struct error){0};
		good = true;
	}
	generator_close(generator);
	return good && generator_has(generator, generator->group, error);
}

static void bytes_write(struct json *json, const char *key, uint64_t read, uint64_t written, uint64_t allocated)
{
	json_object_begin(json, key);
	json_u64(json, "program_read_bytes", read);
	json_u64(json, "program_written_bytes", written);
	json_u64(json, "allocate_read_bytes", allocated);
	json_object_end(json);
}

/* What one repeat moves by its code, and by the declared rule for lines that are written without having been read. */
static void known_write(struct json *json)
{
	uint64_t all = options.array_bytes * volume.generator.count, passes = options.passes;
	uint64_t init = ARRAYS * all, init_allocated = init * load_write_allocates(MIX_WRITE), triads = passes * all,
			 triads_read = 2 * triads, triads_allocated = triads * load_write_allocates(MIX_TRIAD);
	json_object_begin(json, "known");
	bytes_write(json, "init", 0, init, init_allocated);
	bytes_write(json, "triad", triads_read, triads, triads_allocated);
	json_u64(json, "read_bytes", init_allocated + triads_read + triads_allocated);
	json_u64(json, "written_bytes", init + triads);
	json_object_end(json);
}

static void repeat_write(struct json *json, const struct repeat *repeat)
{
	const struct evidence *evidence = &repeat->evidence;
	json_object_begin(json, NULL);
	json_f64(json, "seconds", clock_ns(repeat->ticks) / 1e9);
	json_f64(json, "init_seconds", clock_ns(repeat->init_ticks) / 1e9);
	json_f64(json, "triad_seconds", clock_ns(repeat->triad_ticks) / 1e9);
	json_bool(json, "checked", true); /* a repeat whose work was not proved is none */
	json_bool(json, "cpus_verified", evidence->threads.verified);
	interference_write(json, "interference", &evidence->threads.counts, &evidence->before, &evidence->after,
	                   &volume.generator.group->cpus);
	pmu_counts_write(json, "counters", evidence->counters);
	json_object_end(json);
}

static void write_results(struct json *json)
{
	const struct generator *generator = &volume.generator;
	struct pages pages = generator_pages(generator);
	json_object_begin(json, NULL);
	json_text(json, "group", options.group);
	cpu_list_write(json, "cpus", &generator->group->cpus);
	cpu_list_write(json, "nodes", &generator->group->nodes);
	json_u64(json, "threads", generator->count);
	json_u64(json, "array_bytes", options.array_bytes);
	json_u64(json, "passes", options.passes);
	json_text(json, "width", generator->width->name);
	pages_write(json, "pages", &pages);
	known_write(json);
	json_array_begin(json, "repeats");
	for (size_t i = 0; i < volume.count; i++)
		repeat_write(json, &volume.repeats[i]);
	json_array_end(json);
	json_object_end(json);
}

static bool set_up(struct error *error)
{
	struct generator *generator = &volume.generator;
	const struct group *group = &generator->groups[0];
	struct demand demand = {0};
	generator->page_kind = page_kind_of(common.pages);
	generator->width = load_width_find(common.width, error);
	volume.parts = allocate(generator->count, sizeof(*volume.parts));
	volume.repeats = allocate(options.repeats, sizeof(*volume.repeats));
	supervise_avoid(&group->cpus);
	generator_need(generator, group, ARRAYS, options.array_bytes);
	generator_demand(generator, 0, &demand);
	snapshots_demand(&group->cpus, 2 * options.repeats, &demand);
	demand_document(&demand, options.repeats * EVIDENCE_NUMBERS);
	if (!generator->width || !generator_admit(generator, &demand, error) ||
	    !generator_select(generator, group, &generator->shape, options.array_bytes, error))
		return false;
	pmu_open(generator->pmu);
	pmu_threads(generator->pmu, generator->count);
	return true;
}

static bool measure(struct json *result, struct error *error)
{
	if (!set_up(error) || !measure_all(error))
		return false;
	clock_finish();
	write_results(result);
	return true;
}

SUBCOMMAND(volume) = {
	"volume", "moves a known number of bytes, to hold counters against", SUBCOMMAND_OPTIONS(table), prepare, measure,
};
