#include "ops/gradient_tape.h"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "ops/ops.h"
#include "ops/recording.h"
#include "ops/testing/map_reader.h"
#include "ops/testing/place.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;

using Names = std::vector<std::string>;

Tensor Floats(Shape shape, std::vector<float> values) {
  return There(*Tensor::Copy<float>(shape, values));
}
Tensor Ids(Shape shape, std::vector<int64_t> values) {
  return *Tensor::Copy<int64_t>(shape, values);
}

template <typename T>
std::vector<T> ValuesOf(const absl::StatusOr<Tensor>& value) {
  EXPECT_TRUE(value.ok()) << value.status();
  if (!value.ok()) return {};
  const absl::StatusOr<Tensor> here = value->To(Device{});
  EXPECT_TRUE(here.ok()) << here.status();
  if (!here.ok()) return {};
  const auto values = here->values<T>();
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() ? std::vector<T>(values->begin(), values->end()) : std::vector<T>();
}
std::vector<float> FloatsOf(const Var& var) { return ValuesOf<float>(var.Value()); }

// A table of five rows, and two dense variables.
MapReader Reader() {
  return MapReader({{"table", Floats({5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})},
                    {"w", Floats({2}, {3, 4})},
                    {"b", Tensor::Scalar(0.5f)}},
                   *TestDevice());
}

Nest Sparse(std::vector<int64_t> ids, std::vector<int64_t> row_splits,
            std::vector<float> weights = {}) {
  SparseIds sparse{Tensor::Vector<int64_t>(ids), Tensor::Vector<int64_t>(row_splits), std::nullopt};
  if (!weights.empty()) sparse.weights = Tensor::Vector<float>(weights);
  return sparse;
}

// ---- reading ------------------------------------------------------------------------------------

TEST(ReadTest, FetchesEverythingPendingInOneCall) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const Var w = tape.Read("w"), rows = tape.Lookup("table", Ids({3}, {0, 3, 1})),
            b = tape.Read("b");
  const Var bag = tape.LookupSparse("table", Sparse({4, 2}, {0, 2}), Combiner::kSum);
  EXPECT_THAT(reader.calls(), IsEmpty());
  EXPECT_THAT(FloatsOf(w + b), ElementsAre(3.5, 4.5));
  EXPECT_THAT(FloatsOf(rows), ElementsAre(1, 2, 7, 8, 3, 4));
  EXPECT_THAT(FloatsOf(bag), ElementsAre(14, 16));
  EXPECT_THAT(reader.calls(), ElementsAre(Names{"w", "table[3]", "b", "table[2]"}));
}

TEST(ReadTest, AskingForAShapeOrTheStatusFetches) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  EXPECT_EQ((Shape{2}), tape.Read("w").shape());
  EXPECT_EQ(absl::OkStatus(), tape.Read("b").status());
  EXPECT_THAT(reader.calls(), ElementsAre(Names{"w"}, Names{"b"}));
}

TEST(ReadTest, AVariableHasOneValueWithinAStep) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const Var before = tape.Read("w") * 1.0f;
  reader.Set("w", Floats({2}, {0, 0}));
  EXPECT_THAT(FloatsOf(tape.Read("w")), ElementsAre(3, 4));
  EXPECT_EQ(1u, reader.calls().size());
}

TEST(ReadTest, PrefetchMakesVariablesPendingNow) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  tape.Prefetch({"w", "b"});
  EXPECT_THAT(reader.calls(), IsEmpty());
  EXPECT_THAT(FloatsOf(tape.Read("w") * tape.Read("b")), ElementsAre(1.5, 2));
  EXPECT_THAT(reader.calls(), ElementsAre(Names{"w", "b"}));
}

TEST(ReadTest, AnErrorOfTheReaderIsThatOfEveryPendingVar) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const Var good = tape.Read("w"), bad = tape.Read("nobody");
  EXPECT_EQ(absl::StatusCode::kNotFound, (good + good).status().code());
  EXPECT_EQ(good.status(), bad.status());
  EXPECT_EQ(good.status(), tape.Gradient(ReduceSum(good)).status());
}

