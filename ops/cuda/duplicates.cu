// Sums rows with equal ids in the order in which they come, so equal inputs give equal bits. The
// steps:
//
//   1. Ids are sorted with their positions: tiles by counting, then runs of tiles merged in pairs.
//   2. The sorted list is cut into windows. For each window and column, a thread adds up each id's
//      rows in the window. An id that begins and ends in the window is done. The sum of an id that
//      continues from the window before is the window's head; the sum of one that continues into
//      the next window is its tail.
//   3. The sum of an id that crosses windows is its tail plus the following heads.
//
// If the sums are stored consecutively and not at their ids, the place of an id is the number of
// ids that begin before it.
#include "ops/cuda/kernel_math.h"
#include "ops/loops.h"

namespace divvy::cuda {
namespace {

constexpr int64_t kTile = 64;
constexpr int64_t kWindow = 64;

// An id and its position. No two entries are equal.
struct Entry {
  int64_t id, position;
  DIVVY_HOST_DEVICE bool operator<(const Entry& other) const {
    return id < other.id || (id == other.id && position < other.position);
  }
};

DIVVY_HOST_DEVICE int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// The place of each entry in its tile is the number of smaller entries.
void SortTiles(Stream stream, const int64_t* ids, int64_t n, Entry* to) {
  ForEach(stream, n, [=] DIVVY_BODY(int64_t i) {
    const Entry own{ids[i], i};
    const int64_t begin = i / kTile * kTile, end = Least(begin + kTile, n);
    int64_t place = begin;
    for (int64_t j = begin; j < end; ++j) place += Entry{ids[j], j} < own ? 1 : 0;
    to[place] = own;
  });
}

// The number of entries of the sorted range [begin, end) that are smaller.
DIVVY_HOST_DEVICE int64_t CountSmaller(const Entry* entries, int64_t begin, int64_t end,
                                       const Entry& than) {
  const int64_t first = begin;
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (entries[middle] < than) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin - first;
}

// Merges two runs: the place of an entry is its place in its own run plus the number of smaller
// entries in the other.
void MergeRuns(Stream stream, const Entry* from, int64_t n, int64_t run, Entry* to) {
  ForEach(stream, n, [=] DIVVY_BODY(int64_t i) {
    const Entry own = from[i];
    const int64_t mine = i / run * run, both = i / (2 * run) * (2 * run),
                  other = mine == both ? both + run : both;
    to[both + i - mine + CountSmaller(from, Least(other, n), Least(other + run, n), own)] = own;
  });
}

// Sorts the ids. Returns that of the two buffers which has the sorted entries.
const Entry* Sort(Stream stream, const int64_t* ids, int64_t n, Entry* buffer, Entry* other) {
  SortTiles(stream, ids, n, buffer);
  for (int64_t run = kTile; run < n; run *= 2) {
    MergeRuns(stream, buffer, n, run, other);
    std::swap(buffer, other);
  }
  return buffer;
}

// The sorted list and its windows.
struct Sorted {
  const Entry* entries;
  int64_t n;

