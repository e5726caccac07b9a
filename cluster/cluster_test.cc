#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "base/random.h"
#include "base/testing/sim_executor.h"
#include "cluster/backoff.h"
#include "cluster/cluster_resolver.h"
#include "cluster/error.h"
#include "cluster/horizon.h"
#include "cluster/layout.h"
#include "cluster/prelude.h"
#include "cluster/registrar.h"
#include "cluster/resumable_stream.h"
#include "cluster/variable_spec.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

// ---- variables ----------------------------------------------------------------------------------

TEST(VariableSpecTest, NamesArePartsJoinedBySlashes) {
  for (const char* name : {"w", "dense/kernel", "a.b-c_D9/0"})
    EXPECT_TRUE(Validate(VariableSpec{name, {2}}).ok()) << name;
  for (const char* name : {"", "/w", "w/", "a//b", "a b", "a/../b", "a/.", "w:0", "größe"}) {
    EXPECT_EQ(Validate(VariableSpec{name, {2}}).code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST(VariableSpecTest, ANameIsAsShortAsTheWireWantsItWithItsSlots) {
  EXPECT_TRUE(Validate(VariableSpec{std::string(960, 'w'), {2}}).ok());
  EXPECT_EQ(
      Validate(VariableSpec{std::string(961, 'w'), {2}}).message(),
      "the name of a variable has 961 bytes, more than 960: \"" + std::string(60, 'w') + "...\"");
}

TEST(VariableSpecTest, ErrorsNameTheVariableAndTheFix) {
  const auto message = [](const VariableSpec& spec) {
    return std::string(Validate(spec).message());
  };
  EXPECT_EQ(message({"w", {-1, 3}}),
            "variable \"w\": shape [-1, 3] is not fully known: give every dimension");
  VariableSpec text{"w", {2}};
  text.dtype = DType::kString;
  EXPECT_EQ(message(text),
            "variable \"w\": dtype string cannot be trained on parameter servers; use float32");
  VariableSpec whole{"w", {2}};
  whole.dtype = DType::kInt64;
  whole.optimizer.emplace(Adam{0.1});
  EXPECT_EQ(message(whole), "variable \"w\": Adam needs float32, and the dtype is int64");
  EXPECT_NE(message({"w", {2}, Tensor::Vector<float>({1, 2, 3})}), "");
  EXPECT_NE(message({"w", {2}, Zeros(), Adam{0.1, 2.0f}}).find("beta1"), std::string::npos);
}

TEST(WriteOpTest, HasANameForEach) {
  const std::vector<std::string> names = {
      "assign",      "add",         "sub",         "scatter_update", "scatter_add", "scatter_sub",
      "scatter_mul", "scatter_div", "scatter_min", "scatter_max",    "gradient"};
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(WriteOpName(static_cast<WriteOp>(i)), names[i]);
}

// ---- cluster ------------------------------------------------------------------------------------

TEST(ClusterSpecTest, KeepsHolesInTheIndices) {
  const ClusterSpec spec(
      {{"worker", {{0, "a:1"}, {3, "b:1"}}}, {"ps", {}}, {"chief", {{0, "c:1"}}}});
  EXPECT_EQ(spec.jobs(), (std::vector<std::string>{"chief", "ps", "worker"}));
  EXPECT_EQ(spec.num_tasks("worker"), 2);
  EXPECT_EQ(spec.num_tasks("ps"), 0);
  EXPECT_EQ(spec.num_tasks("evaluator"), 0);
  EXPECT_EQ(spec.task_indices("worker"), (std::vector<int>{0, 3}));
  EXPECT_EQ(*spec.task_address("worker", 3), "b:1");
  const auto tasks = spec.job_tasks("worker");
  ASSERT_EQ(tasks.size(), 4u);
  EXPECT_EQ(tasks[0], "a:1");
  EXPECT_EQ(tasks[1], std::nullopt);
  EXPECT_TRUE(spec.job_tasks("ps").empty());
  EXPECT_EQ(spec.task_address("worker", 1).status().message(),
            "job \"worker\" has no task 1; it has: 0, 3");
  EXPECT_EQ(spec.task_address("evaluator", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(EmbeddedClusterResolverTest, DescribesTheClusterItPlays) {
  const auto chief = EmbeddedClusterResolver(2, 3);
  EXPECT_EQ(chief->task_type(), "chief");
  EXPECT_EQ(chief->task_id(), 0);
  EXPECT_EQ(chief->rpc_layer(), "grpc");
  EXPECT_EQ(chief->environment(), "");
  EXPECT_EQ(*chief->master(), "embedded:chief/0");
  EXPECT_EQ(*chief->master("ps", 1), "embedded:ps/1");
  EXPECT_FALSE(chief->master("ps", 2).ok());
  EXPECT_EQ(chief->cluster_spec()->num_tasks("worker"), 3);
  EXPECT_TRUE(chief->num_accelerators()->empty());
  EXPECT_FALSE(chief->num_accelerators("worker", 9).ok());
  EXPECT_EQ(*EmbeddedClusterResolver(1, 2, "worker", 1)->master(), "embedded:worker/1");
}

TEST(EmbeddedClusterResolverTest, KnowsTheAcceleratorsOfItsOwnTask) {
  const auto worker = WithAccelerators(EmbeddedClusterResolver(1, 2, "worker", 1), {{"GPU", 2}});
  const std::map<std::string, int> own = {{"GPU", 2}};
  EXPECT_EQ(worker->num_accelerators().value(), own);
  EXPECT_EQ(worker->num_accelerators("worker", 1).value(), own);
  EXPECT_TRUE(worker->num_accelerators("worker", 0)->empty());
  EXPECT_TRUE(worker->num_accelerators("ps", 0)->empty());
  EXPECT_FALSE(worker->num_accelerators("worker", 2).ok());
  EXPECT_EQ(*worker->master(), "embedded:worker/1");
}

// ---- errors -------------------------------------------------------------------------------------

TEST(ErrorTest, DetailsTravelWithTheStatus) {
  ErrorDetail detail{
      Reason::kOverloaded,    Role::kPs, -2, Epoch(0x123456789abcull), EntryId(~uint64_t{0}), true,
      absl::Milliseconds(250)};
  const absl::Status status = MakeError(detail, "wait");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "wait");
  const ErrorDetail back = DetailOf(status);
  EXPECT_EQ(back.reason, Reason::kOverloaded);
  EXPECT_EQ(back.role, Role::kPs);
  EXPECT_EQ(back.index, -2);
  EXPECT_EQ(back.epoch, detail.epoch);
  EXPECT_EQ(back.entry, detail.entry);
  EXPECT_TRUE(back.user);
  EXPECT_EQ(back.retry_after, absl::Milliseconds(250));
}

TEST(ErrorTest, CodesSayWhatTheCallerShouldDo) {
  const std::map<Reason, absl::StatusCode> codes = {
      {Reason::kVersionMismatch, absl::StatusCode::kFailedPrecondition},
      {Reason::kWrongJob, absl::StatusCode::kFailedPrecondition},
      {Reason::kWrongIncarnation, absl::StatusCode::kAborted},
      {Reason::kStaleEpoch, absl::StatusCode::kFailedPrecondition},
      {Reason::kNotAttached, absl::StatusCode::kUnavailable},
      {Reason::kSecondCoordinator, absl::StatusCode::kFailedPrecondition},
      {Reason::kNotReady, absl::StatusCode::kUnavailable},
      {Reason::kInvalid, absl::StatusCode::kInvalidArgument},
      {Reason::kSessionFenced, absl::StatusCode::kAborted},
      {Reason::kStepClosed, absl::StatusCode::kAborted},
      {Reason::kUnknownShard, absl::StatusCode::kInternal},
      {Reason::kBadCommit, absl::StatusCode::kInternal},
      {Reason::kOverloaded, absl::StatusCode::kResourceExhausted},
      {Reason::kMemoryLimit, absl::StatusCode::kResourceExhausted},
      {Reason::kWorkerLost, absl::StatusCode::kUnavailable},
      {Reason::kPsLost, absl::StatusCode::kUnavailable},
      {Reason::kStepGaveUp, absl::StatusCode::kUnavailable},
      {Reason::kBatchCancelled, absl::StatusCode::kCancelled},
      {Reason::kInputAborted, absl::StatusCode::kAborted},
      {Reason::kEndOfData, absl::StatusCode::kOutOfRange},
      {Reason::kJobOver, absl::StatusCode::kCancelled},
      {Reason::kDeviceLost, absl::StatusCode::kUnavailable}};
  for (const auto& [reason, code] : codes) {
    EXPECT_EQ(MakeError(reason, "").code(), code) << ReasonName(reason);
    EXPECT_EQ(ReasonOf(MakeError(reason, "")), reason);
  }
  EXPECT_EQ(ReasonName(Reason::kSessionFenced), "SESSION_FENCED");
}

TEST(RoleTest, IsReadFromTheNameThatItHas) {
  for (const Role role : kRoles) EXPECT_EQ(ParseRole(RoleName(role)), role);
  EXPECT_EQ(ParseRole("chief"), Role::kChief);
  EXPECT_EQ(ParseRole("evaluator"), Role::kEvaluator);
  for (const absl::string_view none : {"", "Chief", "coordinator", "ps 0"})
    EXPECT_EQ(ParseRole(none), std::nullopt) << none;
  EXPECT_EQ(TaskName(Role::kWorker, 1), "worker 1");
  EXPECT_EQ(TaskName(Role::kChief, 0), "chief");
}

TEST(ErrorTest, ADetailKnowsWhichRoleSaidItOrThatNobodyDid) {
  EXPECT_EQ(DetailOf(MakeError(Reason::kNotReady, "")).role, std::nullopt);
  for (const Role role : {Role::kChief, Role::kPs, Role::kWorker}) {
    ErrorDetail detail;
    detail.reason = Reason::kNotReady;
    detail.role = role;
    EXPECT_EQ(DetailOf(MakeError(detail, "")).role, role);
  }
}

TEST(ErrorTest, AnyPayloadIsDecodedOrIsNone) {
  constexpr char kUrl[] = "type.googleapis.com/divvy.v1.ErrorDetail";
  const auto reason_of = [&](const std::string& bytes) {
    absl::Status status = absl::AbortedError("");
    status.SetPayload(kUrl, absl::Cord(bytes));
    return ReasonOf(status);
  };
  EXPECT_EQ(reason_of(""), Reason::kNone);
  EXPECT_EQ(reason_of("\x09"), Reason::kSessionFenced) << "zeros at the end are left out";
  EXPECT_EQ(reason_of("\xff"), Reason::kNone) << "a reason of the future";
  EXPECT_EQ(reason_of(std::string("\x09\x09", 2)), Reason::kNone) << "no such job";
  EXPECT_EQ(reason_of(std::string(32, '\0')), Reason::kNone) << "too long";
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random.Below(40), '\0');
    for (char& c : bytes) c = static_cast<char>(random.Next());
    reason_of(bytes);
  }
  EXPECT_EQ(ReasonOf(absl::AbortedError("no payload")), Reason::kNone);
  EXPECT_EQ(ReasonOf(absl::OkStatus()), Reason::kNone);
}

TEST(ErrorTest, WhatAStepFunctionReturnsIsMarkedAndNeverTransient) {
  const absl::Status marked = MarkUser(absl::UnavailableError("my database"));
  EXPECT_EQ(marked.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(marked.message(), "my database");
  EXPECT_TRUE(DetailOf(marked).user);
  EXPECT_FALSE(IsTransient(marked));
  EXPECT_TRUE(MarkUser(absl::OkStatus()).ok());
  EXPECT_EQ(ReasonOf(MarkUser(EndOfData("no more"))), Reason::kEndOfData) << "the reason stays";
}

TEST(ErrorTest, ADetailIsPrintedInWords) {
  EXPECT_EQ(MakeError(Reason::kNotReady, "starting").ToString(),
            "UNAVAILABLE: starting [type.googleapis.com/divvy.v1.ErrorDetail='NOT_READY']");
  EXPECT_EQ(MarkUser(absl::InternalError("mine")).ToString(),
            "INTERNAL: mine [type.googleapis.com/divvy.v1.ErrorDetail='the program's own']");
}

TEST(ErrorTest, TransientIsWhatTheSameRequestMayOvercome) {
  EXPECT_TRUE(IsTransient(absl::UnavailableError("")));
  EXPECT_TRUE(IsTransient(absl::DeadlineExceededError("")));
  EXPECT_TRUE(IsTransient(absl::AbortedError("")));
  EXPECT_TRUE(IsTransient(MakeError(Reason::kNotReady, "")));
  EXPECT_TRUE(IsTransient(MakeError(Reason::kOverloaded, "")));
  EXPECT_FALSE(IsTransient(MakeError(Reason::kSessionFenced, "")));
  EXPECT_FALSE(IsTransient(MakeError(Reason::kMemoryLimit, "")));
  EXPECT_FALSE(IsTransient(absl::ResourceExhaustedError("")));
  EXPECT_FALSE(IsTransient(absl::InvalidArgumentError("")));
  EXPECT_FALSE(IsTransient(absl::OkStatus()));
}

// ---- layout -------------------------------------------------------------------------------------

VariableLayout Variable(uint32_t id, std::string name) {
  VariableLayout variable;
  variable.id = VariableId(id);
  variable.spec.name = std::move(name);
  variable.spec.shape = Shape{7, 3};
  variable.offsets = {0, 3, 5, 7};
  variable.ps = {0, 1, 0};
  return variable;
}

void AddSlots(const Optimizer& optimizer, VariableLayout& variable) {
  for (const SlotSpec& slot : SlotsOf(optimizer)) {
    variable.slots.push_back(slot);
    variable.slot_optimizers.emplace_back(OptimizerName(optimizer));
  }
}

TEST(VariableLayoutTest, FindsShardsSlotsAndSizes) {
  VariableLayout variable = Variable(1, "w");
  EXPECT_EQ(variable.num_shards(), 3);
  EXPECT_EQ(variable.rows(), 7);
  EXPECT_EQ(variable.ShardShape(1), (Shape{2, 3}));
  const std::vector<int> parts = {0, 0, 0, 1, 1, 2, 2};
  for (int64_t row = 0; row < 7; ++row)
    EXPECT_EQ(variable.PartOf(row), parts[static_cast<size_t>(row)]);
  AddSlots(Momentum{0.1}, variable);
  AddSlots(Adam{0.1}, variable);
  EXPECT_EQ(*variable.SlotsFor(Adam{0.2}), (std::vector<uint8_t>{2, 3, 4}));
  EXPECT_EQ(*variable.SlotsFor(Sgd{0.2}), std::vector<uint8_t>());
  EXPECT_EQ(variable.SlotsFor(Ftrl{0.2}), std::nullopt);
  EXPECT_EQ(variable.SlotsFor(Adam{0.2, 0.9f, 0.999f, 1e-7f, 0, /*amsgrad=*/true}), std::nullopt)
      << "vhat was not made";
  EXPECT_EQ(variable.SlotNumber("Adam", "v"), 3);
  EXPECT_EQ(variable.SlotNumber("Momentum", "v"), std::nullopt);
  EXPECT_EQ(variable.SlotName(1), "w/Adam/" + SlotsOf(Adam{0.1})[0].name);
  EXPECT_EQ(variable.value_bytes(), 84);
  EXPECT_EQ(variable.slot_bytes(), 3 * 84 + 28);
}

TEST(VariableLayoutTest, AScalarIsOneShardOfOneRow) {
  VariableLayout scalar = Variable(1, "s");
  scalar.spec.shape = Shape{};
  scalar.offsets = {0, 1};
  scalar.ps = {0};
  EXPECT_EQ(scalar.ShardShape(0), Shape());
  EXPECT_EQ(scalar.PartOf(0), 0);
}

TEST(LayoutTest, EachChangeIsANewVersionAndTheOldOneStays) {
  const auto empty = Layout::Empty();
  const auto one = empty->With(Variable(1, "a"));
  const auto two = one->With(Variable(2, "b"));
  const auto three = two->Without(VariableId(1));
  EXPECT_EQ(empty->version(), 0u);
  EXPECT_EQ(three->version(), 3u);
  EXPECT_EQ(one->Find("b"), nullptr);
  EXPECT_EQ(two->Find("b")->id, VariableId(2));
  EXPECT_EQ(three->Find("a"), nullptr);
  EXPECT_EQ(three->Find(VariableId(1)), nullptr);
}

TEST(LayoutTest, TheHashIsOfTheVariablesAlone) {
  const auto a = Layout::Empty()->With(Variable(1, "a"))->With(Variable(2, "b"));
  const auto b = Layout::Empty()
                     ->With(Variable(2, "b"))
                     ->With(Variable(3, "c"))
                     ->With(Variable(1, "a"))
                     ->Without(VariableId(3));
  EXPECT_EQ(a->hash(), b->hash());
  EXPECT_NE(a->version(), b->version());
  EXPECT_EQ(a->Without(VariableId(1))->Without(VariableId(2))->hash(), Layout::Empty()->hash());
}

TEST(LayoutTest, TheHashTellsWhateverTwoProcessesMustAgreeOn) {
  const auto hash = [](const std::function<void(VariableLayout&)>& change) {
    VariableLayout variable = Variable(1, "w");
    change(variable);
    return Layout::Empty()->With(variable)->hash();
  };
  std::vector<std::function<void(VariableLayout&)>> changes = {
      [](VariableLayout&) {},
      [](VariableLayout& v) { v.id = VariableId(2); },
      [](VariableLayout& v) { v.spec.name = "v"; },
      [](VariableLayout& v) {
        v.spec.shape = Shape{7, 3, 1};
      },
      [](VariableLayout& v) { v.spec.dtype = DType::kInt32; },
      [](VariableLayout& v) { v.spec.aggregation = VariableAggregation::kSum; },
      [](VariableLayout& v) {
        v.offsets = {0, 2, 5, 7};
      },
      [](VariableLayout& v) {
        v.ps = {0, 1, 1};
      },
      [](VariableLayout& v) { v.spec.optimizer = Sgd{0.1}; },
      [](VariableLayout& v) { v.spec.optimizer = Sgd{0.2}; },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{ExponentialDecay{0.1, 10, 0.5}};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{InverseTimeDecay{0.1, 10, 0.5}};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{PolynomialDecay{0.1, 10}};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{CosineDecay{0.1, 10}};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{CosineDecay{0.1, 10, 0, 2, 0.3}};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{PiecewiseConstant{{5}, {0.1, 0.2}}};
      },
      [](VariableLayout& v) { v.spec.optimizer = Momentum{0.1}; },
      [](VariableLayout& v) {
        v.spec.optimizer = Momentum{0.1, 0.9f, true};
      },
      [](VariableLayout& v) { v.spec.optimizer = Adagrad{0.1}; },
      [](VariableLayout& v) { v.spec.optimizer = Adam{0.1}; },
      [](VariableLayout& v) {
        v.spec.optimizer = Adam{0.1, 0.8f};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Adam{0.1, 0.9f, 0.999f, 1e-7f, 0, /*amsgrad=*/true};
      },
      [](VariableLayout& v) { v.spec.optimizer = RowwiseAdagrad{0.1}; },
      [](VariableLayout& v) { v.spec.optimizer = RmsProp{0.1}; },
      [](VariableLayout& v) {
        v.spec.optimizer = RmsProp{0.1, 0.9f, 0, 1e-7f, /*centered=*/true};
      },
      [](VariableLayout& v) { v.spec.optimizer = Ftrl{0.1}; },
      [](VariableLayout& v) { AddSlots(Adam{0.1}, v); },
      [](VariableLayout& v) { AddSlots(Adagrad{0.1}, v); },
      [](VariableLayout& v) {
        AddSlots(Adagrad{0.1, 0.5f}, v);
      }};
  std::map<uint64_t, size_t> seen;
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_TRUE(seen.emplace(hash(changes[i]), i).second)
        << "change " << i << " has the hash of " << seen[hash(changes[i])];
    EXPECT_EQ(hash(changes[i]), hash(changes[i]));
  }
  EXPECT_EQ(hash([](VariableLayout& v) { v.spec.initializer = Ones(); }), hash(changes[0]))
      << "means nothing once the variable is made";
}

TEST(LayoutTest, AnUnknownNameIsAnsweredWithTheNearest) {
  const auto layout = Layout::Empty()
                          ->With(Variable(1, "dense/kernel"))
                          ->With(Variable(2, "dense/bias"))
                          ->With(Variable(3, "embedding"))
                          ->With(Variable(4, "zzz"));
  const absl::Status status = layout->UnknownVariable("dense/kernal");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(status.message()),
            "no variable \"dense/kernal\" among 4; the nearest: \"dense/kernel\", \"dense/bias\", "
            "\"embedding\"");
  EXPECT_EQ(Layout::Empty()->UnknownVariable("w").message(),
            "no variable \"w\": none has been created");
}

TEST(HorizonTest, ClosesWhatIsBelowNextAndNotOpen) {
  const Horizon horizon{EntryId(10), {EntryId(3), EntryId(7)}, 8};
  for (uint64_t id : {0, 1, 4, 9}) EXPECT_TRUE(horizon.IsClosed(EntryId(id))) << id;
  for (uint64_t id : {3, 7, 10, 11}) EXPECT_FALSE(horizon.IsClosed(EntryId(id))) << id;
  EXPECT_FALSE(Horizon().IsClosed(EntryId(0)));
}

// ---- prelude ------------------------------------------------------------------------------------

TEST(PreludeTest, RefusesInTheOrderOfTheTable) {
  const PreludeState mine{Role::kPs, 2, Incarnation(7), JobId(9), Epoch(5), Incarnation(3), true};
  const PreludeState fresh{Role::kPs, 2, Incarnation(7), JobId(0), Epoch(0), Incarnation(0), false};
  PreludeState busy = mine;
  busy.ready = false;
  const auto fence = [](uint64_t job, uint64_t epoch, uint64_t coordinator, uint64_t target) {
    return Fence{JobId(job), Epoch(epoch), Incarnation(coordinator), SessionId(0),
                 Incarnation(target)};
  };
  constexpr CallKind kAttach = CallKind::kAttach, kOther = CallKind::kOther;
  struct Case {
    const char* what;
    PreludeState own;
    Fence fence;
    CallKind call;
    Reason reason;
  };
  const std::vector<Case> cases = {
      {"all right", mine, fence(9, 5, 3, 7), kOther, Reason::kNone},
      {"attach again", mine, fence(9, 5, 3, 7), kAttach, Reason::kNone},
      {"attach higher", mine, fence(9, 6, 4, 7), kAttach, Reason::kNone},
      {"attach to an unknown life", mine, fence(9, 6, 4, 0), kAttach, Reason::kNone},
      {"attach while not ready", busy, fence(9, 6, 4, 7), kAttach, Reason::kNone},
      {"first attach", fresh, fence(9, 1, 4, 0), kAttach, Reason::kNone},
      {"another job", mine, fence(8, 5, 3, 7), kOther, Reason::kWrongJob},
      {"no job", mine, fence(0, 5, 3, 7), kAttach, Reason::kWrongJob},
      {"another job before all else", busy, fence(8, 1, 1, 1), kOther, Reason::kWrongJob},
      {"another life", mine, fence(9, 5, 3, 6), kOther, Reason::kWrongIncarnation},
      {"another life, attach", mine, fence(9, 6, 4, 6), kAttach, Reason::kWrongIncarnation},
      {"an unknown life", mine, fence(9, 5, 3, 0), kOther, Reason::kWrongIncarnation},
      {"another life before the epoch", busy, fence(9, 1, 1, 6), kOther, Reason::kWrongIncarnation},
      {"an old epoch", mine, fence(9, 4, 3, 7), kOther, Reason::kStaleEpoch},
      {"an old epoch, attach", mine, fence(9, 4, 3, 7), kAttach, Reason::kStaleEpoch},
      {"a higher epoch", mine, fence(9, 6, 3, 7), kOther, Reason::kNotAttached},
      {"a higher epoch before the state", busy, fence(9, 6, 3, 7), kOther, Reason::kNotAttached},
      {"never attached", fresh, fence(9, 0, 3, 7), kOther, Reason::kNotAttached},
      {"two coordinators", mine, fence(9, 5, 4, 7), kOther, Reason::kSecondCoordinator},
      {"two coordinators, attach", mine, fence(9, 5, 4, 7), kAttach, Reason::kSecondCoordinator},
      {"two coordinators before the state", busy, fence(9, 5, 4, 7), kOther,
       Reason::kSecondCoordinator},
      {"not ready", busy, fence(9, 5, 3, 7), kOther, Reason::kNotReady},
      {"attach without a job", fresh, fence(0, 1, 4, 0), kAttach, Reason::kInvalid},
      {"attach without an epoch", fresh, fence(9, 0, 4, 0), kAttach, Reason::kInvalid},
      {"attach without a coordinator", fresh, fence(9, 1, 0, 0), kAttach, Reason::kInvalid},
  };
  for (const Case& c : cases) {
    const absl::Status status = CheckPrelude(c.fence, c.own, c.call);
    EXPECT_EQ(ReasonOf(status), c.reason) << c.what << ": " << status;
    EXPECT_EQ(status.ok(), c.reason == Reason::kNone) << c.what;
    if (status.ok()) continue;
    EXPECT_EQ(DetailOf(status).role, Role::kPs) << c.what;
    EXPECT_EQ(DetailOf(status).index, 2) << c.what;
    EXPECT_EQ(DetailOf(status).epoch, c.own.epoch) << c.what;
  }
}

TEST(PreludeTest, VersionsThatDoNotMeetAreRefusedNamingBoth) {
  PreludeState own;
  own.role = Role::kPs;
  own.index = 2;
  EXPECT_TRUE(CheckProtocol({1, 1}, own).ok());
  EXPECT_TRUE(CheckProtocol({0, 7}, own).ok());
  const absl::Status refused = CheckProtocol({2, 4}, own);
  EXPECT_EQ(ReasonOf(refused), Reason::kVersionMismatch);
  EXPECT_EQ(refused.message(),
            "ps 2: it speaks protocol version 1, and the other side version 2 to 4. Run the same "
            "release of Divvy in every task");
}

TEST(SameViewTest, KnowingLessIsFineAndAContradictionIsNot) {
  const ClusterView own{{"ps", {{0, "a:1"}, {1, "b:1"}}}, {"worker", {{0, "c:1"}}}};
  EXPECT_EQ(CheckSameView(own, own, "worker 1"), absl::OkStatus());
  EXPECT_EQ(CheckSameView(own, {}, "ps 1"), absl::OkStatus());
  EXPECT_EQ(CheckSameView({}, own, "ps 1"), absl::OkStatus());
  EXPECT_EQ(CheckSameView(own, {{"ps", {{1, "b:1"}}}, {"worker", {{7, "d:1"}}}}, "ps 1"),
            absl::OkStatus());
  const absl::Status refused =
      CheckSameView(own, {{"ps", {{1, "x:9"}}}, {"worker", {{5, "c:1"}}}}, "worker 5");
  EXPECT_EQ(ReasonOf(refused), Reason::kClusterMismatch);
  EXPECT_EQ(refused.message(),
            "worker 5 knows another cluster: cluster.ps[1] is \"x:9\" there and \"b:1\" here; "
            "\"c:1\" is cluster.worker[5] there and cluster.worker[0] here. "
            "Give all tasks the same TF_CONFIG");
}

TEST(ErrorTest, AProcessEndsWithTheCodeOfItsReason) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(MakeError(Reason::kWrongJob, "")), 78);
  EXPECT_EQ(ExitCodeOf(MakeError(Reason::kNotAuthorized, "")), 77);
  EXPECT_EQ(ExitCodeOf(MakeError(Reason::kPsLost, "")), 138);
  EXPECT_EQ(ExitCodeOf(MakeError(Reason::kStaleEpoch, "")), 138);
  EXPECT_EQ(ExitCodeOf(MakeError(Reason::kMemoryLimit, "")), 74);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 138);
  EXPECT_EQ(ExitCodeOf(MarkUser(absl::UnavailableError("a step's own"))), 1);
  EXPECT_EQ(ExitCodeOf(MarkUser(absl::DataLossError("a file that a step read"))), 65);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("")), 65);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), 66);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), 70);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("")), 74);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), 77);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), 1);
  EXPECT_EQ(ExitCodeOf(JobHasEnded(0, "")), 0);
  EXPECT_EQ(ExitCodeOf(JobHasEnded(65, "")), 65);
  EXPECT_EQ(ReasonOf(JobHasEnded(65, "")), Reason::kJobOver);
}

