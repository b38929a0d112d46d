#!/bin/bash
# `./dev deps` against a package manager that is a script: what is installed, and which packages it
# does not know, are files. Prints TAP.
# shellcheck disable=SC2317 # functions are called through check
set -uo pipefail

dev=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/dev
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
number=0 failures=0

cat >"$scratch/bin/dpkg-query" <<END
#!/bin/bash
for name in "\$@"; do
    [[ \$name == -* ]] && continue
    grep -qxF "\$name" "$scratch/absent" || echo "\$name installed"
done
END
cat >"$scratch/bin/apt-get" <<END
#!/bin/bash
echo "apt-get \$*" >>"$scratch/calls"
[[ \$1 == update ]] && exit 0
for unknown in \$(cat "$scratch/unknown"); do
    [[ " \$* " == *" \$unknown "* ]] && exit 100
done
printf '%s\n' "\$@" >"$scratch/present"
grep -vxF -f "$scratch/present" "$scratch/absent" >"$scratch/left"
mv "$scratch/left" "$scratch/absent"
END
# Whoever runs this test, the installation goes through the script above.
printf '#!/bin/bash\n"$@"\n' >"$scratch/bin/sudo"
chmod +x "$scratch/bin/"*

# world ABSENT…: forgets the last case; these packages are not installed.
world() {
    printf '%s\n' "$@" >"$scratch/absent"
    : >"$scratch/calls"
    : >"$scratch/unknown"
}

deps() {
    PATH=$scratch/bin:$PATH CI=true "$dev" deps </dev/null >"$scratch/output" 2>&1
}

# check NAME COMMAND…: the case holds if the command succeeds.
check() {
    local name=$1
    shift
    number=$((number + 1))
    if "$@"; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "$scratch/output" "$scratch/calls"
        failures=$((failures + 1))
    fi
}

not() { ! "$@"; }
says() { grep -q -- "$1" "$scratch/output"; }
called() { grep -q -- "$1" "$scratch/calls"; }

world
check "nothing missing is success" deps
check "and silence" not test -s "$scratch/output"
check "and no package manager" not test -s "$scratch/calls"

world check mandoc
check "what is missing is installed" deps
check "after it was named with its reason" says "check  *unit tests"
check "and the reason of the other" says "mandoc  *checks of man pages"
check "in one call, and nothing else" called "install.* check mandoc$"
check "the second time is silent" deps
check "without a word" not test -s "$scratch/output"

world ninja-build
echo ninja-build >"$scratch/unknown"
check "no build without a build package" not deps
check "and it is named" says "cannot build without: ninja-build"

world mandoc
echo mandoc >"$scratch/unknown"
check "lint's packages do not stop the build" deps
check "but it is said" says "going on"

world meson mandoc
echo mandoc >"$scratch/unknown"
check "nor keep the others out" deps
check "which are installed without them" called "install.* meson$"

echo "1..$number"
exit $((failures > 0))
