// What the checks share: an executor with its driver, requests, and the outputs that sequences get alone.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "contract/contract.h"
#include "support/result_waiter.h"
#include "support/step_driver.h"

namespace tactus::contract {

using test::Greedy;
using test::MakeRequest;
using test::MixedSampling;
using test::StepDriver;

// 8 slots of at most 10 blocks, 64 blocks for all of them; 24 blocks of the host if the backend swaps.
ExecutorSize SizeOf(const Backend& backend);

class Bed {
 public:
  explicit Bed(const Backend& backend, int32_t max_in_flight = 1);
  Executor& executor() { return *executor_; }
  StepDriver& driver() { return driver_; }
  void Submit(const StepPlan& plan) { executor_->Submit(plan); }
  // The result of `plan`, the oldest outstanding one. A result that does not fit its plan is a failure and becomes an
  // error.
  StepResult Next(const StepPlan& plan);
  StepResult Run(const StepPlan& plan);

 private:
  std::unique_ptr<Executor> executor_;
  test::ResultWaiter waiter_;
  StepDriver driver_;
};

// `count` tokens of the vocabulary; a function of the seed.
std::vector<TokenId> RandomTokens(const Backend& backend, int64_t count, uint64_t seed);

// Six prompts, from one token to almost five blocks; the last three begin with the same two and a half blocks. Every
// other request is sampled, with penalties.
inline constexpr int32_t kOutput = 8;  // tokens that the checks generate for each
std::vector<Request> MixedRequests(const Backend& backend);

struct Output {
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenLogprob>> logprobs;  // of each token; empty if not requested
};
// The first `count` output tokens; fewer if there are fewer.
Output OutputOf(const StepDriver::Sequence& sequence, int32_t count = kOutput);
// What a sequence gets on a new executor: the whole prompt in one step, then one token a step.
Output Alone(const Backend& backend, const Request& request, int32_t choice = 0, int32_t count = kOutput);
std::vector<Output> EachAlone(const Backend& backend, const std::vector<Request>& requests);

// Fails with the first difference. `schedule` says what was done to the sequence: "its prompt in chunks of 7".
void ExpectSame(const Output& alone, const Output& got, const std::string& schedule);
void ExpectAllSame(const std::vector<Output>& alone, StepDriver& driver, const std::string& schedule);

}  // namespace tactus::contract
