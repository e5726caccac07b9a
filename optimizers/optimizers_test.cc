#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/casts.h"
#include "base/random.h"
#include "base/vector_level.h"
#include "gtest/gtest.h"
#include "optimizers/apply.h"
#include "optimizers/denormals.h"
#include "optimizers/learning_rate.h"
#include "optimizers/optimizer.h"

namespace divvy {
namespace {

std::vector<Optimizer> AllOptimizers() {
  return {Sgd{0.1},
          Momentum{0.1},
          Momentum{0.1, 0.9f, true},
          Adagrad{0.1},
          RowwiseAdagrad{0.1},
          Adam{0.1},
          Adam{0.1, 0.8f, 0.95f, 1e-3f, 0.02f},
          Adam{0.1, 0.8f, 0.95f, 1e-3f, 0.02f, /*amsgrad=*/true},
          RmsProp{0.1},
          RmsProp{0.1, 0.8f, 0.5f},
          RmsProp{0.1, 0.8f, 0, 1e-3f, /*centered=*/true},
          RmsProp{0.1, 0.8f, 0.5f, 1e-3f, /*centered=*/true},
          Ftrl{0.1, 0.02f, 0.05f},
          Ftrl{0.1, 0, 0, -0.7f, 0.1f, 0.3f, 0.01f},
          GroupFtrl{0.1, /*l21=*/0.3f, 0.02f, 0.05f},
          GroupFtrl{0.1, /*l21=*/0.3f, 0, 0, -0.7f, 0.1f, 0.3f, 0.01f}};
}

// ---- learning rates -----------------------------------------------------------------------------

TEST(LearningRateTest, ConstantIsTheSameAtEveryStep) {
  EXPECT_EQ(LearningRateAt(0.25, 0), 0.25);
  EXPECT_EQ(LearningRateAt(0.25, 1'000'000'000'000), 0.25);
}

TEST(LearningRateTest, ExponentialDecayHalvesEveryDecaySteps) {
  EXPECT_DOUBLE_EQ(LearningRateAt(ExponentialDecay{0.1, 10, 0.5}, 0), 0.1);
  EXPECT_DOUBLE_EQ(LearningRateAt(ExponentialDecay{0.1, 10, 0.5}, 5), 0.1 * std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(LearningRateAt(ExponentialDecay{0.1, 10, 0.5}, 20), 0.025);
  EXPECT_DOUBLE_EQ(LearningRateAt(ExponentialDecay{0.1, 10, 0.5, /*staircase=*/true}, 19), 0.05);
}

TEST(LearningRateTest, InverseTimeDecayDividesByTheTime) {
  EXPECT_DOUBLE_EQ(LearningRateAt(InverseTimeDecay{0.1, 10, 0.5}, 5), 0.1 / 1.25);
  EXPECT_DOUBLE_EQ(LearningRateAt(InverseTimeDecay{0.1, 10, 0.5, /*staircase=*/true}, 25), 0.05);
}

TEST(LearningRateTest, PolynomialDecayEndsAtItsFinalRate) {
  const PolynomialDecay decay{0.1, 20, 0.01, 2};
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 0), 0.1);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 10), 0.09 * 0.25 + 0.01);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 20), 0.01);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 1000), 0.01);
}

TEST(LearningRateTest, CosineDecayFallsToItsFinalFraction) {
  const CosineDecay decay{0.2, 30, 0.1};
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 0), 0.2);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 15), 0.11);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 30), 0.02);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 31), 0.02);
}

TEST(LearningRateTest, CosineWarmUpIsAStraightLineFromZero) {
  const CosineDecay decay{0.2, 30, 0, /*warmup_steps=*/10};
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 0), 0);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 5), 0.1);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 10), 0.2);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 25), 0.1);
}

TEST(LearningRateTest, CosineWarmUpToATargetIsThatOfKeras) {
  const CosineDecay decay{0.1, 30, 0, /*warmup_steps=*/10, /*warmup_target=*/0.3};
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 0), 0.1);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 5), 0.2);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 10), 0.3);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 25), 0.15);
}

TEST(LearningRateTest, ATargetWithoutWarmUpIsWhereTheCosineBegins) {
  const CosineDecay decay{0.1, 30, 0.5, /*warmup_steps=*/0, /*warmup_target=*/0.4};
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 0), 0.4);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 15), 0.3);
  EXPECT_DOUBLE_EQ(LearningRateAt(decay, 30), 0.2);
}

TEST(LearningRateTest, APieceIncludesItsUpperBoundary) {
  const PiecewiseConstant pieces{{5, 10}, {1, 0.5, 0.1}};
  EXPECT_EQ(LearningRateAt(pieces, 0), 1);
  EXPECT_EQ(LearningRateAt(pieces, 5), 1);
  EXPECT_EQ(LearningRateAt(pieces, 6), 0.5);
  EXPECT_EQ(LearningRateAt(pieces, 10), 0.5);
  EXPECT_EQ(LearningRateAt(pieces, 11), 0.1);
}

TEST(LearningRateTest, RefusesWhatCannotBeEvaluated) {
  const std::tuple<LearningRate, std::string> cases[] = {
      {NAN, "the rate is nan"},
      {ExponentialDecay{0.1, 0, 0.5}, "decay_steps is 0; give at least 1"},
      {ExponentialDecay{INFINITY, 1, 0.5}, "initial is inf"},
      {ExponentialDecay{0.1, 1, NAN}, "rate is nan"},
      {InverseTimeDecay{0.1, -1, 0.5}, "decay_steps is -1"},
      {InverseTimeDecay{NAN, 1, 0.5}, "initial is nan"},
      {InverseTimeDecay{0.1, 1, INFINITY}, "rate is inf"},
      {PolynomialDecay{0.1, 0}, "decay_steps is 0"},
      {PolynomialDecay{NAN, 1}, "initial is nan"},
      {PolynomialDecay{0.1, 1, NAN}, "final_rate is nan"},
      {PolynomialDecay{0.1, 1, 0, NAN}, "power is nan"},
      {CosineDecay{0.1, 0}, "decay_steps is 0"},
      {CosineDecay{NAN, 1}, "initial is nan"},
      {CosineDecay{0.1, 1, NAN}, "final_fraction is nan"},
      {CosineDecay{0.1, 1, 0, -1}, "warmup_steps is -1"},
      {CosineDecay{0.1, 1, 0, 1, NAN}, "warmup_target is nan"},
      {PiecewiseConstant{{1}, {1}}, "1 boundaries need 2 values, not 1"},
      {PiecewiseConstant{{2, 2}, {1, 1, 1}}, "boundaries must rise"},
      {PiecewiseConstant{{}, {NAN}}, "a value is nan"},
  };
  for (const auto& [rate, problem] : cases) {
    const absl::Status status = Validate(rate);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(problem), std::string::npos) << status;
  }
  EXPECT_TRUE(Validate(LearningRate(PiecewiseConstant{{}, {1}})).ok());
}

