#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tools/ctl/gen/arguments.h"
#include "tools/ctl/gen/formats.h"
#include "tools/ctl/gen/quote.h"

namespace divvy::gen {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// How long before the end of its time Slurm tells the script: the coordinator drains, then the
// others do, and there is some time to spare.
int WarningSeconds(const Job& job) { return 2 * job.drain_seconds + 30; }

// What the fullest node needs. Task k runs on node k modulo their number.
struct Node {
  int tasks = 0;
  int64_t memory_bytes = 0;
  int gpus = 0;
};

Node FullestNode(const Job& job, int nodes) {
  std::vector<Node> all(nodes);
  int number = 0;
  for (const RolePlan& role : job.roles) {
    for (int i = 0; i < role.count; ++i) {
      Node& node = all[number++ % nodes];
      ++node.tasks;
      node.memory_bytes += role.memory_bytes;
      node.gpus += role.gpus;
    }
  }
  Node fullest;
  for (const Node& node : all) {
    fullest.tasks = std::max(fullest.tasks, node.tasks);
    fullest.memory_bytes = std::max(fullest.memory_bytes, node.memory_bytes);
    fullest.gpus = std::max(fullest.gpus, node.gpus);
  }
  return fullest;
}

std::string Requests(const Job& job) {
  const int nodes = job.options.nodes.value_or(1);
  const Node node = FullestNode(job, nodes);
  int cpus = 1;
  for (const RolePlan& role : job.roles) cpus = std::max(cpus, role.cpus);
  return absl::StrCat(
      "#SBATCH --job-name=", job.name, "\n#SBATCH --nodes=", nodes,
      "\n#SBATCH --ntasks-per-node=", node.tasks, "\n#SBATCH --cpus-per-task=", cpus,
      "\n#SBATCH --mem=", node.memory_bytes / kMiB, "M\n",
      node.gpus > 0 ? absl::StrCat("#SBATCH --gpus-per-node=", node.gpus, "\n") : "",
      "#SBATCH --signal=B:USR1@", WarningSeconds(job),
      "\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --output=%x-%j.log\n");
}

std::string BashWords(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const std::string& word) {
    absl::StrAppend(out, ShellWord(word));
  });
}

bool HasGpus(const Job& job) {
  return std::any_of(job.roles.begin(), job.roles.end(),
                     [](const RolePlan& role) { return role.gpus > 0; });
}

// A step gets all GPUs of the job, unless it says what it needs. Then no other step could start.
std::string GpusOf(const Job& job, const RolePlan& role) {
  if (!HasGpus(job)) return "";
  return role.gpus > 0 ? absl::StrCat(" --gpus-per-node=", role.gpus) : " --gres=none";
}

// What the script knows of each role: what a step needs, and its flags.
std::string Roles(const Job& job) {
  // srun would take the variable, which Slurm sets for the job, for what the step needs.
  std::string text =
      absl::StrCat(HasGpus(job) ? "unset SLURM_GPUS_PER_NODE\n" : "", "declare -A needs\n");
  for (const RolePlan& role : job.roles) {
    absl::StrAppend(&text, "needs[", role.name(), "]='--cpus-per-task=", role.cpus,
                    " --mem=", role.memory_bytes / kMiB, "M", GpusOf(job, role), "'\n");
    absl::StrAppend(&text, role.name(), "_flags=(", BashWords(role.flags), ")\n");
  }
  return text;
}

std::string Tasks(const Job& job) {
  return absl::StrJoin(TasksOf(job), " ", [](std::string* out, const Task& task) {
    absl::StrAppend(out, RoleName(task.role), ":", task.index);
  });
}

// The directories that all nodes see. A relative one is in the directory of the submission.
std::string Directories(const Job& job) {
  const auto absolute = [](const std::string& path) {
    return absl::StartsWith(path, "/") ? path
                                       : absl::StrCat("$PWD/", absl::StripPrefix(path, "./"));
  };
  std::string text = absl::StrCat("certs=", absolute(*job.options.tls_dir),
                                  "\nchief_flags+=(--state_dir=\"$PWD/", job.name, "-state\")\n");
  if (job.checkpoint_dir.empty() || job.says_checkpoint_dir) return text;
  const std::string directory = absolute(job.checkpoint_dir);
  return absl::StrCat(text, "checkpoints=", directory,
                      "\nmkdir -p \"$checkpoints\"\n"
                      "chief_flags+=(--checkpoint_dir=\"$checkpoints\")\n"
                      "ps_flags+=(--checkpoint_dir=\"$checkpoints\")\n");
}

std::string BatchHead(const Job& job) {
  return absl::StrCat(
      "# Made by divvyctl gen slurm. The directory of the submission must be one that all nodes\n"
      "# see. Make the certificates there, then submit:\n"
      "#   divvyctl certs --out=certs --ps=",
      job.options.ps, " --workers=", job.options.workers,
      "\n#   sbatch THIS_FILE\n"
      "# To end the job with a checkpoint: scancel --batch --signal=TERM JOBID. Shortly before "
      "its\n"
      "# time limit the job does that by itself, and is queued again. Jobs that share nodes need\n"
      "# ports of their own: DIVVY_PORT and DIVVY_HTTP_PORT of the environment are the first "
      "ones.\n");
}

