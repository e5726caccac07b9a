// Compares a device's kernels with the CPU's arithmetic on random shapes: on a GPU that is emulated
// on the host, and on one of this machine.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/on_threads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cuda/device_math.h"
#include "ops/cuda/testing/backend_comparison.h"
#include "ops/fused.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "ops/testing/map_reader.h"
#include "ops/testing/place.h"

namespace divvy::internal {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class BackendTest : public ::testing::Test, protected BackendComparison {
 protected:
  BackendTest() : BackendComparison(*TestDevice(), **BackendFor(*TestDevice())) {
    RecordProperty("seed", static_cast<int>(kSeed));
  }
};

TEST_F(BackendTest, FunctionsOfOneElementAndTheirGradients) {
  for (const DType dtype : kTypes) {
    for (int op = 0; op <= static_cast<int>(UnaryOp::kSoftplus); ++op) {
      const auto unary = static_cast<UnaryOp>(op);
      const Shape shape = AnyShape(1, 3);
      const Tensor x = Values(dtype, shape, 0.1, 3), g = Values(dtype, shape);
      Compare("unary", {x}, dtype, shape,
              [&](const Backend& b, const auto& in, Tensor& y) { b.Unary(unary, in[0], y); });
      Compare("its gradient", {x, g}, dtype, shape,
              [&](const Backend& b, const auto& in, Tensor& y) {
                b.UnaryGradient(unary, in[0], in[1], y);
              });
    }
  }
}

TEST_F(BackendTest, FunctionsOfTwoElementsAreBroadcast) {
  for (int i = 0; i < kTimes; ++i) {
    for (int op = 0; op <= static_cast<int>(BinaryOp::kPowerByExponent); ++op) {
      const DType dtype = kTypes[i % 4];
      const Shape shape = AnyShape(1, 4);
      const Tensor a = Values(dtype, random_.Chance(0.5) ? shape : Stretchable(shape), 0.5, 2),
                   b = Values(dtype, Stretchable(shape), 0.5, 2);
      Compare("binary", {a, b}, dtype, shape,
              [&](const Backend& backend, const auto& in, Tensor& y) {
                backend.Binary(static_cast<BinaryOp>(op), in[0], in[1], y);
              });
      Compare("broadcast", {b}, dtype, shape,
              [&](const Backend& backend, const auto& in, Tensor& y) {
                backend.Broadcast(in[0], 0.75, y);
              });
    }
  }
}

TEST_F(BackendTest, FunctionsAfterASumAreBroadcast) {
  for (int i = 0; i < kTimes; ++i) {
    for (const UnaryOp op :
         {UnaryOp::kExp, UnaryOp::kSqrt, UnaryOp::kRelu, UnaryOp::kSigmoid, UnaryOp::kTanh}) {
      const DType dtype = kTypes[i % 4];
      const Shape shape = AnyShape(1, 4);
      const double low = op == UnaryOp::kSqrt ? 0.5 : -2;
      const Tensor a = Values(dtype, random_.Chance(0.5) ? shape : Stretchable(shape), low),
                   b = Values(dtype, Stretchable(shape), low);
      Compare("add then", {a, b}, dtype, shape,
              [&](const Backend& backend, const auto& in, Tensor& y) {
                backend.AddThen(op, in[0], in[1], y);
              });
    }
  }
}

// A thread takes 16 bytes at once if their address allows it. It does not at the end of an odd
// number of elements, nor in a tensor that begins in the middle of another.
TEST_F(BackendTest, ElementsAreTheSameHoweverManyThereAreAndWhereverTheyBegin) {
  for (const DType dtype : kTypes) {
    for (int64_t n = 0; n <= 35; ++n) {
      const int64_t start = n % 3 == 0   ? 0
                            : n % 3 == 1 ? 8
                                         : static_cast<int64_t>(random_.Below(9));
      const Tensor x = Values(dtype, Shape{start + n}, 0.5, 2), z = Values(dtype, Shape{n}, 0.5, 2);
      const auto part = [&](const std::vector<Tensor>& in) {
        return *in[0].Rows(start, start + n);
      };
      SCOPED_TRACE(absl::StrCat("from ", start));
      Compare("unary", {x}, dtype, z.shape(), [&](const Backend& b, const auto& in, Tensor& y) {
        b.Unary(UnaryOp::kSquare, part(in), y);
      });
      Compare("gradient", {x, z}, dtype, z.shape(),
              [&](const Backend& b, const auto& in, Tensor& y) {
                b.UnaryGradient(UnaryOp::kSquare, part(in), in[1], y);
              });
      Compare("binary", {x, z}, dtype, z.shape(), [&](const Backend& b, const auto& in, Tensor& y) {
        b.Binary(BinaryOp::kDivide, part(in), in[1], y);
      });
      Compare("scaled", {x}, dtype, z.shape(),
              [&](const Backend& b, const auto& in, Tensor& y) { b.Broadcast(part(in), 3, y); });
    }
  }
}

TEST_F(BackendTest, RowsAndColumnsOfEveryWidthAreBroadcast) {
  for (const DType dtype : kTypes) {
    for (int64_t width = 1; width <= 25; ++width) {
      const int64_t start = width % 3 == 0 ? static_cast<int64_t>(random_.Below(9)) : 0;
      const Tensor x = Values(dtype, Shape{3, width}, 0.5, 2),
                   row = Values(dtype, Shape{start + width}, 0.5, 2),
                   column = Values(dtype, Shape{3, 1}, 0.5, 2);
      const auto part = [&](const std::vector<Tensor>& in) {
        return *in[1].Rows(start, start + width);
      };
      SCOPED_TRACE(absl::StrCat("from ", start));
      Compare("row", {x, row}, dtype, x.shape(), [&](const Backend& b, const auto& in, Tensor& y) {
        b.Binary(BinaryOp::kSubtract, in[0], part(in), y);
      });
      Compare("sum", {x, row}, dtype, x.shape(), [&](const Backend& b, const auto& in, Tensor& y) {
        b.AddThen(UnaryOp::kTanh, part(in), in[0], y);
      });
      Compare("column", {x, column}, dtype, x.shape(),
              [](const Backend& b, const auto& in, Tensor& y) {
                b.Binary(BinaryOp::kDivide, in[1], in[0], y);
              });
      Compare("both", {column, row}, dtype, x.shape(),
              [&](const Backend& b, const auto& in, Tensor& y) {
                b.Binary(BinaryOp::kDivide, in[0], part(in), y);
              });
    }
  }
}

// 16 + 1/32 has more digits than bfloat16. Its exponential is 3% more than that of 16, and bfloat16
// distinguishes 0.4%.
TEST_F(BackendTest, TheSumOfNarrowNumbersIsNotRoundedBeforeTheFunctionAfterIt) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const double large = dtype == DType::kFloat16 ? 8 : 16,
                 small = dtype == DType::kFloat16 ? 0x1p-8 : 0x1p-5;
    const Tensor a = Cast(Tensor::Vector<double>({large}), dtype),
                 b = Cast(Tensor::Vector<double>({small}), dtype);
    const absl::StatusOr<Tensor> y =
        Computed({a, b}, dtype, Shape{1}, [](const Backend& backend, const auto& in, Tensor& y) {
          backend.AddThen(UnaryOp::kExp, in[0], in[1], y);
        });
    EXPECT_TRUE(BitwiseEqual(*y, Cast(Tensor::Vector<double>({std::exp(large + small)}), dtype)))
        << DTypeName(dtype);
    EXPECT_FALSE(BitwiseEqual(*y, Cast(Tensor::Vector<double>({std::exp(large)}), dtype)))
        << DTypeName(dtype);
  }
}

