/* SPDX-License-Identifier: Apache-2.0 */
/* Memory from the heap, which is always there: all that a command takes was asked for before (demand.h). Where the kernel
 * refuses it all the same, the process says so on stderr and ends with status 3; no caller has to look. What is kept for
 * the document is not freed: the process ends with it. */
#pragma once

#include <stddef.h>

/* `count` zeroed elements, at least one. To be freed. */
void *allocate(size_t count, size_t element_bytes) __attribute__((malloc, returns_nonnull));
/* The same, with every page touched, so that none is faulted in later. */
void *allocate_touched(size_t count, size_t element_bytes) __attribute__((malloc, returns_nonnull));
/* One zeroed element at an address that is a multiple of `alignment`. */
void *allocate_aligned(size_t alignment, size_t element_bytes) __attribute__((malloc, returns_nonnull));
/* Makes room for `count` elements, at least one; what is new is not zeroed. */
void *reallocate(void *old, size_t count, size_t element_bytes) __attribute__((returns_nonnull));
/* The first `length` characters of a text, as a text of its own. */
char *allocate_text(const char *text, size_t length) __attribute__((malloc, returns_nonnull));
