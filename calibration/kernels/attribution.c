// SPDX-License-Identifier: Apache-2.0
#include "attribution.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "clock.h"
#include "files.h"
#include "interference.h"
#include "statistics.h"
#include "text.h"

/* Sources of one regression; with more, chance chooses among them. */
#define ACTIVE_MAX 6u
/* A coefficient must be four times its standard error: with some 20 sources tried, chance does that once in 1000 runs. */
#define T_MIN 4.0
/* How well "explains nothing" must be known to be said: the standard error of gaps per event. */
#define ERROR_MAX 0.125
/* The same for time: the share of all lost time that the standard error may stand for. */
#define LOST_ERROR_MAX 0.02
/* A timer fires at least so often, relative to the period found, in nine of ten slices. */
#define TIMER_RATE_MIN 0.9

struct label {
	char text[24];
	enum source_class class;
	bool timer;
};

struct reading {
	uint64_t *counts; /* by label, then CPU; only as many labels as were known then */
	size_t labels;
	int64_t *switches; /* involuntary, by CPU; -1: unknown */
	int64_t *waited;   /* ns, by CPU; -1: unknown */
};

void readings_open(struct readings *readings, const struct cpu_list *cpus, const int *threads, size_t capacity)
{
	*readings = (struct readings){.cpus = cpus, .threads = threads, .capacity = capacity};
	readings->at = allocate(capacity, sizeof(*readings->at));
	readings->list = allocate(capacity, sizeof(*readings->list));
}

static void reading_free(struct reading *reading)
{
	free(reading->counts);
	free(reading->switches);
	*reading = (struct reading){0};
}

void readings_forget(struct readings *readings)
{
	while (readings->count > 0)
		reading_free(&readings->list[--readings->count]);
}

size_t readings_room(const struct readings *readings, size_t bytes, size_t most)
{
	size_t reading_bytes = (readings->label_count + 2) * readings->cpus->count * sizeof(uint64_t),
		   room = bytes / reading_bytes;
	return room > most ? most : room < ATTRIBUTION_SLICES ? ATTRIBUTION_SLICES : room;
}

static size_t label_place(struct readings *readings, const struct counter_row *row, enum source_class class)
{
	for (size_t i = 0; i < readings->label_count; i++)
		if (readings->labels[i].class == class && !strcmp(readings->labels[i].text, row->label))
			return i;
	readings->labels = reallocate(readings->labels, readings->label_count + 1, sizeof(*readings->labels));
	struct label *added = &readings->labels[readings->label_count];
	*added = (struct label){.class = class, .timer = row->timer};
	snprintf(added->text, sizeof(added->text), "%s", row->label);
	return readings->label_count++;
}

static void thread_read(int thread, int64_t *switches, int64_t *waited)
{
	char path[64];
	uint64_t value;
	snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
	char *text = file_read(path);
	*switches = text_number_of(text, "nonvoluntary_ctxt_switches:", &value) ? (int64_t)value : -1;
	free(text);
	/* Time run, time waited for a CPU, time slices. */
	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", thread);
	text = file_read(path);
	const char *at = text;
	bool known = at && text_decimal(&at, &value) && *(at = text_skip_blanks(at)) && text_decimal(&at, &value);
	*waited = known ? (int64_t)value : -1;
	free(text);
}

void readings_take(struct readings *readings)
{
	struct snapshot snapshot;
	size_t cpus = readings->cpus->count;
	if (readings->count == readings->capacity)
		reading_free(&readings->list[--readings->count]);
	struct reading *reading = &readings->list[readings->count];
	uint64_t before = clock_stop();
	snapshot_take_tables(&snapshot, readings->cpus);
	const struct counter_table *tables[] = {&snapshot.interrupts, &snapshot.softirqs};
	size_t most = readings->label_count + snapshot.interrupts.count + snapshot.softirqs.count;
	reading->switches = allocate(2 * cpus, sizeof(*reading->switches));
	reading->waited = reading->switches + cpus;
	for (size_t i = 0; i < cpus; i++)
		thread_read(readings->threads[i], &reading->switches[i], &reading->waited[i]);
	uint64_t after = clock_stop();
	reading->counts = allocate(most * cpus, sizeof(*reading->counts));
	for (unsigned t = 0; t < 2; t++)
		for (size_t r = 0; r < tables[t]->count; r++) {
			/* Most devices never interrupt a measured CPU. */
			if (!tables[t]->rows[r].values)
				continue;
			size_t place = label_place(readings, &tables[t]->rows[r], t ? SOURCE_SOFTIRQ : SOURCE_INTERRUPT);
			memcpy(reading->counts + place * cpus, tables[t]->rows[r].values, cpus * sizeof(uint64_t));
		}
	reading->labels = readings->label_count;
	snapshot_free(&snapshot);
	readings->at[readings->count++] = before + (after - before) / 2;
}

