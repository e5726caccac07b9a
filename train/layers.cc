#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/fused.h"
#include "ops/recording.h"
#include "train/model.h"

namespace divvy {
namespace {

// activation(x + bias), in one pass if the derivative does not need the sum.
Var Activate(const Var& x, const Var& bias, Activation activation) {
  switch (activation) {
    case Activation::kRelu: return internal::AddThen(internal::UnaryOp::kRelu, x, bias);
    case Activation::kSigmoid: return internal::AddThen(internal::UnaryOp::kSigmoid, x, bias);
    case Activation::kTanh: return internal::AddThen(internal::UnaryOp::kTanh, x, bias);
    case Activation::kGelu: return Gelu(x + bias);
    case Activation::kNone: break;
  }
  return x + bias;
}

// Adds the layer's name to an error that arose in the layer. Errors of its operands arose elsewhere
// and are returned unchanged. The operands include variables, whose error need not belong to this
// layer: all requested variables are fetched together, and fail together.
Var In(absl::string_view layer, std::initializer_list<Var> operands, Var result) {
  const absl::Status status = result.status();
  if (status.ok()) return result;
  for (const Var& operand : operands) {
    if (!operand.status().ok()) return result;
  }
  return internal::FailedVar(
      absl::Status(status.code(), absl::StrCat("layer ", layer, ": ", status.message())));
}

std::string KernelName(const std::string& layer) { return layer + "/kernel"; }
std::string BiasName(const std::string& layer) { return layer + "/bias"; }

// The bias has as many elements as the kernel's last dimension.
void AddKernelAndBias(const std::string& name, const Shape& kernel, const LayerOptions& options,
                      Layer& layer) {
  layer.variables.push_back({KernelName(name), kernel, options.kernel, options.optimizer});
  layer.variables.push_back({BiasName(name), {kernel.dim(-1)}, options.bias, options.optimizer});
  if (options.l2 != 0) layer.penalties.push_back({KernelName(name), options.l2});
}

}  // namespace

Dense::Dense(std::string name, int64_t inputs, int64_t outputs, Activation activation,
             const LayerOptions& options)
    : name_(std::move(name)), activation_(activation) {
  AddKernelAndBias(name_, {inputs, outputs}, options, *this);
}

Var Dense::operator()(GradientTape& tape, const Var& x) const {
  const Var kernel = tape.Read(variables[0].name), bias = tape.Read(variables[1].name);
  return In(name_, {x, kernel, bias}, Activate(MatMul(x, kernel), bias, activation_));
}

Mlp::Mlp(std::string name, std::initializer_list<int64_t> widths, const LayerOptions& options) {
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const Activation activation = i + 2 < widths.size() ? Activation::kRelu : Activation::kNone;
    layers_.emplace_back(absl::StrCat(name, "/", i), widths.begin()[i], widths.begin()[i + 1],
                         activation, options);
    penalties.insert(penalties.end(), layers_.back().penalties.begin(),
                     layers_.back().penalties.end());
    for (const VariableSpec& variable : layers_.back().variables) {
      variables.push_back(variable);
      names_.push_back(variable.name);
    }
  }
}

Var Mlp::operator()(GradientTape& tape, const Var& x) const {
  tape.Prefetch(names_);  // one round trip for all layers
  Var y = x;
  for (const Dense& layer : layers_) y = layer(tape, y);
  return y;
}

Conv::Conv(std::string name, int64_t in_channels, int64_t out_channels, int kernel, int stride,
           Activation activation, const LayerOptions& options)
    : name_(std::move(name)), stride_(stride), activation_(activation) {
  AddKernelAndBias(name_, {kernel, kernel, in_channels, out_channels}, options, *this);
}

Var Conv::operator()(GradientTape& tape, const Var& x) const {
  const Var kernel = tape.Read(variables[0].name), bias = tape.Read(variables[1].name);
  return In(name_, {x, kernel, bias},
            Activate(Conv2D(x, kernel, stride_, Padding::kSame), bias, activation_));
}

Embedding::Embedding(std::string name, int64_t rows, int64_t width,
                     std::optional<Optimizer> optimizer, Initializer initializer)
    : name_(std::move(name)) {
  access = Access::kByRows;
  variables.push_back({name_, {rows, width}, std::move(initializer), std::move(optimizer)});
}

Embedding::Embedding(const DynamicTable& table) : name_(table.name) {
  access = Access::kByRows;
  variables.push_back(table);
}

Var Embedding::operator()(GradientTape& tape, const Var& ids, const LookupOptions& options) const {
  return tape.Lookup(name_, ids, options);
}

Var Embedding::Bag(GradientTape& tape, const Nest& sparse_ids, Combiner combiner,
                   const LookupOptions& options) const {
  return tape.LookupSparse(name_, sparse_ids, combiner, options);
}

}  // namespace divvy
