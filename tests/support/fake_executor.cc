#include "support/fake_executor.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace tactus {
namespace {

constexpr uint64_t kGarbage = 0xdeadbeefdeadbeefULL;

// K and V of a position: they depend on the token and on everything before it.
uint64_t NextState(uint64_t previous, TokenId token) {
  return MixHash(previous, static_cast<uint64_t>(token) + 1);
}
uint64_t FirstState(uint64_t seed, int32_t adapter) {
  return MixHash(0x5eed + static_cast<uint64_t>(adapter), seed);
}

TokenId Sample(const FakeExecutorConfig& config, uint64_t attended, int32_t choice, int32_t position) {
  const uint64_t h = MixHash(MixHash(attended, static_cast<uint64_t>(choice)), static_cast<uint64_t>(position));
  return static_cast<TokenId>(h % static_cast<uint64_t>(config.vocab_size));
}

// The fake model's distribution: `best` is the likeliest token, and each next token of the vocabulary is e times less
// likely. The chosen token comes first, then the `count` best.
std::vector<TokenLogprob> LogprobsOf(TokenId chosen, TokenId best, int32_t count, int32_t vocab_size) {
  const int32_t rank = ((chosen - best) % vocab_size + vocab_size) % vocab_size;
  std::vector<TokenLogprob> logprobs = {{chosen, -0.5f - static_cast<float>(rank)}};
  for (int32_t i = 0; i < count; ++i) {
    logprobs.push_back({static_cast<TokenId>((best + i) % vocab_size), -0.5f - static_cast<float>(i)});
  }
  return logprobs;
}

PlanLimits LimitsOf(const FakeExecutorConfig& config) {
  return {.num_blocks = config.num_blocks,
          .swap_blocks = config.swap_blocks,
          .block_size = config.block_size,
          .blocks_per_slot = (int64_t{config.max_model_len} + config.block_size - 1) / config.block_size,
          .max_slots = config.max_slots,
          .max_step_tokens = config.max_step_tokens,
          .max_step_items = config.max_step_items,
          .max_draft_tokens = config.max_draft_tokens,
          .adapters = static_cast<int32_t>(config.adapters.size()),
          .can_chain = config.can_chain,
          .has_logprobs = config.has_logprobs,
          .has_grammars = config.has_grammars};
}

}  // namespace

FakeExecutor::FakeExecutor(const FakeExecutorConfig& config)
    : config_(config),
      limits_(LimitsOf(config)),
      faults_(config.fault_seed, 77),
      memory_(static_cast<size_t>(config.num_blocks * config.block_size), kGarbage),
      host_(static_cast<size_t>(config.swap_blocks * config.block_size), kGarbage),
      slots_(static_cast<size_t>(config.max_slots)) {
  TACTUS_CHECK(config.max_in_flight >= 1 && config.num_blocks >= 1 && config.max_slots >= 1 && config.vocab_size >= 1);
}

FakeExecutor::~FakeExecutor() = default;

ExecutorTraits FakeExecutor::traits() const {
  return {.max_in_flight = config_.max_in_flight,
          .can_chain = config_.can_chain,
          .max_draft_tokens = config_.max_draft_tokens,
          .has_tokens = true,
          .name = "fake"};
}

TokenId FakeExecutor::Expected(const FakeExecutorConfig& config, const std::vector<TokenId>& tokens, int32_t choice,
                               int32_t adapter) {
  uint64_t state = FirstState(config.seed, adapter), attended = 0;
  for (const TokenId token : tokens) {
    state = NextState(state, token);
    attended += state;
  }
  return Sample(config, attended, choice, static_cast<int32_t>(tokens.size()));
}

TokenId FakeExecutor::Next(SlotId slot, const std::vector<TokenId>& tokens) const {
  const Slot& s = slots_[static_cast<size_t>(slot)];
  return Expected(config_, tokens, s.choice, s.adapter);
}

