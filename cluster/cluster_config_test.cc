#include "cluster/cluster_config.h"

#include <cctype>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/random.h"
#include "cluster/cluster_config_resolver.h"
#include "cluster/cluster_resolver.h"
#include "cluster/config_json.h"
#include "cluster/task_address.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/error.h"

namespace divvy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr char kDense[] =
    R"({"cluster":{"chief":["h0:2222"],"ps":["h3:2222","h4:2222"],"worker":["h1:2222","h2:2222"]},"task":{"type":"worker","index":1}})";

std::string MessageOf(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

ClusterConfigSources FromTfConfig(std::string text) {
  ClusterConfigSources sources;
  sources.tf_config = std::move(text);
  return sources;
}

// All problems of one TF_CONFIG in one message; "" if a job can run with it.
std::string WrongWith(const std::string& text) {
  const absl::StatusOr<ClusterConfig> config = ResolveParameterServerCluster(FromTfConfig(text));
  return config.ok() ? "" : MessageOf(config.status());
}

std::string Quoted(absl::string_view text) { return absl::StrReplaceAll(text, {{"'", "\""}}); }

// ---- dialects -----------------------------------------------------------------------------------

TEST(DialectTest, TensorFlowsListsGiveIndicesFromZero) {
  const absl::StatusOr<ClusterConfig> config = ParseTfConfig(kDense);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->spec, ClusterSpec({{"chief", {{0, "h0:2222"}}},
                                       {"ps", {{0, "h3:2222"}, {1, "h4:2222"}}},
                                       {"worker", {{0, "h1:2222"}, {1, "h2:2222"}}}}));
  EXPECT_EQ(config->task_type, "worker");
  EXPECT_EQ(config->task_index, 1);
  EXPECT_EQ(config->rpc_layer, "");
  EXPECT_EQ(config->session_master, std::nullopt);
  EXPECT_EQ(CoordinatorAddress(*config), "h0:2222");
  EXPECT_EQ(OwnAddress(*config), "h2:2222");
  EXPECT_EQ(NumParameterServers(*config), 2);
  EXPECT_EQ(WrongWith(kDense), "");
}

TEST(DialectTest, KubeflowsDenseFormHasNoChiefAndSaysCloud) {
  const char text[] =
      R"({"cluster":{"ps":["j-ps-0.ns.svc:2222"],"worker":["j-worker-0.ns.svc:2222"]},"task":{"type":"worker","index":0},"environment":"cloud"})";
  const ClusterExamination examination = ExamineCluster(FromTfConfig(text));
  EXPECT_THAT(examination.problems, IsEmpty());
  EXPECT_EQ(CoordinatorAddress(examination.config), "");
  EXPECT_THAT(examination.notes,
              ElementsAre("TF_CONFIG: not read: \"environment\"",
                          "cluster has no chief and there is no --coordinator_address: this task "
                          "waits until the coordinator dials it"));
}

TEST(DialectTest, ASparseWorkerKeepsItsTrueIndex) {
  const std::string text =
      R"({"cluster":{"worker":{"7":"j-worker-7.ns.svc:2222"},"ps":["j-ps-0.ns.svc:2222"]},"task":{"type":"worker","index":7}})";
  const absl::StatusOr<ClusterConfig> config = ResolveParameterServerCluster(FromTfConfig(text));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->spec.task_indices("worker"), ElementsAre(7));
  EXPECT_EQ(OwnAddress(*config), "j-worker-7.ns.svc:2222");
  EXPECT_EQ(WrongWith(absl::StrReplaceAll(text, {{"\"index\":7", "\"index\":0"}})),
            "TF_CONFIG: cluster.worker has no task 0 (it has 7), but task.index is 0");
}

TEST(DialectTest, ASparsePsThatKnowsItselfAloneStandsAtItsIndexAndNeedsTheCoordinatorsAddress) {
  ClusterConfigSources sources = FromTfConfig(
      R"({"cluster":{"worker":{},"ps":["j-ps-2.ns.svc:2222"]},"task":{"type":"ps","index":2}})");
  EXPECT_EQ(MessageOf(ResolveParameterServerCluster(sources).status()),
            "TF_CONFIG: cluster.ps has holes (it has 2): parameter servers are counted from 0; "
            "cluster.worker has no tasks; at least one is needed (or "
            "--coordinator_address=HOST:PORT, where this task knows only a part of the cluster)");
  sources.flags.coordinator_address = "j-chief-0.ns.svc:2222";
  const absl::StatusOr<ClusterConfig> config = ResolveParameterServerCluster(sources);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(TrainingCluster(*config), (ClusterSpec::Jobs{{"ps", {{2, "j-ps-2.ns.svc:2222"}}}}));
  EXPECT_EQ(OwnAddress(*config), "j-ps-2.ns.svc:2222");
  EXPECT_EQ(CoordinatorAddress(*config), "j-chief-0.ns.svc:2222");
}

TEST(DialectTest, ASparseChiefThatKnowsNobodyNeedsTheNumberOfParameterServers) {
  ClusterConfigSources sources =
      FromTfConfig(R"({"cluster":{"worker":{},"ps":null},"task":{"type":"chief","index":0}})");
  EXPECT_THAT(MessageOf(ResolveParameterServerCluster(sources).status()), HasSubstr("--num_ps=P"));
  sources.flags.num_ps = 3;
  const absl::StatusOr<ClusterConfig> config = ResolveParameterServerCluster(sources);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(NumParameterServers(*config), 3);
}

