// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "generator.h"
#include "options.h"
#include "place.h"
#include "text.h"

/* Log entries per second and to begin with: chunks shrink below their usual length only for an instant. */
#define LOG_PER_SECOND 8000
#define LOG_EXTRA 4096

unsigned char *generator_array(const struct generator_thread *thread, unsigned k)
{
	size_t apart = thread->buffer_bytes + LOAD_ARRAY_SKEW_BYTES;
	return thread->buffer->region.start + k * apart / LOAD_LINE_BYTES * LOAD_LINE_BYTES;
}

/* The place of the CPU's thread, which is made where there is none. */
static size_t thread_of(struct generator *generator, unsigned cpu)
{
	for (size_t i = 0; i < generator->count; i++)
		if (generator->threads[i].cpu == cpu)
			return i;
	generator->threads = reallocate(generator->threads, generator->count + 1, sizeof(*generator->threads));
	generator->threads[generator->count] = (struct generator_thread){.cpu = cpu};
	return generator->count++;
}

static bool same_spread(const struct spread *a, const struct spread *b)
{
	bool same = a->nodes.count == b->nodes.count && a->by_kernel == b->by_kernel;
	for (size_t i = 0; same && i < a->nodes.count; i++)
		same = a->nodes.cpus[i] == b->nodes.cpus[i] && a->weights[i] == b->weights[i];
	return same;
}

static struct spread copy_of(const struct spread *spread)
{
	struct spread copy = {.by_kernel = spread->by_kernel};
	copy.weights = allocate(spread->nodes.count, sizeof(*copy.weights));
	for (size_t i = 0; i < spread->nodes.count; i++) {
		cpu_list_add(&copy.nodes, spread->nodes.cpus[i]);
		copy.weights[i] = spread->weights[i];
	}
	return copy;
}

/* The place of the nth buffer that is spread so, likewise. */
static size_t buffer_of(struct generator *generator, const struct spread *spread, size_t number)
{
	for (size_t i = 0; i < generator->buffer_count; i++)
		if (same_spread(&generator->buffers[i].spread, spread) && number-- == 0)
			return i;
	generator->buffers = reallocate(generator->buffers, generator->buffer_count + 1, sizeof(*generator->buffers));
	generator->buffers[generator->buffer_count] =
		(struct buffer){.spread = copy_of(spread), .node = spread->nodes.cpus[0]};
	if (spread->nodes.count > 1)
		generator->buffers[generator->buffer_count].shares = allocate(spread->nodes.count, sizeof(uint64_t));
	return generator->buffer_count++;
}

static void group_add(struct generator *generator, struct group *group, unsigned cpu, const struct spread *spread,
                      size_t bytes)
{
	size_t before = 0, number = group->count++;
	for (size_t i = 0; i < number; i++)
		before += same_spread(&generator->buffers[group->buffers[i]].spread, spread);
	group->threads = reallocate(group->threads, group->count, sizeof(*group->threads));
	group->buffers = reallocate(group->buffers, group->count, sizeof(*group->buffers));
	group->bytes = reallocate(group->bytes, group->count, sizeof(*group->bytes));
	group->threads[number] = thread_of(generator, cpu);
	group->buffers[number] = buffer_of(generator, spread, before);
	group->bytes[number] = bytes;
	cpu_list_add(&group->cpus, cpu);
	cpu_list_add(&group->nodes, spread->nodes.cpus[0]);
}

/* Cuts the size off "0-3@0:65536"; 0 where there is none. */
static bool cut_size(char *part, uint64_t *bytes)
{
	char *size = part;
	*bytes = 0;
	(void)text_cut(&size, ':');
	return !size || (options_u64(size, bytes) && *bytes > 0);
}

bool generator_parse_group(struct generator *generator, const char *text, bool sized, struct error *error)
{
	generator->groups = reallocate(generator->groups, generator->group_count + 1, sizeof(*generator->groups));
	struct group *group = &generator->groups[generator->group_count++];
	*group = (struct group){.text = allocate_text(text, strlen(text))};
	char *plain = group->text, *rest = allocate_text(text, strlen(text)), *left = rest;
	bool good = true;
	for (char *part = text_cut(&left, '+'); good && part; part = text_cut(&left, '+')) {
		struct cpu_list cpus = {0};
		struct spread spread = {0};
		uint64_t bytes = 0;
		good = (!sized || cut_size(part, &bytes) ||
		        error_set(error, ERROR_USAGE, "not CPUS@NODE:BYTES such as 0-3@0:65536: '%s'", text)) &&
		       place_parse_spread(part, &cpus, &spread, error) &&
		       (sized || spread.nodes.count == 1 ||
		        error_set(error, ERROR_USAGE, "not CPUS@NODE such as 0-3@0: '%s'", text));
		for (size_t i = 0; good && i < cpus.count; i++) {
			good = !cpu_list_has(&group->cpus, cpus.cpus[i]) ||
			       error_set(error, ERROR_USAGE, "CPU %u is twice in the group '%s'", cpus.cpus[i], text);
			if (good)
				group_add(generator, group, cpus.cpus[i], &spread, bytes);
		}
		cpu_list_free(&cpus);
		spread_free(&spread);
		plain += sprintf(plain, "%s%s", plain == group->text ? "" : "+", part);
	}
	free(rest);
	return good;
}

size_t generator_thread_bytes(const struct group *group, size_t thread, size_t buffer_bytes)
{
	return group->bytes[thread] ? group->bytes[thread] : buffer_bytes;
}