// ---- registration -------------------------------------------------------------------------------

class FakeCoordinator : public CoordinatorClient {
 public:
  explicit FakeCoordinator(SimExecutor& executor) : executor_(executor) {}
  void Call(RegisterRequest request, ResultCallback<RegisterReply> done) override {
    sent_at.push_back(absl::ToDoubleSeconds(executor_.clock().Elapsed()));
    executor_.PostAfter(answers_after, [this, done = std::move(done)] { done(answer); });
  }
  absl::StatusOr<RegisterReply> answer = RegisterReply{JobId(1), Epoch(1), std::nullopt};
  absl::Duration answers_after = absl::ZeroDuration();
  std::vector<double> sent_at;

 private:
  SimExecutor& executor_;
};

class RegistrarTest : public testing::Test {
 protected:
  SimExecutor executor_{1};
  std::shared_ptr<FakeCoordinator> coordinator_ = std::make_shared<FakeCoordinator>(executor_);
  std::vector<int> over_;
  std::string why_;
  std::shared_ptr<Registrar> registrar_ = Registrar::Create(
      {}, coordinator_, executor_,
      [this](int code, const std::string& why) { over_.push_back(code), why_ = why; });
};

TEST_F(RegistrarTest, RepeatsEveryTwoSecondsUntilAttached) {
  registrar_->OnDetached();
  registrar_->OnDetached();
  executor_.RunFor(absl::Seconds(5));
  EXPECT_EQ(coordinator_->sent_at, (std::vector<double>{0, 2, 4}));
  registrar_->OnAttached();
  executor_.RunFor(absl::Seconds(20));
  EXPECT_EQ(coordinator_->sent_at.size(), 3u);
  registrar_->OnDetached();
  executor_.RunFor(absl::Seconds(3));
  EXPECT_EQ(coordinator_->sent_at, (std::vector<double>{0, 2, 4, 25, 27}));
}

