// SPDX-License-Identifier: Apache-2.0
#include "document.h"

#include <inttypes.h>
#include <sys/utsname.h>

#include "arch/arch.h"
#include "clock.h"
#include "interference.h"
#include "looking.h"
#include "subcommand.h"
#include "warning.h"

static void build_write(struct json *json)
{
	json_object_begin(json, "build");
	json_text(json, "version", build_info.version);
	json_text(json, "target", build_info.target);
	json_text(json, "compiler", build_info.compiler);
	json_text(json, "flags", build_info.flags);
	json_text(json, "source_sha256", build_info.source_sha256);
	json_object_end(json);
}

static void host_write(struct json *json)
{
	struct utsname host = {0};
	char hypervisor[ARCH_HYPERVISOR_BYTES];
	(void)uname(&host);
	json_object_begin(json, "host");
	json_text(json, "nodename", host.nodename);
	json_text(json, "release", host.release);
	json_text(json, "machine", host.machine);
	json_text(json, "hypervisor", arch_hypervisor(hypervisor) ? hypervisor : NULL);
	json_object_end(json);
}

static void looks_write(struct json *json, const struct document *document)
{
	if (json_object_known(json, "looking", looking_any())) {
		looking_write(json);
		/* Not while the work may still be looking. */
		if (document->given_up)
			json_null(json, "interrupts");
		else
			interference_whole_write(json, "interrupts");
		json_object_end(json);
	}
}

static void stops_warn(const struct cgroup_stops *before)
{
	struct cgroup_stops now = cgroup_stops("");
	if (now.periods > before->periods)
		warning_add("CPU_QUOTA",
		            "the CPU quota of a control group stopped its threads in %" PRIu64
		            " periods during the measurement, for %.0f ms in total; raise the quota or measure fewer CPUs",
		            now.periods - before->periods, (double)(now.ns - before->ns) / 1e6);
}

void document_compose(struct json *json, const struct document *document)
{
	/* Not while the work may still be at it, and not for a command that was not understood: it timed nothing. */
	if (!document->given_up && document->error.code != ERROR_USAGE)
		clock_finish();
	json_object_begin(json, NULL);
	json_text(json, "schema", "sutprobe/1");
	json_text(json, "subcommand", document->argc > 1 ? document->argv[1] : "");
	json_array_begin(json, "argv");
	for (int i = 0; i < document->argc; i++)
		json_text(json, NULL, i ? document->argv[i] : "sutprobe");
	json_array_end(json);
	build_write(json);
	json_text(json, "status", document->error.code == ERROR_NONE ? "ok" : "failed");
	error_write(json, &document->error);
	host_write(json);
	json_u64(json, "started_at_unix_ns", document->started_unix_ns);
	json_f64(json, "duration_s", (double)(clock_raw_ns() - document->started_raw_ns) / 1e9);
	clock_write(json, "clock");
	stops_warn(&document->stops);
	looking_warn(); /* before the warnings are written */
	looks_write(json, document);
	warning_write(json, "warnings");
	if (document->parameters.text) {
		json_raw(json, "parameters", &document->parameters);
	} else {
		json_object_begin(json, "parameters");
		json_object_end(json);
	}
	json_raw(json, "result", &document->result);
	json_object_end(json);
}