// ---- lookups ------------------------------------------------------------------------------------

TEST(LookupTest, GivesIdsShapePlusRowShape) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const Var rows = tape.Lookup("table", *Tensor::Copy<int32_t>({2, 1, 2}, {0, 4, 2, 2}));
  EXPECT_EQ((Shape{2, 1, 2, 2}), rows.shape());
  EXPECT_THAT(FloatsOf(rows), ElementsAre(1, 2, 9, 10, 5, 6, 5, 6));
  EXPECT_EQ((Shape{0, 2}), tape.Lookup("table", Ids({0}, {})).shape());
}

TEST(LookupTest, ARowThatIsAskedForAgainAndAgainIsReadOnceAndItsGradientsStandAsTheyWereAskedFor) {
  MapReader reader({{"table", Floats({4, 2}, {0, 1, 10, 11, 20, 21, 30, 31})}}, *TestDevice());
  GradientTape tape(reader);
  const Var rows = tape.Lookup("table", Ids({2, 3}, {3, 1, 3, 3, 0, 1}));
  EXPECT_EQ(FloatsOf(rows), std::vector<float>({30, 31, 10, 11, 30, 31, 30, 31, 0, 1, 10, 11}));
  ASSERT_EQ(reader.calls().size(), 1u);
  EXPECT_EQ(reader.calls()[0], std::vector<std::string>({"table[3]"}));
  const absl::StatusOr<Gradients> gradients = tape.Gradient(ReduceSum(rows * rows));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  const auto& slices = std::get<IndexedSlices>(gradients->entries().at("table"));
  EXPECT_EQ(std::vector<int64_t>(slices.ids.values<int64_t>()->begin(),
                                 slices.ids.values<int64_t>()->end()),
            std::vector<int64_t>({3, 1, 3, 3, 0, 1}));
  EXPECT_EQ(slices.rows.shape(), (Shape{6, 2}));
  const absl::StatusOr<IndexedSlices> summed = SumDuplicates(slices);
  ASSERT_TRUE(summed.ok());
  EXPECT_EQ(FloatsOf(Var(summed->rows)), std::vector<float>({0, 2, 40, 44, 180, 186}));
}

TEST(GradientOfSumTest, IsTheGradientOfTheSumThatIsNotComputed) {
  const auto gradient = [](bool fused) {
    MapReader reader({{"w", Floats({3}, {1, 2, 3})}}, *TestDevice());
    GradientTape tape(reader);
    const Var w = tape.Read("w"), squares = w * w;
    const absl::StatusOr<Gradients> gradients =
        fused ? tape.GradientOfSum(squares, 0.5) : tape.Gradient(ReduceSum(squares) * 0.5f);
    return FloatsOf(Var(std::get<Tensor>(gradients->entries().at("w"))));
  };
  EXPECT_EQ(gradient(true), std::vector<float>({1, 2, 3}));
  EXPECT_EQ(gradient(true), gradient(false));
}

