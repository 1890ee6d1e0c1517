// SPDX-License-Identifier: Apache-2.0
/* Dispatch, supervision and the envelope of the document. The main thread never measures: it waits for the work to
 * end, for a signal, for the deadline, or for the reader of stdout to go away, whichever comes first. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "affinity.h"
#include "allocate.h"
#include "arch/arch.h"
#include "cgroup.h"
#include "clock.h"
#include "counter_budget.h"
#include "error.h"
#include "interference.h"
#include "json.h"
#include "memory.h"
#include "option_rows.h"
#include "stopping.h"
#include "subcommand.h"
#include "warning.h"

#define EXIT_INTERRUPTED 4
/* What a pipe takes in one piece; larger writes could block with a signal waiting. */
#define WRITE_BYTES 4096
/* How long an ended process waits for its reader to take the document; a second would lose it on a busy controller. */
#define WRITING_GRACE_S 5
/* How long work that was told to end may take to hand over what it has: a placement of a large buffer is made and walked
 * within a second or two. Longer than the controller waits before it kills would lose the document. */
#define STOPPING_GRACE_S 3
/* timeout(1) sends its signal to the process and again to its whole group, and a shell passes on what a terminal sends as
 * well: what comes so soon after the first signal is the same request. Nobody presses a key twice within that time. */
#define ONE_REQUEST_NS 200000000u

/* What the working thread fills in; nobody else looks at it before that thread has been joined. */
static struct {
	struct json result;
	struct error error;
	bool measured; /* something */
} worked;

struct document {
	int argc;
	char **argv;
	uint64_t started_unix_ns, started_raw_ns;
	struct cgroup_stops stops; /* when it started */
	struct json parameters, result;
	struct error error;
	bool given_up; /* the working thread was not waited for, and may still be at work */
};

static struct {
	double deadline_s;
	struct document document;
	const struct subcommand *subcommand;
	uint64_t signal_ns; /* when the first signal was seen, 0 before */
	int finished;       /* eventfd */
	int signals;
	int deadline;
} state;

static const struct option common_options[] = {
	/* Ten minutes are longer than any one step of a plan; without a deadline a hung step would hold a SUT for ever. */
	OPTION_ROW_F64("--deadline-s", &state.deadline_s, "S", "600", 0, 1000000,
	               "end the process when it has run this long"),
};
#define COMMON_OPTIONS (sizeof(common_options) / sizeof(common_options[0]))

void supervise_avoid(const struct cpu_list *measured)
{
	interference_of(measured);
	affinity_avoid(getpid(), measured);
	affinity_avoid(0, measured);
}

static void print_usage(void)
{
	fprintf(stderr, "usage: sutprobe SUBCOMMAND OPTIONS\n\n");
	for (size_t i = 0; subcommands[i]; i++)
		fprintf(stderr, "  %-10s %s\n", subcommands[i]->name, subcommands[i]->summary);
	fprintf(stderr, "\nsutprobe SUBCOMMAND --help explains the options of one. stdout is one JSON document.\n");
}

static const struct subcommand *find_subcommand(const char *name)
{
	for (size_t i = 0; subcommands[i]; i++)
		if (!strcmp(subcommands[i]->name, name))
			return subcommands[i];
	return NULL;
}

enum event { EVENT_NONE, EVENT_FINISHED, EVENT_SIGNAL, EVENT_DEADLINE, EVENT_READER_GONE, EVENT_WRITABLE };

static void take_signal(void)
{
	struct signalfd_siginfo taken;
	(void)!read(state.signals, &taken, sizeof(taken));
}

/* Whether a signal that is there to be read is the first, or one that asks again. */
static bool another_request(void)
{
	uint64_t now_ns = clock_raw_ns();
	if (state.signal_ns && now_ns - state.signal_ns < ONE_REQUEST_NS) {
		take_signal();
		return false;
	}
	state.signal_ns = now_ns;
	return true;
}

