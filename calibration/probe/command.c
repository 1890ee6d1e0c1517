// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "stopping.h"

extern char **environ;

bool command_usable(const char *option, const char *path, struct error *error)
{
	if (path[0] != '/')
		return error_set(error, ERROR_USAGE, "%s: must be an absolute path, not '%s'", option, path);
	return access(path, X_OK) == 0 || error_set(error, ERROR_USAGE, "%s: %s: %s", option, path, strerror(errno));
}

/* Like a program that a shell starts: our threads block signals and ignore SIGPIPE. It shares our memory until it is
 * executed: a copy would have the measuring threads fault on each page that they write. */
static int spawn(pid_t *process, const char *path, int output, char *const *words)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, usual;
	(void)sigemptyset(&none);
	(void)sigemptyset(&usual);
	(void)sigaddset(&usual, SIGPIPE);
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawnattr_init(&attributes);
	(void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	(void)posix_spawnattr_setsigmask(&attributes, &none);
	(void)posix_spawnattr_setsigdefault(&attributes, &usual);
	int reason = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	for (int end = STDOUT_FILENO; reason == 0 && end <= STDERR_FILENO; end++)
		reason = posix_spawn_file_actions_adddup2(&actions, output, end);
	if (reason == 0)
		reason = posix_spawn(process, path, &actions, &attributes, words, environ);
	(void)posix_spawnattr_destroy(&attributes);
	(void)posix_spawn_file_actions_destroy(&actions);
	return reason;
}

static void start(struct command *command, const char *path, uint64_t first, uint64_t second)
{
	char numbers[2][24], name[4096];
	char *const words[] = {name, numbers[0], numbers[1], NULL};
	int ends[2], reason;
	snprintf(name, sizeof(name), "%s", path);
	snprintf(numbers[0], sizeof(numbers[0]), "%" PRIu64, first);
	snprintf(numbers[1], sizeof(numbers[1]), "%" PRIu64, second);
	command->begun = true;
	command->began_ns = command->ended_ns = clock_read_ns(CLOCK_MONOTONIC);
	if (pipe2(ends, O_CLOEXEC) != 0) {
		error_set(&command->error, ERROR_INTERNAL, "a pipe: %s", strerror(errno));
		return;
	}
	(void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
	reason = spawn(&command->process, path, ends[1], words);
	close(ends[1]);
	command->output = ends[0];
	if (reason != 0) {
		command->process = 0;
		close(ends[0]);
		error_set(&command->error, ERROR_INTERNAL, "%s", strerror(reason));
	}
}

static void take_output(struct command *command)
{
	char piece[4096];
	ssize_t length;
	while ((length = read(command->output, piece, sizeof(piece))) > 0) {
		for (ssize_t i = 0; i < length && command->printed + (size_t)i < COMMAND_TEXT_BYTES; i++)
			command->text[command->printed + (size_t)i] = piece[i] ? piece[i] : '?';
		command->printed += (size_t)length;
	}
}

/* Takes what it printed since; whether it still runs. */
static bool runs(struct command *command)
{
	if (command->process == 0)
		return false;
	/* Before its output is taken: all of it is there when it has ended. */
	const pid_t ended = waitpid(command->process, &command->status, WNOHANG);
	command->ended_ns = clock_read_ns(CLOCK_MONOTONIC);
	take_output(command);
	if (ended != 0) {
		command->process = 0;
		close(command->output);
	} else if (!command->killed && command->ended_ns - command->began_ns > COMMAND_LIMIT_NS) {
		command->killed = true;
		(void)kill(command->process, SIGKILL);
	}
	return ended == 0;
}

void command_run(struct command *command, const char *path, uint64_t first, uint64_t second)
{
	start(command, path, first, second);
	while (runs(command))
		if (stop_sleep_ns(COMMAND_LOOK_NS)) {
			command->killed = true;
			(void)kill(command->process, SIGKILL);
			(void)usleep(COMMAND_LOOK_NS / 1000);
		}
}

void command_write(struct json *json, const char *key, const struct command *command, uint64_t since_ns)
{
	const bool ended = command->error.code == ERROR_NONE;
	if (!json_object_known(json, key, command->begun))
		return;
	json_text(json, "error", ended ? NULL : command->error.message);
	json_u64(json, "after_ns", command->began_ns - since_ns);
	json_f64(json, "took_s", (double)(command->ended_ns - command->began_ns) / 1e9);
	json_i64_known(json, "exit_code", ended && WIFEXITED(command->status), WEXITSTATUS(command->status));
	json_i64_known(json, "signal", ended && WIFSIGNALED(command->status), WTERMSIG(command->status));
	json_bool(json, "killed", command->killed);
	json_u64(json, "printed_bytes", command->printed);
	json_text(json, "text", command->text);
	json_object_end(json);
}
