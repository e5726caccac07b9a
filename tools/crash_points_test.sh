#!/bin/bash
# Tests tools/crash_points on programs that leave a file half written, and on programs that do not.
set -uo pipefail
wrong=0
# expect WHAT LAST_LINE EXIT_CODE COMMAND...
expect() {
  local what=$1 line=$2 code=$3 output
  shift 3
  output=$("$@" 2>&1)
  local got=$?
  [[ $got -eq 77 && $(tail -n 1 <<<"$output") == SKIP:* ]] && { tail -n 1 <<<"$output"; exit 0; }
  [[ $(tail -n 1 <<<"$output") == "$line" && $got -eq $code ]] && return
  echo "WRONG: $what: exit code $got, expected $code and '$line' after:"$'\n'"$output"
  wrong=1
}
whole='echo -n a >{}/new; echo -n b >>{}/new; mv {}/new {}/file'
torn='echo -n a >{}/file; echo -n b >>{}/file'
right='[[ ! -e {}/file || $(cat {}/file) == ab ]]'
says='echo one; echo two >{}/file'
expect "a file that is renamed when it is whole" "crash_points: signal=KILL at 3 of 3 calls, 0 wrong" 0 tools/crash_points --check="$right" -- bash -c "$whole"
expect "every second call" "crash_points: signal=KILL at 2 of 3 calls, 0 wrong" 0 tools/crash_points --every=2 --check="$right" -- bash -c "$whole"
expect "a file that is written in place" "crash_points: signal=KILL at 2 of 2 calls, 2 wrong" 1 tools/crash_points --check="$right" -- bash -c "$torn"
expect "what was printed is there for the check" "crash_points: signal=KILL at 2 of 2 calls, 0 wrong" 0 \
  tools/crash_points --check='[[ ! -e {}/file || $(cat {out}) == one ]]' -- bash -c "$says"
expect "a check that fails without a kill" "crash_points: the command or its check fails though nothing is killed:" 1 tools/crash_points --check=false -- bash -c "$whole"
expect "no check" "tools/crash_points [--every=K] [--calls=A,B,...] [--inject=WHAT] --check=CHECKER -- COMMAND..." 64 tools/crash_points -- true
expect "calls that fail" "crash_points: error=ENOSPC at 2 of 2 calls, 1 wrong" 1 tools/crash_points --inject=error=ENOSPC --check='[[ -s {}/file ]]' -- bash -c "$says"
exit $wrong
