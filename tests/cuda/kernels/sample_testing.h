// A batch of rows to sample, on the device and by compute/model/sampler.h, which must give the same results.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/step.h"
#include "base/token_grammar.h"
#include "compute/cuda/kernels/sample.h"
#include "compute/model/sampler.h"
#include "row_testing.h"

namespace tactus::compute::cuda {

// Allows the tokens of a list, whatever came before.
class ListGrammar final : public TokenGrammar {
 public:
  ListGrammar(int64_t vocab, std::vector<TokenId> allowed) : vocab_(vocab), allowed_(std::move(allowed)) {}
  std::unique_ptr<GrammarState> Start() const override { return std::make_unique<State>(*this); }
  int64_t vocab_size() const override { return vocab_; }
  std::vector<uint32_t> Mask() const {
    std::vector<uint32_t> mask(static_cast<size_t>((vocab_ + 31) / 32), 0u);
    for (const TokenId t : allowed_) mask[static_cast<size_t>(t) / 32] |= 1u << (t % 32);
    return mask;
  }

 private:
  class State final : public GrammarState {
   public:
    explicit State(const ListGrammar& grammar) : grammar_(grammar) {}
    bool FillMask(std::span<uint32_t> mask) override {
      const std::vector<uint32_t> own = grammar_.Mask();
      std::copy(own.begin(), own.end(), mask.begin());
      return true;
    }
    bool Accept(TokenId) override { return true; }
    int32_t CountValid(std::span<const TokenId> tokens) override { return static_cast<int32_t>(tokens.size()); }
    void Forced(int32_t, std::vector<TokenId>* tokens) override { tokens->clear(); }

