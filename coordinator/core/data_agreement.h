// Decides whether all workers read the same data.
#ifndef DIVVY_COORDINATOR_CORE_DATA_AGREEMENT_H_
#define DIVVY_COORDINATOR_CORE_DATA_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "protocol/messages.h"

namespace divvy {

// What a worker reports after it has opened a data source.
struct DataSeen {
  // Of the first elements.
  std::optional<ElementDigest> first;
  // Of a whole pass. Nullopt: not known without reading.
  std::optional<int64_t> elements;
};

// Whether two digests are of different elements. Floating values may differ by what different
// processors make of the same arithmetic. Pure.
bool Differ(const ElementDigest& a, const ElementDigest& b);

// Compares what workers report about one iterator over leased data. In leased data each position is
// read by one worker. Workers with different data would therefore visit some records twice and
// others never. The data of most workers counts. If two groups have as many workers, the group that
// was heard first counts. Not thread-safe; never blocks.
//
// It compares the first elements, up to three, and the number of elements where a worker knows it
// without reading. It compares nothing further on, because each worker would have to read more in
// every pass: in text, records or filtered data everything before an element, in shuffled data its
// window. So two differences are not found:
// - another copy of a file that begins alike and has as many records;
// - a file that is missing or shorter behind the first elements, in data whose number of records is
//   not known beforehand (Csv, Libsvm, CriteoTsv, TfRecord, Filter, IgnoreErrors).
//
//   agreement.Note(worker, {ready.first, ready.elements});
//   for (const int worker : agreement.odd()) LeaveOut(worker);
class DataAgreement {
 public:
  // Records what a worker has found. A worker that opens the data again counts by its last report.
  // If it is the only worker that can be compared, its two reports are compared with each other: it
  // then stands on two sides.
  void Note(int worker, const DataSeen& seen);
  // Whether the worker has reported.
  bool Knows(int worker) const;

  // The workers whose data differs from that of most workers.
  std::set<int> odd() const;
  // Whether another group has as many workers as the largest.
  bool tied() const;
  // The number of elements, if more than half of the workers that report a number and agree with
  // the majority report it. One worker that knows a size among others that do not may be wrong.
  std::optional<int64_t> elements() const;
  // InvalidArgument that names the workers, what differs between them, and the remedy. `source`:
  // the data source's name. REQUIRES: there are two sides.
  absl::Status Difference(const std::string& source) const;

 private:
  // Workers whose data agrees.
  struct Group {
    DataSeen seen;
    std::vector<int> workers;  // in the order in which they were heard
    // Those of `workers` that reported the number of elements.
    std::set<int> know_size;
  };
  static bool Fits(const DataSeen& a, const DataSeen& b);
  const Group& Most() const;

  // In the order in which the first worker of each was heard.
  std::vector<Group> groups_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_DATA_AGREEMENT_H_
