#include "tests/conformance/cluster_judge.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cluster/cluster_config.h"
#include "cluster/cluster_resolver.h"

namespace divvy::conformance {
namespace {

template <typename T>
std::optional<T> Given(const Json& constructor, const char* name) {
  if (!constructor.contains(name)) return std::nullopt;
  return constructor.at(name).get<T>();
}

// TensorFlow's None for a text that is not set is an empty text in Divvy.
Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json ClusterAnswer(const ClusterSpec& spec) {
  Json answer = Json::object();
  for (const auto& [job, tasks] : spec.as_map()) {
    answer[job] = Json::object();
    for (const auto& [index, address] : tasks) answer[job][absl::StrCat(index)] = address;
  }
  return answer;
}

Json NumTasksAnswer(const ClusterSpec& spec) {
  Json answer = Json::object();
  for (const std::string& job : spec.jobs()) answer[job] = spec.num_tasks(job);
  return answer;
}

absl::StatusOr<Json> Validate(const std::optional<std::string>& text,
                              const TfConfigOverrides& overrides) {
  ClusterConfigSources sources;
  sources.tf_config = text;
  sources.flags.task_type = overrides.task_type;
  sources.flags.task_index = overrides.task_id;
  ASSIGN_OR_RETURN(const ClusterConfig config, ResolveClusterConfig(sources));
  RETURN_IF_ERROR(ValidateParameterServerCluster(config));
  return Json("ok");
}

absl::StatusOr<Json> Ask(const std::string& accessor, const std::optional<std::string>& text,
                         const TfConfigOverrides& overrides) {
  if (accessor == "validate") return Validate(text, overrides);
  const std::unique_ptr<ClusterResolver> resolver =
      TfConfigClusterResolver(overrides, [text] { return text; });
  ASSIGN_OR_RETURN(const ClusterSpec spec, resolver->cluster_spec());
  if (accessor == "cluster") return ClusterAnswer(spec);
  if (accessor == "num_tasks") return NumTasksAnswer(spec);
  if (accessor == "task_type") return TextOrNull(resolver->task_type());
  if (accessor == "task_id")
    return resolver->task_id().has_value() ? Json(*resolver->task_id()) : Json(nullptr);
  if (accessor == "rpc_layer") return TextOrNull(resolver->rpc_layer());
  if (accessor == "environment") return TextOrNull(resolver->environment());
  if (accessor != "master") return absl::UnimplementedError(absl::StrCat("no accessor ", accessor));
  ASSIGN_OR_RETURN(std::string master, resolver->master());
  return Json(std::move(master));
}

// Texts that TensorFlow reads and Divvy refuses. The cases have no `divvy` for them.
bool IsRefusedOnPurpose(const Json& test_case) {
  const Json config = Json::parse(
      test_case.at("tf_config").is_null() ? "{}" : test_case.at("tf_config").get<std::string>(),
      nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("task")) return false;
  const Json& task = config.at("task");
  const bool has_negative_index = task.is_object() && task.contains("index") &&
                                  task.at("index").is_number_integer() &&
                                  task.at("index").get<int64_t>() < 0;
  return (!task.is_object() && !task.is_null()) || has_negative_index;
}

bool IsAnswer(const Json& wanted) { return wanted.contains("value") || IsFailure(wanted); }

}  // namespace

Verdict JudgeTfConfig(const Json& test_case) {
  const Json& text = test_case.at("tf_config");
  const Json& given = test_case.at("constructor");
  const TfConfigOverrides overrides{
      Given<std::string>(given, "task_type"), Given<int>(given, "task_id"),
      Given<std::string>(given, "rpc_layer"), Given<std::string>(given, "environment")};
  const absl::StatusOr<Json> answer =
      Ask(test_case.at("accessor").get<std::string>(),
          text.is_null() ? std::nullopt : std::optional<std::string>(text.get<std::string>()),
          overrides);
  if (answer.status().code() == absl::StatusCode::kUnimplemented)
    return NotCovered(std::string(answer.status().message()));
  const Json& wanted = Wanted(test_case);
  if (!IsAnswer(wanted))
    return answer.ok() ? Deviating(wanted.at("why").get<std::string>())
                       : Failed(answer.status().ToString());
  if (IsFailure(wanted)) return PassedUnless(FailureDifference(answer.status(), wanted));
  if (!answer.ok() && IsRefusedOnPurpose(test_case))
    return Deviating(std::string(answer.status().message()));
  if (!answer.ok()) return Failed(answer.status().ToString());
  const Json expected = wanted.at("value") == "" && test_case.at("accessor") != "master"
                            ? Json(nullptr)
                            : wanted.at("value");
  return PassedUnless(*answer == expected
                          ? ""
                          : absl::StrCat("got ", answer->dump(), ", wanted ", expected.dump()));
}

}  // namespace divvy::conformance
