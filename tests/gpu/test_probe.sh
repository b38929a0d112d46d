#!/bin/bash
# test_probe.sh PROBE: the probe's questions all get an answer from the simulator, and a driver that
# is missing is told from one that answers badly.
set -euo pipefail

probe=$1
dir=$(mktemp -d /dev/shm/gmb-test-XXXXXX)
trap 'rm -rf "$dir"' EXIT
export GMB_SIM_DIR=$dir/node GMB_SIM_MEMORY=2G
mkdir "$GMB_SIM_DIR"
report=$dir/report.md

fail() {
    echo "$*" >&2
    [ ! -f "$report" ] || cat "$report" >&2
    exit 1
}

expect() {
    grep -q -- "$1" "$report" || fail "the report doesn't say: $1"
}

"$probe" --driver=sim "$report" || fail "the probe ended with $?"
for number in 1 2 3 4 5 6 7 8 9 10; do
    awk -v heading="## $number." '
        index($0, heading " ") == 1 { inside = 1; next }
        /^#/ { inside = 0 }
        inside && /^- / { answers++ }
        END { exit !answers }' "$report" || fail "question $number has no answer"
done
expect '^- the second half of a chunk, by its offset: CUDA_ERROR_INVALID_VALUE (1)$'
expect '^- the whole chunk: CUDA_SUCCESS (0)$'
expect '^- the primary context is not active afterwards$'
expect '^- cuMemcpyHtoD: CUDA_ERROR_INVALID_VALUE (1)$'
expect '^- import of /dev/null: CUDA_ERROR_INVALID_VALUE (1)$'
expect '^- its first and last byte: 0xa5 0xa5 (written: 0xa5)$'
expect '^- cuMemAddressFree with the mapping alive: CUDA_ERROR_INVALID_VALUE (1)$'
expect '^- importer of those 64 MiB: 0 KiB$'
expect '^- last close, 512 MiB: '
! grep -q 'the process died\|it never did\|gave up' "$report" || fail "a question broke off"

one=$dir/one.md
"$probe" --driver=sim --only=10 "$one" || fail "one question alone fails"
[ "$(grep -c '^## ' "$one")" = 1 ] || fail "--only asks other questions too"

status=0
GMB_SIM_LIBDIR=$dir "$probe" --driver=sim "$dir/none.md" 2>"$dir/why" || status=$?
[ "$status" = 77 ] || fail "without a driver the probe ends with $status"
grep -q 'libcuda-sim.so.1 cannot be loaded' "$dir/why" || fail "it doesn't say which library"

status=0
"$probe" --driver=none "$report" 2>/dev/null || status=$?
[ "$status" = 2 ] || fail "a wrong argument gives $status"
