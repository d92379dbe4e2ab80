#include "contract/bed.h"

#include "base/check.h"
#include "base/rng.h"

namespace tactus::contract {
namespace {

std::unique_ptr<Executor> Make(const Backend& backend, int32_t max_in_flight) {
  auto executor = backend.make(SizeOf(backend), max_in_flight);
  TACTUS_CHECK_MSG(executor.ok(), backend.name + " makes no executor: " + executor.status().ToString());
  return std::move(*executor);
}

// What is wrong with the form of a result; empty: nothing.
std::string Misfit(const StepPlan& plan, const StepResult& result) {
  if (result.step != plan.step) {
    return "the result of step " + std::to_string(result.step) + " instead of step " + std::to_string(plan.step);
  }
  if (!result.status.ok()) return "";
  if (result.items.size() != plan.items.size()) {
    return std::to_string(result.items.size()) + " results for " + std::to_string(plan.items.size()) + " items";
  }
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const StepItem& item = plan.items[i];
    const ItemResult& r = result.items[i];
    const std::string name = "item " + std::to_string(i);
    if (r.token_offset < 0 || int64_t{r.token_offset} + r.num_tokens > static_cast<int64_t>(result.tokens.size()))
      return name + " has tokens outside the result's";
    if (r.status != ItemStatus::kOk) continue;
    const int32_t drafts = item.draft_tokens;
    if (r.num_tokens < (item.sample ? 1 : 0) || r.num_tokens > (item.sample ? 1 + drafts : 0))
      return name + " has " + std::to_string(r.num_tokens) + " tokens";
    const int32_t accepted = item.count - drafts + (item.sample ? r.num_tokens - 1 : 0);
    if (r.accepted != accepted) {
      return name + " has accepted " + std::to_string(r.accepted) + " positions instead of " + std::to_string(accepted);
    }
  }
  for (const auto& l : result.logprobs) {
    if (l.item < 0 || l.item >= static_cast<int32_t>(result.items.size())) return "logprobs of no item";
    const ItemResult& r = result.items[static_cast<size_t>(l.item)];
    if (static_cast<int32_t>(l.per_token.size()) != r.num_tokens)
      return "item " + std::to_string(l.item) + " has logprobs of other than its tokens";
  }
  for (const auto& l : result.prompt_logprobs) {
    if (l.item < 0 || l.item >= static_cast<int32_t>(result.items.size())) return "prompt logprobs of no item";
  }
  return "";
}

}  // namespace

ExecutorSize SizeOf(const Backend& backend) {
  return {.num_blocks = 64,
          .swap_blocks = backend.swaps ? 24 : 0,
          .block_size = backend.block_size,
          .max_model_len = 10 * int64_t{backend.block_size},
          .max_slots = 8,
          .max_step_tokens = 16 * int64_t{backend.block_size},
          .max_step_items = 8};
}

Bed::Bed(const Backend& backend, int32_t max_in_flight)
    : executor_(Make(backend, max_in_flight)),
      waiter_(*executor_),
      driver_([this](const StepPlan& plan, StepResult* result) { *result = Run(plan); }, SizeOf(backend).num_blocks,
              backend.block_size, SizeOf(backend).swap_blocks) {}

StepResult Bed::Next(const StepPlan& plan) {
  StepResult result = waiter_.Next();
  if (const std::string misfit = Misfit(plan, result); !misfit.empty()) {
    ADD_FAILURE() << "the result of step " << plan.step << " does not fit its plan: " << misfit;
    result.status = Internal(misfit);
  }
  return result;
}

StepResult Bed::Run(const StepPlan& plan) {
  Submit(plan);
  return Next(plan);
}

std::vector<TokenId> RandomTokens(const Backend& backend, int64_t count, uint64_t seed) {
  Rng rng(seed, 5);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& t : tokens) t = static_cast<TokenId>(rng.UniformInt(0, backend.vocab_size - 1));
  return tokens;
}

std::vector<Request> MixedRequests(const Backend& backend) {
  const int64_t b = backend.block_size;
  const std::vector<TokenId> prefix = RandomTokens(backend, 5 * b / 2, 1);
  std::vector<Request> requests;
  for (const int64_t own : {int64_t{1}, 2 * b + 1, 5 * b - 5, int64_t{3}, b + 4, b / 2 + 1}) {
    std::vector<TokenId> prompt = requests.size() < 3 ? std::vector<TokenId>() : prefix;
    const std::vector<TokenId> rest = RandomTokens(backend, own, 2 + requests.size());
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    SamplingParams p = MixedSampling(requests.size());
    if (backend.logprobs) p.logprobs = static_cast<int32_t>(requests.size() % 3);
    requests.push_back(MakeRequest(std::move(prompt), p));
  }
  return requests;
}

Output OutputOf(const StepDriver::Sequence& sequence, int32_t count) {
  Output output;
  output.tokens = sequence.output();
  for (const auto& step : sequence.logprobs)
    output.logprobs.insert(output.logprobs.end(), step.per_token.begin(), step.per_token.end());
  const auto most = static_cast<size_t>(count);
  if (output.tokens.size() > most) output.tokens.resize(most);
  if (output.logprobs.size() > most) output.logprobs.resize(most);
  return output;
}

Output Alone(const Backend& backend, const Request& request, int32_t choice, int32_t count) {
  Bed bed(backend);
  const int32_t s = bed.driver().Add(request, choice);
  bed.driver().Generate(s, count);
  EXPECT_EQ(bed.driver().at(s).output().size(), static_cast<size_t>(count))
      << "a sequence alone does not get its tokens";
  return OutputOf(bed.driver().at(s), count);
}

std::vector<Output> EachAlone(const Backend& backend, const std::vector<Request>& requests) {
  std::vector<Output> outputs;
  for (const Request& request : requests) outputs.push_back(Alone(backend, request));
  return outputs;
}

void ExpectSame(const Output& alone, const Output& got, const std::string& schedule) {
  ASSERT_EQ(got.tokens.size(), alone.tokens.size()) << schedule << ": another number of tokens than alone";
  for (size_t i = 0; i < alone.tokens.size(); ++i) {
    ASSERT_EQ(got.tokens[i], alone.tokens[i]) << schedule << ": output token " << i << " is not the one it gets alone";
  }
  ASSERT_EQ(got.logprobs.size(), alone.logprobs.size()) << schedule << ": another number of logprobs than alone";
  for (size_t i = 0; i < alone.logprobs.size(); ++i) {
    ASSERT_EQ(got.logprobs[i].size(), alone.logprobs[i].size()) << schedule << ": logprobs of output token " << i;
    for (size_t k = 0; k < alone.logprobs[i].size(); ++k) {
      const TokenLogprob &a = alone.logprobs[i][k], &g = got.logprobs[i][k];
      ASSERT_EQ(g.token, a.token) << schedule << ": logprob " << k << " of output token " << i;
      ASSERT_EQ(g.logprob, a.logprob) << schedule << ": logprob " << k << " of output token " << i;
    }
  }
}

void ExpectAllSame(const std::vector<Output>& alone, StepDriver& driver, const std::string& schedule) {
  for (size_t s = 0; s < alone.size(); ++s) {
    const StepDriver::Sequence& sequence = driver.at(static_cast<int32_t>(s));
    EXPECT_EQ(sequence.status, ItemStatus::kOk) << schedule << ", sequence " << s;
    ExpectSame(alone[s], OutputOf(sequence), schedule + ", sequence " + std::to_string(s));
  }
}

}  // namespace tactus::contract
