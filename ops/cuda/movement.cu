// Movement of elements: copies, permutations, rows by id, triangles of matrices.
#include "ops/cuda/kernel_math.h"
#include "ops/loops.h"

namespace divvy::cuda {
namespace {

// Calls use(T{}) with an unsigned type of the element's size.
template <typename Use>
void WithBits(Element element, Use&& use) {
  switch (SizeOf(element)) {
    case 1: return use(uint8_t{});
    case 2: return use(uint16_t{});
    case 4: return use(uint32_t{});
    default: return use(uint64_t{});
  }
}

// The most that a thread loads or stores at once.
struct alignas(16) Unit16 {
  uint64_t half[2];
};

// Calls use(T{}) with the largest type, up to 16 bytes, whose size divides all these addresses and
// sizes.
template <typename Use>
void WithUnits(uint64_t all, Use&& use) {
  if (all % 16 == 0) return use(Unit16{});
  if (all % 8 == 0) return use(uint64_t{});
  if (all % 4 == 0) return use(uint32_t{});
  if (all % 2 == 0) return use(uint16_t{});
  use(uint8_t{});
}

uint64_t AddressOf(const void* data) { return reinterpret_cast<uintptr_t>(data); }

template <typename T>
void CopyBlocksAs(Stream stream, const void* from, int64_t from_stride, void* to, int64_t to_stride,
                  int64_t per_block, int64_t rows) {
  const auto* source = static_cast<const char*>(from);
  auto* target = static_cast<char*>(to);
  ForEach(stream, rows * per_block, [=] DIVVY_BODY(int64_t i) {
    const auto [row, at] = internal::Divide(i, per_block);
    reinterpret_cast<T*>(target + row * to_stride)[at] =
        reinterpret_cast<const T*>(source + row * from_stride)[at];
  });
}

template <typename T>
void PermuteAs(Stream stream, const internal::LoopNest<1>& loops, int64_t n, const T* from, T* to) {
  ForEach(stream, n, [=] DIVVY_BODY(int64_t i) { to[i] = from[internal::OffsetsAt(loops, i)[0]]; });
}

template <typename T>
void GatherRowsAs(Stream stream, const Array& table, int64_t width, const int64_t* ids, int64_t n,
                  T* y, Fault* fault) {
  const T* x = table.as<const T>();
  const int64_t rows = table.dim(0);
  ForEach(stream, n * width, [=] DIVVY_BODY(int64_t i) {
    const auto [at, column] = internal::Divide(i, width);
    const int64_t id = ids[at];
    const bool is_inside = id >= 0 && id < rows;
    if (!is_inside && column == 0) Report(fault, Fault::kIdOutOfRange, id, at, table);
    y[i] = is_inside ? x[id * width + column] : T{};
  });
}

// The lanes of a row share one matrix. So no element must compute which matrix it is in, and rows
// are found by counting, not by roots and divisions.
template <typename T>
void LowerTrianglesAs(Stream stream, const T* x, int64_t batch, int64_t f, T* y) {
  const int64_t elements = f * (f - 1) / 2;
  ForEachRow(stream, batch, elements, [=] DIVVY_BODY(int64_t matrix, const Lanes& lanes) {
    const T* const from = x + matrix * f * f;
    T* const to = y + matrix * elements;
    int64_t row = 1, begin = 0;  // row i begins at i (i - 1) / 2
    for (int64_t at = lanes.index; at < elements; at += lanes.count) {
      while (begin + row <= at) begin += row++;
      to[at] = from[row * f + at - begin];
    }
  });
}

template <typename T>
void SymmetricAs(Stream stream, const T* y, int64_t batch, int64_t f, T* x) {
  const int64_t elements = f * (f - 1) / 2;
  ForEachRow(stream, batch, f * f, [=] DIVVY_BODY(int64_t matrix, const Lanes& lanes) {
    const T* const from = y + matrix * elements;
    T* const to = x + matrix * f * f;
    const int64_t rows_apart = lanes.count / f, columns_apart = lanes.count % f;
    int64_t row = lanes.index / f, column = lanes.index % f;
    for (int64_t at = lanes.index; at < f * f; at += lanes.count) {
      const int64_t high = row > column ? row : column, low = row > column ? column : row;
      to[at] = high == low ? T(0) : from[high * (high - 1) / 2 + low];
      row += rows_apart, column += columns_apart;
      if (column >= f) column -= f, ++row;
    }
  });
}

}  // namespace

void KernelMath::CopyBlocks(int device, const void* from, int64_t from_stride, void* to,
                            int64_t to_stride, int64_t block_bytes, int64_t rows) {
  const Stream stream = Use(device);
  WithUnits(AddressOf(from) | AddressOf(to) |
                static_cast<uint64_t>(from_stride | to_stride | block_bytes),
            [&](auto t) {
              using T = decltype(t);
              CopyBlocksAs<T>(stream, from, from_stride, to, to_stride,
                              block_bytes / static_cast<int64_t>(sizeof(T)), rows);
            });
}

void KernelMath::Permute(int device, const Array& x, const int* axes, const Array& y) {
  const Stream stream = Use(device);
  internal::LoopNest<1> loops;
  loops.rank = y.rank();
  for (int i = 0; i < y.rank(); ++i) {
    loops.extent[i] = y.dim(i);
    loops.stride[0][i] = internal::BroadcastStride(x, axes[i], x.rank());
  }
  WithBits(x.element, [&](auto t) {
    PermuteAs(stream, loops, y.size(), x.as<const decltype(t)>(), y.as<decltype(t)>());
  });
}

void KernelMath::GatherRows(int device, const Array& x, const int64_t* ids, const Array& y) {
  const Stream stream = Use(device);
  const int64_t row_bytes = x.row_size() * SizeOf(x.element),
                n = row_bytes == 0 ? 0 : static_cast<int64_t>(y.size_bytes()) / row_bytes;
  WithUnits(AddressOf(x.data) | AddressOf(y.data) | static_cast<uint64_t>(row_bytes), [&](auto t) {
    using T = decltype(t);
    GatherRowsAs(stream, x, row_bytes / static_cast<int64_t>(sizeof(T)), ids, n, y.as<T>(),
                 fault(device));
  });
}

void KernelMath::LowerTriangles(int device, const Array& x, const Array& y) {
  const Stream stream = Use(device);
  WithBits(y.element, [&](auto t) {
    LowerTrianglesAs(stream, x.as<const decltype(t)>(), x.dim(0), x.dim(1), y.as<decltype(t)>());
  });
}

void KernelMath::SymmetricFromTriangles(int device, const Array& y, const Array& x) {
  const Stream stream = Use(device);
  WithBits(x.element, [&](auto t) {
    SymmetricAs(stream, y.as<const decltype(t)>(), x.dim(0), x.dim(1), x.as<decltype(t)>());
  });
}

}  // namespace divvy::cuda
