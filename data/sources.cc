// Datasets made from values, functions and arrays in files.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/guarded.h"
#include "base/status_macros.h"
#include "data/files.h"
#include "data/progress.h"
#include "data/recipes.h"
#include "data/stacking.h"
#include "formats/idx.h"

namespace divvy::data_internal {
namespace {

// ---- datasets that only return an error

class FailedIterator : public PositionedIterator {
 public:
  explicit FailedIterator(absl::Status reason) : reason_(std::move(reason)) {}

 private:
  Element At(int64_t) override { return reason_; }
  const absl::Status reason_;
};

class Failure : public DatasetRecipe {
 public:
  explicit Failure(absl::Status reason) : reason_(std::move(reason)) {}
  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment&) const override {
    return std::make_unique<FailedIterator>(reason_);
  }

 private:
  const absl::Status reason_;
};

// ---- rows in memory

using LoadFn = std::function<absl::StatusOr<Nest>(const DataEnvironment&)>;

// One block, which shares the tensors.
class RowsIterator : public RowIterator {
 public:
  RowsIterator(LoadFn load, const DataEnvironment& environment)
      : load_(std::move(load)), environment_(environment) {}

 private:
  absl::Status Rows(int64_t position, int64_t most, RowList& rows) override {
    RETURN_IF_ERROR(Load());
    const int64_t left = block_->count() - position;
    if (left > 0) rows.Add(block_, position, std::min({most, left, BlockIterator::kMostRows}), 0);
    return absl::OkStatus();
  }

  absl::Status EveryRow(int64_t position, int64_t step, int64_t most, RowList& rows) override {
    RETURN_IF_ERROR(Load());
    for (; most > 0 && position < block_->count(); --most, position += step)
      rows.Add(block_, position, 1, 0);
    return absl::OkStatus();
  }

  std::optional<int64_t> KnownSize() override {
    return Load().ok() ? std::optional<int64_t>(block_->count()) : std::nullopt;
  }

  absl::Status Load() {
    if (block_ != nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(Nest rows, load_(environment_));
    ASSIGN_OR_RETURN(const int64_t count, NumRows(rows));
    block_ = Block::OfRows(std::move(rows), count, nullptr);
    return absl::OkStatus();
  }

  const LoadFn load_;
  const DataEnvironment environment_;
  std::shared_ptr<const Block> block_;
};

class Rows : public DatasetRecipe {
 public:
  explicit Rows(LoadFn load) : load_(std::move(load)) {}
  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment& environment) const override {
    return std::make_unique<RowsIterator>(load_, environment);
  }

 private:
  const LoadFn load_;
};

absl::StatusOr<Tensor> LoadIdx(const DataEnvironment& environment, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadDecompressed(FilesOf(environment), ClockOf(environment), name));
  absl::StatusOr<Tensor> array = ParseIdx(bytes);
  if (!array.ok()) return WithContext(array.status(), name);
  if (array->shape().rank() == 0)
    return absl::DataLossError(absl::StrCat(name, ": is a single number, without rows"));
  // A header of 16 bytes could announce 4 billion elements.
  if (const int64_t rows = array->shape().dim(0); rows > 0 && array->shape().num_elements() == 0)
    return absl::DataLossError(absl::StrCat(name, ": has ", rows, " empty rows"));
  return array;
}

absl::StatusOr<Nest> LoadImagesAndLabels(const DataEnvironment& environment,
                                         const std::string& images_name,
                                         const std::string& labels_name) {
  ASSIGN_OR_RETURN(Tensor images, LoadIdx(environment, images_name));
  ASSIGN_OR_RETURN(Tensor labels, LoadIdx(environment, labels_name));
  const int64_t num_images = images.shape().dim(0);
  const int64_t num_labels = labels.shape().dim(0);
  if (num_images != num_labels) {
    return absl::DataLossError(absl::StrCat(images_name, " has ", num_images, " images, but ",
                                            labels_name, " has ", num_labels,
                                            " labels: do they belong together?"));
  }
  return Nest{{"image", Nest(std::move(images))}, {"label", Nest(std::move(labels))}};
}

// ---- Generator

using GeneratorFn = std::function<Element(int64_t)>;

// Reads forward from index 0, because only the function knows at which index the data ends.
class GeneratorIterator : public PositionedIterator {
 public:
  GeneratorIterator(GeneratorFn element, int64_t size)
      : element_(std::move(element)), size_(size) {}

 private:
  Element At(int64_t position) override {
    if (position < next_) next_ = 0;
    while (true) {
      Element element = Generate(next_);
      // A skipped bad element counts like a good one, because it has an index.
      const bool stays = element.ok() ? !element->has_value() : next_ == position;
      if (stays || next_++ == position) return element;
    }
  }

  Element Generate(int64_t index) const {
    if (size_ >= 0 && index >= size_) return std::nullopt;
    ASSIGN_OR_RETURN(
        std::optional<Nest> element,
        internal::Guarded<Element>("a Generator function", [&] { return element_(index); }));
    if (!element && size_ >= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("Generator with size ", size_, " returned no element at index ", index,
                       ": pass -1 if the size is not known in advance"));
    }
    if (element) RETURN_IF_ERROR(element->status());
    return element;
  }

  std::optional<int64_t> KnownSize() override {
    return size_ >= 0 ? std::optional<int64_t>(size_) : std::nullopt;
  }

  const GeneratorFn element_;
  const int64_t size_;  // -1: not known
  int64_t next_ = 0;    // the index of the next call
};

class Generated : public DatasetRecipe {
 public:
  Generated(GeneratorFn element, int64_t size) : element_(std::move(element)), size_(size) {}
  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment&) const override {
    return std::make_unique<GeneratorIterator>(element_, size_);
  }

 private:
  const GeneratorFn element_;
  const int64_t size_;
};

}  // namespace

Recipe FailedRecipe(absl::Status reason) { return std::make_shared<Failure>(std::move(reason)); }

Recipe RowsRecipe(LoadFn load) { return std::make_shared<Rows>(std::move(load)); }

Recipe IdxRecipe(std::string images, std::string labels) {
  return RowsRecipe(
      [images = std::move(images), labels = std::move(labels)](const DataEnvironment& environment) {
        return LoadImagesAndLabels(environment, images, labels);
      });
}

Recipe GeneratorRecipe(GeneratorFn element, int64_t size) {
  return std::make_shared<Generated>(std::move(element), size);
}

}  // namespace divvy::data_internal