void GuessingDrafts::Begin(SlotId slot, const Request& request, std::span<const TokenId> output) {
  std::vector<TokenId> tokens = *request.prompt;
  tokens.insert(tokens.end(), output.begin(), output.end());
  if (!live_.emplace(slot, std::move(tokens)).second) violation_ = "Begin of a sequence that has begun already";
}

void GuessingDrafts::End(SlotId slot) {
  if (live_.erase(slot) == 0) violation_ = "End of a sequence that has not begun";
}

void GuessingDrafts::Propose(std::span<core::DraftTask> tasks) {
  for (core::DraftTask& task : tasks) {
    std::vector<TokenId> tokens(task.prompt.begin(), task.prompt.end());
    tokens.insert(tokens.end(), task.output.begin(), task.output.end());
    const auto live = live_.find(task.slot);
    if (live == live_.end()) {
      violation_ = "a task of a sequence that has not begun or has ended";
      continue;
    }
    std::vector<TokenId>& shown = live->second;
    if (tokens.size() <= shown.size() || !std::equal(shown.begin(), shown.end(), tokens.begin()))
      violation_ = "a task without new tokens, or with other tokens";
    shown = tokens;
    if (task.least_chance > 1) {
      ++unpaid_;
      continue;
    }
    task.waits = rng_.Uniform() < 0.75;
    task.chance =
        rng_.Uniform() < 0.5 ? core::kSureDraft : static_cast<core::DraftChance>(rng_.UniformInt(0, core::kSureDraft));
    task.kind = static_cast<core::DraftKind>(rng_.UniformInt(0, 2));
    for (int64_t left = task.waits ? rng_.UniformInt(0, task.most) : 0; left > 0; --left) {
      const TokenId right = executor_.Next(task.slot, tokens);
      tokens.push_back(rng_.Uniform() < accuracy_ ? right : right + 1);
      task.tokens->push_back(tokens.back());
    }
  }
}

void FakeExecutor::Violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

uint64_t* FakeExecutor::Cell(const Slot& slot, int32_t position) {
  const auto index = static_cast<size_t>(position / config_.block_size);
  if (index >= slot.table.size() || slot.table[index] < 0 || slot.table[index] >= config_.num_blocks) {
    Violate("a position outside its block table");
    static uint64_t nowhere;
    nowhere = kGarbage;
    return &nowhere;
  }
  return &memory_[static_cast<size_t>(slot.table[index]) * static_cast<size_t>(config_.block_size) +
                  static_cast<size_t>(position % config_.block_size)];
}

void FakeExecutor::Start(const SequenceStart& start) {
  Slot& slot = slots_[static_cast<size_t>(start.slot)];
  slot.live = true;
  slot.choice = start.choice;
  slot.adapter = start.adapter;
  slot.grammar.reset();  // before the object that it may refer to
  slot.sampling = start.sampling;
  slot.table.clear();
  slot.last_token = -1;
  if (!config_.follows_specs || slot.sampling.grammar == nullptr) return;
  slot.grammar = slot.sampling.grammar->Start();
  for (const TokenId token : slot.sampling.output) slot.grammar->Accept(token);
}

void FakeExecutor::ApplyTables(const StepPlan& plan) {
  for (const SlotId id : plan.forgets) {
    Slot& slot = slots_[static_cast<size_t>(id)];
    slot.grammar.reset();
    slot.sampling.grammar.reset();
  }
  for (const SequenceStart& start : plan.starts) Start(start);
  for (const TableUpdate& update : plan.table_updates) {
    Slot& slot = slots_[static_cast<size_t>(update.slot)];
    if (!slot.live) Violate("a table update of a sequence that never started");
    const auto end = static_cast<size_t>(update.first_index + update.count);
    if (slot.table.size() < end) slot.table.resize(end, kNoBlock);
    for (int32_t i = 0; i < update.count; ++i) {
      slot.table[static_cast<size_t>(update.first_index + i)] =
          plan.table_blocks[static_cast<size_t>(update.offset + i)];
    }
  }
}

