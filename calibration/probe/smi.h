/* SPDX-License-Identifier: Apache-2.0 */
/* System management interrupts: the firmware takes all CPUs, and the kernel is not told. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SMI_TEXT_BYTES 320

/* How many a CPU has had, from some moment on; `text` says where the count comes from. False, with the reason in `text`, where
 * it cannot be read. A count is read by an interrupt on its CPU. */
bool smi_count(unsigned cpu, int64_t *count, char text[SMI_TEXT_BYTES]);
/* The same, whoever asks: in a guest it is no count of the machine's. */
bool smi_read(unsigned cpu, int64_t *count, char text[SMI_TEXT_BYTES]);
