#include "cluster/cluster_config.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/edit_distance.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "cluster/config_json.h"
#include "cluster/task_address.h"
#include "protocol/error.h"
#include "protocol/role.h"

namespace divvy {
namespace {

using Kind = JsonValue::Kind;
using Problems = std::vector<std::string>;

// the most problems in one message
constexpr size_t kShownProblems = 20;
constexpr size_t kShownIndices = 8;
// The prefix of the problems if several texts, or none, were read.
constexpr absl::string_view kSeveralSources = "the cluster";
constexpr absl::string_view kExampleCluster = R"({"ps": ["host:2222"], "worker": ["host:2222"]})";
constexpr absl::string_view kExampleTask = R"({"type": "worker", "index": 0})";

// The source of a text, and its names for the jobs.
struct Dialect {
  absl::string_view source;
  bool has_worker_pools = false;
};
constexpr Dialect kTfConfig{"TF_CONFIG"}, kClusterFile{"--cluster_file"},
    kVertexClusterSpec{"CLUSTER_SPEC", true};

// ---- texts of messages --------------------------------------------------------------------------

absl::Status StatusOf(const Problems& problems) {
  if (problems.empty()) return absl::OkStatus();
  const size_t shown = std::min(problems.size(), kShownProblems);
  std::string message = absl::StrJoin(problems.begin(), problems.begin() + shown, "; ");
  if (shown < problems.size())
    absl::StrAppend(&message, "; and ", problems.size() - shown, " more");
  return absl::InvalidArgumentError(message);
}

absl::Status StatusOf(absl::string_view source, const Problems& problems) {
  const absl::Status status = StatusOf(problems);
  return status.ok() ? status
                     : absl::InvalidArgumentError(absl::StrCat(source, ": ", status.message()));
}

bool IsKnownType(absl::string_view type) { return ParseRole(type).has_value(); }

// The type that a misspelt word probably means; "" if there is none.
absl::string_view NearType(absl::string_view word) {
  static const auto& others = *new std::map<std::string, absl::string_view>{
      {"coordinator", "chief"}, {"master", "chief"}, {"parameterserver", "ps"},
      {"psserver", "ps"},       {"server", "ps"},    {"eval", "evaluator"}};
  std::string plain;
  for (const char c : word) {
    if (absl::ascii_isalpha(c)) plain += absl::ascii_tolower(c);
  }
  if (absl::EndsWith(plain, "s") && plain != "ps") plain.pop_back();
  if (const auto found = others.find(plain); found != others.end()) return found->second;
  for (const Role role : kRoles) {
    const absl::string_view type = RoleName(role);
    // With 2, every short word would be near "ps".
    const size_t allowed = type.size() > 2 ? 2 : 0;
    if (plain.size() < 2 * type.size() && EditDistance(plain, type) <= allowed) return type;
  }
  return "";
}

std::string TypeAdvice(absl::string_view word) {
  const absl::string_view near = NearType(word);
  return near.empty() ? "a type is chief, worker, ps or evaluator"
                      : absl::StrCat("it is written \"", near, "\"");
}

// The known key that a misspelt word probably means; "" if there is none. One letter may be wrong,
// in a long word two, or the letters may be in another order.
absl::string_view NearKey(absl::string_view word, std::initializer_list<absl::string_view> keys) {
  const auto in_order = [](std::string text) {
    std::sort(text.begin(), text.end());
    return text;
  };
  const std::string plain = absl::AsciiStrToLower(word);
  for (const absl::string_view key : keys) {
    const size_t allowed = key.size() > 5 ? 2 : 1;
    if (EditDistance(plain, key) <= allowed || in_order(plain) == in_order(std::string(key)))
      return key;
  }
  return "";
}

std::string IndicesText(const ClusterSpec& spec, absl::string_view job) {
  const std::vector<int> indices = spec.task_indices(job);
  if (indices.empty()) return "it has none";
  if (indices.size() <= kShownIndices) return absl::StrCat("it has ", absl::StrJoin(indices, ", "));
  return absl::StrCat("it has ", indices.size(), ", from ", indices.front(), " to ",
                      indices.back());
}

// ---- reading one text ---------------------------------------------------------------------------

// What was read from one text. If parts of the text are wrong, the rest is here; a bad address is
// kept as it was written.
struct Reading {
  ClusterSpec::Jobs jobs;
  std::optional<std::string> task_type;
  std::optional<int> task_index;
  std::optional<std::string> rpc_layer, session_master;
  bool has_cluster = false;
  // false: something was left out because it was wrong
  bool cluster_is_whole = true, task_is_whole = true;
  Problems problems;
  std::vector<std::string> unread_keys;
};

class Reader {
 public:
  explicit Reader(const Dialect& dialect) : dialect_(dialect) {}

