// The files for Kubernetes, TFJob and JobSet: what they have in common, and what is their own.
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cluster/cluster_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/ctl/gen/testing/generated.h"
#include "tools/ctl/gen/testing/kube_schema.h"

namespace divvy::gen {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

constexpr Kind kOnKubernetes[] = {Kind::kKubernetes, Kind::kTfJob, Kind::kJobSet};

GenOptions Everything() {
  GenOptions options = Digits();
  options.ps = 3;
  options.workers = 4;
  options.evaluator = true;
  options.name = "mnist";
  options.kube_namespace = "training";
  options.image = "registry.example/digits:7";
  options.gpus_per_worker = 2;
  options.checkpoint_size = "50Gi";
  options.storage_class = "nfs";
  options.data_claim = "mnist-data";
  options.command.push_back("--note=it's $(HOME) \"x\": 50%");
  return options;
}

// The size of /dev/shm; "" if the pods have the default.
std::string SharedMemoryOf(const Pods& pods) {
  for (const YAML::Node& volume : pods.template_spec["volumes"]) {
    if (volume["name"].Scalar() == "shm") return volume["emptyDir"]["sizeLimit"].Scalar();
  }
  return "";
}

class OnKubernetesTest : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, OnKubernetesTest, testing::ValuesIn(kOnKubernetes),
                         [](const auto& info) { return std::string(KindName(info.param)); });

TEST_P(OnKubernetesTest, EveryObjectHasTheFieldsAndTypesOfItsSchema) {
  for (const GenOptions& options : {Digits(), Everything()}) {
    for (const YAML::Node& object : Documents(GetParam(), options))
      EXPECT_THAT(ProblemsOf(object), IsEmpty()) << object["kind"].as<std::string>();
  }
}

TEST_P(OnKubernetesTest, EachRoleHasItsNumberOfPods) {
  std::map<std::string, int> counts;
  for (const Pods& pods : PodsIn(Documents(GetParam(), Everything())))
    counts[pods.role] = pods.count;
  EXPECT_EQ(counts,
            (std::map<std::string, int>{{"chief", 1}, {"ps", 3}, {"worker", 4}, {"evaluator", 1}}));
}

TEST_P(OnKubernetesTest, NoContainerHasRightsThatItDoesNotNeed) {
  for (const Pods& pods : PodsIn(Documents(GetParam(), Everything()))) {
    EXPECT_FALSE(pods.template_spec["automountServiceAccountToken"].as<bool>());
    EXPECT_TRUE(pods.template_spec["securityContext"]["runAsNonRoot"].as<bool>());
    EXPECT_EQ(pods.template_spec["securityContext"]["runAsUser"].as<int>(), 65532);
    const YAML::Node security = pods.container()["securityContext"];
    EXPECT_FALSE(security["allowPrivilegeEscalation"].as<bool>());
    EXPECT_TRUE(security["readOnlyRootFilesystem"].as<bool>());
    EXPECT_THAT(Texts(security["capabilities"]["drop"]), ElementsAre("ALL"));
  }
}

TEST_P(OnKubernetesTest, ATaskSeesItsOwnKeyAndNoOther) {
  for (const Pods& pods : PodsIn(Documents(GetParam(), Everything()))) {
    std::vector<std::string> files;
    for (const YAML::Node& mount : pods.container()["volumeMounts"]) {
      if (mount["name"].as<std::string>() == "tls")
        files.push_back(mount["subPathExpr"].as<std::string>(""));
    }
    if (pods.role == "evaluator") {
      EXPECT_THAT(files, IsEmpty());
    } else {
      EXPECT_THAT(files, ElementsAre(pods.role + "-$(TASK_INDEX).pem",
                                     pods.role + "-$(TASK_INDEX).key", "ca.pem"));
    }
  }
}

TEST_P(OnKubernetesTest, EveryMountHasAVolumeAndEveryVolumeAMount) {
  for (const Pods& pods : PodsIn(Documents(GetParam(), Everything()))) {
    std::set<std::string> volumes, mounted;
    for (const YAML::Node& volume : pods.template_spec["volumes"])
      volumes.insert(volume["name"].as<std::string>());
    for (const YAML::Node& mount : pods.container()["volumeMounts"])
      mounted.insert(mount["name"].as<std::string>());
    EXPECT_EQ(volumes, mounted) << pods.role;
  }
}

