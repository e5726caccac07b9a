#include "tools/ctl/gen/pod.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tools/ctl/gen/arguments.h"

namespace divvy::gen {
namespace {

// Paths in the containers. Each task's own certificate and key have the same names everywhere.
constexpr char kCertificate[] = "/certs/tls.pem", kKey[] = "/certs/tls.key",
               kAuthority[] = "/certs/ca.pem", kState[] = "/state", kData[] = "/data";
constexpr int kOwnerAndGroupRead = 0440;

bool IsTfJob(const Job& job) { return job.kind == Kind::kTfJob; }

// The operator of TFJobs finds the container and its port by these names.
std::string ContainerName(const Job& job, const RolePlan& role) {
  return IsTfJob(job) ? "tensorflow" : role.name();
}

// Where Kubernetes tells a pod the index of its task.
std::string FieldOfIndex(const Job& job, const RolePlan& role) {
  if (IsTfJob(job)) return "metadata.labels['training.kubeflow.org/replica-index']";
  const bool is_in_stateful_set = job.kind == Kind::kKubernetes && role.role == Role::kPs;
  return is_in_stateful_set ? "metadata.labels['apps.kubernetes.io/pod-index']"
                            : "metadata.annotations['batch.kubernetes.io/job-completion-index']";
}

std::string StateClaim(const Job& job) { return absl::StrCat(job.name, "-state"); }
std::string CheckpointClaim(const Job& job) {
  return job.options.checkpoint_claim.value_or(absl::StrCat(job.name, "-checkpoints"));
}

// NCCL and other libraries of GPUs exchange data in /dev/shm; the default is 64 MiB. Divvy's own
// shared memory (memfd) is not there.
bool NeedsSharedMemory(const RolePlan& role) { return role.gpus > 0; }

bool MountsData(const Job& job, const RolePlan& role) {
  return job.options.data_claim && role.role != Role::kPs;
}

// ---- the container ------------------------------------------------------------------------------

Yaml Environment(const Job& job, const RolePlan& role) {
  std::vector<Yaml> variables;
  if (role.is_in_cluster())
    variables.push_back(Yaml::Map(
        {{"name", "TASK_INDEX"},
         {"valueFrom",
          Yaml::Map({{"fieldRef", Yaml::Map({{"fieldPath", FieldOfIndex(job, role)}})}})}}));
  // The operator of TFJobs sets TF_CONFIG.
  if (!IsTfJob(job)) {
    const auto index = role.is_in_cluster() ? std::nullopt : std::optional<int>(0);
    variables.push_back(
        Yaml::Map({{"name", "TF_CONFIG"}, {"value", TfConfigOf(job, role.role, index)}}));
  }
  return variables.empty() ? Yaml() : Yaml::List(variables);
}

// "$(NAME)" in the user's words stays as it is. Kubernetes replaces it only in our own.
std::string WithoutReferences(const std::string& word) {
  return absl::StrReplaceAll(word, {{"$(", "$$("}});
}

Yaml ContainerArguments(const Job& job, const RolePlan& role) {
  Place place;
  place.bind_address = absl::StrCat("0.0.0.0:", kPort);
  place.http_address = absl::StrCat("0.0.0.0:", kHttpPort);
  place.health_address = absl::StrCat("0.0.0.0:", kHealthPort);
  place.tls_cert = kCertificate;
  place.tls_key = kKey;
  place.tls_ca = kAuthority;
  place.state_dir = kState;
  if (!IsTfJob(job) && role.is_in_cluster()) place.task_index = "$(TASK_INDEX)";
  std::vector<std::string> words = PlaceFlags(job, role, place);
  std::transform(role.flags.begin(), role.flags.end(), std::back_inserter(words),
                 WithoutReferences);
  return Yaml::Texts(words);
}

Yaml ContainerPort(const std::string& name, int number) {
  return Yaml::Map({{"name", name}, {"containerPort", number}});
}

// Equal requests and limits, so that the pod is among the last that a full node evicts.
Yaml Resources(const RolePlan& role) {
  const auto amounts = [&role] {
    return Yaml::Map({{"cpu", role.cpus},
                      {"memory", SizeText(role.memory_bytes)},
                      {"nvidia.com/gpu", role.gpus > 0 ? Yaml(role.gpus) : Yaml()}});
  };
  return Yaml::Map({{"requests", amounts()}, {"limits", amounts()}});
}

// The kubelet has no certificate of the job, so it asks the port for probes. That says whether this
// task serves, and does not depend on others.
Yaml Probe(int period_seconds, int failures) {
  return Yaml::Map({{"httpGet", Yaml::Map({{"path", "/"}, {"port", "health"}})},
                    {"periodSeconds", period_seconds},
                    {"timeoutSeconds", 5},
                    {"failureThreshold", failures}});
}

void AddProbes(Yaml& container) {
  // A coordinator may read its state for minutes before it serves.
  container.Add("startupProbe", Probe(5, 120));
  container.Add("readinessProbe", Probe(5, 2));
  // Longer than a drain, during which the task does not serve.
  container.Add("livenessProbe", Probe(10, kGraceSeconds / 10));
}

Yaml Mount(const std::string& volume, const std::string& path) {
  return Yaml::Map({{"name", volume}, {"mountPath", path}});
}

// One file of the Secret, so that a task sees no key but its own.
Yaml MountOfCertificate(const std::string& path, const std::string& file) {
  return Yaml::Map(
      {{"name", "tls"}, {"mountPath", path}, {"subPathExpr", file}, {"readOnly", true}});
}

Yaml ReadOnly(Yaml mount) {
  mount.Add("readOnly", true);
  return mount;
}

Yaml Mounts(const Job& job, const RolePlan& role) {
  std::vector<Yaml> mounts = {Mount("tmp", "/tmp")};
  if (role.is_in_cluster()) {
    const std::string own = absl::StrCat(role.name(), "-$(TASK_INDEX)");
    mounts.push_back(MountOfCertificate(kCertificate, own + ".pem"));
    mounts.push_back(MountOfCertificate(kKey, own + ".key"));
    mounts.push_back(MountOfCertificate(kAuthority, "ca.pem"));
  }
  if (NeedsSharedMemory(role)) mounts.push_back(Mount("shm", "/dev/shm"));
  if (role.role == Role::kChief) mounts.push_back(Mount("state", kState));
  if (SeesCheckpoints(job, role)) {
    Yaml mount = Mount("checkpoints", job.checkpoint_dir);
    // Jobs that share a claim have a directory each.
    if (job.options.checkpoint_claim) mount.Add("subPath", job.name);
    mounts.push_back(WritesCheckpoints(job, role) ? mount : ReadOnly(mount));
  }
  if (MountsData(job, role)) mounts.push_back(ReadOnly(Mount("data", kData)));
  return Yaml::List(mounts);
}

Yaml Container(const Job& job, const RolePlan& role) {
  Yaml container = Yaml::Map({{"name", ContainerName(job, role)},
                              {"image", *job.options.image},
                              {"command", Yaml::Texts({WithoutReferences(job.program)})},
                              {"args", ContainerArguments(job, role)},
                              {"env", Environment(job, role)}});
  if (role.is_in_cluster()) {
    container.Add("ports", Yaml::List({ContainerPort(IsTfJob(job) ? "tfjob-port" : "grpc", kPort),
                                       ContainerPort("metrics", kHttpPort),
                                       ContainerPort("health", kHealthPort)}));
  }
  container.Add("resources", Resources(role));
  container.Add("securityContext",
                Yaml::Map({{"allowPrivilegeEscalation", false},
                           {"readOnlyRootFilesystem", true},
                           {"capabilities", Yaml::Map({{"drop", Yaml::Texts({"ALL"})}})}}));
  if (role.is_in_cluster()) AddProbes(container);
  container.Add("volumeMounts", Mounts(job, role));
  return container;
}

// ---- the pod ------------------------------------------------------------------------------------

Yaml VolumeOfClaim(const std::string& name, const std::string& claim) {
  return Yaml::Map({{"name", name}, {"persistentVolumeClaim", Yaml::Map({{"claimName", claim}})}});
}

Yaml Volumes(const Job& job, const RolePlan& role) {
  std::vector<Yaml> volumes = {Yaml::Map({{"name", "tmp"}, {"emptyDir", Yaml::Map({})}})};
  if (role.is_in_cluster()) {
    volumes.push_back(Yaml::Map({{"name", "tls"},
                                 {"secret", Yaml::Map({{"secretName", *job.options.tls_secret},
                                                       {"defaultMode", kOwnerAndGroupRead}})}}));
  }
  if (NeedsSharedMemory(role)) {
    volumes.push_back(Yaml::Map(
        {{"name", "shm"},
         {"emptyDir",
          Yaml::Map({{"medium", "Memory"}, {"sizeLimit", SizeText(kSharedMemoryBytes)}})}}));
  }
  if (role.role == Role::kChief) volumes.push_back(VolumeOfClaim("state", StateClaim(job)));
  if (SeesCheckpoints(job, role))
    volumes.push_back(VolumeOfClaim("checkpoints", CheckpointClaim(job)));
  if (MountsData(job, role)) volumes.push_back(VolumeOfClaim("data", *job.options.data_claim));
  return Yaml::List(volumes);
}

// ---- claims and policies ------------------------------------------------------------------------

Yaml Claim(const Job& job, const std::string& name, const std::string& access,
           const std::string& size) {
  const std::optional<std::string>& storage = job.options.storage_class;
  return Object(
      "v1", "PersistentVolumeClaim", Metadata(job, name),
      Yaml::Map({{"accessModes", Yaml::Texts({access})},
                 {"storageClassName", storage ? Yaml(*storage) : Yaml()},
                 {"resources", Yaml::Map({{"requests", Yaml::Map({{"storage", size}})}})}}));
}

Yaml PolicyPort(int port) { return Yaml::Map({{"protocol", "TCP"}, {"port", port}}); }

// Tasks of the job may reach each other. Everybody may reach the metrics, which ask for a
// certificate. A node may always reach the probes of its own pods.
Yaml Policy(const Job& job) {
  const Yaml tasks =
      Yaml::List({Yaml::Map({{"podSelector", Yaml::Map({{"matchLabels", SelectorLabels(job)}})}})});
  return Object(
      "networking.k8s.io/v1", "NetworkPolicy", Metadata(job, job.name),
      Yaml::Map(
          {{"podSelector", Yaml::Map({{"matchLabels", SelectorLabels(job)}})},
           {"policyTypes", Yaml::Texts({"Ingress"})},
           {"ingress",
            Yaml::List({Yaml::Map({{"from", tasks}, {"ports", Yaml::List({PolicyPort(kPort)})}}),
                        Yaml::Map({{"ports", Yaml::List({PolicyPort(kHttpPort)})}})})}}));
}

// The loss of a parameter server costs a rewind, so a drain of nodes takes one at a time. For
// maxUnavailable Kubernetes asks the pods' owner for its scale. A StatefulSet has one; Jobs and
// TFJobs do not, and then no eviction would be allowed.
Yaml DisruptionBudget(const Job& job, const RolePlan& ps) {
  Yaml spec = job.kind == Kind::kKubernetes ? Yaml::Map({{"maxUnavailable", 1}})
                                            : Yaml::Map({{"minAvailable", ps.count - 1}});
  spec.Add("selector", Yaml::Map({{"matchLabels", SelectorLabels(job, &ps)}}));
  return Object("policy/v1", "PodDisruptionBudget",
                Metadata(job, absl::StrCat(job.name, "-", ps.name()), &ps), spec);
}

}  // namespace

Yaml SelectorLabels(const Job& job, const RolePlan* role) {
  return Yaml::Map({{"app.kubernetes.io/instance", job.name},
                    {"app.kubernetes.io/component", role == nullptr ? Yaml() : role->name()}});
}

Yaml Metadata(const Job& job, const std::string& name, const RolePlan* role) {
  Yaml labels = SelectorLabels(job, role);
  labels.Add("app.kubernetes.io/name", "divvy");
  labels.Add("app.kubernetes.io/managed-by", "divvyctl");
  const std::optional<std::string>& in = job.options.kube_namespace;
  return Yaml::Map({{"name", name}, {"namespace", in ? Yaml(*in) : Yaml()}, {"labels", labels}});
}

Yaml Object(const std::string& api_version, const std::string& kind, const Yaml& metadata,
            const Yaml& spec) {
  return Yaml::Map(
      {{"apiVersion", api_version}, {"kind", kind}, {"metadata", metadata}, {"spec", spec}});
}

Yaml PodTemplate(const Job& job, const RolePlan& role, const std::string& restart_policy,
                 const std::string& subdomain) {
  Yaml labels = SelectorLabels(job, &role);
  labels.Add("app.kubernetes.io/name", "divvy");
  // The operator of TFJobs sets these.
  if (!IsTfJob(job)) {
    labels.Add("training.kubeflow.org/job-name", job.name);
    labels.Add("training.kubeflow.org/replica-type", role.name());
    if (role.role == Role::kChief) labels.Add("training.kubeflow.org/job-role", "master");
  }
  const Yaml security = Yaml::Map({{"runAsNonRoot", true},
                                   {"runAsUser", kUser},
                                   {"runAsGroup", kUser},
                                   {"fsGroup", kUser},
                                   // Not every file of a large claim, at each start.
                                   {"fsGroupChangePolicy", "OnRootMismatch"},
                                   {"seccompProfile", Yaml::Map({{"type", "RuntimeDefault"}})}});
  return Yaml::Map({{"metadata", Yaml::Map({{"labels", labels}})},
                    {"spec", Yaml::Map({{"restartPolicy",
                                         restart_policy.empty() ? Yaml() : Yaml(restart_policy)},
                                        {"subdomain", subdomain.empty() ? Yaml() : Yaml(subdomain)},
                                        {"automountServiceAccountToken", false},
                                        {"enableServiceLinks", false},
                                        {"terminationGracePeriodSeconds", kGraceSeconds},
                                        {"securityContext", security},
                                        {"containers", Yaml::List({Container(job, role)})},
                                        {"volumes", Volumes(job, role)}})}});
}

Yaml IndexedJobSpec(const Job& job, const RolePlan& role, const std::string& subdomain) {
  // The job can do without a worker, but not without a task of another role.
  const bool is_worker = role.role == Role::kWorker;
  const Yaml fail =
      Yaml::Map({{"action", is_worker ? "FailIndex" : "FailJob"},
                 {"onExitCodes", Yaml::Map({{"containerName", ContainerName(job, role)},
                                            {"operator", "In"},
                                            {"values", Yaml::Numbers(PermanentCodes())}})}});
  // Evictions and preemptions do not count as restarts.
  const Yaml ignore =
      Yaml::Map({{"action", "Ignore"},
                 {"onPodConditions",
                  Yaml::List({Yaml::Map({{"type", "DisruptionTarget"}, {"status", "True"}})})}});
  return Yaml::Map({{"completionMode", "Indexed"},
                    {"completions", role.count},
                    {"parallelism", role.count},
                    {"backoffLimit", is_worker ? Yaml() : Yaml(kRestarts * role.count)},
                    {"backoffLimitPerIndex", is_worker ? Yaml(kRestarts) : Yaml()},
                    {"podFailurePolicy", Yaml::Map({{"rules", Yaml::List({fail, ignore})}})},
                    {"template", PodTemplate(job, role, "Never", subdomain)}});
}

std::vector<Yaml> ObjectsBeside(const Job& job) {
  std::vector<Yaml> objects = {Claim(job, StateClaim(job), "ReadWriteOnce", "1Gi")};
  if (!job.checkpoint_dir.empty() && !job.options.checkpoint_claim)
    objects.push_back(
        Claim(job, CheckpointClaim(job), "ReadWriteMany", *job.options.checkpoint_size));
  for (const RolePlan& role : job.roles) {
    if (role.role == Role::kPs) objects.push_back(DisruptionBudget(job, role));
  }
  objects.push_back(Policy(job));
  return objects;
}

std::vector<std::string> HowToApply(const Job& job, const std::string& kind,
                                    const std::string& object, const std::string& complete) {
  const std::optional<std::string>& in = job.options.kube_namespace;
  const std::string kubectl = in ? absl::StrCat("kubectl -n ", *in) : "kubectl";
  std::vector<std::string> lines = {
      absl::StrCat("Made by divvyctl gen ", kind,
                   ". Each task sees its own key alone; the CA's "
                   "key stays with you:"),
      absl::StrCat("  divvyctl certs --out=certs --ps=", job.options.ps,
                   " --workers=", job.options.workers),
      absl::StrCat("  ", kubectl, " create secret generic ", *job.options.tls_secret,
                   " --from-file=certs/ca.pem $(printf -- '--from-file=%s ' "
                   "certs/{chief,ps,worker}-*)"),
      absl::StrCat("  ", kubectl, " apply -f THIS_FILE"),
      absl::StrCat("  until ", kubectl, " get ", object,
                   " -o jsonpath='{.status.conditions[?(@.status==\"True\")].type}' | grep -wE '",
                   complete, "|Failed'; do sleep 5; done"),
      absl::StrCat("  ", kubectl,
                   " delete -f THIS_FILE    # also its claims, with the checkpoints"),
      "A certificate that you renew in the Secret reaches a pod when the pod restarts."};
  if (!job.checkpoint_dir.empty()) {
    lines.push_back(
        absl::StrCat("The claim ", CheckpointClaim(job), " must be writable by uid ", kUser, "."));
    lines.push_back("Some storage (NFS) ignores fsGroup: there, let that user own the directory.");
  }
  return lines;
}

}  // namespace divvy::gen