// Positions that a swap does not cover, and all swaps of a failed step, write garbage.
void FakeExecutor::RunCopies(const StepPlan& plan, bool failed) {
  const int32_t b = config_.block_size;
  const auto copy = [&](std::vector<uint64_t>& from, int64_t source, std::vector<uint64_t>& to, int64_t target,
                        int32_t tokens) {
    for (int32_t i = 0; i < b; ++i) {
      to[static_cast<size_t>(target * b + i)] =
          failed || i >= tokens ? kGarbage : from[static_cast<size_t>(source * b + i)];
    }
  };
  for (const SwapCopy& c : plan.swap_outs) copy(memory_, c.block, host_, c.host_block, c.tokens);
  for (const BlockCopy& c : plan.copies) {
    std::copy_n(memory_.begin() + int64_t{c.from} * b, c.tokens, memory_.begin() + int64_t{c.to} * b);
  }
  for (const SwapCopy& c : plan.swap_ins) copy(host_, c.host_block, memory_, c.block, c.tokens);
}

// False: an input token does not exist.
bool FakeExecutor::WriteItem(const StepPlan& plan, const StepItem& item, bool garbage) {
  bool exist = true;
  Slot& slot = slots_[static_cast<size_t>(item.slot)];
  uint64_t state =
      item.first_position == 0 ? FirstState(config_.seed, slot.adapter) : *Cell(slot, item.first_position - 1);
  for (int32_t i = 0; i < item.count; ++i) {
    const TokenId token =
        item.input == InputSource::kChained ? slot.last_token : plan.tokens[static_cast<size_t>(item.token_offset + i)];
    exist = exist && token >= 0 && token < config_.input_vocab_size;
    state = NextState(state, token);
    *Cell(slot, item.first_position + i) = garbage ? kGarbage + state : state;
  }
  if (!exist) Violate("an input token that does not exist");
  return exist;
}

// The prompt's last row has none: the next token is sampled.
void FakeExecutor::PromptLogprobs(const StepItem& item, int32_t index, StepResult* result) {
  const Slot& slot = slots_[static_cast<size_t>(item.slot)];
  const std::vector<TokenId>& prompt = slot.sampling.prompt;
  const int32_t end = std::min(item.first_position + item.count, static_cast<int32_t>(prompt.size()) - 1);
  if (item.first_position >= end) return;
  auto& rows = result->prompt_logprobs.emplace_back();
  rows.item = index;
  uint64_t attended = 0;
  for (int32_t p = 0; p < end; ++p) {
    attended += *Cell(slot, p);
    if (p < item.first_position) continue;
    rows.per_token.push_back(LogprobsOf(prompt[static_cast<size_t>(p) + 1],
                                        Sample(config_, attended, slot.choice, p + 1),
                                        std::max(slot.sampling.params.logprobs, 0), config_.vocab_size));
  }
}

void FakeExecutor::RunItem(const StepPlan& plan, size_t index, StepResult* result) {
  const StepItem& item = plan.items[index];
  Slot& slot = slots_[static_cast<size_t>(item.slot)];
  ItemResult& out = result->items.emplace_back();
  out.accepted = item.count;
  out.token_offset = static_cast<int32_t>(result->tokens.size());
  if (lost_[index]) {
    out.status = ItemStatus::kFailed;
    slot.last_token = 0;
    return;
  }
  if (item.count > 1 && item.draft_tokens == 0 && faults_.Uniform() < config_.reject_rate) {
    out.accepted = static_cast<int32_t>(faults_.UniformInt(1, item.count - 1));
    for (int32_t i = out.accepted; i < item.count; ++i) *Cell(slot, item.first_position + i) = kGarbage;
    slot.last_token = 0;  // items chained to it will be dropped
    return;
  }
  if (item.logit_rows == item.count && slot.sampling.prompt_logprobs) {
    PromptLogprobs(item, static_cast<int32_t>(index), result);
  }
  if (!item.sample) return;
  if (faults_.Uniform() < config_.item_error_rate) {
    out.status = ItemStatus::kBadLogits;
    slot.last_token = 0;
    return;
  }
  Verify(plan, item, result, &out);
}

