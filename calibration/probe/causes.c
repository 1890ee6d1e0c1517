// SPDX-License-Identifier: Apache-2.0
#include "causes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

/* Entering and leaving the kernel takes some hundred ns, and refilling caches afterwards a few us, on slow machines as long as
 * the work itself. What is longer had another reason: a hypervisor, or firmware, that a late timer only came after. */
#define EDGE_NS 5000.0
#define EDGE_MAX_NS 100000.0
#define DEPTH 16u
/* The name of a task stands in so many characters, aligned to their right; the dash before its number follows. */
#define TASK_WIDTH 16

#define VECTOR(name, class, cause)                                                                                     \
	{"irq_vectors", name "_entry", EVENT_BEGINS, class, cause, NULL, NULL, NULL, NULL},                                \
	{                                                                                                                  \
		"irq_vectors", name "_exit", EVENT_ENDS, class, NULL, NULL, NULL, NULL, NULL                                   \
	}
#define ACCOUNTS(name, class) {"osnoise", name, EVENT_ACCOUNTS, class, NULL, NULL, NULL, NULL, NULL}
#define ENDS(system, name) {system, name, EVENT_ENDS, CAUSE_VECTOR, NULL, NULL, NULL, NULL, NULL}

const struct trace_event trace_events[] = {
	{"irq", "irq_handler_entry", EVENT_BEGINS, CAUSE_INTERRUPT, NULL, " name=", "\n", NULL, " irq="},
	ENDS("irq", "irq_handler_exit"),
	{"irq", "softirq_entry", EVENT_BEGINS, CAUSE_SOFTIRQ, NULL, "[action=", "]\n", NULL, NULL},
	ENDS("irq", "softirq_exit"),
	VECTOR("local_timer", CAUSE_TIMER, "local timer"),
	VECTOR("reschedule", CAUSE_IPI, "reschedule"),
	VECTOR("call_function", CAUSE_IPI, "function call"),
	VECTOR("call_function_single", CAUSE_IPI, "function call"),
	VECTOR("irq_work", CAUSE_VECTOR, "irq work"),
	VECTOR("x86_platform_ipi", CAUSE_VECTOR, "platform IPI"),
	VECTOR("thermal_apic", CAUSE_VECTOR, "thermal event"),
	VECTOR("threshold_apic", CAUSE_VECTOR, "machine check threshold"),
	VECTOR("deferred_error_apic", CAUSE_VECTOR, "deferred error"),
	VECTOR("error_apic", CAUSE_VECTOR, "APIC error"),
	VECTOR("spurious_apic", CAUSE_VECTOR, "spurious interrupt"),
	/* Of architectures without vectors: their IPIs have names. */
	{"ipi", "ipi_entry", EVENT_BEGINS, CAUSE_IPI, NULL, "(", ")\n", NULL, NULL},
	ENDS("ipi", "ipi_exit"),
	{"csd", "csd_function_entry", EVENT_BEGINS, CAUSE_IPI, "function call", NULL, NULL, "func=", NULL},
	ENDS("csd", "csd_function_exit"),
	{"nmi", "nmi_handler", EVENT_REPORTS, CAUSE_NMI, NULL, " ", "( \n", NULL, NULL},
	{"timer", "hrtimer_expire_entry", EVENT_BEGINS, CAUSE_TIMER, "hrtimer", NULL, NULL, "function=", NULL},
	ENDS("timer", "hrtimer_expire_exit"),
	{"timer", "timer_expire_entry", EVENT_BEGINS, CAUSE_TIMER, "timer wheel", NULL, NULL, "function=", NULL},
	ENDS("timer", "timer_expire_exit"),
	{"workqueue", "workqueue_execute_start", EVENT_BEGINS, CAUSE_WORK, NULL, NULL, NULL, "function ", NULL},
	ENDS("workqueue", "workqueue_execute_end"),
	{"sched", "sched_switch", EVENT_SWITCHES, CAUSE_TASK, NULL, NULL, NULL, NULL, NULL},
	ACCOUNTS("irq_noise", CAUSE_INTERRUPT),
	ACCOUNTS("nmi_noise", CAUSE_NMI),
	ACCOUNTS("softirq_noise", CAUSE_SOFTIRQ),
	ACCOUNTS("thread_noise", CAUSE_TASK),
};
const size_t trace_event_count = sizeof(trace_events) / sizeof(trace_events[0]);

