// Which messages are refused and with which text, and which odd values are preserved.
// (round_trip_test.cc tests random messages of every kind.)
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/job_state.h"
#include "wire/layout.h"
#include "wire/messages.h"
#include "wire/optimizer.h"
#include "wire/status.h"
#include "wire/steps.h"
#include "wire/testing/generator.h"
#include "wire/text.h"
#include "wire/values.h"

namespace divvy::wire {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Expects InvalidArgument with Reason::kInvalid, and a text that begins with `field`.
template <typename Message>
void ExpectRefused(const Message& message, absl::string_view field) {
  const auto value = FromProto(message);
  ASSERT_FALSE(value.ok()) << "wanted a refusal of " << field << " in "
                           << message.ShortDebugString();
  EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(value.status()), Reason::kInvalid);
  EXPECT_THAT(std::string(value.status().message()), StartsWith(std::string(field)));
}

// The message of a valid T, after `change`.
template <typename T>
auto Changed(const std::function<void(decltype(ToProto(std::declval<T>()))&)>& change) {
  auto message = ToProto(testing::Generator(7).Make<T>());
  change(message);
  return message;
}

// ---- text ---------------------------------------------------------------------------------------

TEST(TextTest, ControlCharactersAndBytesThatAreNoUtf8AreEscaped) {
  EXPECT_EQ(Escaped("a\nb\x1b[31m\x7f"), "a\\x0ab\\x1b[31m\\x7f");
  EXPECT_EQ(Escaped("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(Escaped("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(Escaped("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
  EXPECT_EQ(Escaped("ä€🐢"), "ä€🐢");
  EXPECT_EQ(Escaped("a\xc2\x9b"
                    "2J"),
            "a\\xc2\\x9b2J")
      << "U+009B begins a command to a terminal";
  EXPECT_EQ(Escaped("\xe2\x80\xae"
                    "gpj.exe"),
            "\\xe2\\x80\\xaegpj.exe")
      << "U+202E turns the line around";
  EXPECT_EQ(Escaped("a\xe2\x80\xa8"
                    "b"),
            "a\\xe2\\x80\\xa8b")
      << "U+2028 is the end of a line";
}

TEST(TextTest, TheCutNeverFallsWithinACharacter) {
  EXPECT_EQ(Escaped("abä", 3), "ab");
  EXPECT_EQ(Escaped("ab\n", 5), "ab");
}

TEST(TextTest, EscapingTwiceChangesNothingMore) {
  const std::string once = Escaped(std::string("x\0\xfe\ty", 5));
  EXPECT_EQ(Escaped(once), once);
}

// ---- statuses -----------------------------------------------------------------------------------

TEST(StatusTest, ReasonAndUserMarkSurvive) {
  ErrorDetail detail;
  detail.reason = Reason::kMemoryLimit;
  detail.role = Role::kPs;
  detail.index = 3;
  detail.epoch = Epoch(9);
  detail.entry = EntryId(1);
  const absl::Status arrived = FromProto(ToProto(MarkUser(MakeError(detail, "ps 3: full"))));
  EXPECT_EQ(arrived.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(arrived.message(), "ps 3: full");
  const ErrorDetail got = DetailOf(arrived);
  EXPECT_EQ(got.reason, Reason::kMemoryLimit);
  EXPECT_EQ(got.role, Role::kPs);
  EXPECT_EQ(got.index, 3);
  EXPECT_EQ(got.epoch, Epoch(9));
  EXPECT_EQ(got.entry, EntryId(1));
  EXPECT_TRUE(got.user);
}

TEST(StatusTest, AUsersErrorKeepsItsCodeWhateverTheReason) {
  const absl::Status arrived = FromProto(ToProto(MarkUser(absl::NotFoundError("no file"))));
  EXPECT_EQ(arrived.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(DetailOf(arrived).user);
}

TEST(StatusTest, OkTravelsAsAnEmptyMessage) {
  EXPECT_EQ(ToProto(absl::OkStatus()).ByteSizeLong(), 0u);
  EXPECT_TRUE(FromProto(v1::Status()).ok());
}

TEST(StatusTest, TextIsEscapedAndCutAtEightKib) {
  const v1::Status sent =
      ToProto(absl::InternalError(absl::StrCat("a\n", std::string(20000, 'x'))));
  EXPECT_THAT(sent.message(), StartsWith("a\\x0axxx"));
  EXPECT_EQ(sent.message().size(), 8192u);
  v1::Status hostile;
  hostile.set_code(5);
  hostile.set_message(absl::StrCat("\x1b[2J", std::string(20000, 'x')));
  EXPECT_THAT(std::string(FromProto(hostile).message()), StartsWith("\\x1b[2J"));
  EXPECT_EQ(FromProto(hostile).message().size(), 8192u);
}

TEST(StatusTest, WhatCannotBeReadIsInternalNeverOk) {
  v1::Status status;
  status.set_message("why");
  for (const int code : {17, -1, std::numeric_limits<int>::max()}) {
    status.set_code(code);
    EXPECT_EQ(FromProto(status).code(), absl::StatusCode::kInternal) << code;
  }
  status.set_code(14);
  google::protobuf::Any& any = *status.add_details();
  any.set_type_url("type.googleapis.com/divvy.v1.ErrorDetail");
  any.set_value("\xff");
  EXPECT_EQ(FromProto(status).code(), absl::StatusCode::kInternal) << "a broken detail";
  EXPECT_THAT(std::string(FromProto(status).message()), HasSubstr("why"));
  v1::ErrorDetail detail;
  for (const int reason : {99, /*reserved:*/ 13, 15}) {
    detail.set_reason(static_cast<v1::Reason>(reason));
    any.set_value(detail.SerializeAsString());
    EXPECT_EQ(FromProto(status).code(), absl::StatusCode::kUnavailable)
        << "a reason of another version's peer: its code says what to do";
    EXPECT_EQ(ReasonOf(FromProto(status)), Reason::kNone);
  }
  detail.set_reason(v1::INVALID);
  detail.set_index(-1);
  any.set_value(detail.SerializeAsString());
  EXPECT_EQ(FromProto(status).code(), absl::StatusCode::kInternal) << "a negative index";
}

TEST(StatusTest, DetailsOfOthersAreIgnored) {
  v1::Status status;
  status.set_code(14);
  status.set_message("m");
  status.add_details()->set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  EXPECT_EQ(FromProto(status), absl::UnavailableError("m"));
}

TEST(StatusTest, ACallsStatusIsMadeOfItsThreeParts) {
  const absl::Status refusal = MakeError(Reason::kStaleEpoch, "ps 0: stale");
  const absl::Status arrived =
      StatusOfCall(static_cast<int>(refusal.code()), refusal.message(), StatusDetails(refusal));
  EXPECT_EQ(arrived.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(arrived), Reason::kStaleEpoch);
  EXPECT_EQ(StatusDetails(absl::UnavailableError("x")), "")
      << "nothing that gRPC does not carry itself";
  EXPECT_EQ(StatusOfCall(14, "no route", ""), absl::UnavailableError("no route"));
  EXPECT_EQ(StatusOfCall(14, "no route", "\xff\xff"), absl::UnavailableError("no route"));
  EXPECT_TRUE(StatusOfCall(0, "", "").ok());
}

TEST(StatusTest, EveryReasonAndJobHasItsOwnNumber) {
  std::set<int> numbers;
  for (int reason = 0; reason <= static_cast<int>(kLastReason); ++reason) {
    ErrorDetail detail;
    detail.reason = static_cast<Reason>(reason);
    const int number = ToProto(detail).reason();
    EXPECT_TRUE(v1::Reason_IsValid(number)) << reason;
    const auto read = FromProto(ToProto(detail));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->reason, detail.reason);
    numbers.insert(number);
  }
  EXPECT_EQ(numbers.size(), static_cast<size_t>(v1::Reason_descriptor()->value_count()))
      << "a reason of the protocol that the domain does not know";
}

// ---- values -------------------------------------------------------------------------------------

v1::TensorValue TensorOf(v1::DType dtype, std::initializer_list<int64_t> shape,
                         absl::string_view content) {
  v1::TensorValue tensor;
  tensor.set_dtype(dtype);
  for (const int64_t dim : shape) tensor.add_shape(dim);
  tensor.set_content(std::string(content));
  return tensor;
}

TEST(TensorTest, ElementsTravelLittleEndianAndRowMajor) {
  const v1::TensorValue message = ToProto(*Tensor::Copy<int32_t>({2, 1}, {1, 258}));
  EXPECT_EQ(message.dtype(), v1::DT_INT32);
  EXPECT_THAT(message.shape(), ::testing::ElementsAre(2, 1));
  EXPECT_EQ(message.content(), std::string("\1\0\0\0\2\1\0\0", 8));
}

TEST(TensorTest, EverythingThatDoesNotFitIsRefused) {
  ExpectRefused(TensorOf(v1::DT_NONE, {}, ""), "dtype: is not set");
  ExpectRefused(TensorOf(static_cast<v1::DType>(10), {}, ""), "dtype: has the unknown value 10");
  ExpectRefused(TensorOf(v1::DT_INT8, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "x"), "shape: has 9 dimensions");
  ExpectRefused(TensorOf(v1::DT_INT8, {2, -1}, "xx"), "shape[1]: is -1");
  ExpectRefused(TensorOf(v1::DT_FLOAT32, {1}, "xxx"), "content: has 3 bytes");
  ExpectRefused(TensorOf(v1::DT_BOOL, {2}, absl::string_view("\1\2", 2)), "content: has a bool");
}

TEST(TensorTest, NothingIsAllocatedForElementsThatAreNotThere) {
  ExpectRefused(TensorOf(v1::DT_FLOAT64, {int64_t{1} << 40}, "x"), "content: has 1 bytes");
  ExpectRefused(TensorOf(v1::DT_FLOAT64, {int64_t{1} << 60, 8}, "x"),
                "shape: means more than 2^63 bytes");
  ExpectRefused(TensorOf(v1::DT_FLOAT64, {int64_t{1} << 61}, "x"),
                "shape: means more than 2^63 bytes");
  ExpectRefused(TensorOf(v1::DT_FLOAT64, {int64_t{1} << 62, 0, 4}, ""),
                "shape: means more than 2^63 bytes");
}

Nest Deep(int depth, bool dicts) {
  Nest nest(int64_t{1});
  for (int i = 1; i < depth; ++i)
    nest = dicts ? Nest(Nest::Dict{{"k", nest}}) : Nest(Nest::List{nest});
  return nest;
}

TEST(NestTest, TheDeepestAllowedValueCanBeParsedWithinAFrame) {
  for (const bool dicts : {false, true}) {
    StreamFrame<ToWorker> frame;
    frame.number = 1;
    Dispatch dispatch;
    dispatch.function = "f";
    dispatch.args = Deep(kMaxNestDepth, dicts);
    frame.message = dispatch;
    v1::ToWorkerFrame parsed;
    ASSERT_TRUE(parsed.ParseFromString(ToProto(frame).SerializeAsString()));
    const auto arrived = FromProto(parsed);
    ASSERT_TRUE(arrived.ok()) << arrived.status();
    EXPECT_TRUE(BitwiseEqual(std::get<Dispatch>(*arrived->message).args, dispatch.args));
  }
}

Nest Travelled(const Nest& nest) {
  v1::Value sent, parsed;
  ToProto(nest, &sent);
  EXPECT_TRUE(parsed.ParseFromString(sent.SerializeAsString()));
  const absl::StatusOr<Nest> arrived = FromProto(parsed);
  EXPECT_TRUE(arrived.ok()) << arrived.status();
  return arrived.ok() ? *arrived : Nest();
}

TEST(NestTest, AFailureTravelsAsItsError) {
  const Nest arrived =
      Travelled(Nest(Nest::List{Nest::Failed(MakeError(Reason::kEndOfData, "no more"))}));
  EXPECT_EQ(arrived[0].status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(arrived[0].status().message(), "no more");
  EXPECT_TRUE(IsEndOfData(arrived[0].status()));
  v1::Value ok;
  ok.mutable_error();
  ExpectRefused(ok, "error: is OK");
}

TEST(NestTest, WhatCannotTravelArrivesAsAnErrorForItsAuthor) {
  const absl::Status key = Travelled(Nest::Dict{{"\xff", Nest()}}).status();
  EXPECT_EQ(key, absl::InvalidArgumentError(
                     "a value cannot be sent: the key \"\\xff\" is not UTF-8. Rename it"));
  Nest deep = Travelled(Deep(kMaxNestDepth + 1, true));
  for (int i = 0; i < kMaxNestDepth; ++i) deep = deep["k"];
  EXPECT_EQ(deep.status(), absl::InvalidArgumentError(
                               "a value cannot be sent: it has more than 24 lists and dicts "
                               "within each other. Make it flatter"));
}

TEST(NestTest, ADeeperMessageIsRefused) {
  v1::Value value;
  value.set_handle(1);
  for (int i = 0; i < kMaxNestDepth; ++i) {
    v1::Value outer;
    *outer.mutable_list()->add_elements() = value;
    value = outer;
  }
  EXPECT_THAT(std::string(FromProto(value).status().message()),
              HasSubstr("list[0]: is more than 24 deep"));
}

TEST(NestTest, TheFieldPathLeadsToTheLeaf) {
  v1::Value value;
  (*value.mutable_dict()->mutable_entries())["a\n"]
      .mutable_list()
      ->add_elements()
      ->mutable_tensor()
      ->set_dtype(v1::DT_INT8);
  ExpectRefused(value, "dict[\"a\\x0a\"].list[0].tensor.content: has 0 bytes, and int8 [] has 1");
}

TEST(NestTest, IndexedSlicesMustFitTheirRows) {
  v1::Value value;
  *value.mutable_slices()->mutable_ids() = ToProto(Tensor::Vector<int64_t>({5}));
  ExpectRefused(value, "slices.rows: is missing");
  *value.mutable_slices()->mutable_rows() = ToProto(Tensor::Vector<float>({1}));
  value.mutable_slices()->set_num_rows(5);
  ExpectRefused(value, "slices: ");
}

// ---- optimizers ---------------------------------------------------------------------------------

TEST(OptimizerTest, ImpossibleOnesAreRefused) {
  v1::Optimizer optimizer;
  ExpectRefused(optimizer, "kind: is not set");
  optimizer.set_kind(v1::ADAM);
  ExpectRefused(optimizer, "learning_rate: is missing");
  optimizer.mutable_learning_rate();
  ExpectRefused(optimizer, "learning_rate: has no kind");
  optimizer.mutable_learning_rate()->set_constant(std::nan(""));
  ExpectRefused(optimizer, "learning_rate: ");
  optimizer.mutable_learning_rate()->set_constant(0.1);
  optimizer.set_beta1(1);
  ExpectRefused(optimizer, ": Adam: beta1 is 1");
}

TEST(OptimizerTest, ScheduleWithoutStepsOrWithFallingBoundariesIsRefused) {
  v1::LearningRate rate;
  rate.mutable_cosine()->set_initial(1);
  ExpectRefused(rate, ": learning rate: decay_steps is 0");
  for (const int64_t boundary : {5, 5}) rate.mutable_piecewise()->add_boundaries(boundary);
  for (int i = 0; i < 3; ++i) rate.mutable_piecewise()->add_values(1);
  ExpectRefused(rate, ": learning rate: boundaries must rise");
}

TEST(OptimizerTest, AStepThatNoServerCanApplyIsRefused) {
  v1::OptimizerStep step;
  ExpectRefused(step, "kind: is not set");
  step.set_kind(v1::SGD);
  step.set_learning_rate(std::numeric_limits<float>::infinity());
  ExpectRefused(step, ": Sgd: the learning rate is inf");
}

// ---- layouts ------------------------------------------------------------------------------------

VariableLayout Weights() {
  VariableLayout variable;
  variable.id = VariableId(4);
  variable.spec.name = "dense/w";
  variable.spec.shape = {5, 2};
  variable.spec.optimizer = Adam{0.1};
  variable.offsets = {0, 3, 5};
  variable.ps = {0, 1};
  variable.slots = SlotsOf(*variable.spec.optimizer);
  variable.slot_optimizers = {"Adam", "Adam", "Adam"};
  return variable;
}

template <typename Change>
void ExpectVariableRefused(Change change, absl::string_view field) {
  v1::VariableLayout message = ToProto(Weights());
  ASSERT_TRUE(FromProto(message).ok());
  change(message);
  ExpectRefused(message, field);
}

TEST(LayoutTest, AVariableThatIsCutWronglyIsRefused) {
  using M = v1::VariableLayout;
  ExpectVariableRefused([](M& m) { m.set_name(""); }, "name: has 0 bytes");
  ExpectVariableRefused([](M& m) { m.set_name("a b"); }, ": bad name");
  ExpectVariableRefused([](M& m) { m.set_name(std::string(1025, 'x')); }, "name: has 1025 bytes");
  ExpectVariableRefused([](M& m) { m.set_shape(1, -1); }, "shape[1]: is -1");
  ExpectVariableRefused([](M& m) { m.set_dtype(v1::DT_BOOL); }, ": variable");
  ExpectVariableRefused([](M& m) { m.set_aggregation(static_cast<v1::Aggregation>(9)); },
                        "aggregation: has the unknown value 9");
  ExpectVariableRefused([](M& m) { m.mutable_optimizer()->set_beta2(-1); },
                        "optimizer: Adam: beta2 is -1");
  ExpectVariableRefused([](M& m) { m.clear_ps(); }, "ps: names 0 shards");
  ExpectVariableRefused([](M& m) { m.add_ps(0); }, "offsets: has 3 for 3 shards");
  ExpectVariableRefused([](M& m) { m.set_offsets(2, 4); }, "offsets: do not go from 0 to 5");
  ExpectVariableRefused([](M& m) { m.set_offsets(1, 6); }, "offsets: fall");
  ExpectVariableRefused([](M& m) { m.set_ps(1, 65536); }, "ps[1]: is 65536");
  ExpectVariableRefused([](M& m) { m.mutable_slots(1)->set_kind(v1::SlotSpec::SLOT_NONE); },
                        "slots[1].kind: is not set");
  ExpectVariableRefused([](M& m) { m.mutable_slots(1)->set_initial_value(NAN); },
                        "slots[1].initial_value: is not a finite number");
  ExpectVariableRefused(
      [](M& m) {
        while (m.slots_size() < 256) m.add_slots();
      },
      "slots: has 256 elements, more than 255");
}

TEST(LayoutTest, TheVersionAndTheHashOfTheSenderAreKept) {
  const std::shared_ptr<const Layout> sent = Layout::Empty()->With(Weights())->With(Weights());
  v1::Layout message;
  message = ToProto(sent);
  const auto arrived = FromProto(message);
  ASSERT_TRUE(arrived.ok()) << arrived.status();
  EXPECT_EQ((*arrived)->version(), 2u);
  EXPECT_EQ((*arrived)->hash(), sent->hash());
  ASSERT_NE((*arrived)->Find("dense/w"), nullptr);
  EXPECT_EQ((*arrived)->Find("dense/w")->SlotName(2), "dense/w/Adam/t");
}

TEST(LayoutTest, TheFormerHashIsTakenToo) {
  VariableLayout second = Weights();  // of one variable both hashes are the same
  second.id = VariableId(1000);
  second.spec.name = "second";
  const std::shared_ptr<const Layout> sent = Layout::Empty()->With(Weights())->With(second);
  v1::Layout message = ToProto(sent);
  ASSERT_NE(sent->FormerHash(), sent->hash());
  message.set_hash(sent->FormerHash());
  const auto arrived = FromProto(message);
  ASSERT_TRUE(arrived.ok()) << arrived.status();
  EXPECT_EQ((*arrived)->hash(), sent->hash());
}

TEST(LayoutTest, AnotherHashAndVariablesOutOfOrderAreRefused) {
  v1::Layout message;
  message = ToProto(Layout::Empty()->With(Weights()));
  message.set_hash(message.hash() + 1);
  ExpectRefused(message, "hash: is ");
  *message.add_variables() = message.variables(0);
  ExpectRefused(message, "variables[1].id: does not rise");
  message.mutable_variables(1)->set_id(5);
  ExpectRefused(message, "variables[1].name: is another variable's too");
}

TEST(ShardTest, RowsMustLieWithinTheWhole) {
  ShardSpec spec;
  spec.name = "w";
  spec.shape = {2, 3};
  spec.full_shape = {5, 3};
  spec.first_row = 3;
  ASSERT_TRUE(FromProto(ToProto(spec)).ok());
  const auto refused = [&spec](auto change, absl::string_view field) {
    v1::ShardSpec message = ToProto(spec);
    change(message);
    ExpectRefused(message, field);
  };
  using M = v1::ShardSpec;
  refused([](M& m) { m.clear_key(); }, "key: is missing");
  refused([](M& m) { m.mutable_key()->set_slot(256); }, "key.slot: is 256");
  refused([](M& m) { m.mutable_key()->set_part(65536); }, "key.part: is 65536");
  refused([](M& m) { m.set_first_row(4); }, "first_row: is 4");
  refused([](M& m) { m.set_first_row(-1); }, "first_row: is -1");
  refused([](M& m) { m.set_first_row(std::numeric_limits<int64_t>::max()); },
          "first_row: is 9223372036854775807");
  refused([](M& m) { m.set_shape(1, 4); }, "shape[1]: differs");
  refused([](M& m) { m.add_shape(1); }, "shape: has another rank");
  refused([](M& m) { m.clear_initializer(); }, "initializer: is missing");
  refused([](M& m) { m.mutable_initializer()->clear_kind(); }, "initializer: has no kind");
  refused([](M& m) { m.mutable_initializer()->mutable_random_normal()->set_stddev(-1); },
          "initializer: RandomNormal: stddev is -1");
}

TEST(InitializerTest, WhatIsMadeOnTheCoordinatorDoesNotTravel) {
  ExpectRefused(ToProto(Initializer(Orthogonal())), ": has no kind");
  ExpectRefused(ToProto(Initializer(Tensor::Scalar(1.0f))), ": has no kind");
}

// ---- calls --------------------------------------------------------------------------------------

TEST(MessagesTest, EveryRequestNeedsItsFence) {
  // A task that registers is not attached yet, and has none.
#define DIVVY_EXPECT_FENCE(Type) \
  if (!std::is_same_v<Type, RegisterRequest>) ExpectRefused(v1::Type(), "fence: is missing");
  DIVVY_WIRE_REQUESTS(DIVVY_EXPECT_FENCE)
#undef DIVVY_EXPECT_FENCE
}

TEST(MessagesTest, AnAbsentProtocolRangeMeansVersionOne) {
  v1::PsAttachRequest message;
  message.mutable_fence();
  EXPECT_EQ(FromProto(message)->protocol.newest, 1u);
  message.mutable_protocol();
  EXPECT_EQ(FromProto(message)->protocol.oldest, 1u);
  message.mutable_protocol()->set_oldest(3);
  message.mutable_protocol()->set_newest(2);
  ExpectRefused(message, "protocol.oldest: is 3");
}

TEST(MessagesTest, AHorizonsOpenIdsRiseAndLieBelowNext) {
  v1::SyncRequest message;
  message.mutable_fence();
  ExpectRefused(message, "horizon: is missing");
  message.mutable_horizon()->set_next(10);
  for (const uint64_t id : {3, 7, 7}) message.mutable_horizon()->add_open(id);
  ExpectRefused(message, "horizon.open[2]: does not rise");
  message.mutable_horizon()->set_open(2, 10);
  ExpectRefused(message, "horizon.open: names 10");
  message.mutable_horizon()->set_open(2, 9);
  EXPECT_TRUE(FromProto(message).ok());
  for (const uint32_t session : {2, 1}) message.add_sessions(session);
  ExpectRefused(message, "sessions[1]: does not rise");
}

TEST(MessagesTest, ARegistrationSaysWhoWhereAndWhichLife) {
  using M = v1::RegisterRequest;
  using T = RegisterRequest;
  ExpectRefused(Changed<T>([](M& m) { m.set_job(v1::CHIEF); }), "job: is neither ps nor worker");
  ExpectRefused(Changed<T>([](M& m) { m.clear_job(); }), "job: is not set");
  ExpectRefused(Changed<T>([](M& m) { m.set_index(-1); }), "index: is -1");
  ExpectRefused(Changed<T>([](M& m) { m.set_index(65536); }), "index: is 65536");
  ExpectRefused(Changed<T>([](M& m) { m.clear_incarnation(); }), "incarnation: is 0");
  ExpectRefused(Changed<T>([](M& m) { m.clear_address(); }), "address: has 0 bytes");
  ExpectRefused(Changed<T>([](M& m) { m.set_address("host\n:1"); }),
                "address: has control characters");
  ExpectRefused(Changed<T>([](M& m) { m.set_replicas(0); }), "replicas: is 0");
  ExpectRefused(Changed<T>([](M& m) { m.set_build(std::string(1025, 'x')); }),
                "build: has 1025 bytes");
  ExpectRefused(Changed<T>([](M& m) {
                  (*m.mutable_program()->mutable_steps())["train"] =
                      std::string((64 << 10) + 1, 'x');
                }),
                "program.steps: is too long");
  ExpectRefused(Changed<T>([](M& m) { (*m.mutable_program()->mutable_steps())[""] = "FvvE"; }),
                "program.steps: has 0 bytes");
  ExpectRefused(Changed<T>([](M& m) {
                  m.mutable_program()->clear_flags();
                  m.mutable_program()->add_flags("a\nb");
                }),
                "program.flags[0]: has control characters");
  const v1::RegisterRequest twice = Changed<T>([](M& m) {
    m.clear_cluster();
    for (int i = 0; i < 2; ++i) {
      v1::ClusterTask& task = *m.add_cluster();
      task.set_job("ps");
      task.set_address("a:1");
    }
  });
  ExpectRefused(twice, "cluster[1]: names a task a second time");
}

TEST(MessagesTest, MoreThanAHundredThousandPartsAreRefused) {
  v1::DeleteShardsRequest message;
  message.mutable_fence();
  for (int i = 0; i <= 100000; ++i) message.add_shards();
  ExpectRefused(message, "shards: has 100001 elements");
}

TEST(MessagesTest, UnknownStatesAndKindsAreRefused) {
  ExpectRefused(Changed<PsAttachReply>([](v1::PsAttachReply& m) { m.clear_state(); }),
                "state: is not set");
  ExpectRefused(Changed<PsAttachReply>([](v1::PsAttachReply& m) { m.set_memory_bytes(-1); }),
                "memory_bytes: is -1");
  ExpectRefused(Changed<PsAttachReply>([](v1::PsAttachReply& m) { m.add_remembered(); }),
                "remembered[");
  ExpectRefused(Changed<LoadRequest>(
                    [](v1::LoadRequest& m) { m.set_from(static_cast<v1::LoadRequest::From>(4)); }),
                "from: has the unknown value 4");
  ExpectRefused(Changed<ShutdownRequest>([](v1::ShutdownRequest& m) { m.set_exit_code(256); }),
                "exit_code: is 256");
  ExpectRefused(Changed<RegisterReply>([](v1::RegisterReply& m) { m.set_over(-1); }),
                "over: is -1");
}

TEST(MessagesTest, AWorkersSessionNeedsAViewInOrderAndALayout) {
  using M = v1::WorkerAttachRequest;
  using T = WorkerAttachRequest;
  ExpectRefused(Changed<T>([](M& m) { m.clear_layout(); }), "layout: is missing");
  ExpectRefused(Changed<T>([](M& m) { (*m.mutable_program_flags())[""] = "x"; }),
                "program_flags: has 0 bytes");
  const v1::WorkerAttachRequest doubled = Changed<T>([](M& m) {
    m.clear_view();
    for (int i = 0; i < 2; ++i) m.add_view()->set_address("a:1");
  });
  ExpectRefused(doubled, "view[1].index: does not rise");
  ExpectRefused(Changed<WorkerAttachReply>([](v1::WorkerAttachReply& m) { m.set_slots(0); }),
                "slots: is 0");
}

// ---- steps --------------------------------------------------------------------------------------

v1::ToWorkerFrame DispatchFrame() {
  StreamFrame<ToWorker> frame;
  frame.number = 1;
  Dispatch dispatch;
  dispatch.function = "train";
  frame.message = dispatch;
  return ToProto(frame);
}

v1::FromWorkerFrame FrameWith(FromWorker message) {
  StreamFrame<FromWorker> frame;
  frame.number = 1;
  frame.message = std::move(message);
  return ToProto(frame);
}

// The state of a job in the middle of a pass.
JobState HalfWay() {
  JobState state;
  state.job = JobId(7);
  state.checkpoint = {Epoch(2), 5};
  state.layout = Layout::Empty();
  DataPass pass;
  pass.source = "images";
  pass.args = Nest(Nest::List{Nest(int64_t{3})});
  pass.seed = 0xfedcba9876543210;
  pass.finished = 12;
  pass.next = 40;
  pass.unread = {{8, 2}, {10, 30}};
  pass.end = 100;
  pass.end_is_exact = true;
  state.data = {pass};
  return state;
}

TEST(JobStateTest, WhereAPassStandsComesBackAsItWas) {
  const auto state = DecodeJobState(EncodeJobState(HalfWay()));
  ASSERT_TRUE(state.ok()) << state.status();
  const DataPass& pass = state->data.at(0);
  EXPECT_EQ(pass.source, "images");
  EXPECT_TRUE(BitwiseEqual(pass.args, HalfWay().data[0].args));
  EXPECT_EQ(pass.seed, 0xfedcba9876543210);
  EXPECT_EQ(pass.finished, 12);
  EXPECT_EQ(pass.next, 40);
  EXPECT_EQ(pass.unread, (std::map<int64_t, int64_t>{{8, 2}, {10, 30}}));
  EXPECT_EQ(pass.end, 100);
  EXPECT_TRUE(pass.end_is_exact);
}

TEST(JobStateTest, TheServersOfARunningJobComeBackInTheirOrder) {
  JobState state = HalfWay();
  state.servers = {Incarnation(0xfedcba9876543210), Incarnation(7)};
  const auto read = DecodeJobState(EncodeJobState(state));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->servers, state.servers);
}

TEST(JobStateTest, APositionThatWouldBeReadTwiceOrWasNeverGivenIsRefused) {
  const auto refusal = [](const JobState& state) {
    return std::string(DecodeJobState(EncodeJobState(state)).status().message());
  };
  JobState state = HalfWay();
  state.data[0].unread = {{8, 3}, {10, 2}};
  EXPECT_THAT(refusal(state), HasSubstr("data[0].unread[1].first"));
  state.data[0].unread = {{8, 33}};
  EXPECT_THAT(refusal(state), HasSubstr("data[0].unread[0].count"));
  state = HalfWay();
  state.data[0].finished = -1;
  EXPECT_THAT(refusal(state), HasSubstr("data[0].finished"));
}

TEST(JobStateTest, APassOfASourceWithoutAReadableNameOrWithoutACountIsRefused) {
  v1::JobState message = ToProto(HalfWay());
  (*message.mutable_passes())["images\n"] = 1;
  ExpectRefused(message, "passes: is too long, or has control characters");
  message = ToProto(HalfWay());
  (*message.mutable_passes())["images"] = -1;
  ExpectRefused(message, "passes: is -1");
}

TEST(FrameTest, AMessageHasANumberAndAResumeHasNeither) {
  v1::ToWorkerFrame frame = DispatchFrame();
  frame.set_number(0);
  ExpectRefused(frame, "number: is 0");
  frame.set_number(1);
  frame.set_resume(true);
  ExpectRefused(frame, "resume: comes with a message");
  frame.clear_message();
  ExpectRefused(frame, "resume: comes with a message");
  frame.set_resume(false);
  ExpectRefused(frame, "message: is not set, or of a newer protocol");
}

TEST(FrameTest, ADispatchThatCannotRunIsRefused) {
  const auto refused = [](auto change, absl::string_view field) {
    v1::ToWorkerFrame frame = DispatchFrame();
    change(*frame.mutable_dispatch());
    ExpectRefused(frame, field);
  };
  using M = v1::Dispatch;
  refused([](M& m) { m.set_attempt(0); }, "dispatch.attempt: is 0");
  refused([](M& m) { m.set_ordinal(-1); }, "dispatch.ordinal: is -1");
  refused([](M& m) { m.clear_function(); }, "dispatch.function: has 0 bytes");
  refused([](M& m) { m.clear_args(); }, "dispatch.args: is missing");
  refused([](M& m) { m.set_learning_rate_scale(NAN); },
          "dispatch.learning_rate_scale: is not a finite number");
  refused([](M& m) { m.add_inputs()->set_first(-1); }, "dispatch.inputs[0].first: is -1");
  refused([](M& m) { m.add_inputs()->set_count(-1); }, "dispatch.inputs[0].count: is -1");
  const auto overflow = [](M& m) {
    m.add_inputs()->set_first(std::numeric_limits<int64_t>::max());
    m.mutable_inputs(0)->set_count(1);
  };
  refused(overflow, "dispatch.inputs[0].count: is 1");
}

// Indices go up to 65,535, so the number of workers may be one more.
TEST(FrameTest, DataIsCutAmongAsManyWorkersAsThereAreIndices) {
  StreamFrame<ToWorker> frame;
  frame.number = 1;
  MakeResource make;
  make.iterator = ResourceId(1);
  make.source = "train";
  for (const int num_workers : {1, 65'535, 65'536}) {
    make.num_workers = num_workers;
    frame.message = make;
    const auto arrived = FromProto(ToProto(frame));
    ASSERT_TRUE(arrived.ok()) << arrived.status();
    EXPECT_EQ(std::get<MakeResource>(*arrived->message).num_workers, num_workers);
  }
  for (const int num_workers : {0, -1, 65'537}) {
    make.num_workers = num_workers;
    frame.message = make;
    ExpectRefused(ToProto(frame),
                  absl::StrCat("make.num_workers: is ", num_workers, ", not in [1, 65536]"));
  }
}

TEST(FrameTest, AReportThatExplainsNothingIsRefused) {
  Report report;
  report.outcome = StepOutcome::kFailed;
  ExpectRefused(FrameWith(report), "report.error: is missing");
  report.outcome = StepOutcome::kOk;
  v1::FromWorkerFrame frame = FrameWith(report);
  frame.mutable_report()->clear_value();
  ExpectRefused(frame, "report.value: is missing");
  frame.mutable_report()->clear_outcome();
  ExpectRefused(frame, "report.outcome: is not set");
  report.participants = {-1};
  ExpectRefused(FrameWith(report), "report.participants[0]: is -1");
}

TEST(FrameTest, GradientsOfAReportTravelAndTheirHistogramsAreChecked) {
  Report report;
  report.gradients = {{"w", {-1, 2, std::vector<uint64_t>(kHistogramBuckets, 7)}}, {"b", {}}};
  const auto arrived = FromProto(FrameWith(report));
  ASSERT_TRUE(arrived.ok()) << arrived.status();
  const auto& gradients = std::get<Report>(*arrived->message).gradients;
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_EQ(gradients[0].variable, "w");
  EXPECT_EQ(gradients[0].values.low, -1);
  EXPECT_EQ(gradients[0].values.high, 2);
  EXPECT_EQ(gradients[0].values.counts, report.gradients[0].values.counts);
  EXPECT_TRUE(gradients[1].values.counts.empty());
  const auto refused = [&report](auto change, absl::string_view why) {
    v1::FromWorkerFrame frame = FrameWith(report);
    change(*frame.mutable_report());
    ExpectRefused(frame, why);
  };
  using M = v1::Report;
  refused([](M& m) { m.mutable_gradients(0)->clear_variable(); },
          "report.gradients[0].variable: has 0 bytes");
  refused([](M& m) { m.mutable_gradients(0)->set_low(NAN); },
          "report.gradients[0].low: is not a finite number");
  refused([](M& m) { m.mutable_gradients(0)->set_high(-2); },
          "report.gradients[0].high: is below low");
  refused([](M& m) { m.mutable_gradients(0)->add_counts(1); },
          "report.gradients[0].counts: there are at most 30");
  refused(
      [](M& m) {
        while (m.gradients_size() <= GradientHistogram::kMost) *m.add_gradients() = m.gradients(0);
      },
      "report.gradients: has 257");
}

TEST(FrameTest, NegativeCountsAndDurationsAreRefused) {
  v1::FromWorkerFrame frame = FrameWith(Pong());
  frame.mutable_pong()->set_blocked_for_ns(-1);
  ExpectRefused(frame, "pong.blocked_for_ns: is -1");
  ExpectRefused(FrameWith(Pong{-1, 0, {}, {}}), "pong.running: is -1");
  ExpectRefused(FrameWith(Pong{0, 0, 70000, {}}), "pong.blocked_on_ps: is 70000");
  ExpectRefused(FrameWith(ResourceReady{ResourceId(1), {}, -1, {}}),
                "resource_ready.elements: is -1");
  ExpectRefused(FrameWith(ResourceReady{ResourceId(1), {}, 1, ElementDigest{1, std::nan(""), 1}}),
                "resource_ready.first.projection: is not a finite number");
  ExpectRefused(FrameWith(NeedSlots{EntryId(1), {{"", Sgd{0.1}}}}),
                "need_slots.slots[0].variable: has 0 bytes");
}

}  // namespace
}  // namespace divvy::wire