TEST(DialectTest, VertexCallsTheChiefMaster) {
  const char text[] =
      R"({"cluster":{"master":["m:2222"],"worker":["w:2222"],"ps":["p:2222"]},"task":{"type":"master","index":0,"trial":"1","cloud":"x"},"job":{"a":1}})";
  const absl::StatusOr<ClusterConfig> config = ResolveParameterServerCluster(FromTfConfig(text));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->task_type, "chief");
  EXPECT_EQ(CoordinatorAddress(*config), "m:2222");
}

TEST(DialectTest, VertexClusterSpecIsReadOnlyWithoutTfConfig) {
  ClusterConfigSources sources;
  sources.cluster_spec =
      R"({"cluster":{"workerpool0":["c:2222"],"workerpool1":["w0:2222","w1:2222"],"workerpool2":["p:2222"],"workerpool3":["e:2222"]},
                             "task":{"type":"workerpool1","index":1},"environment":"cloud","open_ports":[3333]})";
  const absl::StatusOr<ClusterConfig> config = ResolveParameterServerCluster(sources);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->task_type, "worker");
  EXPECT_EQ(OwnAddress(*config), "w1:2222");
  EXPECT_THAT(config->spec.jobs(), ElementsAre("chief", "evaluator", "ps", "worker"));
  sources.tf_config = kDense;
  EXPECT_EQ(OwnAddress(*ResolveParameterServerCluster(sources)), "h2:2222");
  sources.tf_config.reset();
  sources.cluster_spec = R"({"cluster":{"worker":["w0:2222"]}})";
  EXPECT_EQ(MessageOf(ResolveClusterConfig(sources).status()),
            "CLUSTER_SPEC: cluster has \"worker\"; wanted workerpool0 (chief), 1 (worker), 2 (ps) "
            "or 3 (evaluator)");
}

TEST(DialectTest, EvaluatorsAreNoPartOfTheTrainingCluster) {
  const char text[] =
      R"({"cluster":{"chief":["c:1"],"ps":["p:1"],"worker":["w:1"],"evaluator":["e:1"]},"task":{"type":"evaluator","index":0}})";
  const absl::StatusOr<ClusterConfig> config = ResolveParameterServerCluster(FromTfConfig(text));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->spec.num_tasks("evaluator"), 1);
  EXPECT_EQ(TrainingCluster(*config).count("evaluator"), 0);
  EXPECT_EQ(OwnAddress(*config), "e:1");
}

TEST(DialectTest, AnEvaluatorMayKnowNobody) {
  EXPECT_EQ(WrongWith(R"({"task":{"type":"evaluator","index":0}})"), "");
}

// ---- what is wrong ------------------------------------------------------------------------------

struct BadText {
  std::string name, text, message;
};

