// Judges whether values can result from the finished operations, in an order that the program may
// rely on.
#ifndef DIVVY_TESTS_SIM_ORDER_JUDGE_H_
#define DIVVY_TESTS_SIM_ORDER_JUDGE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace divvy::sim {

// The operation x = scale * x + add. A scale of 0 replaces x, so earlier operations no longer
// matter.
struct CellOp {
  int64_t scale = 1, add = 0;
};

// Holds rows of integers that are changed by operations which do not commute. Two operations have a
// fixed order in two cases:
//   - the program knows that one had ended before the other began;
//   - one is a step and the other a direct write of the program, and a value that was read at rest
//     has shown their order.
// Two steps that overlapped, or two direct writes, may be replayed in another order than the one in
// which they were first applied. Pure, and copied with the model that it is part of.
//
//   judge.Finished({.row = 0, .op = {0, 5}, .begun = 1, .ended = 2});
//   // 5 must be there
//   if (!judge.Explains(0, 5)) ...
class OrderJudge {
 public:
  struct Operation {
    int64_t row = 0;
    CellOp op;
    // Taken from a counter that grows with every call and answer of the program.
    int64_t begun = 0, ended = 0;
    // A direct write of the program; otherwise a step.
    bool direct = false;
  };

  void Finished(const Operation& operation);

  // Whether `value`, read from the row while nothing is in flight, is the result of all finished
  // operations in some allowed order. Remembers the orders that the value shows. A row with too
  // many overlapping operations is not judged: Explains returns true and given_up() grows by 1.
  bool Explains(int64_t row, int64_t value);
  int64_t given_up() const { return given_up_; }
  // All that is known of the row, for messages: "[3,9] x 0 + 12, direct; ...".
  std::string TextOf(int64_t row) const;

 private:
  using Number = int64_t;  // of an operation
  struct Row {
    std::map<Number, Operation> operations;
    std::set<std::pair<Number, Number>> shown;  // the first is before the second
  };
  // One way in which a value may have come about: `last`, the last operation that replaced it (-1:
  // none did), and the operations after that one.
  struct Explanation {
    Number last = -1;
    std::set<Number> behind;
  };
  class Search;
  static bool Precedes(const Row& row, Number a, Number b);
  static void ForgetWhatIsReplaced(Row& row, Number by);
  static void Learn(Row& row, const std::vector<Explanation>& explanations);

  std::map<int64_t, Row> rows_;
  Number next_ = 0;
  int64_t given_up_ = 0;
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_ORDER_JUDGE_H_
