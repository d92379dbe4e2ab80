// Sampling of one token from each row of logits, by the definition of compute/model/sampler.h: the same logits give the
// same token as on the CPU, bit by bit, because weights are integers whose sums do not depend on their order.
#pragma once

#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

// Counts of a sequence's tokens for penalties: [vocab] words, the high bit of a word for tokens of the prompt, the rest
// for occurrences in the output.
inline constexpr uint32_t kInPrompt = 0x80000000u;

inline constexpr int32_t kMostLogprobs = 1024;  // of SampleRow::logprobs

struct SampleRow {
  int32_t slot = 0;      // of `last_tokens`; -1: the row's token is neither kept nor counted
  int32_t position = 0;  // of the token that is sampled
  float temperature = 0.0f;
  float top_p = 1.0f, min_p = 0.0f;
  int32_t top_k = 0;  // 0: all
  float repetition = 1.0f, presence = 0.0f, frequency = 0.0f;
  int32_t choice = 0;
  uint64_t seed = 0;
  int32_t counts = -1;               // row of the table of counts; -1: none
  int32_t mask = -1;                 // row of `masks`, a bit per allowed token; -1: any token
  int32_t bias = 0, num_biases = 0;  // entries of `bias_tokens` and `bias_values`
  int32_t ends = 0, num_ends = 0;    // entries of `end_tokens`, forbidden unless the mask allows nothing else
  int32_t logprobs = -1;             // -1: none; k: the sampled token and the k best
  int32_t prompt_next = -1;          // >= 0: nothing is sampled; logprobs of this token and of the k best
  int32_t first_logprob = 0;         // entry of `logprob_tokens`, 1 + k of them; token -1 beyond the vocabulary's size
  // Of a draft's rows: penalties count these tokens as if they were in the output too. Rows of one item follow one
  // another, each with one draft more than the row before; the row counts if its drafts are what those before it
  // sampled.
  int32_t draft = 0, num_drafts = 0;  // entries of `draft_tokens`, those before this row's token
};

struct SampleCall {
  const float* logits = nullptr;  // [rows, vocab]
  int64_t rows = 0, vocab = 0;
  const SampleRow* row = nullptr;   // [rows]
  uint32_t* counts = nullptr;       // [count rows, vocab]
  const uint32_t* masks = nullptr;  // [mask rows, (vocab + 31) / 32]
  const int32_t* bias_tokens = nullptr;
  const float* bias_values = nullptr;
  const int32_t* end_tokens = nullptr;
  const int32_t* draft_tokens = nullptr;
  // Results: per row the token (-1: none) and its status as ItemStatus (base/step.h).
  int32_t* tokens = nullptr;       // [rows]
  int32_t* statuses = nullptr;     // [rows]
  int32_t* last_tokens = nullptr;  // [slots]
  int32_t* logprob_tokens = nullptr;
  float* logprob_values = nullptr;
  void* scratch = nullptr;  // SampleScratchBytes(rows, vocab)
};
int64_t SampleScratchBytes(int64_t rows, int64_t vocab);
void Sample(Stream& s, const SampleCall& call);
// After Sample of all rows of a step, also in several calls: counts the sampled tokens of rows that count, and writes
// the last of a slot to last_tokens[slot]. Of `call` it reads rows, vocab, row, draft_tokens, tokens.
void KeepSampled(Stream& s, const SampleCall& call);

// counts[row, :] = 0, then the tokens are added: prompts' as kInPrompt, outputs' one by one.
void StartCounts(Stream& s, uint32_t* counts, int64_t row, int64_t vocab, const int32_t* prompt, int64_t prompt_tokens,
                 const int32_t* output, int64_t output_tokens);

// ids[t] = last_tokens[-1 - ids[t]] where ids[t] < 0: chained inputs.
void TakeChained(Stream& s, int32_t* ids, int64_t tokens, const int32_t* last_tokens);

}  // namespace tactus::compute::cuda
