#include "base/philox.h"
#include "ops/cuda/kernel_math.h"
#include "ops/loops.h"

namespace divvy::cuda {
namespace {

// Adjacent elements that a thread reads, computes and writes at once, if their address is a
// multiple of their size: 16 bytes. Doubles are handled one by one: two at once gain little, and
// their functions take longest to compile.
template <typename T>
struct alignas(sizeof(T) < 8 ? 16 : 8) Pack {
  static constexpr int kSize = sizeof(T) < 8 ? 16 / sizeof(T) : 1;
  T element[kSize];
};

template <typename T>
bool IsAligned(const T* data) {
  return reinterpret_cast<uintptr_t>(data) % sizeof(Pack<T>) == 0;
}

template <typename T>
DIVVY_HOST_DEVICE const Pack<T>& PackAt(const T* data) {
  return *reinterpret_cast<const Pack<T>*>(data);
}
template <typename T>
DIVVY_HOST_DEVICE Pack<T>& PackAt(T* data) {
  return *reinterpret_cast<Pack<T>*>(data);
}

// Calls body(i, true) for each i at which one of the first `packs` packs of n elements begins, and
// body(i, false) for each element after them.
template <typename T, typename Body>
void ForEachPack(Stream stream, int64_t n, int64_t packs, const Body& body) {
  constexpr int kSize = Pack<T>::kSize;
  ForEach(stream, n - packs * (kSize - 1), [=] DIVVY_BODY(int64_t i) {
    const bool is_pack = kSize > 1 && i < packs;
    body(is_pack ? i * kSize : i + packs * (kSize - 1), is_pack);
  });
}

template <typename T, typename Function>
void Map(Stream stream, const Array& x, const Array& y, Function function) {
  const T* from = x.as<const T>();
  T* to = y.as<T>();
  const int64_t packs = IsAligned(from) && IsAligned(to) ? y.size() / Pack<T>::kSize : 0;
  ForEachPack<T>(stream, y.size(), packs, [=] DIVVY_BODY(int64_t i, bool is_pack) {
    if (is_pack) {
      Pack<T> values = PackAt(from + i);
      for (T& value : values.element) value = function(Wide<T>(value));
      PackAt(to + i) = values;
    } else {
      to[i] = function(Wide<T>(from[i]));
    }
  });
}

template <typename T, typename Function>
void Map2(Stream stream, const Array& x, const Array& z, const Array& y, Function function) {
  const T* a = x.as<const T>();
  const T* b = z.as<const T>();
  T* to = y.as<T>();
  const int64_t packs =
      IsAligned(a) && IsAligned(b) && IsAligned(to) ? y.size() / Pack<T>::kSize : 0;
  ForEachPack<T>(stream, y.size(), packs, [=] DIVVY_BODY(int64_t i, bool is_pack) {
    if (is_pack) {
      Pack<T> values = PackAt(a + i);
      const Pack<T> others = PackAt(b + i);
      for (int k = 0; k < Pack<T>::kSize; ++k)
        values.element[k] = function(Wide<T>(values.element[k]), Wide<T>(others.element[k]));
      PackAt(to + i) = values;
    } else {
      to[i] = function(Wide<T>(a[i]), Wide<T>(b[i]));
    }
  });
}

template <typename T>
struct Two {
  T a, b;
};

// As Map2 for matrices. The results are also summed over the rows.
template <typename T, typename Function>
void MapAndSumColumns(Stream stream, int64_t columns, int64_t rows, const Array& x, const Array& z,
                      const Array& y, const Array& sums, Function function) {
  const T* a = x.as<const T>();
  const T* b = z.as<const T>();
  T* to = y.as<T>();
  T* total = sums.as<T>();
  SumColumns(
      stream, columns, rows,
      [=] DIVVY_BODY(int64_t row, int64_t column) {
        return Two<T>{a[row * columns + column], b[row * columns + column]};
      },
      [=] DIVVY_BODY(int64_t row, int64_t column, const Two<T>& loaded) {
        const T value = function(Wide<T>(loaded.a), Wide<T>(loaded.b));
        to[row * columns + column] = value;
        return static_cast<double>(Wide<T>(value));
      },
      [=] DIVVY_BODY(int64_t column, double sum) { total[column] = static_cast<T>(sum); });
}

// An operand that is broadcast: in memory, or a number.
template <typename T>
struct Operand {
  const T* from;
  T number;