TEST(LearningRateTest, ANegativeRateAscends) {
  EXPECT_TRUE(Validate(LearningRate(-0.1)).ok());
  EXPECT_TRUE(Validate(LearningRate(ExponentialDecay{-0.1, 1, 0.5})).ok());
}

// ---- options, slots, scalars --------------------------------------------------------------------

TEST(OptimizerTest, SlotsAreThoseOfKerasAndAdamsCount) {
  EXPECT_TRUE(SlotsOf(Sgd{0.1}).empty());
  EXPECT_EQ(SlotsOf(Momentum{0.1}), std::vector<SlotSpec>({{"momentum"}}));
  EXPECT_EQ(SlotsOf(Adagrad{0.1, 0.5f}),
            std::vector<SlotSpec>({{"accumulator", SlotSpec::Kind::kValues, 0.5f}}));
  EXPECT_EQ(SlotsOf(RowwiseAdagrad{0.1, 0.5f}),
            std::vector<SlotSpec>({{"accumulator", SlotSpec::Kind::kRowValues, 0.5f}}));
  EXPECT_EQ(SlotsOf(Adam{0.1}),
            std::vector<SlotSpec>({{"m"}, {"v"}, {"t", SlotSpec::Kind::kRowCounts}}));
  EXPECT_EQ(SlotsOf(Ftrl{0.1}),
            std::vector<SlotSpec>({{"accumulator", SlotSpec::Kind::kValues, 0.1f}, {"linear"}}));
}

TEST(OptimizerTest, AFormThatNeedsMoreSlotsHasThemBehindThoseOfThePlainOne) {
  const SlotSpec m{"m"}, v{"v"}, t{"t", SlotSpec::Kind::kRowCounts}, vhat{"vhat"}, rms{"rms"},
      momentum{"momentum"}, mg{"mg"};
  EXPECT_EQ(SlotsOf(Adam{0.1, 0.9f, 0.999f, 1e-7f, 0, /*amsgrad=*/true}),
            std::vector<SlotSpec>({m, v, t, vhat}));
  EXPECT_EQ(SlotsOf(RmsProp{0.1}), std::vector<SlotSpec>({rms}));
  EXPECT_EQ(SlotsOf(RmsProp{0.1, 0.9f, 0.5f}), std::vector<SlotSpec>({rms, momentum}));
  EXPECT_EQ(SlotsOf(RmsProp{0.1, 0.9f, 0, 1e-7f, /*centered=*/true}),
            std::vector<SlotSpec>({rms, mg}));
  EXPECT_EQ(SlotsOf(RmsProp{0.1, 0.9f, 0.5f, 1e-7f, /*centered=*/true}),
            std::vector<SlotSpec>({rms, momentum, mg}));
}

TEST(OptimizerTest, AStepTellsTheKindsOfItsSlots) {
  for (const Optimizer& optimizer : AllOptimizers()) {
    std::vector<SlotSpec::Kind> kinds;
    for (const SlotSpec& slot : SlotsOf(optimizer)) kinds.push_back(slot.kind);
    EXPECT_EQ(SlotKindsOf(StepOf(optimizer, 0)), kinds) << OptimizerName(optimizer);
    EXPECT_LE(kinds.size(), static_cast<size_t>(ParameterBlock::kMaxSlots));
  }
}

TEST(OptimizerTest, SlotShapesFollowTheParameter) {
  const SlotSpec m{"m"}, t{"t", SlotSpec::Kind::kRowCounts},
      row{"accumulator", SlotSpec::Kind::kRowValues};
  EXPECT_EQ(row.ShapeFor({4, 3, 2}), Shape({4}));
  EXPECT_EQ(row.dtype(), DType::kFloat32);
  EXPECT_EQ(m.ShapeFor({4, 3, 2}), Shape({4, 3, 2}));
  EXPECT_EQ(t.ShapeFor({4, 3, 2}), Shape({4}));
  EXPECT_EQ(t.ShapeFor({}), Shape());
  EXPECT_EQ(m.dtype(), DType::kFloat32);
  EXPECT_EQ(t.dtype(), DType::kInt32);
}

TEST(OptimizerTest, AStepHoldsTheRateOfItsOrdinalTimesTheScale) {
  const OptimizerStep step =
      StepOf(Adam{PiecewiseConstant{{3}, {0.5, 0.25}}, 0.8f, 0.9f, 1e-3f, 0.02f}, /*ordinal=*/4,
             /*learning_rate_scale=*/2);
  OptimizerStep expected;
  expected.kind = OptimizerKind::kAdam;
  expected.learning_rate = 0.5f;
  expected.beta1 = 0.8f;
  expected.beta2 = 0.9f;
  expected.epsilon = 1e-3f;
  expected.weight_decay = 0.02f;
  EXPECT_EQ(step, expected);
  EXPECT_NE(step, StepOf(Sgd{0.5}, 0));
}

