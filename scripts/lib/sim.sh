# SPDX-License-Identifier: Apache-2.0
# Set-up steps: building a preset, and putting the simulated device's libraries where PyTorch's wheels look for
# NVIDIA's (their RPATH names site-packages/nvidia/*/lib, before every other place).

# environments_with_torch: the simulated environments that exist.
environments_with_torch() {
    local env
    for env in "$SEAM_BUILD/env" "$SEAM_BUILD/env-2.11"; do
        [ ! -f "$env/.seamalloc-stamp" ] || echo "$env"
    done
}

# step_build PRESET: configures when needed and builds. The release build also makes the stand-ins that PyTorch loads,
# from what the PyTorch of each environment imports; other presets are for C programs.
step_build() {
    local preset=$1 torch="" env start
    start=$(date +%s)
    if [ "$preset" = release ]; then
        for env in $(environments_with_torch); do
            torch="$torch;$(site_packages "$env")/torch"
        done
    fi
    configure_preset "$preset" "${torch#;}"
    say "building build/$preset"
    cmake --build "$SEAM_BUILD/$preset" 2>&1 | show_progress "$SEAM_BUILD/$preset/build.log" || {
        cat "$SEAM_BUILD/$preset/build.log" >&2
        die "the $preset preset does not build"
    }
    say "build/$preset is built ($(seconds_since "$start") s)"
}

# configure_preset PRESET TORCH_DIRS: runs CMake when the folder is new or its PyTorch is another; later changes to
# CMake files are noticed by the build itself.
configure_preset() {
    local folder=$SEAM_BUILD/$1
    [ -f "$folder/build.ninja" ] && [ "$(cat "$folder/.torch-dirs" 2>/dev/null)" = "$2" ] && return 0
    mkdir -p "$folder"
    (cd "$SEAM_ROOT" && cmake --preset "$1" "-DSEAMALLOC_TORCH_DIRS=$2") >"$folder/configure.log" 2>&1 || {
        cat "$folder/configure.log" >&2
        die "the $1 preset does not configure"
    }
    echo "$2" >"$folder/.torch-dirs"
}

# wheel_folder LIBRARY: the folder below site-packages/nvidia in which PyTorch looks for it.
wheel_folder() {
    case $1 in
    libcudnn*) echo cudnn ;;
    libnccl*) echo nccl ;;
    libcusparseLt*) echo cusparselt ;;
    libnvshmem*) echo nvshmem ;;
    *) echo cu13 ;;
    esac
}

# place_library FILE SITE_PACKAGES: copies one library, unless the same is there. The copy is renamed into place, so
# that a running program keeps the file that it has mapped.
place_library() {
    local folder name
    name=$(basename "$1")
    folder=$2/nvidia/$(wheel_folder "$name")/lib
    cmp -s "$1" "$folder/$name" && return 0
    mkdir -p "$folder"
    cp "$1" "$folder/.$name.new" && mv "$folder/.$name.new" "$folder/$name"
}

# step_place: the stand-ins of the release build into the simulated environments (never into build/env-gpu).
step_place() {
    local env packages library
    for env in $(environments_with_torch); do
        packages=$(site_packages "$env")
        for library in "$SEAM_BUILD"/release/sim/lib/*.so.*; do
            place_library "$library" "$packages"
        done
        cp "$SEAM_ROOT/sim/torch/seamalloc_sim_hook.py" "$packages/"
        echo 'import seamalloc_sim_hook' >"$packages/seamalloc-sim.pth"
    done
}
