#include "tools/config/describe_cluster.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/config_json.h"
#include "protocol/role.h"

namespace divvy {
namespace {

constexpr absl::string_view kNothingIsSaid =
    "no TF_CONFIG, --cluster_file, CLUSTER_SPEC or flag names a cluster: all tasks run in "
    "one process\n";
constexpr int kShownTasks = 64;  // of each role

struct Row {
  std::string task, address, role;
  bool is_this_task = false;
};

std::string Count(int number, absl::string_view singular, absl::string_view plural) {
  return absl::StrCat(number, " ", number == 1 ? singular : plural);
}

std::string ServantsRole(absl::string_view what, const ClusterConfig& config) {
  const std::string coordinator = CoordinatorAddress(config);
  return coordinator.empty() ? absl::StrCat(what, "; waits until the coordinator dials it")
                             : absl::StrCat(what, "; registers with ", coordinator);
}

std::string RoleOf(const std::string& job, const ClusterConfig& config) {
  const std::optional<Role> role = ParseRole(job);
  if (!role) return "has an unknown role";
  switch (*role) {
    case Role::kChief:
      return absl::StrCat("runs the program; waits for ",
                          Count(NumParameterServers(config), "ps", "ps"), " and for workers");
    case Role::kPs: return ServantsRole("holds variables", config);
    case Role::kWorker: return ServantsRole("runs steps", config);
    case Role::kEvaluator: break;
  }
  return "reads checkpoints; no task connects to it";
}

bool IsThisTask(const ClusterConfig& config, absl::string_view job, int index) {
  return config.task_type == job && config.task_index == index;
}

std::vector<Row> RowsOf(const ClusterConfig& config) {
  std::vector<Row> rows;
  for (const auto& [job, tasks] : config.spec.as_map()) {
    int shown = 0;
    for (const auto& [index, address] : tasks) {
      const bool is_this_task = IsThisTask(config, job, index);
      if (++shown <= kShownTasks || is_this_task)
        rows.push_back({absl::StrCat(EscapeText(job), " ", index), EscapeText(address),
                        RoleOf(job, config), is_this_task});
    }
    if (shown > kShownTasks)
      rows.push_back(
          {absl::StrCat(EscapeText(job), " ..."), absl::StrCat(shown, " in all"), "", false});
  }
  if (OwnAddress(config).empty() && config.task_type.has_value() && config.task_index.has_value()) {
    rows.push_back({absl::StrCat(EscapeText(*config.task_type), " ", *config.task_index),
                    "not in it", RoleOf(*config.task_type, config), true});
  }
  return rows;
}

std::string TableOf(const std::vector<Row>& rows) {
  size_t task_width = 4, address_width = 7;
  for (const Row& row : rows) {
    task_width = std::max(task_width, row.task.size());
    address_width = std::max(address_width, row.address.size());
  }
  std::string table;
  for (const Row& row : rows) {
    const std::string line =
        absl::StrFormat("%s %-*s  %-*s  %s", row.is_this_task ? "*" : " ", task_width, row.task,
                        address_width, row.address, row.role);
    absl::StrAppend(&table, line.substr(0, line.find_last_not_of(' ') + 1), "\n");
  }
  return table;
}

std::string HeadOf(const ClusterExamination& examination) {
  const ClusterConfig& config = examination.config;
  return absl::StrFormat("cluster %016x (from %s): %s, %s, %s; * is this task\n",
                         ClusterHash(config), examination.source,
                         Count(config.spec.num_tasks("chief"), "chief", "chiefs"),
                         Count(NumParameterServers(config), "ps", "ps"),
                         Count(config.spec.num_tasks("worker"), "worker", "workers"));
}

}  // namespace

ClusterDescription DescribeCluster(const ClusterConfigSources& sources) {
  if (sources.empty()) return {std::string(kNothingIsSaid), true};
  const ClusterExamination examination = ExamineCluster(sources);
  std::string text = absl::StrCat(HeadOf(examination), TableOf(RowsOf(examination.config)));
  for (const std::string& note : examination.notes) absl::StrAppend(&text, "note: ", note, "\n");
  for (const std::string& problem : examination.problems)
    absl::StrAppend(&text, "wrong: ", problem, "\n");
  const size_t wrong = examination.problems.size();
  absl::StrAppend(
      &text, wrong == 0 ? "no problem found\n"
                        : absl::StrCat(Count(static_cast<int>(wrong), "thing is", "things are"),
                                       " wrong: no task would start\n"));
  return {std::move(text), wrong == 0};
}

}  // namespace divvy