std::vector<BadText> BadTexts() {
  const auto cluster = [](absl::string_view jobs) {
    return absl::StrCat(R"({"cluster":)", jobs, "}");
  };
  const auto worker = [&](absl::string_view tasks) {
    return cluster(absl::StrCat(R"({"worker":)", tasks, "}"));
  };
  const auto address = [&](absl::string_view text) {
    return worker(absl::StrCat("[\"", text, "\"]"));
  };
  const auto task = [](absl::string_view task) { return absl::StrCat(R"({"task":)", task, "}"); };
  const std::string wanted_index = "; wanted a whole number from 0 to 65534";
  const std::string wanted_task = R"(; wanted an object such as {"type": "worker", "index": 0})";
  const std::string wanted_cluster =
      R"(; wanted an object such as {"ps": ["host:2222"], "worker": ["host:2222"]})";
  const std::string wanted_document =
      R"(; wanted one object such as {"cluster": {...}, "task": {...}})";
  const std::string wanted_type =
      R"(; wanted one of the texts "chief", "worker", "ps" and "evaluator")";
  return {
      // The text as a whole
      {"Empty", "", "it is empty: unset it, or write {}"},
      {"Blank", " \n", "it is empty: unset it, or write {}"},
      {"Null", "null", "it is null" + wanted_document},
      {"Array", "[]", "it is a list" + wanted_document},
      {"Number", "5", "it is 5" + wanted_document},
      {"Text", "\"x\"", "it is \"x\"" + wanted_document},
      {"Truncated", "{\"cluster\":",
       R"(it is not JSON at byte 12, near ""cluster":": it ends too early; did the shell take a part of it?)"},
      {"TrailingBytes", "{} x",
       "it is not JSON at byte 4, near \"{} x\": nothing may stand behind the object"},
      {"TrailingNul", std::string("{}\0x", 4), "it has a NUL at byte 2"},
      {"ByteOrderMark", "\xEF\xBB\xBF{}",
       "it begins with a byte order mark: save it as UTF-8 without one"},
      {"NotUtf8", "{\"\xFF\":1}", R"(it is not JSON at byte 3, near ""\xff": it is not UTF-8)"},
      {"SurrogateHalf", R"({"a":"\ud800"})",
       R"(it is not JSON at byte 13, near ""\ud800"": half of a surrogate pair)"},
      {"Comment", "{/**/}", "it is not JSON at byte 2, near \"{/\": JSON has no comments"},
      {"SingleQuotes", "{'a':1}",
       "it is not JSON at byte 2, near \"{'\": names and texts stand in double quotes"},
      {"DuplicateKeys",
       R"({"cluster":{"worker":["a:1"],"worker":["b:1"]},"rpc_layer":"x","rpc_layer":"y"})",
       "the key cluster.worker stands twice: keep one; the key rpc_layer stands twice: keep one"},
      {"DuplicateDeepKey", R"({"job":[{},{"x":1,"x":2}]})",
       "the key job[1].x stands twice: keep one"},
      {"Depth10000", std::string(10000, '[') + std::string(10000, ']'),
       "it is nested more than 16 deep"},
      {"OneMebibyteAndABit", R"({"a":")" + std::string(1 << 20, 'x') + "\"}",
       "it has 1048584 bytes; at most 1048576 are read"},
      // cluster
      {"ClusterNull", cluster("null"), "cluster is null" + wanted_cluster},
      {"ClusterList", cluster("[]"), "cluster is a list" + wanted_cluster},
      {"ClusterText", cluster("\"x\""), "cluster is \"x\"" + wanted_cluster},
      {"JobText", worker("\"a:1\""),
       R"(cluster.worker is "a:1"; wanted a list of addresses, or an object {"0": address})"},
      {"JobTrue", worker("true"),
       R"(cluster.worker is true; wanted a list of addresses, or an object {"0": address})"},
      {"AddressNumber", worker("[1]"),
       R"(cluster.worker[0] is 1; wanted an address such as "host:2222")"},
      {"AddressNull", worker(R"(["a:1",null])"),
       R"(cluster.worker[1] is null; wanted an address such as "host:2222")"},
      {"AddressList", worker(R"([["a:1"]])"),
       R"(cluster.worker[0] is a list; wanted an address such as "host:2222")"},
      {"SparseWord", worker(R"({"x":"a:1"})"),
       R"(cluster.worker has the key "x"; wanted an index such as "0")"},
      {"SparseReal", worker(R"({"1.0":"a:1"})"),
       R"(cluster.worker has the key "1.0"; wanted an index such as "0")"},
      {"SparseNegative", worker(R"({"-1":"a:1"})"),
       R"(cluster.worker has the key "-1"; an index is 0 to 65534)"},
      {"SparseHuge", worker(R"({"65535":"a:1"})"),
       R"(cluster.worker has the key "65535"; an index is 0 to 65534)"},
      {"SparseLeadingZero", worker(R"({"01":"a:1"})"),
       R"(cluster.worker has the key "01": it is written "1")"},
      {"SameAddressTwice", worker(R"(["a:1","A:01"])"),
       R"(cluster.worker[0] and cluster.worker[1] have the same address "a:1": give each task its own)"},
      {"SameAddressInTwoJobs", cluster(R"({"ps":["a:1"],"worker":["a:1"]})"),
       R"(cluster.ps[0] and cluster.worker[0] have the same address "a:1": give each task its own)"},
      {"MasterAndChief", cluster(R"({"chief":["a:1"],"master":["b:1"]})"),
       "cluster.master and another key are both the job chief: keep one"},
      // addresses
      {"NoPort", address("host"),
       R"(cluster.worker[0] is "host": it has no port: write "host:2222")"},
      {"EmptyPort", address("host:"), R"(cluster.worker[0] is "host:": its port "" is no number)"},
      {"PortZero", address("host:0"),
       R"(cluster.worker[0] is "host:0": its port 0 is outside 1 to 65535)"},
      {"Port65536", address("host:65536"),
       R"(cluster.worker[0] is "host:65536": its port 65536 is outside 1 to 65535)"},
      {"PortWord", address("host:abc"),
       R"(cluster.worker[0] is "host:abc": its port "abc" is no number)"},
      {"PortSigned", address("host:+1"),
       R"(cluster.worker[0] is "host:+1": its port "+1" is no number)"},
      {"EmptyAddress", address(""),
       R"(cluster.worker[0] is "": it has no host: write "host:2222")"},
      {"EmptyHost", address(":2222"),
       R"(cluster.worker[0] is ":2222": it has no host: write "host:2222")"},
      {"Space", address("a b:1"),
       R"(cluster.worker[0] is "a b:1": its host has the character " "; letters, digits, '-', '_' and '.' are possible)"},
      {"EmbeddedNul", address("a\\u0000:1"),
       R"(cluster.worker[0] is "a\x00:1": its host has the character "\x00"; letters, digits, '-', '_' and '.' are possible)"},
      {"IpV6WithoutBrackets", address("fe80::1:2222"),
       R"(cluster.worker[0] is "fe80::1:2222": an IPv6 address stands in brackets: "[fe80::1]:PORT")"},
      {"IpV6Wrong", address("[g::1]:1"),
       R"(cluster.worker[0] is "[g::1]:1": there is no IPv6 address in its brackets)"},
      {"IpV6WithoutPort", address("[::1]"),
       R"(cluster.worker[0] is "[::1]": it has no port: write "[::1]:2222")"},
      {"IpV6Open", address("[::1:1"),
       R"(cluster.worker[0] is "[::1:1": its bracket is not closed)"},
      {"IpV4Wrong", address("10.0.0.256:1"),
       R"(cluster.worker[0] is "10.0.0.256:1": its host is no IPv4 address: it has four numbers up to 255)"},
      {"Scheme", address("http://a:1"),
       R"(cluster.worker[0] is "http://a:1": the only scheme is grpc://, and it may be left out)"},
      // task
      {"TaskNull", task("null"), "task is null" + wanted_task},
      {"TaskText", task("\"worker\""), "task is \"worker\"" + wanted_task},
      {"TypeNumber", task(R"({"type":7})"), "task.type is 7" + wanted_type},
      {"TypeNull", task(R"({"type":null})"), "task.type is null" + wanted_type},
      {"IndexNegative", task(R"({"index":-1})"), "task.index is -1" + wanted_index},
      {"IndexReal", task(R"({"index":1.5})"), "task.index is 1.5" + wanted_index},
      {"IndexExponent", task(R"({"index":1e3})"), "task.index is 1e3" + wanted_index},
      {"IndexWord", task(R"({"index":"x"})"), "task.index is \"x\"" + wanted_index},
      {"IndexTwoTo63", task(R"({"index":9223372036854775808})"),
       "task.index is 9223372036854775808" + wanted_index},
      {"IndexTrue", task(R"({"index":true})"), "task.index is true" + wanted_index},
      {"IndexNull", task(R"({"index":null})"), "task.index is null" + wanted_index},
      {"RpcLayerNumber", R"({"rpc_layer":5})", "rpc_layer is 5; wanted text such as \"grpc\""},
      {"SessionMasterList", R"({"session_master":[]})",
       "session_master is a list; wanted text such as \"host:2222\""},
  };
}

class BadTextTest : public testing::TestWithParam<BadText> {};

TEST_P(BadTextTest, IsRefusedWithItsKeyAndTheFix) {
  EXPECT_EQ(MessageOf(ParseTfConfig(GetParam().text).status()), "TF_CONFIG: " + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(Corpus, BadTextTest, testing::ValuesIn(BadTexts()),
                         [](const auto& info) { return info.param.name; });

TEST(ParseTest, WhatOthersPutBesideTheClusterIsNoError) {
  for (const char* text : {"{}", R"({"environment":7})", R"({"cluster":{},"task":{}})",
                           R"({"task":{"index":" 01 ","trial":null}})", R"({"rpc_layer":null})"}) {
    EXPECT_TRUE(ParseTfConfig(text).ok()) << text << ": " << ParseTfConfig(text).status();
  }
}

TEST(ParseTest, TheDeepestAndLongestThatIsReadIsRead) {
  const std::string deep =
      absl::StrCat(R"({"x":)", std::string(15, '['), std::string(15, ']'), "}");
  EXPECT_TRUE(ParseTfConfig(deep).ok()) << ParseTfConfig(deep).status();
  std::string longest = R"({"x":""})";
  longest.insert(6, (1 << 20) - longest.size(), 'x');
  EXPECT_TRUE(ParseTfConfig(longest).ok());
}

TEST(ParseTest, ManyTasksAreReadAndManyProblemsAreCutShort) {
  std::string tasks, bad;
  for (int i = 0; i < 100'000; ++i)
    absl::StrAppend(&tasks, i == 0 ? "" : ",", "\"", absl::Hex(i), ":1\""),
        absl::StrAppend(&bad, i == 0 ? "" : ",", "1");
  const absl::StatusOr<ClusterConfig> config = ParseTfConfig(
      absl::StrCat(R"({"cluster":{"worker":[)",
                   absl::StrReplaceAll(tasks, {{"\"", "\"h"}, {"1\"h", "1\""}}), "]}}"));
  EXPECT_THAT(config.status().message(), HasSubstr("at most 1048576 are read"));
  const std::string message =
      MessageOf(ParseTfConfig(absl::StrCat(R"({"cluster":{"worker":[)", bad, "]}}")).status());
  EXPECT_THAT(message, HasSubstr("; and 99980 more"));
  EXPECT_LT(message.size(), 3000);
}

TEST(ParseTest, EveryProblemIsReportedAtOnceAndNoneThatFollowsFromAnother) {
  EXPECT_EQ(
      WrongWith(
          R"({"cluster":{"chief":["c:1"],"workers":["w:1"],"ps":["p","q:99999"]},"task":{"type":"PS","index":-2}})"),
      "TF_CONFIG: cluster.ps[0] is \"p\": it has no port: write \"p:2222\"; cluster.ps[1] is "
      "\"q:99999\": its port 99999 is outside 1 to 65535; "
      "task.index is -2; wanted a whole number from 0 to 65534; cluster has the job \"workers\": "
      "it is written \"worker\"");
}

// ---- what a job needs ---------------------------------------------------------------------------

TEST(ValidationTest, EachRuleNamesTheKeyAndTheFix) {
  const auto with = [](absl::string_view task) {
    return absl::StrCat(
        R"({"cluster":{"chief":["c:1"],"ps":["p:1","q:1"],"worker":["u:1","v:1","w:1"]},"task":)",
        Quoted(task), "}");
  };
  const auto cluster = [](absl::string_view jobs) {
    return absl::StrCat("{\"cluster\":", Quoted(jobs), "}");
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}",
       R"(cluster is missing or has no jobs: write {"ps": ["host:2222"], "worker": ["host:2222"]})"},
      {with("{'type':'PS','index':0}"), R"(task.type is "PS": it is written "ps")"},
      {with("{'type':'wroker','index':0}"), R"(task.type is "wroker": it is written "worker")"},
      {with("{'type':'Parameter_Servers','index':0}"),
       R"(task.type is "Parameter_Servers": it is written "ps")"},
      {with("{'type':'','index':0}"),
       R"(task.type is "": a type is chief, worker, ps or evaluator)"},
      {with("{'type':'bar','index':0}"),
       R"(task.type is "bar": a type is chief, worker, ps or evaluator)"},
      {with("{'type':'worker','index':3}"),
       "cluster.worker has no task 3 (it has 0, 1, 2), but task.index is 3"},
      {with("{'type':'worker'}"),
       "task.index is missing: this \"worker\" has to know which one it is"},
      {with("{'type':'chief','index':0}"), ""},
      {with("{'type':'evaluator','index':0}"), ""},
      {with("{}"), ""},
      {R"({"cluster":{"ps":["p:1"],"worker":["w:1"]},"task":{"type":"chief","index":0}})",
       R"(task.type is "chief", but cluster has no such job (it has ps, worker))"},
      {cluster("{'foo':['f:1'],'ps':['p:1'],'worker':['w:1']}"),
       R"(cluster has the job "foo": a type is chief, worker, ps or evaluator)"},
      {cluster("{'chief':['a:1','b:1'],'ps':['p:1'],'worker':['w:1']}"),
       "cluster.chief has 2 tasks; at most one is possible"},
      {cluster("{'evaluator':['a:1','b:1'],'ps':['p:1'],'worker':['w:1']}"),
       "cluster.evaluator has 2 tasks; at most one is possible"},
      {cluster("{'worker':['w:1']}"), "cluster.ps has no tasks; at least one is needed"},
      {cluster("{'ps':['p:1']}"), "cluster.worker has no tasks; at least one is needed"},
      {cluster("{'ps':{'0':'p:1','2':'q:1'},'worker':['w:1']}"),
       "cluster.ps has holes (it has 0, 2): parameter servers are counted from 0"},
      {cluster("{'ps':['p:1'],'worker':{'1':'a:1','3':'b:1'}}"), ""},
  };
  for (const auto& [text, message] : cases)
    EXPECT_EQ(WrongWith(text), message.empty() ? "" : "TF_CONFIG: " + message) << text;
}

TEST(ValidationTest, ATaskComparesItsIndexWithTheIndicesNotWithTheirNumber) {
  const std::string text =
      R"({"cluster":{"ps":["p:1"],"worker":{"1":"a:1","3":"b:1"}},"task":{"type":"worker","index":3}})";
  EXPECT_EQ(WrongWith(text), "");
  EXPECT_EQ(WrongWith(absl::StrReplaceAll(text, {{":3}", ":0}"}})),
            "TF_CONFIG: cluster.worker has no task 0 (it has 1, 3), but task.index is 0");
}

TEST(ValidationTest, TheNumberOfParameterServersMustNotContradictTheCluster) {
  ClusterConfigSources sources = FromTfConfig(kDense);
  sources.flags.num_ps = 1;
  EXPECT_EQ(MessageOf(ResolveParameterServerCluster(sources).status()),
            "TF_CONFIG: cluster.ps[1] is there, but --num_ps is 1");
}

// ---- sources ------------------------------------------------------------------------------------

TEST(SourcesTest, FlagsWinOverTfConfigAndTfConfigOverTheFile) {
  ClusterConfigSources sources;
  EXPECT_TRUE(sources.empty());
  sources.cluster_file = kDense;
  EXPECT_EQ(OwnAddress(*ResolveParameterServerCluster(sources)), "h2:2222");
  sources.tf_config = R"({"task":{"type":"ps","index":1}})";  // the cluster comes from the file
  EXPECT_EQ(OwnAddress(*ResolveParameterServerCluster(sources)), "h4:2222");
  sources.flags.task_index = 0;
  EXPECT_EQ(OwnAddress(*ResolveParameterServerCluster(sources)), "h3:2222");
  sources.flags.task_type = "master";
  EXPECT_EQ(OwnAddress(*ResolveParameterServerCluster(sources)), "h0:2222");
  sources.flags.coordinator_address = "grpc://Elsewhere:02222";
  EXPECT_EQ(CoordinatorAddress(*ResolveParameterServerCluster(sources)), "elsewhere:2222");
  EXPECT_FALSE(sources.empty());
}

TEST(SourcesTest, ProblemsOfSeveralTextsNameTheText) {
  ClusterConfigSources sources;
  sources.cluster_file = R"({"cluster":{"worker":["a"]}})";
  sources.tf_config = R"({"task":[]})";
  sources.flags.coordinator_address = "c";
  EXPECT_EQ(
      MessageOf(ResolveClusterConfig(sources).status()),
      R"(the cluster: TF_CONFIG task is a list; wanted an object such as {"type": "worker", "index": 0}; --cluster_file cluster.worker[0] is "a": )"
      R"(it has no port: write "a:2222"; --coordinator_address is "c": it has no port: write "c:2222")");
}

TEST(KeysTest, AMisspeltKeyIsToldHowItIsWritten) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"clutser":{"ps":["a:1"],"worker":["b:1"]},"task":{"type":"worker","index":0}})",
       R"(the key "clutser" is unknown: it is written "cluster")"},
      {R"({"Cluster":{"ps":["a:1"],"worker":["b:1"]},"task":{"type":"worker","index":0}})",
       R"(the key "Cluster" is unknown: it is written "cluster")"},
      {R"({"cluster":{"ps":["a:1"],"worker":["b:1"]},"tsak":{"type":"worker","index":0}})",
       R"(the key "tsak" is unknown: it is written "task")"},
      {R"({"cluster":{"ps":["a:1"],"worker":["b:1"]},"task":{"typ":"worker","index":0}})",
       R"(the key "task.typ" is unknown: it is written "task.type")"},
      {R"({"cluster":{"ps":["a:1"],"worker":["b:1"]},"task":{"type":"worker","idnex":0}})",
       R"(the key "task.idnex" is unknown: it is written "task.index")"},
  };
  for (const auto& [text, wrong] : cases) {
    ClusterConfigSources sources;
    sources.tf_config = text;
    EXPECT_EQ(MessageOf(ResolveParameterServerCluster(sources).status()), "TF_CONFIG: " + wrong)
        << text;
  }
}