/* Ordinary least squares of y on the columns, with the error of each coefficient. The normal equations are small and
 * their columns scaled; false when they are singular. */
static bool least_squares(const double *const *columns, size_t count, const double *y, size_t rows, double *solution,
                          double *errors)
{
	double matrix[ACTIVE_MAX + 2][2 * (ACTIVE_MAX + 2)] = {{0}}, right[ACTIVE_MAX + 2] = {0}, scale[ACTIVE_MAX + 2];
	for (size_t i = 0; i < count; i++) {
		scale[i] = 0;
		for (size_t r = 0; r < rows; r++)
			scale[i] += columns[i][r] * columns[i][r];
		scale[i] = sqrt(scale[i]);
		if (scale[i] <= 0)
			return false;
	}
	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; k < count; k++) {
			for (size_t r = 0; r < rows; r++)
				matrix[i][k] += columns[i][r] * columns[k][r];
			matrix[i][k] /= scale[i] * scale[k];
		}
		for (size_t r = 0; r < rows; r++)
			right[i] += columns[i][r] * y[r] / scale[i];
		matrix[i][count + i] = 1;
	}
	for (size_t i = 0; i < count; i++) {
		double pivot = matrix[i][i]; /* positive definite: no exchange is needed */
		if (pivot < 1e-9)
			return false;
		for (size_t k = 0; k < 2 * count; k++)
			matrix[i][k] /= pivot;
		for (size_t other = 0; other < count; other++) {
			double factor = matrix[other][i];
			for (size_t k = 0; other != i && k < 2 * count; k++)
				matrix[other][k] -= factor * matrix[i][k];
		}
	}
	double squares = 0;
	for (size_t i = 0; i < count; i++) {
		solution[i] = 0;
		for (size_t k = 0; k < count; k++)
			solution[i] += matrix[i][count + k] * right[k];
		solution[i] /= scale[i];
	}
	for (size_t r = 0; r < rows; r++) {
		double rest = y[r];
		for (size_t i = 0; i < count; i++)
			rest -= solution[i] * columns[i][r];
		squares += rest * rest;
	}
	/* Counts are never known better than to the rounding of a slice's edges. */
	double variance = fmax(squares / (double)(rows - count), 1e-12);
	for (size_t i = 0; i < count; i++)
		errors[i] = sqrt(variance * matrix[i][count + i]) / scale[i];
	return true;
}

struct fit {
	size_t active[ACTIVE_MAX];
	size_t count;
	double coefficients[ACTIVE_MAX];
};

static void gather(const struct attribution *attribution, const struct fit *fit, const double *steady,
                   const double **columns)
{
	columns[0] = steady;
	for (size_t i = 0; i < fit->count; i++)
		columns[1 + i] = attribution->sources[fit->active[i]].slices;
}

static bool is_active(const struct fit *fit, size_t source)
{
	for (size_t i = 0; i < fit->count; i++)
		if (fit->active[i] == source)
			return true;
	return false;
}

