#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tools/ctl/gen/arguments.h"
#include "tools/ctl/gen/formats.h"
#include "tools/ctl/gen/yaml.h"

namespace divvy::gen {
namespace {

// A coordinator that dies again and again has a cause that a restart does not mend.
constexpr char kRestartsOfChief[] = "on-failure:5";

// "$$", because Compose replaces "$NAME" by a variable's value.
std::string WithoutVariables(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"$", "$$"}});
}

Yaml Words(const std::vector<std::string>& words) {
  std::vector<Yaml> items;
  for (const std::string& word : words) items.emplace_back(WithoutVariables(word));
  return Yaml::List(items);
}

bool HasVolumeOfCheckpoints(const Job& job) {
  return IsVolume(*job.options.checkpoints) && !job.checkpoint_dir.empty();
}

// ---- one task -----------------------------------------------------------------------------------

Place PlaceOf(const Task& task) {
  Place place;
  place.bind_address = absl::StrCat("0.0.0.0:", kPort);
  place.http_address = absl::StrCat("0.0.0.0:", kHttpPort);
  place.tls_cert = absl::StrCat("/certs/", task.name(), ".pem");
  place.tls_key = absl::StrCat("/certs/", task.name(), ".key");
  place.tls_ca = "/certs/ca.pem";
  place.state_dir = "/state";
  return place;
}

Yaml CommandOf(const Job& job, const RolePlan& role, const Task& task) {
  std::vector<std::string> words = PlaceFlags(job, role, PlaceOf(task));
  words.insert(words.end(), role.flags.begin(), role.flags.end());
  return Words(words);
}

Yaml HealthCheckOf(const Task& task) {
  const Place place = PlaceOf(task);
  return Yaml::Map(
      {{"test", Words({"CMD", "/program", absl::StrCat("--check_health=localhost:", kPort),
                       absl::StrCat("--tls_cert=", place.tls_cert),
                       absl::StrCat("--tls_key=", place.tls_key),
                       absl::StrCat("--tls_ca=", place.tls_ca)})},
       {"interval", "2s"},
       {"timeout", "5s"},
       {"start_period", "10s"},
       {"retries", 5}});
}

// Compose takes a path that does not begin with a dot or a slash for a volume's name.
std::string HostPath(absl::string_view directory) {
  const bool is_path = absl::StartsWith(directory, "/") || absl::StartsWith(directory, ".") ||
                       absl::StartsWith(directory, "~");
  return WithoutVariables(absl::StrCat(is_path ? "" : "./", directory));
}

enum class Access { kRead, kWrite };

// In this long form, a missing file on the host is an error. In the short form, Docker would make a
// directory in its place.
Yaml Mount(const char* type, const std::string& source, const std::string& target, Access access) {
  return Yaml::Map({{"type", type},
                    {"source", source},
                    {"target", target},
                    {"read_only", access == Access::kRead ? Yaml(true) : Yaml()}});
}

Yaml CheckpointsOf(const Job& job, const RolePlan& role) {
  const Access access = WritesCheckpoints(job, role) ? Access::kWrite : Access::kRead;
  const std::string& source = *job.options.checkpoints;
  const std::string target = WithoutVariables(job.checkpoint_dir);
  return IsVolume(source) ? Mount("volume", source, target, access)
                          : Mount("bind", HostPath(source), target, access);
}

// Each task sees only its own key.
Yaml VolumesOf(const Job& job, const RolePlan& role, const Task& task) {
  std::vector<Yaml> mounts;
  for (const std::string& file :
       {task.name() + ".pem", task.name() + ".key", std::string("ca.pem")}) {
    if (role.is_in_cluster())
      mounts.push_back(Mount("bind", absl::StrCat(HostPath(*job.options.tls_dir), "/", file),
                             absl::StrCat("/certs/", file), Access::kRead));
  }
  if (role.role == Role::kChief)
    mounts.push_back(Mount("volume", std::string(kStateVolume), "/state", Access::kWrite));
  if (SeesCheckpoints(job, role)) mounts.push_back(CheckpointsOf(job, role));
  const std::string data = job.options.data.value_or("");
  if (!data.empty() && role.role != Role::kPs)
    mounts.push_back(Mount("bind", HostPath(data), "/data", Access::kRead));
  return mounts.empty() ? Yaml() : Yaml::List(mounts);
}

// GPUs by number, not by count: for a count, the engine gives the same first GPUs to every service.
Yaml GpusOf(const RolePlan& role, const Task& task) {
  if (role.gpus == 0) return Yaml();
  std::vector<std::string> numbers;
  for (int i = 0; i < role.gpus; ++i) numbers.push_back(absl::StrCat(task.index * role.gpus + i));
  const Yaml device = Yaml::Map({{"driver", "nvidia"},
                                 {"device_ids", Yaml::Texts(numbers)},
                                 {"capabilities", Yaml::Texts({"gpu"})}});
  const Yaml reservations = Yaml::Map({{"devices", Yaml::List({device})}});
  return Yaml::Map({{"resources", Yaml::Map({{"reservations", reservations}})}});
}

Yaml DependenciesOfChief(const Job& job) {
  Yaml dependencies = Yaml::Map({});
  for (const Task& task : TasksOf(job)) {
    if (task.role == Role::kPs || task.role == Role::kWorker)
      dependencies.Add(task.name(), Yaml::Map({{"condition", "service_healthy"}}));
  }
  return dependencies;
}

