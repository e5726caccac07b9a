#include "variables/layout.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/edit_distance.h"
#include "base/random.h"

namespace divvy {
namespace {

// Writes values one after another in a form that only equal values share: numbers as 8
// little-endian bytes, texts and lists with their length.
class Canonical {
 public:
  void Add(uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }
  void AddNumber(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    Add(bits);
  }
  template <typename... Numbers>
  void AddNumbers(Numbers... values) {
    (AddNumber(static_cast<double>(values)), ...);
  }
  void Add(absl::string_view text) {
    Add(uint64_t{text.size()});
    bytes_.append(text.data(), text.size());
  }
  template <typename Int>
  void AddList(absl::Span<const Int> values) {
    Add(uint64_t{values.size()});
    for (Int value : values) Add(static_cast<uint64_t>(value));
  }
  uint64_t Hash() const { return HashText(bytes_); }

 private:
  std::string bytes_;
};

struct AddLearningRate {
  Canonical& out;
  void operator()(double rate) { out.AddNumber(rate); }
  void operator()(const ExponentialDecay& d) {
    out.AddNumbers(d.initial, d.decay_steps, d.rate, d.staircase);
  }
  void operator()(const InverseTimeDecay& d) {
    out.AddNumbers(d.initial, d.decay_steps, d.rate, d.staircase);
  }
  void operator()(const PolynomialDecay& d) {
    out.AddNumbers(d.initial, d.decay_steps, d.final_rate, d.power);
  }
  void operator()(const CosineDecay& d) {
    out.AddNumbers(d.initial, d.decay_steps, d.final_fraction, d.warmup_steps,
                   d.warmup_target.has_value(), d.warmup_target.value_or(0));
  }
  void operator()(const PiecewiseConstant& d) {
    out.AddList(absl::MakeConstSpan(d.boundaries));
    for (double value : d.values) out.AddNumber(value);
  }
};

struct AddOptimizer {
  Canonical& out;
  void operator()(const Sgd&) {}
  void operator()(const Momentum& o) { out.AddNumbers(o.momentum, o.nesterov); }
  void operator()(const Adagrad& o) { out.AddNumbers(o.initial_accumulator, o.epsilon); }
  void operator()(const RowwiseAdagrad& o) { out.AddNumbers(o.initial_accumulator, o.epsilon); }
  void operator()(const Adam& o) {
    out.AddNumbers(o.beta1, o.beta2, o.epsilon, o.weight_decay, o.amsgrad);
  }
  void operator()(const RmsProp& o) { out.AddNumbers(o.rho, o.momentum, o.epsilon, o.centered); }
  void operator()(const Ftrl& o) {
    out.AddNumbers(o.l1, o.l2, o.learning_rate_power, o.initial_accumulator, o.beta,
                   o.l2_shrinkage);
  }
  void operator()(const GroupFtrl& o) {
    out.AddNumbers(o.l21, o.l1, o.l2, o.learning_rate_power, o.initial_accumulator, o.beta,
                   o.l2_shrinkage);
  }
};

void Add(const Optimizer& optimizer, Canonical& out) {
  out.Add(uint64_t{optimizer.index()});
  const LearningRate& rate =
      std::visit([](const auto& o) -> const LearningRate& { return o.learning_rate; }, optimizer);
  out.Add(uint64_t{rate.index()});
  std::visit(AddLearningRate{out}, rate);
  std::visit(AddOptimizer{out}, optimizer);
}

struct AddTableRule {
  Canonical& out;
  void operator()(AdmitAlways) {}
  void operator()(const AdmitAfter& rule) {
    out.Add(static_cast<uint64_t>(rule.steps));
    out.Add(static_cast<uint64_t>(rule.counter_bytes));
  }
  void operator()(AdmitWithProbability rule) { out.AddNumber(rule.probability); }
  void operator()(EvictNever) {}
  void operator()(EvictUnusedFor rule) {
    out.Add(static_cast<uint64_t>(absl::ToInt64Minutes(rule.duration)));
  }
  void operator()(EvictBelowNorm rule) { out.AddNumber(rule.norm); }
  void operator()(EvictLeastUsed) {}
  void operator()(EvictLeastRecent) {}
};

void Add(const TableOptions& options, Canonical& out) {
  out.Add(uint64_t{options.admission.index()});
  std::visit(AddTableRule{out}, options.admission);
  out.Add(uint64_t{options.eviction.index()});
  std::visit(AddTableRule{out}, options.eviction);
  out.Add(static_cast<uint64_t>(options.absent));
  out.Add(static_cast<uint64_t>(options.max_rows));
  if (options.full == TableOptions::Full::kFail) out.Add(std::string("fail"));
}

// The initializers that a table can have.
struct AddKeyLaw {
  Canonical& out;
  void operator()(const Constant& law) { out.AddNumber(law.value); }
  void operator()(const RandomUniform& law) {
    out.AddNumbers(law.low, law.high);
    out.Add(law.seed);
  }
  void operator()(const RandomNormal& law) { AddNormal(law); }
  void operator()(const TruncatedNormal& law) { AddNormal(law); }
  template <typename Other>
  void operator()(const Other&) {}
  template <typename Normal>
  void AddNormal(const Normal& law) {
    out.AddNumbers(law.mean, law.stddev);
    out.Add(law.seed);
  }
};

void Add(const Initializer& initializer, Canonical& out) {
  out.Add(uint64_t{initializer.index()});
  std::visit(AddKeyLaw{out}, initializer);
}

void Add(const VariableLayout& variable, Canonical& out) {
  out.Add(uint64_t{variable.id.value()});
  out.Add(variable.spec.name);
  out.AddList(variable.spec.shape.dims());
  out.Add(static_cast<uint64_t>(variable.spec.dtype));
  out.Add(static_cast<uint64_t>(variable.spec.aggregation));
  out.Add(uint64_t{variable.spec.optimizer.has_value()});
  if (variable.spec.optimizer) Add(*variable.spec.optimizer, out);
  out.AddList(absl::MakeConstSpan(variable.offsets));
  out.AddList(absl::MakeConstSpan(variable.ps));
  out.Add(uint64_t{variable.slots.size()});
  for (size_t i = 0; i < variable.slots.size(); ++i) {
    out.Add(variable.SlotName(static_cast<int>(i)));
    out.Add(static_cast<uint64_t>(variable.slots[i].kind));
    out.AddNumber(variable.slots[i].initial_value);
  }
  // Last, and with a name, so that a layout without them has the hash that it had before there were
  // any.
  if (variable.spec.wire != WireFormat::kExact) {
    out.Add(std::string("wire"));
    out.Add(static_cast<uint64_t>(variable.spec.wire));
  }
  if (!variable.spec.table) return;
  out.Add(std::string("table"));
  Add(*variable.spec.table, out);
  Add(variable.spec.initializer, out);
}

uint64_t HashOf(const VariableLayout& variable) {
  Canonical out;
  Add(variable, out);
  return out.Hash();
}

// The bytes of a number in a message.
int64_t VarintBytes(uint64_t value) {
  int64_t bytes = 1;
  for (; value >= 128; value >>= 7) ++bytes;
  return bytes;
}

}  // namespace

Shape VariableLayout::ShardShape(int part) const {
  if (spec.shape.rank() == 0) return spec.shape;
  return spec.shape.WithRows(offsets[part + 1] - offsets[part]);
}

int VariableLayout::PartOf(int64_t row) const {
  return static_cast<int>(std::upper_bound(offsets.begin(), offsets.end(), row) - offsets.begin()) -
         1;
}

std::optional<uint8_t> VariableLayout::SlotNumber(absl::string_view optimizer,
                                                  absl::string_view slot) const {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slot_optimizers[i] == optimizer && slots[i].name == slot)
      return static_cast<uint8_t>(i + 1);
  }
  return std::nullopt;
}