TEST(KeysTest, AKeyThatIsLikeNoneIsPassedOver) {
  ClusterConfigSources sources;
  sources.tf_config =
      R"({"cluster":{"ps":["a:1"],"worker":["b:1"]},"task":{"type":"worker","index":0,"trial":"1","cloud":true},"environment":"cloud","job":{}})";
  EXPECT_TRUE(ResolveParameterServerCluster(sources).ok())
      << ResolveParameterServerCluster(sources).status();
}

TEST(SourcesTest, FlagsAloneMayDescribeATaskOfASparseCluster) {
  ClusterConfigSources sources;
  sources.flags = {"worker", 4, "c:2222", std::nullopt};
  EXPECT_TRUE(ResolveParameterServerCluster(sources).ok())
      << ResolveParameterServerCluster(sources).status();
  sources.flags = {"ps", 2, "c:2222", 2};
  EXPECT_EQ(MessageOf(ResolveParameterServerCluster(sources).status()),
            "the cluster: task.index is 2, but --num_ps is 2");
  sources.flags = {"chief", -1, std::nullopt, 0};
  EXPECT_EQ(MessageOf(ResolveParameterServerCluster(sources).status()),
            "the cluster: --task_index is -1; wanted a whole number from 0 to 65534; --num_ps is "
            "0; wanted 1 or more");
}