  DIVVY_HOST_DEVICE int64_t windows() const { return (n + kWindow - 1) / kWindow; }
  DIVVY_HOST_DEVICE int64_t end_of(int64_t window) const {
    return Least((window + 1) * kWindow, n);
  }
  DIVVY_HOST_DEVICE bool begins(int64_t i) const {
    return i == 0 || entries[i - 1].id != entries[i].id;
  }
  DIVVY_HOST_DEVICE bool ends(int64_t i) const {
    return i + 1 == n || entries[i + 1].id != entries[i].id;
  }
};

// before[w]: the number of ids that begin before window w. before[windows]: the number of all ids.
void CountBefore(Stream stream, const Sorted& sorted, int64_t* before) {
  ForEach(stream, sorted.windows(), [=] DIVVY_BODY(int64_t window) {
    int64_t begun = 0;
    for (int64_t i = window * kWindow; i < sorted.end_of(window); ++i)
      begun += sorted.begins(i) ? 1 : 0;
    before[window] = begun;
  });
  ForEachRow(stream, 1, kWideRow, [=] DIVVY_BODY(int64_t, const Lanes& lanes) {
    const int64_t windows = sorted.windows(), share = (windows + lanes.count - 1) / lanes.count;
    const int64_t begin = Least(lanes.index * share, windows), end = Least(begin + share, windows);
    double own = 0;
    for (int64_t window = begin; window < end; ++window) own += static_cast<double>(before[window]);
    auto sum = static_cast<int64_t>(lanes.SumBefore(own));
    for (int64_t window = begin; window < end; ++window) {
      const int64_t begun = before[window];
      before[window] = sum;
      sum += begun;
    }
    if (end == windows && begin < end) before[windows] = sum;
  });
}

// Writes the unique ids to `unique`, zeros behind them, and the number of unique ids to unique[n].
// The host copies all of it at once, because it does not know their number yet.
void WriteIds(Stream stream, const Sorted& sorted, const int64_t* before, int64_t* unique) {
  ForEach(stream, sorted.windows(), [=] DIVVY_BODY(int64_t window) {
    const int64_t all = before[sorted.windows()];
    int64_t at = before[window];
    for (int64_t i = window * kWindow; i < sorted.end_of(window); ++i) {
      if (sorted.begins(i)) {
        unique[at++] = sorted.entries[i].id;
      } else {
        unique[all + i - at] = 0;
      }
    }
    if (window == 0) unique[sorted.n] = all;
  });
}

// The place of a sum: row id of `limit` rows or, if `before` is known, consecutive places.
template <typename T>
struct Sums {
  T* rows;
  int64_t width, limit;
  const int64_t* before;

  DIVVY_HOST_DEVICE void Set(int64_t id, int64_t ordinal, int64_t column, double sum) const {
    const int64_t row = before != nullptr ? ordinal : id;
    if (row >= 0 && row < limit) rows[row * width + column] = static_cast<T>(sum);
  }
};

template <typename T>
void SumWindows(Stream stream, const Sorted& sorted, const T* rows, const Sums<T>& sums,
                double* heads, double* tails) {
  const int64_t width = sums.width;
  ForEach(stream, sorted.windows() * width, [=] DIVVY_BODY(int64_t at) {
    const auto [window, column] = internal::Divide(at, width);
    const int64_t end = sorted.end_of(window);
    int64_t ordinal = sums.before != nullptr ? sums.before[window] - 1 : 0;
    bool is_head = !sorted.begins(window * kWindow);
    double sum = 0;
    for (int64_t i = window * kWindow; i < end; ++i) {
      ordinal += sorted.begins(i) ? 1 : 0;
      sum += rows[sorted.entries[i].position * width + column];
      const bool is_done = sorted.ends(i);
      if (!is_done && i + 1 < end) continue;
      if (is_head) {
        heads[at] = sum;
      } else if (is_done) {
        sums.Set(sorted.entries[i].id, ordinal, column, sum);
      } else {
        tails[at] = sum;
      }
      is_head = false;
      sum = 0;
    }
  });
}

template <typename T>
void SumAcrossWindows(Stream stream, const Sorted& sorted, const Sums<T>& sums, const double* heads,
                      const double* tails) {
  const int64_t width = sums.width;
  ForEach(stream, sorted.windows() * width, [=] DIVVY_BODY(int64_t at) {
    const internal::Division place = internal::Divide(at, width);
    const int64_t column = place.rest;
    int64_t window = place.whole;
    const int64_t last = sorted.end_of(window) - 1, id = sorted.entries[last].id,
                  begin = window * kWindow;
    const bool goes_on = !sorted.ends(last),
               begins_before = !sorted.begins(begin) && sorted.entries[begin].id == id;
    if (!goes_on || begins_before) return;
    const int64_t ordinal = sums.before != nullptr ? sums.before[window + 1] - 1 : 0;
    double sum = tails[at];
    for (bool is_done = false; !is_done;) {
      sum += heads[++window * width + column];
      const int64_t end = sorted.end_of(window) - 1;
      is_done = sorted.entries[end].id != id || sorted.ends(end);
    }
    sums.Set(id, ordinal, column, sum);
  });
}

// The temporary memory of the device for a list of ids.
class Duplicates {
 public:
  Duplicates(KernelMath& math, int device, int64_t n, int64_t width)
      : sorted_{nullptr, n},
        entries_(math, device, 2 * n * sizeof(Entry)),
        pieces_(math, device, 2 * sorted_.windows() * width * sizeof(double)),
        before_(math, device, (sorted_.windows() + 1) * sizeof(int64_t)) {}

