# SPDX-License-Identifier: Apache-2.0
# What scripts/test, scripts/lint and .ci/run share: a run is a row of stages, each leaves its result in one folder,
# and collect.py makes one count of the folder. A stage that fails does not stop the next: a run tells all that is
# wrong. Needs common.sh; set-up and building are done by scripts/build and scripts/with-sim.

# begin_results FOLDER: starts a run with an empty folder.
begin_results() {
    SEAM_RESULTS=$1
    rm -rf "$SEAM_RESULTS"
    mkdir -p "$SEAM_RESULTS"
    SEAM_STAGES=0
}

# begin_stage NAME: the stage's path without suffix is in SEAM_STAGE from here on; the number keeps the order of
# the run. Stages of one folder may come from several processes, so the number goes on from what is there.
begin_stage() {
    SEAM_STAGES=$(($(find "$SEAM_RESULTS" -name '*.stage' | wc -l) + 1))
    SEAM_STAGE=$SEAM_RESULTS/$(printf '%02d-%s' "$SEAM_STAGES" "$1")
    SEAM_STAGE_START=$(date +%s)
    printf '\n==== %s\n' "$1"
}

# end_stage KIND STATUS [narrowed]
end_stage() {
    echo "$1 $2 ${3:-whole}" >"$SEAM_STAGE.stage"
    printf '==== %s: status %s after %s s\n' "$(basename "$SEAM_STAGE")" "$2" "$(seconds_since "$SEAM_STAGE_START")"
}

# run_step NAME CMD...: something that must succeed but is no test: set-up, a build.
run_step() {
    local status=0
    begin_stage "$1"
    shift
    "$@" </dev/null || status=$?
    end_stage step "$status"
    return "$status"
}

# run_ctest PRESET [PATTERN]: every test of the preset, or those whose name matches. CMocka's programs print TAP
# lines, one for each function; ctest keeps whole outputs, where collect.py finds them.
run_ctest() {
    local status=0 narrowed=
    local -a choice=()
    [ -z "${2:-}" ] || { choice=(-R "$2" --no-tests=ignore) narrowed=narrowed; }
    begin_stage "ctest-$1"
    (
        cd "$SEAM_ROOT" &&
            CMOCKA_MESSAGE_OUTPUT=TAP ctest --preset "$1" -j "$(nproc)" --no-tests=error "${choice[@]}" \
                --output-junit "$SEAM_STAGE.xml" \
                --test-output-size-passed 4000000 --test-output-size-failed 4000000 </dev/null
    ) || status=$?
    end_stage ctest "$status" "$narrowed"
    return "$status"
}

# What is run on the older PyTorch: the tests of the simulated device, which stands in for the libraries of both, and
# those of what install() replaces in PyTorch. Of the tests of shared tensors one setting, since each starts two
# processes. The rest asks nothing of PyTorch that changed between the two.
SEAM_TESTS_2_11=(
    tests/torch/test_sim_torch.py
    tests/torch/test_sim_features.py
    tests/torch/test_sim_record.py
    'tests/torch/test_sim_processes.py::test_tensors_are_shared[late-expandable_segments:True]'
    tests/torch/test_sim_processes.py::test_a_shared_device_is_short_for_all
    tests/torch/test_sim_processes.py::test_ranks_on_one_device_share_its_memory
    tests/torch/test_sim_processes.py::test_a_tenant_takes_and_gives_back
    tests/torch/test_sim_timed.py
    tests/torch/test_glue_graphs.py
    tests/torch/test_glue_install.py
    tests/torch/test_glue_memory.py
    tests/torch/test_glue_stats.py
)

# run_pytest NAME OPTION PATTERN FILE...: tests on the real PyTorch and the simulated device. OPTION is one of
# with-sim's, or empty; PATTERN too may be empty.
run_pytest() {
    local name=$1 option=$2 pattern=$3 status=0 narrowed=
    local -a choice=()
    shift 3
    [ -z "$pattern" ] || { choice=(-k "$pattern") narrowed=narrowed; }
    begin_stage "pytest-$name"
    (
        cd "$SEAM_ROOT" &&
            scripts/with-sim ${option:+"$option"} python -m pytest "$@" -v "${choice[@]}" \
                --junitxml="$SEAM_STAGE.xml" </dev/null
    ) || status=$?
    end_stage pytest "$status" "$narrowed"
    return "$status"
}

# run_tap NAME CMD...: a command that prints TAP lines.
run_tap() {
    local status
    begin_stage "$1"
    shift
    "$@" </dev/null | tee "$SEAM_STAGE.tap"
    status=${PIPESTATUS[0]}
    end_stage tap "$status"
    return "$status"
}

# finish_results: the count over all stages, alone on the last line; the status is what it says. The collector is
# plain Python 3 with nothing installed, so that a set-up which failed is still reported.
finish_results() {
    echo
    if have_command python3; then
        python3 "$SEAM_ROOT/scripts/lib/collect.py" "$SEAM_RESULTS"
    else
        echo "FAILED   no python3 to count the results with"
        echo "0 passed, 1 failed, 0 skipped"
        return 1
    fi
}