/* Adds the source with the most significant coefficient above zero, as long as there is one. */
static void select_sources(const struct attribution *attribution, struct fit *fit, const bool *candidate,
                           const double *steady, const double *y)
{
	const double *columns[ACTIVE_MAX + 2];
	double solution[ACTIVE_MAX + 2], errors[ACTIVE_MAX + 2];
	while (fit->count < ACTIVE_MAX) {
		double best = T_MIN;
		size_t chosen = SIZE_MAX;
		gather(attribution, fit, steady, columns);
		for (size_t s = 0; s < attribution->source_count; s++) {
			if (!candidate[s] || is_active(fit, s))
				continue;
			columns[1 + fit->count] = attribution->sources[s].slices;
			if (!least_squares(columns, fit->count + 2, y, attribution->slices, solution, errors))
				continue;
			double significance = solution[1 + fit->count] / errors[1 + fit->count];
			if (significance > best) {
				best = significance;
				chosen = s;
			}
		}
		if (chosen == SIZE_MAX)
			break;
		fit->active[fit->count++] = chosen;
	}
}

/* Least squares within bounds, by turns: the function is convex, so this ends at its one minimum. */
static void bounded(const struct attribution *attribution, struct fit *fit, const double *steady, const double *y,
                    double most)
{
	const double *columns[ACTIVE_MAX + 2];
	double values[ACTIVE_MAX + 2] = {0};
	gather(attribution, fit, steady, columns);
	for (unsigned turn = 0; turn < 500; turn++)
		for (size_t i = 0; i <= fit->count; i++) {
			double product = 0, square = 0;
			for (size_t r = 0; r < attribution->slices; r++) {
				double rest = y[r];
				for (size_t k = 0; k <= fit->count; k++)
					rest -= k == i ? 0 : values[k] * columns[k][r];
				product += columns[i][r] * rest;
				square += columns[i][r] * columns[i][r];
			}
			values[i] = square > 0 ? fmax(product / square, 0) : 0;
			if (i > 0)
				values[i] = fmin(values[i], most);
		}
	memcpy(fit->coefficients, values + 1, fit->count * sizeof(*values));
}

/* The standard error a source's coefficient would have; infinite where it cannot be told from the others. */
static double error_of(const struct attribution *attribution, const struct fit *fit, size_t source,
                       const double *steady, const double *y)
{
	const double *columns[ACTIVE_MAX + 2];
	double solution[ACTIVE_MAX + 2], errors[ACTIVE_MAX + 2];
	gather(attribution, fit, steady, columns);
	columns[1 + fit->count] = attribution->sources[source].slices;
	if (!least_squares(columns, fit->count + 2, y, attribution->slices, solution, errors))
		return INFINITY;
	return errors[1 + fit->count];
}

static const char too_even[] = "too few, too even or too much together with others to be told from the rest";
static const char too_few[] =
	"no slices to compare: no CPU was free to read counters meanwhile, or the time was too short";
static const char within[] = "run at the end of an interrupt or in a thread, within a gap of theirs";

static double sum_of(const double *values, size_t count)
{
	double sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += values[i];
	return sum;
}

/* What to explain: gaps or lost ticks in each slice, by which sources, and how well "explains nothing" must be known. */
struct question {
	const double *y;
	size_t explained; /* offset in struct source of what is answered */
	bool *candidate;
	double most;      /* of a coefficient */
	double error_max; /* standard error, of one event or, with `all_events`, of all of a source */
	bool all_events;
};

static struct explained *answer_of(struct source *source, const struct question *question)
{
	return (struct explained *)(void *)((unsigned char *)source + question->explained);
}

static void explain(struct attribution *attribution, const struct question *question, const double *steady)
{
	struct fit fit = {0};
	select_sources(attribution, &fit, question->candidate, steady, question->y);
	bounded(attribution, &fit, steady, question->y, question->most);
	for (size_t i = 0; i < fit.count; i++) {
		struct source *source = &attribution->sources[fit.active[i]];
		struct explained *explained = answer_of(source, question);
		explained->amount += fit.coefficients[i] * sum_of(source->slices, attribution->slices);
		explained->known = true;
	}
	for (size_t s = 0; s < attribution->source_count && fit.count < ACTIVE_MAX; s++) {
		struct source *source = &attribution->sources[s];
		if (!question->candidate[s] || is_active(&fit, s))
			continue;
		double events = question->all_events ? sum_of(source->slices, attribution->slices) : 1;
		if (error_of(attribution, &fit, s, steady, question->y) * events <= question->error_max)
			answer_of(source, question)->known = true;
	}
}