TEST(OptimizerTest, RefusesOptionsOutOfRangeAndNamesThem) {
  const std::tuple<Optimizer, std::string> cases[] = {
      {Sgd{NAN}, "Sgd: learning rate: the rate is nan"},
      {Momentum{0.1, 1.5f}, "Momentum: momentum is 1.5; give a finite number in [0, 1]"},
      {Adagrad{0.1, -1}, "Adagrad: initial_accumulator is -1; give a finite number at least 0"},
      {Adagrad{0.1, 0.1f, -1}, "Adagrad: epsilon is -1"},
      {Adam{0.1, 1}, "Adam: beta1 is 1; give a finite number in [0, 1)"},
      {Adam{0.1, 0.9f, -0.1f}, "Adam: beta2 is -0.1"},
      {Adam{0.1, 0.9f, 0.99f, NAN}, "Adam: epsilon is nan"},
      {Adam{0.1, 0.9f, 0.99f, 0, -1}, "Adam: weight_decay is -1"},
      {RowwiseAdagrad{0.1, -1}, "RowwiseAdagrad: initial_accumulator is -1"},
      {RowwiseAdagrad{0.1, 0.1f, NAN}, "RowwiseAdagrad: epsilon is nan"},
      {RmsProp{0.1, 1.5f}, "RmsProp: rho is 1.5; give a finite number in [0, 1]"},
      {RmsProp{0.1, 0.9f, -1}, "RmsProp: momentum is -1"},
      {RmsProp{0.1, 0.9f, 0, -1}, "RmsProp: epsilon is -1"},
      {Ftrl{0.0}, "Ftrl: the learning rate is 0; give one above 0"},
      {Ftrl{-0.5}, "Ftrl: the learning rate is -0.5; give one above 0"},
      {Ftrl{PiecewiseConstant{{5}, {0, 1}}}, "Ftrl: the learning rate is 0; give one above 0"},
      {Ftrl{0.1, -1}, "Ftrl: l1 is -1"},
      {Ftrl{0.1, 0, -1}, "Ftrl: l2 is -1"},
      {Ftrl{0.1, 0, 0, 0.5f}, "Ftrl: learning_rate_power is 0.5; give a finite number at most 0"},
      {Ftrl{0.1, 0, 0, -0.5f, INFINITY}, "Ftrl: initial_accumulator is inf"},
      {Ftrl{0.1, 0, 0, -0.5f, 0, -1}, "Ftrl: beta is -1"},
      {Ftrl{0.1, 0, 0, -0.5f, 0, 0, -1}, "Ftrl: l2_shrinkage is -1"},
      {Adam{ExponentialDecay{1, 0, 1}}, "Adam: learning rate: decay_steps is 0"},
  };
  for (const auto& [optimizer, problem] : cases) {
    const absl::Status status = Validate(optimizer);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(problem), std::string::npos)
        << status << " for " << problem;
  }
}

TEST(OptimizerStepTest, IsCheckedWhereItArrives) {
  EXPECT_TRUE(Validate(StepOf(Adam{0.1}, 0)).ok());
  OptimizerStep unknown;
  unknown.kind = static_cast<OptimizerKind>(99);
  EXPECT_EQ(Validate(unknown).message(),
            "unknown optimizer kind 99; this server is older than its caller");
  OptimizerStep infinite = StepOf(Sgd{0.1}, 0);
  infinite.learning_rate = INFINITY;
  EXPECT_EQ(Validate(infinite).message(), "Sgd: the learning rate is inf; give a finite number");
  EXPECT_EQ(Validate(StepOf(Ftrl{PiecewiseConstant{{0}, {1, 0}}}, 5)).message(),
            "Ftrl: the learning rate is 0; give one above 0");
}

// A caller may have another build or be malicious, so any field may have a value that
// Validate(Optimizer) would have refused.
TEST(OptimizerStepTest, EachScalarThatItsKernelUsesIsCheckedAndNamed) {
  using Field = float OptimizerStep::*;
  const std::tuple<Optimizer, Field, float, std::string> cases[] = {
      {Momentum{0.1}, &OptimizerStep::momentum, 1.5f,
       "Momentum: momentum is 1.5; give a finite number in [0, 1]"},
      {Adagrad{0.1}, &OptimizerStep::epsilon, -1,
       "Adagrad: epsilon is -1; give a finite number at least 0"},
      {RowwiseAdagrad{0.1}, &OptimizerStep::epsilon, NAN,
       "RowwiseAdagrad: epsilon is nan; give a finite number at least 0"},
      {Adam{0.1}, &OptimizerStep::beta1, 1, "Adam: beta1 is 1; give a finite number in [0, 1)"},
      {Adam{0.1}, &OptimizerStep::beta2, -1, "Adam: beta2 is -1; give a finite number in [0, 1)"},
      {Adam{0.1}, &OptimizerStep::epsilon, INFINITY,
       "Adam: epsilon is inf; give a finite number at least 0"},
      {Adam{0.1}, &OptimizerStep::weight_decay, -1,
       "Adam: weight_decay is -1; give a finite number at least 0"},
      {RmsProp{0.1}, &OptimizerStep::rho, 2, "RmsProp: rho is 2; give a finite number in [0, 1]"},
      {RmsProp{0.1}, &OptimizerStep::momentum, NAN,
       "RmsProp: momentum is nan; give a finite number in [0, 1]"},
      {RmsProp{0.1}, &OptimizerStep::epsilon, -1,
       "RmsProp: epsilon is -1; give a finite number at least 0"},
      {Ftrl{0.1}, &OptimizerStep::l1, -1, "Ftrl: l1 is -1; give a finite number at least 0"},
      {Ftrl{0.1}, &OptimizerStep::l2, NAN, "Ftrl: l2 is nan; give a finite number at least 0"},
      {Ftrl{0.1}, &OptimizerStep::learning_rate_power, 1,
       "Ftrl: learning_rate_power is 1; give a finite number at most 0"},
      {Ftrl{0.1}, &OptimizerStep::beta, -1, "Ftrl: beta is -1; give a finite number at least 0"},
      {Ftrl{0.1}, &OptimizerStep::l2_shrinkage, -1,
       "Ftrl: l2_shrinkage is -1; give a finite number at least 0"},
      {GroupFtrl{0.1}, &OptimizerStep::l21, -1,
       "GroupFtrl: l21 is -1; give a finite number at least 0"},
      {GroupFtrl{0.1}, &OptimizerStep::l1, -1,
       "GroupFtrl: l1 is -1; give a finite number at least 0"},
      {GroupFtrl{0.1}, &OptimizerStep::learning_rate, 0,
       "GroupFtrl: the learning rate is 0; give one above 0"},
  };
  for (const auto& [optimizer, field, value, problem] : cases) {
    OptimizerStep step = StepOf(optimizer, 0);
    ASSERT_TRUE(Validate(step).ok()) << problem;
    step.*field = value;
    EXPECT_EQ(Validate(step), absl::InvalidArgumentError(problem));
  }
}