// ---- addresses ----------------------------------------------------------------------------------

TEST(AddressTest, EqualAddressesAreEqualTexts) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"h:1", "h:1"},
      {"grpc://h:2222", "h:2222"},
      {"Node-7.NS.svc:65535", "node-7.ns.svc:65535"},
      {"h:02222", "h:2222"},
      {"10.0.0.9:40721", "10.0.0.9:40721"},
      {"[0:0:0:0:0:0:0:1]:22", "[::1]:22"},
      {"grpc://[FE80::1]:22", "[fe80::1]:22"}};
  for (const auto& [address, wanted] : cases)
    EXPECT_EQ(NormalizeAddress(address).value_or("refused"), wanted) << address;
  EXPECT_FALSE(NormalizeAddress(std::string(254, 'a') + ":1").ok());
}

TEST(AddressTest, AUnixSocketIsNamedByAWholePathThatTheSystemTakes) {
  EXPECT_EQ(NormalizeAddress("unix:/run/Me/ps-0").value_or("refused"), "unix:/run/Me/ps-0");
  EXPECT_EQ(SocketPathOf("unix:/run/Me/ps-0"), "/run/Me/ps-0");
  EXPECT_EQ(SocketPathOf("h:1"), std::nullopt);
  const auto refused = [](const std::string& address) {
    return MessageOf(NormalizeAddress(address).status());
  };
  EXPECT_EQ(refused("unix:ps-0"),
            "the path of a Unix socket begins with /: \"unix:/run/you/ps-0\"");
  EXPECT_EQ(refused("unix:/" + std::string(107, 'x')),
            "its path has 108 bytes; a Unix socket's has at most 107");
  EXPECT_EQ(refused("unix:/a,b"), "its path has the character \",\"");
  EXPECT_EQ(refused("unix:/a\nb"), "its path has the character \"\\n\"");
  EXPECT_TRUE(NormalizeAddress("unix:/" + std::string(106, 'x')).ok());
}