TEST(GradientOfSumTest, RefusesWhatGradientRefusesButForTheShape) {
  MapReader reader({{"w", Floats({3}, {1, 2, 3})}}, *TestDevice());
  GradientTape tape(reader);
  const Var w = tape.Read("w");
  EXPECT_EQ(tape.Gradient(w * w).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tape.GradientOfSum(Var(Ids({2}, {1, 2}))).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "no floating target";
  ASSERT_TRUE(tape.GradientOfSum(w * w).ok());
  EXPECT_EQ(tape.GradientOfSum(w * w).status().code(), absl::StatusCode::kFailedPrecondition)
      << "twice";
}

TEST(LookupTest, ClipsRowsToMaxNorm) {
  MapReader reader({{"table", Floats({2, 2}, {3, 4, 0.3f, 0.4f})}});
  GradientTape tape(reader);
  LookupOptions options;
  options.max_norm = 1;
  EXPECT_THAT(FloatsOf(tape.Lookup("table", Ids({2}, {0, 1}), options)),
              Pointwise(::testing::FloatEq(), {0.6f, 0.8f, 0.3f, 0.4f}));
}

TEST(LookupTest, RefusesWhatItCannotLookUp) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  LookupOptions safe, negative_norm, default_id;
  safe.safe = true;
  negative_norm.max_norm = -1;
  default_id.default_id = 1;
  const Tensor ids = Ids({1}, {0});
  for (const auto& [var, word] : std::vector<std::pair<Var, std::string>>{
           {tape.Lookup("table", Floats({1}, {0})), "not integers"},
           {tape.Lookup("table", ids, safe), "LookupSparse"},
           {tape.Lookup("table", ids, negative_norm), "max_norm is -1"},
           {tape.Lookup("table", ids, default_id), "safe"},
           {tape.LookupSparse("table", Nest(ids), Combiner::kSum), "table"},
           {tape.LookupSparse("table", Sparse({0}, {0, 2}), Combiner::kSum), "row_splits"}}) {
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, var.status().code()) << word;
    EXPECT_THAT(std::string(var.status().message()), HasSubstr(word));
  }
  EXPECT_THAT(reader.calls(), IsEmpty());
}

TEST(LookupTest, AnIdWithoutARowIsInvalid) {
  MapReader reader = Reader();
  for (int64_t id : {-1, 5}) {
    GradientTape tape(reader);
    EXPECT_EQ(absl::StatusCode::kInvalidArgument,
              tape.Lookup("table", Ids({2}, {0, id})).status().code())
        << id;
  }
}

TEST(LookupTest, CarriesTheErrorOfItsIds) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const Var failed = internal::FailedVar(absl::DataLossError("torn"));
  EXPECT_EQ(absl::DataLossError("torn"), tape.Lookup("table", failed).status());
}

std::vector<float> Bag(const Nest& ids, Combiner combiner, const LookupOptions& options = {}) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  return FloatsOf(tape.LookupSparse("table", ids, combiner, options));
}

TEST(LookupSparseTest, CombinesEachList) {
  EXPECT_THAT(Bag(Sparse({0, 3, 4, 1}, {0, 2, 3, 4}), Combiner::kMean),
              ElementsAre(4, 5, 9, 10, 3, 4));
  EXPECT_THAT(Bag(Sparse({0, 2}, {0, 2}, {3, 4}), Combiner::kSqrtN),
              Pointwise(::testing::FloatEq(), {4.6f, 6.0f}));
  EXPECT_THAT(Bag(Sparse({0, 2}, {0, 2}, {3, 4}), Combiner::kSum), ElementsAre(23, 30));
}

TEST(LookupSparseTest, GivesARowForEveryListEvenTheLastEmptyOnes) {
  EXPECT_THAT(Bag(Sparse({1}, {0, 0, 1, 1, 1}), Combiner::kMean),
              ElementsAre(0, 0, 3, 4, 0, 0, 0, 0));
  EXPECT_THAT(Bag(Sparse({}, {0}), Combiner::kSum), IsEmpty());
}

TEST(LookupSparseTest, ADivisorOfZeroGivesZeros) {
  EXPECT_THAT(Bag(Sparse({0, 1}, {0, 2}, {1, -1}), Combiner::kMean), ElementsAre(0, 0));
  EXPECT_THAT(Bag(Sparse({0}, {0, 1}, {0}), Combiner::kSqrtN), ElementsAre(0, 0));
}

TEST(LookupSparseTest, RefusesWeightsThatAreNotOneForEachId) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  for (const Nest& ids : {Sparse({0, 1}, {0, 2}, {1}), Sparse({0, 1}, {0, 2}, {1, 2, 3})}) {
    const absl::Status status = tape.LookupSparse("table", ids, Combiner::kMean).status();
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
    EXPECT_THAT(std::string(status.message()), HasSubstr("weights"));
  }
  EXPECT_THAT(reader.calls(), IsEmpty());
}