static const struct {
	enum cause_class class;
	const char *kind;
} noise_classes[NOISE_CLASSES] = {
	{CAUSE_INTERRUPT, "irq"}, {CAUSE_NMI, "nmi"}, {CAUSE_SOFTIRQ, "softirq"}, {CAUSE_TASK, "thread"}};

struct line {
	const struct trace_event *event;
	double at; /* ticks */
	char task[TASK_WIDTH + 1];
	int64_t pid;
	const char *fields; /* with the blank before the first */
};

struct frame {
	const struct trace_event *event;
	struct cause *cause;
};

/* Where the reader is: in which gap, and inside of what. */
struct reader {
	struct causes *causes;
	const struct gap *gaps;
	size_t count, now;
	const struct trace_clock *clock;
	int thread;
	bool asleep;      /* when a gap begins */
	bool inside;      /* an event of this gap was seen */
	double last;      /* time up to which the gap is explained */
	double explained; /* ticks of it that are some cause's */
	struct frame stack[DEPTH];
	size_t depth;
};

static void copy_until(char *to, size_t size, const char *from, const char *end)
{
	snprintf(to, size, "%.*s", (int)strcspn(from, end), from);
}

static const char *last_of(const char *text, const char *wanted)
{
	const char *found = NULL;
	for (const char *at = text; (at = strstr(at, wanted)); at++)
		found = at;
	return found ? found + strlen(wanted) : NULL;
}

/* "            bash-5312    [001] d.h1. 127332741612583: local_timer_entry: vector=236": the time is ticks, or seconds with a
 * fraction. False for a line that is no event; `event` is NULL for one that is not asked for. */
static bool line_read(struct line *line, const char *text, const struct trace_clock *clock)
{
	const char *at = text + TASK_WIDTH, *time;
	char *end;
	if (strlen(text) <= TASK_WIDTH || *at != '-')
		return false;
	size_t blanks = strspn(text, " ");
	blanks = blanks < TASK_WIDTH ? blanks : TASK_WIDTH;
	memcpy(line->task, text + blanks, TASK_WIDTH - blanks);
	line->task[TASK_WIDTH - blanks] = '\0';
	line->pid = strtoll(at + 1, &end, 10);
	at = end + strspn(end, " ");
	if (end == text + TASK_WIDTH + 1 || *at != '[')
		return false;
	at += strcspn(at, "]\n");
	if (*at != ']')
		return false;
	/* Flags, where the kernel prints any, then the time. */
	time = at + 1 + strspn(at + 1, " ");
	size_t digits = strspn(time, "0123456789.");
	if (time[digits] != ':') {
		time += strcspn(time, " \n");
		time += strspn(time, " ");
		digits = strspn(time, "0123456789.");
	}
	if (!digits || time[digits] != ':' || time[digits + 1] != ' ')
		return false;
	unsigned long long whole = strtoull(time, &end, 10);
	if (*end == '.')
		line->at = clock->ticks + ((double)whole * 1e9 + strtod(end, NULL) * 1e9 - clock->raw_ns) * clock->per_ns;
	else
		line->at = (double)whole;
	const char *name = time + digits + 2;
	size_t length = strcspn(name, ":\n");
	if (name[length] != ':')
		return false;
	line->fields = name + length + 1;
	line->event = NULL;
	for (size_t i = 0; i < trace_event_count && !line->event; i++)
		if (strlen(trace_events[i].name) == length && !memcmp(trace_events[i].name, name, length))
			line->event = &trace_events[i];
	return true;
}

