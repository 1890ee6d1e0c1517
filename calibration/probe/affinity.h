/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of CPUs without a fixed size, and pinning that is proved by reading it back. */
#pragma once

#include "error.h"

struct cpu_list {
	unsigned *cpus; /* ascending, each once */
	size_t count;
};

/* Reads the kernel's list form, "0-3,8"; false with a usage error naming the text. */
bool cpu_list_parse(struct cpu_list *list, const char *text, struct error *error);
/* The numbers that a file of the kernel lists; false where it cannot be read or lists none. */
bool cpu_list_read(struct cpu_list *list, const char *path);
/* The numbers in names of a directory such as node12 or hugepages-2048kB. */
struct cpu_list cpu_list_named(const char *directory, const char *before);
/* What an option --cpus asks for: a list, or "isolated", those that the kernel isolates. */
bool cpu_list_asked(struct cpu_list *list, const char *text, struct error *error);
void cpu_list_add(struct cpu_list *list, unsigned cpu);
/* Where a CPU stands in the list; SIZE_MAX: nowhere. */
size_t cpu_list_place(const struct cpu_list *list, unsigned cpu);
bool cpu_list_has(const struct cpu_list *list, unsigned cpu);
/* Whether none of the CPUs of a load is measured. */
bool cpu_list_apart(const char *option, const struct cpu_list *list, const struct cpu_list *measured,
                    struct error *error);
void cpu_list_free(struct cpu_list *list);

/* An array of the numbers. */
void cpu_list_write(struct json *json, const char *key, const struct cpu_list *list);

/* Pins the calling thread to one CPU and reads both the mask and the CPU back. */
bool affinity_pin(unsigned cpu, struct error *error);
/* Whether the calling thread may run on `cpu` alone and is running there now. */
bool affinity_verify(unsigned cpu);
/* Whether a thread (0: the caller) may run on `cpu` alone, which is online: asked without disturbing it. */
bool affinity_kept(int thread, unsigned cpu);
/* Sets the error of a thread that was pinned to `cpu` and is not there: the CPU went offline, or somebody moved the
 * thread. Always returns false. */
bool affinity_left(unsigned cpu, struct error *error);
/* Whether the calling thread is where it was pinned; else it has that error. */
bool affinity_stayed(unsigned cpu, struct error *error);
/* Whether the kernel lists the CPUs that are online now, and not this one. */
bool affinity_offline(unsigned cpu);
/* Names the CPUs that went offline since affinity_begin, "CPU 3, 5"; false where none did. */
bool affinity_gone(char *names, size_t size);
/* Whether this process may use the CPU at all: online, and in the affinity mask it was started with. */
bool affinity_usable(unsigned cpu, struct error *error);
/* Moves a thread (0: the caller) to CPUs of the mask it was started with that are not measured, and where there are such, to
 * those of no measured core. */
void affinity_avoid(int thread, const struct cpu_list *measured);
/* To be called once before any pinning: keeps the mask the process was started with. */
bool affinity_begin(struct error *error);
/* Those that were online then; empty where the kernel does not list them. */
const struct cpu_list *affinity_online(void);
/* The CPUs of the mask the process was started with. */
const struct cpu_list *affinity_allowed(void);
/* Whether that mask has a CPU that is not measured: counters are read from there, and the measuring is ended. */
bool affinity_spares(const struct cpu_list *measured);
