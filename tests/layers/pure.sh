#!/bin/bash
# pure.sh LAYER.a [ALLOWED.a…]: proves that a layer of pure decisions does no I/O, reads no clock and
# logs nothing. All that it calls is its own, or of the allowed libraries without their log and their
# clock, or one of the functions of libc that compute.
set -euo pipefail

computes='^(mem(cpy|move|set|cmp|chr)|str(n?len|n?cmp|n?casecmp|n?dup|n?cpy|chr|rchr|spn|cspn|str)'
computes+='|malloc|calloc|realloc|reallocarray|free|qsort|bsearch|abort|__assert_fail|abs'
computes+='|__stack_chk_fail|__errno_location|v?snprintf|__v?snprintf_chk|__(mem|str)[a-z]+_chk'
computes+='|strto(u?l|u?ll|d)|__isoc23_strto(u?l|u?ll)|(exp|log|pow|sqrt|floor|ceil|round)f?[l2]?'
computes+='|toupper|tolower|__ctype_(b|toupper|tolower)_loc|_GLOBAL_OFFSET_TABLE_|__u?(div|mod)ti3|__popcount[ds]i2'
computes+='|__tls_get_addr)$'

own=$(nm --defined-only "$@" 2>/dev/null | awk 'NF == 3 {print $3}' |
    grep -vE '^(log_write|log_set_level|log_level_parse|clock_monotonic)$' | sort -u)
impure=$(nm --undefined-only "$1" 2>/dev/null | awk '$1 == "U" {print $2}' | sort -u |
    grep -vE "$computes" | grep -vxF -f <(printf '%s\n' "$own") || true)
if [[ -n $impure ]]; then
    echo "$1 calls:"
    echo "$impure"
    exit 1
fi
