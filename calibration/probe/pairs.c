// SPDX-License-Identifier: Apache-2.0
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "arch/arch.h"
#include "options.h"
#include "random.h"
#include "text.h"

bool home_parse(const char *text, enum home *home, unsigned *node)
{
	uint64_t value;
	if (!strcmp(text, "writer")) {
		*home = HOME_WRITER;
	} else if (!strcmp(text, "reader")) {
		*home = HOME_READER;
	} else if (options_u64(text, &value) && value <= PAIRS_HOME_MAX) {
		*home = HOME_NODE;
		*node = (unsigned)value;
	} else {
		return false;
	}
	return true;
}

bool block_parse(const char *option, const char *text, const struct pair_defaults *defaults, struct block *block,
                 struct error *error)
{
	struct error part = {0};
	char *copy = allocate_text(text, strlen(text)), *rest = copy;
	char *cpus = text_cut(&rest, ':'), *home = text_cut(&rest, ':'), *state = rest, *readers = cpus;
	const char *writers = text_cut(&readers, '@');
	*block = (struct block){.dirty = defaults->dirty};
	bool good = cpu_list_parse(&block->writers, writers, &part) &&
	            cpu_list_parse(&block->readers, readers ? readers : writers, &part);
	if (!good)
		error_set(error, ERROR_USAGE, "%s: must be CPUs such as 0@1, not '%s': %s", option, text, part.message);
	if (good && !home_parse(home ? home : defaults->home, &block->home, &block->node))
		good = error_set(error, ERROR_USAGE, "%s: the home must be a node up to %u, writer or reader, not '%s'", option,
		                 PAIRS_HOME_MAX, home ? text : defaults->home);
	if (good && state) {
		block->dirty = !strcmp(state, "hitm");
		if (!block->dirty && strcmp(state, "hit") != 0)
			good = error_set(error, ERROR_USAGE, "%s: the state must be hit or hitm, not '%s'", option, text);
		else if (defaults->stateless)
			good = error_set(error, ERROR_USAGE, "%s: a hand-shake has no state: leave it out of '%s'", option, text);
	}
	if (good && !block->dirty && !defaults->stateless && !ARCH_FLUSHES)
		good = error_set(error, ERROR_UNSUPPORTED,
		                 "%s: %s: the state hit needs an instruction that takes a line out of the caches, which this "
		                 "architecture has not",
		                 option, text);
	if (good && block->writers.count == 1 && block->readers.count == 1 &&
	    block->writers.cpus[0] == block->readers.cpus[0])
		good = error_set(error, ERROR_USAGE, "%s: needs two CPUs, not '%s'", option, text);
	free(copy);
	return good;
}

bool transfer_parse(const char *text, const struct pair_defaults *defaults, struct transfer *transfer,
                    struct error *error)
{
	struct block block;
	if (!block_parse("--pair", text, defaults, &block, error))
		return false;
	bool one = block.writers.count == 1 && block.readers.count == 1 && strchr(text, '@');
	if (one)
		*transfer =
			(struct transfer){block.writers.cpus[0], block.readers.cpus[0], block.home, block.node, block.dirty};
	cpu_list_free(&block.writers);
	cpu_list_free(&block.readers);
	return one || error_set(error, ERROR_USAGE, "--pair: needs one CPU on each side of an @, not '%s'", text);
}

int pairs_compare(unsigned writer, unsigned reader, unsigned other_writer, unsigned other_reader)
{
	if (writer != other_writer)
		return writer < other_writer ? -1 : 1;
	return (reader > other_reader) - (reader < other_reader);
}

static int compare_pair(const void *left, const void *right)
{
	const struct request *a = left, *b = right;
	return pairs_compare(a->writer, a->reader, b->writer, b->reader);
}

static int compare_requests(const void *left, const void *right)
{
	const struct request *a = left, *b = right;
	int order = compare_pair(a, b);
	return order ? order : (a->block > b->block) - (a->block < b->block);
}

