// SPDX-License-Identifier: Apache-2.0
#include "allocate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* No page is smaller. */
#define PAGE_BYTES_MIN 4096u

static void *checked(void *memory, size_t count, size_t element_bytes)
{
	if (!memory) {
		(void)fprintf(stderr, "sutprobe: no_memory: no memory for %zu elements of %zu bytes\n", count, element_bytes);
		_exit(3);
	}
	return memory;
}

void *allocate(size_t count, size_t element_bytes)
{
	return checked(calloc(count ? count : 1, element_bytes), count, element_bytes);
}

void *allocate_touched(size_t count, size_t element_bytes)
{
	unsigned char *memory = allocate(count, element_bytes);
	for (size_t at = 0; at < count * element_bytes; at += PAGE_BYTES_MIN)
		*(volatile unsigned char *)(memory + at) = 0;
	return memory;
}

void *allocate_aligned(size_t alignment, size_t element_bytes)
{
	size_t bytes = (element_bytes + alignment - 1) / alignment * alignment;
	return memset(checked(aligned_alloc(alignment, bytes), 1, bytes), 0, bytes);
}

void *reallocate(void *old, size_t count, size_t element_bytes)
{
	return checked(reallocarray(old, count ? count : 1, element_bytes), count, element_bytes);
}

char *allocate_text(const char *text, size_t length)
{
	return checked(strndup(text, length), length, 1);
}