static struct cause *cause_of(struct cause *known, size_t *count, const struct cause *wanted)
{
	/* Threads of one name are one cause: what starts a new one each second would otherwise be many. */
	bool task = wanted->class == CAUSE_TASK || wanted->class == CAUSE_WORK;
	static const struct cause others = {.class = CAUSE_VECTOR, .name = "other causes", .number = -1};
	for (size_t i = 0; i < *count; i++) {
		struct cause *cause = &known[i];
		if (cause->class == wanted->class && (task || cause->number == wanted->number) &&
		    !strcmp(cause->name, wanted->name) && !strcmp(cause->function, wanted->function)) {
			cause->number = cause->number == wanted->number ? cause->number : -1;
			return cause;
		}
	}
	if (*count == CAUSES_MAX)
		return &known[CAUSES_MAX - 1];
	struct cause *added = &known[(*count)++];
	*added = *count == CAUSES_MAX ? others : *wanted;
	return added;
}

/* What an event says that it begins, or has been. */
static struct cause *named(struct causes *causes, const struct line *line)
{
	const struct trace_event *event = line->event;
	struct cause cause = {.class = event->class, .number = -1};
	const char *name = event->label ? strstr(line->fields, event->label) : NULL;
	const char *function = event->function ? strstr(line->fields, event->function) : NULL;
	const char *number = event->number ? strstr(line->fields, event->number) : NULL;
	if (event->class == CAUSE_WORK) {
		copy_until(cause.name, sizeof(cause.name), line->task, "");
		cause.number = line->pid;
	} else if (event->cause) {
		copy_until(cause.name, sizeof(cause.name), event->cause, "");
	} else if (name) {
		copy_until(cause.name, sizeof(cause.name), name + strlen(event->label), event->label_end);
	}
	if (function)
		copy_until(cause.function, sizeof(cause.function), function + strlen(event->function), " ,\n");
	if (number)
		cause.number = strtoll(number + strlen(event->number), NULL, 10);
	/* POWER's IPIs are interrupts like a device's, named IPI or IPI-1, of node 1. */
	if (cause.class == CAUSE_INTERRUPT && !strncmp(cause.name, "IPI", 3))
		cause.class = CAUSE_IPI;
	return cause_of(causes->list, &causes->count, &cause);
}

static double gap_begin(const struct reader *reader)
{
	return (double)reader->gaps[reader->now].at - reader->clock->tolerance;
}

static double gap_end(const struct reader *reader)
{
	const struct gap *gap = &reader->gaps[reader->now];
	return (double)gap->at + (double)gap->ticks + reader->clock->tolerance;
}

static void add_remainder(struct remainder *remainder, double ticks)
{
	remainder->gaps++;
	remainder->ticks += ticks;
	remainder->longest = ticks > remainder->longest ? ticks : remainder->longest;
}

/* Keeps a gap if it is among the longest; the owner is its cause if it took at least half of it. */
static void keep_long(struct causes *causes, const struct gap *gap, const struct cause *owner)
{
	size_t at = causes->longest_kept < LONG_GAPS ? causes->longest_kept++ : LONG_GAPS;
	bool owned = owner && 2 * owner->now_ticks >= (double)gap->ticks;
	for (; at > 0 && causes->longest[at - 1].gap.ticks < gap->ticks; at--)
		if (at < LONG_GAPS)
			causes->longest[at] = causes->longest[at - 1];
	if (at < LONG_GAPS)
		causes->longest[at] = (struct long_gap){*gap, owned ? (size_t)(owner - causes->list) : LONG_GAPS_UNOWNED};
}

/* The gap at hand is over: the books are made up. What a lost end left open is closed with it, because between two gaps the
 * measuring thread ran, inside of nothing. */
