#include "compute/cuda/step_launcher.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace tactus::compute::cuda {
namespace {

constexpr int64_t kMostLogitBytes = int64_t{512} << 20;  // of one call of Decoder::Logits

int64_t LogitRows(const ModelConfig& config, const ExecutorSize& size) {
  const int64_t most = std::max<int64_t>(1, kMostLogitBytes / (4 * config.vocab_size));
  return std::min({most, size.max_step_tokens, int64_t{size.max_step_items}});
}

Status CheckSize(const CudaExecutorOptions& options) {
  const ExecutorSize& size = options.size;
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"num_blocks", size.num_blocks},
                                    {"block_size", size.block_size},
                                    {"max_slots", size.max_slots},
                                    {"max_step_tokens", size.max_step_tokens},
                                    {"max_step_items", size.max_step_items},
                                    {"max_model_len", size.max_model_len},
                                    {"max_in_flight", options.max_in_flight}}) {
    if (value < 1)
      return InvalidArgument(std::string(name) + " = " + std::to_string(value) + ", but at least 1 is needed");
  }
  const int64_t entries = size.max_slots * ((size.max_model_len + size.block_size - 1) / size.block_size);
  if (entries > INT32_MAX) {  // AttentionRow::table
    return InvalidArgument("block tables of " + std::to_string(size.max_slots) + " sequences need " +
                           std::to_string(entries) + " entries, and at most " + std::to_string(INT32_MAX) +
                           " are possible: lower --max-queue, --max-num-seqs or --max-model-len");
  }
  return Status();
}

}  // namespace

DecoderOptions DecoderOptionsOf(const ModelConfig& config, const CudaExecutorOptions& options) {
  return {.type = options.type,
          .max_tokens = options.size.max_step_tokens,
          .max_model_len = options.size.max_model_len,
          .max_logit_rows = LogitRows(config, options.size),
          .max_items = options.size.max_step_items,
          .multiprocessors = options.multiprocessors,
          .batch_invariant = options.batch_invariant,
          .fp8_tokens = options.fp8_tokens,
          .attention = options.attention};
}

StepLauncher::StepLauncher(const ModelConfig& config, DeviceWeights weights, const CudaExecutorOptions& options)
    : config_(config),
      weights_(std::move(weights)),
      options_(options),
      blocks_per_slot_((options.size.max_model_len + options.size.block_size - 1) / options.size.block_size),
      partial_slots_(Decoder::PartialSlots(config_, DecoderOptionsOf(config_, options_))),
      limits_{.num_blocks = options.size.num_blocks,
              .swap_blocks = options.size.swap_blocks,
              .block_size = options.size.block_size,
              .blocks_per_slot = blocks_per_slot_,
              .max_slots = options.size.max_slots,
              .max_step_tokens = options.size.max_step_tokens,
              .max_step_items = options.size.max_step_items,
              .max_draft_tokens = kMaxDraftTokens},
      split_(options.size.block_size, options.overlap ? options.size.num_blocks : 0),
      least_split_tokens_(options.size.least_split_tokens),
      prefix_groups_(options.size.block_size, options.size.max_step_items) {}