// ---- arithmetic ---------------------------------------------------------------------------------

// A parameter with its slots, which owns its memory.
struct Parameter {
  Parameter(const Optimizer& optimizer, std::vector<float> initial, int64_t width)
      : values(std::move(initial)), width(width) {
    for (const SlotSpec& slot : SlotsOf(optimizer)) {
      const size_t elements =
          slot.kind == SlotSpec::Kind::kValues ? values.size() : values.size() / width;
      const bool counts = slot.kind == SlotSpec::Kind::kRowCounts;
      slots.push_back(slot);
      float_slots.push_back(std::vector<float>(counts ? 0 : elements, slot.initial_value));
      count_slots.push_back(std::vector<int32_t>(counts ? elements : 0));
    }
  }
  ParameterBlock Rows(int64_t first, int64_t count) {
    ParameterBlock block;
    block.values = absl::MakeSpan(values).subspan(first * width, count * width);
    block.width = width;
    for (size_t i = 0; i < float_slots.size(); ++i) {
      const int64_t per_row = slots[i].kind == SlotSpec::Kind::kValues ? width : 1;
      if (!float_slots[i].empty())
        block.slots[i].values =
            absl::MakeSpan(float_slots[i]).subspan(first * per_row, count * per_row);
      if (!count_slots[i].empty())
        block.slots[i].counts = absl::MakeSpan(count_slots[i]).subspan(first, count);
    }
    return block;
  }
  ParameterBlock All() { return Rows(0, values.size() / width); }
  friend bool operator==(const Parameter& a, const Parameter& b) {
    return a.values == b.values && a.float_slots == b.float_slots && a.count_slots == b.count_slots;
  }

  std::vector<float> values;
  int64_t width;
  std::vector<SlotSpec> slots;
  std::vector<std::vector<float>> float_slots;
  std::vector<std::vector<int32_t>> count_slots;
};

std::vector<float> Numbers(Random& random, size_t count) {
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(random.Uniform() * 2 - 1);
  return numbers;
}

TEST(SgdTest, TakesAStepAgainstTheGradient) {
  Parameter w(Sgd{0.5}, {1, 2}, 1);
  ApplyDense(StepOf(Sgd{0.5}, 0), w.All(), {2, -4});
  EXPECT_EQ(w.values, std::vector<float>({0, 4}));
}

TEST(MomentumTest, KeepsPartOfTheLastStep) {
  const Momentum momentum{0.5, 0.5f};
  Parameter w(momentum, {0}, 1);
  ApplyDense(StepOf(momentum, 0), w.All(), {2});
  EXPECT_EQ(w.values[0], -1);
  ApplyDense(StepOf(momentum, 1), w.All(), {2});
  EXPECT_EQ(w.float_slots[0][0], -1.5f);
  EXPECT_EQ(w.values[0], -2.5f);
}

TEST(MomentumTest, NesterovLooksAhead) {
  const Momentum momentum{0.5, 0.5f, /*nesterov=*/true};
  Parameter w(momentum, {0}, 1);
  ApplyDense(StepOf(momentum, 0), w.All(), {2});
  EXPECT_EQ(w.float_slots[0][0], -1);
  EXPECT_EQ(w.values[0], -1.5f);
}

TEST(AdagradTest, DividesByTheRootOfTheSumOfSquares) {
  const Adagrad adagrad{1.0, 0, 0};
  Parameter w(adagrad, {0}, 1);
  ApplyDense(StepOf(adagrad, 0), w.All(), {3});
  EXPECT_EQ(w.values[0], -1);
  ApplyDense(StepOf(adagrad, 1), w.All(), {4});
  EXPECT_EQ(w.float_slots[0][0], 25);
  EXPECT_FLOAT_EQ(w.values[0], -1.8f);
}

TEST(RowwiseAdagradTest, DividesARowByTheRootOfItsMeanSquares) {
  const RowwiseAdagrad adagrad{1.0, 0, 0};
  Parameter w(adagrad, {0, 0, 0, 0}, 2);
  ApplyDense(StepOf(adagrad, 0), w.All(), {1, 7, 3, -3});  // means of squares 25 and 9
  EXPECT_EQ(w.float_slots[0], std::vector<float>({25, 9}));
  EXPECT_FLOAT_EQ(w.values[0], -0.2f);
  EXPECT_FLOAT_EQ(w.values[1], -1.4f);
  EXPECT_EQ(w.values[2], -1);
  EXPECT_EQ(w.values[3], 1);
}

// a += mean(g^2), w -= lr g / (sqrt(a) + epsilon) in double, from the same float32 gradients: the
// kernel may differ by the rounding of float32 in 20 steps.
TEST(RowwiseAdagradTest, AgreesWithItsFormulaInDoublePrecision) {
  const uint64_t seed = 33;
  SCOPED_TRACE(seed);
  Random random(seed);
  const RowwiseAdagrad adagrad{0.05, 0.1f, 1e-3f};
  for (const int64_t width : {1, 2, 7, 8, 9, 64, 100}) {
    const int64_t rows = 5;
    Parameter w(adagrad, Numbers(random, rows * width), width);
    std::vector<double> values(w.values.begin(), w.values.end()), accumulators(rows, 0.1f);
    for (int ordinal = 0; ordinal < 20; ++ordinal) {
      const std::vector<float> gradient = Numbers(random, rows * width);
      ApplyDense(StepOf(adagrad, ordinal), w.All(), gradient);
      for (int64_t row = 0; row < rows; ++row) {
        double squares = 0;
        for (int64_t i = row * width; i < (row + 1) * width; ++i)
          squares += double{gradient[i]} * gradient[i];
        accumulators[row] += squares / static_cast<double>(width);
        const double divisor = std::sqrt(accumulators[row]) + 1e-3f;
        for (int64_t i = row * width; i < (row + 1) * width; ++i)
          values[i] -= 0.05 * gradient[i] / divisor;
      }
    }
    for (int64_t i = 0; i < rows * width; ++i)
      EXPECT_NEAR(w.values[i], values[i], 1e-6) << "element " << i << " of width " << width;
    for (int64_t row = 0; row < rows; ++row)
      EXPECT_NEAR(w.float_slots[0][row], accumulators[row], 1e-5)
          << "row " << row << " of width " << width;
  }
}

