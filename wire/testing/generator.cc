#include "wire/testing/generator.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "variables/table_keys.h"
#include "wire/text.h"

namespace divvy::wire::testing {

// ---- parts --------------------------------------------------------------------------------------

uint64_t Generator::Number() {
  constexpr uint64_t kEdges[] = {0,
                                 1,
                                 2,
                                 0x7f,
                                 0x80,
                                 0xffff,
                                 0x7fffffff,
                                 0xffffffff,
                                 0x7fffffffffffffff,
                                 0x8000000000000000,
                                 0xffffffffffffffff};
  return Chance() ? kEdges[Below(std::size(kEdges))] : random_.Next() >> Below(64);
}

double Generator::Real() {
  constexpr double kEdges[] = {0, -0.0, 1, -1, 0.1, 1e-300, -1e300, 5e-324};
  return Chance() ? kEdges[Below(std::size(kEdges))] : random_.Uniform() * 20 - 10;
}

std::string Generator::Name() {
  std::string name = absl::StrCat("v", Below(1000));
  while (random_.Chance(0.4)) absl::StrAppend(&name, "/dense-", Below(10), ".w_");
  return name;
}

std::string Generator::Text(size_t max_bytes) {
  constexpr absl::string_view kPieces[] = {
      "a", "Z", " ", "\"", "\\", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x90\xa2", "=", "loss is "};
  std::string text = "t";
  for (uint64_t i = Below(12); i > 0; --i) text += std::string(kPieces[Below(std::size(kPieces))]);
  if (random_.Chance(0.02)) text += std::string(2 * max_bytes, 'x');
  return Escaped(text, max_bytes);
}

Shape Generator::MakeShape(int max_rank) {
  std::vector<int64_t> dims(Below(max_rank + 1));
  for (int64_t& dim : dims) dim = random_.Chance(0.1) ? 0 : 1 + static_cast<int64_t>(Below(3));
  return Shape(dims);
}

// ---- statuses -----------------------------------------------------------------------------------

void Generator::Fill(ErrorDetail& out) {
  out.reason = static_cast<Reason>(Below(static_cast<uint64_t>(kLastReason) + 1));
  if (const uint64_t role = Below(4); role > 0) out.role = static_cast<Role>(role - 1);
  out.index = static_cast<int32_t>(Number() >> 33);
  out.epoch = MakeId<Epoch>();
  out.entry = MakeId<EntryId>();
  out.user = Chance();
}

void Generator::Fill(absl::Status& out) {
  const auto code = static_cast<absl::StatusCode>(Below(17));
  out = absl::Status(code, Text(kMaxTextBytes));
  if (Chance()) out = MarkUser(out);
  if (Chance()) out = MakeError(Make<ErrorDetail>(), Text(kMaxTextBytes));
}

// ---- values -------------------------------------------------------------------------------------

Tensor Generator::MakeTensor(DType dtype, const Shape& shape) {
  Tensor tensor = *Tensor::Uninitialized(dtype, shape);
  for (int64_t i = 0; i < tensor.size_bytes(); ++i)
    tensor.fresh_data<uint8_t>()[i] =
        static_cast<uint8_t>(dtype == DType::kBool ? Below(2) : Below(256));
  return tensor;
}

void Generator::Fill(Tensor& out) {
  out = MakeTensor(static_cast<DType>(Below(9)), MakeShape(Shape::kMaxRank));
}

Nest Generator::MakeNest(int depth) {
  switch (Below(depth > 0 ? 7 : 5)) {
    case 0: return Nest(Make<Tensor>());
    case 1: return Nest(Chance() ? Text(100) : std::string("\0\xff\x01 bytes", 9));
    case 2: return Nest(PerWorkerHandle{Number()});
    case 3:
      return Nest(IndexedSlices{Tensor::Vector<int64_t>({2, 0, 2}),
                                *Tensor::Zeros(DType::kFloat32, {3, 2}),
                                3 + static_cast<int64_t>(Below(9))});
    case 4: return Nest::Failed(absl::NotFoundError(Text(100)));
    case 5: {
      Nest::List list;
      for (uint64_t i = Below(4); i > 0; --i) list.push_back(MakeNest(depth - 1));
      return Nest(std::move(list));
    }
    default: {
      Nest::Dict dict;
      for (uint64_t i = Below(4); i > 0; --i) dict.emplace(Text(40), MakeNest(depth - 1));
      return Nest(std::move(dict));
    }
  }
}

// ---- optimizers ---------------------------------------------------------------------------------

void Generator::Fill(LearningRate& out) {
  const int64_t steps = 1 + Count() / 2;
  switch (Below(6)) {
    case 0: out = Real(); return;
    case 1: out = ExponentialDecay{Real(), steps, Real(), Chance()}; return;
    case 2: out = InverseTimeDecay{Real(), steps, Real(), Chance()}; return;
    case 3: out = PolynomialDecay{Real(), steps, Real(), Real()}; return;
    case 4:
      out = CosineDecay{Real(), steps, Real(), Count(),
                        Chance() ? std::optional<double>(Real()) : std::nullopt};
      return;
    default: break;
  }
  PiecewiseConstant pieces{{}, {Real()}};
  for (int64_t boundary = -3, i = static_cast<int64_t>(Below(4)); i > 0; --i) {
    boundary += 1 + static_cast<int64_t>(Below(1000));
    pieces.boundaries.push_back(boundary);
    pieces.values.push_back(Real());
  }
  out = pieces;
}

void Generator::Fill(Optimizer& out) {
  const auto any = [this]() -> Optimizer {
    const auto rate = Make<LearningRate>();
    switch (Below(8)) {
      case 0: return Sgd{rate};
      case 1: return Momentum{rate, Fraction(), Chance()};
      case 2: return Adagrad{rate, Fraction(), Fraction()};
      case 3: return RowwiseAdagrad{rate, Fraction(), Fraction()};
      case 4: return Adam{rate, Fraction(), Fraction(), Fraction(), Fraction(), Chance()};
      case 5: return RmsProp{rate, Fraction(), Fraction(), Fraction(), Chance()};
      case 6:
        return Ftrl{rate, Fraction(), Fraction(), -Fraction(), Fraction(), Fraction(), Fraction()};
      default:
        return GroupFtrl{rate,        Fraction(), Fraction(), Fraction(),
                         -Fraction(), Fraction(), Fraction(), Fraction()};
    }
  };
  do out = any();
  // A learning rate that is not valid is refused before anything is sent.
  while (!Validate(out).ok());
}

void Generator::Fill(OptimizerStep& out) {
  // Fields that an optimizer's kind does not use are 0. Here all fields are set whatever the kind
  // is, so the test sees each of them arrive.
  out.kind = static_cast<OptimizerKind>(Below(8));
  out.learning_rate = 0.5f + Fraction();
  out.momentum = Fraction();
  out.nesterov = Chance();
  out.epsilon = Fraction();
  out.beta1 = Fraction();
  out.beta2 = Fraction();
  out.weight_decay = Fraction();
  out.amsgrad = Chance();
  out.rho = Fraction();
  out.centered = Chance();
  out.l1 = Fraction();
  out.l2 = Fraction();
  out.learning_rate_power = -Fraction();
  out.beta = Fraction();
  out.l2_shrinkage = Fraction();
  out.l21 = Fraction();
}

// ---- variables ----------------------------------------------------------------------------------

Initializer Generator::MakeInitializer(bool constant) {
  switch (constant ? 0 : Below(6)) {
    case 0: return Constant{static_cast<float>(Below(2))};
    case 1: return RandomUniform{-Fraction(), Fraction(), Number()};
    case 2: return RandomNormal{Fraction(), Fraction(), Number()};
    case 3: return TruncatedNormal{Fraction(), Fraction(), Number()};
    case 4:
      return VarianceScaling{static_cast<VarianceScaling::Fan>(Below(3)),
                             static_cast<VarianceScaling::Distribution>(Below(2)),
                             0.5f + Fraction(), Number()};
    default: return Identity{Fraction()};
  }
}

void Generator::Fill(TableOptions& out) {
  switch (Below(3)) {
    case 0: out.admission = AdmitAlways(); break;
    case 1: out.admission = AdmitAfter{1 + Index(), Chance() ? 0 : (1 << 20) + Index()}; break;
    default: out.admission = AdmitWithProbability{0.5 + Fraction() / 2}; break;
  }
  switch (Below(5)) {
    case 0: out.eviction = EvictNever(); break;
    case 1: out.eviction = EvictUnusedFor{absl::Minutes(1 + Index())}; break;
    case 2: out.eviction = EvictBelowNorm{0.5f + Fraction()}; break;
    case 3: out.eviction = EvictLeastUsed(); break;
    default: out.eviction = EvictLeastRecent(); break;
  }
  out.absent = static_cast<TableOptions::Absent>(Below(2));
  out.max_rows = 1 + Index();
  out.full = static_cast<TableOptions::Full>(Below(2));
  if (!Validate(out).ok()) out.admission = AdmitAfter{1 + Index()};
}

// Makes the variable a table.
void Generator::MakeTable(VariableSpec& out) {
  out.table = Make<TableOptions>();
  out.shape = {kTableBuckets, 1 + static_cast<int64_t>(Below(4))};
  out.dtype = DType::kFloat32;
  out.wire = WireFormat::kExact;
  out.initializer = RandomNormal{Fraction(), Fraction(), Number()};
}

void Generator::Fill(ShardSpec& out) {
  Fill(out.key);
  out.name = Name();
  out.dtype = static_cast<DType>(Below(9));
  const bool is_float = IsFloating(out.dtype);
  out.initializer = MakeInitializer(!is_float);
  if (std::holds_alternative<Identity>(out.initializer)) {
    out.full_shape = Shape{static_cast<int64_t>(Below(5)), 3};
  } else {
    out.full_shape = MakeShape(4);
  }
  if (random_.Chance(0.2)) {
    out.table = Make<TableOptions>();
    out.optimizer = Make<Optimizer>();
  }
  out.shape = out.full_shape;
  if (out.shape.rank() == 0) return;
  out.first_row = static_cast<int64_t>(Below(out.full_shape.dim(0) + 1));
  out.shape =
      out.shape.WithRows(static_cast<int64_t>(Below(out.full_shape.dim(0) - out.first_row + 1)));
}

void Generator::Fill(VariableLayout& out) {
  out.id = MakeId<VariableId>();
  out.spec.name = Name();
  out.spec.shape = MakeShape(4);
  constexpr DType kTrainable[] = {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64};
  out.spec.dtype = kTrainable[Below(std::size(kTrainable))];
  out.spec.aggregation = static_cast<VariableAggregation>(Below(4));
  if (out.spec.dtype == DType::kFloat32 && Chance()) out.spec.optimizer = Make<Optimizer>();
  if (out.spec.dtype == DType::kFloat32) out.spec.wire = static_cast<WireFormat>(Below(3));
  if (random_.Chance(0.2)) MakeTable(out.spec);
  const int64_t rows = out.spec.shape.rows();
  out.offsets = {0, rows};
  if (rows > 1 && Chance()) out.offsets = {0, 1, rows};
  for (size_t i = 1; i < out.offsets.size(); ++i) out.ps.push_back(Index());
  for (uint64_t i = Below(4); i > 0; --i) {
    out.slots.push_back({Name(), static_cast<SlotSpec::Kind>(Below(3)), Fraction()});
    out.slot_optimizers.push_back(Chance() ? "Adam" : "Ftrl");
  }
}

void Generator::Fill(std::shared_ptr<const Layout>& out) {
  std::map<VariableId, VariableLayout> variables;
  for (uint64_t i = Below(4); i > 0; --i) {
    auto variable = Make<VariableLayout>();
    variable.spec.name = absl::StrCat("number", i, "/", variable.spec.name);
    variables.insert_or_assign(variable.id, variable);
  }
  out = Layout::Received(Number(), std::move(variables));
}

// ---- calls --------------------------------------------------------------------------------------

void Generator::Fill(PassProgress& out) {
  out.iterator = MakeId<ResourceId>();
  out.in_loop = Chance();
  out.is_series = Chance();
  out.of_program = Chance();
  out.finished = Index();
  for (uint64_t i = Below(4); i > 0; --i) {
    // a gap, which has been read
    out.next += Index();
    const int64_t count = 1 + Index();
    out.unread[out.next] = count;
    out.next += count;
  }
  if (Chance()) out.end = Index();
  out.end_is_exact = Chance();
}

void Generator::Fill(SavedSlice& out) {
  const auto shard = Make<ShardSpec>();
  out.tensor = shard.name;
  out.dtype = shard.dtype;
  out.full_shape = shard.full_shape;
  out.first_row = shard.first_row;
  out.rows = shard.shape.rows();
  out.offset = Number();
  out.size_bytes =
      static_cast<uint64_t>(out.rows * out.full_shape.row_elements() * DTypeSize(out.dtype));
  out.masked_crc = static_cast<uint32_t>(Number());
  if (Chance()) out.first_bucket = Index();
}

// ---- data streams -------------------------------------------------------------------------------

void Generator::Fill(PullPart& out) {
  Fill(out.shard);
  if (Chance()) out.rows = MakeTensor(DType::kInt64, {static_cast<int64_t>(Below(4))});
  out.as_bfloat16 = Chance();
  out.may_lend = Chance();
  out.want = static_cast<PullWant>(Below(3));
}

void Generator::Fill(PullRequest& out) {
  Fill(out.fence);
  out.step = MakeId<EntryId>();
  FillAll(out.parts);
}

PullReply Generator::ReplyTo(const PullRequest& asked) {
  PullReply reply;
  reply.served = absl::Nanoseconds(Count());
  for (const PullPart& part : asked.parts) {
    auto values = Make<Tensor>();
    if (part.rows) values = MakeTensor(values.dtype(), {part.rows->shape().dim(0), 3});
    reply.parts.push_back({std::move(values), Number(), Chance()});
  }
  return reply;
}

void Generator::Fill(CommitPart& out) {
  Fill(out.shard);
  out.op = static_cast<WriteOp>(Below(12));
  if (Chance()) out.rows = MakeTensor(DType::kInt64, {static_cast<int64_t>(Below(4))});
  Fill(out.values);
  if (Chance()) out.optimizer = Make<OptimizerStep>();
  for (uint64_t i = Below(4); i > 0; --i) out.slots.push_back(static_cast<uint8_t>(Below(256)));
}

void Generator::Fill(CommitRequest& out) {
  Fill(out.fence);
  out.entry = MakeId<EntryId>();
  out.attempt = static_cast<uint32_t>(Number());
  out.kind = Chance() ? EntryKind::kStep : EntryKind::kWrite;
  out.participants = Index();
  out.tick = static_cast<uint32_t>(Number());
  FillAll(out.parts);
  FillAll(out.inputs);
}

CommitReply Generator::ReplyTo(const CommitRequest& asked) {
  CommitReply reply{Chance(), Number(), {}, absl::Nanoseconds(Count())};
  for (size_t i = 0; i < asked.parts.size() && !reply.duplicate; ++i)
    reply.versions.push_back(Number());
  return reply;
}

// ---- fields that must fit each other
// --------------------------------------------------------------

void Generator::Mend(ProtocolRange& range) {
  range.oldest = 1 + range.oldest % 9;
  range.newest = range.oldest + range.newest % 9;
}

void Generator::Mend(Horizon& horizon) {
  while (!horizon.open.empty() && horizon.open.back() >= horizon.next) horizon.open.pop_back();
}

void Generator::Mend(InputLease& lease) {
  lease.count = std::min(Count(), std::numeric_limits<int64_t>::max() - lease.first);
}

void Generator::Mend(SnapshotRequest& request) {
  request.num_files = request.file + 1 + static_cast<int>(Below(5));
}

void Generator::Mend(SyncRequest& request) {
  request.workers.clear();
  if (Chance())
    std::generate_n(std::back_inserter(request.workers), request.sessions.size(),
                    [this] { return Index(); });
}

void Generator::Mend(SyncReply::Load& load) { load.bytes.resize(SyncReply::Load::kParts); }

void Generator::Mend(WorkerAttachRequest& request) {
  for (size_t i = 0; i < request.view.size(); ++i) request.view[i].index = static_cast<int>(3 * i);
}

void Generator::Mend(GradientHistogram& gradient) {
  ValueHistogram& values = gradient.values;
  if (values.low > values.high) std::swap(values.low, values.high);
  values.counts.resize(std::min(values.counts.size(), static_cast<size_t>(kHistogramBuckets)));
}

void Generator::Mend(Report& report) {
  const bool needs_error =
      report.outcome == StepOutcome::kFailed || report.outcome == StepOutcome::kSystem;
  if (report.outcome == StepOutcome::kOk) report.error = absl::OkStatus();
  if (needs_error && report.error.ok()) report.error = absl::InternalError("x");
}

}  // namespace divvy::wire::testing
