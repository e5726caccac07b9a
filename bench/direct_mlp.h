// A two-layer perceptron trained with Adam, written directly: OpenBLAS for the products, plain
// loops for the rest, no tape, no parameter server, no copy.
#ifndef DIVVY_BENCH_DIRECT_MLP_H_
#define DIVVY_BENCH_DIRECT_MLP_H_

#include <cstdint>
#include <vector>

namespace divvy::bench {

// inputs -> hidden, ReLU -> classes, softmax cross entropy. Use it from one thread at a time; the
// products run on OpenBLAS' threads.
class DirectMlp {
 public:
  DirectMlp(int batch, int inputs, int hidden, int classes, float learning_rate);

  // Runs one step on images [batch, inputs] in 0..255 and labels [batch]. Returns the mean loss
  // before the step.
  float TrainStep(const uint8_t* images, const int64_t* labels);

 private:
  // A variable with its gradient and Adam's slots.
  struct Variable {
    explicit Variable(int size) : value(size), gradient(size), m(size), v(size) {}
    std::vector<float> value, gradient, m, v;
  };

  void Forward(const uint8_t* images);
  float LossAndItsGradient(const int64_t* labels);
  void Backward();
  void Adam(Variable& variable, float rate) const;

  const int batch_, inputs_, hidden_, classes_;
  const float learning_rate_;
  int64_t steps_ = 0;
  Variable kernel0_, bias0_, kernel1_, bias1_;
  // The gradient of the logits is computed in place, in logits_.
  std::vector<float> pixels_, hidden_values_, hidden_gradient_, logits_;
};

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_DIRECT_MLP_H_
