/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tables of options: one form for each kind, and those options that several subcommands have. */
#pragma once

#include "load.h"
#include "memory.h"
#include "options.h"
#include "pmu.h"
#include "samples.h"

/* Options of several subcommands, as they were given. */
struct common_options {
	uint64_t placements, windows, seed;
	double window_s, settle_s, background_s;
	const char *pages, *width, *sample;
	struct word_list events;
};
extern struct common_options common;

/* What --sample and --event ask for, each NULL where it was not given; `probes`: events may be of probes. */
bool common_parse(bool probes, const struct sample_request **sampled, struct pmu **pmu, struct error *error);
/* One of MEMORY_PAGE_CHOICES. */
enum page_kind page_kind_of(const char *word);

/* A NULL `initial` makes an option required. */
#define OPTION_ROW_U64(name, value, placeholder, initial, minimum, maximum, help)                                      \
	{name, OPTION_U64, value, placeholder, help, initial, NULL, minimum, maximum, false}
#define OPTION_ROW_F64(name, value, placeholder, initial, minimum, maximum, help)                                      \
	{name, OPTION_F64, value, placeholder, help, initial, NULL, minimum, maximum, false}
#define OPTION_ROW_LIST(name, value, placeholder, initial, minimum, maximum, help)                                     \
	{name, OPTION_U64_LIST, value, placeholder, help, initial, NULL, minimum, maximum, false}
#define OPTION_ROW_OPTIONAL_LIST(name, value, placeholder, minimum, maximum, help)                                     \
	{name, OPTION_U64_LIST, value, placeholder, help, NULL, NULL, minimum, maximum, true}
#define OPTION_ROW_WORD(name, value, choices, initial, help)                                                           \
	{name, OPTION_WORD, value, NULL, help, initial, choices, 0, 0, false}
#define OPTION_ROW_WORDS(name, value, choices, initial, help)                                                          \
	{name, OPTION_WORDS, value, NULL, help, initial, choices, 0, 0, false}
#define OPTION_ROW_TEXT(name, value, placeholder, initial, help)                                                       \
	{name, OPTION_TEXT, value, placeholder, help, initial, NULL, 0, 0, false}
#define OPTION_ROW_OPTIONAL_TEXT(name, value, placeholder, help)                                                       \
	{name, OPTION_TEXT, value, placeholder, help, NULL, NULL, 0, 0, true}
#define OPTION_ROW_REPEATED(name, value, placeholder, help)                                                            \
	{name, OPTION_REPEATED, value, placeholder, help, NULL, NULL, 0, 0, false}
#define OPTION_ROW_OPTIONAL_REPEATED(name, value, placeholder, help)                                                   \
	{name, OPTION_REPEATED, value, placeholder, help, NULL, NULL, 0, 0, true}
#define OPTION_ROW_FLAG(name, value, help) {name, OPTION_FLAG, value, NULL, help, NULL, NULL, 0, 0, false}

/* auto: hugetlb pages where reserved, else transparent ones: translation is not what is to be measured. */
#define OPTIONS_PAGES OPTION_ROW_WORD("--pages", &common.pages, MEMORY_PAGE_CHOICES, "auto", "pages wanted")
/* Six is the smallest number whose [min, max] covers the median with more than 95 %. */
#define OPTIONS_PLACEMENTS                                                                                             \
	OPTION_ROW_U64("--placements", &common.placements, "K", "6", 1, 1000, "allocations, each measured once")
/* A fixed seed makes two runs do the same; each placement derives its own, which is printed. */
#define OPTIONS_SEED(what) OPTION_ROW_U64("--seed", &common.seed, "S", "1", 0, 1ull << 53, "seed of " what)
#define OPTIONS_WIDTH                                                                                                  \
	OPTION_ROW_WORD("--width", &common.width, LOAD_WIDTH_CHOICES, "auto", "vector width; auto: the widest there is")
/* t0 is what compilers make of a prefetch without a hint. */
#define LOAD_HINT_HELP "where prefetches put lines: nearest cache, second, past the caches, to be written"
/* 0 spreads four lines over the streams: as many as follow one another before a delay. */
#define LOAD_VISIT_HELP "lines of a stream at each of its turns: 1, 2 or 4; 0: four over all streams, at least one"
#define OPTIONS_SAMPLE OPTION_ROW_OPTIONAL_TEXT("--sample", &common.sample, SAMPLES_NOTATION, SAMPLES_HELP)
#define OPTIONS_EVENT_WITH(more)                                                                                       \
	OPTION_ROW_OPTIONAL_REPEATED("--event", &common.events, PMU_NOTATION, PMU_EVENT_HELP more)
#define OPTIONS_EVENT OPTIONS_EVENT_WITH("")
/* A second shows what is a hundredth of the traffic of a minute's measurement, and costs that once. */
#define OPTIONS_BACKGROUND                                                                                             \
	OPTION_ROW_F64("--background-s", &common.background_s, "S", "1", 0, 600,                                           \
	               "count the events of CPUs for so long before anything is measured; 0: do not")
