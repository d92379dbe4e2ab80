#include "compute/exec/step_runner.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>

#include "base/check.h"

namespace tactus::compute {

void StepRunner::Free::operator()(void* p) const {
  std::free(p);
}

StepRunner::StepRunner(const ModelConfig& config, CpuWeights weights, const CpuExecutorOptions& options)
    : config_(config),
      weights_(std::move(weights)),
      options_(options),
      blocks_per_slot_((options.max_model_len + options.block_size - 1) / options.block_size),
      limits_{.num_blocks = options.num_blocks,
              .swap_blocks = options.swap_blocks,
              .block_size = options.block_size,
              .blocks_per_slot = blocks_per_slot_,
              .max_slots = options.max_slots,
              .max_step_tokens = options.max_step_tokens,
              .max_step_items = options.max_step_items,
              .max_draft_tokens = kMaxDraftTokens},
      pool_(options.threads, *options.clock),
      prefix_groups_(options.block_size, options.max_step_items) {}

Result<std::unique_ptr<StepRunner>> StepRunner::Create(const ModelConfig& config, CpuWeights weights,
                                                       const CpuExecutorOptions& given) {
  CpuExecutorOptions options = given;
  TACTUS_CHECK_MSG(options.clock != nullptr, "an executor needs a clock");
  if (options.threads <= 0) options.threads = UsableCores();
  if (options.ops == nullptr) options.ops = SelectOps();
  if (options.ops == nullptr) return InvalidArgument("no kernel set of that name runs on this machine", "kernels");
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"num_blocks", options.num_blocks},
                                    {"block_size", options.block_size},
                                    {"max_slots", options.max_slots},
                                    {"max_step_tokens", options.max_step_tokens},
                                    {"max_step_items", options.max_step_items},
                                    {"max_model_len", options.max_model_len},
                                    {"max_in_flight", options.max_in_flight}}) {
    if (value < 1)
      return InvalidArgument(std::string(name) + " = " + std::to_string(value) + ", but at least 1 is needed");
  }
  if (static_cast<int64_t>(weights.layers.size()) != config.num_layers()) {
    return InvalidArgument("weights of " + std::to_string(weights.layers.size()) + " layers for a configuration of " +
                           std::to_string(config.num_layers()));
  }
  std::unique_ptr<StepRunner> r(new StepRunner(config, std::move(weights), options));
  DecoderOptions decoder;
  decoder.ops = options.ops;
  decoder.max_tokens = options.max_step_tokens;
  decoder.max_model_len = options.max_model_len;
  decoder.max_logit_rows = DecoderLogitRows(config, std::min<int64_t>(options.max_step_items, options.max_step_tokens));
  decoder.threads = options.threads;
  TACTUS_ASSIGN_OR_RETURN(r->decoder_, Decoder::Create(r->config_, r->weights_, decoder));
  TACTUS_ASSIGN_OR_RETURN(r->kv_,
                          KvMemory::Create(r->config_, options.kv_dtype, options.num_blocks, options.block_size));
  if (options.swap_blocks > 0) {
    TACTUS_ASSIGN_OR_RETURN(r->swap_, KvMemory::Create(r->config_, options.kv_dtype, options.swap_blocks,
                                                       options.block_size, "swap-space", false));
  }
  const auto entries = static_cast<size_t>(options.max_slots) * static_cast<size_t>(r->blocks_per_slot_);
  r->tables_.reset(static_cast<BlockId*>(std::calloc(entries, sizeof(BlockId))));
  if (r->tables_ == nullptr) {
    return Status(StatusCode::kResourceExhausted,
                  "cannot allocate block tables of " + std::to_string(entries) + " entries: lower --max-num-seqs",
                  "max-num-seqs");
  }
  const auto tokens = static_cast<size_t>(options.max_step_tokens);
  r->slots_.resize(static_cast<size_t>(options.max_slots));
  r->ids_.resize(tokens);
  r->positions_.resize(tokens);
  r->kv_slots_.resize(tokens);
  r->logit_rows_.reserve(tokens);
  r->rows_.reserve(tokens);
  r->runs_.reserve(tokens + 1);
  r->attention_items_.reserve(static_cast<size_t>(options.max_step_items));
  r->sequences_.reserve(static_cast<size_t>(options.max_step_items));
  for (int32_t t = 0; t < options.threads; ++t) r->samplers_.emplace_back(config.vocab_size);
  return r;
}

void StepRunner::Run(const StepPlan& plan, StepResult* result) {
  result->Clear();
  result->step = plan.step;
  result->status = CheckPlan(plan, limits_);
  if (!result->status.ok()) return;
  try {
    Apply(plan);
    FillBatch(plan, result);
    if (options_.cascade_attention) FindPrefixGroups();
    CollectRows(plan, result);
    DecoderBatch batch;
    for (const StepItem& item : plan.items) batch.tokens += item.count;
    batch.ids = ids_.data();
    batch.positions = positions_.data();
    batch.kv_slots = kv_slots_.data();
    batch.items = attention_items_;
    batch.logit_rows = logit_rows_;
    if (batch.tokens > 0) decoder_->Forward(pool_, batch, kv_->layers());
    SampleRows(plan, *result);
    Commit(plan, result);
  } catch (const std::bad_alloc&) {
    result->status = Status(StatusCode::kResourceExhausted, "out of memory in step " + std::to_string(plan.step));
  } catch (const std::exception& e) {
    result->status = Internal("step " + std::to_string(plan.step) + ": " + e.what());
  }
}