Yaml ServiceOf(const Job& job, const RolePlan& role, const Task& task) {
  const bool is_chief = role.role == Role::kChief;
  return Yaml::Map(
      {{"image", *job.options.image},
       {"entrypoint", Words({job.program})},
       {"command", CommandOf(job, role, task)},
       {"hostname", task.name()},
       {"environment",
        Yaml::Map({{"TF_CONFIG", WithoutVariables(TfConfigOf(job, role.role, task.index))}})},
       {"user", absl::StrCat(kUser, ":", kUser)},
       {"init", true},
       {"read_only", true},
       // Without a size, files in /tmp could take all of mem_limit.
       {"tmpfs", Yaml::Texts({absl::StrCat("/tmp:size=", kTmpBytes)})},
       {"shm_size", role.gpus > 0 ? Yaml(kSharedMemoryBytes) : Yaml()},
       {"cap_drop", Yaml::Texts({"ALL"})},
       {"security_opt", Yaml::Texts({"no-new-privileges:true"})},
       {"stop_grace_period", absl::StrCat(kGraceSeconds, "s")},
       {"restart",
        is_chief ? std::string(kRestartsOfChief) : absl::StrCat("on-failure:", kRestarts)},
       {"mem_limit", role.memory_bytes},
       {"volumes", VolumesOf(job, role, task)},
       {"healthcheck", role.is_in_cluster() ? HealthCheckOf(task) : Yaml()},
       {"deploy", GpusOf(role, task)},
       {"depends_on", is_chief ? DependenciesOfChief(job) : Yaml()}});
}

// ---- monitoring ---------------------------------------------------------------------------------

constexpr int kPrometheusPort = 9090;
constexpr int64_t kPrometheusBytes = int64_t{1} << 30;

// Debian's Prometheus, in the image of deploy/prometheus/build. Its configuration is a file of
// the host, because Compose files before version 2.23 cannot hold files.
Yaml PrometheusService(const Job& job) {
  std::vector<Yaml> mounts = {
      Mount("bind", "./prometheus.yml", "/etc/prometheus/prometheus.yml", Access::kRead)};
  for (const char* const file : {"admin-0.pem", "admin-0.key", "ca.pem"})
    mounts.push_back(Mount("bind", absl::StrCat(HostPath(*job.options.tls_dir), "/", file),
                           absl::StrCat("/certs/", file), Access::kRead));
  mounts.push_back(Mount("volume", std::string(kPrometheusVolume), "/prometheus", Access::kWrite));
  return Yaml::Map(
      {{"image", "divvy-prometheus:1"},
       {"command",
        Words({"--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus",
               absl::StrCat("--web.listen-address=0.0.0.0:", kPrometheusPort)})},
       {"hostname", "prometheus"},
       {"user", absl::StrCat(kUser, ":", kUser)},
       {"init", true},
       {"read_only", true},
       {"cap_drop", Yaml::Texts({"ALL"})},
       {"security_opt", Yaml::Texts({"no-new-privileges:true"})},
       // Its pages need no certificate, so only users of this host may read them.
       {"ports", Yaml::Texts({absl::StrCat("127.0.0.1:", kPrometheusPort, ":", kPrometheusPort)})},
       {"restart", absl::StrCat("on-failure:", kRestarts)},
       {"mem_limit", kPrometheusBytes},
       {"volumes", Yaml::List(mounts)}});
}

std::vector<std::string> CommentsOf(const Job& job, bool has_gpus) {
  std::vector<std::string> comments = {
      absl::StrCat("Valid for docker-compose from ", has_gpus ? "1.28" : "1.27",
                   " and for `docker compose` v2. Made by divvyctl gen compose."),
      "Make the certificates with divvyctl certs. The tasks run as uid 65532, which must be able",
      "to read each key. The chief and every ps write checkpoints as uid 65532. A new volume gets",
      "the owner of the image's directory; an existing one keeps its owner.",
      "A task that exits with 128 or more may be restarted, lower codes are permanent",
      "(docs/operating/operations.md). Docker cannot tell them apart, so the number of restarts",
      "is limited."};
  if (!job.options.monitoring) return comments;
  comments.insert(
      comments.end(),
      {"Prometheus answers at http://localhost:9090. Its image is that of deploy/prometheus/build,",
       "and prometheus.yml stands beside this file:",
       absl::StrCat("  divvyctl gen prometheus --of=compose --name=", job.name,
                    " --ps=", job.options.ps, " --workers=", job.options.workers, " \\"),
       "    --tls_dir=/certs --rules=/etc/prometheus/alerts.yaml >prometheus.yml"});
  return comments;
}

}  // namespace

std::string ComposeFile(const Job& job) {
  Yaml services = Yaml::Map({}), volumes = Yaml::Map({{std::string(kStateVolume), Yaml::Map({})}});
  bool has_gpus = false;
  for (const RolePlan& role : job.roles) {
    has_gpus = has_gpus || role.gpus > 0;
    for (int i = 0; i < role.count; ++i) {
      const Task task{role.role, i};
      services.Add(task.name(), ServiceOf(job, role, task));
    }
  }
  if (HasVolumeOfCheckpoints(job)) volumes.Add(*job.options.checkpoints, Yaml::Map({}));
  if (job.options.monitoring) {
    services.Add("prometheus", PrometheusService(job));
    volumes.Add(std::string(kPrometheusVolume), Yaml::Map({}));
  }
  return PrintYaml(CommentsOf(job, has_gpus),
                   {Yaml::Map({{"services", services}, {"volumes", volumes}})});
}

}  // namespace divvy::gen