void generator_need(struct generator *generator, const struct group *group, unsigned arrays, size_t buffer_bytes)
{
	for (size_t i = 0; i < group->count; i++) {
		struct buffer *buffer = &generator->buffers[group->buffers[i]];
		size_t bytes = arrays * (generator_thread_bytes(group, i, buffer_bytes) + LOAD_ARRAY_SKEW_BYTES);
		buffer->bytes = bytes > buffer->bytes ? bytes : buffer->bytes;
	}
}

size_t generator_log_capacity(const struct generator *generator, double seconds)
{
	double per_s = generator->log_every_s * LOG_PER_SECOND > 1 ? 1 / generator->log_every_s : LOG_PER_SECOND;
	return (size_t)(seconds * per_s) + LOG_EXTRA;
}

void generator_demand(const struct generator *generator, double seconds, struct demand *demand)
{
	demand_threads(demand, generator->count);
	for (size_t i = 0; i < generator->buffer_count; i++) {
		const struct buffer *buffer = &generator->buffers[i];
		if (buffer->error.code != ERROR_NONE)
			continue;
		if (buffer->shares)
			demand_region_spread(demand, buffer->bytes, &buffer->spread);
		else
			demand_regions(demand, buffer->bytes, 1, buffer->node);
	}
	seconds += GENERATOR_TAIL_S;
	demand_other(demand, generator_log_capacity(generator, seconds) * sizeof(struct log_entry), generator->count);
	demand_other(demand, sampling_bytes(generator->sampled, seconds), generator->count);
}

void generator_begin(struct generator *generator)
{
	for (size_t i = 0; i < generator->buffer_count; i++) {
		generator->buffers[i].error = (struct error){0};
		spread_kernel_weights(&generator->buffers[i].spread, &generator->buffers[i].error);
	}
}

bool generator_admit(struct generator *generator, struct demand *demand, struct error *error)
{
	demand->wanted = generator->page_kind;
	bool good = demand_admit(demand, error);
	generator->chosen = demand->pages;
	return good;
}

bool generator_refuse(struct generator *generator, unsigned node, const struct error *error)
{
	bool any = false;
	for (size_t i = 0; i < generator->buffer_count; i++) {
		struct buffer *buffer = &generator->buffers[i];
		if (buffer->error.code == ERROR_NONE && cpu_list_has(&buffer->spread.nodes, node))
			buffer->error = *error;
		any = any || buffer->error.code == ERROR_NONE;
	}
	return any;
}

/* The first thread that works on the buffer in any group. */
static size_t first_user(const struct generator *generator, size_t buffer)
{
	for (size_t g = 0; g < generator->group_count; g++)
		for (size_t i = 0; i < generator->groups[g].count; i++)
			if (generator->groups[g].buffers[i] == buffer)
				return generator->groups[g].threads[i];
	return 0;
}

/* Buffers are filled by the CPUs of their node in turn, because a fill from afar is slower than the reading; where the node
 * has none that take part, by those that will use them. A thread that could not be pinned does no jobs, and costs the
 * groups that it is of and no others: the next one has its turn. */
void generator_choose_fillers(struct generator *generator)
{
	struct cpu_list cpus = {0};
	for (size_t i = 0, turn = 0; i < generator->buffer_count; i++) {
		struct buffer *buffer = &generator->buffers[i];
		if (i == 0 || buffer->node != generator->buffers[i - 1].node) {
			char path[80];
			snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist", buffer->node);
			cpu_list_free(&cpus);
			(void)cpu_list_read(&cpus, path); /* a node may have none */
		}
		buffer->filler = first_user(generator, i);
		for (size_t tried = 0; tried < generator->count; tried++, turn++)
			if (cpu_list_has(&cpus, generator->threads[turn % generator->count].cpu)) {
				buffer->filler = turn++ % generator->count;
				break;
			}
		for (size_t k = 0; k < generator->count && generator->threads[buffer->filler].worker.error.code; k++)
			buffer->filler = (buffer->filler + 1) % generator->count;
	}
	cpu_list_free(&cpus);
}

struct pages generator_pages(const struct generator *generator)
{
	struct pages pages = generator->sizes;
	pages.total = pages.checked = pages.on_node = pages.elsewhere = 0;
	for (size_t i = 0; i < generator->group->count; i++) {
		const struct buffer *buffer = &generator->buffers[generator->group->buffers[i]];
		pages.total += buffer->region.bytes / memory_base_page_bytes();
		pages.checked += buffer->pages.checked;
		pages.on_node += buffer->pages.on_node;
		pages.elsewhere += buffer->pages.elsewhere;
	}
	return pages;
}

uint64_t *generator_shares(const struct generator *generator, struct cpu_list *nodes)
{
	uint64_t *shares = NULL;
	*nodes = (struct cpu_list){0};
	for (size_t i = 0; i < generator->group->count; i++) {
		const struct buffer *buffer = &generator->buffers[generator->group->buffers[i]];
		for (size_t k = 0; buffer->shares && k < buffer->spread.nodes.count; k++) {
			size_t at = 0;
			while (at < nodes->count && nodes->cpus[at] != buffer->spread.nodes.cpus[k])
				at++;
			if (at == nodes->count) {
				cpu_list_add(nodes, buffer->spread.nodes.cpus[k]);
				shares = reallocate(shares, nodes->count, sizeof(*shares));
				shares[at] = 0;
			}
			shares[at] += buffer->shares[k];
		}
	}
	return shares;
}
