#!/bin/bash
# libgmb as a stranger's program meets it: the header, the exported names, pkg-config, and programs
# in C and C++ that run against a broker on a simulated GPU.
#
# embed.sh header SOURCE_ROOT            gmb.h is clean C99 to C17 and C++11 to C++20
# embed.sh docs SOURCE_ROOT              the programs in docs/libgmb.md are the ones that are tested
# embed.sh exports SOURCE_ROOT LIBGMB    what the library exports is what the header declares
# embed.sh programs SOURCE_ROOT LIBGMB PKGCONFIG_DIR GMBD
set -euo pipefail

mode=$1 root=$2
shift 2
scratch=$(mktemp -d)
broker=
# shellcheck disable=SC2317 # run by the trap
finish() {
    [[ -z $broker ]] || { kill "$broker" 2>/dev/null && wait "$broker"; } || true
    rm -rf "$scratch"
}
trap finish EXIT

strict=(-Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$root/client")

header() {
    local standard
    printf '#include <gmb.h>\n#include <gmb.h>\nint main(void) { return gmb_strerror(0) == 0; }\n' \
        >"$scratch/program.c"
    cp "$scratch/program.c" "$scratch/program.cpp"
    for standard in c99 c11 c17; do
        cc "-std=$standard" "${strict[@]}" -Wstrict-prototypes "$scratch/program.c"
    done
    if command -v c++ >/dev/null; then
        for standard in c++11 c++17 c++20; do
            c++ "-std=$standard" "${strict[@]}" "$scratch/program.cpp"
        done
    else
        echo "no C++ compiler: only C was tried"
    fi
}

docs() {
    # shellcheck disable=SC2016 # backquotes of Markdown
    sed -n '/^```c$/,/^```$/{/^```/!p}' "$root/docs/libgmb.md" |
        diff <(cat "$root"/examples/{worker,arena,pressure}.c) -
}

exports() {
    nm -D --defined-only "$1" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort >"$scratch/is"
    # Declarations start in the first column; nothing else there has a parenthesis behind gmb_.
    grep -hoE '^[a-z].*\bgmb_[a-z_]+\(' "$root"/client/gmb{,_pressure,_segment}.h |
        grep -oE 'gmb_[a-z_]+\($' | tr -d '(' | sort >"$scratch/ought"
    [[ $(wc -l <"$scratch/ought") -gt 20 ]] || { echo "the header's names weren't found"; exit 1; }
    diff "$scratch/ought" "$scratch/is"
}

# One process computes a prompt, another finds it.
prefixes() {
    local first
    # shellcheck disable=SC2086
    cc -Wall -Wextra -Werror "$root/examples/prefix.c" $flags -o "$scratch/prefix"
    mkfifo "$scratch/hold"
    "$scratch/prefix" hold <"$scratch/hold" >"$scratch/first" &
    first=$!
    exec 9>"$scratch/hold"
    for _ in {1..600}; do
        [[ -s $scratch/first ]] && break
        kill -0 "$first"
        read -rt 0.05 <> <(:) || true
    done
    [[ $(<"$scratch/first") == '0 of 8 pages were there' ]]
    [[ $("$scratch/prefix") == '8 of 8 pages were there' ]]
    exec 9>&-
    wait "$first"
    # The arena ended with its last process.
    [[ $("$scratch/prefix" </dev/null) == '0 of 8 pages were there' ]]
}

programs() {
    local libgmb=$1 pkgconfig=$2 gmbd=$3 flags program
    export GMB_SIM_DIR=$scratch/sim GMB_SIM_MEMORY=256M GMB_SOCKET=$scratch/client.sock
    export PKG_CONFIG_PATH=$pkgconfig LD_LIBRARY_PATH=${libgmb%/*}
    printf '[Tenant example]\nUser=*\nDegradeLow=drop-prefix-cache 0.5\n' >"$scratch/gmbd.conf"
    "$gmbd" --gpu=sim --config "$scratch/gmbd.conf" --client-socket "$GMB_SOCKET" \
        --control-socket "$scratch/control.sock" --log-level warning &
    broker=$!
    for _ in {1..200}; do
        [[ -S $scratch/control.sock ]] && break
        kill -0 "$broker"
        read -rt 0.05 <> <(:) || true
    done

    flags=$(pkg-config --cflags --libs gmb)
    # First, while all memory is free: what a program before it had may still be on its way back.
    # shellcheck disable=SC2086 # flags are words
    cc -Wall -Wextra -Werror "$root/examples/pressure.c" $flags -o "$scratch/pressure"
    timeout 60 "$scratch/pressure" | tee "$scratch/said"
    [[ $(<"$scratch/said") == 'example: a cache of 90 % of the memory gave 50 % of itself' ]]
    # shellcheck disable=SC2086
    cc -Wall -Wextra -Werror "$root/examples/worker.c" $flags -o "$scratch/c"
    # shellcheck disable=SC2086
    cc -Wall -Wextra -Werror "$root/examples/arena.c" $flags -o "$scratch/arena"
    "$scratch/arena" | tee "$scratch/said"
    [[ $(<"$scratch/said") == 'example: room for 1024 pages of 64 KiB of sim memory, 8 of them found unharmed' ]]
    prefixes
    if command -v c++ >/dev/null; then
        # shellcheck disable=SC2086
        c++ -std=c++11 -Wall -Wextra -Werror "$root/tests/client/worker.cpp" $flags -o "$scratch/c++"
    fi
    for program in "$scratch/c" "$scratch/c++"; do
        [[ -x $program ]] || continue
        "$program" | tee "$scratch/said"
        [[ $(<"$scratch/said") == 'example: 8 MiB of sim memory, "written before the lease grew"' ]]
    done
}

"$mode" "$@"
