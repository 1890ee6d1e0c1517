// SPDX-License-Identifier: Apache-2.0
/* Memory that may be used: text of the kernel, and limits of control groups on made machines. */
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cgroup.h"
#include "host.h"
#include "made_files.h"
#include "memory.h"

static bool case_memory(struct error *error)
{
	/* An eighth may be wasted, and whatever is less than a huge page of x86. */
	const size_t huge = 512u << 20;
	EXPECT(pages_fit(1, 2u << 20) && pages_fit((2u << 20) + 1, 2u << 20));
	EXPECT(!pages_fit(1u << 20, huge) && !pages_fit(huge + 1, huge) && pages_fit(huge, huge));
	EXPECT(pages_fit(huge / 9 * 8 + 8, huge) && !pages_fit(huge / 9 * 8, huge) && pages_fit(8 * huge + 1, huge));
	uint64_t bytes = 0;
	EXPECT(memory_usable_bytes("Node 0 MemTotal: 900 kB\nNode 0 MemFree:  100 kB\nNode 0 Active(file): 30 kB\n"
	                           "Node 0 Inactive(file):   20 kB\nNode 0 SReclaimable: 7 kB\n",
	                           &bytes));
	EXPECT(bytes == 120 * 1024);
	EXPECT(!memory_usable_bytes("MemTotal: 900 kB\n", &bytes));
	struct error refused = {0};
	struct demand much = {0};
	demand_other(&much, 1ull << 46, 1);
	EXPECT(!demand_admit(&much, &refused) && refused.code == ERROR_NO_MEMORY && much.refused_node == -1);
	/* A pool that has too little of a node is no reason to do without that node where the machine has too little. */
	much = (struct demand){.wanted = PAGES_AUTO};
	demand_regions(&much, 64u << 20, 1, 0);
	demand_other(&much, 1ull << 46, 1);
	EXPECT(!demand_admit(&much, &refused) && refused.code == ERROR_NO_MEMORY && much.refused_node == -1);
	return true;
}

#define MOUNT_1 "30 25 0:26 / /cg/memory rw,nosuid - cgroup cgroup rw,memory\n"
#define MOUNT_2 "31 25 0:27 / /cg/two rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_INSIDE "31 25 0:27 /host/job /cg/two rw,nosuid - cgroup2 cgroup2 rw\n"

#define MOUNT_PIDS "33 25 0:29 / /cg/pids rw,nosuid - cgroup cgroup rw,pids\n"
#define MOUNT_CPUSET "34 25 0:30 / /cg/cpuset rw,nosuid - cgroup cgroup rw,cpuset\n"
#define MOUNT_CPU "32 25 0:28 / /cg/cpu rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"