void StepRunner::Apply(const StepPlan& plan) {
  for (const SlotId s : plan.forgets) slots_[static_cast<size_t>(s)].history.ForgetGrammar();
  for (const SequenceStart& s : plan.starts) {
    Slot& slot = slots_[static_cast<size_t>(s.slot)];
    slot.history.Start(s.sampling, s.choice, config_.vocab_size);
    slot.last_token = 0;
  }
  for (const TableUpdate& u : plan.table_updates) {
    std::copy_n(plan.table_blocks.begin() + u.offset, u.count, Table(u.slot) + u.first_index);
  }
  RunCopies(plan);
}

// In the contract's order. On one thread: a copy already runs at about memory bandwidth.
void StepRunner::RunCopies(const StepPlan& plan) {
  for (const SwapCopy& c : plan.swap_outs) kv_->CopyBlockTo(swap_.get(), c.block, c.host_block);
  for (const BlockCopy& c : plan.copies) kv_->CopyBlock(c.from, c.to);
  for (const SwapCopy& c : plan.swap_ins) swap_->CopyBlockTo(kv_.get(), c.host_block, c.block);
}

void StepRunner::FillBatch(const StepPlan& plan, StepResult* result) {
  attention_items_.clear();
  result->items.resize(plan.items.size());
  size_t t = 0;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const StepItem& item = plan.items[i];
    result->items[i] = ItemResult{};
    result->items[i].accepted = item.count;
    const BlockId* table = Table(item.slot);
    attention_items_.push_back({.first_token = static_cast<int32_t>(t),
                                .first_position = item.first_position,
                                .count = item.count,
                                .block_table = table});
    for (int32_t j = 0; j < item.count; ++j, ++t) {
      TokenId id = item.input == InputSource::kChained ? slots_[static_cast<size_t>(item.slot)].last_token
                                                       : plan.tokens[static_cast<size_t>(item.token_offset + j)];
      if (id < 0 || id >= config_.vocab_size) {
        result->items[i].status = ItemStatus::kFailed;
        id = 0;
      }
      const int32_t position = item.first_position + j;
      ids_[t] = id;
      positions_[t] = position;
      kv_slots_[t] =
          int64_t{table[position / options_.block_size]} * options_.block_size + position % options_.block_size;
    }
  }
}

// Groups decodes alone: a chunk reads K and V once for all of its tokens anyway.
void StepRunner::FindPrefixGroups() {
  sequences_.clear();
  for (const AttentionItem& item : attention_items_) {
    sequences_.push_back({.blocks = item.block_table, .tokens = item.count == 1 ? item.first_position + 1 : 0});
  }
  if (prefix_groups_.Find(sequences_) == 0) return;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    attention_items_[i].prefix_group = sequences_[i].group;
    attention_items_[i].prefix_tokens = sequences_[i].shared_tokens;
  }
}

// Collects the rows that get logits, and where their logprobs go.
void StepRunner::CollectRows(const StepPlan& plan, StepResult* result) {
  const auto vocab = static_cast<TokenId>(config_.vocab_size);
  logit_rows_.clear();
  rows_.clear();
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const StepItem& item = plan.items[i];
    const SamplingSpec& spec = slots_[static_cast<size_t>(item.slot)].history.spec();
    const int32_t end = attention_items_[i].first_token + item.count;
    for (int32_t row = end - item.logit_rows; row < end; ++row) {
      Row r;
      r.item = static_cast<int32_t>(i);
      r.position = positions_[static_cast<size_t>(row)];
      r.sample = item.sample && row >= end - 1 - item.draft_tokens;
      if (r.sample && row + 1 < end) r.draft = ids_[static_cast<size_t>(row) + 1];
      if (!r.sample && spec.prompt_logprobs && item.logit_rows == item.count &&
          r.position + 1 < static_cast<int64_t>(spec.prompt.size())) {
        r.prompt_next = std::clamp(spec.prompt[static_cast<size_t>(r.position) + 1], 0, vocab - 1);
      }
      logit_rows_.push_back(row);
      rows_.push_back(r);
    }
    if (item.sample && spec.params.logprobs >= 0) {
      result->logprobs.push_back({static_cast<int32_t>(i),
                                  std::vector<std::vector<TokenLogprob>>(1 + static_cast<size_t>(item.draft_tokens))});
    }
    const auto wanted =
        std::count_if(rows_.end() - item.logit_rows, rows_.end(), [](const Row& r) { return r.prompt_next >= 0; });
    if (wanted > 0) {
      result->prompt_logprobs.push_back(
          {static_cast<int32_t>(i), std::vector<std::vector<TokenLogprob>>(static_cast<size_t>(wanted))});
    }
  }
  // Only from here on do the result's vectors keep their addresses.
  size_t sampled = 0, nth = 0, prompt = 0, entry = 0;
  for (Row& r : rows_) {
    if (r.prompt_next >= 0) {
      if (result->prompt_logprobs[prompt].item != r.item) ++prompt, entry = 0;
      r.logprobs = &result->prompt_logprobs[prompt].per_token[entry++];
    } else if (r.sample && sampled < result->logprobs.size() && result->logprobs[sampled].item == r.item) {
      auto& per_token = result->logprobs[sampled].per_token;
      r.logprobs = &per_token[nth++];
      if (nth == per_token.size()) ++sampled, nth = 0;
    }
  }
}