TEST(LookupSparseTest, TheSafeFormDropsNegativeIdsAndWeights) {
  LookupOptions safe;
  safe.safe = true;
  const Nest ids = Sparse({0, -1, -1, 1, 2}, {0, 2, 3, 5}, {1, 1, 1, 1, -1});
  EXPECT_THAT(Bag(ids, Combiner::kMean, safe), ElementsAre(1, 2, 0, 0, 3, 4));
  // kSum keeps weights <= 0
  EXPECT_THAT(Bag(ids, Combiner::kSum, safe), ElementsAre(1, 2, 0, 0, -2, -2));
}

TEST(LookupSparseTest, TheSafeFormFillsEmptyListsWithDefaultId) {
  LookupOptions safe;
  safe.safe = true;
  safe.default_id = 4;
  EXPECT_THAT(Bag(Sparse({-1, 0}, {0, 1, 1, 2}), Combiner::kSqrtN, safe),
              ElementsAre(9, 10, 9, 10, 1, 2));
}

// ---- gradients ----------------------------------------------------------------------------------

const IndexedSlices& Slices(const absl::StatusOr<Gradients>& gradients, const std::string& name) {
  return std::get<IndexedSlices>(gradients->entries().at(name));
}
std::vector<float> Dense(const absl::StatusOr<Gradients>& gradients, const std::string& name) {
  return ValuesOf<float>(std::get<Tensor>(gradients->entries().at(name)));
}

