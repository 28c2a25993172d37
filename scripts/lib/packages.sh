# SPDX-License-Identifier: Apache-2.0
# Set-up step: the system packages that the build needs. Each is looked for by what it brings (a command, a header),
# so that a machine which has it from elsewhere, or is no Debian, is left alone; only what is missing is installed.

# package, then what shows that it is there: a command, a <header>, or "py:" modules of some usable Python.
SEAM_BUILD_PACKAGES="
gcc gcc
g++ g++
libc6-dev <stdlib.h>
binutils readelf
cmake cmake
ninja-build ninja
pkg-config pkg-config
python3 python3
python3-venv py:venv,ensurepip
libcmocka-dev <cmocka.h>
libjemalloc-dev <jemalloc/jemalloc.h>
libarchive-dev <archive.h>
libjansson-dev <jansson.h>
libzstd-dev <zstd.h>
libbsd-dev <bsd/sys/tree.h>
xz-utils xz
"
# What only the lint and sanitizer presets need.
SEAM_LINT_PACKAGES="
clang clang
clang-format clang-format
clang-tidy clang-tidy
cppcheck cppcheck
libclang-rt-14-dev lib:/usr/lib/llvm-14/lib/clang
"

have_header() {
    # CMocka's header wants these three before it.
    printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include %s\n' "$1" |
        gcc -E -x c - >/dev/null 2>&1
}

have_what() {
    case $1 in
    '<'*) have_command gcc && have_header "$1" ;;
    py:*) find_python >/dev/null 2>&1 ;;
    lib:*) compgen -G "${1#lib:}/*/lib/linux/libclang_rt.asan*" >/dev/null ;;
    *) have_command "$1" ;;
    esac
}

# missing_packages LIST: the packages of LIST that this machine lacks, one a line.
missing_packages() {
    local package probe
    while read -r package probe; do
        [ -z "$package" ] || have_what "$probe" || echo "$package"
    done <<<"$1"
}

install_packages() {
    local missing=$1 start
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086 # one word a package
    set -- $missing
    have_command apt-get || die "these packages are missing and there is no apt-get to install them with: $*"
    [ "$(id -u)" = 0 ] || die "these packages are missing: $* (install them as root: apt-get install $*)"
    say "installing packages: $*"
    start=$(date +%s)
    mkdir -p "$SEAM_BUILD"
    {
        # A list that cannot be had does not matter when the packages can.
        apt-get update -qq || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } >"$SEAM_BUILD/apt.log" 2>&1 || {
        cat "$SEAM_BUILD/apt.log" >&2
        die "apt-get could not install: $*"
    }
    say "packages installed in $(seconds_since "$start") s"
}

step_packages() {
    install_packages "$(missing_packages "$SEAM_BUILD_PACKAGES")"
}

step_lint_packages() {
    install_packages "$(missing_packages "$SEAM_LINT_PACKAGES")"
}
