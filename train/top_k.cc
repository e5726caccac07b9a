#include "train/top_k.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/ops.h"

namespace divvy {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// The list of each user, risen and unique. `what` names it in an error.
absl::StatusOr<std::vector<std::vector<int64_t>>> ListsOf(absl::string_view what, const Nest& nest,
                                                          int64_t users) {
  absl::StatusOr<SparseIds> sparse = nest.sparse_ids();
  if (!sparse.ok())
    return absl::Status(sparse.status().code(),
                        absl::StrCat("TopK: ", what, ": ", sparse.status().message()));
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> ids, sparse->ids.values<int64_t>());
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> splits, sparse->row_splits.values<int64_t>());
  if (static_cast<int64_t>(splits.size()) != users + 1)
    return Invalid("TopK: ", what, " has ", splits.size() - 1, " lists for ", users,
                   " users; give one list for each user, empty where there is nothing");
  std::vector<std::vector<int64_t>> lists;
  lists.reserve(users);
  for (int64_t user = 0; user < users; ++user) {
    std::vector<int64_t> list(ids.begin() + splits[user], ids.begin() + splits[user + 1]);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    lists.push_back(std::move(list));
  }
  return lists;
}

bool Has(const std::vector<int64_t>& sorted, int64_t item) {
  return std::binary_search(sorted.begin(), sorted.end(), item);
}

// What a relevant item at this rank, counted from 0, adds to the gain.
double Discounted(size_t rank) { return 1 / std::log2(static_cast<double>(rank) + 2); }

}  // namespace

bool TopK::Better(const Scored& a, const Scored& b) {
  return a.score > b.score || (a.score == b.score && a.item < b.item);
}

std::vector<TopK::Scored> TopK::Sorted(const User& user) {
  std::vector<Scored> best = user.best;
  std::sort(best.begin(), best.end(), Better);
  return best;
}

