// SPDX-License-Identifier: Apache-2.0
/* What is written and read: JSON, options, CPU lists, files. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "affinity.h"
#include "counter_budget.h"
#include "files.h"
#include "host.h"
#include "subcommand.h"
#include "warning.h"

/* What stands for a byte that is not of UTF-8. */
#define LOST "\\ufffd"

static bool case_json(struct error *error)
{
	struct json json = {0};
	json_object_begin(&json, NULL);
	json_text(&json, "a\"\\\n", "b\t\x7f\xff\xc3\xa4\xed\xa0\x80");
	/* the first and the last of each length; one before and one beyond */
	json_text(&json, "u", "\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
	json_text(&json, "v", "\xc1\xbf-\xe0\x9f\xbf-\xf0\x8f\xbf\xbf-\xf4\x90\x80\x80");
	json_array_begin(&json, "n");
	json_f64(&json, NULL, 0.1);
	json_i64(&json, NULL, INT64_MIN);
	json_u64(&json, NULL, UINT64_MAX);
	json_null(&json, NULL);
	json_array_end(&json);
	json_object_end(&json);
	bool same = !strcmp(
		json.text, "{\"a\\\"\\\\\\u000a\":\"b\\u0009\\u007f\\ufffd\xc3\xa4\\ufffd\\ufffd\\ufffd\","
				   "\"u\":\"\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\","
				   "\"v\":\"" LOST LOST "-" LOST LOST LOST "-" LOST LOST LOST LOST "-" LOST LOST LOST LOST "\","
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

static int next_descriptor(void)
{
	int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
	close(next);
	return next;
}

/* A file that is read again and again takes no more descriptors, whether it can be read or not. */
static bool case_files(struct error *error)
{
	const int before = next_descriptor();
	char *text = file_read("/proc/self/stat");
	bool whole = text && strrchr(text, ')');
	free(text);
	EXPECT(before >= 0 && whole);
	EXPECT(!file_read("/proc/self/nothing") && errno == ENOENT);
	EXPECT(!file_read("/proc/self") && errno == EISDIR);
	EXPECT(!file_read_within("/proc/self/stat", 0) && errno == ETIME);
	EXPECT(next_descriptor() == before);
	return true;
}

static bool case_left_out(struct error *error)
{
	struct json json = {0};
	counter_budget_count();
	counter_budget_leave_out(COUNTER_SMI);
	counter_budget_warn();
	warning_write(&json, NULL);
	bool told = strstr(json.text, "left out SMI counts in 1\"") != NULL;
	json_free(&json);
	EXPECT(told);
	return true;
}

HOST_CASES(CASE(cpu_lists), CASE(files), CASE(json), CASE(left_out), CASE(options))
