#!/bin/bash
# store_kill_test.sh STORE_PUTS: a process that puts rows is killed at every seventh call that changes a file. tools/crash_points does it at every one.
set -uo pipefail
tools/crash_points --every=7 --check="$1 check {} {out}" -- "$1" put {}
code=$?
[[ $code -eq 77 ]] || exit $code  # and has said why