  Reading ReadConfig(absl::string_view text) {
    const std::optional<JsonDocument> document =
        ReadDocument(text, R"({"cluster": {...}, "task": {...}})");
    if (!document.has_value()) return std::move(reading_);
    for (const auto& [key, value] : document->value.members) ReadMember(key, value);
    return std::move(reading_);
  }

  // Checks a cluster that does not come from text: its addresses are normalised and checked like
  // those of a text.
  Reading ReadSpec(const ClusterSpec& spec) {
    reading_.has_cluster = true;
    for (const auto& [written, tasks] : spec.as_map()) {
      const std::string job = JobFrom(written, "cluster");
      const auto [of_job, is_first] = reading_.jobs.try_emplace(job);
      if (!is_first) {
        ClusterProblem("cluster.", written, " and another key are both the job ", job,
                       ": keep one");
        continue;
      }
      for (const auto& [index, address] : tasks) {
        const std::string path = ConfigPath(written, index);
        if (index < 0 || index > kMaxTaskIndex)
          ClusterProblem(path, ": an index is 0 to ", kMaxTaskIndex);
        else
          of_job->second[index] = ReadAddress(path, address);
      }
    }
    CheckAddressesDiffer();
    return std::move(reading_);
  }

  Reading ReadClusterAlone(absl::string_view text) {
    const std::optional<JsonDocument> document = ReadDocument(text, kExampleCluster);
    if (document.has_value()) ReadCluster(document->value);
    return std::move(reading_);
  }

 private:
  template <typename... Words>
  void Problem(const Words&... words) {
    reading_.problems.push_back(absl::StrCat(words...));
  }
  template <typename... Words>
  void ClusterProblem(const Words&... words) {
    reading_.cluster_is_whole = false;
    Problem(words...);
  }
  template <typename... Words>
  void TaskProblem(const Words&... words) {
    reading_.task_is_whole = false;
    Problem(words...);
  }

  std::optional<JsonDocument> ReadDocument(absl::string_view text, absl::string_view example) {
    absl::StatusOr<JsonDocument> document = ReadJson(text);
    reading_.cluster_is_whole = reading_.task_is_whole =
        document.ok() && document->value.kind == Kind::kMap;
    if (!document.ok()) {
      Problem(document.status().message());
      return std::nullopt;
    }
    if (document->value.kind != Kind::kMap) {
      Problem("it is ", ShowJson(document->value), "; wanted one object such as ", example);
      return std::nullopt;
    }
    if (!document->duplicates.empty()) reading_.cluster_is_whole = reading_.task_is_whole = false;
    for (const std::string& path : document->duplicates)
      Problem("the key ", path, " stands twice: keep one");
    return std::move(*document);
  }

  void ReadMember(const std::string& key, const JsonValue& value) {
    if (key == "cluster") return ReadCluster(value);
    if (key == "task") return ReadTask(value);
    if (key == "rpc_layer") return ReadText(key, value, "such as \"grpc\"", reading_.rpc_layer);
    if (key == "session_master")
      return ReadText(key, value, "such as \"host:2222\"", reading_.session_master);
    const absl::string_view meant =
        NearKey(key, {"cluster", "task", "rpc_layer", "session_master"});
    if (meant.empty())
      return reading_.unread_keys.push_back(absl::StrCat("\"", EscapeText(key), "\""));
    Problem("the key ", ShowText(key), " is unknown: it is written \"", meant, "\"");
    if (meant == "cluster") reading_.cluster_is_whole = false;
    if (meant == "task") reading_.task_is_whole = false;
  }

