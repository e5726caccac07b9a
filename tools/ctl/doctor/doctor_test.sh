#!/bin/bash
# doctor_test.sh DIVVYCTL: what `divvyctl doctor` prints, its exit codes, and --fix.
set -euo pipefail
divvyctl=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset TF_CONFIG CLUSTER_SPEC DIVVY_CHECKPOINT_DIR

# doctor CODE FLAGS...: runs it into $work/out and fails unless it exits with CODE.
doctor() {
  local code=0
  "$divvyctl" doctor "${@:2}" >"$work/out" 2>"$work/err" || code=$?
  [[ $code -eq $1 ]] || { echo "doctor ${*:2}: exit code $code, wanted $1"; cat "$work/out" "$work/err"; exit 1; }
}
says() { grep -qF -- "$1" "$work/out" || { echo "not said: $1"; cat "$work/out"; exit 1; }; }

doctor 64 now
doctor 64 --tls_cert=x
doctor 64 --workers=2

doctor 1 --checkpoint_dir="$work/none"
says "1. there is no directory $work/none"
says "   mend: mount the volume that has it; \`mkdir $work/none\` if"
[[ ! -e $work/none ]] || { echo "made without --fix"; exit 1; }
doctor 1 --checkpoint_dir="$work/none/below" --fix
says "   done: there is no directory $work/none either"
[[ ! -e $work/none ]] || { echo "made a parent"; exit 1; }
doctor 1 --checkpoint_dir="$work/none" --fix
says "   done: made the directory $work/none: check that this is the shared volume"
says "1 finding; looked at this machine, $work/none"
doctor 0 --checkpoint_dir="$work/none"
says "nothing is wrong; looked at this machine, $work/none"

"$divvyctl" certs --out="$work/certs" >/dev/null
tls=(--tls_cert="$work/certs/ps-0.pem" --tls_key="$work/certs/ps-0.key" --tls_ca="$work/certs/ca.pem")
doctor 0 "${tls[@]}"
chmod 0644 "$work/certs/ps-0.key"
doctor 1 "${tls[@]}"
says "every user of this machine may use the key"
says "and make a new key"
# Root may be led to another file, so it changes none.
if [[ $(id -u) -eq 0 ]]; then
  doctor 1 "${tls[@]}" --fix
  [[ $(stat --format=%a "$work/certs/ps-0.key") == 644 ]] || { echo "root has changed the mode"; exit 1; }
  chmod o-rwx "$work/certs/ps-0.key"
else
  doctor 0 "${tls[@]}" --fix
  says "   done: set the mode of $work/certs/ps-0.key to 0640; make a new key, too"
fi
[[ $(stat --format=%a "$work/certs/ps-0.key") == 640 ]] || { echo "mode $(stat --format=%a "$work/certs/ps-0.key")"; exit 1; }
doctor 0 "${tls[@]}"
"$divvyctl" certs --out="$work/other" >/dev/null
doctor 1 "${tls[@]}" --tls_ca="$work/other/ca.pem"
says "checked against --tls_ca=$work/other/ca.pem"

TF_CONFIG='{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}' doctor 1
says "TF_CONFIG is wrong"
doctor 1 --addr=127.0.0.1:1
says "? (127.0.0.1:1) does not answer"
says "1 task"
echo "1 passed, 0 failed"