TEST_P(OnKubernetesTest, EveryClaimOfAPodExistsOrWasNamedByTheUser) {
  const std::vector<YAML::Node> documents = Documents(GetParam(), Everything());
  std::set<std::string> claims = {"mnist-data"};
  for (const YAML::Node& document : documents) {
    if (document["kind"].as<std::string>() == "PersistentVolumeClaim")
      claims.insert(document["metadata"]["name"].as<std::string>());
  }
  for (const Pods& pods : PodsIn(documents)) {
    for (const YAML::Node& volume : pods.template_spec["volumes"]) {
      const YAML::Node claim = volume["persistentVolumeClaim"];
      if (claim.IsDefined()) {
        EXPECT_THAT(claims, Contains(claim["claimName"].as<std::string>()));
      }
    }
  }
}

TEST_P(OnKubernetesTest, TheNumbersOfPortsAgree) {
  const std::vector<YAML::Node> documents = Documents(GetParam(), Digits());
  for (const Pods& pods : PodsIn(documents)) {
    std::map<std::string, int> ports;
    for (const YAML::Node& port : pods.container()["ports"])
      ports[port["name"].as<std::string>()] = port["containerPort"].as<int>();
    const std::string name = GetParam() == Kind::kTfJob ? "tfjob-port" : "grpc";
    EXPECT_EQ(ports,
              (std::map<std::string, int>{{name, 2222}, {"metrics", 9464}, {"health", 8080}}));
    const std::vector<std::string> args = Texts(pods.container()["args"]);
    EXPECT_THAT(args, Contains("--bind_address=0.0.0.0:2222"));
    EXPECT_THAT(args, Contains("--http_address=0.0.0.0:9464"));
    EXPECT_THAT(args, Contains("--health_address=0.0.0.0:8080"));
    for (const char* probe : {"startupProbe", "readinessProbe", "livenessProbe"})
      EXPECT_EQ(pods.container()[probe]["httpGet"]["port"].as<std::string>(), "health") << probe;
  }
  std::vector<int> open;
  for (const YAML::Node& rule : Find(documents, "NetworkPolicy", "digits")["spec"]["ingress"])
    open.push_back(rule["ports"][0]["port"].as<int>());
  EXPECT_THAT(open, ElementsAre(2222, 9464));
}

TEST_P(OnKubernetesTest, PoliciesSelectThePodsOfTheJob) {
  const std::vector<YAML::Node> documents = Documents(GetParam(), Digits());
  const YAML::Node policy =
      Find(documents, "NetworkPolicy", "digits")["spec"]["podSelector"]["matchLabels"];
  const YAML::Node budget =
      Find(documents, "PodDisruptionBudget", "digits-ps")["spec"]["selector"]["matchLabels"];
  for (const Pods& pods : PodsIn(documents)) {
    for (const auto& label : policy)
      EXPECT_EQ(pods.labels[label.first.Scalar()].Scalar(), label.second.Scalar());
    bool is_in_budget = true;
    for (const auto& label : budget)
      is_in_budget =
          is_in_budget && pods.labels[label.first.Scalar()].Scalar() == label.second.Scalar();
    EXPECT_EQ(is_in_budget, pods.role == "ps");
  }
}

// Jobs and TFJobs have no /scale, which the controller asks for maxUnavailable: then it would allow
// no eviction at all.
TEST_P(OnKubernetesTest, ADrainOfNodesMayTakeOneParameterServer) {
  const YAML::Node spec =
      Find(Documents(GetParam(), Everything()), "PodDisruptionBudget", "mnist-ps")["spec"];
  if (GetParam() == Kind::kKubernetes) {
    EXPECT_EQ(spec["maxUnavailable"].as<int>(), 1);
    EXPECT_FALSE(spec["minAvailable"].IsDefined());
  } else {
    EXPECT_EQ(spec["minAvailable"].as<int>(), 2) << "of 3";
    EXPECT_FALSE(spec["maxUnavailable"].IsDefined());
  }
}

TEST_P(OnKubernetesTest, ATaskHasLongerToEndThanItDrains) {
  for (const Pods& pods : PodsIn(Documents(GetParam(), Digits()))) {
    EXPECT_EQ(pods.template_spec["terminationGracePeriodSeconds"].as<int>(), 60);
    EXPECT_THAT(Texts(pods.container()["args"]), Contains("--drain_timeout=25s"));
    const YAML::Node liveness = pods.container()["livenessProbe"];
    EXPECT_GT(liveness["periodSeconds"].as<int>() * liveness["failureThreshold"].as<int>(), 25)
        << "a task that drains would be killed";
  }
}