Result<std::unique_ptr<StepLauncher>> StepLauncher::Create(const ModelConfig& config, DeviceWeights weights,
                                                           const CudaExecutorOptions& options) {
  TACTUS_CHECK_MSG(options.clock != nullptr, "an executor needs a clock");
  TACTUS_RETURN_IF_ERROR(CheckSize(options));
  if (options.attention == AttentionBackend::kFlashInfer) {
    TACTUS_CHECK_MSG(!options.overlap, "FlashInfer's attention runs steps in one part");
    TACTUS_RETURN_IF_ERROR(
        CheckFlashInferSize(options.size.max_step_items, options.size.max_model_len, options.size.block_size));
  }
  if (weights.layers.size() != config.layers.size()) {
    return InvalidArgument("weights of " + std::to_string(weights.layers.size()) + " layers for a configuration of " +
                           std::to_string(config.num_layers()));
  }
  std::unique_ptr<StepLauncher> r(new StepLauncher(config, std::move(weights), options));
  const ExecutorSize& size = options.size;
  TACTUS_ASSIGN_OR_RETURN(r->stream_, Stream::Create());
  TACTUS_ASSIGN_OR_RETURN(r->copies_, Stream::Create());
  TACTUS_ASSIGN_OR_RETURN(r->swaps_, Stream::Create());
  TACTUS_ASSIGN_OR_RETURN(r->earlier_, Event::Create());
  TACTUS_ASSIGN_OR_RETURN(r->swapped_out_, Event::Create());
  TACTUS_ASSIGN_OR_RETURN(r->gemm_, Gemm::Create(options.batch_invariant));
  const DecoderOptions decoder = DecoderOptionsOf(r->config_, options);
  TACTUS_ASSIGN_OR_RETURN(r->decoder_, Decoder::Create(r->config_, r->weights_, *r->gemm_, decoder));
  if (options.overlap) {
    TACTUS_ASSIGN_OR_RETURN(
        r->overlap_, DecoderOverlap::Create(r->config_, r->weights_, *r->decoder_, decoder, options.attention_share,
                                            size.block_size, options.batch_invariant));
  }
  TACTUS_ASSIGN_OR_RETURN(
      r->kv_, DeviceKv::Create(r->config_, options.kv_type, size.num_blocks, size.swap_blocks, size.block_size));
  const int64_t entries = size.max_slots * r->blocks_per_slot_;
  TACTUS_ASSIGN_OR_RETURN(r->tables_, DeviceMemory::Allocate(entries * 4, "block tables"));
  TACTUS_ASSIGN_OR_RETURN(r->last_tokens_, DeviceMemory::Allocate(int64_t{size.max_slots} * 4, "last tokens"));
  TACTUS_ASSIGN_OR_RETURN(
      r->scratch_,
      DeviceMemory::Allocate(SampleScratchBytes(decoder.max_logit_rows, config.vocab_size), "scratch of sampling"));
  r->stream_->Fill(r->tables_.as<>(), 0, entries * 4);
  r->stream_->Fill(r->last_tokens_.as<>(), 0, int64_t{size.max_slots} * 4);
  r->stream_->Synchronize();
  TACTUS_RETURN_IF_ERROR(DeviceStatus());
  r->host_tables_.resize(static_cast<size_t>(entries));
  r->leaving_.resize(static_cast<size_t>(size.num_blocks));
  r->slots_.resize(static_cast<size_t>(size.max_slots));
  return r;
}

std::unique_ptr<LaunchedStep> StepLauncher::NewStep() {
  auto step = std::make_unique<LaunchedStep>();
  const size_t shapes = decoder_->shapes().size();
  const bool flashinfer = options_.attention == AttentionBackend::kFlashInfer;
  step->all_plans.resize(flashinfer ? 0 : shapes);
  step->last_plans.resize(flashinfer ? 0 : shapes);
  step->all_flashinfer.resize(flashinfer ? shapes : 0);
  step->last_flashinfer.resize(flashinfer ? shapes : 0);
  return step;
}

void StepLauncher::Launch(const StepPlan& plan, LaunchedStep* step) {
  step->plan = &plan;
  step->launched = false;
  step->result.Clear();
  step->result.step = plan.step;
  step->result.status = CheckPlan(plan, limits_);
  if (step->result.status.ok()) step->result.status = DeviceStatus();
  if (step->result.status.ok()) {
    step->result.status = CatchIn(plan.step, [&] {
      Apply(plan);
      FillItems(plan, step);
      if (options_.cascade_attention && options_.attention == AttentionBackend::kTactus) FindPrefixGroups();
      CollectRows(plan, step);
      PlanStep(step);
      has_graph_ = PadToGraph(plan, step);
      return Enqueue(plan, step);
    });
    step->launched = step->result.status.ok();
    // Finish does not wait for a step that failed, but a part of it may be enqueued and read the step's pinned memory.
    if (!step->launched) {
      stream_->Synchronize();
      tables_differ_ = true;
    }
  }
  std::lock_guard<std::mutex> lock(mutex_);
  ++launched_steps_;
}