  void ReadText(const std::string& key, const JsonValue& value, absl::string_view example,
                std::optional<std::string>& text) {
    if (value.kind == Kind::kText)
      text = value.text;
    else if (value.kind != Kind::kNull)
      Problem(key, " is ", ShowJson(value), "; wanted text ", example);
  }

  // ---- cluster
  void ReadCluster(const JsonValue& cluster) {
    reading_.has_cluster = true;
    if (cluster.kind != Kind::kMap)
      return ClusterProblem("cluster is ", ShowJson(cluster), "; wanted an object such as ",
                            kExampleCluster);
    for (const auto& [written, tasks] : cluster.members) {
      const std::string path = absl::StrCat("cluster.", EscapeText(written));
      const std::string job = JobFrom(written, "cluster");
      if (reading_.jobs.count(job) > 0)
        ClusterProblem(path, " and another key are both the job ", job, ": keep one");
      else
        ReadJob(path, tasks, reading_.jobs[job]);
    }
    CheckAddressesDiffer();
  }

  std::string JobFrom(const std::string& written, absl::string_view where) {
    if (!dialect_.has_worker_pools) return written == "master" ? "chief" : written;
    // workerpool0 to 3
    static constexpr absl::string_view kPools[] = {"chief", "worker", "ps", "evaluator"};
    int pool = -1;
    const bool is_pool = absl::StartsWith(written, "workerpool") &&
                         absl::SimpleAtoi(written.substr(10), &pool) && pool >= 0 && pool < 4;
    if (is_pool) return std::string(kPools[pool]);
    Problem(where, " has ", ShowText(written),
            "; wanted workerpool0 (chief), 1 (worker), 2 (ps) or 3 (evaluator)");
    reading_.cluster_is_whole = reading_.task_is_whole = false;
    return written;
  }

  void ReadJob(const std::string& path, const JsonValue& tasks, std::map<int, std::string>& job) {
    // Kubeflow writes an empty job as null.
    if (tasks.kind == Kind::kNull) return;
    if (tasks.kind == Kind::kMap) return ReadSparseJob(path, tasks, job);
    if (tasks.kind != Kind::kList)
      return ClusterProblem(path, " is ", ShowJson(tasks),
                            "; wanted a list of addresses, or an object {\"0\": address}");
    for (size_t i = 0; i < tasks.items.size(); ++i)
      job[static_cast<int>(i)] = ReadAddress(absl::StrCat(path, "[", i, "]"), tasks.items[i]);
  }

  void ReadSparseJob(const std::string& path, const JsonValue& tasks,
                     std::map<int, std::string>& job) {
    for (const auto& [key, address] : tasks.members) {
      int index = 0;
      const std::string canonical = absl::SimpleAtoi(key, &index) ? absl::StrCat(index) : "";
      if (canonical.empty())
        ClusterProblem(path, " has the key ", ShowText(key), "; wanted an index such as \"0\"");
      else if (index < 0 || index > kMaxTaskIndex)
        ClusterProblem(path, " has the key ", ShowText(key), "; an index is 0 to ", kMaxTaskIndex);
      else if (canonical != key)
        ClusterProblem(path, " has the key ", ShowText(key), ": it is written \"", canonical, "\"");
      else
        job[index] = ReadAddress(absl::StrCat(path, "[", index, "]"), address);
    }
  }

  std::string ReadAddress(const std::string& path, const JsonValue& value) {
    if (value.kind != Kind::kText) {
      Problem(path, " is ", ShowJson(value), "; wanted an address such as \"host:2222\"");
      return "";
    }
    return ReadAddress(path, value.text);
  }

  std::string ReadAddress(const std::string& path, const std::string& text) {
    const absl::StatusOr<std::string> address = NormalizeAddress(text);
    if (address.ok()) return *address;
    Problem(path, " is ", ShowText(text), ": ", address.status().message());
    bad_addresses_.insert(text);
    return text;
  }

