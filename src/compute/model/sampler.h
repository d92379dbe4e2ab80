// Sampling of one token from one row of logits, in the order of docs/reference/api.md: logit_bias, repetition,
// frequency and presence penalties, min_tokens (no end token before it), temperature, min_p, top_k, top_p.
//
// Definition. Tokens are ordered by their logit after bias and penalties, the largest first, ties by the lowest id.
// Temperature 0 takes the first. Otherwise min_p, top_k and top_p each keep a prefix of that order (top_p: the shortest
// prefix of what min_p and top_k left, renormalised, that reaches p). One kept token is drawn by inverting the
// distribution, in id order, at UniformAt(seed, choice, position). Weights are exp((l - max) / T) as integers of 2^-44,
// so sums are exact and independent of their order; tokens 30 nats below the best have weight 0.
//
// The result is a function of the row, the sequence's own tokens and (seed, choice, position), never of the batch. The
// vocabulary is not sorted: maxima of blocks of 64 bound where the best tokens can be.
//
// A grammar applies after bias, penalties and min_tokens and before the rest: tokens that it forbids have weight 0.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/step.h"
#include "base/token_grammar.h"

namespace tactus::compute {

// The sampling state of one sequence: its parameters, each token's count where penalties need it, and the state of its
// grammar. One thread at a time.
class SequenceHistory {
 public:
  // A sequence (re)starts: history is the prompt and the output of `spec`. Allocates for all tokens that it may
  // generate; Append allocates only for the grammar.
  void Start(const SamplingSpec& spec, int32_t choice, int64_t vocab);
  // The sequence has ended: frees its grammar's memory.
  void ForgetGrammar() {
    grammar_.reset();  // before the objects that it may refer to
    spec_.grammar.reset();
  }
  // A token was sampled. False: the grammar forbids it.
  bool Append(TokenId token);

  const SamplingSpec& spec() const { return spec_; }  // no output; the prompt only if its logprobs are requested
  int32_t choice() const { return choice_; }

  // Applies bias, penalties and min_tokens in place. `before` (may be null) receives the raw logits of changed tokens.
  void Adjust(std::span<float> logits, std::vector<std::pair<TokenId, float>>* before) const;
  // Sets the bits of the tokens that the grammar allows, clears the others; `mask` has ceil(vocab / 32) words. Statuses
  // as Restrict's. Precondition: there is a grammar.
  ItemStatus FillMask(std::span<uint32_t> mask) const;
  // Moves the logits of tokens that the grammar forbids below those of all that it allows, in place; `mask` is scratch
  // of ceil(vocab / 32) words. kBadGrammar: it allows no token; kFailed: it had no memory.
  ItemStatus Restrict(std::span<float> logits, std::span<uint32_t> mask) const;

 private:
  struct Seen {
    TokenId token;
    int32_t outputs;  // occurrences among generated tokens; 0: in the prompt only
  };
  void StartGrammar(const SamplingSpec& spec);
  void Count(TokenId token, int32_t outputs);
  void Grow(size_t entries);

  SamplingSpec spec_;
  int32_t choice_ = 0;
  std::vector<Seen> seen_;                 // unique tokens in order of first occurrence
  std::vector<int32_t> index_;             // open addressing over seen_, size a power of two; -1 empty
  std::unique_ptr<GrammarState> grammar_;  // null: any token is allowed, unless grammar_status_ is an error
  ItemStatus grammar_status_ = ItemStatus::kOk;
};

struct SampledToken {
  ItemStatus status = ItemStatus::kOk;
  TokenId token = -1;
};

// Scratch of one thread and the algorithms over it. Sized at construction; calls allocate only for logprob output.
class Sampler {
 public:
  explicit Sampler(int64_t vocab);

  // Samples the token at `position` of the sequence. Changes `logits` [vocab]. Logprobs of the raw logits are written
  // to `*logprobs` (if not null and requested): the chosen token, then the k best.
  SampledToken Sample(const SequenceHistory& history, int64_t position, std::span<float> logits,
                      std::vector<TokenLogprob>* logprobs);

  // Logprobs of `chosen` and of the k best. False: the logits are not finite.
  bool Logprobs(std::span<const float> logits, TokenId chosen, int32_t k, std::vector<TokenLogprob>* out);

  // The steps of Sample, for tests and for callers with other distributions.
  // False: a logit is not finite. Precedes the calls below, on the same row.
  bool Scan(std::span<const float> logits);
  TokenId Argmax() const;
  // Applies temperature > 0, min_p, top_k and top_p of `params`.
  void Shape(const SamplingParams& params);
  // The token whose share of the kept weight, in id order, holds u in [0, 1).
  TokenId Draw(double u) const;
  // A token's share of the kept weight.
  double Probability(TokenId token) const;

 private:
  struct Candidate {
    float logit;
    TokenId token;
    uint64_t weight = 0;  // set where weights are needed
  };
  static bool Before(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  }
  void Gather(int64_t at_least);
  void KeepTopP(double top_p);
  uint64_t WeightOf(float exponential) const;
  uint64_t BlockWeights(int64_t block, uint64_t* weights) const;
  uint64_t SumWeights();
  double LogSumExp() const;

  int64_t vocab_ = 0;
  std::span<const float> row_;
  std::vector<float> block_max_;  // per 64 logits
  std::vector<float> bounds_;     // scratch of Gather
  std::vector<uint32_t> mask_;    // scratch of a grammar, a bit per token
  std::vector<Candidate> candidates_;
  std::vector<uint64_t> block_weight_;  // per block, of the kept tokens
  float max_ = 0.0f;
  float temperature_ = 1.0f;
  float min_p_ = 0.0f;
  Candidate last_{};  // the last token kept, in the order above
  uint64_t total_weight_ = 0;
};

}  // namespace tactus::compute
