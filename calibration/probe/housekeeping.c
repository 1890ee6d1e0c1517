// SPDX-License-Identifier: Apache-2.0
#include "housekeeping.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "allocate.h"
#include "clock.h"

/* Forkers: of one turn. A quarter of MiB is 64 page faults; the sleep keeps timers busy and the load below all of a CPU. */
#define FORKER_BYTES (256u << 10)
#define FORKER_CALLS 64u
#define FORKER_SLEEP_NS 100000u
/* Of a process and the one that it starts: the pages both write, their tables, and what the kernel keeps of them. Until its next
 * grace period it keeps that of processes that ended, too: 8 MiB where real-time threads have a CPU for 0.3 s. */
#define FORKER_PROCESSES_BYTES (4u << 20)
#define ENDED_PROCESSES_BYTES (8u << 20)

/* One process on a housekeeping CPU: it shares no memory map with the measuring threads, whose pages and TLBs its work must
 * not touch. */
struct forker {
	pid_t process;
	int socket; /* a byte begins the work, a byte comes back when it has ended; closed, the process ends */
	struct forker_state {
		_Atomic bool working;
		_Atomic uint64_t turns;
		struct error error; /* where the work cannot be done */
	} *state;
};

bool housekeeping_parse(struct housekeeping *load, const char *text, const struct cpu_list *measured,
                        struct error *error)
{
	return cpu_list_parse(&load->cpus, text, error) &&
	       cpu_list_apart("--housekeeping-cpus", &load->cpus, measured, error);
}

void housekeeping_demand(const struct housekeeping *load, struct demand *demand)
{
	demand_other(demand, FORKER_BYTES + FORKER_PROCESSES_BYTES, load->cpus.count);
	demand_other(demand, ENDED_PROCESSES_BYTES, load->cpus.count > 0);
	demand_processes(demand, 2 * load->cpus.count);
}

static bool start_process(void)
{
	char *const words[] = {"sutprobe", "--help", NULL};
	pid_t process = fork();
	int status = 0;
	if (process == 0) {
		execve("/proc/self/exe", words, (char *[]){NULL});
		_exit(1);
	}
	if (process < 0)
		return false;
	while (waitpid(process, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	errno = ECHILD;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool turn(void)
{
	const size_t page = memory_base_page_bytes();
	const struct timespec pause = {.tv_nsec = FORKER_SLEEP_NS};
	volatile unsigned char *fresh =
		mmap(NULL, FORKER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fresh == MAP_FAILED)
		return false;
	for (size_t at = 0; at < FORKER_BYTES; at += page)
		fresh[at] = 1;
	for (unsigned i = 0; i < FORKER_CALLS; i++)
		(void)syscall(SYS_getppid);
	(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	return munmap((void *)fresh, FORKER_BYTES) == 0 && start_process();
}

/* A process of its own, which ends with ours. */
static _Noreturn void fork_in_turns(unsigned cpu, int socket, struct forker_state *state)
{
	struct error *error = &state->error;
	char byte;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(null, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 || prctl(PR_SET_NAME, "sutprobe-forker") != 0)
		error_set(error, ERROR_INTERNAL, "the housekeeping load on CPU %u: %s", cpu, strerror(errno));
	else
		(void)affinity_pin(cpu, error);
	while (read(socket, &byte, 1) == 1) {
		while (atomic_load(&state->working) && error->code == ERROR_NONE)
			if (turn())
				atomic_fetch_add(&state->turns, 1);
			else
				error_set(error, ERROR_INTERNAL, "the housekeeping load on CPU %u: %s", cpu, strerror(errno));
		if (write(socket, &byte, 1) != 1)
			break;
	}
	_exit(0);
}

bool housekeeping_open(struct housekeeping *load, struct error *error)
{
	struct forker_state *states = NULL;
	if (load->cpus.count == 0)
		return true;
	states = mmap(NULL, load->cpus.count * sizeof(*states), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (states == MAP_FAILED)
		return error_set(error, ERROR_NO_MEMORY, "memory of the housekeeping load: %s", strerror(errno));
	load->forkers = allocate(load->cpus.count, sizeof(*load->forkers));
	for (size_t i = 0; i < load->cpus.count; i++)
		load->forkers[i] = (struct forker){.process = -1, .socket = -1, .state = &states[i]};
	for (size_t i = 0; i < load->cpus.count; i++) {
		struct forker *forker = &load->forkers[i];
		int ends[2];
		if (!affinity_usable(load->cpus.cpus[i], error))
			return false;
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
			return error_set(error, ERROR_INTERNAL, "a socket for the housekeeping load: %s", strerror(errno));
		forker->process = fork();
		if (forker->process == 0) {
			/* Of those before, whose end of file would otherwise not come. */
			for (size_t k = 0; k < i; k++)
				close(load->forkers[k].socket);
			close(ends[1]);
			fork_in_turns(load->cpus.cpus[i], ends[0], forker->state);
		}
		int reason = errno;
		close(ends[0]);
		forker->socket = ends[1];
		if (forker->process < 0)
			return error_set(error, ERROR_INTERNAL, "starting the housekeeping load: %s", strerror(reason));
	}
	return true;
}

/* All that are alive, so that housekeeping_end has an answer from each. */
bool housekeeping_begin(struct housekeeping *load, struct error *error)
{
	bool good = true;
	load->began_ns = clock_raw_ns();
	for (size_t i = 0; i < load->cpus.count; i++) {
		atomic_store(&load->forkers[i].state->turns, 0);
		atomic_store(&load->forkers[i].state->working, true);
		if (send(load->forkers[i].socket, "", 1, MSG_NOSIGNAL) != 1)
			good = error_set(error, ERROR_INTERNAL, "the housekeeping load on CPU %u has ended: %s", load->cpus.cpus[i],
			                 strerror(errno));
	}
	return good;
}

double housekeeping_end(struct housekeeping *load, struct error *error)
{
	uint64_t turns = 0;
	char byte;
	for (size_t i = 0; i < load->cpus.count; i++)
		atomic_store(&load->forkers[i].state->working, false);
	for (size_t i = 0; i < load->cpus.count; i++) {
		const struct forker *forker = &load->forkers[i];
		ssize_t got;
		while ((got = read(forker->socket, &byte, 1)) < 0 && errno == EINTR)
			continue;
		if (got != 1)
			error_set(error, ERROR_INTERNAL, "the housekeeping load on CPU %u has ended", load->cpus.cpus[i]);
		error_take(error, &forker->state->error);
		turns += atomic_load(&forker->state->turns);
	}
	return (double)turns * 1e9 / (double)(clock_raw_ns() - load->began_ns);
}

void housekeeping_close(struct housekeeping *load)
{
	for (size_t i = 0; load->forkers && i < load->cpus.count; i++) {
		if (load->forkers[i].socket >= 0)
			close(load->forkers[i].socket);
		while (load->forkers[i].process > 0 && waitpid(load->forkers[i].process, NULL, 0) < 0 && errno == EINTR)
			continue;
	}
}