TEST_P(OnKubernetesTest, TheChiefKeepsItsStateAndAllWhoSaveShareTheCheckpoints) {
  const std::vector<YAML::Node> documents = Documents(GetParam(), Digits());
  EXPECT_THAT(
      Texts(Find(documents, "PersistentVolumeClaim", "digits-state")["spec"]["accessModes"]),
      ElementsAre("ReadWriteOnce"));
  EXPECT_THAT(
      Texts(Find(documents, "PersistentVolumeClaim", "digits-checkpoints")["spec"]["accessModes"]),
      ElementsAre("ReadWriteMany"));
  for (const Pods& pods : PodsIn(documents)) {
    std::map<std::string, std::string> paths;
    for (const YAML::Node& mount : pods.container()["volumeMounts"])
      paths[mount["name"].as<std::string>()] = mount["mountPath"].as<std::string>();
    EXPECT_EQ(paths.count("state"), pods.role == "chief" ? 1u : 0u);
    EXPECT_EQ(paths.count("checkpoints"), pods.role == "worker" ? 0u : 1u);
    const std::vector<std::string> args = Texts(pods.container()["args"]);
    if (pods.role == "chief") {
      EXPECT_THAT(args, Contains("--state_dir=" + paths["state"]));
    }
    if (pods.role != "worker") {
      EXPECT_THAT(args, Contains("--checkpoint_dir=" + paths["checkpoints"]));
    }
  }
}

TEST_P(OnKubernetesTest, TheProgramsOwnWordsStayAsTheyWere) {
  for (const Pods& pods : PodsIn(Documents(GetParam(), Everything()))) {
    const std::vector<std::string> args = Texts(pods.container()["args"]);
    // Kubernetes turns "$$(" into "$(".
    const std::string word = "--note=it's $$(HOME) \"x\": 50%";
    if (pods.role == "chief" || pods.role == "evaluator") {
      EXPECT_THAT(args, Contains(word));
    } else {
      EXPECT_THAT(args, Not(Contains(word)));
    }
    EXPECT_THAT(Texts(pods.container()["command"]), ElementsAre("/program"));
  }
}

TEST_P(OnKubernetesTest, WorkersAskForGpusAndMemoryForTheirLibraries) {
  for (const Pods& pods : PodsIn(Documents(GetParam(), Everything()))) {
    const YAML::Node limits = pods.container()["resources"]["limits"];
    EXPECT_EQ(limits["nvidia.com/gpu"].IsDefined(), pods.role == "worker");
    if (pods.role != "worker") continue;
    EXPECT_EQ(limits["nvidia.com/gpu"].as<int>(), 2);
    EXPECT_THAT(Texts(pods.container()["args"]), Contains("--gpus=all"));
    EXPECT_EQ(SharedMemoryOf(pods), "1Gi");
  }
}

TEST_P(OnKubernetesTest, WithoutGpusNoSharedMemoryIsTakenFromTheBudget) {
  for (const Pods& pods : PodsIn(Documents(GetParam(), Digits())))
    EXPECT_EQ(SharedMemoryOf(pods), "");
}

TEST_P(OnKubernetesTest, TheBudgetOfAWorkerWithGpusHasTheirSharedMemory) {
  GenOptions options = Digits();
  options.worker_memory = "2Gi";
  EXPECT_TRUE(Generate(GetParam(), options).ok());
  options.gpus_per_worker = 1;
  EXPECT_THAT(std::string(Generate(GetParam(), options).status().message()),
              HasSubstr("--worker_memory=2Gi is less than the 2816Mi that a worker may take by its "
                        "flags and 1Gi of files in memory"));
}

TEST_P(OnKubernetesTest, TheUserOfTheTasksMayWriteToTheClaims) {
  for (const Pods& pods : PodsIn(Documents(GetParam(), Digits()))) {
    const YAML::Node security = pods.template_spec["securityContext"];
    EXPECT_EQ(security["fsGroup"].as<int>(), 65532);
    EXPECT_EQ(security["fsGroupChangePolicy"].Scalar(), "OnRootMismatch");
  }
  EXPECT_THAT(*Generate(GetParam(), Digits()),
              HasSubstr("# The claim digits-checkpoints must be writable by uid 65532.\n"));
}