static void gap_over(struct reader *reader)
{
	struct causes *causes = reader->causes;
	double ticks = (double)reader->gaps[reader->now].ticks, rest = ticks - reader->explained;
	struct cause *owner = NULL;
	for (size_t i = 0; i < causes->count; i++) {
		struct cause *cause = &causes->list[i];
		if (cause->now_events == 0 && cause->now_ticks == 0)
			continue;
		cause->gaps++;
		cause->events += cause->now_events;
		cause->ticks += cause->now_ticks;
		cause->longest = cause->now_ticks > cause->longest ? cause->now_ticks : cause->longest;
		owner = !owner || cause->now_ticks > owner->now_ticks ? cause : owner;
	}
	if (owner)
		owner->owned++;
	keep_long(causes, &reader->gaps[reader->now], owner);
	for (size_t i = 0; i < causes->count; i++) {
		causes->list[i].now_events = 0;
		causes->list[i].now_ticks = 0;
	}
	rest = rest > 0 ? rest : 0;
	causes->gaps++;
	causes->ticks += ticks;
	causes->unexplained_whole += owner == NULL;
	if (owner && (clock_ns(rest) <= EDGE_NS || (rest <= reader->explained && clock_ns(rest) <= EDGE_MAX_NS)))
		add_remainder(&causes->edges, rest);
	else
		add_remainder(&causes->unexplained, rest);
	reader->now++;
	reader->inside = false;
	reader->depth = 0;
	reader->explained = 0;
}

static void take(struct reader *reader, struct cause *cause, double ticks)
{
	double room = (double)reader->gaps[reader->now].ticks - reader->explained;
	ticks = ticks < room ? ticks : room;
	ticks = ticks > 0 ? ticks : 0;
	cause->now_ticks += ticks;
	reader->explained += ticks;
}

/* The time since the last event is that of the innermost work. */
static void advance(struct reader *reader, double at)
{
	if (reader->depth > 0 && at > reader->last)
		take(reader, reader->stack[reader->depth - 1].cause, at - reader->last);
	reader->last = at > reader->last ? at : reader->last;
}

static void push(struct reader *reader, const struct trace_event *event, struct cause *cause)
{
	cause->now_events++;
	/* Deeper than the kernel nests: the time stays with what is around it. */
	if (reader->depth < DEPTH)
		reader->stack[reader->depth++] = (struct frame){event, cause};
}

static bool ends(const struct trace_event *end, const struct trace_event *begin)
{
	size_t length = (size_t)(strrchr(end->name, '_') - end->name);
	return !strcmp(end->system, begin->system) && strlen(begin->name) > length && begin->name[length] == '_' &&
	       !strchr(begin->name + length + 1, '_') && !memcmp(begin->name, end->name, length);
}

static void switched(struct reader *reader, const struct line *line)
{
	struct cause task = {.class = CAUSE_TASK, .number = -1};
	const char *next = last_of(line->fields, " ==> next_comm="), *pid = last_of(line->fields, " next_pid=");
	/* Whatever else was open belonged to the thread that is left. */
	reader->depth = 0;
	if (!next || !pid)
		return;
	task.number = strtoll(pid, NULL, 10);
	if (task.number == reader->thread)
		return;
	snprintf(task.name, sizeof(task.name), "%.*s", (int)(pid - strlen(" next_pid=") - next), next);
	push(reader, line->event, cause_of(reader->causes->list, &reader->causes->count, &task));
}

/* Several NMI handlers may report of one NMI; each of its own time. */
static void reported(struct reader *reader, const struct line *line)
{
	const char *taken = strstr(line->fields, "delta_ns: ");
	double ticks = taken ? strtod(taken + strlen("delta_ns: "), NULL) * clock_now_used.hz / 1e9 : 0;
	double begin = line->at - ticks, end = line->at;
	struct cause *cause = named(reader->causes, line);
	begin = begin > reader->last ? begin : reader->last;
	advance(reader, begin);
	take(reader, cause, end - begin);
	reader->last = end > reader->last ? end : reader->last;
	cause->now_events++;
}

/* "     rcuc/1:33 start 25.367204533 duration 52304 ns": the net time of what is over. Nothing accounted for is longer than the
 * gap that it lies in, but what had begun before the tracer watched, whose start it does not know, and the work of the measuring
 * thread itself. */