  bool has_memory() const {
    return entries_.is_there() && pieces_.is_there() && before_.is_there();
  }
  // REQUIRES: has_memory().
  void Sort(Stream stream, const int64_t* ids) {
    sorted_.entries =
        cuda::Sort(stream, ids, sorted_.n, entries_.as<Entry>(), entries_.as<Entry>() + sorted_.n);
  }
  // REQUIRES: Sort (all below).
  const int64_t* WriteIdsTo(Stream stream, int64_t* unique) {
    CountBefore(stream, sorted_, before_.as<int64_t>());
    WriteIds(stream, sorted_, before_.as<int64_t>(), unique);
    return before_.as<int64_t>();
  }
  template <typename T>
  void Sum(Stream stream, const T* rows, const Sums<T>& sums) {
    double* const heads = pieces_.as<double>();
    double* const tails = heads + sorted_.windows() * sums.width;
    SumWindows(stream, sorted_, rows, sums, heads, tails);
    SumAcrossWindows(stream, sorted_, sums, heads, tails);
  }

 private:
  Sorted sorted_;
  const Scratch entries_, pieces_, before_;
};

// Adds the rows in the order in which the device schedules them.
template <typename T>
void AddRows(Stream stream, const int64_t* ids, const T* rows, int64_t n, int64_t width,
             int64_t limit, T* y) {
  ForEach(stream, n * width, [=] DIVVY_BODY(int64_t i) {
    const auto [row, column] = internal::Divide(i, width);
    const int64_t id = ids[row];
    if (id >= 0 && id < limit) AddAtomically(y + id * width + column, rows[i]);
  });
}

}  // namespace

void KernelMath::ScatterAddRows(int device, const int64_t* ids, const Array& rows, const Array& y) {
  Zero(device, y.data, y.size_bytes());
  const Stream stream = Use(device);
  const int64_t width = y.row_size(), n = width == 0 ? 0 : rows.size() / width;
  if (n == 0) return;
  if (!options().deterministic && y.element == Element::kFloat32)
    return AddRows(stream, ids, rows.as<const float>(), n, width, y.dim(0), y.as<float>());
  if (!options().deterministic && y.element == Element::kFloat64)
    return AddRows(stream, ids, rows.as<const double>(), n, width, y.dim(0), y.as<double>());
  Duplicates duplicates(*this, device, n, width);
  if (!duplicates.has_memory()) return;
  duplicates.Sort(stream, ids);
  WithFloating(y.element, [&](auto t) {
    using T = decltype(t);
    duplicates.Sum(stream, rows.as<const T>(), Sums<T>{y.as<T>(), width, y.dim(0), nullptr});
  });
}

void KernelMath::SumDuplicates(int device, const int64_t* ids, const Array& rows, int64_t* unique,
                               const Array& sums) {
  const Stream stream = Use(device);
  const int64_t n = rows.dim(0), width = rows.row_size();
  if (n == 0) return Zero(device, unique, sizeof(int64_t));
  Duplicates duplicates(*this, device, n, width);
  if (!duplicates.has_memory()) return;
  duplicates.Sort(stream, ids);
  const int64_t* const before = duplicates.WriteIdsTo(stream, unique);
  WithFloating(sums.element, [&](auto t) {
    using T = decltype(t);
    duplicates.Sum(stream, rows.as<const T>(), Sums<T>{sums.as<T>(), width, n, before});
  });
}

}  // namespace divvy::cuda