TEST(ClusterHashTest, IsOfTheTrainingClusterWhoeverLooksAtIt) {
  const std::string chief =
      absl::StrReplaceAll(kDense, {{"\"worker\",\"index\":1", "\"chief\",\"index\":0"}});
  const std::string evaluated =
      absl::StrReplaceAll(kDense, {{"{\"chief\"", "{\"evaluator\":[\"e:1\"],\"chief\""}});
  const std::string moved = absl::StrReplaceAll(kDense, {{"h4", "h5"}});
  EXPECT_EQ(ClusterHash(*ParseTfConfig(kDense)), ClusterHash(*ParseTfConfig(chief)));
  EXPECT_EQ(ClusterHash(*ParseTfConfig(kDense)), ClusterHash(*ParseTfConfig(evaluated)));
  EXPECT_NE(ClusterHash(*ParseTfConfig(kDense)), ClusterHash(*ParseTfConfig(moved)));
}

// ---- printing -----------------------------------------------------------------------------------

TEST(PrintTest, ADenseJobIsAListAndASparseOneAnObject) {
  EXPECT_EQ(TfConfigText(*ParseTfConfig(kDense)), kDense);
  EXPECT_EQ(
      TfConfigText(*ParseTfConfig(
          R"({"session_master":"m:1","rpc_layer":"grpc","cluster":{"worker":{"3":"b:1","1":"a:1"},"ps":null,"chief":{"0":"c:1"}}})")),
      R"({"cluster":{"chief":["c:1"],"ps":{},"worker":{"1":"a:1","3":"b:1"}},"rpc_layer":"grpc","session_master":"m:1"})");
  EXPECT_EQ(TfConfigText(ClusterConfig()), "{}");
}