TEST(RowwiseAdagradTest, OfRowsOfOneElementIsAdagrad) {
  Parameter rowwise(RowwiseAdagrad{0.1}, {0.5f, -1, 2}, 1), adagrad(Adagrad{0.1}, {0.5f, -1, 2}, 1);
  for (int ordinal = 0; ordinal < 3; ++ordinal) {
    ApplyDense(StepOf(RowwiseAdagrad{0.1}, ordinal), rowwise.All(), {1, -0.5f, 0.25f});
    ApplyDense(StepOf(Adagrad{0.1}, ordinal), adagrad.All(), {1, -0.5f, 0.25f});
  }
  for (int i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(rowwise.values[i], adagrad.values[i]);
  EXPECT_EQ(rowwise.float_slots, adagrad.float_slots);
}

TEST(AdamTest, TheFirstStepHasTheSizeOfTheLearningRate) {
  Parameter w(Adam{0.1}, {1, 1}, 2);
  ApplyDense(StepOf(Adam{0.1}, 0), w.All(), {1e-2f, -100});
  EXPECT_NEAR(w.values[0], 0.9f, 1e-4);
  EXPECT_NEAR(w.values[1], 1.1f, 1e-6);
  EXPECT_EQ(w.count_slots[2], std::vector<int32_t>({1}));
}

TEST(AdamTest, WeightDecayShrinksTheOldParameter) {
  const Adam adam{0.5, 0.9f, 0.999f, 1e-7f, /*weight_decay=*/0.1f};
  Parameter w(adam, {2}, 1);
  ApplyDense(StepOf(adam, 0), w.All(), {0});
  EXPECT_FLOAT_EQ(w.values[0], 1.9f);
}

TEST(AdamTest, EachRowCountsItsOwnGradients) {
  Parameter w(Adam{0.1}, {1, 1, 1}, 1);
  const OptimizerStep step = StepOf(Adam{0.1}, 0);
  ApplySparse(step, w.All(), {1}, {1});
  ApplyDense(step, w.All(), {1, 1, 1});
  ApplySparse(step, w.All(), {0, 1}, {1, 1});
  EXPECT_EQ(w.count_slots[2], std::vector<int32_t>({2, 3, 1}));
  // Row 0 has had two gradients and row 2 one. What happened to row 1 meanwhile does not matter.
  Parameter alone(Adam{0.1}, {1}, 1);
  ApplyDense(step, alone.All(), {1});
  EXPECT_EQ(w.values[2], alone.values[0]);
  ApplyDense(step, alone.All(), {1});
  EXPECT_EQ(w.values[0], alone.values[0]);
}

// SparseAdam of PyTorch and LazyAdam of TensorFlow Addons, in double: moments of the named rows
// alone; t counts the steps of the optimizer.
struct LazyAdam {
  std::vector<double> w, m, v;
  int64_t width, t = 0;

  void Apply(absl::Span<const int64_t> rows, absl::Span<const float> gradient) {
    ++t;
    const double rate = 0.1 * std::sqrt(1 - std::pow(0.95f, t)) / (1 - std::pow(0.8f, t));
    for (size_t i = 0; i < gradient.size(); ++i) {
      const size_t at = rows[i / width] * width + i % width;
      m[at] += (1 - 0.8f) * (gradient[i] - m[at]);
      v[at] += (1 - 0.95f) * (double{gradient[i]} * gradient[i] - v[at]);
      w[at] -= rate * m[at] / (std::sqrt(v[at]) + 1e-3f);
    }
  }
};

TEST(AdamTest, IsSparseAdamOfRowsThatEveryGradientNames) {
  const uint64_t seed = 41;
  SCOPED_TRACE(seed);
  Random random(seed);
  const Adam adam{0.1, 0.8f, 0.95f, 1e-3f};
  Parameter ours(adam, Numbers(random, 12), 3);
  LazyAdam lazy{{ours.values.begin(), ours.values.end()},
                std::vector<double>(12),
                std::vector<double>(12),
                3};
  const std::vector<float> untouched(ours.values.begin(), ours.values.begin() + 3);
  const std::vector<int64_t> rows = {2, 1, 3};
  for (int ordinal = 0; ordinal < 20; ++ordinal) {
    const std::vector<float> gradient = Numbers(random, 9);
    ApplySparse(StepOf(adam, ordinal), ours.All(), rows, gradient);
    lazy.Apply(rows, gradient);
  }
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(ours.values[i], lazy.w[i], 2e-5) << "element " << i;
  EXPECT_EQ(std::vector<float>(ours.values.begin(), ours.values.begin() + 3), untouched);
}

TEST(AdamTest, HasTheMomentsOfSparseAdamForAnyRowsAndCorrectsTheBiasOfEachRow) {
  const uint64_t seed = 42;
  SCOPED_TRACE(seed);
  Random random(seed);
  const Adam adam{0.1, 0.8f, 0.95f, 1e-3f};
  Parameter ours(adam, {0, 0, 0, 0, 0, 0}, 2);
  LazyAdam lazy{std::vector<double>(6), std::vector<double>(6), std::vector<double>(6), 2};
  for (int ordinal = 0; ordinal < 20; ++ordinal) {
    // Row 0 each time, row 1 every third time, row 2 the last time alone.
    std::vector<int64_t> rows = {0};
    if (ordinal % 3 == 0) rows.push_back(1);
    if (ordinal == 19) rows.push_back(2);
    const std::vector<float> gradient = Numbers(random, rows.size() * 2);
    ApplySparse(StepOf(adam, ordinal), ours.All(), rows, gradient);
    lazy.Apply(rows, gradient);
  }
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(ours.float_slots[0][i], lazy.m[i], 1e-6) << "element " << i;
    EXPECT_NEAR(ours.float_slots[1][i], lazy.v[i], 1e-6) << "element " << i;
  }
  EXPECT_EQ(ours.count_slots[2], std::vector<int32_t>({20, 7, 1}));
  for (const size_t i : {0, 1}) EXPECT_NEAR(ours.values[i], lazy.w[i], 2e-5) << "element " << i;
  // A row's first step has the size of the learning rate, whenever it comes; epsilon takes a
  // little.
  for (const size_t i : {4, 5}) EXPECT_NEAR(std::abs(ours.values[i]), 0.1, 0.005) << i;
}

