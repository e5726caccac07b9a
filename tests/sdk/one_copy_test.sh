#!/bin/bash
# one_copy_test.sh LIBDIVVY BINARY...: a process must have one copy of everything of Divvy
# (docs/adr/0004). So a binary that links libdivvy.so must not define anything that libdivvy.so
# exports: two registries of steps, for example, would hide a program. Inline functions and
# templates are shared by the loader.
set -eu

# Strong symbols that the files define, without those of the linker.
defined() { nm --defined-only "$@" | awk '$2 ~ /^[TDBRtdbr]$/ {print $3}' | grep -vxE '_init|_fini|_start|_end|_edata|__bss_start|main' | sort -u; }

library=$1 failed=0
exported=$(mktemp)
defined -D "$library" >"$exported"
[[ $(wc -l <"$exported") -gt 1000 ]] || { echo "$library exports next to nothing"; exit 1; }
grep -qx 'divvy_program_api_[0-9]*' "$exported" || { echo "$library does not export the number of its interface"; exit 1; }
for binary in "${@:2}"; do
  readelf --dynamic "$binary" | grep -q 'NEEDED.*\[libdivvy\.so\]' || { echo "$binary does not link libdivvy.so"; failed=1; }
  copies=$(comm -12 "$exported" <(defined "$binary") | c++filt)
  [[ -z $copies ]] || { echo "$binary has its own copy of:"; head -n 5 <<<"$copies"; failed=1; }
done
exit $failed