void StepLauncher::WaitForEarlier() {
  std::unique_lock<std::mutex> lock(mutex_);
  finished_.wait(lock, [this] { return finished_steps_ == launched_steps_; });
}

// The host's part of what the plan changes before its items run.
void StepLauncher::Apply(const StepPlan& plan) {
  const auto slot_of = [&](SlotId s) -> Slot& { return slots_[static_cast<size_t>(s)]; };
  const bool grammars =
      std::any_of(plan.forgets.begin(), plan.forgets.end(), [&](SlotId s) { return slot_of(s).grammar; }) ||
      std::any_of(plan.starts.begin(), plan.starts.end(),
                  [&](const SequenceStart& s) { return slot_of(s.slot).grammar || s.sampling.grammar != nullptr; });
  if (grammars) WaitForEarlier();
  for (const SlotId s : plan.forgets) {
    if (slot_of(s).grammar) slot_of(s).history.ForgetGrammar();
    slot_of(s).grammar = false;
  }
  for (const SequenceStart& start : plan.starts) {
    Slot& slot = slot_of(start.slot);
    const SamplingSpec& spec = start.sampling;
    slot.spec = {.params = spec.params,
                 .prompt_logprobs = spec.prompt_logprobs,
                 .max_tokens = spec.max_tokens,
                 .unended_tokens = spec.unended_tokens,
                 .ends = spec.ends};
    if (spec.prompt_logprobs) slot.spec.prompt = spec.prompt;
    slot.choice = start.choice;
    slot.first_row = -1;
    if (slot.counts >= 0) free_counts_.push_back(slot.counts);
    slot.counts = -1;
    slot.grammar = spec.grammar != nullptr;
    if (!slot.grammar) continue;
    SamplingSpec rule{.max_tokens = spec.max_tokens, .output = spec.output, .grammar = spec.grammar};
    slot.history.Start(rule, start.choice, config_.vocab_size);
    slot.output = spec.output;
  }
  table_entries_.clear();
  table_values_.clear();
  for (const TableUpdate& u : plan.table_updates) {
    const int64_t first = u.slot * blocks_per_slot_ + u.first_index;
    for (int32_t i = 0; i < u.count; ++i) {
      host_tables_[static_cast<size_t>(first + i)] = plan.table_blocks[static_cast<size_t>(u.offset + i)];
    }
  }
  // An entry may be updated twice in a plan; the last value counts, and each is sent once.
  for (const TableUpdate& u : plan.table_updates) {
    const int64_t first = u.slot * blocks_per_slot_ + u.first_index;
    for (int32_t i = 0; i < u.count; ++i) table_entries_.push_back(first + i);
  }
  std::sort(table_entries_.begin(), table_entries_.end());
  table_entries_.erase(std::unique(table_entries_.begin(), table_entries_.end()), table_entries_.end());
  for (const int64_t at : table_entries_) table_values_.push_back(host_tables_[static_cast<size_t>(at)]);
}

void StepLauncher::FillItems(const StepPlan& plan, LaunchedStep* step) {
  StepResult& result = step->result;
  ids_.clear();
  positions_.clear();
  kv_slots_.clear();
  all_rows_.clear();
  result.items.resize(plan.items.size());
  const int32_t block_size = options_.size.block_size;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const StepItem& item = plan.items[i];
    result.items[i] = ItemResult{};
    result.items[i].accepted = item.count;
    const int64_t table = item.slot * blocks_per_slot_;
    all_rows_.push_back({.first_token = static_cast<int32_t>(ids_.size()),
                         .first_position = item.first_position,
                         .count = item.count,
                         .table = static_cast<int32_t>(table)});
    for (int32_t j = 0; j < item.count; ++j) {
      const bool chained = item.input == InputSource::kChained;
      int32_t id = chained ? -1 - item.slot : plan.tokens[static_cast<size_t>(item.token_offset + j)];
      if (!chained && (id < 0 || id >= config_.vocab_size)) {
        result.items[i].status = ItemStatus::kFailed;
        id = 0;
      }
      const int32_t position = item.first_position + j;
      ids_.push_back(id);
      positions_.push_back(position);
      const BlockId block = host_tables_[static_cast<size_t>(table + position / block_size)];
      kv_slots_.push_back(int64_t{block} * block_size + position % block_size);
    }
  }
}