TEST(GradientTest, OfATableIsItsRowsAsAskedFor) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const Var rows = tape.Lookup("table", Ids({2, 2}, {2, 0, 2, 4}));
  const auto gradients =
      tape.Gradient(ReduceSum(rows * Floats({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(absl::OkStatus(), Validate(Slices(gradients, "table")));
  EXPECT_EQ(5, Slices(gradients, "table").num_rows);
  EXPECT_THAT(ValuesOf<int64_t>(Slices(gradients, "table").ids), ElementsAre(2, 0, 2, 4));
  EXPECT_THAT(ValuesOf<float>(Slices(gradients, "table").rows),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(GradientTest, JoinsSeveralLookupsOfOneTable) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const Var once = tape.Lookup("table", Ids({1}, {3})),
            bag = tape.LookupSparse("table", Sparse({1, 3}, {0, 2}), Combiner::kMean);
  const auto gradients = tape.Gradient(ReduceSum(once) + ReduceSum(bag));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_THAT(ValuesOf<int64_t>(Slices(gradients, "table").ids), ElementsAre(3, 1, 3));
  EXPECT_THAT(ValuesOf<float>(Slices(gradients, "table").rows),
              ElementsAre(1, 1, 0.5, 0.5, 0.5, 0.5));
}

TEST(GradientTest, OfALookupWithoutIdsHasNoRows) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const auto gradients = tape.Gradient(ReduceSum(tape.Lookup("table", Ids({0}, {}))));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ((Shape{0, 2}), Slices(gradients, "table").rows.shape());
}

// Compares the gradient of a lookup in a float64 table with central differences.
void CheckLookup(const std::function<Var(GradientTape& tape)>& lookup) {
  Tensor table = *Tensor::Copy<double>({4, 2}, {0.3, -1.2, 2.1, 0.4, -0.7, 0.9, 0.05, 0.1});
  const auto weighted = [&](GradientTape& tape) {
    const Var result = lookup(tape);
    std::vector<double> weights(result.shape().num_elements());
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = 1 + 0.3 * static_cast<double>(i);
    return ReduceSum(Reshape(result, {-1}) * Var(There(Tensor::Vector<double>(weights))));
  };
  MapReader reader({{"table", table}}, *TestDevice());
  GradientTape tape(reader);
  const auto gradients = tape.Gradient(weighted(tape));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  std::vector<double> dense(8, 0), expected(8);
  const std::vector<int64_t> ids = ValuesOf<int64_t>(Slices(gradients, "table").ids);
  const std::vector<double> rows = ValuesOf<double>(Slices(gradients, "table").rows);
  for (size_t i = 0; i < rows.size(); ++i) dense[2 * ids[i / 2] + i % 2] += rows[i];
  for (size_t i = 0; i < expected.size(); ++i) {
    double sides[2];
    for (int side : {0, 1}) {
      Tensor moved = table;
      (*moved.mutable_values<double>())[i] += side == 0 ? 1e-5 : -1e-5;
      MapReader other({{"table", moved}}, *TestDevice());
      GradientTape inference(other, GradientTape::Mode::kInference);
      sides[side] = ValuesOf<double>(weighted(inference).Value())[0];
    }
    expected[i] = (sides[0] - sides[1]) / 2e-5;
  }
  EXPECT_THAT(dense, Pointwise(DoubleNear(1e-6), expected));
}

TEST(GradientTest, OfLookupsAgreesWithCentralDifferences) {
  LookupOptions clipped, safe;
  clipped.max_norm = 1;
  safe.max_norm = 0.8f;
  safe.safe = true;
  safe.default_id = 3;
  const Nest ids = Sparse({0, 1, 0, 3, 2}, {0, 3, 3, 5}, {0.5, 2, 1, -1, 3});
  const Nest with_holes = Sparse({0, -1, 2, -5, 1}, {0, 2, 3, 4, 5}, {1, 1, 2, 1, -4});
  CheckLookup([](GradientTape& tape) {
    return Square(tape.Lookup("table", Ids({4}, {0, 2, 2, 1})));
  });
  CheckLookup([&](GradientTape& tape) {
    return tape.Lookup("table", Ids({4}, {0, 2, 3, 1}), clipped);
  });
  for (Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN}) {
    CheckLookup([&](GradientTape& tape) { return tape.LookupSparse("table", ids, combiner); });
    CheckLookup(
        [&](GradientTape& tape) { return tape.LookupSparse("table", ids, combiner, clipped); });
    CheckLookup(
        [&](GradientTape& tape) { return tape.LookupSparse("table", with_holes, combiner, safe); });
  }
}

TEST(GradientTest, HasNoEntryForWhatTheTargetDoesNotDependOn) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  tape.Prefetch({"b"});
  const Var w = tape.Read("w"), unused = Exp(tape.Watch("mine", Floats({1}, {1})));
  const auto gradients = tape.Gradient(ReduceSum(w) + 0.0f * StopGradient(ReduceSum(unused)));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(1u, gradients->entries().size());
  EXPECT_THAT(Dense(gradients, "w"), ElementsAre(1, 1));
}

TEST(GradientTest, OfAConstantIsEmptyAndOfAVariableItselfOne) {
  MapReader reader = Reader();
  GradientTape constant(reader), identity(reader);
  EXPECT_TRUE(constant.Gradient(Var(1.0f))->entries().empty());
  EXPECT_THAT(Dense(identity.Gradient(identity.Read("b")), "b"), ElementsAre(1));
}

TEST(GradientTest, WantsAFloatingScalar) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const absl::Status status = tape.Gradient(tape.Read("w")).status();
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("float32 [2]"), HasSubstr("ReduceMean")));
  EXPECT_EQ(absl::StatusCode::kInvalidArgument,
            tape.Gradient(Tensor::Scalar<int32_t>(1)).status().code());
  // The tape can still be used after it has refused a target.
  EXPECT_EQ(absl::OkStatus(), tape.Gradient(ReduceSum(tape.Read("w"))).status());
}

TEST(GradientTest, CanBeAskedForOnce) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const Var target = ReduceSum(tape.Read("w"));
  EXPECT_EQ(absl::OkStatus(), tape.Gradient(target).status());
  EXPECT_EQ(absl::StatusCode::kFailedPrecondition, tape.Gradient(target).status().code());
  // The tape no longer records, but its values remain.
  EXPECT_THAT(FloatsOf(target * 2.0f), ElementsAre(14));
}

