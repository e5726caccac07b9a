// Whether all workers read the same data.
#ifndef DIVVY_COORDINATOR_CORE_DATA_AGREEMENT_H_
#define DIVVY_COORDINATOR_CORE_DATA_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/messages.h"

namespace divvy {

// What a worker has found on opening a data source.
struct DataSeen {
  std::optional<ElementDigest> first;  // of the first elements
  std::optional<int64_t> elements;     // of a whole pass, where known
};

// Whether two digests are of different elements. Floating values may differ by what processors of
// different kinds make of the same arithmetic.
bool Differ(const ElementDigest& a, const ElementDigest& b);

// Of one iterator over leased data, of which each position is read by one worker: workers whose
// data differs would visit some records twice and others never. What most workers have found
// counts; of two sides with as many workers, the one that was heard first. Not thread-safe.
//
// It compares the first elements, up to three, and the number of elements where a worker knows it
// without reading them. It compares nothing further on: a worker finds an element in text, records
// or filtered data by reading all that is before it, and in shuffled data by reading its window,
// and every worker would have to do so in every pass. So two differences are not found:
//   - another copy of a file that begins alike and has as many records;
//   - a file that is missing, or shorter, behind the first elements, where the number of records is
//     not known beforehand (Csv, Libsvm, CriteoTsv, TfRecord, Filter, IgnoreErrors).
//
//   agreement.Note(worker, {ready.first, ready.elements});
//   for (const int worker : agreement.odd()) LeaveOut(worker);
class DataAgreement {
 public:
  // A worker that opens the data again counts by what it finds now. One that nobody can be compared
  // with is compared with itself: it then stands on two sides.
  void Note(int worker, const DataSeen& seen);
  bool Knows(int worker) const;

  std::set<int> odd() const;  // the workers whose data is not that of the most
  bool tied() const;          // as many have other data
  // As more than half of those say whose data is that of the most: one that knows a size among
  // others that do not may err.
  std::optional<int64_t> elements() const;
  // InvalidArgument: names what differs between whom, and what to do. REQUIRES: there are two
  // sides.
  absl::Status Difference(const std::string& source) const;

 private:
  struct Group {
    DataSeen seen;
    std::vector<int> workers;  // in the order in which they were heard
    std::set<int> know_size;   // of them
  };
  static bool Fits(const DataSeen& a, const DataSeen& b);
  const Group& Most() const;

  // In the order in which the first of each was heard.
  std::vector<Group> groups_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_DATA_AGREEMENT_H_