/* No more than there is: a regression may overshoot by its error. Returns what is left. */
static double limit_to_rest(double rest, struct explained *explained)
{
	explained->amount = fmin(explained->amount, rest);
	return rest - (explained->known ? explained->amount : 0);
}

void attribution_solve(struct attribution *attribution, const double *counts, const double *lost)
{
	size_t rows = attribution->slices, sources = attribution->source_count;
	double *steady = allocate(rows, sizeof(*steady));
	struct question gaps = {.y = counts,
	                        .explained = offsetof(struct source, gaps),
	                        .candidate = allocate(sources, sizeof(bool)),
	                        .most = 1, /* an interrupt makes one gap at most */
	                        .error_max = ERROR_MAX};
	struct question time = {.y = lost,
	                        .explained = offsetof(struct source, lost),
	                        .candidate = allocate(sources, sizeof(bool)),
	                        .most = INFINITY,
	                        .error_max = LOST_ERROR_MAX * sum_of(lost, rows),
	                        .all_events = true};
	bool compared = rows >= ATTRIBUTION_SLICES;
	for (size_t r = 0; r < rows; r++)
		steady[r] = (double)(attribution->bounds[r + 1] - attribution->bounds[r]) / clock_now_used.hz;
	for (size_t s = 0; s < sources; s++) {
		struct source *source = &attribution->sources[s];
		bool interrupt = source->class == SOURCE_INTERRUPT, softirq = source->class == SOURCE_SOFTIRQ;
		if (softirq)
			source->reason = within;
		else if (interrupt && !(source->slices && compared) && !source->gaps.known)
			source->reason = too_few;
		time.candidate[s] = (interrupt || softirq) && source->slices && compared && sum_of(source->slices, rows) > 0;
		gaps.candidate[s] = time.candidate[s] && interrupt;
	}
	if (compared) {
		explain(attribution, &gaps, steady);
		explain(attribution, &time, steady);
	}
	attribution->unattributed_gaps = (double)attribution->gaps;
	attribution->unattributed_lost = (double)attribution->lost_ticks;
	for (size_t s = 0; s < sources; s++) {
		struct source *source = &attribution->sources[s];
		attribution->unattributed_gaps = limit_to_rest(attribution->unattributed_gaps, &source->gaps);
		attribution->unattributed_lost = limit_to_rest(attribution->unattributed_lost, &source->lost);
	}
	free(gaps.candidate);
	free(time.candidate);
	free(steady);
}

/* Whether a timer's interrupts are frequent enough, in nine of ten slices, to be the cause of a period. */
static bool keeps_up(const struct source *source, const uint64_t *bounds, size_t slices, double period)
{
	double *ratios = allocate(slices, sizeof(*ratios));
	for (size_t r = 0; r < slices; r++)
		/* One more: a slice's edges may cut off one of them. */
		ratios[r] = (source->slices[r] + 1) / ((double)(bounds[r + 1] - bounds[r]) / period);
	qsort(ratios, slices, sizeof(*ratios), compare_doubles);
	double cycles = (double)(bounds[slices] - bounds[0]) / period;
	bool good = slices > 0 && ratios[slices / 10] >= TIMER_RATE_MIN &&
	            sum_of(source->slices, slices) >= TIMER_RATE_MIN * cycles;
	free(ratios);
	return good;
}

static size_t slice_of(const uint64_t *bounds, size_t slices, uint64_t at, size_t from)
{
	while (from < slices && at >= bounds[from + 1])
		from++;
	return from;
}

