#!/bin/bash
# checkpoint_exit_codes_test.sh DIVVYCTL: tests the exit codes of `divvyctl checkpoint`, on copies
# of TensorFlow's golden checkpoints.
set -uo pipefail
divvyctl=$1
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/checkpoints.XXXXXX")
trap 'rm -rf "$work"' EXIT
cp -L tests/golden/bundle/single.* tests/golden/bundle/merged.* "$work" && chmod u+w "$work"/*

wrong=0
# expect CODE WORDS...: checks the exit code of `divvyctl checkpoint WORDS`.
expect() {
  local code=$1 output
  shift
  output=$("$divvyctl" checkpoint "$@" 2>&1)
  local got=$?
  [[ $got -eq $code ]] && return
  echo "WRONG: divvyctl checkpoint $*: exit code $got, expected $code, and it said: $output"
  wrong=1
}

expect 0 list "$work"
expect 0 show "$work/single"
expect 0 verify "$work"
expect 0 export "$work/single" "$work/out"
expect 0 import "$work/out/model.safetensors" "$work/again"
expect 0 verify "$work/again"
expect 64
expect 64 forget "$work"
expect 64 list
expect 64 export "$work/single" "$work/out2" --format=pickle
expect 64 export "$work/single" "$work/out2" --max_shard_bytes=0
expect 64 export "$work/single" "$work/out"  # it would overwrite
expect 64 import "$work/out/model.safetensors" "$work/again"
expect 66 list "$work/none"
expect 66 show "$work/none"
expect 66 import "$work/none.safetensors" "$work/new"
# A variable and one of its slots, named as TensorFlow names it.
header='{"kernel":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"kernel/.OPTIMIZER_SLOT/adam/m":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'
{ printf "\\x$(printf %x ${#header})\\0\\0\\0\\0\\0\\0\\0"; printf '%s' "$header"; printf '12345678'; } > "$work/adam.safetensors"
expect 0 import "$work/adam.safetensors" "$work/adam"
expect 0 export "$work/adam" "$work/all"
expect 0 export "$work/adam" "$work/model" --no_slots
expect 0 export "$work/adam" "$work/model_bundle" --no_slots --format=bundle
grep -q 'OPTIMIZER_SLOT' "$work/all/model.safetensors" || { echo "WRONG: an export without --no_slots has no slots"; wrong=1; }
grep -q '"kernel"' "$work/model/model.safetensors" || { echo "WRONG: an export with --no_slots has no variable"; wrong=1; }
if grep -rq 'OPTIMIZER_SLOT' "$work/model" "$work/model_bundle"; then echo "WRONG: an export with --no_slots has slots"; wrong=1; fi

# limited WORDS...: if no file may have a byte (`ulimit -f`), divvyctl must say so and leave
# nothing. Its output goes into a pipe.
limited() {
  local said
  said=$( (ulimit -f 0; "$divvyctl" checkpoint "$@" 2>&1; echo "exit code $?") | cat)
  [[ $said == *"ulimit -f"*"exit code 74" && -z $(ls -A "$work/full") ]] && return
  echo "WRONG: where files may not grow divvyctl checkpoint $* said: $said, and left: $(ls "$work/full")"
  wrong=1
}
mkdir "$work/full"
limited export "$work/single" "$work/full"
limited export "$work/single" "$work/full/clean" --format=bundle
limited import "$work/out/model.safetensors" "$work/full/start"

printf 'x' | dd of="$work/single.data-00000-of-00001" bs=1 seek=10 conv=notrunc status=none
expect 65 verify "$work"
expect 65 export "$work/single" "$work/out3"
truncate --size=-1 "$work/merged.index"
expect 65 show "$work/merged"
expect 0 list "$work"
exit "$wrong"