// Samples the token at `position` into last_token, where `attended` sums the cells before it. False: the grammar allows
// no token.
bool FakeExecutor::SampleNext(Slot* slot, uint64_t attended, int32_t position) {
  slot->last_token = Sample(config_, attended, slot->choice, position);
  if (!config_.follows_specs) return true;
  SamplingSpec& spec = slot->sampling;
  std::vector<uint32_t> mask(static_cast<size_t>(config_.vocab_size + 31) / 32, ~0u);
  if (slot->grammar != nullptr && !slot->grammar->FillMask(mask)) return false;
  std::vector<TokenId> allowed, no_ends;
  for (TokenId t = 0; t < config_.vocab_size; ++t) {
    if ((mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1) == 0) continue;
    allowed.push_back(t);
    if (!std::binary_search(spec.ends.begin(), spec.ends.end(), t)) no_ends.push_back(t);
  }
  if (spec.unended_tokens > 0 && !no_ends.empty()) allowed = no_ends;
  if (allowed.empty()) return false;
  const uint64_t seed = spec.params.temperature > 0 ? spec.params.seed + 1 : 0;
  if (seed > 0) slot->last_token = Sample(config_, MixHash(attended, seed), slot->choice, position);
  if (!std::binary_search(allowed.begin(), allowed.end(), slot->last_token)) {
    slot->last_token = allowed[static_cast<size_t>(slot->last_token) % allowed.size()];
  }
  if (spec.unended_tokens > 0) --spec.unended_tokens;
  return slot->grammar == nullptr || slot->grammar->Accept(slot->last_token);
}

// Samples after the sure inputs, and continues while the sampled token equals the next draft.
void FakeExecutor::Verify(const StepPlan& plan, const StepItem& item, StepResult* result, ItemResult* out) {
  Slot& slot = slots_[static_cast<size_t>(item.slot)];
  const SamplingParams& params = slot.sampling.params;
  std::vector<std::vector<TokenLogprob>> logprobs;
  const int32_t end = item.first_position + item.count;
  int32_t length = end - item.draft_tokens;
  uint64_t attended = 0;
  for (int32_t p = 0; p < length; ++p) attended += *Cell(slot, p);
  for (;; attended += *Cell(slot, length), ++length) {
    if (!SampleNext(&slot, attended, length)) {
      out->status = ItemStatus::kBadGrammar;
      break;
    }
    result->tokens.push_back(slot.last_token);
    ++out->num_tokens;
    if (params.logprobs >= 0) {
      const TokenId best = config_.follows_specs ? Sample(config_, attended, slot.choice, length) : slot.last_token;
      logprobs.push_back(LogprobsOf(slot.last_token, best, params.logprobs, config_.vocab_size));
    }
    if (length == end) break;
    const auto draft = static_cast<size_t>(item.token_offset + length - item.first_position);
    if (plan.tokens[draft] != slot.last_token) break;
  }
  if (params.logprobs >= 0) {
    result->logprobs.push_back({static_cast<int32_t>(result->items.size()) - 1, std::move(logprobs)});
  }
  out->accepted = length - item.first_position;
  drafts_accepted_ += std::max(out->num_tokens - 1, 0);
  drafts_rejected_ += end - length;
  for (; length < end; ++length) *Cell(slot, length) = kGarbage;
}

void FakeExecutor::RunPlan(const StepPlan& plan, StepResult* result) {
  result->device_failed = config_.device_fails_at >= 0 && plan.step >= config_.device_fails_at;
  const bool failed = faults_.Uniform() < config_.step_error_rate || result->device_failed;
  RunCopies(plan, failed);
  ApplyTables(plan);
  // All items write before any item reads, as in every layer of a real forward pass; items that share blocks within the
  // step need this.
  lost_.clear();
  order_.clear();
  for (size_t i = 0; i < plan.items.size(); ++i) {
    lost_.push_back(!failed && config_.item_lost_rate > 0 && faults_.Uniform() < config_.item_lost_rate);
    order_.push_back(i);
  }
  // In order of position, because a cell depends on the one before it, which a later item may write.
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return plan.items[a].first_position < plan.items[b].first_position; });
  for (const size_t i : order_) {
    if (!WriteItem(plan, plan.items[i], failed || lost_[i])) lost_[i] = true;
  }
  if (failed) {
    result->status = Internal("injected executor error");
    for (const StepItem& item : plan.items) slots_[static_cast<size_t>(item.slot)].last_token = 0;
  } else {
    for (size_t i = 0; i < plan.items.size(); ++i) RunItem(plan, i, result);
  }
}

