// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "arch/arch.h"
#include "clock.h"
#include "corefreq.h"
#include "gaps.h"
#include "selftest.h"
#include "stopping.h"

/* Whether the counter at `hz` and the system's raw clock say the same of the time between two brackets: how far they
 * may be apart is bounded by the brackets' widths and by the bound of hz. */
static bool clocks_agree(const struct clock_bracket *from, const struct clock_bracket *to, double hz, double bound_ns)
{
	double by_counter = (double)(to->ticks - from->ticks) * 1e9 / hz, by_system = (double)(to->raw_ns - from->raw_ns);
	return fabs(by_counter - by_system) <= bound_ns;
}

bool case_clock(struct error *error)
{
	clock_finish();
	if (!clock_now_used.counter) {
		selftest_note("the system's raw clock is the time source itself: %s", clock_now_used.reason);
		struct clock_bracket from = clock_bracket_take(), to = clock_bracket_take();
		EXPECT(to.raw_ns > from.raw_ns);
		return true;
	}
	struct clock_bracket from = clock_bracket_take();
	/* Not the stretch it was calibrated on, and as long: what the two clocks say of it was not made to agree. */
	if (stop_sleep_ns(200000000u) && stop_error(error))
		return false;
	struct clock_bracket to = clock_bracket_take();
	double length_ns = (double)(to.raw_ns - from.raw_ns), hz = clock_now_used.hz;
	/* Two readings of a clock that counts in ns are each rounded by less than one. */
	double bound_ns =
		clock_ns((double)(from.width + to.width) / 2) + length_ns * clock_now_used.hz_uncertainty_ppm * 1e-6 + 2;
	selftest_note(
		"the counter's frequency is known within %.2g ppm; over %.0f ms the system's raw clock agrees within %.2g ppm",
		clock_now_used.hz_uncertainty_ppm, length_ns / 1e6, bound_ns / length_ns * 1e6);
	EXPECT(clocks_agree(&from, &to, hz, bound_ns));
	EXPECT(!clocks_agree(&from, &to, hz * (1 + 3 * bound_ns / length_ns), bound_ns));
	EXPECT(!clocks_agree(&from, &to, hz * (1 - 3 * bound_ns / length_ns), bound_ns));
	if (clock_now_used.hz_uncertainty_ppm > CLOCK_BOUND_PPM)
		return error_set(error, ERROR_UNSUPPORTED,
		                 "the counter's frequency is not known within %g ppm but %.2g ppm: the system's clock can "
		                 "only be read within %.0f ns here",
		                 CLOCK_BOUND_PPM, clock_now_used.hz_uncertainty_ppm, clock_ns((double)to.width));
	return true;
}

bool case_instructions(struct error *error)
{
	EXPECT(arch_dependent_adds(10) == 641);
	EXPECT(arch_delay(5, 10) == 15 && arch_delay(0, 1) == 1 && arch_delay(0, 32) == 32 && arch_delay(7, 97) == 104);
	const uint32_t starts[] = {0, 1, 0x12345678, 0xffffffff};
	for (unsigned s = 0; s < 4; s++) {
		uint32_t loops = 1000 + s, sum = starts[s];
		for (uint32_t i = 0; i < loops; i++) {
			sum += 3 * i + loops;
			sum &= 0x7f0f0000;
		}
		EXPECT(arch_pma_work(loops, starts[s]) == sum);
	}
	uint64_t last = clock_start();
	for (int i = 0; i < 10000; i++) {
		uint64_t now = i % 2 ? clock_start() : clock_stop();
		EXPECT(now >= last);
		last = now;
	}
	double rate = corefreq_per_tick();
	EXPECT(isfinite(rate) && rate > 0);
	return true;
}

/* The real loop, whatever the machine makes of it: every sum must agree with the list. */
bool case_gap_books(struct error *error)
{
	static struct gaps gaps;
	if (!gaps_open(&gaps, GAP_RING, 1, error))
		return false;
	gaps.threshold_ticks = (uint64_t)(200e-9 * clock_now_used.hz);
	gaps_run(&gaps, (uint64_t)(0.1 * clock_now_used.hz));
	uint64_t lost = 0, in_buckets = 0, longest = 0, before = 0;
	bool ordered = true;
	for (size_t k = 0; k < gaps.kept; k++) {
		lost += gaps.ring[k].ticks;
		longest = gaps.ring[k].ticks > longest ? gaps.ring[k].ticks : longest;
		ordered = ordered && gaps.ring[k].at >= before && gaps.ring[k].ticks >= gaps.threshold_ticks;
		before = gaps.ring[k].at + gaps.ring[k].ticks;
	}
	for (unsigned b = 0; b < GAP_BUCKETS; b++)
		in_buckets += gaps.bucket_count[b];
	bool books =
		lost == gaps.lost_ticks && gaps.kept == gaps.count && in_buckets == gaps.count && longest == gaps.max_ticks;
	books = books && gaps.longest_kept == (gaps.count > 0) && (gaps.count == 0 || gaps.longest[0].ticks == longest);
	gaps_free(&gaps);
	EXPECT(ordered);
	EXPECT(books);
	return true;
}
