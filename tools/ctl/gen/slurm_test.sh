#!/bin/bash
# Runs a generated batch script with commands that stand for Slurm's. Usage: slurm_test.sh DIVVYCTL
set -euo pipefail

divvyctl=$PWD/$1
cd "$TEST_TMPDIR"
export PATH=$PWD/bin:$PATH SLURM_JOB_ID=7 SLURM_JOB_NODELIST='n[1-2]'
mkdir bin steps

failed() {
  echo "FAILED: $1" >&2
  tail -n +1 ./*.said ./*.out 2>/dev/null >&2 || true
  exit 1
}
expect() { [[ "$2" == "$3" ]] || failed "$1: \"$2\", wanted \"$3\""; }

cat >bin/scontrol <<'FAKE'
#!/bin/bash
if [[ $1 == show ]]; then printf 'n1\nn2\n'; else echo "$*" >>scontrol.said; fi
FAKE
# Keeps the process id of each step under its name, and the flags that it was asked with. The file
# `late` is the time until the step exists.
cat >bin/srun <<'FAKE'
#!/bin/bash
while [[ $1 == --* ]]; do
  [[ $1 == --job-name=* ]] && name=${1#*=}
  [[ $1 == --nodelist=* ]] && node=${1#*=}
  asked+=" $1"
  shift
done
echo "$node$asked GPUS=${SLURM_GPUS_PER_NODE:-}" >>"$name.srun"
export STEP=$name
[[ ! -e late ]] || sleep "$(<late)"
"$@" &
echo $! >"steps/$name"
code=0; wait $! || code=$?
rm -f "steps/$name"
exit "$code"
FAKE
cat >bin/squeue <<'FAKE'
#!/bin/bash
for step in steps/*; do [[ -e $step ]] && echo "7.$(<"$step") ${step#steps/}"; done
FAKE
cat >bin/scancel <<'FAKE'
#!/bin/bash
echo "$*" >>scancel.said
kill -"${1#--signal=}" "${2#7.}"
FAKE
# A task. It says what it was given, then does what the file `do` says of it.
cat >program <<'FAKE'
#!/bin/bash
printf '%s\n' "$TF_CONFIG" >"$STEP.config"
printf '%s\n' "$@" >"$STEP.flags"
echo started >>"$STEP.starts"
if [[ -e deaf ]]; then trap '' TERM; else trap 'echo drained >>"$STEP.starts"; exit 143' TERM; fi
todo=$(awk -v step="$STEP" -v start="$(grep -c started "$STEP.starts")" '$1 == step && ($2 == start || $2 == "*") { print $3; exit }' plan)
[[ -z $todo ]] || exit "$todo"
while :; do read -rt 0.05 <>steps.pipe || true; done
FAKE
chmod +x bin/* program
mkfifo steps.pipe

run() {  # run PLAN: runs the job, and prints its exit code
  rm -f ./*.starts ./*.said ./*.srun
  printf '%b' "$1" >plan
  local code=0
  bash job.sh >job.out 2>&1 || code=$?
  echo "$code"
}

"$divvyctl" gen slurm --nodes=2 --ps=2 --workers=2 --worker_cpus=4 --ps_memory=6Gi -- ./program --epochs=3 "--note=it's \$HOME" >job.sh
bash -n job.sh
grep -q '^#SBATCH --nodes=2$' job.sh || failed "nodes"
# n1 has the chief, ps 1 and worker 1 (4 + 6 + 8 GiB); n2 has ps 0 and worker 0.
grep -q '^#SBATCH --ntasks-per-node=3$' job.sh || failed "tasks"
grep -q '^#SBATCH --mem=18432M$' job.sh || failed "memory"
grep -q '^#SBATCH --cpus-per-task=4$' job.sh || failed "cores"
# Twice the drain of 25 s, and 30 s.
grep -q '^#SBATCH --signal=B:USR1@80$' job.sh || failed "warning"

expect "a job that is complete" "$(run 'chief-0 1 0\n')" 0
for task in chief-0 ps-0 ps-1 worker-0 worker-1; do
  TF_CONFIG=$(<$task.config) "$divvyctl" config >config.out || failed "TF_CONFIG of $task: $(<config.out)"
  grep -q "\"type\":\"${task%-*}\",\"index\":${task#*-}}" $task.config || failed "$task is told that it is another"
  grep -qx -- "--tls_cert=$PWD/certs/$task.pem" $task.flags || failed "$task has no certificate"
done
expect "the cluster" "$(grep -o '"cluster":.*]}' chief-0.config)" \
  '"cluster":{"chief":["n1:2222"],"ps":["n2:2223","n1:2224"],"worker":["n2:2225","n1:2226"]}'
grep -qx -- "--note=it's \$HOME" chief-0.flags || failed "the program's word was changed: $(<chief-0.flags)"
grep -qx -- "--state_dir=$PWD/program-state" chief-0.flags || failed "no state directory"
grep -qx -- "--http_address=0.0.0.0:9466" ps-1.flags || failed "the port of metrics"
for task in chief-0 ps-0; do grep -qx -- "--checkpoint_dir=$PWD/checkpoints" $task.flags || failed "$task has no checkpoints"; done
if grep -e --epochs -e checkpoint worker-0.flags ps-0.flags | grep -v ps-0.*checkpoint; then failed "flags of others"; fi
grep -q '^n2 .*--cpus-per-task=4 --mem=8192M .*' worker-0.srun || failed "the step of worker 0: $(<worker-0.srun)"
grep -q -- ' --export=ALL ' worker-0.srun || failed "sbatch --export=NONE would keep TF_CONFIG from tasks"
if grep -e --gres -e --gpus ./*.srun; then failed "GPUs in a job without them"; fi
for task in ps-0 ps-1 worker-0 worker-1; do grep -q drained $task.starts || failed "$task was not asked to end"; done

expect "a program's error" "$(run 'chief-0 1 1\n')" 1
expect "a chief and a worker that are killed" "$(run 'chief-0 1 137\nchief-0 2 138\nchief-0 3 0\nworker-0 1 139\n')" 0
expect "starts of the chief" "$(grep -c started chief-0.starts)" 3
expect "starts of the worker" "$(grep -c started worker-0.starts)" 2
expect "starts of another worker" "$(grep -c started worker-1.starts)" 1
expect "a worker with another program, which is not restarted" "$(run 'worker-0 * 78\nchief-0 1 0\n')" 0
expect "starts of the worker" "$(grep -c started worker-0.starts)" 1

# A parameter server that ends for good ends the job, with its code.
expect "a parameter server that is refused" "$(run 'ps-1 1 78\n')" 78
expect "starts of the chief" "$(xargs <chief-0.starts)" "started drained"
expect "starts of the parameter server" "$(grep -c started ps-1.starts)" 1
expect "a parameter server that is killed" "$(run 'ps-1 1 137\nchief-0 1 137\nchief-0 2 137\nchief-0 3 0\n')" 0
expect "starts of the parameter server" "$(grep -c started ps-1.starts)" 2

# Slurm tells the script, and only it, that the time is nearly over, or an operator does.
drain() {  # drain SIGNAL
  rm -f ./*.starts ./*.said
  : >plan
  bash job.sh >job.out 2>&1 &
  local job=$! tries=0
  until [[ -e worker-1.starts && -e chief-0.starts && -e ps-1.starts && -e ps-0.starts && -e worker-0.starts ]]; do
    [[ $((tries += 1)) -lt 200 ]] || failed "the tasks do not start"
    read -rt 0.05 <>steps.pipe || true
  done
  read -rt 0.2 <>steps.pipe || true
  kill "-$1" "$job"
  code=0; wait "$job" || code=$?
}
drain TERM
expect "a drain" "$code" 143
expect "the first signal" "$(head -n 1 scancel.said | cut -d ' ' -f 1)" "--signal=TERM"
expect "starts of the chief" "$(xargs <chief-0.starts)" "started drained"
[[ ! -e scontrol.said ]] || failed "a job that was ended is queued again"
drain USR1
expect "the end of its time" "$code" 143
expect "queued again" "$(<scontrol.said)" "requeue 7"
# Steps exist some time after their srun. The task is not asked twice: a second signal would end its
# drain.
echo 2 >late
rm -f ./*.starts ./*.said
: >plan
bash job.sh >job.out 2>&1 &
job=$!
read -rt 0.5 <>steps.pipe || true
kill -TERM "$job"
code=0; wait "$job" || code=$?
expect "a drain before the steps exist" "$code" 143
expect "what the chief did" "$(xargs <chief-0.starts)" "started drained"
expect "signals" "$(sort scancel.said | cut -d ' ' -f 1 | uniq -c | xargs)" "5 --signal=TERM"
rm late

# A task that does not end is killed.
touch deaf
sed 's/ grace=60$/ grace=2/' job.sh >short.sh
rm -f ./*.starts ./*.said
bash short.sh >job.out 2>&1 &
job=$!
until [[ -e worker-1.starts && -e chief-0.starts && -e ps-1.starts && -e ps-0.starts && -e worker-0.starts ]]; do
  read -rt 0.05 <>steps.pipe || true
done
kill -TERM "$job"
code=0; wait "$job" || code=$?
expect "a chief that does not drain" "$code" 137
grep -q -- --signal=KILL scancel.said || failed "nobody was killed: $(<scancel.said)"
rm deaf

# Each step says what it needs of the GPUs: otherwise it would get those of the whole job.
"$divvyctl" gen slurm --ps=1 --workers=2 --gpus_per_worker=2 -- ./program --drain_timeout=49.5s >job.sh
grep -q '^#SBATCH --gpus-per-node=4$' job.sh || failed "GPUs of the node"
grep -q '^#SBATCH --signal=B:USR1@130$' job.sh || failed "the warning for a longer drain"
export SLURM_GPUS_PER_NODE=4
expect "a job with GPUs" "$(run 'chief-0 1 0\n')" 0
for task in chief-0 ps-0; do grep -q -- '--gres=none .*GPUS=$' $task.srun || failed "GPUs of $task: $(<$task.srun)"; done
for task in worker-0 worker-1; do
  grep -q -- '--gpus-per-node=2 .*GPUS=$' $task.srun || failed "GPUs of $task: $(<$task.srun)"
done
echo "the batch script does as it says"