TEST_P(OnKubernetesTest, WithoutCheckpointsThereIsNoClaimForThem) {
  GenOptions options = Digits();
  options.command.push_back("--checkpoint_dir=");
  for (const YAML::Node& document : Documents(GetParam(), options))
    EXPECT_NE(document["metadata"]["name"].as<std::string>(), "digits-checkpoints");
}

TEST_P(OnKubernetesTest, AnExistingClaimForCheckpointsIsNotMadeAgain) {
  GenOptions options = Digits();
  options.checkpoint_claim = "shared";
  const std::vector<YAML::Node> documents = Documents(GetParam(), options);
  for (const YAML::Node& document : documents)
    EXPECT_NE(document["metadata"]["name"].as<std::string>(), "digits-checkpoints");
  for (const Pods& pods : PodsIn(documents)) {
    if (pods.role == "worker") continue;
    const YAML::Node volumes = pods.template_spec["volumes"];
    EXPECT_EQ(volumes[volumes.size() - 1]["persistentVolumeClaim"]["claimName"].Scalar(), "shared");
    const YAML::Node mounts = pods.container()["volumeMounts"];
    EXPECT_EQ(mounts[mounts.size() - 1]["subPath"].Scalar(), "digits")
        << "jobs that share the claim would share a directory";
  }
}

TEST_P(OnKubernetesTest, TheStateOfAJobWithAnExistingClaimHasAStorageClass) {
  GenOptions options = Digits();
  options.checkpoint_claim = "shared";
  options.storage_class = "nfs";
  EXPECT_EQ(Find(Documents(GetParam(), options), "PersistentVolumeClaim",
                 "digits-state")["spec"]["storageClassName"]
                .Scalar(),
            "nfs");
}

// ---- TF_CONFIG ----------------------------------------------------------------------------------

// The cluster as a task of the pods understands it.
ClusterConfig ClusterOf(const Pods& pods, int index) {
  ClusterConfigSources sources;
  sources.tf_config = Variable(pods.container(), "TF_CONFIG");
  for (const std::string& word : Texts(pods.container()["args"])) {
    if (absl::StartsWith(word, "--task_type=")) sources.flags.task_type = word.substr(12);
    if (word == "--task_index=$(TASK_INDEX)") sources.flags.task_index = index;
  }
  const absl::StatusOr<ClusterConfig> config = ResolveParameterServerCluster(sources);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ClusterConfig());
}

std::vector<std::string> AddressesOf(const ClusterConfig& config, const std::string& job) {
  std::vector<std::string> addresses;
  const ClusterSpec::Jobs jobs = TrainingCluster(config);
  const auto tasks = jobs.find(job);
  if (tasks == jobs.end()) return addresses;
  for (const auto& [index, address] : tasks->second) addresses.push_back(address);
  return addresses;
}

TEST(KubernetesFileTest, TheAddressesInTfConfigAreThoseThatTheServicesGive) {
  const std::vector<YAML::Node> documents = Documents(Kind::kKubernetes, Everything());
  for (const Pods& pods : PodsIn(documents)) {
    if (pods.role == "evaluator") continue;
    const ClusterConfig config = ClusterOf(pods, 0);
    for (const Pods& others : PodsIn(documents)) {
      if (others.role == "evaluator") continue;
      const YAML::Node service = Find(documents, "Service", absl::StrCat("mnist-", others.role));
      EXPECT_EQ(service["spec"]["clusterIP"].as<std::string>(), "None");
      EXPECT_TRUE(service["spec"]["publishNotReadyAddresses"].as<bool>());
      for (const auto& label : service["spec"]["selector"])
        EXPECT_EQ(others.labels[label.first.Scalar()].Scalar(), label.second.Scalar());
      std::vector<std::string> expected;
      for (int i = 0; i < others.count; ++i)
        expected.push_back(absl::StrCat("mnist-", others.role, "-", i, ".mnist-", others.role, ":",
                                        service["spec"]["ports"][0]["port"].as<int>()));
      EXPECT_EQ(AddressesOf(config, others.role), expected);
    }
  }
}

