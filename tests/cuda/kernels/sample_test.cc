// Sampling on the device gives the tokens, statuses and logprobs of compute/model/sampler.h.
#include "compute/cuda/kernels/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sample_testing.h"

namespace tactus::compute::cuda::sample_test {
namespace {

class SampleTest : public DeviceTest {};
TACTUS_DEVICE_TESTS(SampleTest);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TestRow RowOf(std::vector<float> logits, uint64_t seed = 1) {
  TestRow row;
  row.logits = std::move(logits);
  row.position = static_cast<int32_t>(seed % 1000) + 1;
  row.spec.params.seed = seed * 0x9e3779b97f4a7c15u;
  row.spec.params.temperature = 1.0f;
  return row;
}

TokenId RandomToken(Rng& rng, int64_t vocab) {
  return static_cast<TokenId>(rng.UniformInt(0, vocab - 1));
}

// A row with every field of the API, each at times.
TestRow RandomRow(int64_t vocab, uint64_t seed) {
  Rng rng(seed, 5);
  const auto sometimes = [&](double share) { return rng.Uniform() < share; };
  TestRow row = RowOf(Normals(vocab, seed, 0.2 + 5 * rng.Uniform()), seed);
  if (sometimes(0.3)) {  // ties
    for (float& l : row.logits) l = std::round(l);
  }
  SamplingParams& p = row.spec.params;
  row.choice = static_cast<int32_t>(rng.UniformInt(0, 3));
  p.temperature = sometimes(0.2) ? 0.0f : static_cast<float>(0.1 + 2 * rng.Uniform());
  if (sometimes(0.5)) p.top_k = static_cast<int32_t>(rng.UniformInt(1, sometimes(0.5) ? 60 : 2 * vocab));
  if (sometimes(0.5)) p.top_p = static_cast<float>(0.05 + 0.95 * rng.Uniform());
  if (sometimes(0.3)) p.min_p = static_cast<float>(0.2 * rng.Uniform());
  if (sometimes(0.3)) p.repetition_penalty = static_cast<float>(0.5 + rng.Uniform());
  if (sometimes(0.3)) p.presence_penalty = static_cast<float>(4 * rng.Uniform() - 2);
  if (sometimes(0.3)) p.frequency_penalty = static_cast<float>(4 * rng.Uniform() - 2);
  if (p.NeedsHistory()) {
    for (int i = 0; i < 40; ++i) row.spec.prompt.push_back(RandomToken(rng, vocab));
    for (int i = 0; i < 40; ++i) row.spec.output.push_back(RandomToken(rng, std::min<int64_t>(vocab, 30)));
    row.spec.max_tokens = 100;
  }
  if (sometimes(0.3)) {
    for (TokenId t = RandomToken(rng, vocab); t < vocab; t += 1 + RandomToken(rng, vocab)) {
      p.logit_bias.emplace_back(t, static_cast<float>(20 * rng.Uniform() - 10));
    }
  }
  if (sometimes(0.3)) {
    row.spec.unended_tokens = 5;
    for (TokenId t = RandomToken(rng, vocab); t < vocab; t += 1 + RandomToken(rng, vocab)) row.spec.ends.push_back(t);
  }
  if (sometimes(0.3)) {
    std::vector<TokenId> allowed;
    for (int64_t i = rng.UniformInt(0, 50); i > 0; --i) allowed.push_back(RandomToken(rng, vocab));
    if (sometimes(0.1)) allowed = row.spec.ends;
    row.spec.grammar = std::make_shared<const ListGrammar>(vocab, allowed);
  }
  if (sometimes(0.4)) p.logprobs = static_cast<int32_t>(rng.UniformInt(0, 20));
  if (sometimes(0.1)) row.prompt_next = RandomToken(rng, vocab);
  return row;
}

TEST_P(SampleTest, RandomRowsAreSampledAsOnTheCpu) {
  struct Batch {
    int64_t vocab, rows;
  };
  for (const Batch& b : {Batch{1, 8}, Batch{5, 40}, Batch{64, 40}, Batch{257, 40}, Batch{1000, 40}, Batch{32000, 5}}) {
    std::vector<TestRow> rows;
    for (int64_t i = 0; i < b.rows; ++i) {
      rows.push_back(RandomRow(b.vocab, static_cast<uint64_t>(1000 * b.vocab + i)));
    }
    ExpectAsOnCpu(stream(), rows);
    if (HasFatalFailure()) return;
  }
}

// Rows as models have them: hardly any token counts.
TEST_P(SampleTest, LargeVocabulariesAreSampledAsOnTheCpu) {
  const int64_t vocab = 151936;
  std::vector<TestRow> rows;
  for (uint64_t i = 0; i < 4; ++i) {
    rows.push_back(RowOf(Normals(vocab, i, 2.5), i));
    for (int64_t t = 0; t < 30; ++t) rows.back().logits[static_cast<size_t>(t * 4999 + 17)] += 15.0f;
  }
  rows[0].spec.params.temperature = 0.0f;
  rows[1].spec.params.top_k = 50;
  rows[2].spec.params.top_p = 0.999f;
  rows[2].spec.params.logprobs = 5;
  ExpectAsOnCpu(stream(), rows);
}

TEST_P(SampleTest, TiesGoToTheLowestIds) {
  std::vector<TestRow> rows;
  for (uint64_t i = 0; i < 60; ++i) {
    std::vector<float> logits(1500, -1.0f);
    for (const size_t t : {1400u, 130u, 7u, 250u, 900u}) logits[t] = 2.0f;
    TestRow row = RowOf(std::move(logits), i);
    SamplingParams& p = row.spec.params;
    if (i % 3 == 0) p.temperature = 0.0f;
    if (i % 2 == 0) p.top_k = static_cast<int32_t>(1 + i % 8);  // more than 5: some of the 1495
    if (i % 5 == 0) p.top_k = 700;
    if (i % 4 == 0) p.top_p = 0.3f + 0.01f * static_cast<float>(i);
    p.logprobs = static_cast<int32_t>(i % 9);
    rows.push_back(std::move(row));
  }
  // All logits alike, 0 and -0 among them.
  for (uint64_t i = 0; i < 12; ++i) {
    std::vector<float> logits(1500, 0.0f);
    for (size_t t = 0; t < logits.size(); t += 2) logits[t] = -0.0f;
    rows.push_back(RowOf(std::move(logits), i));
    rows.back().spec.params.temperature = i == 0 ? 0.0f : 1.0f;
    rows.back().spec.params.top_k = static_cast<int32_t>(i * 100);
    rows.back().spec.params.top_p = i % 2 == 0 ? 1.0f : 0.7f;
    rows.back().spec.params.logprobs = 3;
  }
  ExpectAsOnCpu(stream(), rows);
}

TEST_P(SampleTest, ExtremeParametersAreSampledAsOnTheCpu) {
  const float most = std::numeric_limits<float>::max();
  std::vector<TestRow> rows;
  for (const float temperature : {1e-6f, 0.01f, 5.0f, 100.0f}) {
    for (const float scale : {1e-3f, 1.0f, 1e4f, most / 8}) {
      TestRow row = RowOf(Normals(700, rows.size(), 1.0), rows.size());
      for (float& l : row.logits) l *= scale;
      row.spec.params.temperature = temperature;
      row.spec.params.repetition_penalty = 0.01f;
      row.spec.params.frequency_penalty = 2.0f;
      row.spec.params.top_p = 0.9f;
      row.spec.prompt = {1, 2, 3, 4, 5, 6};
      row.spec.output = {7, 7, 7, 8};
      row.spec.params.logit_bias = {{0, 100.0f}, {9, -100.0f}, {699, 100.0f}};
      rows.push_back(std::move(row));
    }
  }
  for (const float top_p : {1e-6f, 0.5f, 0.999999f}) {
    for (const float min_p : {0.0f, 0.5f, 1.0f}) {
      TestRow row = RowOf(Normals(700, rows.size(), 0.01), rows.size());
      row.spec.params.top_p = top_p;
      row.spec.params.min_p = min_p;
      rows.push_back(std::move(row));
    }
  }
  // Only tokens at the level of those that a mask forbids.
  TestRow row = RowOf(std::vector<float>(700, -most), 3);
  rows.push_back(row);
  row.spec.grammar = std::make_shared<const ListGrammar>(700, std::vector<TokenId>{600, 650});
  rows.push_back(row);
  row.spec.ends = {600, 650}, row.spec.unended_tokens = 1;
  rows.push_back(row);
  ExpectAsOnCpu(stream(), rows);
}

TEST_P(SampleTest, LogitsThatAreNotFiniteGiveAStatus) {
  std::vector<TestRow> rows;
  for (const int64_t vocab : {64, 1001}) {
    rows.clear();
    for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
      for (const size_t at : {size_t{0}, size_t{37}, static_cast<size_t>(vocab - 1)}) {
        for (int kind = 0; kind < 5; ++kind) {
          TestRow row = RowOf(Normals(vocab, rows.size()), rows.size());
          row.logits[at] = bad;
          row.spec.params.temperature = kind == 0 ? 0.0f : 1.0f;
          if (kind == 2) row.spec.params.logprobs = 2;
          if (kind == 3) row.prompt_next = 5;
          if (kind == 4) {
            row.spec.ends = {static_cast<TokenId>(at)}, row.spec.unended_tokens = 1;
            row.spec.grammar = std::make_shared<const ListGrammar>(vocab, std::vector<TokenId>{1, 2});
            row.spec.params.logit_bias = {{static_cast<TokenId>(at), 1.0f}};
          }
          rows.push_back(std::move(row));
        }
      }
    }
    rows.push_back(RowOf(Normals(vocab, 1), 1));  // beside them a row that is right
    ExpectAsOnCpu(stream(), rows);
  }
}

TEST_P(SampleTest, MasksThatAllowNothingGiveAStatus) {
  std::vector<TestRow> rows(4, RowOf(Normals(90, 1), 1));
  const auto nothing = std::make_shared<const ListGrammar>(90, std::vector<TokenId>{});
  rows[0].spec.grammar = nothing;
  rows[1].spec.grammar = nothing, rows[1].spec.params.temperature = 0.0f, rows[1].spec.params.logprobs = 3;
  rows[2].spec.grammar = nothing, rows[2].logits[8] = std::nanf("");
  ExpectAsOnCpu(stream(), rows);
  EXPECT_EQ(SampleOnCpu(rows[0]).status, ItemStatus::kBadGrammar);
  EXPECT_EQ(SampleOnCpu(rows[2]).status, ItemStatus::kBadLogits);
}

TEST_P(SampleTest, MoreLogprobsThanTokensLeaveEntriesEmpty) {
  std::vector<TestRow> rows(2, RowOf(Normals(5, 1), 1));
  for (TestRow& row : rows) row.spec.params.logprobs = 8;
  rows[1].prompt_next = 3;
  ExpectAsOnCpu(stream(), rows);
  EXPECT_EQ(DeviceRows(stream(), rows).results()[1].logprobs.size(), 6u);
}

TEST_P(SampleTest, TheMostLogprobsAreSorted) {
  TestRow row = RowOf(Normals(3000, 1), 1);
  row.spec.params.logprobs = kMostLogprobs;
  ExpectAsOnCpu(stream(), {row});
}

// The rows of one item: each samples as if the drafts before it were in the output, and counts if they were sampled.
TEST_P(SampleTest, RowsOfDraftsCountWhereTheDraftsAreRight) {
  SamplingSpec spec;
  spec.params.temperature = 0.0f;
  spec.params.frequency_penalty = 1.0f, spec.params.presence_penalty = 0.5f;
  spec.output = {1, 1, 2};
  spec.max_tokens = 50;
  std::vector<TestRow> rows;
  for (size_t i = 0; i < 3; ++i) {
    TestRow row;
    row.spec = spec;
    row.slot = 1;
    row.logits = Normals(40, 3);
    row.logits[5] = 10.0f, row.logits[9] = 9.0f, row.logits[12] = 8.0f;
    rows.push_back(row);
  }
  // Row 0 samples 5, which the first draft is. Row 1 then samples 9, and the second draft is another token.
  rows[1].drafts = {5};
  rows[2].drafts = {5, 12};
  TestRow other = rows[0];
  other.slot = 2;
  rows.push_back(other);
  ExpectAsOnCpu(stream(), rows);
  const DeviceRows device(stream(), rows);
  EXPECT_EQ(device.results()[0].token, 5);
  EXPECT_EQ(device.results()[1].token, 9);
  EXPECT_EQ(device.last_tokens(), (std::vector<int32_t>{-7, 9, 5, -7}));
  std::vector<uint32_t> counts(40, 0u);
  counts[1] = 2, counts[2] = counts[5] = counts[9] = 1;
  EXPECT_EQ(device.counts(0), counts);
  counts[9] = 0;
  EXPECT_EQ(device.counts(3), counts);
}

TEST_P(SampleTest, SampledTokensAreCounted) {
  std::vector<TestRow> rows(2, RowOf(Normals(300, 1), 1));
  for (TestRow& row : rows) {
    row.spec.params.presence_penalty = 0.1f;
    row.spec.output = {7, 7};
    row.spec.max_tokens = 10;
  }
  rows[1].logits[3] = kInfinity;
  const DeviceRows device(stream(), rows);
  const auto token = static_cast<size_t>(device.results()[0].token);
  std::vector<uint32_t> counts(300, 0u);
  counts[7] = 2;
  EXPECT_EQ(device.counts(1), counts);
  ++counts[token];
  EXPECT_EQ(device.counts(0), counts);
  EXPECT_EQ(device.last_tokens()[0], device.results()[0].token);
  EXPECT_EQ(device.last_tokens()[1], -7);
}

TEST_P(SampleTest, StartCountsMarksPromptsAndCountsOutputs) {
  const Buffer<uint32_t> counts(std::vector<uint32_t>(3 * 50, 77u));
  const Buffer<int32_t> prompt({3, 4, 3, -1, 50}), output({4, 9, 9, 9, 100, -5});
  StartCounts(stream(), counts.data(), 1, 50, prompt.data(), 5, output.data(), 6);
  std::vector<uint32_t> want(3 * 50, 77u);
  std::fill_n(want.begin() + 50, 50, 0u);
  want[53] = kInPrompt, want[54] = kInPrompt + 1, want[59] = 3;
  EXPECT_EQ(counts.Read(), want);
  StartCounts(stream(), counts.data(), 1, 50, nullptr, 0, nullptr, 0);
  std::fill_n(want.begin() + 50, 50, 0u);
  EXPECT_EQ(counts.Read(), want);
}

TEST_P(SampleTest, TakeChainedReplacesNegativeIds) {
  std::vector<int32_t> ids(300, 5);
  ids[0] = -1, ids[7] = -3, ids[299] = -2;
  const Buffer<int32_t> input(ids), last({11, 22, 33});
  TakeChained(stream(), input.data(), 300, last.data());
  ids[0] = 11, ids[7] = 33, ids[299] = 22;
  EXPECT_EQ(input.Read(), ids);
}

}  // namespace
}  // namespace tactus::compute::cuda::sample_test
