/* SPDX-License-Identifier: Apache-2.0 */
/* The core clock without a PMU: additions that wait for one another take one clock each on every core. */
#ifndef SUTPROBE_COREFREQ_H
#define SUTPROBE_COREFREQ_H

/* Core clocks per tick of the clock, measured on the CPU the caller is pinned to (some 0.2 ms). */
double corefreq_per_tick(void);
/* The same after the core has had up to 50 ms to leave its idle state and settle. */
double corefreq_settle(void);
/* Core clocks per second from core clocks per tick. */
double corefreq_hz(double per_tick);

#endif
