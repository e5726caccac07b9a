#include "data/testing/seek_suite.h"

#include <optional>

#include "base/random.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

// Expects that Next at `position` returns the element of `pass`.
void ExpectElement(DatasetIterator& iterator, int64_t position, const std::vector<Nest>& pass) {
  const bool there = position < static_cast<int64_t>(pass.size());
  const absl::StatusOr<std::optional<Nest>> element = iterator.Next();
  ASSERT_TRUE(element.ok()) << "position " << position << ": " << element.status();
  ASSERT_EQ(element->has_value(), there) << "position " << position << " of " << pass.size();
  if (!there) return;
  ASSERT_TRUE(BitwiseEqual(**element, pass[static_cast<size_t>(position)]))
      << "position " << position << ": " << (*element)->ToString();
}

}  // namespace

std::vector<Nest> PlainPass(const Dataset& dataset, const DataEnvironment& environment) {
  std::vector<Nest> elements;
  const auto iterator = dataset.Iterate(environment);
  while (true) {
    absl::StatusOr<std::optional<Nest>> element = iterator->Next();
    EXPECT_TRUE(element.ok()) << element.status();
    if (!element.ok() || !element->has_value()) return elements;
    elements.push_back(**element);
  }
}

void ExpectEveryPositionCanBeSought(const Dataset& dataset, uint64_t seed,
                                    const DataEnvironment& environment) {
  constexpr int kSeeks = 16;
  const std::vector<Nest> pass = PlainPass(dataset, environment);
  const int64_t size = static_cast<int64_t>(pass.size());
  const auto iterator = dataset.Iterate(environment);
  Random random(seed);
  for (int round = 0; round < kSeeks; ++round) {
    ASSERT_EQ(iterator->size().value_or(size), size);
    const int64_t first = static_cast<int64_t>(random.Below(pass.size() + 3));
    ASSERT_TRUE(iterator->Seek(first).ok());
    const int64_t last = first + static_cast<int64_t>(random.Below(6));
    for (int64_t position = first; position <= last; ++position) {
      ASSERT_NO_FATAL_FAILURE(ExpectElement(*iterator, position, pass));
      if (position >= size) break;
    }
  }
}

}  // namespace divvy