  void CheckAddressesDiffer() {
    std::map<absl::string_view, std::string> first;
    for (const auto& [job, tasks] : reading_.jobs) {
      for (const auto& [index, address] : tasks) {
        const std::string path = ConfigPath(job, index);
        const auto [known, is_new] = first.emplace(address, path);
        if (!is_new && !address.empty() && bad_addresses_.count(address) == 0) {
          Problem(known->second, " and ", path, " have the same address ", ShowText(address),
                  ": give each task its own");
        }
      }
    }
  }

  // ---- task
  void ReadTask(const JsonValue& task) {
    if (task.kind != Kind::kMap)
      return TaskProblem("task is ", ShowJson(task), "; wanted an object such as ", kExampleTask);
    if (const JsonValue* type = task.Find("type")) ReadType(*type);
    if (const JsonValue* index = task.Find("index")) ReadIndex(*index);
    for (const auto& [key, value] : task.members) {
      if (key == "type" || key == "index") continue;
      const absl::string_view meant = NearKey(key, {"type", "index"});
      if (!meant.empty())
        TaskProblem("the key ", ShowText(absl::StrCat("task.", key)),
                    " is unknown: it is written \"task.", meant, "\"");
    }
  }

  void ReadType(const JsonValue& type) {
    if (type.kind == Kind::kText)
      reading_.task_type = JobFrom(type.text, "task.type");
    else
      TaskProblem("task.type is ", ShowJson(type),
                  "; wanted one of the texts \"chief\", \"worker\", \"ps\" and \"evaluator\"");
  }

  // A number in text is read as Python's int() reads it, because some launchers write "1".
  void ReadIndex(const JsonValue& index) {
    int number = -1;
    const bool is_number = (index.kind == Kind::kInteger || index.kind == Kind::kText) &&
                           absl::SimpleAtoi(index.text, &number);
    if (is_number && number >= 0 && number <= kMaxTaskIndex)
      reading_.task_index = number;
    else
      TaskProblem("task.index is ", ShowJson(index), "; wanted a whole number from 0 to ",
                  kMaxTaskIndex);
  }