   private:
    const ListGrammar& grammar_;
  };
  int64_t vocab_;
  std::vector<TokenId> allowed_;
};

struct TestRow {
  SamplingSpec spec;
  int32_t choice = 0;
  int32_t position = 0;
  std::vector<float> logits;
  TokenId prompt_next = -1;
  std::vector<TokenId> drafts;
  int32_t slot = -1;  // -1: the row's index
};

struct RowResult {
  ItemStatus status = ItemStatus::kOk;
  TokenId token = -1;
  std::vector<TokenLogprob> logprobs;
};

inline RowResult SampleOnCpu(const TestRow& row) {
  const auto vocab = static_cast<int64_t>(row.logits.size());
  Sampler sampler(vocab);
  std::vector<float> logits = row.logits;
  RowResult result;
  if (row.prompt_next >= 0) {
    const int32_t k = std::max(row.spec.params.logprobs, 0);
    if (!sampler.Logprobs(logits, row.prompt_next, k, &result.logprobs)) result.status = ItemStatus::kBadLogits;
    return result;
  }
  SequenceHistory history;
  history.Start(row.spec, row.choice, vocab);
  for (const TokenId token : row.drafts) history.Append(token);
  const SampledToken sampled = sampler.Sample(history, row.position, logits, &result.logprobs);
  result.status = sampled.status;
  result.token = sampled.token;
  return result;
}

// What a batch's rows need on the device, and its results.
class DeviceRows {
 public:
  DeviceRows(Stream& s, const std::vector<TestRow>& rows) : vocab_(static_cast<int64_t>(rows[0].logits.size())) {
    const auto n = static_cast<int64_t>(rows.size());
    for (const TestRow& row : rows) Add(row);
    counts_ = std::make_unique<Buffer<uint32_t>>(std::max(count_rows_, 1) * vocab_);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows_[i].counts >= 0) StartRow(s, rows[i].spec, rows_[i].counts);
    }
    const Buffer<float> logits(logits_);
    const Buffer<SampleRow> row(rows_);
    const Buffer<uint32_t> masks(AtLeastOne(masks_));
    const Buffer<int32_t> bias_tokens(AtLeastOne(bias_tokens_)), ends(AtLeastOne(ends_)), drafts(AtLeastOne(drafts_));
    const Buffer<float> bias_values(AtLeastOne(bias_values_));
    const Buffer<int32_t> tokens(n), statuses(n);
    const Buffer<int32_t> last(std::vector<int32_t>(static_cast<size_t>(n), -7));
    const Buffer<int32_t> logprob_tokens(std::vector<int32_t>(static_cast<size_t>(entries_ + 1), -9));
    const Buffer<float> logprob_values(std::vector<float>(static_cast<size_t>(entries_ + 1), -9.0f));
    const Buffer<std::byte> scratch(SampleScratchBytes(n, vocab_));
    const SampleCall call{.logits = logits.data(),
                          .rows = n,
                          .vocab = vocab_,
                          .row = row.data(),
                          .counts = counts_->data(),
                          .masks = masks.data(),
                          .bias_tokens = bias_tokens.data(),
                          .bias_values = bias_values.data(),
                          .end_tokens = ends.data(),
                          .draft_tokens = drafts.data(),
                          .tokens = tokens.data(),
                          .statuses = statuses.data(),
                          .last_tokens = last.data(),
                          .logprob_tokens = logprob_tokens.data(),
                          .logprob_values = logprob_values.data(),
                          .scratch = scratch.data()};
    cuda::Sample(s, call);
    KeepSampled(s, call);
    Take(tokens.Read(), statuses.Read(), logprob_tokens.Read(), logprob_values.Read());
    last_tokens_ = last.Read();
  }

  const std::vector<RowResult>& results() const { return results_; }
  const std::vector<int32_t>& last_tokens() const { return last_tokens_; }
  // The counts of row i's sequence.
  std::vector<uint32_t> counts(size_t i) const { return Part(counts_->Read(), rows_[i].counts * vocab_, vocab_); }

 private:
  template <class T>
  static std::vector<T> AtLeastOne(std::vector<T> values) {
    if (values.empty()) values.emplace_back();
    return values;
  }

  void Add(const TestRow& row) {
    const SamplingParams& p = row.spec.params;
    SampleRow r;
    r.slot = row.slot >= 0 ? row.slot : static_cast<int32_t>(rows_.size());
    r.position = row.position;
    r.temperature = p.temperature;
    r.top_p = p.top_p, r.min_p = p.min_p, r.top_k = p.top_k;
    r.repetition = p.repetition_penalty, r.presence = p.presence_penalty, r.frequency = p.frequency_penalty;
    r.choice = row.choice, r.seed = p.seed;
    const bool shares = !rows_.empty() && rows_.back().slot == r.slot;
    if (p.NeedsHistory()) r.counts = shares ? rows_.back().counts : count_rows_++;
    if (const auto* grammar = static_cast<const ListGrammar*>(row.spec.grammar.get())) {
      const std::vector<uint32_t> mask = grammar->Mask();
      r.mask = static_cast<int32_t>(masks_.size() / mask.size());
      masks_.insert(masks_.end(), mask.begin(), mask.end());
    }
    r.bias = static_cast<int32_t>(bias_tokens_.size());
    r.num_biases = static_cast<int32_t>(p.logit_bias.size());
    for (const auto& [token, bias] : p.logit_bias) bias_tokens_.push_back(token), bias_values_.push_back(bias);
    if (row.spec.unended_tokens > static_cast<int32_t>(row.drafts.size())) {
      r.ends = static_cast<int32_t>(ends_.size());
      r.num_ends = static_cast<int32_t>(row.spec.ends.size());
      ends_.insert(ends_.end(), row.spec.ends.begin(), row.spec.ends.end());
    }
    r.prompt_next = row.prompt_next;
    r.logprobs = p.logprobs;
    r.first_logprob = entries_;
    if (p.logprobs >= 0 || row.prompt_next >= 0) entries_ += 1 + std::max(p.logprobs, 0);
    r.draft = static_cast<int32_t>(drafts_.size());
    r.num_drafts = static_cast<int32_t>(row.drafts.size());
    drafts_.insert(drafts_.end(), row.drafts.begin(), row.drafts.end());
    logits_.insert(logits_.end(), row.logits.begin(), row.logits.end());
    rows_.push_back(r);
  }

  void StartRow(Stream& s, const SamplingSpec& spec, int64_t row) {
    const bool prompts = spec.params.repetition_penalty != 1.0f;
    const Buffer<int32_t> prompt(AtLeastOne(spec.prompt)), output(AtLeastOne(spec.output));
    StartCounts(s, counts_->data(), row, vocab_, prompt.data(), prompts ? static_cast<int64_t>(spec.prompt.size()) : 0,
                output.data(), static_cast<int64_t>(spec.output.size()));
    s.Synchronize();
  }

  void Take(const std::vector<int32_t>& tokens, const std::vector<int32_t>& statuses,
            const std::vector<int32_t>& logprob_tokens, const std::vector<float>& logprob_values) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      const SampleRow& r = rows_[i];
      RowResult result{static_cast<ItemStatus>(statuses[i]), tokens[i], {}};
      const bool has_logprobs = r.logprobs >= 0 || r.prompt_next >= 0;
      for (int32_t k = 0; has_logprobs && k <= std::max(r.logprobs, 0); ++k) {
        const auto at = static_cast<size_t>(r.first_logprob + k);
        if (logprob_tokens[at] >= 0) result.logprobs.push_back({logprob_tokens[at], logprob_values[at]});
      }
      results_.push_back(std::move(result));
    }
    EXPECT_EQ(logprob_tokens.back(), -9) << "an entry beyond the last was written";
  }

  int64_t vocab_;
  int32_t count_rows_ = 0, entries_ = 0;
  std::vector<SampleRow> rows_;
  std::vector<float> logits_, bias_values_;
  std::vector<uint32_t> masks_;
  std::vector<int32_t> bias_tokens_, ends_, drafts_;
  std::unique_ptr<Buffer<uint32_t>> counts_;
  std::vector<RowResult> results_;
  std::vector<int32_t> last_tokens_;
};

// The device's results of all rows, in one call, are the CPU's.
inline void ExpectAsOnCpu(Stream& s, const std::vector<TestRow>& rows) {
  const DeviceRows device(s, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowResult want = SampleOnCpu(rows[i]), &got = device.results()[i];
    const SamplingParams& p = rows[i].spec.params;
    SCOPED_TRACE(testing::Message() << "row " << i << " of " << rows[i].logits.size() << " tokens, T " << p.temperature
                                    << " top_k " << p.top_k << " top_p " << p.top_p << " min_p " << p.min_p);
    ASSERT_EQ(got.status, want.status);
    ASSERT_EQ(got.token, want.token);
    if (want.status != ItemStatus::kOk) continue;
    ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
    for (size_t k = 0; k < want.logprobs.size(); ++k) {
      ASSERT_EQ(got.logprobs[k].token, want.logprobs[k].token) << k;
      const auto value = static_cast<double>(want.logprobs[k].logprob);
      ASSERT_NEAR(static_cast<double>(got.logprobs[k].logprob), value, 1e-5 + 1e-6 * std::abs(value)) << k;
    }
    const bool samples = rows[i].prompt_next < 0;
    if (rows[i].slot < 0) {
      ASSERT_EQ(device.last_tokens()[i], samples ? want.token : -7);
    }
  }
}

}  // namespace tactus::compute::cuda