/* Gives a timer the gaps of every period that its interrupts can have caused, and takes both out of the slices. */
static void claim_periods(struct attribution *attribution, const struct gaps *gaps, const struct period *periods,
                          size_t period_count, const uint8_t *owner, double *counts, double *lost)
{
	for (size_t s = 0; s < attribution->source_count; s++) {
		struct source *source = &attribution->sources[s];
		for (size_t p = 0; source->timer && source->slices && p < period_count; p++) {
			if (!keeps_up(source, attribution->bounds, attribution->slices, periods[p].ticks))
				continue;
			size_t slice = 0;
			for (size_t i = 0; i < gaps->kept; i++) {
				if (owner[i] != p || gaps->ring[i].at < attribution->bounds[0])
					continue;
				slice = slice_of(attribution->bounds, attribution->slices, gaps->ring[i].at, slice);
				if (slice == attribution->slices)
					break;
				double ticks = (double)gaps->ring[i].ticks;
				counts[slice]--;
				lost[slice] -= ticks;
				source->slices[slice] = fmax(source->slices[slice] - 1, 0);
				source->gaps.amount++;
				source->lost.amount += ticks;
			}
			source->gaps.known = source->lost.known = true;
		}
	}
}

/* Events of one row on one CPU in each slice; returns their sum. */
static double row_slices(const struct readings *readings, size_t label, size_t cpu, size_t slices, double *events)
{
	size_t place = label * readings->cpus->count + cpu;
	double sum = 0;
	for (size_t r = 0; r < slices; r++) {
		const struct reading *old = &readings->list[r], *new = &readings->list[r + 1];
		uint64_t from = label < old->labels ? old->counts[place] : 0;
		uint64_t to = label < new->labels ? new->counts[place] : from;
		events[r] = to > from ? (double)(to - from) : 0;
		sum += events[r];
	}
	return sum;
}

/* Of hundreds of rows few have events of one CPU: only those take memory. */
static void sources_make(struct attribution *attribution, const struct readings *readings, size_t cpu)
{
	size_t slices = attribution->slices;
	double *events = allocate(slices, sizeof(*events));
	attribution->sources = allocate(readings->label_count + 1, sizeof(*attribution->sources));
	for (size_t l = 0; l < readings->label_count; l++) {
		struct source source = {.class = readings->labels[l].class, .timer = readings->labels[l].timer};
		source.count = row_slices(readings, l, cpu, slices, events);
		if (source.count <= 0)
			continue;
		snprintf(source.label, sizeof(source.label), "%s", readings->labels[l].text);
		source.slices = allocate(slices, sizeof(*source.slices));
		memcpy(source.slices, events, slices * sizeof(*events));
		attribution->sources[attribution->source_count++] = source;
	}
	free(events);
	struct source switches = {.label = "involuntary switches", .class = SOURCE_SWITCHES};
	const struct reading *first = &readings->list[0], *last = &readings->list[slices];
	if (slices > 0 && first->switches[cpu] >= 0 && last->switches[cpu] >= 0) {
		switches.count = (double)(last->switches[cpu] - first->switches[cpu]);
		switches.gaps = (struct explained){true, switches.count}; /* the CPU is taken and given back: one gap each */
		switches.lost.known = first->waited[cpu] >= 0 && last->waited[cpu] >= 0;
		if (switches.lost.known)
			switches.lost.amount = (double)(last->waited[cpu] - first->waited[cpu]) * clock_now_used.hz / 1e9;
		else
			switches.reason = "waiting time unknown: this kernel has no schedstat";
		attribution->sources[attribution->source_count++] = switches;
	}
}

