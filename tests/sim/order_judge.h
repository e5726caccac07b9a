// Whether values can have come from the operations that finished, in an order that the program may
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

// x becomes scale * x + add. A scale of 0 replaces x: what came before it does not matter any more.
struct CellOp {
  int64_t scale = 1, add = 0;
};

// Rows of integers that operations change which do not commute. Two operations have an order that
// must never be seen inverted
//   - where one had ended before the other began, as the program knows it;
//   - where one is a step and the other a direct write of the program, and a value that was read at
//     rest has shown the order.
// Two steps that ran beside each other, or two writes, may be replayed in another order than they
// were first applied in. Pure, and copied with the model that it is part of.
//
//   judge.Finished({.row = 0, .op = {0, 5}, .begun = 1, .ended = 2});
//   // 5 must be there
//   if (!judge.Explains(0, 5)) ...
class OrderJudge {
 public:
  struct Operation {
    int64_t row = 0;
    CellOp op;
    // numbers that rise with every call and answer of the program
    int64_t begun = 0, ended = 0;
    // A write of the program, not of a step.
    bool direct = false;
  };

  void Finished(const Operation& operation);

  // Whether `value`, read of the row while nothing is in flight, is the result of all finished
  // operations in some order that is allowed. Remembers the orders that it shows. A row with too
  // many operations beside each other is not judged: then it is, and `given_up` counts.
  bool Explains(int64_t row, int64_t value);
  int64_t given_up() const { return given_up_; }
  // What is known of the row, for messages: "[3,9] x 0 + 12, direct; ...".
  std::string TextOf(int64_t row) const;

 private:
  using Number = int64_t;  // of an operation
  struct Row {
    std::map<Number, Operation> operations;
    std::set<std::pair<Number, Number>> shown;  // the first is before the second
  };
  // One way in which a value may have come about: the operations behind the last one that replaced
  // it, which is `last` (-1: none did).
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