TEST_F(RegistrarTest, AnswersAndTimersOfAnEarlierTimeAreVoid) {
  coordinator_->answers_after = absl::Seconds(1);
  registrar_->OnDetached();
  registrar_->OnAttached();
  registrar_->OnDetached();
  executor_.RunFor(absl::Seconds(2.5));
  EXPECT_EQ(coordinator_->sent_at, (std::vector<double>{0, 0}))
      << "one chain goes on: the next at 3 s";
  executor_.RunFor(absl::Seconds(1));
  EXPECT_EQ(coordinator_->sent_at.size(), 3u);
}

TEST_F(RegistrarTest, BacksOffAfterFailures) {
  coordinator_->answer = absl::UnavailableError("nobody there");
  registrar_->OnDetached();
  executor_.RunFor(absl::Seconds(100));
  const std::vector<double>& at = coordinator_->sent_at;
  ASSERT_GE(at.size(), 10u);
  EXPECT_NEAR(at[1] - at[0], 0.1, 0.021);
  EXPECT_NEAR(at[4] - at[3], 0.8, 0.17);
  EXPECT_GE(at[9] - at[8], 7.9);
  coordinator_->answer = RegisterReply{};
  executor_.RunFor(absl::Seconds(20));
  EXPECT_NEAR(at[at.size() - 1] - at[at.size() - 2], 2, 0.001);
}