static void account(struct reader *reader, const struct line *line)
{
	struct cause cause = {.class = line->event->class, .number = -1};
	const char *name = line->fields + strspn(line->fields, " "), *end = NULL;
	const char *start = last_of(line->fields, " start "), *duration = last_of(line->fields, " duration ");
	if (!start || !duration) {
		reader->causes->unreadable++;
		return;
	}
	for (const char *at = name; at < start; at++)
		end = *at == ':' ? at : end;
	if (end) {
		snprintf(cause.name, sizeof(cause.name), "%.*s", (int)(end - name), name);
		cause.number = strtoll(end + 1, NULL, 10);
	}
	double ticks = strtod(duration, NULL) * clock_now_used.hz / 1e9;
	if (strtod(start, NULL) == 0 || ticks > gap_end(reader) - gap_begin(reader) ||
	    (cause.class == CAUSE_TASK && cause.number == reader->thread))
		return;
	for (size_t i = 0; i < NOISE_CLASSES; i++)
		if (noise_classes[i].class == cause.class) {
			struct noise *noise = &reader->causes->noise[i];
			struct cause *known = cause_of(noise->list, &noise->count, &cause);
			known->events++;
			known->ticks += ticks;
			known->longest = ticks > known->longest ? ticks : known->longest;
		}
}

/* Every event says in which thread it happened: so the first of a gap says which ran since the gap began. */
static void ran_before(struct reader *reader, const struct line *line)
{
	struct cause task = {.class = CAUSE_TASK, .number = line->pid};
	const struct trace_event *event = trace_events;
	while (event->role != EVENT_SWITCHES)
		event++;
	copy_until(task.name, sizeof(task.name), line->task, "");
	push(reader, event, cause_of(reader->causes->list, &reader->causes->count, &task));
}

static void event_take(struct reader *reader, const struct line *line)
{
	while (reader->now < reader->count && gap_end(reader) < line->at)
		gap_over(reader);
	if (reader->now == reader->count || line->at < gap_begin(reader))
		return;
	if (line->event->role == EVENT_ACCOUNTS) {
		account(reader, line);
		return;
	}
	if (!reader->inside) {
		reader->inside = true;
		reader->last = gap_begin(reader);
		if (reader->asleep && line->pid != 0 && line->pid != reader->thread)
			ran_before(reader, line);
	}
	if (line->event->role == EVENT_REPORTS) {
		reported(reader, line);
		return;
	}
	advance(reader, line->at);
	if (line->event->role == EVENT_SWITCHES) {
		switched(reader, line);
	} else if (line->event->role == EVENT_BEGINS) {
		push(reader, line->event, named(reader->causes, line));
	} else {
		for (size_t i = reader->depth; i-- > 0;)
			if (ends(line->event, reader->stack[i].event)) {
				reader->depth = i;
				break;
			}
	}
}

bool causes_read(struct causes *causes, FILE *text, const struct gap *gaps, size_t count, int thread, bool asleep,
                 const struct trace_clock *clock, bool events_lost)
{
	struct reader reader = {
		.causes = causes, .gaps = gaps, .count = count, .clock = clock, .thread = thread, .asleep = asleep};
	struct line line;
	char *row = NULL;
	size_t size = 0;
	bool first = true;
	memset(causes, 0, sizeof(*causes));
	while (getline(&row, &size, text) > 0) {
		if (row[0] == '#' || row[0] == '\n')
			continue;
		causes->lines++;
		if (!line_read(&line, row, clock)) {
			/* The kernel's own remark on lost events is no event. */
			causes->unreadable += strncmp(row, "CPU:", 4) != 0;
			continue;
		}
		if (!line.event)
			continue;
		if (first && events_lost)
			while (reader.now < count && gap_begin(&reader) < line.at)
				reader.now++;
		first = false;
		event_take(&reader, &line);
	}
	free(row);
	while (reader.now < reader.count && !(first && events_lost))
		gap_over(&reader);
	return !ferror(text);
}

static int compare_causes(const void *left, const void *right)
{
	const struct cause *a = left, *b = right;
	return (a->ticks < b->ticks) - (a->ticks > b->ticks);
}

static void times_write(struct json *json, const struct causes *causes, double ticks, double longest)
{
	json_f64(json, "total_ns", clock_ns(ticks));
	json_f64(json, "longest_ns", clock_ns(longest));
	json_f64_known(json, "share", causes->ticks > 0, ticks / causes->ticks);
}

