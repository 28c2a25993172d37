# SPDX-License-Identifier: Apache-2.0
# Set-up steps: the project's own Python environments under build/, and the CUDA headers (which come in wheels).
#   build/env       PyTorch 2.15.0 without NVIDIA's libraries: the simulated device's stand-ins take their places
#   build/env-2.11  the same with PyTorch 2.11.0; made only when asked for
#   build/env-gpu   PyTorch 2.15.0 with everything it asks for, only where a working GPU driver is; no stand-ins
# The user's own Python is used to make them and never changed. Every version is pinned in requirements/*.txt.

SEAM_REQUIREMENTS=$SEAM_ROOT/scripts/lib/requirements
SEAM_CUDA_INCLUDE=$SEAM_BUILD/deps/cuda/include

# find_python: prints the interpreter to make environments with: SEAMALLOC_PYTHON, else the first that is new enough
# and can make a virtual environment. PyTorch's wheels exist for 3.11 to 3.14.
find_python() {
    local candidate
    for candidate in ${SEAMALLOC_PYTHON:-python3 python3.13 python3.12 python3.11 /usr/bin/python3}; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' \
            2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# site_packages ENV: the environment's folder of packages.
site_packages() {
    echo "$1"/lib/python3.*/site-packages
}

# environment_stamp ENV FILE...: what the environment is made from; another answer than the one kept means make anew.
environment_stamp() {
    local env=$1
    shift
    echo "$env $("$env/bin/python" -c 'import sys; print(sys.version.split()[0], sys.base_prefix)' 2>/dev/null)"
    sha256sum "$@" | cut -d' ' -f1
}

environment_is_current() {
    [ -x "$1/bin/python" ] && [ -f "$1/.seamalloc-stamp" ] &&
        [ "$(environment_stamp "$@")" = "$(cat "$1/.seamalloc-stamp")" ]
}

# make_venv ENV: an empty environment, unless a usable one is there.
make_venv() {
    local python
    "$1/bin/python" -m pip --version >/dev/null 2>&1 && return 0
    python=$(find_python) || die "no Python from 3.11 to 3.14 with venv was found; set SEAMALLOC_PYTHON to one"
    say "making ${1#"$SEAM_ROOT"/} with $python"
    rm -rf "$1"
    "$python" -m venv "$1" || die "$python could not make a virtual environment"
}

# fetch_wheels ENV FILE...: puts the wheels of requirements files into the download cache. Nothing is asked of the
# network for a wheel that is there.
fetch_wheels() {
    local env=$1 wheels=$SEAM_DOWNLOADS/wheels missing
    shift
    mkdir -p "$wheels"
    missing=$("$env/bin/python" "$SEAM_ROOT/scripts/lib/missing_wheels.py" "$wheels" "$@") ||
        die "the download cache $wheels could not be read"
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086 # one word a requirement
    set -- $missing
    say "downloading $# wheels: $*"
    download_wheels "$env" "$wheels" "$@" || die "the wheels could not be downloaded"
}

# download_wheels ENV FOLDER REQUIREMENT...: with pip's own progress bar on a terminal, and its lines elsewhere.
download_wheels() {
    local -a command=("$1/bin/python" -m pip download --disable-pip-version-check --no-deps --only-binary :all: -d "$2")
    shift 2
    if [ -t 2 ]; then
        "${command[@]}" "$@" >&2
    else
        "${command[@]}" "$@" | show_progress "$SEAM_DOWNLOADS/download.log"
    fi
}

# install_wheels ENV FILE...: installs exactly what the files pin, from the cache alone.
install_wheels() {
    local env=$1 file
    local -a wanted=()
    shift
    for file in "$@"; do
        wanted+=(-r "$file")
    done
    "$env/bin/python" -m pip install -q --disable-pip-version-check --no-warn-conflicts --no-deps --no-index \
        --find-links "$SEAM_DOWNLOADS/wheels" "${wanted[@]}" || die "pip could not install into ${env#"$SEAM_ROOT"/}"
}

# make_environment ENV FILE...: an environment with what the files pin and nothing else.
make_environment() {
    local env=$1 start
    start=$(date +%s)
    environment_is_current "$@" && return 0
    make_venv "$env"
    rm -f "$env/.seamalloc-stamp"
    fetch_wheels "$@"
    say "installing into ${env#"$SEAM_ROOT"/}"
    install_wheels "$@"
    # The project's own package is used from the tree; a path file works for every program that uses the environment.
    echo "$SEAM_ROOT/torch-glue/python" >"$(site_packages "$env")/seamalloc-source.pth"
    environment_stamp "$@" >"$env/.seamalloc-stamp"
    say "${env#"$SEAM_ROOT"/} is ready after $(seconds_since "$start") s"
}

step_environment() {
    make_environment "$SEAM_BUILD/env" "$SEAM_REQUIREMENTS/common.txt" "$SEAM_REQUIREMENTS/torch-2.15.txt"
}

step_environment_2_11() {
    make_environment "$SEAM_BUILD/env-2.11" "$SEAM_REQUIREMENTS/common.txt" "$SEAM_REQUIREMENTS/torch-2.11.txt"
}

# have_gpu: whether this machine has a GPU whose driver works.
have_gpu() {
    [ -e /dev/nvidia0 ] && have_command nvidia-smi && nvidia-smi -L >/dev/null 2>&1
}

# step_environment_gpu: PyTorch with NVIDIA's own libraries. Its dependencies are left to pip, which knows what the
# wheel asks for; nothing is done where there is no GPU.
step_environment_gpu() {
    local env=$SEAM_BUILD/env-gpu
    local -a files=("$SEAM_REQUIREMENTS/common.txt" "$SEAM_REQUIREMENTS/torch-2.15.txt")
    have_gpu || return 0
    environment_is_current "$env" "${files[@]}" && return 0
    make_venv "$env"
    say "installing PyTorch with NVIDIA's libraries into build/env-gpu (several GB)"
    mkdir -p "$SEAM_DOWNLOADS/wheels"
    "$env/bin/python" -m pip install -q --disable-pip-version-check --find-links "$SEAM_DOWNLOADS/wheels" \
        -r "${files[0]}" -r "${files[1]}" || die "pip could not install into build/env-gpu"
    echo "$SEAM_ROOT/torch-glue/python" >"$(site_packages "$env")/seamalloc-source.pth"
    environment_stamp "$env" "${files[@]}" >"$env/.seamalloc-stamp"
}

# step_cuda_headers: the headers of the pinned CUDA wheels under build/deps/cuda/include. Only headers are unpacked;
# the wheels are installed nowhere.
step_cuda_headers() {
    local file=$SEAM_REQUIREMENTS/cuda-headers.txt stamp=$SEAM_BUILD/deps/cuda/.stamp
    [ "$(cat "$stamp" 2>/dev/null)" = "$(sha256sum <"$file")" ] && [ -f "$SEAM_CUDA_INCLUDE/cuda.h" ] && return 0
    make_venv "$SEAM_BUILD/env"
    fetch_wheels "$SEAM_BUILD/env" "$file"
    "$SEAM_BUILD/env/bin/python" "$SEAM_ROOT/scripts/lib/unpack_headers.py" \
        "$SEAM_DOWNLOADS/wheels" "$file" "$SEAM_CUDA_INCLUDE" || die "the CUDA headers could not be unpacked"
    sha256sum <"$file" >"$stamp"
    say "CUDA headers are in build/deps/cuda/include"
}
