// Schedules of the same requests that must not change a bit of their logits, for tests of executors: each request
// alone, its prompt in chunks, in random batches, preempted, on shared prefix blocks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/backend.h"
#include "base/check.h"
#include "base/rng.h"
#include "support/mixed_steps.h"
#include "support/step_driver.h"

namespace tactus::test {

inline constexpr int32_t kScheduleOutput = 10;
inline constexpr int64_t kScheduleTokens = 2048;  // of KV that RunSchedule needs

// An executor that RunSchedule fits.
inline ExecutorSize ScheduleSize(int32_t block_size) {
  ExecutorSize size;
  size.num_blocks = kScheduleTokens / block_size;
  size.block_size = block_size;
  size.max_slots = size.max_step_items = 8;
  size.max_step_tokens = 256;
  size.max_model_len = 160;
  return size;
}

// Prompts of 1 to 75 tokens; the last three share a prefix of 40. Greedy and sampled, with and without penalties.
inline std::vector<Request> ScheduleRequests(int64_t vocab_size) {
  Rng rng(7);
  auto random_tokens = [&](int64_t n) {
    std::vector<TokenId> tokens(static_cast<size_t>(n));
    for (TokenId& t : tokens) t = static_cast<TokenId>(rng.UniformInt(0, vocab_size - 1));
    return tokens;
  };
  std::vector<Request> requests;
  const std::vector<TokenId> prefix = random_tokens(40);
  for (const int64_t n : {1, 33, 75, 3, 20, 9}) {
    std::vector<TokenId> prompt = requests.size() < 3 ? std::vector<TokenId>() : prefix;
    const std::vector<TokenId> own = random_tokens(n);
    prompt.insert(prompt.end(), own.begin(), own.end());
    SamplingParams p = MixedSampling(requests.size());
    requests.push_back(MakeRequest(std::move(prompt), p));
  }
  return requests;
}

enum class Schedule { kAlone, kChunks, kMixed, kPreempted, kShared, kSharedInOneStep };

// `driver`: fresh, and records logits.
inline std::vector<StepDriver::Sequence> RunSchedule(StepDriver& driver, int64_t vocab_size, Schedule schedule,
                                                     int32_t block_size, uint64_t seed) {
  const std::vector<Request> requests = ScheduleRequests(vocab_size);
  for (const Request& r : requests) driver.Add(r);
  const auto sequences = static_cast<int32_t>(requests.size());
  const int32_t shared = 40 / block_size;
  Rng rng(seed);
  switch (schedule) {
    case Schedule::kAlone:
      for (int32_t s = 0; s < sequences; ++s) {
        driver.Step({{s, driver.at(s).pending()}}, true);
        driver.Generate(s, kScheduleOutput);
      }
      break;
    case Schedule::kChunks:
      for (int32_t s = 0; s < sequences; ++s) {
        while (static_cast<int32_t>(driver.at(s).output().size()) < kScheduleOutput) {
          const StepResult result =
              driver.Step({{s, static_cast<int32_t>(rng.UniformInt(1, std::min(driver.at(s).pending(), 7)))}}, true);
          TACTUS_CHECK_MSG(result.status.ok() && driver.at(s).status == ItemStatus::kOk, result.status.ToString());
        }
      }
      break;
    case Schedule::kMixed:
      RunMixed(driver, sequences, {.output = kScheduleOutput}, rng);
      break;
    case Schedule::kPreempted:
      RunMixed(driver, sequences, {.output = kScheduleOutput, .preempt = true}, rng);
      break;
    case Schedule::kShared:
      driver.Generate(3, 1);
      driver.ShareBlocks(4, 3, shared);
      driver.ShareBlocks(5, 3, shared);
      RunMixed(driver, sequences, {.output = kScheduleOutput}, rng);
      break;
    case Schedule::kSharedInOneStep:
      // The producer of the blocks and both readers are items of one step.
      driver.at(3).announced = false;
      driver.Step({{3, shared * block_size - 1}});  // leaves the last shared position to the common step
      driver.ShareBlocks(4, 3, shared);
      driver.ShareBlocks(5, 3, shared);
      driver.Step({{3, 2}, {4, 3}, {5, 1}}, true);
      RunMixed(driver, sequences, {.output = kScheduleOutput}, rng);
      break;
  }
  std::vector<StepDriver::Sequence> result;
  for (int32_t s = 0; s < sequences; ++s) result.push_back(driver.at(s));
  return result;
}

inline void ExpectSameBits(const std::vector<StepDriver::Sequence>& a, const std::vector<StepDriver::Sequence>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t s = 0; s < a.size(); ++s) {
    ASSERT_EQ(a[s].status, ItemStatus::kOk);
    EXPECT_EQ(a[s].tokens, b[s].tokens) << "sequence " << s;
    int compared = 0;
    for (const auto& [position, logits] : b[s].logits) {
      const auto it = a[s].logits.find(position);
      if (it == a[s].logits.end()) continue;
      ++compared;
      ASSERT_EQ(std::memcmp(it->second.data(), logits.data(), logits.size() * sizeof(float)), 0)
          << "sequence " << s << " position " << position;
    }
    EXPECT_GE(compared, kScheduleOutput);
  }
}

}  // namespace tactus::test