/* Waits for the first thing that matters. `write` asks for room in stdout instead of for the end of the work. */
static enum event wait_event(bool write)
{
	struct pollfd polled[] = {
		{.fd = STDOUT_FILENO, .events = write ? POLLOUT : 0},
		{.fd = state.signals, .events = POLLIN},
		{.fd = state.deadline, .events = POLLIN},
		{.fd = write ? -1 : state.finished, .events = POLLIN},
	};
	for (;;) {
		if (poll(polled, sizeof(polled) / sizeof(polled[0]), -1) < 0) {
			if (errno == EINTR)
				continue;
			return EVENT_READER_GONE; /* cannot wait, so cannot promise to end: end now */
		}
		if (polled[0].revents & (POLLERR | POLLNVAL | POLLHUP))
			return EVENT_READER_GONE;
		if (polled[1].revents && another_request())
			return EVENT_SIGNAL;
		if (polled[2].revents)
			return EVENT_DEADLINE;
		if (polled[3].revents)
			return EVENT_FINISHED;
		if (polled[0].revents & POLLOUT)
			return EVENT_WRITABLE;
	}
}

static int write_whole(const char *text, size_t length)
{
	for (size_t done = 0; done < length;) {
		enum event event = wait_event(true);
		if (event != EVENT_WRITABLE)
			return event == EVENT_DEADLINE ? 3 : EXIT_INTERRUPTED;
		size_t rest = length - done;
		ssize_t written = write(STDOUT_FILENO, text + done, rest < WRITE_BYTES ? rest : WRITE_BYTES);
		if (written < 0 && errno != EINTR && errno != EAGAIN) {
			fprintf(stderr, "sutprobe: writing the document: %s\n", strerror(errno));
			return errno == EPIPE ? EXIT_INTERRUPTED : 3;
		}
		if (written > 0)
			done += (size_t)written;
	}
	return 0;
}

static void build_write(struct json *json)
{
	json_object_begin(json, "build");
	json_text(json, "version", build_info.version);
	json_text(json, "target", build_info.target);
	json_text(json, "compiler", build_info.compiler);
	json_text(json, "flags", build_info.flags);
	json_text(json, "source_sha256", build_info.source_sha256);
	json_object_end(json);
}

static void host_write(struct json *json)
{
	struct utsname host = {0};
	char hypervisor[ARCH_HYPERVISOR_BYTES];
	(void)uname(&host);
	json_object_begin(json, "host");
	json_text(json, "nodename", host.nodename);
	json_text(json, "release", host.release);
	json_text(json, "machine", host.machine);
	json_text(json, "hypervisor", arch_hypervisor(hypervisor) ? hypervisor : NULL);
	json_object_end(json);
}

static void looks_write(struct json *json, const struct document *document)
{
	if (json_object_known(json, "counter_budget", counter_budget_any())) {
		counter_budget_write(json);
		/* Not while the work may still read counters. */
		if (json_known(json, "interrupts", !document->given_up))
			interference_whole_write(json, "interrupts");
		json_object_end(json);
	}
}

static void stops_warn(const struct cgroup_stops *before)
{
	struct cgroup_stops now = cgroup_stops("");
	if (now.periods > before->periods)
		warning_add("CPU_QUOTA",
		            "the CPU quota of a control group stopped its threads in %" PRIu64
		            " periods during the measurement, for %.0f ms in total; raise the quota or measure fewer CPUs",
		            now.periods - before->periods, (double)(now.ns - before->ns) / 1e6);
}

/* The document, which is alike for all commands around the result of one. */
static void document_compose(struct json *json, const struct document *document)
{
	/* Not while the work may still be at it, and not for a command that was not understood: it timed nothing. */
	if (!document->given_up && document->error.code != ERROR_USAGE)
		clock_finish();
	json_object_begin(json, NULL);
	json_text(json, "schema", "sutprobe/1");
	json_text(json, "subcommand", document->argc > 1 ? document->argv[1] : "");
	json_array_begin(json, "argv");
	for (int i = 0; i < document->argc; i++)
		json_text(json, NULL, i ? document->argv[i] : "sutprobe");
	json_array_end(json);
	build_write(json);
	json_text(json, "status", document->error.code == ERROR_NONE ? "ok" : "failed");
	error_write(json, &document->error);
	host_write(json);
	json_u64(json, "started_at_unix_ns", document->started_unix_ns);
	json_f64(json, "duration_s", (double)(clock_raw_ns() - document->started_raw_ns) / 1e9);
	clock_write(json, "clock");
	stops_warn(&document->stops);
	counter_budget_warn(); /* before the warnings are written */
	looks_write(json, document);
	warning_write(json, "warnings");
	if (document->parameters.text) {
		json_raw(json, "parameters", &document->parameters);
	} else {
		json_object_begin(json, "parameters");
		json_object_end(json);
	}
	json_raw(json, "result", &document->result);
	json_object_end(json);
}

