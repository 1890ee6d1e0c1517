# SPDX-License-Identifier: Apache-2.0
# In FD.io CSIT's bootstrap_verify_perf.sh, in place of its calls from reserve_and_cleanup_testbed on. The job has reserved
# the traffic generator already.
quick_gate () {
    "${CALIBRATION}/.venv/bin/calibration" gate --quick --results "${CALIBRATION}/results" \
        -i "${WORKING_TOPOLOGY}" --limit sut -e reserve_tg= -e ansible_become=true \
        --output "${ARCHIVE_DIR}/gate_${1}"
}

reserve_and_cleanup_testbed || die
deploy_topology || die
quick_gate before || die "The testbed has changed, or cannot be judged."
generate_tests || die
archive_tests || die
run_robot || die
after=0; quick_gate after || after=$?
move_archives || die
untrap_and_unreserve_testbed || die
die_on_robot_error || die
(( after != 1 )) || die "The testbed changed during the tests."