static bool case_control_groups(struct error *error)
{
	/* files of one machine, and the room they leave */
	static const struct {
		const char *files[10][2];
		uint64_t room;
		const char *where;
		uint64_t hugetlb; /* of 2 MiB; 0: no limit */
		double cpus;      /* 0: no quota */
		uint64_t tasks;   /* 0: no limit */
		struct cgroup_stops stops;
	} machines[] = {
		{.files = {{"/proc/self/cgroup", "0::/\n"}, {"/proc/self/mountinfo", MOUNT_2}}, .room = CGROUP_NO_LIMIT},
		/* version 2: the parent's limit is the tighter one; cache not used lately is given back */
		{.files = {{"/proc/self/cgroup", "0::/a/b\n"},
		           {"/proc/self/mountinfo", MOUNT_1 MOUNT_2},
		           {"/cg/two/a/b/memory.max", "max\n"},
		           {"/cg/two/a/memory.max", "1000000\n"},
		           {"/cg/two/a/memory.current", "600000\n"},
		           {"/cg/two/a/memory.stat", "anon 1\nactive_file 70000\ninactive_file 50000\n"}},
		 .room = 450000,
		 .where = "/cg/two/a"},
		/* version 1, beside an empty version 2; the top says no limit in its own way */
		{.files = {{"/proc/self/cgroup", "5:cpuset,memory:/job\n4:cpu:/other\n0::/\n"},
		           {"/proc/self/mountinfo", MOUNT_2 MOUNT_1},
		           {"/cg/memory/memory.limit_in_bytes", "9223372036854771712\n"},
		           {"/cg/memory/memory.usage_in_bytes", "5\n"},
		           {"/cg/memory/job/memory.limit_in_bytes", "4096\n"},
		           {"/cg/memory/job/memory.usage_in_bytes", "8192\n"},
		           {"/cg/memory/job/memory.stat", "inactive_file 9\ntotal_inactive_file 4000\n"}},
		 .room = 0,
		 .where = "/cg/memory/job"},
		/* memory.high is a limit where it is lower; the tighter quota is the parent's; all of them stop threads */
		{.files = {{"/proc/self/cgroup", "0::/a/b\n"},
		           {"/proc/self/mountinfo", MOUNT_2},
		           {"/cg/two/a/b/memory.max", "max\n"},
		           {"/cg/two/a/b/memory.high", "3000\n"},
		           {"/cg/two/a/b/memory.current", "1000\n"},
		           {"/cg/two/a/b/cpu.max", "max 100000\n"},
		           {"/cg/two/a/b/cpu.stat", "usage_usec 9\nnr_periods 9\nnr_throttled 3\nthrottled_usec 40\n"},
		           {"/cg/two/a/cpu.max", "150000 100000\n"},
		           {"/cg/two/a/cpu.stat", "usage_usec 9\nnr_periods 9\nnr_throttled 2\nthrottled_usec 1\n"}},
		 .room = 2000,
		 .where = "/cg/two/a/b",
		 .cpus = 1.5,
		 .stops = {5, 41000}},
		/* pages of 2 MiB, touched and reserved; those of other sizes do not count */
		{.files = {{"/proc/self/cgroup", "0::/a\n"},
		           {"/proc/self/mountinfo", MOUNT_2},
		           {"/cg/two/a/hugetlb.2MB.max", "9000\n"},
		           {"/cg/two/a/hugetlb.2MB.current", "1000\n"},
		           {"/cg/two/a/hugetlb.2MB.rsvd.max", "7000\n"},
		           {"/cg/two/a/hugetlb.2MB.rsvd.current", "4000\n"},
		           {"/cg/two/a/hugetlb.1GB.max", "0\n"},
		           {"/cg/two/a/hugetlb.1GB.current", "0\n"}},
		 .room = CGROUP_NO_LIMIT,
		 .hugetlb = 3000},
		/* version 1 of quotas; no limit of memory */
		{.files = {{"/proc/self/cgroup", "4:cpu,cpuacct:/job\n0::/\n"},
		           {"/proc/self/mountinfo", MOUNT_2 MOUNT_CPU},
		           {"/cg/cpu/cpu.cfs_quota_us", "-1\n"},
		           {"/cg/cpu/cpu.cfs_period_us", "100000\n"},
		           {"/cg/cpu/job/cpu.cfs_quota_us", "25000\n"},
		           {"/cg/cpu/job/cpu.cfs_period_us", "50000\n"},
		           {"/cg/cpu/job/cpu.stat", "nr_periods 7\nnr_throttled 4\nthrottled_time 77\n"}},
		 .room = CGROUP_NO_LIMIT,
		 .cpus = 0.5,
		 .stops = {4, 77}},
		/* the controller cpu is neither cpuset nor cpuacct, which the kernel may name first */
		{.files = {{"/proc/self/cgroup", "6:cpuset:/other\n5:cpuacct,cpu:/job\n0::/\n"},
		           {"/proc/self/mountinfo", MOUNT_2 MOUNT_CPUSET MOUNT_CPU},
		           {"/cg/cpu/job/cpu.cfs_quota_us", "30000\n"},
		           {"/cg/cpu/job/cpu.cfs_period_us", "20000\n"}},
		 .room = CGROUP_NO_LIMIT,
		 .cpus = 1.5},
		/* tasks: the parent leaves fewer; no limit in words */
		{.files = {{"/proc/self/cgroup", "0::/a/b\n"},
		           {"/proc/self/mountinfo", MOUNT_2},
		           {"/cg/two/a/b/pids.max", "20\n"},
		           {"/cg/two/a/b/pids.current", "3\n"},
		           {"/cg/two/a/pids.max", "30\n"},
		           {"/cg/two/a/pids.current", "18\n"},
		           {"/cg/two/pids.max", "max\n"},
		           {"/cg/two/pids.current", "900\n"}},
		 .room = CGROUP_NO_LIMIT,
		 .tasks = 12},
		/* version 1 of tasks */
		{.files = {{"/proc/self/cgroup", "8:pids:/job\n0::/\n"},
		           {"/proc/self/mountinfo", MOUNT_2 MOUNT_PIDS},
		           {"/cg/pids/job/pids.max", "7\n"},
		           {"/cg/pids/job/pids.current", "2\n"}},
		 .room = CGROUP_NO_LIMIT,
		 .tasks = 5},
		/* a container sees its own group as the top, under the host's name */
		{.files = {{"/proc/self/cgroup", "0::/host/job\n"},
		           {"/proc/self/mountinfo", MOUNT_INSIDE},
		           {"/cg/two/memory.max", "5000\n"},
		           {"/cg/two/memory.current", "1000\n"}},
		 .room = 4000,
		 .where = "/cg/two"},
	};
	for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
		char root[] = "/tmp/sutprobe-XXXXXX", where[256] = "";
		if (!mkdtemp(root))
			return error_set(error, ERROR_INTERNAL, "a directory for files in /tmp: %s", strerror(errno));
		bool made = true;
		for (size_t f = 0; made && f < 10 && machines[i].files[f][0]; f++)
			made = put(root, machines[i].files[f][0], machines[i].files[f][1]);
		uint64_t room = made ? cgroup_room(root, where, sizeof(where)) : 0;
		char by[256];
		double cpus = cgroup_cpus(root, by, sizeof(by));
		struct cgroup_stops stops = cgroup_stops(root);
		uint64_t hugetlb = cgroup_hugetlb_room(root, 2u << 20, by, sizeof(by));
		uint64_t tasks = cgroup_tasks(root, by, sizeof(by));
		nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
		if (!made || room != machines[i].room ||
		    (room != CGROUP_NO_LIMIT && strcmp(where + strlen(root), machines[i].where) != 0))
			return error_set(error, ERROR_CHECK_FAILED, "machine %zu: expected room %llu in %s, found %llu in '%s'", i,
			                 (unsigned long long)machines[i].room, machines[i].where, (unsigned long long)room, where);
		EXPECT(hugetlb == (machines[i].hugetlb ? machines[i].hugetlb : CGROUP_NO_LIMIT));
		EXPECT(tasks == (machines[i].tasks ? machines[i].tasks : CGROUP_NO_LIMIT));
		EXPECT(machines[i].cpus > 0 ? cpus == machines[i].cpus : isinf(cpus));
		EXPECT(stops.periods == machines[i].stops.periods && stops.ns == machines[i].stops.ns);
	}
	return true;
}

