// SPDX-License-Identifier: Apache-2.0
#include "evidence.h"

#include "corefreq.h"

void evidence_write(struct json *json, const struct evidence *evidence, const struct cpu_list *cpus)
{
	json_f64(json, "core_hz_before", corefreq_hz(evidence->core_before));
	json_f64(json, "core_hz_after", corefreq_hz(evidence->core_after));
	interference_write(json, "interference", &evidence->counts, &evidence->before, &evidence->after, cpus);
}