TEST(KubernetesFileTest, PodsGetTheirNamesFromTheServiceOfTheirRole) {
  const std::vector<YAML::Node> documents = Documents(Kind::kKubernetes, Digits());
  EXPECT_EQ(Find(documents, "StatefulSet", "digits-ps")["spec"]["serviceName"].Scalar(),
            "digits-ps");
  for (const char* role : {"chief", "worker"}) {
    const std::string name = absl::StrCat("digits-", role);
    const YAML::Node spec = Find(documents, "Job", name)["spec"];
    EXPECT_EQ(spec["completionMode"].Scalar(), "Indexed") << "only these have host names";
    EXPECT_EQ(spec["template"]["spec"]["subdomain"].Scalar(), name);
  }
}

TEST(KubernetesFileTest, EachTaskKnowsItsIndex) {
  for (const Pods& pods : PodsIn(Documents(Kind::kKubernetes, Everything()))) {
    if (pods.role == "evaluator") continue;
    const ClusterConfig config = ClusterOf(pods, pods.count - 1);
    EXPECT_EQ(config.task_type, pods.role);
    EXPECT_EQ(config.task_index, pods.count - 1);
    EXPECT_EQ(pods.container()["env"][0]["name"].Scalar(), "TASK_INDEX")
        << "before the variables and arguments that use it";
    EXPECT_EQ(pods.container()["env"][0]["valueFrom"]["fieldRef"]["fieldPath"].Scalar(),
              pods.role == "ps"
                  ? "metadata.labels['apps.kubernetes.io/pod-index']"
                  : "metadata.annotations['batch.kubernetes.io/job-completion-index']");
  }
}

TEST(KubernetesFileTest, JobsRestartPodsByTheRuleOfTheExitCodes) {
  for (const char* name : {"digits-chief", "digits-worker"}) {
    const YAML::Node spec = Find(Documents(Kind::kKubernetes, Digits()), "Job", name)["spec"];
    EXPECT_EQ(spec["template"]["spec"]["restartPolicy"].Scalar(), "Never")
        << "podFailurePolicy wants it";
    const YAML::Node rules = spec["podFailurePolicy"]["rules"];
    const bool is_worker = absl::EndsWith(name, "worker");
    EXPECT_EQ(rules[0]["action"].Scalar(), is_worker ? "FailIndex" : "FailJob")
        << "the job can do without a worker";
    EXPECT_EQ(rules[0]["onExitCodes"]["containerName"].Scalar(),
              spec["template"]["spec"]["containers"][0]["name"].Scalar());
    EXPECT_THAT(rules[0]["onExitCodes"]["values"].as<std::vector<int>>(),
                ElementsAreArray(PermanentCodes()));
    EXPECT_EQ(rules[1]["action"].Scalar(), "Ignore");
    EXPECT_EQ(spec[is_worker ? "backoffLimitPerIndex" : "backoffLimit"].as<int>(), 50);
    EXPECT_FALSE(spec[is_worker ? "backoffLimit" : "backoffLimitPerIndex"].IsDefined());
  }
}

TEST(KubernetesFileTest, EveryCodeBelow128IsPermanent) {
  const std::vector<int> codes = PermanentCodes();
  ASSERT_EQ(codes.size(), 127u);
  EXPECT_EQ(codes.front(), 1);
  EXPECT_EQ(codes.back(), 127) << "a shell that does not find the program";
}

TEST(KubernetesFileTest, PodsHaveTheLabelsOfTrainingJobs) {
  for (const Pods& pods : PodsIn(Documents(Kind::kKubernetes, Digits()))) {
    EXPECT_EQ(pods.labels["training.kubeflow.org/job-name"].Scalar(), "digits");
    EXPECT_EQ(pods.labels["training.kubeflow.org/replica-type"].Scalar(), pods.role);
    EXPECT_EQ(pods.labels["training.kubeflow.org/job-role"].IsDefined(), pods.role == "chief");
  }
}

// `kubectl wait` for one condition would never return after the other.
TEST_P(OnKubernetesTest, TheCommandThatWaitsAlsoEndsWhenTheJobFails) {
  const std::map<Kind, std::string> waits = {{Kind::kKubernetes, "get job/digits-chief -o "},
                                             {Kind::kTfJob, "get tfjob/digits -o "},
                                             {Kind::kJobSet, "get jobset/digits -o "}};
  const std::map<Kind, std::string> ends = {
      {Kind::kKubernetes, "Complete"}, {Kind::kTfJob, "Succeeded"}, {Kind::kJobSet, "Completed"}};
  const std::string text = *Generate(GetParam(), Digits());
  EXPECT_THAT(text, HasSubstr(waits.at(GetParam())));
  EXPECT_THAT(text, HasSubstr("| grep -wE '" + ends.at(GetParam()) + "|Failed'; do sleep"));
}