TEST_F(BackendTest, SumsAndMaximaOverAnyAxes) {
  for (int i = 0; i < 4 * kTimes; ++i) {
    const DType dtype = kTypes[i % 4];
    const Shape full = i % 8 < 4 ? Shape{200 + static_cast<int64_t>(random_.Below(100)),
                                         1 + static_cast<int64_t>(random_.Below(9))}
                                 : AnyShape(1, 4);
    const Shape to = Stretchable(full);
    const Tensor x = Values(dtype, full);
    const double squares = cpu_.SumsOfSquares({AsDoubles(x)})->at(0);
    Compare("sum", {x}, dtype, to,
            [](const Backend& b, const auto& in, Tensor& y) { b.SumTo(in[0], 0.5, y); });
    Compare("max", {x}, dtype, to,
            [](const Backend& b, const auto& in, Tensor& y) { b.MaxTo(in[0], y); });
    const Tensor there = *x.To(device_);
    EXPECT_THAT(*there_.SumsOfSquares({there, *Values(dtype, Shape{0}).To(device_), there}),
                ElementsAre(DoubleNear(squares, 1e-6 * (1 + squares)), 0,
                            DoubleNear(squares, 1e-6 * (1 + squares))));
  }
}

TEST_F(BackendTest, SumsOfFewLongRowsAreTakenInParts) {
  for (const DType dtype : kTypes) {
    const Tensor x = Values(dtype, Shape{3, 20'000});
    Compare("rows", {x}, dtype, Shape{3, 1},
            [](const Backend& b, const auto& in, Tensor& y) { b.SumTo(in[0], 0.001, y); });
    Compare("all", {x}, dtype, Shape{1, 1},
            [](const Backend& b, const auto& in, Tensor& y) { b.SumTo(in[0], 0.001, y); });
  }
}

// One kernel sums up to 4096 rows (kMostRowsOfColumn); more rows are summed in chunks. Tests both
// sides of this limit, and fewer rows.
TEST_F(BackendTest, SumsOfManyRowsAndOfTheirGradients) {
  for (const DType dtype : kTypes) {
    for (const int64_t rows : {70, 513, 4096, 4097}) {
      const Shape shape{rows, 33};
      const Tensor kept = Values(dtype, shape), g = Values(dtype, shape);
      Compare("sum", {g}, dtype, Shape{1, 33},
              [](const Backend& b, const auto& in, Tensor& y) { b.SumTo(in[0], 0.01, y); });
      Compare("gradient", {kept, g}, dtype, shape, [](const Backend& b, const auto& in, Tensor& y) {
        Tensor sums = *Tensor::Uninitialized(y.dtype(), Shape{33}, y.device());
        b.UnaryGradientAndSums(UnaryOp::kRelu, in[0], in[1], y, sums);
      });
      Compare("its sums", {kept, g}, dtype, Shape{33},
              [](const Backend& b, const auto& in, Tensor& y) {
                Tensor dx = *Tensor::Uninitialized(y.dtype(), in[0].shape(), y.device());
                b.UnaryGradientAndSums(UnaryOp::kRelu, in[0], in[1], dx, y);
              });
    }
  }
}

TEST_F(BackendTest, DropoutDropsTheSameElements) {
  for (const DType dtype : kTypes) {
    const Tensor x = Values(dtype, Shape{7, 9}, 1, 2);
    Compare("dropout", {x}, dtype, x.shape(),
            [](const Backend& b, const auto& in, Tensor& y) { b.Dropout(77, 0.3, in[0], y); });
  }
}

TEST_F(BackendTest, ProductsOfMatrices) {
  for (int i = 0; i < kTimes; ++i) {
    const DType dtype = kTypes[i % 4];
    MatMulArgs args;
    args.a_transposed = random_.Chance(0.5), args.b_transposed = random_.Chance(0.5);
    args.batch = 1 + random_.Below(3), args.m = 1 + random_.Below(9), args.n = 1 + random_.Below(9),
    args.k = 1 + random_.Below(9);
    const Tensor a = Values(dtype, Shape{args.batch * args.m * args.k}),
                 b = Values(dtype, Shape{args.batch * args.k * args.n});
    Compare("product", {a, b}, dtype, Shape{args.batch, args.m, args.n},
            [&](const Backend& backend, const auto& in, Tensor& y) {
              backend.MatMul(args, in[0], in[1], y);
            });
  }
}

// Larger than the tiles of cuBLAS, and not a multiple of them.
TEST_F(BackendTest, LargeProductsOfMatrices) {
  for (const DType dtype : kTypes) {
    for (const bool transposed : {false, true}) {
      const MatMulArgs args{transposed, !transposed, 1, 257, 129, 300};
      const Tensor a = Values(dtype, Shape{args.m * args.k}),
                   b = Values(dtype, Shape{args.k * args.n});
      Compare(
          "product", {a, b}, dtype, Shape{args.m, args.n},
          [&](const Backend& backend, const auto& in, Tensor& y) {
            backend.MatMul(args, in[0], in[1], y);
          },
          16);
    }
  }
}

TEST_F(BackendTest, ProductsKeepAllBitsOfTheirFactorsUnlessTf32IsAskedFor) {
  EXPECT_FALSE(cuda::DeviceOptions().tf32);
  const Tensor fine = Tensor::Vector<float>({1 + 0x1p-23f}), one = Tensor::Vector<float>({1});
  const absl::StatusOr<Tensor> product = Computed(
      {fine, one}, DType::kFloat32, Shape{1}, [](const Backend& b, const auto& in, Tensor& y) {
        b.MatMul({false, false, 1, 1, 1, 1}, in[0], in[1], y);
      });
  EXPECT_TRUE(BitwiseEqual(*product, fine));
}

TEST_F(BackendTest, SoftmaxNormsAndClippedRowsWithTheirGradients) {
  for (int i = 0; i < kTimes; ++i) CompareRows(kTypes[i % 4], AnyShape(2, 3));
}

// A warp computes a row up to some width, and a block computes wider rows. Tests both sides of this
// width, and much wider rows.
TEST_F(BackendTest, RowsOfEveryWidthThatAGpuTreatsInAWayOfItsOwn) {
  for (const DType dtype : kTypes) {
    for (const int64_t width : {1023, 1024, 1025, 20'000}) {
      const Shape shape{3, width};
      CompareRows(dtype, shape);
      const Tensor x = Values(dtype, shape, -5, 5), g = Values(dtype, Shape{3});
      Compare("sum", {x}, dtype, Shape{3, 1},
              [](const Backend& b, const auto& in, Tensor& y) { b.SumTo(in[0], 0.001, y); });
      Compare("sum of columns", {x}, dtype, Shape{1, width},
              [](const Backend& b, const auto& in, Tensor& y) { b.SumTo(in[0], 0.5, y); });
      Compare("max", {x}, dtype, Shape{3, 1},
              [](const Backend& b, const auto& in, Tensor& y) { b.MaxTo(in[0], y); });
      CompareCrossEntropy(x, Ids(3, width), g);
    }
  }
}

TEST_F(BackendTest, LossesByClassAndByProbability) {
  for (int i = 0; i < kTimes; ++i) {
    const DType dtype = kTypes[i % 4];
    const int64_t examples = 1 + random_.Below(9), classes = 1 + random_.Below(9);
    const Tensor x = Values(dtype, Shape{examples, classes}, -5, 5),
                 g = Values(dtype, Shape{examples});
    for (const Tensor& labels :
         {Ids(examples, classes), Values(dtype, Shape{examples, classes}, 0, 1)})
      CompareCrossEntropy(x, labels, g);
    const Tensor z = Values(dtype, x.shape(), 0, 1), gz = Values(dtype, x.shape());
    Compare("sigmoid loss", {x, z}, dtype, x.shape(),
            [](const Backend& b, const auto& in, Tensor& y) {
              EXPECT_TRUE(b.SigmoidCrossEntropy(in[0], in[1], y).ok());
            });
    Compare("its gradient", {x, z, gz}, dtype, x.shape(),
            [](const Backend& b, const auto& in, Tensor& y) {
              b.SigmoidCrossEntropyGradient(in[0], in[1], in[2], y);
            });
  }
}

TEST_F(BackendTest, ConvolutionsAndPools) {
  for (int i = 0; i < kTimes; ++i) CompareConvolutionAndPool(kTypes[i % 4]);
}

TEST_F(BackendTest, CastsBetweenAllTypes) {
  for (const DType from : {DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64,
                           DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const DType to : {DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64,
                           DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      const Tensor x = Values(from, Shape{40}, -300, 300);
      CompareBits("cast", {x}, to, x.shape(),
                  [](const Backend& b, const auto& in, Tensor& y) { b.Cast(in[0], y); });
    }
  }
}

TEST_F(BackendTest, PermutationsAndBlocksOfAnyType) {
  for (int i = 0; i < 2 * kTimes; ++i) {
    const DType dtype =
        std::vector<DType>{DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kInt64}[i % 4];
    const Shape shape = AnyShape(1, 4);
    std::vector<int> axes(shape.rank());
    std::vector<int64_t> dims;
    for (int axis = 0; axis < shape.rank(); ++axis) axes[axis] = axis;
    for (size_t axis = axes.size(); axis > 1; --axis)
      std::swap(axes[axis - 1], axes[random_.Below(axis)]);
    for (const int axis : axes) dims.push_back(shape.dim(axis));
    const Tensor x = Values(dtype, shape, -100, 100);
    CompareBits("permute", {x}, dtype, Shape(dims),
                [&](const Backend& b, const auto& in, Tensor& y) { b.Permute(in[0], axes, y); });
    CompareBits("blocks", {x}, dtype, shape, [](const Backend& b, const auto& in, Tensor& y) {
      const int64_t rows = in[0].shape().dim(0), bytes = in[0].size_bytes() / rows;
      b.CopyBlocks(y.device(), in[0].data(), bytes, y.fresh_data<char>(), bytes, bytes, rows);
    });
  }
}

TEST_F(BackendTest, RowsByNumberListsOfRowsAndTriangles) {
  for (int i = 0; i < kTimes; ++i) {
    const DType dtype = kTypes[i % 4];
    const int64_t rows = 1 + random_.Below(9), n = 1 + random_.Below(20),
                  width = 1 + random_.Below(9), lists = 1 + random_.Below(5);
    const Tensor x = Values(dtype, Shape{rows, width}), ids = Ids(n, rows),
                 g = Values(dtype, Shape{n, width});
    Compare("gather", {x, ids}, dtype, g.shape(), [](const Backend& b, const auto& in, Tensor& y) {
      EXPECT_TRUE(b.GatherRows(in[0], in[1], y).ok());
    });
    Compare("scatter", {ids, g}, dtype, x.shape(),
            [](const Backend& b, const auto& in, Tensor& y) { b.ScatterAddRows(in[0], in[1], y); });

    std::vector<int64_t> splits{0};
    for (int64_t list = 1; list < lists; ++list)
      splits.push_back(splits.back() + static_cast<int64_t>(random_.Below(n - splits.back() + 1)));
    splits.push_back(n);
    const Tensor weights = Values(dtype, Shape{n}), divisors = Values(dtype, Shape{lists}, 0.5, 2);
    const auto list_of = [&](const std::vector<Tensor>& in) {
      return i % 3 == 0 ? RowLists{in[0], {}, {}} : RowLists{in[0], in[1], in[2]};
    };
    const Tensor ends = *Tensor::Copy<int64_t>(Shape{lists + 1}, splits);
    Compare(
        "combine", {ends, weights, divisors, g}, dtype, Shape{lists, width},
        [&](const Backend& b, const auto& in, Tensor& y) { b.CombineRows(list_of(in), in[3], y); });
    Compare(
        "spread", {ends, weights, divisors, Values(dtype, Shape{lists, width})}, dtype, g.shape(),
        [&](const Backend& b, const auto& in, Tensor& y) { b.SpreadRows(list_of(in), in[3], y); });

    const int64_t batch = 1 + random_.Below(3), f = 2 + random_.Below(7);
    const Shape square{batch, f, f}, triangle{batch, f * (f - 1) / 2};
    Compare("triangles", {Values(dtype, square)}, dtype, triangle,
            [](const Backend& b, const auto& in, Tensor& y) { b.LowerTriangles(in[0], y); });
    Compare(
        "symmetric", {Values(dtype, triangle)}, dtype, square,
        [](const Backend& b, const auto& in, Tensor& y) { b.SymmetricFromTriangles(in[0], y); });
  }
}

// Tests random, few, equal, rising and falling ids, up to so many that all steps of the sort, and
// sums across windows, happen.
TEST_F(BackendTest, DuplicatesAreSummedInTheOrderInWhichTheyStand) {
  int turn = 0;
  for (const int64_t n : {0, 1, 2, 63, 64, 65, 129, 1000, 5000, 100000}) {
    for (const int64_t limit : {1, 3, 70, 1000000}) {
      const DType dtype = kTypes[++turn % 4];
      const int64_t width = n > 10000 ? 2 : 1 + static_cast<int64_t>(random_.Below(9));
      Tensor ids = Ids(n, limit);
      if (turn % 5 == 0) std::sort(ids.fresh_data<int64_t>(), ids.fresh_data<int64_t>() + n);
      if (turn % 5 == 1)
        std::sort(ids.fresh_data<int64_t>(), ids.fresh_data<int64_t>() + n,
                  std::greater<int64_t>());
      SCOPED_TRACE(absl::StrCat(n, " ids below ", limit, ", ", DTypeName(dtype)));
      const Tensor rows = Values(dtype, Shape{n, width});
      const absl::StatusOr<IndexedSlices> expected =
          cpu_.SumDuplicates({ids, AsDoubles(rows), limit});
      const absl::StatusOr<IndexedSlices> summed =
          there_.SumDuplicates({ids, *rows.To(device_), limit});
      ASSERT_TRUE(expected.ok() && summed.ok()) << summed.status();
      EXPECT_TRUE(BitwiseEqual(summed->ids, expected->ids));
      EXPECT_EQ(Validate(*summed), absl::OkStatus());
      ExpectNear(*summed->rows.To(Device{}), expected->rows, Tolerance(dtype));
    }
  }
}

TEST_F(BackendTest, DuplicatesOfOneIdAreAddedFromTheFirstToTheLast) {
  // Added from the last row on, the sum would be 1.
  const Tensor ids = Tensor::Vector<int64_t>({5, 2, 5, 5}),
               rows = Tensor::Vector<double>({1, 7, 1e16, -1e16});
  const absl::StatusOr<IndexedSlices> summed = there_.SumDuplicates({ids, *rows.To(device_), 6});
  ASSERT_TRUE(summed.ok()) << summed.status();
  EXPECT_EQ(summed->rows.To(Device{})->values<double>()->at(1), 0);
}

TEST_F(BackendTest, SlicesWithoutDuplicatesAreGivenBackAsTheyAre) {
  const IndexedSlices rising{Tensor::Vector<int64_t>({1, 4}),
                             *Values(DType::kFloat32, Shape{2, 3}).To(device_), 5};
  EXPECT_EQ(SumDuplicates(rising)->rows.data(), rising.rows.data());
  const IndexedSlices mixed{Tensor::Vector<int64_t>({4, 1, 4}),
                            *Tensor::Vector<float>({1, 2, 3}).To(device_), 5};
  const absl::StatusOr<IndexedSlices> summed = SumDuplicates(mixed);
  ASSERT_TRUE(summed.ok()) << summed.status();
  EXPECT_TRUE(BitwiseEqual(summed->ids, Tensor::Vector<int64_t>({1, 4})));
  EXPECT_TRUE(BitwiseEqual(*summed->rows.To(Device{}), Tensor::Vector<float>({2, 4})));
  const IndexedSlices narrow{mixed.ids, Cast(Tensor::Vector<float>({1, 2, 3}), DType::kFloat16), 5};
  EXPECT_THAT(std::string(SumDuplicates(narrow).status().message()),
              HasSubstr("SumDuplicates: arithmetic does not take float16 [3] on the CPU"));
}

TEST_F(BackendTest, ATapeComputesInNarrowTypesAndTheCpuSaysWhereThatGoes) {
  for (const DType narrow : {DType::kFloat16, DType::kBFloat16}) {
    MapReader reader;
    GradientTape tape(reader);
    const Var x = tape.Watch("x", *Cast(Tensor::Vector<float>({1, 2, -3, 4}), narrow).To(device_));
    const Var y = ReduceSum(Square(x) * 0.5f) + ReduceSum(x);
    EXPECT_EQ(y.dtype(), narrow);
    const absl::StatusOr<Gradients> gradients = tape.Gradient(y);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    EXPECT_EQ(*gradients->GlobalNorm(), std::sqrt(4.0 + 9 + 4 + 25));
    const absl::StatusOr<Tensor> dx = std::get<Tensor>(gradients->entries().at("x")).To(Device{});
    EXPECT_TRUE(BitwiseEqual(*dx, Cast(Tensor::Vector<float>({2, 3, -2, 5}), narrow)));
    const absl::Status here = Relu(*dx).status();
    EXPECT_EQ(here.message(), absl::StrCat("Relu: arithmetic does not take ", DTypeName(narrow),
                                           " [4] on the CPU; Cast it to "
                                           "float32 or float64, or compute on a GPU"));
  }
}

TEST_F(BackendTest, WhatFollowsFromAnEmptyBatchIsComputedOnItsDevice) {
  MapReader reader;
  GradientTape tape(reader);
  const Tensor nothing = *Tensor::Uninitialized(DType::kFloat32, Shape{0, 3}, device_);
  const Var w = tape.Watch("w", *Values(DType::kFloat32, Shape{3, 2}).To(device_)),
            b = tape.Watch("b", *Values(DType::kFloat32, Shape{2}).To(device_));
  const absl::StatusOr<Gradients> gradients =
      tape.Gradient(ReduceSum(Relu(MatMul(nothing, w) + b)));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  for (const auto& [name, gradient] : gradients->entries())
    EXPECT_EQ(std::get<Tensor>(gradient).device(), device_) << name;
  EXPECT_EQ(gradients->entries().size(), 2u);
  EXPECT_EQ(*gradients->GlobalNorm(), 0);
}

TEST_F(BackendTest, AnIdOutOfRangeIsToldWhenAValueComesBackAndOnlyOnce) {
  // If two ids were wrong, a device could report either.
  const Tensor ids = *Tensor::Vector<int64_t>({0, 7, 1}).To(device_);
  Tensor y = *Tensor::Uninitialized(DType::kFloat32, Shape{3, 2}, device_);
  ASSERT_TRUE(there_.GatherRows(*Values(DType::kFloat32, Shape{3, 2}).To(device_), ids, y).ok());
  const absl::Status told = y.To(Device{}).status();
  EXPECT_EQ(told.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(told.message()),
      StartsWith("Gather: id 7 at 1 is outside [0, 3), the rows of float32 [3, 2], on GPU:0 ("));
  EXPECT_TRUE(y.To(Device{}).ok());
}

// Each thread has its own inputs, so the test notices if one thread's kernel writes into another's
// memory.
TEST_F(BackendTest, SeveralThreadsComputeAtOnce) {
  OnThreads(3, [&](int thread) {
    BackendComparison own(device_, there_, kSeed + thread);
    for (int i = 0; i < kTimes && !HasFailure(); ++i) {
      const DType dtype = kTypes[i % 4];
      own.CompareRows(dtype, Shape{3, 1000 + thread});
      own.CompareConvolutionAndPool(dtype);
      const Tensor a = own.Values(dtype, Shape{40, 30}), b = own.Values(dtype, Shape{30, 20});
      own.Compare(
          "product", {a, b}, dtype, Shape{40, 20},
          [](const Backend& backend, const auto& in, Tensor& y) {
            backend.MatMul({false, false, 1, 40, 20, 30}, in[0], in[1], y);
          },
          4);
    }
  });
}

// The thread that waits next gets the error. The values of the other threads are right.
TEST_F(BackendTest, AFaultAmongTheWorkOfOtherThreadsIsTold) {
  std::atomic<int> told{0};
  OnThreads(3, [&](int thread) {
    BackendComparison own(device_, there_, kSeed + thread);
    const Tensor x = own.Values(DType::kFloat32, Shape{300, 5}), there = *x.To(device_),
                 right = *own.Ids(40, 300).To(device_);
    for (int i = 0; i < 50; ++i) {
      const Tensor ids =
          thread == 0 && i % 10 == 5 ? *Tensor::Vector<int64_t>({0, 777}).To(device_) : right;
      Tensor y = *Tensor::Uninitialized(DType::kFloat32, Shape{ids.shape().dim(0), 5}, device_);
      ASSERT_TRUE(there_.GatherRows(there, ids, y).ok());
      const absl::StatusOr<Tensor> here = y.To(Device{});
      if (here.ok()) continue;
      EXPECT_THAT(
          std::string(here.status().message()),
          StartsWith(
              "Gather: id 777 at 1 is outside [0, 300), the rows of float32 [300, 5], on GPU:0 ("));
      ++told;
    }
  });
  EXPECT_GE(told, 5);
}

}  // namespace
}  // namespace divvy::internal
