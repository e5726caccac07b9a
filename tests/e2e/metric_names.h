// Every name that a task serves to Prometheus, and what moves it. docs/operating/operations.md has
// the same names for operators; MetricsTest compares the two with what tasks serve.
#ifndef DIVVY_TESTS_E2E_METRIC_NAMES_H_
#define DIVVY_TESTS_E2E_METRIC_NAMES_H_

namespace divvy {

// When a name is served, and whether MetricsTest sees it change.
enum class MetricMoves {
  // A cluster that trains under faults changes it.
  kUnderFaults,
  // A cluster with dynamic tables changes it. Others serve it, too.
  kWithTables,
  // Served, and the same for the life of the process.
  kNever,
  // Served. No cluster of a test can change it without ending the process, or at will;
  // ServedMetric::proof names the test that changes it.
  kElsewhere,
  // Served only with certificates.
  kWithTls,
  // Served only by a worker with a GPU that has a limit; ServedMetric::proof names the test.
  kOnGpus,
};

struct ServedMetric {
  const char* name;
  // "counter", "gauge" or "histogram".
  const char* type;
  // Some of "chief", "ps" and "worker", with a space between them.
  const char* roles;
  MetricMoves moves;
  // What moves it in MetricsTest, or the test that moves it elsewhere.
  const char* proof;
};

// clang-format off
inline constexpr ServedMetric kServedMetrics[] = {
    // Steps.
    {"divvy_steps_total", "counter", "chief", MetricMoves::kUnderFaults, "each step"},
    {"divvy_steps", "gauge", "chief", MetricMoves::kUnderFaults, "each step"},
    {"divvy_undurable_steps", "gauge", "chief", MetricMoves::kUnderFaults, "each step, each checkpoint"},
    {"divvy_oldest_step_seconds", "gauge", "chief", MetricMoves::kUnderFaults, "workers that are stopped"},
    {"divvy_examples_total", "counter", "chief", MetricMoves::kUnderFaults, "each step"},
    {"divvy_loss", "gauge", "chief", MetricMoves::kUnderFaults, "each line of progress"},
    {"divvy_leases", "gauge", "chief", MetricMoves::kUnderFaults, "each step over data"},
    {"divvy_goodput_ratio", "gauge", "chief", MetricMoves::kUnderFaults, "steps that run again"},
    // Tasks.
    {"divvy_tasks", "gauge", "chief", MetricMoves::kNever, ""},
    {"divvy_tasks_up", "gauge", "chief", MetricMoves::kUnderFaults, "a task that is killed"},
    {"divvy_recoveries_total", "counter", "chief", MetricMoves::kUnderFaults, "a task that is killed and started"},
    {"divvy_ps_restarts_total", "counter", "chief", MetricMoves::kUnderFaults, "a ps that is killed and started"},
    {"divvy_rewinds_total", "counter", "chief", MetricMoves::kUnderFaults, "a ps that is killed"},
    {"divvy_replayed_steps_total", "counter", "chief", MetricMoves::kUnderFaults, "a ps that is killed"},
    {"divvy_worker_sessions_fenced_total", "counter", "chief ps", MetricMoves::kUnderFaults, "a worker that is killed"},
    // Checkpoints and state.
    {"divvy_checkpoint_last_success_timestamp_seconds", "gauge", "chief", MetricMoves::kUnderFaults, "each checkpoint"},
    {"divvy_checkpoint_duration_seconds", "histogram", "chief", MetricMoves::kUnderFaults, "each checkpoint"},
    {"divvy_checkpoint_stall_seconds", "histogram", "chief", MetricMoves::kUnderFaults, "each checkpoint"},
    {"divvy_checkpoint_bytes", "gauge", "chief", MetricMoves::kUnderFaults, "the first checkpoint"},
    {"divvy_checkpoint_failures_total", "counter", "chief", MetricMoves::kUnderFaults, "a ps whose disk is full"},
    {"divvy_checkpoint_failing", "gauge", "chief", MetricMoves::kUnderFaults, "a ps whose disk is full"},
    {"divvy_checkpoint_interval_seconds", "gauge", "chief", MetricMoves::kNever, ""},
    {"divvy_redo_log_bytes", "gauge", "chief", MetricMoves::kUnderFaults, "each step, each checkpoint"},
    {"divvy_redo_log_limit_bytes", "gauge", "chief", MetricMoves::kNever, ""},
    {"divvy_store_commit_seconds", "histogram", "chief", MetricMoves::kUnderFaults, "each checkpoint"},
    // Parameter servers.
    {"divvy_shards", "gauge", "ps", MetricMoves::kUnderFaults, "a ps that is killed loads them again"},
    {"divvy_shards_bytes", "gauge", "ps", MetricMoves::kUnderFaults, "a ps that is killed loads them again"},
    {"divvy_memory_bytes", "gauge", "ps", MetricMoves::kUnderFaults, "commits that arrive"},
    {"divvy_memory_used_bytes", "gauge", "ps", MetricMoves::kUnderFaults, "a ps that is killed loads its shards again"},
    {"divvy_memory_limit_bytes", "gauge", "ps", MetricMoves::kNever, ""},
    {"divvy_inflight_bytes", "gauge", "ps", MetricMoves::kUnderFaults, "commits that arrive"},
    {"divvy_sessions", "gauge", "ps", MetricMoves::kUnderFaults, "a worker that is killed"},
    {"divvy_push_applied_total", "counter", "ps", MetricMoves::kUnderFaults, "each step"},
    {"divvy_push_pending", "gauge", "ps", MetricMoves::kElsewhere, "TaskPagesTest.MetricsTellTheStatus"},
    {"divvy_push_duplicate_total", "counter", "ps", MetricMoves::kUnderFaults, "answers to commits that are lost"},
    {"divvy_push_rejected_total", "counter", "ps", MetricMoves::kElsewhere, "PsMetricsTest.RefusalsCountByReason"},
    {"divvy_stale_epoch_rejected_total", "counter", "ps", MetricMoves::kElsewhere, "PsMetricsTest.RefusalsCountByReason"},
    {"divvy_push_bytes_total", "counter", "ps", MetricMoves::kUnderFaults, "each step"},
    {"divvy_pull_bytes_total", "counter", "ps", MetricMoves::kUnderFaults, "each step"},
    {"divvy_push_rows_total", "counter", "ps", MetricMoves::kUnderFaults, "each step"},
    {"divvy_pull_rows_total", "counter", "ps", MetricMoves::kUnderFaults, "each step"},
    {"divvy_apply_seconds", "histogram", "ps", MetricMoves::kUnderFaults, "each step"},
    // Dynamic tables.
    {"divvy_table_rows", "gauge", "ps", MetricMoves::kWithTables, "keys that are admitted"},
    {"divvy_table_waiting", "gauge", "ps", MetricMoves::kWithTables, "keys that are named once"},
    {"divvy_table_bytes", "gauge", "ps", MetricMoves::kWithTables, "keys that are admitted"},
    {"divvy_table_admitted_total", "counter", "ps", MetricMoves::kWithTables, "keys that are admitted"},
    {"divvy_table_evicted_total", "counter", "ps", MetricMoves::kWithTables, "rows that have become 0"},
    {"divvy_table_refused_total", "counter", "ps", MetricMoves::kElsewhere, "TaskPagesTest.MetricsTellTheStatus"},
    // Workers.
    {"divvy_step_seconds", "histogram", "worker", MetricMoves::kUnderFaults, "each step"},
    {"divvy_step_busy_seconds_total", "counter", "worker", MetricMoves::kUnderFaults, "each step"},
    {"divvy_input_wait_seconds_total", "counter", "worker", MetricMoves::kUnderFaults, "each step over data"},
    {"divvy_pull_seconds", "histogram", "worker", MetricMoves::kUnderFaults, "each step"},
    {"divvy_push_seconds", "histogram", "worker", MetricMoves::kUnderFaults, "each step"},
    {"divvy_push_staleness_versions", "histogram", "worker", MetricMoves::kUnderFaults, "each step"},
    {"divvy_worker_reported_total", "counter", "worker", MetricMoves::kUnderFaults, "each step"},
    {"divvy_worker_queued", "gauge", "worker", MetricMoves::kUnderFaults, "each step"},
    {"divvy_worker_committing", "gauge", "worker", MetricMoves::kUnderFaults, "each step"},
    {"divvy_device_memory_bytes", "gauge", "worker", MetricMoves::kOnGpus, "TaskPagesTest.MetricsTellTheDevices"},
    {"divvy_device_memory_limit_bytes", "gauge", "worker", MetricMoves::kOnGpus, "TaskPagesTest.MetricsTellTheDevices"},
    // Every task.
    {"divvy_build_info", "gauge", "chief ps worker", MetricMoves::kNever, ""},
    {"divvy_ready", "gauge", "chief ps worker", MetricMoves::kNever, ""},
    {"divvy_epoch", "gauge", "chief ps worker", MetricMoves::kUnderFaults, "a ps that is killed"},
    {"divvy_waiting_seconds", "gauge", "chief ps worker", MetricMoves::kElsewhere, "TaskPagesTest.MetricsTellTheStatus"},
    {"divvy_certificate_expiry_timestamp_seconds", "gauge", "chief ps worker", MetricMoves::kWithTls, ""},
    {"grpc_server_call_duration_seconds", "histogram", "chief ps worker", MetricMoves::kUnderFaults, "each call"},
    {"process_cpu_seconds_total", "counter", "chief ps worker", MetricMoves::kUnderFaults, "time"},
    {"process_start_time_seconds", "gauge", "chief ps worker", MetricMoves::kNever, ""},
    {"process_resident_memory_bytes", "gauge", "chief ps worker", MetricMoves::kUnderFaults, "each step"},
    {"process_virtual_memory_bytes", "gauge", "chief ps worker", MetricMoves::kElsewhere, "TaskPagesTest.MetricsTellTheProcess"},
    {"process_virtual_memory_max_bytes", "gauge", "chief ps worker", MetricMoves::kNever, ""},
    {"process_threads", "gauge", "chief ps worker", MetricMoves::kElsewhere, "TaskPagesTest.MetricsTellTheProcess"},
    {"process_open_fds", "gauge", "chief ps worker", MetricMoves::kElsewhere, "TaskPagesTest.MetricsTellTheProcess"},
    {"process_max_fds", "gauge", "chief ps worker", MetricMoves::kNever, ""},
};
// clang-format on

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_METRIC_NAMES_H_
