// SPDX-License-Identifier: Apache-2.0
/* For how long the tracer observed, of what the kernel booked. The source itself is compiled here. */
#include "firmware.c"

#include "host.h"

/* Windows that have not ended, and those that are not judged, are not observed. */
static bool case_whole_windows(struct error *error)
{
	static const struct {
		uint64_t ran_ns, nmi_windows;
		double observed_s;
	} known[] = {
		{0, 0, 0},
		{89999999, 0, 0},
		{90000000, 0, 0.09},
		{10 * 90000000ull + 89000000, 0, 0.9}, /* booked by another CPU while the eleventh goes on */
		{10 * 90000000ull, 3, 0.63},
		{10 * 90000000ull + 500000, 10, 0},
		{10 * 90000000ull, 11, 0}, /* ended after it was read how long the thread had run */
	};
	options.width_us = 90000;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct station station = {.ran_ns = known[i].ran_ns, .nmi_windows = known[i].nmi_windows};
		double found = observed_s(&station) - known[i].observed_s;
		EXPECT(found < 1e-9 && found > -1e-9);
	}
	return true;
}

/* A CPU that was not observed has its own reason, and is that of all only where none was. */
static bool case_each_its_reason(struct error *error)
{
	static struct station stations[3];
	stations[0].error = (struct error){.code = ERROR_CPU_OFFLINE, .message = "CPU 0 is offline"};
	stations[1] = (struct station){.cpu = 1, .ran_ns = 180000000};
	stations[2].cpu = 2;
	options.width_us = 90000;
	state.stations = stations;
	state.cpus.count = 3;
	EXPECT(any_observed() && !state.refused[0]);
	EXPECT(stations[1].error.code == ERROR_NONE && strstr(stations[2].error.message, "hwlatd/2"));
	stations[1] = (struct station){.cpu = 1, .ran_ns = 180000000, .nmi_windows = 2};
	EXPECT(!any_observed() && !strcmp(state.refused, "CPU 0 is offline"));
	EXPECT(strstr(stations[1].error.message, "cannot be masked"));
	return true;
}

HOST_CASES(CASE(whole_windows), CASE(each_its_reason))