  const Dialect& dialect_;
  Reading reading_;
  std::set<std::string> bad_addresses_;
};

ClusterConfig ConfigFrom(Reading reading) {
  ClusterConfig config;
  config.spec = ClusterSpec(std::move(reading.jobs));
  config.task_type = std::move(reading.task_type);
  config.task_index = reading.task_index;
  config.rpc_layer = reading.rpc_layer.value_or("");
  config.session_master = std::move(reading.session_master);
  return config;
}

// ---- putting the sources together ---------------------------------------------------------------

// Fills the fields that `merged` lacks from `lower`.
void MergeInto(Reading lower, Reading& merged) {
  if (!merged.has_cluster) {
    merged.jobs = std::move(lower.jobs);
    merged.has_cluster = lower.has_cluster;
  }
  if (!merged.task_type.has_value()) merged.task_type = std::move(lower.task_type);
  if (!merged.task_index.has_value()) merged.task_index = lower.task_index;
  if (!merged.rpc_layer.has_value()) merged.rpc_layer = std::move(lower.rpc_layer);
  if (!merged.session_master.has_value()) merged.session_master = std::move(lower.session_master);
  merged.cluster_is_whole = merged.cluster_is_whole && lower.cluster_is_whole;
  merged.task_is_whole = merged.task_is_whole && lower.task_is_whole;
}

struct Resolution {
  ClusterConfig config;
  bool cluster_is_whole = true, task_is_whole = true;
  Problems problems;
  std::vector<std::string> notes;
  std::string source;
};

std::vector<std::pair<Dialect, absl::string_view>> TextsOf(const ClusterConfigSources& sources) {
  std::vector<std::pair<Dialect, absl::string_view>> texts;
  if (sources.tf_config.has_value()) texts.emplace_back(kTfConfig, *sources.tf_config);
  if (sources.cluster_file.has_value()) texts.emplace_back(kClusterFile, *sources.cluster_file);
  if (sources.cluster_spec.has_value() && !sources.tf_config.has_value())
    texts.emplace_back(kVertexClusterSpec, *sources.cluster_spec);
  return texts;
}

void ApplyFlags(const ClusterFlags& flags, Resolution& resolution) {
  ClusterConfig& config = resolution.config;
  if (flags.task_type.has_value())
    config.task_type = *flags.task_type == "master" ? "chief" : *flags.task_type;
  if (flags.task_index.has_value() && *flags.task_index >= 0 &&
      *flags.task_index <= kMaxTaskIndex) {
    config.task_index = flags.task_index;
  } else if (flags.task_index.has_value()) {
    resolution.problems.push_back(absl::StrCat("--task_index is ", *flags.task_index,
                                               "; wanted a whole number from 0 to ",
                                               kMaxTaskIndex));
    resolution.task_is_whole = false;
  }
  config.num_ps = flags.num_ps;
  if (flags.num_ps.has_value() && (*flags.num_ps < 1 || *flags.num_ps > kMaxTaskIndex)) {
    resolution.problems.push_back(
        absl::StrCat("--num_ps is ", *flags.num_ps, "; wanted 1 or more"));
    resolution.cluster_is_whole = false;
  }
  if (!flags.coordinator_address.has_value()) return;
  const absl::StatusOr<std::string> address = NormalizeAddress(*flags.coordinator_address);
  config.coordinator_address = address.value_or(*flags.coordinator_address);
  if (!address.ok())
    resolution.problems.push_back(absl::StrCat("--coordinator_address is ",
                                               ShowText(*flags.coordinator_address), ": ",
                                               address.status().message()));
}

// Kubeflow gives parameter server k a list with only its own address, so it is at index 0; the job
// of workers is then an empty object.
void PutLonePsAtItsIndex(ClusterConfig& config) {
  ClusterSpec::Jobs jobs = config.spec.as_map();
  const auto ps = jobs.find("ps"), workers = jobs.find("worker");
  const bool knows_itself_alone = config.task_type == "ps" && config.task_index.has_value() &&
                                  ps != jobs.end() && ps->second.size() == 1 &&
                                  ps->second.count(0) == 1 && workers != jobs.end() &&
                                  workers->second.empty();
  if (!knows_itself_alone) return;
  ps->second = {{*config.task_index, ps->second.at(0)}};
  config.spec = ClusterSpec(std::move(jobs));
}

Resolution Resolve(const ClusterConfigSources& sources) {
  Resolution resolution;
  Reading merged;
  const auto texts = TextsOf(sources);
  for (const auto& [dialect, text] : texts) {
    Reading reading = Reader(dialect).ReadConfig(text);
    const std::string prefix = texts.size() > 1 ? absl::StrCat(dialect.source, " ") : "";
    for (const std::string& problem : reading.problems)
      resolution.problems.push_back(prefix + problem);
    if (!reading.unread_keys.empty())
      resolution.notes.push_back(
          absl::StrCat(dialect.source, ": not read: ", absl::StrJoin(reading.unread_keys, ", ")));
    MergeInto(std::move(reading), merged);
  }
  resolution.source =
      texts.size() == 1 ? std::string(texts[0].first.source) : std::string(kSeveralSources);
  resolution.cluster_is_whole = merged.cluster_is_whole;
  resolution.task_is_whole = merged.task_is_whole;
  resolution.config = ConfigFrom(std::move(merged));
  ApplyFlags(sources.flags, resolution);
  PutLonePsAtItsIndex(resolution.config);
  return resolution;
}

// ---- the checks of a cluster with parameter servers ---------------------------------------------

// The numbers are those of TensorFlow's order. A check is skipped if the text that it needs could
// not be read.
class Validation {
 public:
  Validation(const ClusterConfig& config, bool cluster_is_whole, bool task_is_whole)
      : config_(config),
        spec_(config.spec),
        type_(config.task_type.value_or("")),
        cluster_is_whole_(cluster_is_whole),
        task_is_whole_(task_is_whole) {}

