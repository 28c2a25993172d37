# SPDX-License-Identifier: Apache-2.0
# What every script and set-up step shares: where the tree is, how progress is said, how one step keeps others out.
# Sourced by bash scripts; sets SEAM_ROOT, SEAM_BUILD, SEAM_DOWNLOADS and defines functions, does nothing else.

SEAM_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
SEAM_BUILD=$SEAM_ROOT/build
# Wheels are kept here between set-ups; a machine that builds several clones can point them all at one folder.
SEAM_DOWNLOADS=${SEAMALLOC_DOWNLOADS:-$SEAM_BUILD/downloads}

say() {
    printf '[set-up] %s\n' "$*" >&2
}

die() {
    printf '[set-up] error: %s\n' "$*" >&2
    exit 1
}

have_command() {
    command -v "$1" >/dev/null 2>&1
}

# with_setup_lock STEP [ARG...]: runs a step while no other set-up of this tree runs. The lock is a file's, so it
# ends with the process that holds it, however that ends.
with_setup_lock() {
    mkdir -p "$SEAM_BUILD"
    (
        if ! flock -n 9; then
            say "another set-up of this tree is running; waiting for it"
            flock 9
        fi
        "$@"
    ) 9>"$SEAM_BUILD/.setup.lock"
}

# show_progress LOG: keeps its input in LOG, and shows where it is: on a terminal the newest line, elsewhere one line
# every ten seconds.
show_progress() {
    local line last=$SECONDS
    while IFS= read -r line; do
        printf '%s\n' "$line"
        if [ -t 2 ]; then
            printf '\r\033[K%.100s' "$line" >&2
        elif [ $((SECONDS - last)) -ge 10 ]; then
            last=$SECONDS
            say "$line"
        fi
    done >"$1"
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

# seconds_since START: whole seconds, for the progress lines.
seconds_since() {
    echo $(($(date +%s) - $1))
}