// The rows that get logits: how each is sampled, and where its logprobs go.
void StepLauncher::CollectRows(const StepPlan& plan, LaunchedStep* step) {
  const auto vocab = static_cast<TokenId>(config_.vocab_size);
  logit_rows_.clear();
  last_positions_.clear();
  last_rows_.clear();
  sample_rows_.clear();
  bias_tokens_.clear();
  bias_values_.clear();
  ends_.clear();
  drafts_.clear();
  step->rows.clear();
  step->logprobs = 0;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const StepItem& item = plan.items[i];
    Slot& slot = slots_[static_cast<size_t>(item.slot)];
    const SamplingParams& params = slot.spec.params;
    const AttentionRow& all = all_rows_[i];
    if (item.logit_rows > 0) {
      AttentionRow last = all;
      last.first_token = static_cast<int32_t>(logit_rows_.size());
      last.first_position = all.first_position + all.count - item.logit_rows;
      last.count = item.logit_rows;
      last_rows_.push_back(last);
    }
    const int32_t end = all.first_token + item.count, first_sampled = end - 1 - item.draft_tokens;
    const auto first_draft = static_cast<int32_t>(drafts_.size());
    for (int32_t row = first_sampled + 1; row < end; ++row) drafts_.push_back(ids_[static_cast<size_t>(row)]);
    for (int32_t row = end - item.logit_rows; row < end; ++row) {
      const int32_t position = positions_[static_cast<size_t>(row)];
      LaunchedStep::Row r{.item = static_cast<int32_t>(i), .position = position};
      r.sample = item.sample && row >= first_sampled;
      if (r.sample && row + 1 < end) r.draft = ids_[static_cast<size_t>(row) + 1];
      if (!r.sample && slot.spec.prompt_logprobs && item.logit_rows == item.count &&
          position + 1 < static_cast<int64_t>(slot.spec.prompt.size())) {
        r.prompt_next = std::clamp(slot.spec.prompt[static_cast<size_t>(position) + 1], 0, vocab - 1);
      }
      SampleRow s{
          .slot = r.sample ? item.slot : -1, .position = position + 1, .choice = slot.choice, .seed = params.seed};
      if (r.sample) {
        s.temperature = params.temperature;
        s.top_p = params.top_p;
        s.min_p = params.min_p;
        s.top_k = params.top_k;
        s.repetition = params.repetition_penalty;
        s.presence = params.presence_penalty;
        s.frequency = params.frequency_penalty;
        s.counts = slot.counts;
        s.bias = static_cast<int32_t>(bias_tokens_.size());
        for (const auto& [token, bias] : params.logit_bias) {
          bias_tokens_.push_back(token);
          bias_values_.push_back(bias);
        }
        s.num_biases = static_cast<int32_t>(bias_tokens_.size()) - s.bias;
        s.ends = static_cast<int32_t>(ends_.size());
        if (slot.first_row < 0) slot.first_row = position;
        if (position - slot.first_row < slot.spec.unended_tokens)
          ends_.insert(ends_.end(), slot.spec.ends.begin(), slot.spec.ends.end());
        s.num_ends = static_cast<int32_t>(ends_.size()) - s.ends;
        r.logprobs = params.logprobs;
        r.grammar = slot.grammar;
        s.draft = first_draft;
        s.num_drafts = row - first_sampled;
      } else if (r.prompt_next >= 0) {
        r.logprobs = std::max(params.logprobs, 0);
      }
      if (r.logprobs >= 0) {
        r.first_logprob = static_cast<int32_t>(step->logprobs);
        step->logprobs += 1 + r.logprobs;
      }
      s.logprobs = r.logprobs;
      s.prompt_next = r.prompt_next;
      s.first_logprob = r.first_logprob;
      logit_rows_.push_back(row);
      last_positions_.push_back(position);
      step->rows.push_back(r);
      sample_rows_.push_back(s);
    }
  }
}