// Changes of a valid text: bytes are replaced, removed or doubled, and pieces of the grammar are
// inserted. Nothing crashes, and an accepted text is printed as a text that parses to an equal
// value.
TEST(PrintTest, WhateverIsAcceptedPrintsAndReadsAsTheSame) {
  const uint64_t seed = EntropySeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  const std::vector<std::string> seeds = {
      kDense,
      R"({"cluster":{"worker":{"1":"a:64711","30":"[::1]:5"},"ps":null,"x\"\u00e9":[]},"task":{"type":"worker","index":"01"},"rpc_layer":"grpc"})",
      R"({"cluster":{"master":["10.0.0.9:1"]},"task":{"type":"master","index":0},"session_master":"s","environment":{"a":[1,2.5,true]}})"};
  const std::vector<std::string> pieces = {"{",
                                           "}",
                                           "[",
                                           "]",
                                           "\"",
                                           ",",
                                           ":",
                                           "null",
                                           "1",
                                           "-",
                                           "1e9",
                                           "\\u0000",
                                           "\\ud800",
                                           "\xEF\xBB\xBF",
                                           "\xC3",
                                           "\xC3\xA9",
                                           "grpc://",
                                           "\"cluster\":",
                                           "\"task\":{}",
                                           "\"0\":",
                                           "true",
                                           " ",
                                           std::string(1, '\0')};
  Random random(seed);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = seeds[random.Below(seeds.size())];
    for (uint64_t change = random.Below(4); change > 0 && !text.empty(); --change) {
      const size_t at = random.Below(text.size());
      switch (random.Below(5)) {
        case 0: text[at] = static_cast<char>(random.Below(256)); break;
        case 1: text.erase(at, 1 + random.Below(4)); break;
        case 2: text.insert(at, text.substr(at, random.Below(24))); break;
        case 3: text.insert(at, pieces[random.Below(pieces.size())]); break;
        default: text[at] = text[random.Below(text.size())]; break;
      }
    }
    const absl::StatusOr<ClusterConfig> config = ParseTfConfig(text);
    const ClusterExamination examination = ExamineCluster(FromTfConfig(text));
    ASSERT_TRUE(config.ok() || !examination.problems.empty()) << text;
    if (!config.ok()) continue;
    ++accepted;
    const absl::StatusOr<ClusterConfig> again = ParseTfConfig(TfConfigText(*config));
    ASSERT_TRUE(again.ok()) << text << " prints as " << TfConfigText(*config) << ": "
                            << again.status();
    ASSERT_EQ(*config, *again) << text << " prints as " << TfConfigText(*config);
    ASSERT_EQ(ClusterHash(*config), ClusterHash(*again));
  }
  EXPECT_GT(accepted, 1000);
}

// ---- the resolver -------------------------------------------------------------------------------

TEST(ResolverTest, TheTextIsReadAgainAtEachCall) {
  auto text = std::make_shared<std::optional<std::string>>();
  const std::unique_ptr<ClusterResolver> resolver =
      TfConfigClusterResolver({}, [text] { return *text; });
  EXPECT_EQ(resolver->cluster_spec()->jobs().size(), 0);
  EXPECT_EQ(resolver->task_type(), "");
  EXPECT_EQ(resolver->task_id(), std::nullopt);
  EXPECT_EQ(resolver->master().value_or("refused"), "");
  *text = kDense;
  EXPECT_EQ(resolver->task_type(), "worker");
  EXPECT_EQ(resolver->task_id(), 1);
  EXPECT_EQ(resolver->master().value_or("refused"), "h2:2222");
  EXPECT_EQ(resolver->master("ps", 1).value_or("refused"), "h4:2222");
  EXPECT_EQ(MessageOf(resolver->master("ps", 2).status()),
            "job \"ps\" has no task 2; it has: 0, 1");
  EXPECT_THAT(resolver->num_accelerators().value(), IsEmpty());
  *text = "{";
  EXPECT_EQ(resolver->task_type(), "");
  EXPECT_THAT(MessageOf(resolver->cluster_spec().status()), HasSubstr("TF_CONFIG: it is not JSON"));
}

TEST(ResolverTest, WhatTheConstructorIsGivenWinsAndTheEnvironmentIsKnownFromItAlone) {
  const auto source = [] {
    return std::optional<std::string>(
        R"({"cluster":{"ps":["p:1"],"worker":["w:1"]},"rpc_layer":"grpc","environment":"cloud"})");
  };
  const std::unique_ptr<ClusterResolver> plain = TfConfigClusterResolver({}, source);
  EXPECT_EQ(plain->environment(), "");
  EXPECT_EQ(plain->rpc_layer(), "grpc");
  EXPECT_EQ(plain->master("ps", 0).value_or("refused"), "grpc://p:1");
  EXPECT_THAT(MessageOf(plain->master().status()), HasSubstr("no task.type"));
  const std::unique_ptr<ClusterResolver> given =
      TfConfigClusterResolver({"ps", 0, "x", "google"}, source);
  EXPECT_EQ(given->environment(), "google");
  EXPECT_EQ(given->master().value_or("refused"), "x://p:1");
}