TEST(GradientTest, RefusesALookupInAVariableAlsoReadWhole) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const Var rows = tape.Lookup("table", Ids({1}, {0})), whole = tape.Read("table");
  const absl::Status status = tape.Gradient(ReduceSum(rows) + ReduceSum(whole)).status();
  EXPECT_EQ(absl::StatusCode::kFailedPrecondition, status.code());
  EXPECT_THAT(std::string(status.message()), HasSubstr("table"));
}

TEST(GradientTest, RefusesWhatBelongsToAnotherTape) {
  MapReader reader = Reader();
  GradientTape tape(reader), other(reader);
  const Var theirs = ReduceSum(other.Read("w"));
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, tape.Gradient(theirs).status().code());
  EXPECT_EQ(absl::StatusCode::kInvalidArgument,
            (theirs + ReduceSum(tape.Read("w"))).status().code());
}

TEST(GradientTest, IsRefusedInInferenceModeWhereNothingIsKept) {
  MapReader reader = Reader();
  GradientTape tape(reader, GradientTape::Mode::kInference);
  EXPECT_EQ(GradientTape::Mode::kInference, tape.mode());
  const Var target = ReduceSum(Square(tape.Read("w")));
  EXPECT_THAT(FloatsOf(target), ElementsAre(25));
  EXPECT_FALSE(internal::NeedsGradient(target));
  EXPECT_EQ(absl::StatusCode::kFailedPrecondition, tape.Gradient(target).status().code());
}

TEST(InferenceTest, RowsThatWereLookedUpAreFreedWithTheirVars) {
  int freed = 0;
  const std::vector<float> memory = {1, 2, 3, 4};
  class Borrowing : public VariableReader {
   public:
    Borrowing(const float* memory, int* freed) : memory_(memory), freed_(freed) {}
    absl::Status Read(absl::Span<ReadRequest> requests) override {
      for (ReadRequest& request : requests)
        request.value =
            *Tensor::Borrow(DType::kFloat32, {2, 2}, memory_, Device{}, [this] { ++*freed_; });
      return absl::OkStatus();
    }
    Device device() const override { return {}; }

   private:
    const float* memory_;
    int* freed_;
  } reader(memory.data(), &freed);
  GradientTape tape(reader, GradientTape::Mode::kInference);
  EXPECT_THAT(FloatsOf(tape.Lookup("table", Ids({2}, {0, 1}))), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(1, freed);
}

TEST(WatchTest, GivesTheGradientUnderItsName) {
  MapReader reader;
  GradientTape tape(reader);
  const Var x = tape.Watch("x", Floats({2}, {1, 2}));
  EXPECT_THAT(Dense(tape.Gradient(ReduceSum(Square(x))), "x"), ElementsAre(2, 4));
  EXPECT_THAT(reader.calls(), IsEmpty());
}

TEST(WatchTest, RefusesANameThatIsTaken) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  tape.Read("w");
  tape.Watch("x", Floats({1}, {1}));
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, tape.Watch("w", Floats({1}, {1})).status().code());
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, tape.Watch("x", Floats({1}, {1})).status().code());
}

// ---- operations of the program -----------------------------------------------------------------

Var Cube(GradientTape& tape, const Var& x) {
  const Var cubed = x * x * x;
  return tape.Record(*StopGradient(cubed).Value(), {x},
                     [x](const Tensor& gradient) -> absl::StatusOr<std::vector<Tensor>> {
                       ASSIGN_OR_RETURN(Tensor dx,
                                        (Var(gradient) * 3.0f * StopGradient(Square(x))).Value());
                       return std::vector<Tensor>{std::move(dx)};
                     });
}

TEST(RecordTest, DifferentiatesByTheFunctionGiven) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const Var y = Cube(tape, tape.Read("w"));
  EXPECT_THAT(FloatsOf(y), ElementsAre(27, 64));
  EXPECT_THAT(Dense(tape.Gradient(ReduceSum(y * 2.0f)), "w"), ElementsAre(54, 96));
}

