// Compiles a loop for several instruction sets and runs it with the best that the processor has.
#ifndef DIVVY_BASE_VECTOR_LEVEL_H_
#define DIVVY_BASE_VECTOR_LEVEL_H_

namespace divvy {

// The instruction sets that AtVectorLevel compiles for, each a part of the next. Processors other
// than x86-64 have kBase alone.
enum class VectorLevel {
  kBase,   // what the whole program is compiled for
  kAvx2,   // vectors of 32 bytes
  kAvx512  // vectors of 64 bytes: AVX-512 F, VL, BW and DQ
};

// The best level of this processor, or what SetVectorLevel chose. Thread-safe; costs one load.
VectorLevel CurrentVectorLevel();

// The best level of this processor, whatever SetVectorLevel chose. Thread-safe.
VectorLevel BestVectorLevel();

// For tests and benchmarks: the level of all later calls in this process. Thread-safe.
// REQUIRES: level <= BestVectorLevel().
void SetVectorLevel(VectorLevel level);

// "base", "avx2", "avx512".
const char* VectorLevelName(VectorLevel level);

namespace internal {

// A function with these attributes is compiled for its level together with all that it inlines,
// and `flatten` inlines all that it can. The instruction sets are listed one by one: gcc does not
// inline a function of the program into one of another `arch`. FMA is not among them, but AVX-512 F
// implies it: see AtVectorLevel.
#if defined(__x86_64__)
#define DIVVY_AVX2 __attribute__((flatten, target("avx2,bmi,bmi2,popcnt")))
#if defined(__clang__)
#define DIVVY_AVX512                             \
  __attribute__((flatten, min_vector_width(512), \
                 target("avx512f,avx512vl,avx512bw,avx512dq,bmi,bmi2,popcnt")))
#else
#define DIVVY_AVX512 \
  __attribute__((    \
      flatten,       \
      target("avx512f,avx512vl,avx512bw,avx512dq,bmi,bmi2,popcnt,prefer-vector-width=512")))
#endif
#else
#define DIVVY_AVX2
#define DIVVY_AVX512
#endif

template <typename Body>
__attribute__((flatten)) void RunAtBase(const Body& body) {
  body();
}
template <typename Body>
DIVVY_AVX2 void RunAtAvx2(const Body& body) {
  body();
}
template <typename Body>
DIVVY_AVX512 void RunAtAvx512(const Body& body) {
  body();
}

}  // namespace internal

// Calls body(), which is compiled once for each level, at CurrentVectorLevel(). For loops that the
// compiler vectorizes: a level costs an indirect jump, and all that `body` calls should be small or
// have a definition that the compiler can inline. A function that is not inlined runs at kBase.
//
//   AtVectorLevel([=] {
//     for (int64_t i = 0; i < n; ++i) to[i] = std::sqrt(from[i]);
//   });
//
// The results have the same bits at every level, because each element is computed by the same
// IEEE 754 operations in the same order. This wants `-ffp-contract=off` among the options of the
// library: AVX-512 has fused multiply-adds, which round once where the others round twice.
template <typename Body>
void AtVectorLevel(const Body& body) {
#if defined(__x86_64__)
  switch (CurrentVectorLevel()) {
    case VectorLevel::kAvx512: return internal::RunAtAvx512(body);
    case VectorLevel::kAvx2: return internal::RunAtAvx2(body);
    case VectorLevel::kBase: break;
  }
#endif
  internal::RunAtBase(body);
}

}  // namespace divvy

#endif  // DIVVY_BASE_VECTOR_LEVEL_H_