/* Pages by their sizes, on every architecture. */
static bool case_page_names(struct error *error)
{
	static const struct {
		size_t bytes;
		const char *name;
	} known[] = {{64u << 10, "hugetlb_64k"}, {1u << 20, "hugetlb_1m"},     {2u << 20, "hugetlb_2m"},
	             {16u << 20, "hugetlb_16m"}, {32u << 20, "hugetlb_32m"},   {512u << 20, "hugetlb_512m"},
	             {1u << 30, "hugetlb_1g"},   {16ull << 30, "hugetlb_16g"}, {4ull << 40, "hugetlb_4096g"}};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		const struct region region = {.bytes = known[i].bytes, .kind = PAGES_HUGETLB, .hugetlb_bytes = known[i].bytes};
		struct pages pages = {0};
		char name[PAGES_NAME_BYTES];
		pages_read_sizes(&pages, &region, 1);
		EXPECT(!strcmp(pages_obtained(&pages, name), known[i].name));
	}
	return true;
}

/* Pages counted on each of several nodes, and the pages of one huge page. */
static bool case_shares(struct error *error)
{
	const uint64_t even[] = {8250, 8134}, full[] = {33, 31}, uneven[] = {9000, 7384}, lopsided[] = {64, 0},
				   three[] = {40, 41, 39}, half[] = {48, 16};
	EXPECT(shares_fair(even, NULL, 2, 1) && shares_fair(full, NULL, 2, 1) && shares_fair(three, NULL, 3, 1));
	EXPECT(!shares_fair(uneven, NULL, 2, 1) && !shares_fair(lopsided, NULL, 2, 1) && !shares_fair(half, NULL, 2, 1));
	/* Two huge pages of 512 counted pages each on one node, one on the other: no closer to even can be. */
	const uint64_t odd[] = {1024, 512};
	EXPECT(shares_fair(odd, NULL, 2, 512));
	/* By weights: what is right for one pair of them is wrong for another. */
	const unsigned three_to_one[] = {3, 1}, one_to_one[] = {1, 1}, one_to_three[] = {1, 3};
	const uint64_t weighted[] = {12288, 4096};
	EXPECT(shares_fair(weighted, three_to_one, 2, 1) && shares_fair(half, three_to_one, 2, 1));
	EXPECT(!shares_fair(weighted, one_to_one, 2, 1) && !shares_fair(weighted, one_to_three, 2, 1));
	EXPECT(!shares_fair(weighted, NULL, 2, 1) && shares_fair(even, one_to_one, 2, 1));
	/* What a node may get of pages in a row: all of its turn, wherever the order begins. */
	EXPECT(spread_most(64, three_to_one, 2, 0) == 48 && spread_most(65, three_to_one, 2, 1) == 17);
	EXPECT(spread_most(2, three_to_one, 2, 0) == 2 && spread_most(65, NULL, 2, 0) == 33);
	return true;
}

HOST_CASES(CASE(memory), CASE(shares), CASE(control_groups), CASE(page_names))
