// SPDX-License-Identifier: Apache-2.0
#include "evidence.h"

#include <math.h>

#include "corefreq.h"

void stretch_begin(struct stretch *stretch)
{
	stretch->core_before = corefreq_per_tick();
	stretch->counts = thread_counts_now();
}

void stretch_end(struct stretch *stretch, unsigned cpu)
{
	struct thread_counts after = thread_counts_now();
	stretch->counts = thread_counts_since(&after, &stretch->counts);
	stretch->core_after = corefreq_per_tick();
	stretch->verified = affinity_verify(cpu);
}

void stretch_add(struct stretch *threads, const struct stretch *more)
{
	threads->verified = threads->verified && more->verified;
	threads->core_before = fmin(threads->core_before, more->core_before);
	threads->core_after = fmin(threads->core_after, more->core_after);
	thread_counts_add(&threads->counts, &more->counts);
}

void stretch_write(struct json *json, const struct stretch *stretch, const struct snapshot *before,
                   const struct snapshot *after, const struct cpu_list *cpus)
{
	json_f64(json, "core_hz_before", corefreq_hz(stretch->core_before));
	json_f64(json, "core_hz_after", corefreq_hz(stretch->core_after));
	interference_write(json, "interference", &stretch->counts, before, after, cpus);
}

void evidence_write(struct json *json, const struct evidence *evidence, const struct cpu_list *cpus)
{
	stretch_write(json, &evidence->threads, &evidence->before, &evidence->after, cpus);
}

void evidence_begin_write(struct json *json, const char *key, const struct evidence *evidence)
{
	json_object_begin(json, key);
	json_u64(json, "seed", evidence->seed);
	pages_write(json, "pages", &evidence->pages);
	json_bool(json, "cpus_verified", evidence->threads.verified);
}

void evidence_counted_write(struct json *json, const struct evidence *evidence, const struct sample_request *sampled)
{
	samples_write(json, "samples", sampled, &evidence->samples);
	pmu_counts_write(json, "counters", evidence->counters);
}