static int finish(void)
{
	struct json text = {0};
	document_compose(&text, &state.document);
	if (text.spoilt) {
		error_set(&state.document.error, ERROR_INTERNAL,
		          "a number is not finite: '%s'; this is a defect, please report it", text.spoilt_key);
		json_free(&text);
		json_free(&state.document.result);
		document_compose(&text, &state.document);
	}
	if (state.document.error.code != ERROR_NONE)
		fprintf(stderr, "sutprobe: %s: %s\n", error_name(state.document.error.code), state.document.error.message);
	if (text.text) {
		text.text[text.length++] = '\n';
		int status = write_whole(text.text, text.length);
		json_free(&text);
		if (status)
			return status;
	}
	return error_exit_status(state.document.error.code);
}

static void *work(void *unused)
{
	(void)unused;
	uint64_t one = 1;
	clock_settle();
	worked.measured = state.subcommand->run(&worked.result, &worked.error);
	if (!worked.measured && worked.error.code == ERROR_NONE)
		error_set(&worked.error, ERROR_INTERNAL, "the subcommand failed without a reason");
	if (write(state.finished, &one, sizeof(one)) != (ssize_t)sizeof(one))
		_exit(3);
	return NULL;
}

static bool open_descriptors(struct error *error)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	struct itimerspec deadline = {.it_value = clock_timespec((uint64_t)(state.deadline_s * 1e9))};
	if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR ||
	    prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || (state.signals = signalfd(-1, &set, SFD_CLOEXEC)) < 0 ||
	    (state.deadline = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) < 0 ||
	    timerfd_settime(state.deadline, 0, &deadline, NULL) != 0 || (state.finished = eventfd(0, EFD_CLOEXEC)) < 0)
		return error_set(error, ERROR_INTERNAL, "setting up supervision: %s", strerror(errno));
	return stop_begin(error);
}

/* Parses the subcommand's options together with the common ones. */
static bool parse(int argc, char **argv, struct error *error)
{
	const struct subcommand *subcommand = state.subcommand;
	size_t count = subcommand->option_count + COMMON_OPTIONS;
	struct option *options = allocate(count, sizeof(*options));
	if (subcommand->option_count)
		memcpy(options, subcommand->options, subcommand->option_count * sizeof(*options));
	memcpy(options + subcommand->option_count, common_options, sizeof(common_options));
	if (argc == 3 && !strcmp(argv[2], "--help")) {
		fprintf(stderr, "usage: sutprobe %s OPTIONS\n%s\n\n", subcommand->name, subcommand->summary);
		options_usage(options, count);
		exit(0);
	}
	bool good = options_parse(options, count, argc - 2, argv + 2, error);
	good = good && option_positive("--deadline-s", state.deadline_s, error);
	if (good && subcommand->prepare)
		good = subcommand->prepare(error);
	if (good) {
		json_object_begin(&state.document.parameters, NULL);
		options_write(options, count, &state.document.parameters);
		json_object_end(&state.document.parameters);
	}
	free(options);
	return good;
}

/* The signal or the deadline is taken note of, and there are so many seconds for what comes next. */
static void allow(enum event event, time_t seconds)
{
	struct itimerspec grace = {.it_value = {.tv_sec = seconds}};
	if (event == EVENT_SIGNAL)
		take_signal();
	(void)timerfd_settime(state.deadline, 0, &grace, NULL);
}