TEST(KubernetesFileTest, TheCommandsAtItsHeadHaveTheNumbersAndNamesOfTheJob) {
  const std::string text = *Generate(Kind::kKubernetes, Everything());
  EXPECT_THAT(text, HasSubstr("divvyctl certs --out=certs --ps=3 --workers=4\n"));
  EXPECT_THAT(text, HasSubstr("kubectl -n training create secret generic mnist-tls "));
  EXPECT_THAT(text, Not(HasSubstr("ca.key")));
}

TEST(JobSetFileTest, TheAddressesInTfConfigAreTheNamesThatTheControllerGives) {
  const std::vector<YAML::Node> documents = Documents(Kind::kJobSet, Digits());
  const YAML::Node spec = Find(documents, "JobSet", "digits")["spec"];
  EXPECT_TRUE(spec["network"]["enableDNSHostnames"].as<bool>());
  EXPECT_EQ(spec["network"]["subdomain"].Scalar(), "digits");
  for (const Pods& pods : PodsIn(documents)) {
    const ClusterConfig config = ClusterOf(pods, 0);
    EXPECT_THAT(AddressesOf(config, "chief"), ElementsAre("digits-chief-0-0.digits:2222"));
    EXPECT_THAT(AddressesOf(config, "ps"),
                ElementsAre("digits-ps-0-0.digits:2222", "digits-ps-0-1.digits:2222"));
    EXPECT_THAT(AddressesOf(config, "worker"),
                ElementsAre("digits-worker-0-0.digits:2222", "digits-worker-0-1.digits:2222"));
  }
}

TEST(JobSetFileTest, EndsWithTheCoordinatorAndTheEvaluator) {
  const auto awaited = [](const GenOptions& options, const std::string& name) {
    return Texts(Find(Documents(Kind::kJobSet, options), "JobSet",
                      name)["spec"]["successPolicy"]["targetReplicatedJobs"]);
  };
  EXPECT_THAT(awaited(Digits(), "digits"), ElementsAre("chief"));
  EXPECT_THAT(awaited(Everything(), "mnist"), UnorderedElementsAre("chief", "evaluator"));
}

TEST(TfJobFileTest, LeavesTfConfigAndTheLabelsToTheOperator) {
  const std::vector<YAML::Node> documents = Documents(Kind::kTfJob, Everything());
  for (const Pods& pods : PodsIn(documents)) {
    EXPECT_EQ(Variable(pods.container(), "TF_CONFIG"), "");
    EXPECT_EQ(pods.container()["name"].Scalar(), "tensorflow") << "the operator looks for it";
    for (const std::string& word : Texts(pods.container()["args"]))
      EXPECT_FALSE(absl::StartsWith(word, "--task_")) << word;
  }
}

TEST(TfJobFileTest, RestartsByExitCode) {
  const YAML::Node spec = Find(Documents(Kind::kTfJob, Digits()), "TFJob", "digits")["spec"];
  for (const auto& replicas : spec["tfReplicaSpecs"])
    EXPECT_EQ(replicas.second["restartPolicy"].Scalar(), "ExitCode");
}

// What Kubeflow's operator sets for the worker 1 of the job.
TEST(TfJobFileTest, TheOperatorsTfConfigHasThePortOfTheContainers) {
  const Pods ps = PodsIn(Documents(Kind::kTfJob, Digits()))[1];
  ASSERT_EQ(ps.role, "ps");
  ClusterConfigSources sources;
  sources.tf_config = absl::StrReplaceAll(
      R"({"cluster":{"chief":["digits-chief-0.ns.svc:PORT"],"ps":["digits-ps-0.ns.svc:PORT"],)"
      R"("worker":["digits-worker-0.ns.svc:PORT"]},"task":{"type":"ps","index":0},)"
      R"("environment":"cloud"})",
      {{"PORT", ps.container()["ports"][0]["containerPort"].Scalar()}});
  const absl::StatusOr<ClusterConfig> config = ResolveParameterServerCluster(sources);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(OwnAddress(*config), "digits-ps-0.ns.svc:2222");
}

}  // namespace
}  // namespace divvy::gen