  explicit Operand(const Array& x) : from(x.as<const T>()), number(static_cast<T>(x.value)) {}
  bool is_aligned() const { return from == nullptr || IsAligned(from); }
  DIVVY_HOST_DEVICE T At(int64_t offset) const { return from == nullptr ? number : from[offset]; }
  // `moves`: in the innermost loop the operand's stride is that of the result; otherwise it is 0.
  DIVVY_HOST_DEVICE Pack<T> PackFrom(int64_t offset, bool moves) const {
    if (moves && from != nullptr) return PackAt(from + offset);
    Pack<T> values;
    const T one = At(offset);
    for (T& value : values.element) value = one;
    return values;
  }
};

// a and b are broadcast to y's shape.
template <typename T, typename Function>
void MapBroadcast(Stream stream, const Array& x, const Array& z, const Array& y,
                  Function function) {
  const auto loops = internal::MakeLoops<2, Array>(y, {&x, &z});
  const int inner = loops.rank - 1;
  const Operand<T> a(x), b(z);
  T* to = y.as<T>();
  const bool is_packed = a.is_aligned() && b.is_aligned() && IsAligned(to) &&
                         (inner == 0 || loops.extent[inner] % Pack<T>::kSize == 0);
  ForEachPack<T>(stream, y.size(), is_packed ? y.size() / Pack<T>::kSize : 0,
                 [=] DIVVY_BODY(int64_t i, bool is_pack) {
                   const auto at = internal::OffsetsAt(loops, i);
                   if (is_pack) {
                     Pack<T> values = a.PackFrom(at[0], loops.stride[0][inner] == 1);
                     const Pack<T> others = b.PackFrom(at[1], loops.stride[1][inner] == 1);
                     for (int k = 0; k < Pack<T>::kSize; ++k)
                       values.element[k] =
                           function(Wide<T>(values.element[k]), Wide<T>(others.element[k]));
                     PackAt(to + i) = values;
                   } else {
                     to[i] = function(Wide<T>(a.At(at[0])), Wide<T>(b.At(at[1])));
                   }
                 });
}

template <typename T>
struct Scaled {
  T factor;
  DIVVY_HOST_DEVICE T operator()(T v, T) const { return v * factor; }
};

// Four elements for each counter of the generator: an element is dropped where its word is below
// rate * 2^32.
template <typename T>
void DropoutAs(Stream stream, uint64_t key, double rate, const Array& x, const Array& y) {
  const auto threshold = static_cast<uint64_t>(rate * 4294967296.0);
  const auto scale = static_cast<Wide<T>>(1 / (1 - rate));
  const T* from = x.as<T>();
  T* to = y.as<T>();
  const int64_t n = x.size();
  ForEach(stream, (n + 3) / 4, [=] DIVVY_BODY(int64_t quad) {
    const PhiloxWords words = Philox(key, static_cast<uint64_t>(quad), 0);
    for (int lane = 0; lane < 4 && quad * 4 + lane < n; ++lane) {
      const int64_t i = quad * 4 + lane;
      to[i] = words.word[lane] < threshold ? T(0) : T(from[i] * scale);
    }
  });
}

// Adds the logarithm last, because it may be far smaller than x, and x and x z may cancel before
// it.
struct SigmoidLoss {
  template <typename T>
  DIVVY_HOST_DEVICE T operator()(T x, T z) const {
    return (x > 0 ? x : T(0)) - x * z + internal::Log1pOfUnit(internal::ExpOf(x > 0 ? -x : x));
  }
};

template <typename T>
void SigmoidLosses(Stream stream, const Array& logits, const Array& labels, const Array& loss,
                   Fault* fault) {
  const T* x = logits.as<T>();
  const T* z = labels.as<T>();
  T* to = loss.as<T>();
  ForEach(stream, logits.size(), [=] DIVVY_BODY(int64_t i) {
    const Wide<T> label = z[i];
    to[i] = IsInUnit(label, fault, Fault::kLabelNotInUnit, i, labels)
                ? SigmoidLoss()(Wide<T>(x[i]), label)
                : Wide<T>(0);
  });
}

template <typename T>
void SigmoidLossGradient(Stream stream, const Array& logits, const Array& labels,
                         const Array& gradient, const Array& dx) {
  const T* x = logits.as<T>();
  const T* z = labels.as<T>();
  const T* g = gradient.as<T>();
  T* to = dx.as<T>();
  ForEach(stream, logits.size(), [=] DIVVY_BODY(int64_t i) {
    to[i] = g[i] * (internal::SigmoidOf(Wide<T>(x[i])) - z[i]);
  });
}

}  // namespace

void KernelMath::Unary(int device, UnaryOp op, const Array& x, const Array& y) {
  const Stream stream = Use(device);
  WithFloating(x.element, [&](auto t) {
    internal::WithUnary(op, [&](auto function) { Map<decltype(t)>(stream, x, y, function); });
  });
}

void KernelMath::UnaryGradient(int device, UnaryOp op, const Array& kept, const Array& gradient,
                               const Array& dx) {
  const Stream stream = Use(device);
  WithFloating(dx.element, [&](auto t) {
    internal::WithUnaryGradient(
        op, [&](auto function) { Map2<decltype(t)>(stream, kept, gradient, dx, function); });
  });
}

// Very many rows are left to SumTo, because it splits them among blocks.
void KernelMath::UnaryGradientAndSums(int device, UnaryOp op, const Array& kept,
                                      const Array& gradient, const Array& dx, const Array& sums) {
  const int64_t columns = sums.size(), rows = columns == 0 ? 0 : dx.size() / columns;
  if (rows > kMostRowsOfColumn) {
    UnaryGradient(device, op, kept, gradient, dx);
    return SumTo(device, dx, 1, sums);
  }
  const Stream stream = Use(device);
  WithFloating(dx.element, [&](auto t) {
    internal::WithUnaryGradient(op, [&](auto function) {
      MapAndSumColumns<decltype(t)>(stream, columns, rows, kept, gradient, dx, sums, function);
    });
  });
}

void KernelMath::Binary(int device, BinaryOp op, const Array& a, const Array& b, const Array& y) {
  const Stream stream = Use(device);
  WithFloating(y.element, [&](auto t) {
    internal::WithBinary(
        op, [&](auto function) { MapBroadcast<decltype(t)>(stream, a, b, y, function); });
  });
}

void KernelMath::AddThen(int device, UnaryOp op, const Array& a, const Array& b, const Array& y) {
  const Stream stream = Use(device);
  WithFloating(y.element, [&](auto t) {
    using T = decltype(t);
    internal::WithUnaryOfOutput(op, [&](auto function) {
      MapBroadcast<T>(stream, a, b, y, internal::AfterSum<decltype(function)>());
    });
  });
}

void KernelMath::Broadcast(int device, const Array& x, double scale, const Array& y) {
  const Stream stream = Use(device);
  WithFloating(y.element, [&](auto t) {
    using T = decltype(t);
    MapBroadcast<T>(stream, x, x, y, Scaled<Wide<T>>{static_cast<Wide<T>>(scale)});
  });
}

void KernelMath::Dropout(int device, uint64_t key, double rate, const Array& x, const Array& y) {
  const Stream stream = Use(device);
  WithFloating(y.element, [&](auto t) { DropoutAs<decltype(t)>(stream, key, rate, x, y); });
}

void KernelMath::SigmoidCrossEntropy(int device, const Array& logits, const Array& labels,
                                     const Array& loss) {
  const Stream stream = Use(device);
  WithFloating(loss.element, [&](auto t) {
    SigmoidLosses<decltype(t)>(stream, logits, labels, loss, fault(device));
  });
}

void KernelMath::SigmoidCrossEntropyGradient(int device, const Array& logits, const Array& labels,
                                             const Array& gradient, const Array& dx) {
  const Stream stream = Use(device);
  WithFloating(dx.element, [&](auto t) {
    SigmoidLossGradient<decltype(t)>(stream, logits, labels, gradient, dx);
  });
}

}  // namespace divvy::cuda
