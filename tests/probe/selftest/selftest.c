// SPDX-License-Identifier: Apache-2.0
#include "selftest.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "injection.h"
#include "option_rows.h"
#include "planting.h"
#include "stopping.h"
#include "subcommand.h"

/* What a case has to say beside its outcome. */
static char noted[320];

void selftest_note(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(noted, sizeof(noted), format, arguments);
	va_end(arguments);
}

static bool case_trace_planted(struct error *error)
{
	return planting_check(injection_s, noted, sizeof(noted), error);
}

static const struct {
	const char *name;
	bool (*run)(struct error *error);
} cases[] = {
	{"clock", case_clock},
	{"instructions", case_instructions},
	{"chain", case_chain},
	{"large_chain", case_large_chain},
	{"interleave", case_interleave},
	{"gap_books", case_gap_books},
	{"gap_injection", injection_by_signal},
	{"gap_injector", injection_by_injector},
	{"trace_planted", case_trace_planted},
	{"core_work", case_core_work},
	{"kernels", case_kernels},
	{"affinity", case_affinity},
	{"placement", case_placement},
	{"generator", case_generator},
};

/* A wrong answer is worse than a case that this machine cannot do, and that worse than one that was not begun. */
static int gravity(enum error_code code)
{
	switch (code) {
	case ERROR_NONE:
		return 0;
	case ERROR_INTERRUPTED:
	case ERROR_DEADLINE:
		return 1;
	case ERROR_CHECK_FAILED:
		return 3;
	default:
		return 2;
	}
}

static const char *wanted;

static bool measure(struct json *result, struct error *error)
{
	size_t begun = 0;
	json_object_begin(result, NULL);
	json_array_begin(result, "cases");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error found = {0}, named = {0};
		if (strcmp(wanted, "all") != 0 && strcmp(wanted, cases[i].name) != 0)
			continue;
		noted[0] = '\0';
		if (!stop_error(&found)) {
			begun++;
			if (!cases[i].run(&found) && found.code == ERROR_NONE)
				error_set(&found, ERROR_INTERNAL, "failed without a reason");
		}
		json_object_begin(result, NULL);
		json_text(result, "name", cases[i].name);
		json_bool(result, "passed", found.code == ERROR_NONE);
		error_write(result, &found);
		json_text(result, "note", noted[0] ? noted : NULL);
		json_object_end(result);
		if (gravity(found.code) > gravity(error->code)) {
			error_set(&named, found.code, "case %s: %s", cases[i].name, found.message);
			*error = named;
		}
	}
	json_array_end(result);
	injection_write(result);
	planting_write(result);
	json_object_end(result);
	return begun > 0;
}

static const struct option table[] = {
	/* Two seconds have twenty of the rarest injection; a minute has enough of them to see 1 % missing. */
	OPTION_ROW_F64("--injection-s", &injection_s, "S", "2", 0, 600,
	               "seconds that injected gaps are watched, for each mechanism"),
	OPTION_ROW_TEXT("--case", &wanted, "NAME|all", "all", "the case to ask, by its name"),
};

static bool prepare(struct error *error)
{
	bool known = !strcmp(wanted, "all");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		known = known || !strcmp(wanted, cases[i].name);
	return known || error_set(error, ERROR_USAGE, "--case: no case '%s'", wanted);
}

static const struct subcommand selftest = {
	"selftest", "known answers of every part", SUBCOMMAND_OPTIONS(table), prepare, measure,
};

/* What the build writes for sutprobe itself. */
const struct build_info build_info = {"selftest", "selftest", "selftest", "selftest", "selftest"};
const struct subcommand *const subcommands[] = {&selftest, NULL};
