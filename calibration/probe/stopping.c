// SPDX-License-Identifier: Apache-2.0
#include "stopping.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

_Atomic int stop_cause = ERROR_NONE;
static int stop_event = -1; /* readable from the request on; nobody reads it, so that it wakes every sleeper */

bool stop_begin(struct error *error)
{
	stop_event = eventfd(0, EFD_CLOEXEC);
	return stop_event >= 0 || error_set(error, ERROR_INTERNAL, "eventfd: %s", strerror(errno));
}

void stop_request(enum error_code cause)
{
	int none = ERROR_NONE;
	uint64_t one = 1;
	if (atomic_compare_exchange_strong(&stop_cause, &none, (int)cause))
		(void)!write(stop_event, &one, sizeof(one)); /* cannot block; a sleeper that misses it ends with its sleep */
}

bool stop_error(struct error *error)
{
	int cause = atomic_load_explicit(&stop_cause, memory_order_relaxed);
	if (cause == ERROR_NONE)
		return false;
	error_set(error, (enum error_code)cause, "%s before anything was complete",
	          cause == ERROR_DEADLINE ? "the deadline passed" : "a signal ended the command");
	return true;
}

bool stop_sleep_ns(uint64_t ns)
{
	struct pollfd polled = {.fd = stop_event, .events = POLLIN};
	uint64_t began_ns = clock_raw_ns();
	for (uint64_t passed = 0; passed < ns && !stop_requested(); passed = clock_raw_ns() - began_ns) {
		struct timespec rest = clock_timespec(ns - passed);
		(void)ppoll(&polled, 1, &rest, NULL); /* however it ends, time and request are looked at again */
	}
	return stop_requested();
}