TEST(AdamTest, TheCountSaturates) {
  const int32_t most = std::numeric_limits<int32_t>::max();
  Parameter w(Adam{0.1}, {1, 1}, 1);
  w.count_slots[2] = {most - 1, most};
  ApplyDense(StepOf(Adam{0.1}, 0), w.All(), {1, 1});
  ApplySparse(StepOf(Adam{0.1}, 0), w.All(), {0, 1}, {1, 1});
  EXPECT_EQ(w.count_slots[2], std::vector<int32_t>({most, most}));
  EXPECT_TRUE(std::isfinite(w.values[0]));
}

TEST(AdamTest, AmsgradDividesByTheGreatestSecondMomentSoFar) {
  // betas 0: m is the gradient, v its square
  const Adam plain{0.1, 0, 0}, amsgrad{0.1, 0, 0, 0, 0, /*amsgrad=*/true};
  Parameter a(plain, {0}, 1), b(amsgrad, {0}, 1);
  for (const float gradient : {4.0f, 1.0f}) {
    ApplyDense(StepOf(plain, 0), a.All(), {gradient});
    ApplyDense(StepOf(amsgrad, 0), b.All(), {gradient});
  }
  EXPECT_FLOAT_EQ(a.values[0], -0.2f);
  EXPECT_FLOAT_EQ(b.values[0], -0.1f - 0.1f / 4);
  EXPECT_EQ(b.float_slots[1][0], 1);
  EXPECT_EQ(b.float_slots[3][0], 16);
}

TEST(RmsPropTest, DividesByTheRootOfAMovingMeanOfSquares) {
  const RmsProp rms_prop{0.5, 0.75f, 0, 0};
  Parameter w(rms_prop, {0}, 1);
  ApplyDense(StepOf(rms_prop, 0), w.All(), {4});
  EXPECT_EQ(w.float_slots[0][0], 4);
  EXPECT_EQ(w.values[0], -1);
}

TEST(RmsPropTest, EpsilonStandsUnderTheRootOnlyWithMomentum) {
  const RmsProp without{0.5, 0.75f, 0, 5}, with{0.5, 0.75f, 0.5f, 5};
  Parameter a(without, {0}, 1), b(with, {0}, 1);
  ApplyDense(StepOf(without, 0), a.All(), {4});
  ApplyDense(StepOf(with, 0), b.All(), {4});
  EXPECT_FLOAT_EQ(a.values[0], -2.0f / 7);
  EXPECT_FLOAT_EQ(b.values[0], -2.0f / 3);
  ApplyDense(StepOf(with, 1), b.All(), {0});
  EXPECT_FLOAT_EQ(b.values[0], -1) << "half of the previous step continues";
}

TEST(RmsPropTest, CenteredDividesByTheStandardDeviation) {
  const RmsProp rms_prop{0.5, 0.75f, 0, 0, /*centered=*/true};
  Parameter w(rms_prop, {0}, 1);
  ApplyDense(StepOf(rms_prop, 0), w.All(), {4});
  EXPECT_EQ(w.float_slots[1][0], 1);
  EXPECT_FLOAT_EQ(w.values[0], -2 / std::sqrt(3.0f));
}

TEST(RmsPropTest, AVarianceThatRoundsBelowZeroCountsAsZero) {
  const RmsProp rms_prop{0.5, 1, 0, 0.25f, /*centered=*/true};  // rho 1: the slots stay as they are
  Parameter w(rms_prop, {0}, 1);
  w.float_slots = {{1}, {std::nextafter(1.0f, 2.0f)}};
  ApplyDense(StepOf(rms_prop, 0), w.All(), {1});
  EXPECT_EQ(w.values[0], -2);
}

TEST(FtrlTest, L1HoldsSmallCoefficientsAtZero) {
  const Ftrl ftrl{1.0, /*l1=*/1, 0, -0.5f, /*initial_accumulator=*/1};
  Parameter w(ftrl, {0, 0}, 2);
  ApplyDense(StepOf(ftrl, 0), w.All(), {0.5f, -std::sqrt(3.0f)});
  EXPECT_EQ(w.values[0], 0);
  EXPECT_FLOAT_EQ(w.values[1], (std::sqrt(3.0f) - 1) / 2);  // (1 - sqrt 3) / -(sqrt(1 + 3))
}

TEST(FtrlTest, AnyPowerAgreesWithTheSquareRootNearIt) {
  const Ftrl half{0.1, 0.02f, 0.05f, -0.5f}, nearly{0.1, 0.02f, 0.05f, -0.500001f};
  Parameter a(half, {0.5f, -1, 2}, 1), b(nearly, {0.5f, -1, 2}, 1);
  for (int step = 0; step < 5; ++step) {
    ApplyDense(StepOf(half, step), a.All(), {1, -0.5f, 0.25f});
    ApplyDense(StepOf(nearly, step), b.All(), {1, -0.5f, 0.25f});
  }
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(a.values[i], b.values[i], 1e-4);
}

TEST(GroupFtrlTest, IsFtrlWithoutAGroupPenalty) {
  const uint64_t seed = 51;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (const float power : {-0.5f, -0.7f}) {
    const Ftrl ftrl{0.1, 0.02f, 0.05f, power, 0.1f, 0.3f, 0.01f};
    const GroupFtrl group{0.1, /*l21=*/0, 0.02f, 0.05f, power, 0.1f, 0.3f, 0.01f};
    Parameter a(ftrl, Numbers(random, 30), 10), b(group, a.values, 10);
    for (int ordinal = 0; ordinal < 5; ++ordinal) {
      const std::vector<float> gradient = Numbers(random, 30);
      ApplyDense(StepOf(ftrl, ordinal), a.All(), gradient);
      ApplyDense(StepOf(group, ordinal), b.All(), gradient);
    }
    EXPECT_TRUE(a == b) << power;
  }
}

