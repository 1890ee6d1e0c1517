// SPDX-License-Identifier: Apache-2.0
#include "option_rows.h"

struct common_options common;

bool common_parse(bool probes, const struct sample_request **sampled, struct pmu **pmu, struct error *error)
{
	static struct sample_request request;
	*sampled = common.sample ? &request : NULL;
	return (!common.sample || sample_parse(common.sample, &request, error)) &&
	       pmu_parse(&common.events, probes, pmu, error);
}

enum page_kind page_kind_of(const char *word)
{
	return (enum page_kind)option_choice(MEMORY_PAGE_CHOICES, word);
}
