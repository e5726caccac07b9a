// Whether all workers read the same data.
#ifndef DIVVY_COORDINATOR_CORE_DATA_AGREEMENT_H_
#define DIVVY_COORDINATOR_CORE_DATA_AGREEMENT_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cluster/messages.h"

namespace divvy {

// What a worker has read at position 0 of an iterator.
struct FirstElement {
  int worker = 0;
  ElementDigest digest;
};

// Whether two digests are of different elements. Floating values may differ by what processors of different kinds make of the same arithmetic.
bool Differ(const ElementDigest& a, const ElementDigest& b);

// With leased data each position is read by one worker, so a source that differs between workers would visit some records twice and others never.
// InvalidArgument, with what to do, where these two are different elements of one source.
absl::Status CheckSameData(const std::string& source, const FirstElement& a, const FirstElement& b);

// Of one iterator: compares what each worker has read with what the first of them has.
class DataAgreement {
 public:
  // As CheckSameData; OK for all that comes after an error: it is told once.
  absl::Status Note(const std::string& source, const FirstElement& seen);

 private:
  std::optional<FirstElement> first_;
  bool told_ = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_DATA_AGREEMENT_H_
