#include "engine/step_times/step_profiler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tactus::engine {
namespace {

constexpr size_t kCopiesPerStep = 4096;

// The base-b digits of i, mirrored behind the radix point: Halton's sequence, one base for each axis.
double RadicalInverse(uint32_t base, uint64_t i) {
  double value = 0, digit = 1;
  for (; i > 0; i /= base) {
    digit /= base;
    value += digit * static_cast<double>(i % base);
  }
  return value;
}

// Geometric interpolation: low at u = 0, high at u = 1.
int32_t LogScale(double u, int64_t low, int64_t high) {
  if (high <= low) return static_cast<int32_t>(std::max<int64_t>(low, 0));
  const double value = static_cast<double>(low) * std::pow(static_cast<double>(high) / static_cast<double>(low), u);
  return static_cast<int32_t>(std::clamp<int64_t>(std::llround(value), low, high));
}

// Reduces a point to what the executor can run: KV blocks, step tokens, context. False: no tokens remain.
bool Fit(const ProfileLimits& limits, ProfilePoint* p) {
  const auto blocks = [&limits](int64_t tokens) { return (tokens + limits.block_size - 1) / limits.block_size; };
  p->decodes = static_cast<int32_t>(
      std::clamp<int64_t>(p->decodes, 0, std::min<int64_t>(limits.max_decodes, limits.max_step_tokens)));
  p->prefill_tokens = static_cast<int32_t>(std::clamp<int64_t>(
      p->prefill_tokens, 0, std::min<int64_t>(limits.max_step_tokens - p->decodes, limits.max_context)));
  p->prefill_context =
      p->prefill_tokens == 0 ? 0 : std::clamp(p->prefill_context, 0, limits.max_context - p->prefill_tokens);
  int64_t left = limits.num_blocks - blocks(p->prefill_tokens + p->prefill_context);
  if (left < 0) return false;
  if (p->decodes == 0) {
    p->decode_context = 0;
    return p->prefill_tokens > 0;
  }
  const int64_t each = left / p->decodes * limits.block_size;
  p->decode_context = static_cast<int32_t>(std::min<int64_t>({p->decode_context, limits.max_context, each}));
  return p->decode_context >= 1;
}

}  // namespace

std::vector<ProfilePoint> DesignProfile(const ProfileLimits& limits, int32_t count) {
  std::vector<ProfilePoint> points;
  const auto add = [&](ProfilePoint p) {
    if (!Fit(limits, &p) || std::find(points.begin(), points.end(), p) != points.end()) return;
    if (static_cast<int32_t>(points.size()) < count) points.push_back(p);
  };
  const auto most_tokens = static_cast<int32_t>(limits.max_step_tokens);
  const int32_t context = limits.max_context, decodes = limits.max_decodes, few = std::min(64, context);
  add({0, 0, 1, few});
  add({most_tokens, 0, 0, 0});
  add({0, 0, decodes, few});
  add({most_tokens / 2, 0, decodes / 2, few});
  add({1, 0, 0, 0});
  add({0, 0, 1, context});
  add({0, 0, decodes, context});
  add({most_tokens, context - most_tokens, 0, 0});
  add({most_tokens / 4, context, decodes / 4, context / 4});
  add({16, context, 0, 0});
  add({most_tokens - decodes, 0, decodes, few});
  add({0, 0, decodes / 4, context});
  // Decode-only steps are the most frequent, then steps with a chunk beside decodes.
  constexpr int kKinds[] = {0, 1, 2, 1, 0, 1};  // decodes, both, prompt
  for (uint64_t i = 1; static_cast<int32_t>(points.size()) < count && i < 8 * static_cast<uint64_t>(count) + 64; ++i) {
    const int kind = kKinds[i % 6];
    ProfilePoint p;
    if (kind != 0) {
      p.prefill_tokens = LogScale(RadicalInverse(2, i), 4, limits.max_step_tokens);
      // A third of all prompts have no context.
      const double u = RadicalInverse(3, i);
      p.prefill_context = u < 1.0 / 3 ? 0 : LogScale((u - 1.0 / 3) * 1.5, 16, context);
    }
    if (kind != 2) {
      p.decodes = LogScale(RadicalInverse(5, i), 1, decodes);
      p.decode_context = LogScale(RadicalInverse(7, i), 16, context);
    }
    add(p);
  }
  return points;
}

StepProfiler::StepProfiler(Executor* executor, const ProfileLimits& limits) : executor_(*executor), limits_(limits) {
  TACTUS_CHECK(limits.num_blocks >= 1 && limits.block_size >= 1 && limits.max_step_tokens >= 1 &&
               limits.vocab_size >= 1);
  executor_.SetWakeup([wake = wake_] {
    std::lock_guard<std::mutex> lock(wake->mutex);
    wake->signalled = true;
    wake->condition.notify_one();
  });
}

Result<DurationNs> StepProfiler::Run(const StepPlan& plan) {
  executor_.Submit(plan);
  return Wait();
}

Result<DurationNs> StepProfiler::Wait() {
  StepResult result;
  while (!executor_.Poll(&result)) {
    std::unique_lock<std::mutex> lock(wake_->mutex);
    wake_->condition.wait(lock, [this] { return wake_->signalled; });
    wake_->signalled = false;
  }
  TACTUS_RETURN_IF_ERROR(result.status);
  for (const ItemResult& item : result.items) {
    if (item.status != ItemStatus::kOk)
      return Internal("a measured step could not run: the model's logits are not finite");
  }
  return result.end_ns - result.start_ns;
}

void StepProfiler::AddTable(SlotId slot, int64_t first_block, int32_t tokens, StepPlan* plan) {
  const int32_t count = (tokens + limits_.block_size - 1) / limits_.block_size;
  plan->table_updates.push_back({slot, 0, count, static_cast<int32_t>(plan->table_blocks.size())});
  for (int32_t i = 0; i < count; ++i) plan->table_blocks.push_back(static_cast<BlockId>(first_block + i));
}