void FakeExecutor::Submit(const StepPlan& plan) {
  if (static_cast<int32_t>(pending_.size()) >= config_.max_in_flight)
    Violate("more steps in flight than max_in_flight");
  if (plan.items.empty()) Violate("an empty step");
  Pending& p = pending_.emplace_back();
  if (!spare_.empty()) {
    p.result = std::move(spare_.back());
    spare_.pop_back();
  }
  p.result.Clear();
  p.result.step = plan.step;
  p.result.status = CheckPlan(plan, limits_);
  if (p.result.status.ok()) {
    RunPlan(plan, &p.result);
  } else {
    Violate(p.result.status.message());
  }
  const TimeNs now = config_.clock != nullptr ? config_.clock->NowNs() : 0;
  p.result.start_ns = std::max(now, last_ready_ns_);
  const DurationNs took = config_.clock != nullptr ? config_.step_base_ns + config_.step_token_ns * plan.num_tokens : 0;
  p.ready_ns = p.result.end_ns = last_ready_ns_ = p.result.start_ns + took;
  ++steps_;
  if (wakeup_ && config_.clock == nullptr) wakeup_();
}

bool FakeExecutor::Poll(StepResult* result) {
  if (pending_.empty()) return false;
  if (config_.clock != nullptr && config_.clock->NowNs() < pending_.front().ready_ns) return false;
  std::swap(*result, pending_.front().result);
  spare_.push_back(std::move(pending_.front().result));
  pending_.pop_front();
  return true;
}

TimeNs FakeExecutor::NextReadyNs() const {
  return pending_.empty() ? kNever : pending_.front().ready_ns;
}

void FakeExecutor::ReadKvBlock(BlockId block, std::byte* to) const {
  std::memcpy(to, memory_.data() + static_cast<size_t>(block) * static_cast<size_t>(config_.block_size),
              static_cast<size_t>(kv_block_bytes()));
}

void FakeExecutor::WriteHostBlock(BlockId host_block, const std::byte* from) {
  std::memcpy(host_.data() + static_cast<size_t>(host_block) * static_cast<size_t>(config_.block_size), from,
              static_cast<size_t>(kv_block_bytes()));
}

NullExecutor::NullExecutor(int32_t max_in_flight, bool can_chain, TokenId token, bool short_form)
    : traits_{.max_in_flight = max_in_flight, .can_chain = can_chain, .has_tokens = !short_form, .name = "null"},
      token_(token),
      ring_(static_cast<size_t>(max_in_flight)) {}

void NullExecutor::Submit(const StepPlan& plan) {
  TACTUS_CHECK(count_ < ring_.size());
  ring_[(head_ + count_++) % ring_.size()] = &plan;
}

bool NullExecutor::Poll(StepResult* result) {
  if (count_ == 0) return false;
  const StepPlan& plan = *ring_[head_];
  head_ = head_ + 1 == ring_.size() ? 0 : head_ + 1;
  --count_;
  result->step = plan.step;
  result->status = Status();
  result->items.clear();
  result->tokens.clear();
  result->as_planned = !traits_.has_tokens;
  if (result->as_planned) return true;
  for (const StepItem& item : plan.items) {
    result->items.push_back(
        {ItemStatus::kOk, item.count, static_cast<int32_t>(result->tokens.size()), item.sample ? 1 : 0});
    if (item.sample) result->tokens.push_back(token_);
  }
  return true;
}

}  // namespace tactus