// Groups decodes alone: a chunk reads K and V once for all of its tokens anyway.
void StepLauncher::FindPrefixGroups() {
  sequences_.clear();
  for (const AttentionRow& row : all_rows_) {
    sequences_.push_back(
        {.blocks = host_tables_.data() + row.table, .tokens = row.count == 1 ? row.first_position + 1 : 0});
  }
  if (prefix_groups_.Find(sequences_) == 0) return;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    all_rows_[i].prefix_group = sequences_[i].group;
    all_rows_[i].prefix_tokens = sequences_[i].shared_tokens;
  }
}

void StepLauncher::PlanStep(LaunchedStep* step) {
  if (options_.attention == AttentionBackend::kFlashInfer) {
    splits_ = false;
    PlanForFlashInfer(all_rows_, step->all_flashinfer);
    PlanForFlashInfer(last_rows_, step->last_flashinfer);
    return;
  }
  splits_ =
      overlap_ != nullptr && std::ssize(ids_) >= least_split_tokens_ && split_.Cut(all_rows_, last_rows_, host_tables_);
  if (splits_) split_.Plan(overlap_->shapes(), partial_slots_);
  PlanWhole(splits_ ? std::span<const AttentionRow>() : all_rows_, step->all_plans);
  PlanWhole(splits_ ? std::span<const AttentionRow>() : last_rows_, step->last_plans);
}

void StepLauncher::PlanWhole(std::span<const AttentionRow> rows, std::span<AttentionPlan> plans) const {
  const std::span<const AttentionShape> shapes = decoder_->shapes();
  for (size_t i = 0; i < shapes.size(); ++i) PlanAttention(rows, shapes[i], partial_slots_, &plans[i]);
}

void StepLauncher::PlanForFlashInfer(std::span<const AttentionRow> rows, std::span<FlashInferPlan> plans) const {
  const DecoderOptions options = DecoderOptionsOf(config_, options_);
  for (size_t i = 0; i < plans.size(); ++i) {
    const AttentionShape& shape = decoder_->shapes()[i];
    PlanFlashInfer(rows, host_tables_,
                   {.heads = shape.heads,
                    .kv_heads = shape.kv_heads,
                    .head_dim = shape.head_dim,
                    .block_size = options_.size.block_size,
                    .multiprocessors = shape.multiprocessors,
                    .batch_invariant = options_.batch_invariant,
                    .max_partials = Decoder::FlashInferPartials(config_, options, shape.heads)},
                   &plans[i]);
  }
}

// Pads a step of decodes to the next size that has a graph. Rows that are added have token 0 at position 0, store no K
// and V and attend to nothing: no other row depends on them. False: the step gets no graph.
bool StepLauncher::PadToGraph(const StepPlan& plan, LaunchedStep* step) {
  const bool decodes = std::all_of(plan.items.begin(), plan.items.end(),
                                   [](const StepItem& item) { return item.count == 1 && item.logit_rows == 1; });
  if (!options_.graphs || !decodes || splits_) return false;
  const int64_t most = std::min(options_.size.max_step_tokens, decoder_->max_logit_rows());
  const int64_t rows = StepGraphs::RowsFor(static_cast<int64_t>(plan.items.size()), most);
  if (rows == 0) return false;
  decodes_ = plan.items.size();
  const auto n = static_cast<size_t>(rows);
  ids_.resize(n, 0);
  positions_.resize(n, 0);
  last_positions_.resize(n, 0);
  kv_slots_.resize(n, -1);
  all_rows_.resize(n);
  last_rows_.resize(n);
  while (logit_rows_.size() < n) logit_rows_.push_back(static_cast<int32_t>(logit_rows_.size()));
  const std::span<const AttentionShape> shapes = decoder_->shapes();
  for (size_t i = 0; i < step->all_plans.size(); ++i) {
    PadPlan(shapes[i], rows, &step->all_plans[i]);
    PadPlan(shapes[i], rows, &step->last_plans[i]);
  }
  for (auto* plans : {&step->all_flashinfer, &step->last_flashinfer}) {
    for (FlashInferPlan& padded : *plans) PadFlashInferPlan(rows, &padded);
  }
  return true;
}

}  // namespace tactus::compute::cuda