Status StepProfiler::FillBlocks(int64_t blocks) {
  if (filled_ == 0) {
    const auto tokens = static_cast<int32_t>(std::min<int64_t>(
        {limits_.seed_tokens, limits_.max_context, limits_.max_step_tokens, limits_.num_blocks * limits_.block_size}));
    StepPlan plan;
    plan.step = next_step_++;
    plan.starts.emplace_back().slot = 0;
    AddTable(0, 0, tokens, &plan);
    plan.items.push_back({.slot = 0, .first_position = 0, .count = tokens});
    for (int32_t i = 0; i < tokens; ++i) plan.tokens.push_back(static_cast<TokenId>(i * 31 % limits_.vocab_size));
    plan.num_tokens = tokens;
    TACTUS_RETURN_IF_ERROR(Run(plan).status());
    filled_ = std::max<int64_t>(1, tokens / limits_.block_size);
  }
  const int64_t seeds = std::min<int64_t>(filled_, std::max(1, limits_.seed_tokens / limits_.block_size));
  while (filled_ < blocks) {
    StepPlan plan;
    plan.step = next_step_++;
    for (; filled_ < blocks && plan.copies.size() < kCopiesPerStep; ++filled_) {
      plan.copies.push_back({static_cast<BlockId>(filled_ % seeds), static_cast<BlockId>(filled_), limits_.block_size});
    }
    TACTUS_RETURN_IF_ERROR(Run(plan).status());
  }
  return Status();
}

Result<cost::StepSample> StepProfiler::Measure(const ProfilePoint& p, DurationNs enough_ns) {
  std::vector<DurationNs> times;
  TACTUS_RETURN_IF_ERROR(Visit(p, enough_ns, &times));
  return SampleOf(p, std::move(times));
}

cost::StepSample StepProfiler::SampleOf(const ProfilePoint& p, std::vector<DurationNs> times) {
  TACTUS_CHECK(!times.empty());
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return {p.prefill_tokens, p.prefill_context, p.decodes, int64_t{p.decodes} * p.decode_context,
          static_cast<double>(*middle) * 1e-6};
}

Status StepProfiler::Visit(const ProfilePoint& p, DurationNs enough_ns, std::vector<DurationNs>* times) {
  const auto blocks = [this](int64_t tokens) { return (tokens + limits_.block_size - 1) / limits_.block_size; };
  const int64_t prompt_blocks = blocks(p.prefill_tokens + p.prefill_context), each = blocks(p.decode_context);
  TACTUS_RETURN_IF_ERROR(FillBlocks(prompt_blocks + p.decodes * each));

  plan_.Clear();
  const auto token = [&](int64_t i) {
    plan_.tokens.push_back(static_cast<TokenId>((7 + i * 13) % limits_.vocab_size));
  };
  const auto add = [&](SlotId slot, int32_t first, int32_t count) {
    plan_.starts.emplace_back().slot = slot;
    StepItem item{.slot = slot, .first_position = first, .count = count, .logit_rows = 1, .sample = true};
    item.token_offset = static_cast<int32_t>(plan_.tokens.size());
    for (int32_t i = 0; i < count; ++i) token(first + i);
    plan_.items.push_back(item);
    plan_.num_tokens += count;
    plan_.logit_rows += 1;
  };
  for (int32_t d = 0; d < p.decodes; ++d) {
    AddTable(d, prompt_blocks + d * each, p.decode_context, &plan_);
    add(d, p.decode_context - 1, 1);
  }
  plan_.num_decodes = p.decodes;
  plan_.decode_context_tokens = int64_t{p.decodes} * p.decode_context;
  if (p.prefill_tokens > 0) {
    AddTable(p.decodes, 0, p.prefill_context + p.prefill_tokens, &plan_);
    plan_.prompt_items.push_back(p.decodes);
    add(p.decodes, p.prefill_context, p.prefill_tokens);
  }

  // The first run starts the sequences and warms up; it counts only if three more would take too long.
  const DurationNs long_ns = 8 * enough_ns;
  plan_.step = next_step_++;
  TACTUS_ASSIGN_OR_RETURN(const DurationNs first, Run(plan_));
  plan_.starts.clear();
  plan_.table_updates.clear();
  plan_.table_blocks.clear();
  if (first >= long_ns) times->push_back(first);
  return first >= long_ns ? Status() : RunAgain(enough_ns, long_ns, times);
}

Status StepProfiler::RunAgain(DurationNs enough_ns, DurationNs long_ns, std::vector<DurationNs>* times) {
  constexpr size_t kLeastRuns = 3, kMostRuns = 9;
  const bool pairs = executor_.traits().max_in_flight > 1;
  if (pairs) {
    again_ = plan_;
    again_.step = next_step_++;
    executor_.Submit(again_);
  }
  DurationNs spent = 0;
  size_t runs = 0, counted = 0;
  Status status;
  for (bool more = true; more; ++runs) {
    StepPlan& plan = pairs && runs % 2 == 1 ? again_ : plan_;
    plan.step = next_step_++;
    executor_.Submit(plan);
    const Result<DurationNs> took = Wait();
    status = took.status();
    if (!status.ok()) break;
    if (pairs && runs == 0) continue;  // launched after the step before it had ended
    times->push_back(*took);
    spent += *took;
    ++counted;
    more = counted < kMostRuns && (spent < enough_ns || (counted < kLeastRuns && *took < long_ns));
  }
  if (pairs) {
    const Result<DurationNs> last = Wait();
    if (status.ok()) status = last.status();
  }
  return status;
}

}  // namespace tactus::engine