// Task k has the k-th port, also on nodes that no other task uses.
constexpr char kAddresses[] = R"bash(
port=${DIVVY_PORT:-2222} http_port=${DIVVY_HTTP_PORT:-9464}
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")

# addresses ROLE: a JSON list of the addresses of its tasks.
addresses() {
  local list='' k
  for k in "${!tasks[@]}"; do
    [[ ${tasks[k]%:*} == "$1" ]] || continue
    list+="${list:+,}\"${nodes[k % ${#nodes[@]}]}:$((port + k))\""
  done
  echo "[$list]"
}
cluster="{\"chief\":$(addresses chief),\"ps\":$(addresses ps),\"worker\":$(addresses worker)}"
)bash";

// srun answers SIGTERM with SIGKILL to its task. So the script asks Slurm to signal the step, which
// it finds by its name. A step exists only some time after its srun, so the script tries until the
// signal is sent; and then no more, because a second SIGTERM would end the task without a drain.
// `wait` returns early when a trap has run, and its code is then that of the signal. So the codes
// of tasks are in files. --export=ALL hands TF_CONFIG on also under `sbatch --export=NONE`.
constexpr char kRun[] = R"bash(
# send SIGNAL NAME: sends a signal to the task of that name. Fails if there is no such step yet.
send() {
  local step
  step=$(squeue --steps --jobs="$SLURM_JOB_ID" --noheader --format='%i %j' \
    | awk -v name="$2" '$2 == name { print $1; exit }')
  [[ -n $step ]] && scancel --signal="$1" "$step"
}

# end_of PROCESS: waits for its end.
end_of() {
  while kill -0 "$1" 2>/dev/null; do wait "$1"; done
}

# The exit code of task K is in the file of that name.
codes=$(mktemp -d)
trap 'rm -rf "$codes"' EXIT
code_of() { cat "$codes/$1" 2>/dev/null || echo 143; }

# stop: ends the task of the function run with SIGTERM, and after $grace seconds with SIGKILL. Sends
# itself a SIGTERM each second, which calls stop again.
stop() {
  [[ $stopping -eq 1 ]] || kill_at=$((SECONDS + grace))
  stopping=1
  if [[ $is_asked -eq 0 ]] && send TERM "$role-$index"; then is_asked=1; fi
  if [[ $SECONDS -ge $kill_at ]]; then send KILL "$role-$index"; fi
  { sleep 1; kill -TERM "$self" 2>/dev/null; } &
}

# run K: runs task K, and restarts it while its exit code is 128 or more. SIGTERM ends the task, and
# this function with it.
run() {
  local k=$1 role=${tasks[$1]%:*} index=${tasks[$1]#*:} self=$BASHPID
  local stopping=0 is_asked=0 kill_at=0 starts=0 code=0
  local -n flags=${role}_flags
  trap stop TERM
  while [[ $stopping -eq 0 && $starts -le $restarts ]]; do
    starts=$((starts + 1)) is_asked=0
    rm -f "$codes/$k"
    {
      # shellcheck disable=SC2086
      TF_CONFIG="{\"cluster\":$cluster,\"task\":{\"type\":\"$role\",\"index\":$index}}" \
        srun --export=ALL --nodes=1 --ntasks=1 --exact ${needs[$role]} \
        --nodelist="${nodes[k % ${#nodes[@]}]}" --job-name="$role-$index" \
        "$program" --http_address="0.0.0.0:$((http_port + k))" \
        --tls_cert="$certs/$role-$index.pem" --tls_key="$certs/$role-$index.key" \
        --tls_ca="$certs/ca.pem" "${flags[@]}"
      echo $? >"$codes/$k"
    } &
    end_of $!
    code=$(code_of "$k")
    [[ $code -ge 128 ]] || break
    [[ $stopping -eq 1 ]] || sleep 1
  done
  # The coordinator would wait for a parameter server that does not come back. So the job ends.
  if [[ $role == ps && $stopping -eq 0 ]]; then kill -TERM $$; fi
}

# The coordinator ends first: it needs the others for its last checkpoint.
requeue=0
end_coordinator() { [[ -z ${pids[0]:-} ]] || kill -TERM "${pids[0]}"; }
trap end_coordinator TERM
trap 'requeue=1; end_coordinator' USR1
for k in "${!tasks[@]}"; do
  run "$k" &
  pids[k]=$!
done
end_of "${pids[0]}"
trap '' TERM USR1
kill -TERM "${pids[@]:1}" 2>/dev/null
wait
# The job's code is the coordinator's, or that of a parameter server which ended for good.
code=$(code_of 0) coordinator=$code
for k in "${!tasks[@]}"; do
  ended=$(code_of "$k")
  if [[ ${tasks[k]} == ps:* && $coordinator -ne 0 && $ended -gt 0 && $ended -lt 128 ]]; then
    code=$ended
  fi
done
if [[ $requeue -eq 1 && $code -ge 128 ]]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
)bash";

}  // namespace

std::string SlurmFile(const Job& job) {
  return absl::StrCat("#!/bin/bash\n", Requests(job), BatchHead(job),
                      "set -u\n\nprogram=", ShellWord(job.program), "\nrestarts=", kRestarts,
                      " grace=", kGraceSeconds, "\ntasks=(", Tasks(job), ")\n", Roles(job),
                      Directories(job), kAddresses, kRun);
}

}  // namespace divvy::gen