absl::Status TopK::CheckBlock(int64_t first_item, const Shape& scores) const {
  if (k_ < 1) return Invalid("TopK: k is ", k_, "; give at least 1");
  if (scores.rank() != 2)
    return Invalid("TopK: scores ", scores.ToString(), "; give [users, items]");
  const auto users = static_cast<int64_t>(users_.size());
  if (!added_.empty() && scores.dim(0) != users)
    return Invalid("TopK: scores ", scores.ToString(), " of ", scores.dim(0),
                   " users after a block of ", users,
                   "; give all blocks for the same users, and other users to another TopK");
  if (first_item < 0 || first_item > std::numeric_limits<int64_t>::max() - scores.dim(1))
    return Invalid("TopK: first_item is ", first_item, "; items are counted from 0");
  const Block items{first_item, first_item + scores.dim(1)};
  if (items.first == items.second) return absl::OkStatus();
  for (const Block& before : added_) {
    if (items.first < before.second && before.first < items.second)
      return Invalid("TopK: items ", items.first, " to ", items.second - 1, " overlap with items ",
                     before.first, " to ", before.second - 1,
                     ", which were added before; give each item once");
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status TopK::AddRow(const Block& items, absl::Span<const T> scores, int64_t number,
                          User& user) {
  std::vector<Scored>& best = user.best;
  for (size_t i = 0; i < scores.size(); ++i) {
    const Scored one{static_cast<double>(scores[i]), items.first + static_cast<int64_t>(i)};
    if (std::isnan(one.score))
      return Invalid("TopK: the score of item ", one.item, " for user ", number,
                     " is not a number; the model has diverged");
    const bool full = static_cast<int>(best.size()) == k_;
    // Nearly all items end here.
    if (full && !Better(one, best.front())) continue;
    if (Has(user.seen, one.item)) continue;
    if (full) {
      std::pop_heap(best.begin(), best.end(), Better);
      best.pop_back();
    }
    best.push_back(one);
    std::push_heap(best.begin(), best.end(), Better);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status TopK::AddBlock(const Block& items, absl::Span<const T> scores,
                            std::vector<User> users) {
  const int64_t width = items.second - items.first;
  for (size_t i = 0; i < users.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    RETURN_IF_ERROR(AddRow(items, scores.subspan(number * width, width), number, users[i]));
  }
  users_ = std::move(users);
  added_.push_back(items);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TopK::User>> TopK::UsersOf(int64_t users) const {
  if (!added_.empty()) return users_;
  std::vector<User> made(users);
  if (!seen_) return made;
  ASSIGN_OR_RETURN(auto lists, ListsOf("seen", *seen_, users));
  for (size_t i = 0; i < made.size(); ++i) made[i].seen = std::move(lists[i]);
  return made;
}

absl::Status TopK::Add(int64_t first_item, const Var& scores) {
  RETURN_IF_ERROR(scores.status());
  const Shape shape = scores.shape();
  RETURN_IF_ERROR(CheckBlock(first_item, shape));
  const Block items{first_item, first_item + shape.dim(1)};
  ASSIGN_OR_RETURN(std::vector<User> users, UsersOf(shape.dim(0)));
  const bool wide = scores.dtype() == DType::kFloat64;
  ASSIGN_OR_RETURN(const Tensor value, (wide ? scores : Cast(scores, DType::kFloat32)).Value());
  ASSIGN_OR_RETURN(const Tensor here, value.To(Device{}));
  if (wide) {
    ASSIGN_OR_RETURN(const absl::Span<const double> values, here.values<double>());
    return AddBlock(items, values, std::move(users));
  }
  ASSIGN_OR_RETURN(const absl::Span<const float> values, here.values<float>());
  return AddBlock(items, values, std::move(users));
}

Tensor TopK::Items() const {
  std::vector<int64_t> items;
  for (const User& user : users_) {
    for (const Scored& one : Sorted(user)) items.push_back(one.item);
    items.resize(items.size() + k_ - user.best.size(), -1);
  }
  const auto users = static_cast<int64_t>(users_.size());
  return *Tensor::Vector<int64_t>(items).Reshape({users, std::max(k_, 0)});
}

bool TopK::WasAdded(int64_t item) const {
  return std::any_of(added_.begin(), added_.end(), [item](const Block& items) {
    return item >= items.first && item < items.second;
  });
}

template <typename Use>
absl::Status TopK::ForEachUser(absl::string_view metric, int k, const Nest& relevant,
                               const Use& use) const {
  if (k < 1 || k > k_)
    return Invalid(metric, ": k is ", k, "; it is at least 1, and at most the ", k_,
                   " items that this TopK keeps");
  if (added_.empty()) return Invalid(metric, ": no scores have been added; call Add first");
  ASSIGN_OR_RETURN(const auto lists,
                   ListsOf("relevant", relevant, static_cast<int64_t>(users_.size())));
  for (size_t i = 0; i < users_.size(); ++i) {
    std::vector<int64_t> wanted;
    for (const int64_t item : lists[i]) {
      if (Has(users_[i].seen, item)) continue;
      if (!WasAdded(item))
        return Invalid(metric, ": item ", item, " is relevant to user ", i,
                       ", but it was never added; add the scores of all items first, and number "
                       "items as their table does");
      wanted.push_back(item);
    }
    std::vector<Scored> best = Sorted(users_[i]);
    if (static_cast<int>(best.size()) > k) best.resize(k);
    if (!wanted.empty()) use(best, wanted);
  }
  return absl::OkStatus();
}

absl::StatusOr<Metric> TopK::Recall(int k, const Nest& relevant) const {
  double sum = 0, users = 0;
  RETURN_IF_ERROR(ForEachUser(
      "Recall", k, relevant,
      [&](const std::vector<Scored>& best, const std::vector<int64_t>& wanted) {
        const auto found = std::count_if(best.begin(), best.end(),
                                         [&](const Scored& one) { return Has(wanted, one.item); });
        sum += static_cast<double>(found) / static_cast<double>(wanted.size());
        ++users;
      }));
  return Metric::Mean(sum, users);
}

absl::StatusOr<Metric> TopK::Ndcg(int k, const Nest& relevant) const {
  double sum = 0, users = 0;
  RETURN_IF_ERROR(
      ForEachUser("Ndcg", k, relevant,
                  [&](const std::vector<Scored>& best, const std::vector<int64_t>& wanted) {
                    double gain = 0, ideal = 0;
                    for (size_t rank = 0; rank < best.size(); ++rank)
                      gain += Has(wanted, best[rank].item) ? Discounted(rank) : 0;
                    const size_t reachable = std::min(wanted.size(), static_cast<size_t>(k));
                    for (size_t rank = 0; rank < reachable; ++rank) ideal += Discounted(rank);
                    sum += gain / ideal;
                    ++users;
                  }));
  return Metric::Mean(sum, users);
}

std::map<std::string, absl::StatusOr<Metric>> TopKMetrics(const std::vector<int>& ks,
                                                          const Var& scores, const Nest& relevant,
                                                          const std::optional<Nest>& seen) {
  TopK best(ks.empty() ? 1 : *std::max_element(ks.begin(), ks.end()), seen);
  const absl::Status added = best.Add(0, scores);
  std::map<std::string, absl::StatusOr<Metric>> metrics;
  for (const int k : ks) {
    const auto of = [&](absl::StatusOr<Metric> metric) {
      return added.ok() ? std::move(metric) : absl::StatusOr<Metric>(added);
    };
    metrics.emplace(absl::StrCat("recall@", k), of(best.Recall(k, relevant)));
    metrics.emplace(absl::StrCat("ndcg@", k), of(best.Ndcg(k, relevant)));
  }
  return metrics;
}

}  // namespace divvy