TEST(ResolverTest, TheSessionsMasterWinsOverEverything) {
  const auto source = [] {
    return std::optional<std::string>(
        R"({"cluster":{"ps":["p:1"],"worker":["w:1"]},"rpc_layer":"grpc","session_master":"sm:1"})");
  };
  EXPECT_EQ(TfConfigClusterResolver({}, source)->master("ps", 0).value_or("refused"), "sm:1");
}

TEST(ResolverTest, ASingleTaskHasNoMasterUnlessItsIndexIsAboveZero) {
  const auto master = [](std::string text) {
    return TfConfigClusterResolver({}, [text] { return std::optional<std::string>(text); })
        ->master();
  };
  EXPECT_EQ(master(R"({"cluster":{"worker":["w:1"]}})").value_or("refused"), "");
  EXPECT_EQ(master(R"({"cluster":{"worker":{"1":"w:1"}},"task":{"type":"worker","index":1}})")
                .value_or("refused"),
            "w:1");
}

TEST(ResolverTest, AConfigurationAnswersAsItsTextDoes) {
  for (const std::string& text :
       {std::string(kDense), std::string("{}"),
        std::string(R"({"cluster":{"ps":["p:1"],"worker":{"3":"w:1"}},"rpc_layer":"grpc",)"
                    R"("task":{"type":"worker","index":3}})"),
        std::string(R"({"cluster":{"ps":["p:1"]},"session_master":"sm:1"})")}) {
    const auto of_text =
        TfConfigClusterResolver({}, [text] { return std::optional<std::string>(text); });
    const auto of_config = ClusterConfigResolver(*ParseTfConfig(text));
    EXPECT_EQ(*of_config->cluster_spec(), *of_text->cluster_spec()) << text;
    EXPECT_EQ(of_config->task_type(), of_text->task_type()) << text;
    EXPECT_EQ(of_config->task_id(), of_text->task_id()) << text;
    EXPECT_EQ(of_config->rpc_layer(), of_text->rpc_layer()) << text;
    EXPECT_EQ(of_config->master().value_or("refused"), of_text->master().value_or("refused"))
        << text;
    EXPECT_EQ(of_config->master("ps", 0).value_or("refused"),
              of_text->master("ps", 0).value_or("refused"))
        << text;
  }
}

TEST(ResolverTest, AClusterThatStandsInNoTextIsCheckedAsOneThatDoes) {
  ClusterConfig config;
  config.task_type = "chief";
  config.task_index = 0;
  config.spec =
      ClusterSpec({{"master", {{0, "c:02222"}}}, {"ps", {{0, "p:1"}}}, {"worker", {{0, "w:1"}}}});
  const absl::StatusOr<ClusterConfig> checked = CheckedParameterServerCluster(config);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(
      checked->spec,
      ClusterSpec({{"chief", {{0, "c:2222"}}}, {"ps", {{0, "p:1"}}}, {"worker", {{0, "w:1"}}}}));
  config.spec = ClusterSpec(
      {{"chief", {{0, "c:1"}}}, {"ps", {{0, "c:1"}, {-1, "p:1"}}}, {"worker", {{0, "no port"}}}});
  const std::string wrong = MessageOf(CheckedParameterServerCluster(config).status());
  EXPECT_THAT(wrong, HasSubstr("the cluster: cluster.ps[-1]: an index is 0 to 65534"));
  EXPECT_THAT(wrong, HasSubstr("cluster.worker[0] is \"no port\": "));
  EXPECT_THAT(wrong, HasSubstr("cluster.chief[0] and cluster.ps[0] have the same address"));
  config.spec = ClusterSpec({{"chief", {{0, "c:1"}}},
                             {"master", {{0, "m:1"}}},
                             {"ps", {{0, "p:1"}}},
                             {"worker", {{0, "w:1"}}}});
  EXPECT_THAT(MessageOf(CheckedParameterServerCluster(config).status()),
              HasSubstr("cluster.master and another key are both the job chief: keep one"));
  config.spec = ClusterSpec({{"chief", {{0, "c:1"}}}, {"worker", {{0, "w:1"}}}});
  EXPECT_THAT(MessageOf(CheckedParameterServerCluster(config).status()),
              HasSubstr("cluster.ps has no tasks"));
}

TEST(ResolverTest, ASimpleResolverIsGivenItsClusterAsJson) {
  const auto resolver =
      SimpleClusterResolver(R"({"ps":["p:1"],"worker":["u:1","v:1"]})", "worker", 1);
  ASSERT_TRUE(resolver.ok()) << resolver.status();
  EXPECT_EQ((*resolver)->cluster_spec()->num_tasks("worker"), 2);
  EXPECT_EQ((*resolver)->master().value_or("refused"), "v:1");
  EXPECT_EQ(
      MessageOf(SimpleClusterResolver(R"({"ps":"p:1"})", "worker", 1).status()),
      R"(the cluster: cluster.ps is "p:1"; wanted a list of addresses, or an object {"0": address})");
}

}  // namespace
}  // namespace divvy
