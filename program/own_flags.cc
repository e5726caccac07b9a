#include "program/own_flags.h"

#include "absl/strings/strip.h"

namespace divvy {
namespace {

// columns of the table below
constexpr uint8_t C = kUsedByChief, P = kUsedByPs, W = kUsedByWorker, V = kUsedByEvaluator,
                  E = kUsedByEmbedded;
constexpr absl::string_view kNoNetwork =
    "nothing is sent over a network where the whole cluster is in this process";
constexpr absl::string_view kOneLife =
    "where the whole cluster is in this process, nobody outlives anybody";

constexpr OwnFlag kFlags[] = {
    {"ps", V | E},
    {"workers", V | E},
    {"replicas_per_worker", C | W | V | E},
    {"seed", C | V | E},
    {"checkpoint_dir", C | P | V | E},
    {"checkpoint_every", C | E},
    {"keep", C | E},
    {"tensorboard_dir", C | V | E},
    {"report_every", C | V | E},
    {"check_numerics", W | V | E, true},
    {"blas_threads", W | V | E},
    {"workers_per_host", W, false,
     "the workers of this process share its cores already (--blas_threads)"},
    {"gpus", W | V | E},
    {"gpu_memory_bytes", W | V | E},
    {"tf32", W | V | E, true},
    {"deterministic", W | V | E, true},
    {"pipeline_depth", W | V | E},
    {"row_cache_bytes", W | V | E},
    {"row_cache_staleness", W | V | E},
    {"durability", C | E},
    {"redo_log_bytes", C | E},
    {"max_recoveries", C | E},
    {"max_step_attempts", C | E},
    {"step_deadline", C | E},
    {"watchdog", C | E},
    {"ps_timeout", C | E},
    {"min_workers", C, false,
     "all --workers of a cluster in this process are there from the beginning"},
    {"job_name", C | E},
    {"state_dir", C, false,
     "a cluster in this process is remembered by its checkpoints alone (--checkpoint_dir)"},
    {"orphan_timeout", W, false, kOneLife},
    {"drain_timeout", C | P | W | E},
    {"memory_limit_bytes", P | E},
    {"commit_buffer_bytes", P | E},
    {"snapshot_buffer_bytes", P | E},
    {"pull_buffer_bytes", P, false, kNoNetwork},
    {"rpc_memory_bytes", C | P | W, false, kNoNetwork},
    {"max_connections", C | P | W, false, kNoNetwork},
    {"log_format", C | P | W | V | E},
    {"task_type", C | P | W | V, false, "it says that this process is one task of a cluster"},
    {"task_index", C | P | W | V, false, "it says that this process is one task of a cluster"},
    {"coordinator_address", P | W, false, "it says that this process is one task of a cluster"},
    {"num_ps", C, false, "it says that this process is one task of a cluster"},
    {"cluster_file", C | P | W | V, false, "it says that this process is one task of a cluster"},
    {"bind_address", C | P | W, false, kNoNetwork},
    {"health_address", C | P | W, false, kNoNetwork},
    {"tls_cert", C | P | W, false, kNoNetwork},
    {"tls_key", C | P | W, false, kNoNetwork},
    {"tls_ca", C | P | W, false, kNoNetwork},
    {"program", C | W | V, false, "it is for the stock binaries worker and coordinator"},
};

}  // namespace

absl::Span<const OwnFlag> OwnFlags() { return kFlags; }

const OwnFlag* FindOwnFlag(absl::string_view name) {
  for (const OwnFlag& flag : kFlags) {
    if (flag.name == name) return &flag;
  }
  if (!absl::ConsumePrefix(&name, "no")) return nullptr;
  const OwnFlag* const flag = FindOwnFlag(name);
  return flag != nullptr && flag->is_switch ? flag : nullptr;
}

}  // namespace divvy
