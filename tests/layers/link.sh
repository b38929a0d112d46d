#!/bin/bash
# Proves what a layer's static library can and cannot link with.
#
# link.sh links CC LAYER.a [ALLOWED.a|-lNAME…]
#     every object of LAYER.a links with nothing but libc and what is allowed
# link.sh refuses CC LAYER.a FORBIDDEN.a [ALLOWED.a|-lNAME…]
#     a source of that layer that calls a function of FORBIDDEN.a does not link, for that reason alone
set -euo pipefail

mode=$1 cc=$2 layer=$3
shift 3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# link_layer [OBJECT…] -- [ALLOWED…]
link_layer() {
    local objects=()
    while [[ $1 != -- ]]; do
        objects+=("$1")
        shift
    done
    shift
    "$cc" -shared -o "$scratch/layer.so" -Wl,--no-undefined "${objects[@]}" \
        -Wl,--whole-archive "$layer" -Wl,--no-whole-archive \
        -Wl,--start-group "$@" -Wl,--end-group
}

links() {
    link_layer -- "$@"
}

refuses() {
    local forbidden=$1 symbol errors=$scratch/errors
    shift
    symbol=$(nm --defined-only "$forbidden" 2>/dev/null | awk '$2 == "T" && !n++ {print $3}')
    [[ -n $symbol ]] || { echo "$forbidden defines no function"; return 1; }
    printf 'void %s(void);\nvoid scratch(void);\nvoid scratch(void)\n{\n    %s();\n}\n' \
        "$symbol" "$symbol" >"$scratch/scratch.c"
    "$cc" -w -fno-builtin -fPIC -c -o "$scratch/scratch.o" "$scratch/scratch.c"
    if link_layer "$scratch/scratch.o" -- "$@" 2>"$errors"; then
        echo "a call of $symbol, of $forbidden, links"
        return 1
    fi
    # Everything that is missing must be that call: any other failure would prove nothing.
    if ! grep -q "undefined reference to .$symbol'" "$errors" ||
        grep "undefined reference" "$errors" | grep -qv "to .$symbol'"; then
        cat "$errors"
        return 1
    fi
}

case $mode in
links | refuses) "$mode" "$@" ;;
*) echo "unknown mode $mode"; exit 2 ;;
esac
