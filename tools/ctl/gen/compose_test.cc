#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cluster/cluster_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/ctl/gen/testing/generated.h"

namespace divvy::gen {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

GenOptions OnePsOneWorker() {
  GenOptions options;
  options.ps = 1;
  options.workers = 1;
  options.image = "digits:${TAG:-1}";
  options.command = {"/digits", "--name=it's $HOME \"x\"", "--epochs=3"};
  return options;
}

YAML::Node File(const GenOptions& options) { return Documents(Kind::kCompose, options)[0]; }
YAML::Node Service(const GenOptions& options, const std::string& task) {
  return File(options)["services"][task];
}
std::vector<std::string> Command(const GenOptions& options, const std::string& task) {
  return Texts(Service(options, task)["command"]);
}

// "volume checkpoints:/checkpoints", "bind ./certs/ca.pem:/certs/ca.pem, read only".
std::vector<std::string> Mounts(const YAML::Node& service) {
  std::vector<std::string> mounts;
  for (const YAML::Node& mount : service["volumes"])
    mounts.push_back(absl::StrCat(mount["type"].Scalar(), " ", mount["source"].Scalar(), ":",
                                  mount["target"].Scalar(),
                                  mount["read_only"].as<bool>(false) ? ", read only" : ""));
  return mounts;
}

TEST(ComposeFileTest, AServiceForEachTaskWithItsOwnKeyAndNoRightsItDoesNotNeed) {
  const YAML::Node chief = Service(OnePsOneWorker(), "chief-0");
  EXPECT_EQ(chief["image"].Scalar(), "digits:${TAG:-1}") << "Compose's variables stay";
  EXPECT_THAT(Texts(chief["entrypoint"]), ElementsAre("/digits"));
  EXPECT_THAT(
      Texts(chief["command"]),
      ElementsAre("--bind_address=0.0.0.0:2222", "--http_address=0.0.0.0:9464",
                  "--tls_cert=/certs/chief-0.pem", "--tls_key=/certs/chief-0.key",
                  "--tls_ca=/certs/ca.pem", "--state_dir=/state", "--checkpoint_dir=/checkpoints",
                  "--drain_timeout=25s", "--name=it's $$HOME \"x\"", "--epochs=3"));
  EXPECT_EQ(chief["hostname"].Scalar(), "chief-0");
  EXPECT_EQ(chief["user"].Scalar(), "65532:65532");
  EXPECT_TRUE(chief["read_only"].as<bool>());
  EXPECT_THAT(Texts(chief["cap_drop"]), ElementsAre("ALL"));
  EXPECT_THAT(Texts(chief["security_opt"]), ElementsAre("no-new-privileges:true"));
  EXPECT_EQ(chief["stop_grace_period"].Scalar(), "60s");
  EXPECT_EQ(chief["restart"].Scalar(), "on-failure:5");
  EXPECT_EQ(Service(OnePsOneWorker(), "ps-0")["restart"].Scalar(), "on-failure:50");
  EXPECT_THAT(Mounts(chief), ElementsAre("bind ./certs/chief-0.pem:/certs/chief-0.pem, read only",
                                         "bind ./certs/chief-0.key:/certs/chief-0.key, read only",
                                         "bind ./certs/ca.pem:/certs/ca.pem, read only",
                                         "volume state:/state", "volume checkpoints:/checkpoints"));
  EXPECT_THAT(Texts(chief["healthcheck"]["test"]),
              ElementsAre("CMD", "/program", "--check_health=localhost:2222",
                          "--tls_cert=/certs/chief-0.pem", "--tls_key=/certs/chief-0.key",
                          "--tls_ca=/certs/ca.pem"));
  for (const char* other : {"ps-0", "worker-0"})
    EXPECT_EQ(chief["depends_on"][other]["condition"].Scalar(), "service_healthy");
}

TEST(ComposeFileTest, TheTopOfTheFileHasServicesAndVolumesAlone) {
  std::vector<std::string> keys;
  for (const auto& entry : File(OnePsOneWorker())) keys.push_back(entry.first.Scalar());
  // docker-compose 1.29 refuses `name`.
  EXPECT_THAT(keys, ElementsAre("services", "volumes"));
}

TEST(ComposeFileTest, PrometheusIsBesideTheTasksIfItIsWanted) {
  GenOptions options = OnePsOneWorker();
  EXPECT_FALSE(File(options)["services"]["prometheus"].IsDefined());
  options.monitoring = true;
  const YAML::Node file = File(options), prometheus = file["services"]["prometheus"];
  EXPECT_EQ(prometheus["image"].Scalar(), "divvy-prometheus:1");
  EXPECT_EQ(prometheus["user"].Scalar(), "65532:65532");
  EXPECT_TRUE(prometheus["read_only"].as<bool>());
  EXPECT_THAT(Texts(prometheus["ports"]), ElementsAre("127.0.0.1:9090:9090"))
      << "its pages are for users of this host";
  EXPECT_THAT(
      Mounts(prometheus),
      ElementsAre("bind ./prometheus.yml:/etc/prometheus/prometheus.yml, read only",
                  "bind ./certs/admin-0.pem:/certs/admin-0.pem, read only",
                  "bind ./certs/admin-0.key:/certs/admin-0.key, read only",
                  "bind ./certs/ca.pem:/certs/ca.pem, read only", "volume prometheus:/prometheus"));
  for (const char* volume : {"state", "checkpoints", "prometheus"})
    EXPECT_TRUE(file["volumes"][volume].IsDefined()) << volume;
}

// The comment of the file has the command for its configuration.
TEST(ComposeFileTest, PrometheusScrapesTheServicesOfTheFile) {
  GenOptions options = OnePsOneWorker();
  options.monitoring = true;
  const std::string text = *Generate(Kind::kCompose, options);
  EXPECT_THAT(text, HasSubstr("#   divvyctl gen prometheus --of=compose --name=digits --ps=1 "
                              "--workers=1 \\\n#     --tls_dir=/certs "
                              "--rules=/etc/prometheus/alerts.yaml >prometheus.yml\n"));
  GenOptions scrape;
  scrape.of = "compose";
  scrape.name = "digits";
  scrape.ps = 1;
  scrape.workers = 1;
  scrape.tls_dir = "/certs";
  scrape.rules = "/etc/prometheus/alerts.yaml";
  const YAML::Node services = File(options)["services"];
  for (const YAML::Node& config : Documents(Kind::kPrometheus, scrape)[0]["scrape_configs"]) {
    const std::string target = config["static_configs"][0]["targets"][0].Scalar();
    EXPECT_TRUE(services[target.substr(0, target.find(':'))].IsDefined()) << target;
    EXPECT_EQ(config["tls_config"]["key_file"].Scalar(), "/certs/admin-0.key");
  }
}

TEST(ComposeFileTest, TheVolumeOfPrometheusIsNotThatOfCheckpoints) {
  GenOptions options = OnePsOneWorker();
  options.checkpoints = "prometheus";
  EXPECT_TRUE(Generate(Kind::kCompose, options).ok());
  options.monitoring = true;
  EXPECT_THAT(std::string(Generate(Kind::kCompose, options).status().message()),
              HasSubstr("--checkpoints=prometheus: that volume has Prometheus' data"));
}

TEST(ComposeFileTest, TheHostsInTfConfigAreServicesOfTheFile) {
  const YAML::Node services = File(OnePsOneWorker())["services"];
  for (const auto& service : services) {
    const auto config = ParseTfConfig(service.second["environment"]["TF_CONFIG"].Scalar());
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(OwnAddress(*config), service.first.Scalar() + ":2222");
    for (const auto& [job, tasks] : TrainingCluster(*config)) {
      for (const auto& [index, address] : tasks)
        EXPECT_TRUE(services[address.substr(0, address.find(':'))].IsDefined()) << address;
    }
  }
}

// `divvyctl certs` writes the CA's key beside the others. It can sign any certificate.
TEST(ComposeFileTest, NoTaskIsGivenTheKeyOfTheCaNorThatOfAnotherTask) {
  GenOptions options = OnePsOneWorker();
  options.ps = 2;
  options.workers = 3;
  int binds = 0;
  for (const auto& service : File(options)["services"]) {
    const std::string own = absl::StrCat("bind ./certs/", service.first.Scalar());
    for (const std::string& mount : Mounts(service.second)) {
      if (!absl::StartsWith(mount, "bind")) continue;
      ++binds;
      EXPECT_THAT(mount, AnyOf(HasSubstr(own + ".pem:"), HasSubstr(own + ".key:"),
                               HasSubstr("bind ./certs/ca.pem:")));
    }
  }
  EXPECT_EQ(binds, 3 * 6) << "single files, never the whole directory";
}

TEST(ComposeFileTest, TheHostsDirectoryIsAPathAndNotTheNameOfAVolume) {
  GenOptions options = OnePsOneWorker();
  options.tls_dir = "my$certs";
  EXPECT_THAT(Mounts(Service(options, "ps-0"))[2], HasSubstr("bind ./my$$certs/ca.pem:"));
  options.tls_dir = "/etc/certs";
  EXPECT_THAT(Mounts(Service(options, "ps-0"))[2], HasSubstr("bind /etc/certs/ca.pem:"));
}

TEST(ComposeFileTest, EachFlagGoesToTheTasksThatReadIt) {
  GenOptions options = OnePsOneWorker();
  options.evaluator = true;
  options.command = {"/digits",
                     "--check_numerics",
                     "--epochs=3",
                     "--replicas_per_worker",
                     "2",
                     "-orphan_timeout=5m",
                     "--min_workers=1",
                     "--notf32",
                     "--pipeline_depth=2",
                     "--pull_buffer_bytes=8",
                     "--snapshot_buffer_bytes",
                     "7",
                     "--drain_timeout=9s"};
  const auto behind_place = [&](const std::string& task, size_t place) {
    std::vector<std::string> words = Command(options, task);
    words.erase(words.begin(), words.begin() + place);
    return words;
  };
  EXPECT_THAT(behind_place("chief-0", 5),
              ElementsAre("--state_dir=/state", "--checkpoint_dir=/checkpoints", "--epochs=3",
                          "--replicas_per_worker", "2", "--min_workers=1", "--drain_timeout=9s"));
  EXPECT_THAT(
      behind_place("ps-0", 5),
      ElementsAre("--checkpoint_dir=/checkpoints", testing::StartsWith("--memory_limit_bytes="),
                  "--pull_buffer_bytes=8", "--snapshot_buffer_bytes", "7", "--drain_timeout=9s"));
  EXPECT_THAT(behind_place("worker-0", 5),
              ElementsAre("--check_numerics", "--replicas_per_worker", "2", "-orphan_timeout=5m",
                          "--notf32", "--pipeline_depth=2", "--drain_timeout=9s"));
  EXPECT_THAT(Command(options, "evaluator-0"),
              ElementsAre("--checkpoint_dir=/checkpoints", "--check_numerics", "--epochs=3",
                          "--replicas_per_worker", "2", "--notf32", "--pipeline_depth=2"));
}

TEST(ComposeFileTest, ChiefAndParameterServersShareAVolumeForCheckpoints) {
  GenOptions options = OnePsOneWorker();
  options.checkpoints = "models";
  for (const char* task : {"chief-0", "ps-0"}) {
    EXPECT_THAT(Mounts(Service(options, task)), testing::Contains("volume models:/checkpoints"));
    EXPECT_THAT(Command(options, task), testing::Contains("--checkpoint_dir=/checkpoints"));
  }
  EXPECT_THAT(Mounts(Service(options, "worker-0")), Not(testing::Contains(HasSubstr("checkp"))));
  EXPECT_TRUE(File(options)["volumes"]["models"].IsDefined());
}

TEST(ComposeFileTest, ADirectoryOfTheHostMayHoldTheCheckpoints) {
  GenOptions options = OnePsOneWorker();
  options.checkpoints = "./my/models";
  options.command = {"/digits", "--checkpoint_dir=/ckpt"};
  options.evaluator = true;
  for (const char* task : {"chief-0", "ps-0"}) {
    EXPECT_THAT(Mounts(Service(options, task)), testing::Contains("bind ./my/models:/ckpt"));
    const std::vector<std::string> words = Command(options, task);
    EXPECT_EQ(std::count(words.begin(), words.end(), "--checkpoint_dir=/ckpt"), 1);
  }
  const YAML::Node evaluator = Service(options, "evaluator-0");
  EXPECT_THAT(Mounts(evaluator), ElementsAre("bind ./my/models:/ckpt, read only"));
  EXPECT_EQ(evaluator["environment"]["TF_CONFIG"].Scalar(),
            R"({"task":{"type":"evaluator","index":0}})");
  EXPECT_FALSE(Service(options, "chief-0")["depends_on"]["evaluator-0"].IsDefined());
  EXPECT_EQ(File(options)["volumes"].size(), 1u);
}

TEST(ComposeFileTest, AnEvaluatorWritesItsScoresWhereItReadsCheckpoints) {
  GenOptions options = OnePsOneWorker();
  options.evaluator = true;
  options.command.push_back("--tensorboard_dir=/checkpoints/tb");
  EXPECT_THAT(Mounts(Service(options, "evaluator-0")),
              ElementsAre("volume checkpoints:/checkpoints"));
}

TEST(ComposeFileTest, WhoWantsNoCheckpointsSaysSo) {
  GenOptions options = OnePsOneWorker();
  options.command = {"/digits", "--checkpoint_dir="};
  EXPECT_THAT(Command(options, "chief-0"), testing::Contains("--checkpoint_dir="));
  EXPECT_THAT(Mounts(Service(options, "ps-0")), Not(testing::Contains(HasSubstr("checkpoints"))));
  EXPECT_EQ(File(options)["volumes"].size(), 1u);
}

TEST(ComposeFileTest, DataOfTheHostIsSeenByWhoReadsIt) {
  GenOptions options = OnePsOneWorker();
  options.data = "criteo";
  for (const char* task : {"chief-0", "worker-0"})
    EXPECT_THAT(Mounts(Service(options, task)),
                testing::Contains("bind ./criteo:/data, read only"));
  EXPECT_THAT(Mounts(Service(options, "ps-0")), Not(testing::Contains(HasSubstr("criteo"))));
}

TEST(ComposeFileTest, WorkersOfOneHostShareItsCores) {
  GenOptions options = OnePsOneWorker();
  EXPECT_THAT(Command(options, "worker-0"), Not(testing::Contains(HasSubstr("workers_per_host"))));
  options.workers = 3;
  EXPECT_THAT(Command(options, "worker-2"), testing::Contains("--workers_per_host=3"));
}

TEST(ComposeFileTest, EachWorkerIsHandedGpusThatNoOtherHas) {
  GenOptions options = OnePsOneWorker();
  options.workers = 2;
  options.gpus_per_worker = 2;
  EXPECT_THAT(*Generate(Kind::kCompose, options), HasSubstr("from 1.28"));
  const auto gpus_of = [&options](const std::string& task) {
    return Texts(
        Service(options, task)["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]);
  };
  EXPECT_THAT(gpus_of("worker-0"), ElementsAre("0", "1"));
  EXPECT_THAT(gpus_of("worker-1"), ElementsAre("2", "3"));
  EXPECT_FALSE(Service(options, "ps-0")["deploy"].IsDefined());
  EXPECT_THAT(Command(options, "worker-1"), testing::Contains("--gpus=all"));
  EXPECT_THAT(Command(options, "chief-0"), testing::Contains("--replicas_per_worker=2"))
      << "the coordinator refuses workers with another number of GPUs";
}

TEST(ComposeFileTest, ContainersHaveTheMemoryOfTheirBudget) {
  GenOptions options = OnePsOneWorker();
  options.worker_memory = "3Gi";
  EXPECT_EQ(Service(options, "worker-0")["mem_limit"].as<int64_t>(), int64_t{3} << 30);
  EXPECT_EQ(Service(options, "ps-0")["mem_limit"].as<int64_t>(), int64_t{8} << 30);
}

TEST(ComposeFileTest, FilesInMemoryHaveASizeThatTheBudgetKnows) {
  GenOptions options = OnePsOneWorker();
  EXPECT_THAT(Texts(Service(options, "ps-0")["tmpfs"]), ElementsAre("/tmp:size=67108864"));
  // 4608 MiB of buffers, 64 MiB of /tmp.
  EXPECT_THAT(Command(options, "ps-0"),
              testing::Contains(absl::StrCat("--memory_limit_bytes=", int64_t{8192 - 4672} << 20)));
  EXPECT_FALSE(Service(options, "worker-0")["shm_size"].IsDefined());
  options.gpus_per_worker = 1;
  EXPECT_EQ(Service(options, "worker-0")["shm_size"].as<int64_t>(), int64_t{1} << 30);
  options.worker_memory = "2Gi";
  EXPECT_THAT(std::string(Generate(Kind::kCompose, options).status().message()),
              HasSubstr("less than the 2880Mi that a worker may take by its flags and 1088Mi of "
                        "files in memory"));
}

// ---- Prometheus ---------------------------------------------------------------------------------

std::vector<std::string> Targets(const GenOptions& options) {
  std::vector<std::string> targets;
  for (const YAML::Node& scrape : Documents(Kind::kPrometheus, options)[0]["scrape_configs"])
    targets.push_back(Texts(scrape["static_configs"][0]["targets"])[0]);
  return targets;
}

TEST(PrometheusFileTest, TheTargetsAreThoseOfTheKindThatRunsTheTasks) {
  GenOptions options = OnePsOneWorker();
  options.image.reset();
  EXPECT_THAT(Targets(options), ElementsAre("digits-chief-0.digits-chief.default.svc:9464",
                                            "digits-ps-0.digits-ps.default.svc:9464",
                                            "digits-worker-0.digits-worker.default.svc:9464"));
  options.of = "jobset";
  options.kube_namespace = "training";
  EXPECT_THAT(Targets(options), ElementsAre("digits-chief-0-0.digits.training.svc:9464",
                                            "digits-ps-0-0.digits.training.svc:9464",
                                            "digits-worker-0-0.digits.training.svc:9464"));
  options.of = "tfjob";
  EXPECT_EQ(Targets(options)[1], "digits-ps-0.training.svc:9464");
  options.of = "compose";
  options.kube_namespace.reset();
  EXPECT_THAT(Targets(options), ElementsAre("chief-0:9464", "ps-0:9464", "worker-0:9464"));
  options.of = "systemd";
  options.hosts = {"a", "b"};
  EXPECT_THAT(Targets(options), ElementsAre("a:9464", "b:9465", "a:9466"));
}

TEST(PrometheusFileTest, EachTaskIsAskedForByTheNameInItsCertificate) {
  const YAML::Node file = Documents(Kind::kPrometheus, Digits())[0];
  EXPECT_FALSE(file["rule_files"].IsDefined()) << "no file that may not exist";
  std::vector<std::string> names;
  for (const YAML::Node& scrape : file["scrape_configs"]) {
    EXPECT_EQ(scrape["scheme"].Scalar(), "https");
    EXPECT_EQ(scrape["tls_config"]["cert_file"].Scalar(), "/etc/digits/certs/admin-0.pem");
    names.push_back(scrape["tls_config"]["server_name"].Scalar());
    EXPECT_EQ(scrape["job_name"].Scalar(), "digits/" + names.back());
    EXPECT_EQ(scrape["static_configs"][0]["labels"]["job"].Scalar(), "digits");
  }
  EXPECT_THAT(names, ElementsAre("chief-0", "ps-0", "ps-1", "worker-0", "worker-1"));
}

TEST(PrometheusFileTest, AlertsAreReadFromAFileThatTheUserNames) {
  GenOptions options = Digits();
  options.rules = "/etc/alerts.yaml";
  EXPECT_THAT(Texts(Documents(Kind::kPrometheus, options)[0]["rule_files"]),
              ElementsAre("/etc/alerts.yaml"));
}

TEST(PrometheusFileTest, AnEvaluatorHasNoPages) {
  GenOptions options = Digits();
  options.command.clear();
  options.name = "digits";
  EXPECT_EQ(Targets(options).size(), 5u) << "and the name is enough";
}

}  // namespace
}  // namespace divvy::gen
