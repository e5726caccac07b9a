// Turns a fuzzer's bytes into choices: the next message, its values, and how much time passes.
#ifndef DIVVY_TESTS_FUZZ_CHOICES_H_
#define DIVVY_TESTS_FUZZ_CHOICES_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/testing/fuzz.h"
#include "protocol/clients.h"
#include "protocol/messages.h"
#include "wire/testing/generator.h"

namespace divvy::fuzz {

// After the last byte every choice is 0. Not thread-safe.
class Choices {
 public:
  explicit Choices(absl::string_view bytes) : bytes_(bytes) {}

  bool done() const { return at_ >= bytes_.size(); }
  uint64_t Below(uint64_t bound) { return Byte() % bound; }  // REQUIRES: 0 < bound <= 256
  bool Often() { return Byte() >= 24; }
  // Small numbers, and numbers at the edges of the range.
  uint64_t Number() {
    constexpr uint64_t kEdges[] = {0,
                                   1,
                                   uint64_t{1} << 31,
                                   (uint64_t{1} << 32) - 1,
                                   std::numeric_limits<int64_t>::max(),
                                   ~uint64_t{0},
                                   65'535,
                                   65'536};
    const uint64_t byte = Byte();
    return byte < 8 ? kEdges[byte] : byte - 8;
  }
  // Up to two minutes.
  absl::Duration Time() {
    return absl::Milliseconds(1) * static_cast<double>(uint64_t{1} << Below(18));
  }
  template <typename T>
  T Any() {
    const uint64_t seed = Byte() << 8;
    return wire::testing::Generator(seed + Byte()).Make<T>();
  }
  // `right`, or now and then another id.
  template <typename Id>
  Id Nearly(Id right) {
    return Often() ? right : Id(static_cast<typename Id::value_type>(Number()));
  }
  template <typename Id>
  std::vector<Id> Rising() {
    std::vector<Id> ids;
    uint64_t next = 0;
    for (uint64_t i = Below(4); i > 0; --i)
      ids.push_back(Id(static_cast<typename Id::value_type>(next += Below(5) + (Often() ? 1 : 0))));
    return ids;
  }

 private:
  uint64_t Byte() { return done() ? 0 : static_cast<unsigned char>(bytes_[at_++]); }

  const absl::string_view bytes_;
  size_t at_ = 0;
};

// A callback that must not be called more than once.
template <typename Reply>
ResultCallback<Reply> Once(const std::shared_ptr<int>& open) {
  ++*open;
  return [open, called = std::make_shared<bool>(false)](const absl::StatusOr<Reply>&) {
    Require(!std::exchange(*called, true), "a request is answered twice");
    --*open;
  };
}

}  // namespace divvy::fuzz

#endif  // DIVVY_TESTS_FUZZ_CHOICES_H_