std::optional<std::vector<uint8_t>> VariableLayout::SlotsFor(const Optimizer& optimizer) const {
  std::vector<uint8_t> numbers;
  if (spec.table) return numbers;
  for (const SlotSpec& wanted : SlotsOf(optimizer)) {
    const std::optional<uint8_t> number = SlotNumber(OptimizerName(optimizer), wanted.name);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

std::string VariableLayout::SlotName(int slot_index) const {
  return absl::StrCat(spec.name, "/", slot_optimizers[slot_index], "/", slots[slot_index].name);
}

int64_t VariableLayout::value_bytes() const {
  if (spec.table) return 0;
  return spec.shape.num_elements() * DTypeSize(spec.dtype);
}

int64_t VariableLayout::slot_bytes() const {
  int64_t bytes = 0;
  for (const SlotSpec& slot : slots)
    bytes += slot.ShapeFor(spec.shape).num_elements() * DTypeSize(slot.dtype());
  return bytes;
}

int64_t VariableLayout::message_bytes() const {
  // 200 bytes for the shape, the optimizer and similar fields.
  int64_t bytes = 200 + static_cast<int64_t>(spec.name.size());
  for (const int64_t offset : offsets) bytes += VarintBytes(static_cast<uint64_t>(offset));
  for (const int server : ps) bytes += VarintBytes(static_cast<uint64_t>(server));
  for (size_t i = 0; i < slots.size(); ++i)
    bytes += 20 + static_cast<int64_t>(slots[i].name.size() + slot_optimizers[i].size());
  return bytes;
}

std::shared_ptr<const Layout> Layout::Empty() { return std::make_shared<const Layout>(); }

std::shared_ptr<const Layout> Layout::Received(uint64_t version,
                                               std::map<VariableId, VariableLayout> variables) {
  auto layout = std::make_shared<Layout>();
  layout->version_ = version;
  for (auto& [id, variable] : variables) layout->Put(std::move(variable));
  return layout;
}

uint64_t Layout::FormerHash() const {
  Canonical out;
  for (const auto& [id, variable] : variables_) Add(variable, out);
  return out.Hash();
}

void Layout::Put(VariableLayout variable) {
  Erase(variable.id);
  hash_ += HashOf(variable);
  message_bytes_ += variable.message_bytes();
  variables_.Put(std::move(variable));
}

void Layout::Erase(VariableId id) {
  const VariableLayout* const variable = Find(id);
  if (variable == nullptr) return;
  hash_ -= HashOf(*variable);
  message_bytes_ -= variable->message_bytes();
  variables_.Erase(id);
}

absl::Status Layout::UnknownVariable(absl::string_view name) const {
  if (variables_.empty())
    return absl::NotFoundError(absl::StrCat("no variable \"", name, "\": none has been created"));
  std::vector<std::pair<size_t, std::string>> near;
  for (const auto& [id, variable] : variables_)
    near.emplace_back(EditDistance(name, variable.spec.name), variable.spec.name);
  std::sort(near.begin(), near.end());
  near.resize(std::min<size_t>(near.size(), 3));
  const auto append = [](std::string* out, const auto& pair) {
    absl::StrAppend(out, "\"", pair.second, "\"");
  };
  return absl::NotFoundError(absl::StrCat("no variable \"", name, "\" among ", variables_.size(),
                                          "; the nearest: ", absl::StrJoin(near, ", ", append)));
}

std::shared_ptr<const Layout> Layout::With(VariableLayout variable) const {
  if (!variable.spec.table) variable.spec.initializer = Zeros();
  variable.spec.partitioner.reset();
  auto next = std::make_shared<Layout>(*this);
  ++next->version_;
  next->Put(std::move(variable));
  return next;
}

}  // namespace divvy
