#!/bin/bash
# store_kill_test.sh STORE_PUTS: kills a process that puts rows at every seventh call that changes a
# file. `tools/crash_points` without --every kills it at every such call.
set -uo pipefail
tools/crash_points --every=7 --check="$1 check {} {out}" -- "$1" put {}
code=$?
[[ $code -eq 77 ]] || exit $code  # crash_points has printed the reason
