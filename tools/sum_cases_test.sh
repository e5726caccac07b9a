#!/bin/bash
# Tests how tools/sum_cases counts the last lines of its commands.
set -uo pipefail
wrong=0
# expect WHAT LAST_LINE EXIT_CODE COMMAND...
expect() {
  local what=$1 line=$2 code=$3 output
  shift 3
  output=$(tools/sum_cases "$@")
  local got=$?
  [[ $(tail -n 1 <<<"$output") == "$line" && $got -eq $code ]] && return
  echo "WRONG: $what: exit code $got, expected $code and '$line' after:"$'\n'"$output"
  wrong=1
}
expect "lines are added" "7 passed, 0 failed" 0 "echo 3 passed, 0 failed" "echo words; echo 4 passed, 0 failed"
expect "a failure stays one" "5 passed, 2 failed" 1 "echo 3 passed, 2 failed; exit 1" "echo 2 passed, 0 failed"
expect "a command without a line is one failed case" "2 passed, 1 failed" 1 "exit 3" "echo 2 passed, 0 failed"
expect "a line that is not the last is none" "0 passed, 1 failed" 1 "echo 2 passed, 0 failed; echo more"
expect "a command that fails behind a clean line is one failed case" "2 passed, 1 failed" 1 "echo 2 passed, 0 failed; exit 1"
expect "what is skipped counts as nothing" "2 passed, 0 failed" 0 "echo SKIP: no engine; exit 77" "echo 2 passed, 0 failed"
expect "77 without a reason is one failed case" "2 passed, 1 failed" 1 "exit 77" "echo 2 passed, 0 failed"
output=$(tools/sum_cases "echo 3 passed, 0 failed")
[[ $output == *$'\ntook 0 min '?' s: echo 3 passed, 0 failed'$'\n''3 passed, 0 failed' ]] || { echo "WRONG: no time in: $output"; wrong=1; }
expect "nothing passed" "0 passed, 0 failed" 1 "echo 0 passed, 0 failed"
exit $wrong