TEST_F(RegistrarTest, ToldThatTheJobIsOverItSaysSoOnceAndEnds) {
  coordinator_->answer = RegisterReply{JobId(1), Epoch(1), 138};
  registrar_->OnDetached();
  executor_.RunUntilIdle();
  registrar_->OnAttached();
  registrar_->OnDetached();
  executor_.RunUntilIdle();
  EXPECT_EQ(over_, std::vector<int>{138});
  EXPECT_EQ(coordinator_->sent_at.size(), 1u);
}

TEST_F(RegistrarTest, RefusedForEverItSaysWhyOnceAndEnds) {
  const std::pair<Reason, int> refusals[] = {{Reason::kWrongJob, 78},
                                             {Reason::kVersionMismatch, 78},
                                             {Reason::kClusterMismatch, 78},
                                             {Reason::kDuplicateTask, 78},
                                             {Reason::kNotAuthorized, 77}};
  for (const auto& [reason, code] : refusals) {
    over_.clear();
    coordinator_->sent_at.clear();
    coordinator_->answer = MakeError(reason, "this is why");
    registrar_ = Registrar::Create(
        {}, coordinator_, executor_,
        [this](int exit_code, const std::string& why) { over_.push_back(exit_code), why_ = why; });
    registrar_->OnDetached();
    executor_.RunFor(absl::Minutes(1));
    EXPECT_EQ(over_, std::vector<int>{code}) << ReasonName(reason);
    EXPECT_EQ(why_, "this is why");
    EXPECT_EQ(coordinator_->sent_at.size(), 1u) << ReasonName(reason);
  }
}

