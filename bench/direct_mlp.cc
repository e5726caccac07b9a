#include "bench/direct_mlp.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace divvy::bench {
namespace {

// c = a b, or with `more` c += a b. a is [m, k] and b is [k, n]; each may be stored transposed.
void Multiply(CBLAS_TRANSPOSE a_transposed, CBLAS_TRANSPOSE b_transposed, int m, int n, int k,
              const float* a, const float* b, bool more, float* c) {
  cblas_sgemm(CblasRowMajor, a_transposed, b_transposed, m, n, k, 1.0f, a,
              a_transposed == CblasTrans ? m : k, b, b_transposed == CblasTrans ? k : n,
              more ? 1.0f : 0.0f, c, n);
}

void GlorotUniform(int inputs, int outputs, uint64_t seed, std::vector<float>& values) {
  Random random(seed);
  const double limit = std::sqrt(6.0 / (inputs + outputs));
  for (float& value : values) value = static_cast<float>((2 * random.Uniform() - 1) * limit);
}

void RepeatRow(const std::vector<float>& row, int times, std::vector<float>& rows) {
  for (int i = 0; i < times; ++i)
    std::copy(row.begin(), row.end(), rows.begin() + static_cast<std::ptrdiff_t>(i * row.size()));
}

void SumRows(const std::vector<float>& rows, int num_rows, std::vector<float>& sum) {
  const int width = static_cast<int>(sum.size());
  std::fill(sum.begin(), sum.end(), 0.0f);
  for (int i = 0; i < num_rows; ++i) {
    const float* row = rows.data() + static_cast<std::ptrdiff_t>(i) * width;
    for (int j = 0; j < width; ++j) sum[j] += row[j];
  }
}

}  // namespace

DirectMlp::DirectMlp(int batch, int inputs, int hidden, int classes, float learning_rate)
    : batch_(batch),
      inputs_(inputs),
      hidden_(hidden),
      classes_(classes),
      learning_rate_(learning_rate),
      kernel0_(inputs * hidden),
      bias0_(hidden),
      kernel1_(hidden * classes),
      bias1_(classes),
      pixels_(batch * inputs),
      hidden_values_(batch * hidden),
      hidden_gradient_(batch * hidden),
      logits_(batch * classes) {
  GlorotUniform(inputs, hidden, 1, kernel0_.value);
  GlorotUniform(hidden, classes, 2, kernel1_.value);
}

float DirectMlp::TrainStep(const uint8_t* images, const int64_t* labels) {
  Forward(images);
  const float loss = LossAndItsGradient(labels);
  Backward();
  ++steps_;
  const double correction = std::sqrt(1 - std::pow(0.999, steps_)) / (1 - std::pow(0.9, steps_));
  for (Variable* variable : {&kernel0_, &bias0_, &kernel1_, &bias1_})
    Adam(*variable, static_cast<float>(learning_rate_ * correction));
  return loss;
}

void DirectMlp::Forward(const uint8_t* images) {
  for (size_t i = 0; i < pixels_.size(); ++i) pixels_[i] = static_cast<float>(images[i]) / 255.0f;
  RepeatRow(bias0_.value, batch_, hidden_values_);
  Multiply(CblasNoTrans, CblasNoTrans, batch_, hidden_, inputs_, pixels_.data(),
           kernel0_.value.data(), true, hidden_values_.data());
  for (float& value : hidden_values_) value = std::max(value, 0.0f);
  RepeatRow(bias1_.value, batch_, logits_);
  Multiply(CblasNoTrans, CblasNoTrans, batch_, classes_, hidden_, hidden_values_.data(),
           kernel1_.value.data(), true, logits_.data());
}

// The gradient of the mean loss: (softmax - label) / batch.
float DirectMlp::LossAndItsGradient(const int64_t* labels) {
  float loss = 0;
  for (int i = 0; i < batch_; ++i) {
    float* row = logits_.data() + static_cast<std::ptrdiff_t>(i) * classes_;
    const float largest = *std::max_element(row, row + classes_), at_label = row[labels[i]];
    float sum = 0;
    for (int j = 0; j < classes_; ++j) sum += row[j] = std::exp(row[j] - largest);
    loss += std::log(sum) - (at_label - largest);
    for (int j = 0; j < classes_; ++j) row[j] /= sum * static_cast<float>(batch_);
    row[labels[i]] -= 1.0f / static_cast<float>(batch_);
  }
  return loss / static_cast<float>(batch_);
}

void DirectMlp::Backward() {
  SumRows(logits_, batch_, bias1_.gradient);
  Multiply(CblasTrans, CblasNoTrans, hidden_, classes_, batch_, hidden_values_.data(),
           logits_.data(), false, kernel1_.gradient.data());
  Multiply(CblasNoTrans, CblasTrans, batch_, hidden_, classes_, logits_.data(),
           kernel1_.value.data(), false, hidden_gradient_.data());
  for (size_t i = 0; i < hidden_gradient_.size(); ++i)
    hidden_gradient_[i] = hidden_values_[i] > 0 ? hidden_gradient_[i] : 0.0f;
  SumRows(hidden_gradient_, batch_, bias0_.gradient);
  Multiply(CblasTrans, CblasNoTrans, inputs_, hidden_, batch_, pixels_.data(),
           hidden_gradient_.data(), false, kernel0_.gradient.data());
}

void DirectMlp::Adam(Variable& variable, float rate) const {
  const size_t size = variable.value.size();
  float* const w = variable.value.data();
  float* const m = variable.m.data();
  float* const v = variable.v.data();
  const float* const g = variable.gradient.data();
  for (size_t i = 0; i < size; ++i) {
    m[i] += 0.1f * (g[i] - m[i]);
    v[i] += 0.001f * (g[i] * g[i] - v[i]);
    w[i] -= rate * m[i] / (std::sqrt(v[i]) + 1e-7f);
  }
}

}  // namespace divvy::bench
