#include "bench/results/measures.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy::results {
namespace {

constexpr int64_t kUsersOfABlock = 128;

absl::Status CheckSizes(size_t predictions, size_t labels) {
  if (predictions == labels && labels > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("there are ", predictions, " predictions and ",
                                                 labels, " labels; wanted as many, at least one"));
}

absl::Status CheckItems(const ItemLists& lists, int64_t items, const char* name) {
  for (size_t user = 0; user < lists.size(); ++user) {
    for (const int64_t item : lists[user]) {
      if (item < 0 || item >= items)
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": item ", item, " of user ", user, " is outside [0, ", items, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckVectors(const Tensor& users, const Tensor& items) {
  if (users.dtype() == DType::kFloat32 && items.dtype() == DType::kFloat32 &&
      users.shape().rank() == 2 && items.shape().rank() == 2 &&
      users.shape().dim(1) == items.shape().dim(1))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("users ", users.ToString(), " and items ",
                                                 items.ToString(),
                                                 " are no float32 matrices of one width"));
}

const std::vector<int64_t>& ListOf(const ItemLists& lists, int64_t user) {
  static const std::vector<int64_t>& none = *new std::vector<int64_t>();
  return static_cast<size_t>(user) < lists.size() ? lists[static_cast<size_t>(user)] : none;
}

// The lists of users [begin, end).
Nest ListsOf(const ItemLists& lists, int64_t begin, int64_t end) {
  std::vector<int64_t> ids, splits = {0};
  for (int64_t user = begin; user < end; ++user) {
    const std::vector<int64_t>& list = ListOf(lists, user);
    ids.insert(ids.end(), list.begin(), list.end());
    splits.push_back(static_cast<int64_t>(ids.size()));
  }
  return SparseIds{Tensor::Vector<int64_t>(ids), Tensor::Vector<int64_t>(splits), {}};
}

}  // namespace

absl::StatusOr<double> AreaUnderCurve(absl::Span<const float> scores,
                                      absl::Span<const float> labels) {
  RETURN_IF_ERROR(CheckSizes(scores.size(), labels.size()));
  if (std::any_of(scores.begin(), scores.end(), [](float x) { return std::isnan(x); }))
    return absl::InvalidArgumentError("a score is NaN");
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [scores](size_t a, size_t b) { return scores[a] < scores[b]; });
  double negatives = 0, positives = 0, area = 0;
  for (size_t begin = 0; begin < order.size();) {
    double tied_negatives = 0, tied_positives = 0;
    const float score = scores[order[begin]];
    for (; begin < order.size() && scores[order[begin]] == score; ++begin)
      (labels[order[begin]] > 0.5f ? tied_positives : tied_negatives) += 1;
    area += tied_positives * (negatives + tied_negatives / 2);
    negatives += tied_negatives;
    positives += tied_positives;
  }
  if (negatives == 0 || positives == 0)
    return absl::InvalidArgumentError("all labels are of one class, so there is no curve");
  return area / (negatives * positives);
}

absl::StatusOr<double> LogLoss(absl::Span<const float> logits, absl::Span<const float> labels) {
  RETURN_IF_ERROR(CheckSizes(logits.size(), labels.size()));
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double logit = static_cast<double>(logits[i]);
    // log(1 + e^logit) - label logit, without an overflow.
    sum += std::max(logit, 0.0) + std::log1p(std::exp(-std::abs(logit))) -
           static_cast<double>(labels[i]) * logit;
  }
  return sum / static_cast<double>(logits.size());
}

absl::StatusOr<double> RootMeanSquare(absl::Span<const float> predictions,
                                      absl::Span<const float> labels, float low, float high) {
  RETURN_IF_ERROR(CheckSizes(predictions.size(), labels.size()));
  double sum = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const double error =
        static_cast<double>(std::clamp(predictions[i], low, high)) - static_cast<double>(labels[i]);
    sum += error * error;
  }
  return std::sqrt(sum / static_cast<double>(labels.size()));
}

absl::StatusOr<double> RecallOfNearest(int k, const Tensor& users, const Tensor& items,
                                       const ItemLists& seen, const ItemLists& wanted) {
  if (k < 1) return absl::InvalidArgumentError(absl::StrCat("k is ", k, ", must be at least 1"));
  RETURN_IF_ERROR(CheckVectors(users, items));
  const int64_t num_users = users.shape().dim(0), num_items = items.shape().dim(0);
  RETURN_IF_ERROR(CheckItems(seen, num_items, "seen"));
  RETURN_IF_ERROR(CheckItems(wanted, num_items, "wanted"));
  double sum = 0, count = 0;
  for (int64_t begin = 0; begin < num_users; begin += kUsersOfABlock) {
    const int64_t end = std::min(begin + kUsersOfABlock, num_users);
    ASSIGN_OR_RETURN(const Tensor block, users.Rows(begin, end));
    TopK best(k, ListsOf(seen, begin, end));
    RETURN_IF_ERROR(best.Add(0, MatMul(Var(block), Var(items), Transpose::kNo, Transpose::kYes)));
    const Tensor nearest = best.Items();
    for (int64_t user = begin; user < end; ++user) {
      const std::vector<int64_t>& goals = ListOf(wanted, user);
      if (goals.empty()) continue;
      const int64_t* const of_user = nearest.data_as<int64_t>() + (user - begin) * k;
      const auto found = std::count_if(goals.begin(), goals.end(), [&](int64_t item) {
        return std::find(of_user, of_user + k, item) != of_user + k;
      });
      sum += static_cast<double>(found) / static_cast<double>(goals.size());
      count += 1;
    }
  }
  if (count == 0) return absl::InvalidArgumentError("no user wants an item");
  return sum / count;
}

}  // namespace divvy::results