/* All pairs of all blocks, each once. The same pair twice, and not with the same home and state, would be two values. */
static bool list_requests(struct sampler *sampler, const struct block *blocks, size_t block_count, struct error *error)
{
	size_t most = 0;
	for (size_t b = 0; b < block_count; b++)
		most += blocks[b].writers.count * blocks[b].readers.count;
	if (most > UINT32_MAX)
		return error_set(error, ERROR_NO_MEMORY, "a matrix of %zu pairs; name fewer CPUs", most);
	sampler->requests = allocate(most, sizeof(*sampler->requests));
	for (size_t b = 0; b < block_count; b++) {
		const struct block *block = &blocks[b];
		for (size_t w = 0; w < block->writers.count; w++)
			for (size_t r = 0; r < block->readers.count; r++)
				if (block->writers.cpus[w] != block->readers.cpus[r])
					sampler->requests[sampler->count++] = (struct request){
						.writer = block->writers.cpus[w], .reader = block->readers.cpus[r], .block = (uint32_t)b};
	}
	qsort(sampler->requests, sampler->count, sizeof(*sampler->requests), compare_requests);
	size_t kept = 0;
	for (size_t i = 0; i < sampler->count; i++) {
		const struct request *now = &sampler->requests[i], *last = kept ? &sampler->requests[kept - 1] : NULL;
		if (last && now->writer == last->writer && now->reader == last->reader) {
			const struct block *a = &blocks[now->block], *b = &blocks[last->block];
			if (a->home != b->home || a->node != b->node || a->dirty != b->dirty)
				return error_set(error, ERROR_USAGE, "--all-pairs: CPUs %u and %u appear with two homes or states",
				                 now->writer, now->reader);
			continue;
		}
		sampler->requests[kept++] = *now;
	}
	sampler->count = kept;
	return true;
}

bool sampler_begin(struct sampler *sampler, const struct block *blocks, size_t block_count, uint64_t seed,
                   struct error *error)
{
	if (!list_requests(sampler, blocks, block_count, error))
		return false;
	unsigned last = 0;
	for (size_t i = 0; i < sampler->count; i++) {
		const struct request *request = &sampler->requests[i];
		last = request->writer > last ? request->writer : last;
		last = request->reader > last ? request->reader : last;
	}
	sampler->rest = random_order(sampler->count, seed);
	sampler->wrote = allocate(last + 1u, sizeof(*sampler->wrote));
	sampler->read = allocate(last + 1u, sizeof(*sampler->read));
	sampler->left = sampler->count;
	sampler->pending = sampler->count;
	sampler->level = 1;
	return true;
}

static struct request *sampler_take(struct sampler *sampler, size_t index)
{
	struct request *request = &sampler->requests[index];
	request->taken = true;
	sampler->wrote[request->writer]++;
	sampler->read[request->reader]++;
	return request;
}

struct request *sampler_next(struct sampler *sampler)
{
	if (sampler->pending < sampler->count) {
		size_t index = sampler->pending;
		sampler->pending = sampler->count;
		return sampler_take(sampler, index);
	}
	for (;;) {
		if (sampler->at == sampler->left) {
			if (!sampler->kept)
				return NULL;
			sampler->left = sampler->kept;
			sampler->at = sampler->kept = 0;
			sampler->level++;
		}
		uint32_t index = sampler->rest[sampler->at++];
		const struct request *request = &sampler->requests[index];
		if (request->taken)
			continue;
		if (sampler->wrote[request->writer] >= sampler->level || sampler->read[request->reader] >= sampler->level) {
			sampler->rest[sampler->kept++] = index;
			continue;
		}
		const struct request reverse = {.writer = request->reader, .reader = request->writer};
		const struct request *found =
			bsearch(&reverse, sampler->requests, sampler->count, sizeof(reverse), compare_pair);
		if (found && !found->taken)
			sampler->pending = (size_t)(found - sampler->requests);
		return sampler_take(sampler, index);
	}
}