static void stop_cause_set(struct error *error, enum event first, const char *kept)
{
	char gone[100];
	if (first == EVENT_SIGNAL)
		error_set(error, ERROR_INTERRUPTED, "a signal ended the measurement before it was done; %s", kept);
	else if (affinity_gone(gone, sizeof(gone)))
		error_set(error, ERROR_DEADLINE,
		          "%s went offline during the measurement; bring it online and measure again; %s", gone, kept);
	else
		error_set(error, ERROR_DEADLINE,
		          "the deadline of %g s passed before the work was done; raise --deadline-s or ask for less; %s",
		          state.deadline_s, kept);
}

static _Noreturn void end_reader_gone(void)
{
	fprintf(stderr, "sutprobe: interrupted: the reader of stdout went away\n");
	_exit(EXIT_INTERRUPTED);
}

/* Tells the work to end and waits for what it has. Where that does not come, because of a second signal or because the
 * time given is over, the process ends with all its threads: _exit frees every mapping, pin and timer with it. */
static void stop_work(enum event first)
{
	stop_request(first == EVENT_SIGNAL ? ERROR_INTERRUPTED : ERROR_DEADLINE);
	allow(first, STOPPING_GRACE_S);
	enum event event = wait_event(false);
	if (event == EVENT_FINISHED)
		return;
	if (event == EVENT_READER_GONE)
		end_reader_gone();
	state.document.given_up = true;
	stop_cause_set(&state.document.error, first, "nothing is reported");
	/* A third signal, or a reader that does not read, ends the writing too. */
	allow(event, WRITING_GRACE_S);
	int status = finish();
	_exit(status ? status : 3);
}

/* What the working thread left, once it has been joined. */
static void take_over(enum event ended_by)
{
	if (ended_by == EVENT_FINISHED) {
		state.document.result = worked.result;
		state.document.error = worked.error;
		return;
	}
	if (worked.measured)
		state.document.result = worked.result;
	else
		json_free(&worked.result); /* told to stop, nothing was complete: nothing is claimed */
	stop_cause_set(&state.document.error, ended_by,
	               worked.measured ? "the result has what was measured by then" : "nothing was measured by then");
	if (worked.error.code != ERROR_NONE && !error_is_stop(&worked.error))
		warning_add("FAILED_BEFORE_STOP", "%s: %s", error_name(worked.error.code), worked.error.message);
	allow(EVENT_NONE, WRITING_GRACE_S);
}

int main(int argc, char **argv)
{
	struct error *error = &state.document.error;
	state.document = (struct document){.argc = argc,
	                                   .argv = argv,
	                                   .started_unix_ns = clock_read_ns(CLOCK_REALTIME),
	                                   .started_raw_ns = clock_raw_ns(),
	                                   .stops = cgroup_stops("")};
	clock_begin();
	counter_budget_begin();
	if (fcntl(STDOUT_FILENO, F_GETFD) < 0) {
		fprintf(stderr, "sutprobe: stdout is closed\n");
		return 3;
	}
	if (argc < 2 || !strcmp(argv[1], "--help")) {
		print_usage();
		if (argc == 2)
			return 0;
		error_set(error, ERROR_USAGE, "no subcommand given");
	}
	state.signals = state.deadline = state.finished = -1;
	if (error->code == ERROR_NONE) {
		state.subcommand = find_subcommand(argv[1]);
		if (!state.subcommand)
			error_set(error, ERROR_USAGE, "'%s' is not a subcommand; --help lists them", argv[1]);
		else
			parse(argc, argv, error);
	}
	if (error->code != ERROR_NONE)
		return finish();
	memory_keep_local();
	if (!affinity_begin(error) || !open_descriptors(error))
		return finish();
	pthread_t worker;
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	/* musl's 128 KiB would do; a megabyte leaves room and is touched only as far as it is used. */
	pthread_attr_setstacksize(&attributes, 1u << 20);
	int reason = pthread_create(&worker, &attributes, work, NULL);
	pthread_attr_destroy(&attributes);
	if (reason) {
		error_set(error, ERROR_INTERNAL, "starting the working thread: %s", strerror(reason));
		return finish();
	}
	enum event event = wait_event(false);
	if (event == EVENT_READER_GONE)
		end_reader_gone();
	if (event != EVENT_FINISHED)
		stop_work(event);
	pthread_join(worker, NULL);
	take_over(event);
	return finish();
}
