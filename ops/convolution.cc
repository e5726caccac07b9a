// Operations that move a window over images: convolution and pooling.
#include "ops/operation.h"

namespace divvy {
namespace {

using internal::Backend;
using internal::GradientList;
using internal::InvalidOperands;
using internal::Window2D;

// One axis: the padding before the image, and the number of windows.
struct Span1D {
  int64_t before = 0;
  int64_t places = 0;
};

// As TensorFlow: kSame has ceil(extent / stride) windows and pads evenly, with the odd one at the
// end. kValid does not pad.
Span1D SpanOf(int64_t extent, int64_t window, int64_t stride, Padding padding) {
  if (padding == Padding::kValid) return {0, (extent - window) / stride + 1};
  const int64_t places = (extent + stride - 1) / stride;
  return {std::max<int64_t>(0, (places - 1) * stride + window - extent) / 2, places};
}

// REQUIRES: x has rank 4. InvalidArgument: a window or stride below 1, or a window that does not
// fit into an image without padding.
absl::StatusOr<Window2D> WindowOf(absl::string_view operation, const Shape& x, int64_t height,
                                  int64_t width, int64_t stride, Padding padding) {
  if (stride < 1)
    return InvalidOperands(operation, "the stride is ", stride, "; it must be at least 1");
  if (height < 1 || width < 1)
    return InvalidOperands(operation, "the window is ", height, " x ", width,
                           "; it must be at least 1 x 1");
  if (padding == Padding::kValid && (height > x.dim(1) || width > x.dim(2))) {
    return InvalidOperands(operation, "a window of ", height, " x ", width,
                           " does not fit into the images of ", x.ToString(),
                           " without padding; use Padding::kSame");
  }
  const Span1D rows = SpanOf(x.dim(1), height, stride, padding),
               columns = SpanOf(x.dim(2), width, stride, padding);
  return Window2D{x.dim(0), x.dim(1),    x.dim(2),       x.dim(3),    height,        width,
                  stride,   rows.before, columns.before, rows.places, columns.places};
}

absl::StatusOr<Window2D> ConvolutionWindow(const Tensor& x, const Tensor& kernel, int stride,
                                           Padding padding) {
  const Shape& images = x.shape();
  const Shape& weights = kernel.shape();
  if (images.rank() != 4 || weights.rank() != 4 || images.dim(3) != weights.dim(2) ||
      x.dtype() != kernel.dtype()) {
    return InvalidOperands(
        "Conv2D", "images ", x.ToString(), " and kernel ", kernel.ToString(),
        "; images are [batch, height, width, channels], a kernel [height, width, "
        "channels, outputs] of the same dtype");
  }
  RETURN_IF_ERROR(internal::CheckComputedWith("Conv2D", x));
  ASSIGN_OR_RETURN(const Window2D window,
                   WindowOf("Conv2D", images, weights.dim(0), weights.dim(1), stride, padding));
  RETURN_IF_ERROR(internal::CheckFitsBlas(
      "Conv2D", kernel,
      {window.height * window.width * window.channels, window.out_width, weights.dim(3)}));
  return window;
}

absl::StatusOr<Var> TryConv2D(const Var& x, const Var& kernel, int stride, Padding padding) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("Conv2D", {x, kernel}));
  const Tensor images = internal::ValueOf(x), weights = internal::ValueOf(kernel);
  ASSIGN_OR_RETURN(const Window2D window, ConvolutionWindow(images, weights, stride, padding));
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(images, {window.batch, window.out_height,
                                                        window.out_width, weights.shape().dim(3)}));
  backend->Conv2D(window, images, weights, y);
  const bool for_x = internal::NeedsGradient(x), for_kernel = internal::NeedsGradient(kernel);
  auto backward = [=](const Tensor& gradient) -> absl::StatusOr<GradientList> {
    GradientList gradients(2);
    if (for_x) {
      ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(images));
      backend->Conv2DInputGradient(window, weights, gradient, dx);
      gradients[0] = std::move(dx);
    }
    if (for_kernel) {
      ASSIGN_OR_RETURN(Tensor dkernel, internal::NewLike(weights));
      backend->Conv2DKernelGradient(window, images, gradient, dkernel);
      gradients[1] = std::move(dkernel);
    }
    return gradients;
  };
  return internal::Result(std::move(y), {x, kernel}, std::move(backward));
}

absl::StatusOr<Var> TryMaxPool2D(const Var& x, int size, int stride, Padding padding) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("MaxPool2D", {x}));
  const Tensor images = internal::ValueOf(x);
  if (images.shape().rank() != 4)
    return InvalidOperands("MaxPool2D", images.ToString(),
                           " are no images; they are [batch, height, width, channels]");
  RETURN_IF_ERROR(internal::CheckComputedWith("MaxPool2D", images));
  ASSIGN_OR_RETURN(const Window2D window,
                   WindowOf("MaxPool2D", images.shape(), size, size, stride, padding));
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(images, {window.batch, window.out_height,
                                                        window.out_width, window.channels}));
  backend->MaxPool(window, images, y);
  return internal::Result(y, {x}, [=](const Tensor& gradient) -> absl::StatusOr<GradientList> {
    ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(images));
    backend->MaxPoolGradient(window, images, y, gradient, dx);
    return GradientList{std::move(dx)};
  });
}

}  // namespace

Var Conv2D(const Var& x, const Var& kernel, int stride, Padding padding) {
  return internal::OrFailed(TryConv2D(x, kernel, stride, padding));
}
Var MaxPool2D(const Var& x, int window, int stride, Padding padding) {
  return internal::OrFailed(TryMaxPool2D(x, window, stride, padding));
}

}  // namespace divvy
