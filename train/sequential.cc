#include "train/sequential.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/recording.h"

namespace divvy {
namespace {

absl::Status Wants(absl::string_view wanted, const Shape& input) {
  return absl::InvalidArgumentError(
      absl::StrCat("wants an input of shape ", wanted, ", and gets ", input.ToString()));
}

absl::Status CheckImage(const Shape& input) {
  return input.rank() == 3 ? absl::OkStatus() : Wants("[height, width, channels]", input);
}

// The shape of a batch of examples.
Shape Batched(int64_t batch, const Shape& example) {
  std::vector<int64_t> dims = {batch};
  dims.insert(dims.end(), example.dims().begin(), example.dims().end());
  return Shape(absl::MakeConstSpan(dims));
}

int64_t RoundedUp(int64_t size, int stride) { return (size + stride - 1) / stride; }

}  // namespace

template <typename Made>
Sequential::Placed Sequential::Place(Made layer, const Shape& output) {
  const Layer parts = layer;
  return {output,
          [layer = std::move(layer)](GradientTape& tape, const Var& x) { return layer(tape, x); },
          parts};
}

Sequential::Stage Sequential::Dense(int64_t outputs, Activation activation,
                                    const LayerOptions& options) {
  return Stage([=](const std::string& name, const Shape& input) -> absl::StatusOr<Placed> {
    if (input.rank() != 1)
      return Wants("[inputs] (put Sequential::Flatten() before a Dense)", input);
    if (outputs < 1)
      return absl::InvalidArgumentError(
          absl::StrCat("outputs is ", outputs, ", wanted at least 1"));
    return Place(divvy::Dense(name, input.dim(0), outputs, activation, options), Shape{outputs});
  });
}

Sequential::Stage Sequential::Conv(int64_t out_channels, int kernel, int stride,
                                   Activation activation, const LayerOptions& options) {
  return Stage([=](const std::string& name, const Shape& input) -> absl::StatusOr<Placed> {
    RETURN_IF_ERROR(CheckImage(input));
    if (out_channels < 1 || kernel < 1 || stride < 1) {
      return absl::InvalidArgumentError(absl::StrCat("out_channels is ", out_channels, ", kernel ",
                                                     kernel, " and stride ", stride,
                                                     ", wanted at least 1"));
    }
    return Place(
        divvy::Conv(name, input.dim(2), out_channels, kernel, stride, activation, options),
        Shape{RoundedUp(input.dim(0), stride), RoundedUp(input.dim(1), stride), out_channels});
  });
}

Sequential::Stage Sequential::MaxPool(int window, int given_stride) {
  const int stride = given_stride == 0 ? window : given_stride;
  return Stage([=](const std::string&, const Shape& input) -> absl::StatusOr<Placed> {
    RETURN_IF_ERROR(CheckImage(input));
    if (window < 1 || stride < 1 || window > std::min(input.dim(0), input.dim(1))) {
      return absl::InvalidArgumentError(absl::StrCat("a window of ", window, " and a stride of ",
                                                     stride, " do not fit an input of shape ",
                                                     input.ToString()));
    }
    return Placed{Shape{(input.dim(0) - window) / stride + 1, (input.dim(1) - window) / stride + 1,
                        input.dim(2)},
                  [=](GradientTape&, const Var& x) { return MaxPool2D(x, window, stride); }};
  });
}

Sequential::Stage Sequential::Flatten() {
  return Stage([](const std::string&, const Shape& input) -> absl::StatusOr<Placed> {
    const Shape flat{input.num_elements()};
    return Placed{flat, [flat](GradientTape&, const Var& x) {
                    return Reshape(x, Batched(x.shape().dim(0), flat));
                  }};
  });
}

Sequential::Stage Sequential::Dropout(float rate) {
  return Apply([rate](const Var& x) { return divvy::Dropout(x, rate); });
}

Sequential::Stage Sequential::Apply(std::function<Var(const Var&)> function) {
  return Stage([function = std::move(function)](const std::string&,
                                                const Shape& input) -> absl::StatusOr<Placed> {
    return Placed{input, [function](GradientTape&, const Var& x) { return function(x); }};
  });
}

Sequential::Sequential(std::string name, const Shape& input, std::vector<Stage> stages)
    : name_(std::move(name)), input_(input), shape_(input) {
  if (!input.status().ok() || input.num_elements() < 0)
    problem = absl::InvalidArgumentError(
        absl::StrCat("layer ", name_, ": the input's shape ", input.ToString(),
                     " is not fully known: give each dimension of one example"));
  for (size_t i = 0; i < stages.size() && problem.ok(); ++i) {
    absl::StatusOr<Placed> placed = stages[i].make_(absl::StrCat(name_, "/", i), shape_);
    if (!placed.ok()) {
      problem = absl::InvalidArgumentError(
          absl::StrCat("layer ", name_, ": stage ", i, ": ", placed.status().message()));
      break;
    }
    shape_ = placed->output;
    stages_.push_back({shape_, std::move(placed->function)});
    for (VariableSpec& variable : placed->layer.variables) {
      names_.push_back(variable.name);
      variables.push_back(std::move(variable));
    }
    penalties.insert(penalties.end(), placed->layer.penalties.begin(),
                     placed->layer.penalties.end());
  }
  if (problem.ok()) return;
  shape_ = Shape{-2};
  variables.clear();
  penalties.clear();
  names_.clear();
}

Var Sequential::operator()(GradientTape& tape, const Var& x) const {
  if (!problem.ok()) return internal::FailedVar(problem);
  if (!x.status().ok()) return x;
  if (x.shape().rank() == 0 || x.shape() != Batched(x.shape().dim(0), input_)) {
    return internal::FailedVar(absl::InvalidArgumentError(
        absl::StrCat("layer ", name_, ": wants examples of shape ", input_.ToString(),
                     ", and gets a batch of shape ", x.shape().ToString())));
  }
  tape.Prefetch(names_);  // one round trip for all stages
  const int64_t batch = x.shape().dim(0);
  Var y = x;
  for (size_t i = 0; i < stages_.size() && y.status().ok(); ++i) {
    y = stages_[i].function(tape, y);
    if (y.status().ok() && y.shape() != Batched(batch, stages_[i].output)) {
      return internal::FailedVar(absl::InvalidArgumentError(
          absl::StrCat("layer ", name_, ": stage ", i, ": returned ", y.shape().ToString(),
                       " instead of ", Batched(batch, stages_[i].output).ToString(),
                       ": the function of Apply must keep the "
                       "shape")));
    }
  }
  return y;
}

}  // namespace divvy