  Problems Run() {
    if (cluster_is_whole_) CheckNotEmpty(), CheckJobNames();                      // 1, 2
    if (task_is_whole_) CheckType();                                              // 3
    if (cluster_is_whole_ && task_is_whole_) CheckTypeIsInCluster();              // 4
    if (cluster_is_whole_) CheckAtMostOne("chief"), CheckAtMostOne("evaluator");  // 5, 6
    if (cluster_is_whole_ && task_is_whole_) CheckIndex();                        // 7
    if (cluster_is_whole_) CheckParameterServers(), CheckWorkers();               // 8, 9
    return std::move(problems_);
  }

 private:
  template <typename... Words>
  void Problem(const Words&... words) {
    problems_.push_back(absl::StrCat(words...));
  }

  bool IsEmpty() const { return spec_.as_map().empty(); }
  bool IsEvaluator() const { return type_ == "evaluator"; }
  // Whether flags replace the tasks that the cluster of a sparse TF_CONFIG lacks.
  bool FlagsTellTheRest() const {
    return (type_ == "chief" && config_.num_ps.has_value()) ||
           ((type_ == "worker" || type_ == "ps") && config_.coordinator_address.has_value());
  }
  bool NeedsNoCluster() const {
    return FlagsTellTheRest() || (IsEvaluator() && TrainingCluster(config_).empty());
  }

  void CheckNotEmpty() {
    if (IsEmpty() && !NeedsNoCluster())
      Problem("cluster is missing or has no jobs: write ", kExampleCluster);
  }

  void CheckJobNames() {
    for (const std::string& job : spec_.jobs()) {
      if (!IsKnownType(job)) Problem("cluster has the job ", ShowText(job), ": ", TypeAdvice(job));
    }
  }

  void CheckType() {
    if (config_.task_type.has_value() && !IsKnownType(type_))
      Problem("task.type is ", ShowText(type_), ": ", TypeAdvice(type_));
  }

  void CheckTypeIsInCluster() {
    const bool is_asked = IsKnownType(type_) && !IsEvaluator() && !IsEmpty() && !FlagsTellTheRest();
    if (!is_asked || spec_.as_map().count(type_) > 0) return;
    Problem("task.type is \"", type_, "\", but cluster has no such job (it has ",
            absl::StrJoin(spec_.jobs(), ", "), ")");
  }

  void CheckAtMostOne(absl::string_view job) {
    const int tasks = spec_.num_tasks(job);
    if (tasks > 1) Problem("cluster.", job, " has ", tasks, " tasks; at most one is possible");
  }

  void CheckIndex() {
    if (!IsKnownType(type_)) return;
    if (!config_.task_index.has_value())
      return Problem("task.index is missing: this \"", type_, "\" has to know which one it is");
    const int index = *config_.task_index;
    const bool is_listed = spec_.task_address(type_, index).ok();
    if (is_listed || spec_.as_map().count(type_) == 0) return;
    if (FlagsTellTheRest() || (IsEvaluator() && spec_.num_tasks(type_) == 0)) return;
    Problem("cluster.", type_, " has no task ", index, " (", IndicesText(spec_, type_),
            "), but task.index is ", index);
  }

  void CheckParameterServers() {
    const std::vector<int> indices = spec_.task_indices("ps");
    if (config_.num_ps.has_value()) {
      if (!indices.empty() && indices.back() >= *config_.num_ps)
        Problem(ConfigPath("ps", indices.back()), " is there, but --num_ps is ", *config_.num_ps);
      if (type_ == "ps" && config_.task_index.value_or(0) >= *config_.num_ps && indices.empty()) {
        Problem("task.index is ", config_.task_index.value_or(0), ", but --num_ps is ",
                *config_.num_ps);
      }
    } else if (indices.empty()) {
      if (IsMissed("ps"))
        Problem("cluster.ps has no tasks; at least one is needed", SparseAdvice());
    } else if (!FlagsTellTheRest() && indices.back() + 1 != static_cast<int>(indices.size())) {
      Problem("cluster.ps has holes (", IndicesText(spec_, "ps"),
              "): parameter servers are counted from 0");
    }
  }