// Sampling rows of one item run in sequence: a row's token decides whether the next row counts, and changes what the
// next row is sampled with (penalties, the grammar). All other rows run in parallel.
void StepRunner::FindRuns(int64_t first, int64_t count) {
  runs_.clear();
  for (int64_t i = first; i < first + count; ++i) {
    const Row& r = rows_[static_cast<size_t>(i)];
    const bool follows = i > first && r.sample && rows_[static_cast<size_t>(i) - 1].sample &&
                         rows_[static_cast<size_t>(i) - 1].item == r.item;
    if (!follows) runs_.push_back(i);
  }
  runs_.push_back(first + count);
}

void StepRunner::SampleRows(const StepPlan& plan, const StepResult& result) {
  const auto rows = static_cast<int64_t>(rows_.size());
  const int64_t vocab = config_.vocab_size;
  for (int64_t first = 0; first < rows; first += decoder_->max_logit_rows()) {
    const int64_t count = std::min(rows - first, decoder_->max_logit_rows());
    float* logits = decoder_->Logits(pool_, first, count);
    if (observer_) {
      for (int64_t i = 0; i < count; ++i) {
        const Row& r = rows_[static_cast<size_t>(first + i)];
        observer_(r.item, r.position, {logits + i * vocab, static_cast<size_t>(vocab)});
      }
    }
    FindRuns(first, count);
    pool_.ParallelFor(static_cast<int64_t>(runs_.size()) - 1, [&](int64_t run, int32_t thread) {
      for (int64_t i = runs_[static_cast<size_t>(run)]; i < runs_[static_cast<size_t>(run) + 1]; ++i) {
        Row& r = rows_[static_cast<size_t>(i)];
        if (result.items[static_cast<size_t>(r.item)].status != ItemStatus::kOk) continue;
        const Row* before = i > 0 && rows_[static_cast<size_t>(i) - 1].item == r.item ? &r - 1 : nullptr;
        SampleRow(&r, before, {logits + (i - first) * vocab, static_cast<size_t>(vocab)},
                  &samplers_[static_cast<size_t>(thread)],
                  &slots_[static_cast<size_t>(plan.items[static_cast<size_t>(r.item)].slot)].history);
      }
    });
  }
}

// `before`: the item's previous row; null for its first row with logits.
void StepRunner::SampleRow(Row* row, const Row* before, std::span<float> logits, Sampler* sampler,
                           SequenceHistory* history) {
  Row& r = *row;
  try {
    if (r.prompt_next >= 0) {
      const int32_t best = std::max(history->spec().params.logprobs, 0);
      if (!sampler->Logprobs(logits, r.prompt_next, best, r.logprobs)) r.sampled.status = ItemStatus::kBadLogits;
    } else if (r.sample) {
      if (before != nullptr && before->sample && before->sampled.token != before->draft) return;
      r.sampled = sampler->Sample(*history, r.position + 1, logits, r.logprobs);
      if (r.sampled.status == ItemStatus::kOk && !history->Append(r.sampled.token)) {
        r.sampled.status = ItemStatus::kBadGrammar;
      }
    }
  } catch (const std::bad_alloc&) {
    r.sampled.status = ItemStatus::kFailed;  // the exception must not cross the pool's threads
  }
}

void StepRunner::Commit(const StepPlan& plan, StepResult* result) {
  for (const Row& r : rows_) {
    ItemResult& item = result->items[static_cast<size_t>(r.item)];
    if (item.status == ItemStatus::kOk) item.status = r.sampled.status;
    if (!r.sample || r.sampled.token < 0 || item.status != ItemStatus::kOk) continue;
    if (item.num_tokens++ == 0) {
      item.token_offset = static_cast<int32_t>(result->tokens.size());
      item.accepted -= plan.items[static_cast<size_t>(r.item)].draft_tokens;
    } else {
      ++item.accepted;
    }
    result->tokens.push_back(r.sampled.token);
    slots_[static_cast<size_t>(plan.items[static_cast<size_t>(r.item)].slot)].last_token = r.sampled.token;
  }
  for (StepResult::TokenLogprobs& logprobs : result->logprobs) {
    logprobs.per_token.resize(static_cast<size_t>(result->items[static_cast<size_t>(logprobs.item)].num_tokens));
  }
}

}  // namespace tactus::compute