TEST(RecordTest, RefusesGradientsThatDoNotFitTheInputs) {
  using Backward = std::function<absl::StatusOr<std::vector<Tensor>>(const Tensor&)>;
  const std::vector<std::pair<Backward, std::string>> cases = {
      {[](const Tensor&) { return std::vector<Tensor>(); }, "0 gradients for 2 inputs"},
      {[](const Tensor&) {
         return std::vector<Tensor>{Floats({3}, {1, 2, 3}), Tensor()};
       },
       "input 0 is float32 [3]; the input is float32 [2]"},
      {[](const Tensor&) -> absl::StatusOr<std::vector<Tensor>> {
         return absl::InvalidArgumentError("my own reason");
       },
       "my own reason"},
  };
  for (const auto& [backward, words] : cases) {
    MapReader reader = Reader();
    GradientTape tape(reader);
    const absl::Status status =
        tape.Gradient(tape.Record(Tensor::Scalar(1.0f), {tape.Read("w"), Var(1.0f)}, backward))
            .status();
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
}

TEST(RecordTest, CarriesTheErrorOfAnInput) {
  MapReader reader = Reader();
  GradientTape tape(reader);
  const Var failed = internal::FailedVar(absl::DataLossError("torn"));
  EXPECT_EQ(absl::DataLossError("torn"),
            tape.Record(Tensor::Scalar(1.0f), {failed},
                        [](const Tensor& g) { return std::vector<Tensor>{g}; })
                .status());
}

// ---- Gradients ----------------------------------------------------------------------------------

Gradients Some() {
  Gradients gradients;
  gradients.Set("dense", Floats({2}, {3, 0}));
  gradients.Set("rows", IndexedSlices{Ids({2}, {1, 1}), *Tensor::Copy<double>({2, 1}, {0, 4}), 3});
  return gradients;
}

TEST(GradientsTest, GlobalNormIsOverAllElements) {
  EXPECT_THAT(*Some().GlobalNorm(), DoubleEq(5));
  EXPECT_THAT(*Gradients().GlobalNorm(), DoubleEq(0));
}

TEST(GradientsTest, ScaleLeavesCopiesAlone) {
  Gradients gradients = Some();
  const Gradients copy = gradients;
  EXPECT_EQ(absl::OkStatus(), gradients.Scale(0.5));
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(gradients.entries().at("dense"))),
              ElementsAre(1.5, 0));
  EXPECT_THAT(ValuesOf<double>(std::get<IndexedSlices>(gradients.entries().at("rows")).rows),
              ElementsAre(0, 2));
  EXPECT_THAT(*copy.GlobalNorm(), DoubleEq(5));
}

TEST(GradientsTest, ClipsOnlyWhatIsLonger) {
  Gradients gradients = Some();
  EXPECT_EQ(absl::OkStatus(), gradients.ClipByGlobalNorm(10));
  EXPECT_THAT(*gradients.GlobalNorm(), DoubleEq(5));
  EXPECT_EQ(absl::OkStatus(), gradients.ClipByGlobalNorm(1));
  EXPECT_THAT(*gradients.GlobalNorm(), DoubleNear(1, 1e-7));
}

TEST(GradientsTest, RefusesToClipWhatHasNoFiniteNorm) {
  for (float bad : {NAN, INFINITY}) {
    Gradients gradients = Some();
    gradients.Set("broken", Floats({1}, {bad}));
    const absl::Status status = gradients.ClipByGlobalNorm(1);
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
    EXPECT_THAT(std::string(status.message()), HasSubstr("broken"));
    EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(gradients.entries().at("dense"))),
                ElementsAre(3, 0));
  }
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, Some().ClipByGlobalNorm(0).code());
}

TEST(GradientsTest, NamesTheVariableWhoseGradientIsNotComputedWith) {
  Gradients gradients = Some();
  gradients.Set("numbers", Ids({1}, {1}));
  for (const absl::Status& status :
       {gradients.Scale(2), gradients.GlobalNorm().status(), gradients.ClipByGlobalNorm(1)}) {
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("numbers"), HasSubstr("int64 [1]")));
  }
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(gradients.entries().at("dense"))),
              ElementsAre(3, 0));
}

}  // namespace
}  // namespace divvy