  void CheckWorkers() {
    if (spec_.num_tasks("worker") == 0 && IsMissed("worker"))
      Problem("cluster.worker has no tasks; at least one is needed", SparseAdvice());
  }

  // Whether a job without tasks is a problem of its own. It is not if the whole cluster is missing,
  // or if another job looks like this one misspelt.
  bool IsMissed(absl::string_view job) const {
    const std::vector<std::string> jobs = spec_.jobs();
    const bool is_misspelt = std::any_of(jobs.begin(), jobs.end(), [&](const std::string& name) {
      return !IsKnownType(name) && NearType(name) == job;
    });
    return !IsEmpty() && !NeedsNoCluster() && !is_misspelt;
  }

  absl::string_view SparseAdvice() const {
    if (type_ == "chief") return " (or --num_ps=P, where tasks register by themselves)";
    if (type_ == "ps" || type_ == "worker")
      return " (or --coordinator_address=HOST:PORT, where this task knows only a part of the "
             "cluster)";
    return "";
  }

  const ClusterConfig& config_;
  const ClusterSpec& spec_;
  const std::string type_;
  const bool cluster_is_whole_, task_is_whole_;
  Problems problems_;
};

void AddNotes(const ClusterConfig& config, std::vector<std::string>& notes) {
  const bool is_served = config.task_type == "worker" || config.task_type == "ps";
  if (is_served && CoordinatorAddress(config).empty()) {
    notes.push_back(
        "cluster has no chief and there is no --coordinator_address: this task waits until the "
        "coordinator dials it");
  }
  if (config.spec.num_tasks("evaluator") > 0)
    notes.push_back("evaluators are in the cluster, but nobody dials them: they read checkpoints");
}

// ---- printing -----------------------------------------------------------------------------------

bool IsDense(const std::map<int, std::string>& tasks) {
  return !tasks.empty() && tasks.rbegin()->first + 1 == static_cast<int>(tasks.size());
}

std::string JobText(const std::map<int, std::string>& tasks) {
  const bool dense = IsDense(tasks);
  const auto append = [dense](std::string* out, const std::pair<const int, std::string>& task) {
    if (!dense) absl::StrAppend(out, "\"", task.first, "\":");
    absl::StrAppend(out, QuoteJson(task.second));
  };
  return absl::StrCat(dense ? "[" : "{", absl::StrJoin(tasks, ",", append), dense ? "]" : "}");
}

std::string JobsText(const ClusterSpec::Jobs& jobs) {
  const auto append = [](std::string* out, const auto& job) {
    absl::StrAppend(out, QuoteJson(job.first), ":", JobText(job.second));
  };
  return absl::StrCat("{", absl::StrJoin(jobs, ",", append), "}");
}

std::string TaskText(const ClusterConfig& config) {
  std::vector<std::string> members;
  if (config.task_type.has_value())
    members.push_back(absl::StrCat("\"type\":", QuoteJson(*config.task_type)));
  if (config.task_index.has_value())
    members.push_back(absl::StrCat("\"index\":", *config.task_index));
  return absl::StrCat("{", absl::StrJoin(members, ","), "}");
}

}  // namespace

// ---- the configuration --------------------------------------------------------------------------

bool operator==(const ClusterConfig& a, const ClusterConfig& b) {
  const auto all = [](const ClusterConfig& c) {
    return std::tie(c.task_type, c.task_index, c.rpc_layer, c.session_master, c.coordinator_address,
                    c.num_ps);
  };
  return a.spec == b.spec && all(a) == all(b);
}

std::string CoordinatorAddress(const ClusterConfig& config) {
  if (config.coordinator_address.has_value()) return *config.coordinator_address;
  const auto chief = config.spec.as_map().find("chief");
  return chief == config.spec.as_map().end() || chief->second.empty()
             ? ""
             : chief->second.begin()->second;
}

int NumParameterServers(const ClusterConfig& config) {
  return config.num_ps.value_or(config.spec.num_tasks("ps"));
}

std::string OwnAddress(const ClusterConfig& config) {
  if (!config.task_type.has_value() || !config.task_index.has_value()) return "";
  return config.spec.task_address(*config.task_type, *config.task_index).value_or("");
}

ClusterSpec::Jobs TrainingCluster(const ClusterConfig& config) {
  ClusterSpec::Jobs jobs;
  for (const auto& [job, tasks] : config.spec.as_map()) {
    if (job != "evaluator" && !tasks.empty()) jobs[job] = tasks;
  }
  return jobs;
}

uint64_t ClusterHash(const ClusterConfig& config) {
  return HashText(JobsText(TrainingCluster(config)));
}

absl::StatusOr<ClusterConfig> ParseTfConfig(absl::string_view json) {
  Reading reading = Reader(kTfConfig).ReadConfig(json);
  RETURN_IF_ERROR(StatusOf(kTfConfig.source, reading.problems));
  return ConfigFrom(std::move(reading));
}

absl::StatusOr<ClusterSpec> ParseClusterSpec(absl::string_view json) {
  Reading reading = Reader(kTfConfig).ReadClusterAlone(json);
  RETURN_IF_ERROR(StatusOf(kSeveralSources, reading.problems));
  return ClusterSpec(std::move(reading.jobs));
}

std::string TfConfigText(const ClusterConfig& config) {
  std::vector<std::string> members;
  if (!config.spec.as_map().empty())
    members.push_back(absl::StrCat("\"cluster\":", JobsText(config.spec.as_map())));
  if (config.task_type.has_value() || config.task_index.has_value())
    members.push_back(absl::StrCat("\"task\":", TaskText(config)));
  if (!config.rpc_layer.empty())
    members.push_back(absl::StrCat("\"rpc_layer\":", QuoteJson(config.rpc_layer)));
  if (config.session_master.has_value())
    members.push_back(absl::StrCat("\"session_master\":", QuoteJson(*config.session_master)));
  return absl::StrCat("{", absl::StrJoin(members, ","), "}");
}

bool ClusterConfigSources::empty() const {
  const bool says_flags = flags.task_type.has_value() || flags.task_index.has_value() ||
                          flags.coordinator_address.has_value() || flags.num_ps.has_value();
  return !tf_config.has_value() && !cluster_file.has_value() && !cluster_spec.has_value() &&
         !says_flags;
}

absl::StatusOr<ClusterConfig> ResolveClusterConfig(const ClusterConfigSources& sources) {
  Resolution resolution = Resolve(sources);
  RETURN_IF_ERROR(StatusOf(resolution.source, resolution.problems));
  return std::move(resolution.config);
}

absl::Status ValidateParameterServerCluster(const ClusterConfig& config) {
  return StatusOf(kSeveralSources,
                  Validation(config, /*cluster_is_whole=*/true, /*task_is_whole=*/true).Run());
}

absl::StatusOr<ClusterConfig> CheckedParameterServerCluster(ClusterConfig config) {
  Reading reading = Reader(kTfConfig).ReadSpec(config.spec);
  config.spec = ClusterSpec(std::move(reading.jobs));
  const Problems more = Validation(config, reading.cluster_is_whole, /*task_is_whole=*/true).Run();
  reading.problems.insert(reading.problems.end(), more.begin(), more.end());
  RETURN_IF_ERROR(StatusOf(kSeveralSources, reading.problems));
  return config;
}

absl::StatusOr<ClusterConfig> ResolveParameterServerCluster(const ClusterConfigSources& sources) {
  ClusterExamination examination = ExamineCluster(sources);
  RETURN_IF_ERROR(StatusOf(examination.source, examination.problems));
  return std::move(examination.config);
}

ClusterExamination ExamineCluster(const ClusterConfigSources& sources) {
  Resolution resolution = Resolve(sources);
  ClusterExamination examination{std::move(resolution.source), std::move(resolution.config),
                                 std::move(resolution.problems), std::move(resolution.notes)};
  const Problems more =
      Validation(examination.config, resolution.cluster_is_whole, resolution.task_is_whole).Run();
  examination.problems.insert(examination.problems.end(), more.begin(), more.end());
  AddNotes(examination.config, examination.notes);
  return examination;
}

}  // namespace divvy