// In double, with naive loops, from the formula of the header.
TEST(GroupFtrlTest, AgreesWithItsFormulaInDoublePrecision) {
  const uint64_t seed = 52;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (const int64_t width : {1, 2, 7, 8, 9, 64, 100}) {
    const double l21 = 0.5, l1 = 0.05, l2 = 0.02, power = -0.6, beta = 0.3, shrinkage = 0.01;
    const GroupFtrl rule{0.2, 0.5f, 0.05f, 0.02f, -0.6f, 0.1f, 0.3f, 0.01f};
    const int64_t rows = 4;
    Parameter ours(rule, std::vector<float>(rows * width), width);
    std::vector<double> w(rows * width), n(rows * width, 0.1f), z(rows * width);
    int zero_rows = 0;
    for (int ordinal = 0; ordinal < 12; ++ordinal) {
      std::vector<float> gradient = Numbers(random, rows * width);
      // Those of row 0 are small and have no direction, those of rows 2 and 3 have one.
      for (int64_t i = 0; i < width; ++i) gradient[i] *= 0.2f;
      for (int64_t i = 2 * width; i < rows * width; ++i) gradient[i] += 0.5f;
      ApplyDense(StepOf(rule, ordinal), ours.All(), gradient);
      for (int64_t row = 0; row < rows; ++row) {
        double squares = 0;
        std::vector<double> s(width), q(width);
        for (int64_t i = 0; i < width; ++i) {
          const int64_t at = row * width + i;
          const double g = gradient[at], grown = n[at] + g * g;
          z[at] += g + 2 * shrinkage * w[at] -
                   (std::pow(grown, -power) - std::pow(n[at], -power)) / 0.2 * w[at];
          n[at] = grown;
          s[i] = z[at] - std::min(std::max(z[at], -l1), l1);
          q[i] = std::pow(grown, -power) / 0.2 + 2 * l2 + beta / 0.2;
          squares += s[i] * s[i];
        }
        const double kept = squares == 0
                                ? 0
                                : std::max(0.0, 1 - l21 * std::sqrt(static_cast<double>(width)) /
                                                        std::sqrt(squares));
        zero_rows += kept == 0;
        for (int64_t i = 0; i < width; ++i) w[row * width + i] = -kept * s[i] / q[i];
      }
    }
    EXPECT_GT(zero_rows, 0) << width;
    EXPECT_LT(zero_rows, rows * 12) << width;
    for (int64_t i = 0; i < rows * width; ++i)
      EXPECT_NEAR(ours.values[i], w[i], 2e-5) << "element " << i << " of width " << width;
  }
}

// The subgradient of z w + q/2 w^2 + l1 |w| + l21 sqrt(width) ||w|| is 0 at the minimum.
TEST(GroupFtrlTest, ARowOfEqualAccumulatorsIsTheMinimumOfTheObjective) {
  const GroupFtrl rule{0.5, /*l21=*/0.4f, /*l1=*/0.1f};
  Parameter row(rule, {0, 0, 0, 0}, 4);
  ApplyDense(StepOf(rule, 0), row.All(), {1, -1, 1, 1});  // z is g, and n' is 1.1 everywhere
  double norm = 0;
  for (const float w : row.values) norm += double{w} * w;
  norm = std::sqrt(norm);
  ASSERT_GT(norm, 0);
  for (int i = 0; i < 4; ++i) {
    const double w = row.values[i], z = row.float_slots[1][i];
    EXPECT_NEAR(z + std::sqrt(1.1) / 0.5 * w + 0.1 * (w > 0 ? 1 : -1) + 0.4 * 2 * w / norm, 0, 1e-6)
        << "element " << i;
  }
}

TEST(GroupFtrlTest, SetsWholeRowsToZeroWhereFtrlKeepsSmallWeights) {
  const GroupFtrl rule{0.5, /*l21=*/0.1f};
  // ||s|| of row 0 is 0.2, not above 0.1 sqrt(4); that of row 1 is 2.
  const std::vector<float> gradient = {0.1f, -0.1f, 0.1f, 0.1f, 1, 1, -1, 1};
  Parameter group(rule, {0, 0, 0, 0, 0, 0, 0, 0}, 4), alone(Ftrl{0.5}, group.values, 4);
  ApplyDense(StepOf(rule, 0), group.All(), gradient);
  ApplyDense(StepOf(Ftrl{0.5}, 0), alone.All(), gradient);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(group.values[i], 0) << i;
    EXPECT_FALSE(std::signbit(group.values[i])) << i;
    EXPECT_NE(alone.values[i], 0) << i;
  }
  for (int i = 4; i < 8; ++i) EXPECT_NEAR(group.values[i], 0.9 * alone.values[i], 1e-6) << i;
  EXPECT_EQ(group.float_slots, alone.float_slots);
}

TEST(GroupFtrlTest, ARowThatTheGradientPullsLongEnoughComesBack) {
  const GroupFtrl rule{0.5, /*l21=*/1};
  Parameter row(rule, {0, 0}, 2);
  int steps = 0;
  while (row.values[0] == 0 && steps < 100) ApplyDense(StepOf(rule, steps++), row.All(), {0.3f, 0});
  EXPECT_EQ(steps, 5);  // ||s|| is 1.5, the first multiple of 0.3 above sqrt(2)
  EXPECT_LT(row.values[0], 0);
}

TEST(ApplyTest, BlocksOfAnySizeGiveTheSameBits) {
  const uint64_t seed = 31;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (const Optimizer& optimizer : AllOptimizers()) {
    const std::vector<float> initial = Numbers(random, 37 * 3);
    Parameter whole(optimizer, initial, 3), cut(optimizer, initial, 3);
    for (int ordinal = 0; ordinal < 5; ++ordinal) {
      const OptimizerStep step = StepOf(optimizer, ordinal);
      const std::vector<float> gradient = Numbers(random, initial.size());
      ApplyDense(step, whole.All(), gradient);
      for (int64_t first = 0, rows; first < 37; first += rows) {
        rows = std::min<int64_t>(1 + random.Below(8), 37 - first);
        ApplyDense(step, cut.Rows(first, rows),
                   absl::MakeConstSpan(gradient).subspan(first * 3, rows * 3));
      }
    }
    EXPECT_TRUE(whole == cut) << OptimizerName(optimizer);
  }
}