static const char *const classes[] = {
	[CAUSE_INTERRUPT] = "interrupt", [CAUSE_TIMER] = "timer", [CAUSE_IPI] = "ipi",
	[CAUSE_VECTOR] = "vector",       [CAUSE_NMI] = "nmi",     [CAUSE_SOFTIRQ] = "softirq",
	[CAUSE_TASK] = "task",           [CAUSE_WORK] = "work",
};

static void cause_write(struct json *json, const struct cause *cause)
{
	json_text(json, "kind", classes[cause->class]);
	json_text(json, "name", cause->name);
	json_text(json, "function", cause->function[0] ? cause->function : NULL);
}

void causes_longest_write(struct json *json, const char *key, const struct causes *causes,
                          double (*at)(const void *, uint64_t), const void *of)
{
	json_array_begin(json, key);
	for (size_t i = 0; i < causes->longest_kept; i++) {
		const struct long_gap *gap = &causes->longest[i];
		json_object_begin(json, NULL);
		json_f64(json, "at_ns", at(of, gap->gap.at));
		json_f64(json, "length_ns", clock_ns((double)gap->gap.ticks));
		if (json_object_known(json, "cause", gap->owner != LONG_GAPS_UNOWNED)) {
			cause_write(json, &causes->list[gap->owner]);
			json_object_end(json);
		}
		json_object_end(json);
	}
	json_array_end(json);
}

void causes_write(struct json *json, struct causes *causes)
{
	qsort(causes->list, causes->count, sizeof(causes->list[0]), compare_causes);
	json_array_begin(json, "causes");
	for (size_t i = 0; i < causes->count; i++) {
		const struct cause *cause = &causes->list[i];
		if (!cause->gaps)
			continue;
		bool task = cause->class == CAUSE_TASK || cause->class == CAUSE_WORK;
		json_object_begin(json, NULL);
		cause_write(json, cause);
		json_i64_known(json, "irq", cause->number >= 0 && !task, cause->number);
		json_i64_known(json, "pid", cause->number >= 0 && task, cause->number);
		json_u64(json, "events", cause->events);
		json_u64(json, "gaps", cause->gaps);
		json_u64(json, "owned", cause->owned);
		times_write(json, causes, cause->ticks, cause->longest);
		json_object_end(json);
	}
	json_array_end(json);
	json_object_begin(json, "edges");
	json_u64(json, "gaps", causes->edges.gaps);
	times_write(json, causes, causes->edges.ticks, causes->edges.longest);
	json_object_end(json);
	json_object_begin(json, "unexplained");
	json_u64(json, "gaps", causes->unexplained.gaps);
	json_u64(json, "without_events", causes->unexplained_whole);
	times_write(json, causes, causes->unexplained.ticks, causes->unexplained.longest);
	json_object_end(json);
}

void noise_write(struct json *json, const char *key, struct causes *causes)
{
	json_array_begin(json, key);
	for (size_t i = 0; i < NOISE_CLASSES; i++) {
		struct noise *noise = &causes->noise[i];
		struct cause all = {0};
		for (size_t n = 0; n < noise->count; n++) {
			all.events += noise->list[n].events;
			all.ticks += noise->list[n].ticks;
			all.longest = noise->list[n].longest > all.longest ? noise->list[n].longest : all.longest;
		}
		qsort(noise->list, noise->count, sizeof(noise->list[0]), compare_causes);
		json_object_begin(json, NULL);
		json_text(json, "kind", noise_classes[i].kind);
		json_u64(json, "count", all.events);
		times_write(json, causes, all.ticks, all.longest);
		json_array_begin(json, "names");
		for (size_t n = 0; n < noise->count; n++) {
			const struct cause *cause = &noise->list[n];
			if (!cause->name[0])
				continue; /* NMIs have none */
			json_object_begin(json, NULL);
			json_text(json, "name", cause->name);
			json_i64_known(json, "number", cause->number >= 0, cause->number);
			json_u64(json, "count", cause->events);
			times_write(json, causes, cause->ticks, cause->longest);
			json_object_end(json);
		}
		json_array_end(json);
		json_object_end(json);
	}
	json_array_end(json);
}