TEST_F(RegistrarTest, ARefusalForNowIsAskedAgain) {
  coordinator_->answer = MakeError(Reason::kNotReady, "being found out");
  registrar_->OnDetached();
  executor_.RunFor(absl::Seconds(1));
  EXPECT_GE(coordinator_->sent_at.size(), 3u);
  EXPECT_TRUE(over_.empty());
}

TEST_F(RegistrarTest, EndsWithItsLastHandle) {
  registrar_->OnDetached();
  registrar_.reset();
  executor_.RunUntilIdle();
  EXPECT_EQ(coordinator_->sent_at.size(), 1u);
}

TEST(BackoffTest, DoublesUpToTenSecondsWithAFifthOfJitter) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Backoff backoff(seed);
    for (double expected : {0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0}) {
      const double wait = absl::ToDoubleSeconds(backoff.Next());
      EXPECT_GE(wait, expected * 0.8 - 1e-9) << "seed " << seed;
      EXPECT_LE(wait, expected * 1.2 + 1e-9) << "seed " << seed;
    }
    EXPECT_EQ(backoff.tries(), 10);
    backoff.Reset();
    EXPECT_LE(backoff.Next(), absl::Milliseconds(120));
  }
}

// ---- streams ------------------------------------------------------------------------------------

using Stream = ResumableStream<int, int>;
using Frame = StreamFrame<int>;

