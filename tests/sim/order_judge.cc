#include "tests/sim/order_judge.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace divvy::sim {
namespace {

constexpr int kMostStates = 2'000;  // that one search visits

}  // namespace

// Searches backwards, from the last operation. An operation may come last if none of the others
// must follow it. The search ends at an operation that replaces the value: what came before does
// not matter.
class OrderJudge::Search {
 public:
  Search(const Row& row, int64_t value) : row_(row), value_(value) {}

  // All ways in which the value may have come about; nullopt if there are too many states to visit.
  std::optional<std::vector<Explanation>> Run() {
    Visit({}, 1, 0);
    if (states_ > kMostStates) return std::nullopt;
    return std::move(found_);
  }

 private:
  // The operations in `behind` come last. Together they turn the x before them into scale * x +
  // add.
  void Visit(const std::set<Number>& behind, int64_t scale, int64_t add) {
    if (states_ > kMostStates || !seen_.insert({behind, scale, add}).second) return;
    ++states_;
    bool any_left = false;
    for (const auto& [number, operation] : row_.operations) {
      if (behind.count(number) > 0) continue;
      any_left = true;
      if (!MayComeLast(number, behind)) continue;
      if (operation.op.scale == 0) {
        if (scale * operation.op.add + add == value_) found_.push_back({number, behind});
        continue;
      }
      std::set<Number> more = behind;
      more.insert(number);
      Visit(more, scale * operation.op.scale, scale * operation.op.add + add);
    }
    if (!any_left && add == value_) found_.push_back({-1, behind});  // rows begin with 0
  }

  // Whether the operation may be the last of those that are not in `behind`.
  bool MayComeLast(Number number, const std::set<Number>& behind) const {
    return std::none_of(row_.operations.begin(), row_.operations.end(), [&](const auto& other) {
      return other.first != number && behind.count(other.first) == 0 &&
             Precedes(row_, number, other.first);
    });
  }

  const Row& row_;
  const int64_t value_;
  int states_ = 0;
  std::set<std::tuple<std::set<Number>, int64_t, int64_t>> seen_;
  std::vector<Explanation> found_;
};

bool OrderJudge::Precedes(const Row& row, Number a, Number b) {
  const Operation &first = row.operations.at(a), &second = row.operations.at(b);
  return first.ended < second.begun || row.shown.count({a, b}) > 0;
}

void OrderJudge::Finished(const Operation& operation) {
  Row& row = rows_[operation.row];
  const Number number = next_++;
  row.operations[number] = operation;
  if (operation.op.scale == 0) ForgetWhatIsReplaced(row, number);
}

// Operations that must come before a replacement of the value can never be seen again.
void OrderJudge::ForgetWhatIsReplaced(Row& row, Number by) {
  for (auto other = row.operations.begin(); other != row.operations.end();) {
    other = other->first != by && Precedes(row, other->first, by) ? row.operations.erase(other)
                                                                  : std::next(other);
  }
}

bool OrderJudge::Explains(int64_t row, int64_t value) {
  const auto found = rows_.find(row);
  if (found == rows_.end()) return value == 0;
  const auto explanations = Search(found->second, value).Run();
  if (!explanations) {
    ++given_up_;
    return true;
  }
  Learn(found->second, *explanations);
  return !explanations->empty();
}

std::string OrderJudge::TextOf(int64_t row) const {
  std::string text;
  const auto found = rows_.find(row);
  if (found == rows_.end()) return text;
  for (const auto& [number, operation] : found->second.operations) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "[", operation.begun, ",", operation.ended,
                    "] x ", operation.op.scale, " + ", operation.op.add,
                    operation.direct ? ", direct" : "");
  }
  for (const auto& [first, second] : found->second.shown) {
    absl::StrAppend(
        &text, "; shown: that of ",
        found->second.operations.count(first) > 0 ? found->second.operations.at(first).op.add : 0,
        " before that of ",
        found->second.operations.count(second) > 0 ? found->second.operations.at(second).op.add
                                                   : 0);
  }
  return text;
}

// If all explanations agree, and a direct write is the last to replace the value, keeps the order
// of that write and each step.
void OrderJudge::Learn(Row& row, const std::vector<Explanation>& explanations) {
  if (explanations.empty() || explanations[0].last < 0) return;
  const Number write = explanations[0].last;
  if (!row.operations.at(write).direct) return;
  for (const Explanation& other : explanations) {
    if (other.last != write || other.behind != explanations[0].behind) return;
  }
  for (const auto& [number, operation] : row.operations) {
    if (number == write || operation.direct) continue;
    row.shown.insert(explanations[0].behind.count(number) > 0 ? std::pair(write, number)
                                                              : std::pair(number, write));
  }
  ForgetWhatIsReplaced(row, write);
}

}  // namespace divvy::sim
