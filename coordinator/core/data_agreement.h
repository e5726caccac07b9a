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

// A worker's report about a data source that it has opened.
struct DataSeen {
  // The digest of the first elements.
  std::optional<ElementDigest> first;
  // The number of elements in a whole pass. Nullopt: not known without reading.
  std::optional<int64_t> elements;
};

// Whether two digests are of different elements. Sums of floating-point values may differ a little,
// because processors round the same arithmetic differently. Pure.
bool Differ(const ElementDigest& a, const ElementDigest& b);

// Compares what workers report about one iterator over leased data. In leased data each position is
// read by one worker. Workers with different data would therefore visit some records twice and
// others never. The data of most workers counts. If two groups have as many workers, the group that
// was heard first counts. Not thread-safe; never blocks.
//
// It compares up to three first elements, and the number of elements where a worker knows the
// number without reading. It does not compare later elements, because each worker would have to
// read more in every pass. (To reach an element of text, records or filtered data, a worker reads
// everything before it; of shuffled data, a window.) So two differences are not found:
// - another copy of a file that has the same first elements and the same number of records;
// - a file after the first elements that is missing or shorter, in data whose number of records is
//   not known beforehand (Csv, Libsvm, CriteoTsv, TfRecord, Filter, IgnoreErrors).
//
//   agreement.Note(worker, {ready.first, ready.elements});
//   for (const int worker : agreement.odd()) LeaveOut(worker);
class DataAgreement {
 public:
  // Records a worker's report. If a worker opens the data again, its last report counts. If no
  // other worker can be compared with it, its two reports are compared with each other, and the
  // worker may then be in two groups.
  void Note(int worker, const DataSeen& seen);
  // Whether the worker has reported.
  bool Knows(int worker) const;

  // The workers whose data differs from that of most workers.
  std::set<int> odd() const;
  // Whether two groups have the largest number of workers.
  bool tied() const;
  // The number of elements that more than half of the workers in the largest group report. Nullopt:
  // there is no such number. If only one of several workers knows a size, it may be wrong.
  std::optional<int64_t> elements() const;
  // InvalidArgument that names the workers, what differs between them, and the remedy. `source`:
  // the data source's name. REQUIRES: there are two groups.
  absl::Status Difference(const std::string& source) const;

 private:
  // Workers whose data agrees.
  struct Group {
    DataSeen seen;
    // In the order in which they were heard.
    std::vector<int> workers;
    // Those of `workers` that reported the number of elements.
    std::set<int> know_size;
  };
  static bool Fits(const DataSeen& a, const DataSeen& b);
  const Group& Most() const;

  // In the order in which the first worker of each group was heard.
  std::vector<Group> groups_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_DATA_AGREEMENT_H_