TEST(ResumableStreamTest, SendsOnlyAfterTheOtherSidesResume) {
  Stream stream(SessionId(1));
  EXPECT_EQ(stream.Send(10), std::nullopt) << "not connected";
  const Frame resume = stream.Connect();
  EXPECT_TRUE(resume.resume);
  EXPECT_EQ(resume.number, 0u);
  EXPECT_EQ(stream.Send(11), std::nullopt);
  std::vector<Frame> resend;
  std::optional<int> message;
  ASSERT_TRUE(stream.Receive(Frame{SessionId(1), true, 0, 0, {}}, resend, message).ok());
  ASSERT_EQ(resend.size(), 2u);
  EXPECT_EQ(resend[0].message, 10);
  EXPECT_EQ(resend[1].number, 2u);
  EXPECT_EQ(stream.Send(12)->number, 3u);
}

TEST(ResumableStreamTest, DropsWhatItHasSeenAndRefusesGapsAndOtherSessions) {
  Stream stream(SessionId(1));
  stream.Connect();
  std::vector<Frame> resend;
  std::optional<int> message;
  ASSERT_TRUE(stream.Receive(Frame{SessionId(1), false, 0, 1, 5}, resend, message).ok());
  EXPECT_EQ(message, 5);
  ASSERT_TRUE(stream.Receive(Frame{SessionId(1), false, 0, 1, 5}, resend, message).ok());
  EXPECT_EQ(message, std::nullopt);
  EXPECT_EQ(stream.Receive(Frame{SessionId(1), false, 0, 3, 7}, resend, message).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(stream.Receive(Frame{SessionId(2), false, 0, 2, 6}, resend, message).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(stream.last_received(), 1u);
}

TEST(ResumableStreamTest, AcknowledgementsFreeWhatWasKept) {
  Stream stream(SessionId(1));
  std::vector<Frame> resend;
  std::optional<int> message;
  for (int i = 0; i < 5; ++i) stream.Send(i);
  ASSERT_TRUE(stream.Receive(Frame{SessionId(1), false, 3, 0, {}}, resend, message).ok());
  EXPECT_EQ(stream.unacknowledged(), 2u);
  EXPECT_EQ(stream.Acknowledgement().acknowledged, 0u);
}

TEST(ResumableStreamTest, WhatWasNeverSentCannotBeAcknowledged) {
  Stream stream(SessionId(1));
  std::vector<Frame> resend;
  std::optional<int> message;
  stream.Send(1);
  EXPECT_EQ(stream.Receive(Frame{SessionId(1), true, 2, 0, {}}, resend, message).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(stream.unacknowledged(), 1u);
}

// Two ends and a wire that breaks at any frame: what is delivered is what was sent, in order, once.
TEST(ResumableStreamTest, LosesDoublesAndReordersNothingOverBrokenConnections) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Stream ends[2] = {Stream(SessionId(1)), Stream(SessionId(1))};
    std::deque<Frame> wire[2];  // to each end
    std::vector<int> got[2];
    int sent[2] = {0, 0};
    const auto connect = [&] {
      for (int side : {0, 1}) wire[side].clear();
      for (int side : {0, 1})
        ends[side].Disconnect(), wire[1 - side].push_back(ends[side].Connect());
    };
    connect();
    for (int move = 0; move < 3000 && (move < 300 || got[0].size() + got[1].size() < 80); ++move) {
      const int side = static_cast<int>(random.Below(2));
      if (move < 300 && random.Chance(0.05)) {
        connect();
      } else if (sent[side] < 40 && random.Chance(0.4)) {
        if (auto frame = ends[side].Send(sent[side]++)) wire[1 - side].push_back(*frame);
      } else if (!wire[side].empty()) {
        const Frame frame = wire[side].front();
        wire[side].pop_front();
        std::vector<Frame> resend;
        std::optional<int> message;
        ASSERT_TRUE(ends[side].Receive(frame, resend, message).ok());
        for (const Frame& again : resend) wire[1 - side].push_back(again);
        if (message) got[side].push_back(*message);
      } else if (random.Chance(0.2)) {
        wire[1 - side].push_back(ends[side].Acknowledgement());
      }
    }
    for (int side : {0, 1}) {
      ASSERT_EQ(got[side].size(), 40u);
      for (int i = 0; i < 40; ++i) ASSERT_EQ(got[side][static_cast<size_t>(i)], i);
    }
  }
}

}  // namespace
}  // namespace divvy