// Ordinary numbers, and among them NaN, infinities, zeros, denormals and the ends of the range.
std::vector<float> AnyNumbers(Random& random, size_t count) {
  using Limits = std::numeric_limits<float>;
  const float odd[] = {Limits::quiet_NaN(),
                       Limits::infinity(),
                       -Limits::infinity(),
                       0.0f,
                       -0.0f,
                       Limits::denorm_min(),
                       -3e-41f,
                       Limits::min(),
                       Limits::max(),
                       1e-20f};
  std::vector<float> numbers = Numbers(random, count);
  for (float& number : numbers) {
    if (random.Chance(0.1)) number = odd[random.Below(std::size(odd))];
  }
  return numbers;
}

// The bits, except that one NaN is as good as another: IEEE 754 leaves open which operand's NaN an
// operation returns, and compilers exchange operands.
std::vector<uint32_t> BitsOf(const std::vector<float>& numbers) {
  std::vector<uint32_t> bits;
  for (const float number : numbers)
    bits.push_back(std::isnan(number) ? 0x7FC00000u : absl::bit_cast<uint32_t>(number));
  return bits;
}

std::vector<std::vector<uint32_t>> BitsOf(const Parameter& parameter) {
  std::vector<std::vector<uint32_t>> bits = {BitsOf(parameter.values)};
  for (const std::vector<float>& slot : parameter.float_slots) bits.push_back(BitsOf(slot));
  return bits;
}

TEST(ApplyTest, EveryVectorLevelGivesTheSameBits) {
  const uint64_t seed = 33;
  SCOPED_TRACE(seed);
  Random random(seed);
  const VectorLevel best = BestVectorLevel();
  for (const Optimizer& optimizer : AllOptimizers()) {
    for (const int64_t width : {1, 7, 16, 61, 250}) {
      const std::vector<float> initial = AnyNumbers(random, 5 * width),
                               dense = AnyNumbers(random, 5 * width),
                               sparse = AnyNumbers(random, 2 * width);
      std::vector<std::vector<std::vector<uint32_t>>> results;
      for (const VectorLevel level :
           {VectorLevel::kBase, VectorLevel::kAvx2, VectorLevel::kAvx512}) {
        SetVectorLevel(std::min(level, best));
        Parameter parameter(optimizer, initial, width);
        for (int ordinal = 0; ordinal < 3; ++ordinal) {
          const OptimizerStep step = StepOf(optimizer, ordinal);
          ApplyDense(step, parameter.All(), dense);
          ApplySparse(step, parameter.All(), {1, 4}, sparse);
        }
        results.push_back(BitsOf(parameter));
      }
      EXPECT_EQ(results[0], results[1]) << OptimizerName(optimizer) << " " << width;
      EXPECT_EQ(results[0], results[2]) << OptimizerName(optimizer) << " " << width;
    }
  }
  SetVectorLevel(best);
}

TEST(ApplyTest, SparseIsDenseOnTheRowsNamedAndLeavesTheOthersAlone) {
  const uint64_t seed = 32;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (const Optimizer& optimizer : AllOptimizers()) {
    const std::vector<float> initial = Numbers(random, 6 * 2);
    Parameter sparse(optimizer, initial, 2), dense(optimizer, initial, 2);
    for (int ordinal = 0; ordinal < 5; ++ordinal) {
      const OptimizerStep step = StepOf(optimizer, ordinal);
      const std::vector<float> gradient = Numbers(random, 4);
      ApplySparse(step, sparse.Rows(1, 5), {12, 14}, gradient, /*first_row=*/11);  // rows 2 and 4
      ApplyDense(step, dense.Rows(2, 1), absl::MakeConstSpan(gradient).first(2));
      ApplyDense(step, dense.Rows(4, 1), absl::MakeConstSpan(gradient).last(2));
    }
    EXPECT_TRUE(sparse == dense) << OptimizerName(optimizer);
    EXPECT_EQ(sparse.values[0], initial[0]);
  }
}

TEST(ApplyTest, AnEmptyBlockIsNoTrouble) {
  for (const Optimizer& optimizer : AllOptimizers()) {
    Parameter none(optimizer, {}, 2);
    ApplyDense(StepOf(optimizer, 0), none.All(), {});
    ApplySparse(StepOf(optimizer, 0), none.All(), {}, {});
    ParameterBlock flat;  // rows without elements
    flat.width = 0;
    ApplyDense(StepOf(optimizer, 0), flat, {});
  }
}

TEST(CheckBlockTest, FindsSlotsOfTheWrongSize) {
  for (const Optimizer& optimizer : AllOptimizers()) {
    Parameter w(optimizer, {1, 2, 3, 4}, 2);
    EXPECT_TRUE(CheckBlock(StepOf(optimizer, 0), w.All()).ok());
    if (SlotsOf(optimizer).empty()) continue;
    ParameterBlock block = w.All();
    block.slots[0].values = block.slots[0].values.first(1);
    EXPECT_EQ(CheckBlock(StepOf(optimizer, 0), block).code(), absl::StatusCode::kInternal);
  }
  Parameter adam(Adam{0.1}, {1, 2, 3, 4}, 2);
  ParameterBlock block = adam.All();
  block.slots[2].counts = {};
  EXPECT_EQ(CheckBlock(StepOf(Adam{0.1}, 0), block).message(),
            "Adam was given 0 elements of slot 2 for a block that needs 2");
  block.width = 3;
  EXPECT_EQ(CheckBlock(StepOf(Adam{0.1}, 0), block).message(),
            "a block of 4 elements is not made of rows of 3");
}

#ifdef __SSE__
TEST(FlushDenormalsTest, LastsAsLongAsItsScope) {
  // volatile, so that the products are computed at run time and not by the compiler.
  volatile float least = std::numeric_limits<float>::min();
  volatile float half = 0.5f;
  EXPECT_GT(least * half, 0);
  {
    const FlushDenormals outer;
    EXPECT_EQ(least * half, 0);
    { const FlushDenormals inner; }
    EXPECT_EQ(least * half, 0);
    volatile float denormal = std::numeric_limits<float>::denorm_min();
    volatile float big = 0x1.0p100f;
    EXPECT_EQ(denormal * big, 0);
  }
  EXPECT_GT(least * half, 0);
}
#endif

}  // namespace
}  // namespace divvy
