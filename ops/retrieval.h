// Losses for models with too many classes (the items of a shop, the words of a language) for a
// softmax over all of them. Each example is compared with its own class and with a sample of the
// others: with the items of the same batch (InBatchSoftmax) or with drawn classes (SampledSoftmax).
//
// A sample has frequent classes more often than rare ones, which would teach the model that they
// are wrong answers. So the logarithm of each class' probability of being in the sample ("log q")
// is subtracted from its logit.
//
// As in ops.h, the losses are one for each example, [batch], an operand that does not fit gives a
// failed Var with InvalidArgument, and the functions are called on the tape's thread. Ids are
// Nests, because they are compared on the CPU: give the batch's own, such as batch["item"].
#ifndef DIVVY_OPS_RETRIEVAL_H_
#define DIVVY_OPS_RETRIEVAL_H_

#include <cstdint>
#include <optional>

#include "ops/var.h"
#include "tensor/nest.h"

namespace divvy {

// The options of InBatchSoftmax. The defaults change nothing.
struct InBatchSoftmaxOptions {
  // Integers [items]: the id of each item. An item of another row that has the same id as the right
  // item of a row (an accidental hit) is no wrong answer, and is left out.
  std::optional<Nest> item_ids = {};
  // Floating point [items]: the logarithm of the probability with which each item is drawn into the
  // batch, for example the log of its share of the training data. A constant. Unlike TensorFlow
  // Recommenders, which raises probabilities to 1e-6, this takes any probability above 0.
  std::optional<Var> log_q = {};
  // > 0. Divides the dot products. Products of normalized rows need one well below 1.
  float temperature = 1;
};
// The loss of two towers: users [batch, width], items [items, width] with items >= batch ->
// [batch]. The right item of row i is item i; all others are wrong answers, also those beyond the
// batch. With s = users items^T / temperature - log q,
//
//   loss[i] = -log(exp(s[i, i]) / sum of exp(s[i, j]) over the items j that are no accidental hits)
//
// (Yi et al., "Sampling-bias-corrected neural modeling for large corpus item recommendations",
// 2019; tfrs.tasks.Retrieval.) InvalidArgument: operands that do not fit each other, a temperature
// that is not above 0, or, on the CPU, a log q that is above 0 or not finite. On a GPU such a log q
// is not noticed.
//
//   InBatchSoftmaxOptions options;
//   options.item_ids = batch["item"];
//   return {InBatchSoftmax(users, items, options)};
Var InBatchSoftmax(const Var& users, const Var& items, const InBatchSoftmaxOptions& options = {});

// Classes that were drawn for a batch, on the CPU. As TensorFlow's `sampled_values`. A failed
// sample has its error in each field.
struct CandidateSample {
  // int64 [sampled]: the classes.
  Nest ids;
  // float64 [sampled]: the logarithm of how often each of them is expected in the sample.
  Nest log_counts;
  // float64 [batch]: the same for the label of each example.
  Nest label_log_counts;
};
// Draws `num_sampled` different classes of [0, num_classes), with the probability
//
//   p(class) = log((class + 2) / (class + 1)) / log(num_classes + 1)
//
// for each try, as tf.random.log_uniform_candidate_sampler with unique=True. This is about the law
// of words and of items if classes are numbered by falling frequency: number them so. A try that
// gives a class drawn before is wasted. With n tries, TensorFlow's estimate of how often a class is
// expected is 1 - (1 - p)^n, or n p if no try was wasted.
//
// `labels` are the classes of a batch, integers [batch]. The classes depend only on num_sampled,
// num_classes and `seed` (by Philox). With tape.seed() a retried step draws the same classes, and
// each step and replica draws its own; for a second draw in a step use MixSeeds(tape.seed(), 1).
// Pure. The time grows as num_sampled comes near num_classes, to 20 s for all of 10^6: use
// SoftmaxCrossEntropy there. InvalidArgument: num_sampled is outside [1,
// num_classes], num_classes is below 1, labels are not integers [batch], or a label is outside [0,
// num_classes).
CandidateSample LogUniformCandidates(const Nest& labels, int64_t num_sampled, int64_t num_classes,
                                     uint64_t seed);

// The options of SampledSoftmax.
struct SampledSoftmaxOptions {
  // The biases of the labels, [batch] or [batch, 1], and of the drawn classes, [sampled] or
  // [sampled, 1]. Both or none.
  std::optional<Var> label_biases = {};
  std::optional<Var> sampled_biases = {};
  // Leaves out a drawn class where it is the label of the example.
  bool remove_accidental_hits = true;
};
// tf.nn.sampled_softmax_loss with one label for each example: inputs [batch, width], their labels
// as integers [batch], and the weights of the labels [batch, width] and of the drawn classes
// [sampled, width] -> [batch]. The loss is the softmax cross entropy of these logits, of which the
// first is right:
//
//   inputs . label_weights + label_biases - label_log_counts
//   inputs sampled_weights^T + sampled_biases - log_counts
//
// For training only: to evaluate, use SoftmaxCrossEntropy over all classes. Look the weights up, so
// that only their rows are sent:
//
//   const CandidateSample sample =
//       LogUniformCandidates(batch["next"], 100, kWords, tape.seed());
//   Var right = kOutput(tape, batch["next"]), drawn = kOutput(tape, sample.ids);
//   return {SampledSoftmax(hidden, batch["next"], right, drawn, sample)};
Var SampledSoftmax(const Var& inputs, const Nest& labels, const Var& label_weights,
                   const Var& sampled_weights, const CandidateSample& sample,
                   const SampledSoftmaxOptions& options = {});

}  // namespace divvy

#endif  // DIVVY_OPS_RETRIEVAL_H_
