// SPDX-License-Identifier: Apache-2.0
/* What is written and read: JSON, rows of sc-membench, options. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "affinity.h"
#include "csv.h"
#include "host.h"
#include "subcommand.h"

static bool case_json(struct error *error)
{
	struct json json = {0};
	json_object_begin(&json, NULL);
	json_text(&json, "a\"\\\n", "b\t\x7f\xff\xc3\xa4\xed\xa0\x80");
	json_array_begin(&json, "n");
	json_f64(&json, NULL, 0.1);
	json_i64(&json, NULL, INT64_MIN);
	json_u64(&json, NULL, UINT64_MAX);
	json_null(&json, NULL);
	json_array_end(&json);
	json_object_end(&json);
	bool same = !strcmp(json.text, "{\"a\\\"\\\\\\u000a\":\"b\\u0009\\u007f\\ufffd\xc3\xa4\\ufffd\\ufffd\\ufffd\","
	                               "\"n\":[0.1,-9223372036854775808,18446744073709551615,null]}");
	bool sound = !json.spoilt;
	json_f64(&json, "x", NAN);
	bool refused = json.spoilt && !strcmp(json.spoilt_key, "x");
	json_free(&json);
	json_f64(&json, NULL, INFINITY);
	refused = refused && json.spoilt;
	json_free(&json);
	EXPECT(same && sound && refused);
	return true;
}

static bool case_csv(struct error *error)
{
	struct csv_row read = {.size_bytes = 33000, .operation = "read", .bandwidth_mb_s = 1234.567, .threads = 2};
	struct csv_row latency = {.size_bytes = 1u << 30,
	                          .operation = "latency",
	                          .latency_ns = 101.005001,
	                          .latency_stddev_ns = 0.5,
	                          .latency_samples = 54,
	                          .threads = 1,
	                          .iterations = 54,
	                          .elapsed_s = 1.5};
	struct error refused = {0};
	csv_add(&read);
	csv_add(&latency);
	char *text = csv_text(error);
	bool right = text && !strcmp(text, "size_kb,operation,bandwidth_mb_s,latency_ns,latency_stddev_ns,latency_samples,"
	                                   "threads,iterations,elapsed_s\n"
	                                   "32,read,1234.57,0.00,0.00,0,2,0,0.000000\n"
	                                   "1048576,latency,0.00,101.01,0.50,54,1,54,1.500000\n");
	free(text);
	latency.latency_ns = NAN;
	csv_add(&latency);
	text = csv_text(&refused);
	bool spoilt = text == NULL && refused.code == ERROR_INTERNAL;
	free(text);
	EXPECT(right);
	EXPECT(spoilt);
	return true;
}

static bool case_options(struct error *error)
{
	static uint64_t number;
	static bool flag, other;
	static struct word_list words;
	const struct option table[] = {
		{"--number", OPTION_U64, &number, "N", "", "7", NULL, 1, 9, false},
		{"--flag", OPTION_FLAG, &flag, NULL, "", NULL, NULL, 0, 0, false},
		{"--other", OPTION_FLAG, &other, NULL, "", NULL, NULL, 0, 0, false},
		{"--word", OPTION_REPEATED, &words, "W", "", NULL, NULL, 0, 0, false},
	};
	const size_t count = sizeof(table) / sizeof(table[0]);
	char *good[] = {"--word", "--flag", "--flag", "--word", "b"}, *twice[] = {"--word", "a", "--flag", "--flag"},
		 *value[] = {"--word", "a", "--flag", "true"}, *none[] = {"--flag"};
	struct error refused = {0};
	other = true;
	EXPECT(options_parse(table, count, 5, good, error));
	EXPECT(number == 7 && flag && !other);
	EXPECT(words.count == 2 && !strcmp(words.words[0], "--flag") && !strcmp(words.words[1], "b"));
	EXPECT(!options_parse(table, count, 4, twice, &refused) && strstr(refused.message, "twice") != NULL);
	refused = (struct error){0};
	EXPECT(!options_parse(table, count, 4, value, &refused) && strstr(refused.message, "'true'") != NULL);
	refused = (struct error){0};
	EXPECT(!options_parse(table, count, 1, none, &refused) && strstr(refused.message, "--word") != NULL);
	struct json json = {0};
	json_object_begin(&json, NULL);
	options_write(table, count, &json);
	json_object_end(&json);
	/* as the last good parse and the refused ones before their fault left them */
	bool written = json.text && strstr(json.text, "\"number\":7,\"flag\":true,\"other\":false,") != NULL;
	json_free(&json);
	EXPECT(written);
	return true;
}

static bool case_cpu_lists(struct error *error)
{
	struct cpu_list list;
	EXPECT(cpu_list_parse(&list, "0-2,7,1", error) && list.count == 4 && list.cpus[3] == 7);
	cpu_list_free(&list);
	const char *const wrong[] = {"", "a", "1-", "3-1", "1,,2", "1 ", "-1", "0x1", "99999999"};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct error refused = {0};
		EXPECT(!cpu_list_parse(&list, wrong[i], &refused) && refused.code == ERROR_USAGE);
	}
	return true;
}

static const struct host_case cases[] = {
	{"cpu_lists", case_cpu_lists},
	{"json", case_json},
	{"csv", case_csv},
	{"options", case_options},
};

int main(void)
{
	return host_run(cases, sizeof(cases) / sizeof(cases[0]));
}