void attribution_make(struct attribution *attribution, const struct readings *readings, size_t cpu,
                      const struct gaps *gaps, const struct period *periods, size_t period_count, const uint8_t *owner)
{
	*attribution = (struct attribution){.bounds = readings->at};
	/* Where the ring is full nothing is known of the later gaps' times. */
	uint64_t known = gaps->kept < gaps->count ? gaps->ring[gaps->kept - 1].at : UINT64_MAX;
	while (attribution->slices + 1 < readings->count && readings->at[attribution->slices + 1] <= known)
		attribution->slices++;
	size_t slices = attribution->slices, slice = 0;
	double *counts = allocate(2 * slices, sizeof(*counts)), *lost = counts + slices;
	sources_make(attribution, readings, cpu);
	for (size_t i = 0; i < gaps->kept; i++) {
		if (slices == 0 || gaps->ring[i].at < attribution->bounds[0])
			continue;
		slice = slice_of(attribution->bounds, slices, gaps->ring[i].at, slice);
		if (slice == slices)
			break;
		counts[slice]++;
		lost[slice] += (double)gaps->ring[i].ticks;
		attribution->gaps++;
		attribution->lost_ticks += gaps->ring[i].ticks;
	}
	for (size_t r = 0; r < slices; r++) {
		const struct reading *old = &readings->list[r], *new = &readings->list[r + 1];
		if (old->switches[cpu] >= 0 && new->switches[cpu] >= 0)
			counts[r] -= (double)(new->switches[cpu] - old->switches[cpu]);
		if (old->waited[cpu] >= 0 && new->waited[cpu] >= 0)
			lost[r] -= (double)(new->waited[cpu] - old->waited[cpu]) * clock_now_used.hz / 1e9;
	}
	claim_periods(attribution, gaps, periods, period_count, owner, counts, lost);
	attribution_solve(attribution, counts, lost);
	/* The sources of hundreds of CPUs are kept until they are written, their slices are not. */
	for (size_t s = 0; s < attribution->source_count; s++) {
		free(attribution->sources[s].slices);
		attribution->sources[s].slices = NULL;
	}
	free(counts);
}

static const char *const class_names[] = {"interrupt", "softirq", "switch", "steal", "smi"};

static void source_write(struct json *json, const struct source *source, double seconds)
{
	json_object_begin(json, NULL);
	json_text(json, "source", source->label);
	json_text(json, "kind", class_names[source->class]);
	json_f64(json, "count", source->count);
	json_f64(json, "rate_per_s", source->count / seconds);
	json_f64_known(json, "explained_gaps", source->gaps.known, source->gaps.amount);
	json_f64_known(json, "explained_lost_ns", source->lost.known, clock_ns(source->lost.amount));
	json_text(json, "reason",
	          source->gaps.known && source->lost.known ? NULL
	          : source->reason                         ? source->reason
	                                                   : too_even);
	json_object_end(json);
}

void attribution_write(struct json *json, const char *key, const struct attribution *attribution, double steal_ms,
                       int64_t smi)
{
	size_t slices = attribution->slices;
	if (slices == 0) {
		json_null(json, key);
		return;
	}
	double seconds = clock_ns((double)(attribution->bounds[slices] - attribution->bounds[0])) / 1e9;
	json_object_begin(json, key);
	json_u64(json, "slices", slices);
	json_f64(json, "slice_s", seconds / (double)slices);
	json_u64(json, "gaps", attribution->gaps);
	json_f64(json, "lost_ns", clock_ns((double)attribution->lost_ticks));
	json_array_begin(json, "sources");
	for (size_t s = 0; s < attribution->source_count; s++)
		source_write(json, &attribution->sources[s], seconds);
	if (steal_ms >= 0) {
		/* Stolen time is part of the unattributed: the kernel's own account of it is shown beside, in steps of 10 ms. */
		struct source steal = {.label = "steal",
		                       .class = SOURCE_STEAL,
		                       .count = steal_ms,
		                       .reason = "counted in ms by the kernel, in steps of its clock, not in gaps"};
		source_write(json, &steal, seconds);
	}
	if (smi >= 0) {
		struct source interrupts = {.label = "SMI",
		                            .class = SOURCE_SMI,
		                            .count = (double)smi,
		                            .gaps.known = smi == 0,
		                            .lost.known = smi == 0,
		                            .reason = "read before and after only, because reading interrupts the CPU"};
		source_write(json, &interrupts, seconds);
	}
	json_array_end(json);
	json_f64(json, "unattributed_gaps", attribution->unattributed_gaps);
	json_f64(json, "unattributed_lost_ns", clock_ns(attribution->unattributed_lost));
	json_f64_known(json, "unattributed_share", attribution->gaps,
	               attribution->unattributed_gaps / (double)attribution->gaps);
	json_f64_known(json, "unattributed_lost_share", attribution->lost_ticks,
	               attribution->unattributed_lost / (double)attribution->lost_ticks);
	json_object_end(json);
}
