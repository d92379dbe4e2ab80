// Puts a step's work into the stream: one copy of its data, the forward pass, sampling, one copy of the results.
#include <algorithm>
#include <cstring>
#include <utility>

#include "compute/cuda/flashinfer_lists.h"
#include "compute/cuda/kernels/tables.h"
#include "compute/cuda/step_launcher.h"
#include "compute/cuda/step_units.h"

namespace tactus::compute::cuda {
namespace {

constexpr int64_t kFirstCountRows = 16;

}  // namespace

// Offsets of a step's arrays in its StepBuffer.
struct StepLauncher::Layout {
  int64_t ids, positions, kv_slots, all_rows, last_rows, last_positions, logit_rows;
  int64_t table_entries, table_values, copies;
  int64_t sample_rows, bias_tokens, bias_values, ends, drafts;
  PlacedUnits all_units, last_units;
  PlacedFlashInfer all_flashinfer, last_flashinfer;
  std::vector<int64_t> prompts, outputs;  // of plan.starts
};

Status StepLauncher::Enqueue(const StepPlan& plan, LaunchedStep* step) {
  AwaitSwapOuts();  // of a step that failed
  StepBuffer& b = step->inputs;
  b.Clear();
  copy_pairs_.clear();
  for (const BlockCopy& c : plan.copies) copy_pairs_.insert(copy_pairs_.end(), {c.from, c.to});
  const auto size = [](const auto& v) { return static_cast<int64_t>(v.size()); };
  // What the forward pass reads comes first: where it lies depends on nothing but KeyOf().
  Layout at;
  at.ids = b.Place<int32_t>(size(ids_));
  at.positions = b.Place<int32_t>(size(positions_));
  at.kv_slots = b.Place<int64_t>(size(kv_slots_));
  at.all_rows = b.Place<AttentionRow>(size(all_rows_));
  at.last_rows = b.Place<AttentionRow>(size(last_rows_));
  at.last_positions = b.Place<int32_t>(size(last_positions_));
  at.logit_rows = b.Place<int32_t>(size(logit_rows_));
  at.all_units.Place(b, step->all_plans);
  at.last_units.Place(b, step->last_plans);
  at.all_flashinfer.Place(b, step->all_flashinfer);
  at.last_flashinfer.Place(b, step->last_flashinfer);
  at.table_entries = b.Place<int64_t>(size(table_entries_));
  at.table_values = b.Place<int32_t>(size(table_values_));
  at.copies = b.Place<int32_t>(size(copy_pairs_));
  at.sample_rows = b.Place<SampleRow>(size(sample_rows_));
  at.bias_tokens = b.Place<int32_t>(size(bias_tokens_));
  at.bias_values = b.Place<float>(size(bias_values_));
  at.ends = b.Place<int32_t>(size(ends_));
  at.drafts = b.Place<int32_t>(size(drafts_));
  if (splits_) split_.Place(b);
  for (const SequenceStart& s : plan.starts) {
    const bool counts = s.sampling.params.NeedsHistory();
    at.prompts.push_back(b.Place<int32_t>(counts ? size(s.sampling.prompt) : 0));
    at.outputs.push_back(b.Place<int32_t>(counts ? size(s.sampling.output) : 0));
  }
  const std::byte* const before = inputs_.as<>();
  TACTUS_RETURN_IF_ERROR(b.Reserve(&inputs_));
  if (inputs_.as<>() != before) graphs_.Clear();
  TACTUS_RETURN_IF_ERROR(StartSequences(plan, *step, at));
  // StartSequences has chosen the rows of counts.
  for (size_t i = 0; i < sample_rows_.size(); ++i) {
    SampleRow& row = sample_rows_[i];
    if (row.slot >= 0) row.counts = slots_[static_cast<size_t>(row.slot)].counts;
  }
  const auto fill = [&](int64_t to, const auto& v) { b.Fill(to, std::span(v.data(), v.size())); };
  fill(at.ids, std::as_const(ids_));
  fill(at.positions, std::as_const(positions_));
  fill(at.kv_slots, std::as_const(kv_slots_));
  fill(at.all_rows, std::as_const(all_rows_));
  fill(at.last_rows, std::as_const(last_rows_));
  fill(at.last_positions, std::as_const(last_positions_));
  fill(at.logit_rows, std::as_const(logit_rows_));
  fill(at.table_entries, std::as_const(table_entries_));
  fill(at.table_values, std::as_const(table_values_));
  fill(at.copies, std::as_const(copy_pairs_));
  fill(at.bias_tokens, std::as_const(bias_tokens_));
  fill(at.bias_values, std::as_const(bias_values_));
  fill(at.ends, std::as_const(ends_));
  fill(at.drafts, std::as_const(drafts_));
  at.all_units.Fill(b, step->all_plans);
  at.last_units.Fill(b, step->last_plans);
  at.all_flashinfer.Fill(b, step->all_flashinfer);
  at.last_flashinfer.Fill(b, step->last_flashinfer);
  if (splits_) split_.Fill(b);

  // The masks of grammars need the tokens of the steps before this one, which the forward pass does not.
  int32_t masks = 0;
  for (size_t i = 0; i < sample_rows_.size(); ++i) {
    if (step->rows[i].grammar) sample_rows_[i].mask = masks++;
  }
  fill(at.sample_rows, std::as_const(sample_rows_));
  b.Send(*stream_);
  if (tables_differ_) {
    // The memory is not pinned, so the call has read it when it returns.
    stream_->CopyToDevice(tables_.as<>(), host_tables_.data(), static_cast<int64_t>(host_tables_.size()) * 4);
    tables_differ_ = false;
  }
  UpdateTables(*stream_, b.Device<int64_t>(at.table_entries), b.Device<int32_t>(at.table_values), size(table_entries_),
               tables_.as<int32_t>());
  Move(plan, at, b);

  for (size_t i = 0; i < plan.starts.size(); ++i) {
    const SequenceStart& s = plan.starts[i];
    const Slot& slot = slots_[static_cast<size_t>(s.slot)];
    if (slot.counts < 0) continue;
    const bool prompts = s.sampling.params.repetition_penalty != 1.0f;
    StartCounts(*stream_, counts_.as<uint32_t>(), slot.counts, config_.vocab_size, b.Device<int32_t>(at.prompts[i]),
                prompts ? size(s.sampling.prompt) : 0, b.Device<int32_t>(at.outputs[i]), size(s.sampling.output));
  }
  if (!ids_.empty()) TACTUS_RETURN_IF_ERROR(Forward(*step, at));
  if (masks > 0) {
    WaitForEarlier();
    TACTUS_RETURN_IF_ERROR(FillMasks(plan, step));
  }
  TACTUS_RETURN_IF_ERROR(PlaceResults(step));
  SampleRows(step, at);
  if (step->done == nullptr) {
    TACTUS_ASSIGN_OR_RETURN(step->done, Event::Create());
  }
  AwaitSwapOuts();  // the step's result says that they are done
  step->done->Record(*stream_);
  return DeviceStatus();
}

// Enqueues swaps and copies of blocks. Swap-outs run beside the step's items, unless something in the step writes the
// blocks or reads what they write.
void StepLauncher::Move(const StepPlan& plan, const Layout& at, const StepBuffer& b) {
  if (!plan.swap_outs.empty()) {
    earlier_->Record(*stream_);
    swaps_->Wait(*earlier_);
    for (const SwapCopy& c : plan.swap_outs) kv_->SwapOut(*swaps_, c.block, c.host_block);
    swapped_out_->Record(*swaps_);
    swapping_out_ = true;
    if (!plan.swap_ins.empty() || WritesSwappedOut(plan)) AwaitSwapOuts();
  }
  kv_->Copy(*stream_, b.Device<int32_t>(at.copies), plan.copies);
  for (const SwapCopy& c : plan.swap_ins) kv_->SwapIn(*stream_, c.host_block, c.block);
}

void StepLauncher::AwaitSwapOuts() {
  if (std::exchange(swapping_out_, false)) stream_->Wait(*swapped_out_);
}

// Whether the step writes a block that it swaps out.
bool StepLauncher::WritesSwappedOut(const StepPlan& plan) {
  const auto leaves = [&](int64_t block) { return leaving_[static_cast<size_t>(block)]; };
  for (const SwapCopy& c : plan.swap_outs) leaving_[static_cast<size_t>(c.block)] = true;
  const bool writes =
      std::any_of(plan.copies.begin(), plan.copies.end(), [&](const BlockCopy& c) { return leaves(c.to); }) ||
      std::any_of(kv_slots_.begin(), kv_slots_.end(),
                  [&](int64_t slot) { return slot >= 0 && leaves(slot / options_.size.block_size); });
  for (const SwapCopy& c : plan.swap_outs) leaving_[static_cast<size_t>(c.block)] = false;
  return writes;
}

DeviceBatch StepLauncher::BatchOf(const LaunchedStep& step, const Layout& at) const {
  const StepBuffer& b = step.inputs;
  DeviceBatch batch;
  batch.ids = b.Device<int32_t>(at.ids);
  batch.kv_slots = b.Device<int64_t>(at.kv_slots);
  batch.tables = tables_.as<int32_t>();
  batch.logit_rows = b.Device<int32_t>(at.logit_rows);
  batch.all.tokens = static_cast<int64_t>(ids_.size());
  batch.all.positions = b.Device<int32_t>(at.positions);
  batch.all.rows = b.Device<AttentionRow>(at.all_rows);
  batch.last.tokens = static_cast<int64_t>(logit_rows_.size());
  batch.last.positions = b.Device<int32_t>(at.last_positions);
  batch.last.rows = b.Device<AttentionRow>(at.last_rows);
  batch.all.units = at.all_units.Units(b, step.all_plans);
  batch.last.units = at.last_units.Units(b, step.last_plans);
  batch.all.flashinfer = at.all_flashinfer.Calls(b, step.all_flashinfer);
  batch.last.flashinfer = at.last_flashinfer.Calls(b, step.last_flashinfer);
  return batch;
}

// All on which the arguments of Forward's launches depend, for steps with a graph.
StepGraphs::Key StepLauncher::KeyOf(const LaunchedStep& step) const {
  StepGraphs::Key key = {static_cast<int64_t>(ids_.size())};
  for (const auto* plans : {&step.all_plans, &step.last_plans}) {
    for (const AttentionPlan& p : *plans) {
      for (const size_t n : {p.decodes.size(), p.chunks.size(), p.members.size(), p.merges.size()}) {
        key.push_back(static_cast<int64_t>(n));
      }
    }
  }
  PlacedFlashInfer::AddLengths(step.all_flashinfer, &key);
  PlacedFlashInfer::AddLengths(step.last_flashinfer, &key);
  return key;
}

// The forward pass. With a graph it includes the logits of all rows.
Status StepLauncher::Forward(const LaunchedStep& step, const Layout& at) {
  batch_ = BatchOf(step, at);
  const auto launch = [&] {
    TakeChained(*stream_, step.inputs.Device<int32_t>(at.ids), batch_.all.tokens, last_tokens_.as<int32_t>());
    if (splits_) {
      overlap_->Forward(*stream_, split_.Batches(step.inputs, batch_, overlap_->multiprocessors()), kv_->layers());
    } else {
      decoder_->Forward(*stream_, batch_, kv_->layers());
    }
    if (has_graph_) decoder_->Logits(*stream_, 0, batch_.last.tokens);
  };
  if (has_graph_) return graphs_.Run(*stream_, KeyOf(step), launch);
  launch();
  return Status();
}

// Fills the host's tokens of sequences that start, and gives rows of counts to those with penalties.
Status StepLauncher::StartSequences(const StepPlan& plan, const LaunchedStep& step, const Layout& at) {
  for (size_t i = 0; i < plan.starts.size(); ++i) {
    const SequenceStart& s = plan.starts[i];
    if (!s.sampling.params.NeedsHistory()) continue;
    Slot& slot = slots_[static_cast<size_t>(s.slot)];
    if (slot.counts < 0) {
      TACTUS_ASSIGN_OR_RETURN(slot.counts, TakeCounts());
    }
    step.inputs.Fill(at.prompts[i], std::span(s.sampling.prompt.data(), s.sampling.prompt.size()));
    step.inputs.Fill(at.outputs[i], std::span(s.sampling.output.data(), s.sampling.output.size()));
  }
  return Status();
}

// A free row of counts_. The table doubles when all are in use, which waits for the device.
Result<int32_t> StepLauncher::TakeCounts() {
  const int64_t row_bytes = config_.vocab_size * 4;
  if (free_counts_.empty()) {
    const int64_t rows = counts_.bytes() / row_bytes, more = rows > 0 ? 2 * rows : kFirstCountRows;
    TACTUS_ASSIGN_OR_RETURN(DeviceMemory larger, DeviceMemory::Allocate(more * row_bytes, "counts of tokens"));
    if (rows > 0) stream_->CopyOnDevice(larger.as<>(), counts_.as<>(), rows * row_bytes);
    stream_->Synchronize();
    counts_ = std::move(larger);
    for (int64_t r = more - 1; r >= rows; --r) free_counts_.push_back(static_cast<int32_t>(r));
  }
  const int32_t row = free_counts_.back();
  free_counts_.pop_back();
  return row;
}

Status StepLauncher::FillMasks(const StepPlan& plan, LaunchedStep* step) {
  const int64_t words = (config_.vocab_size + 31) / 32;
  int64_t masks = 0;
  for (const LaunchedStep::Row& r : step->rows) masks += r.grammar ? 1 : 0;
  step->masks.Clear();
  const int64_t at = step->masks.Place<uint32_t>(masks * words);
  TACTUS_RETURN_IF_ERROR(step->masks.Reserve(&masks_));
  auto* to = step->masks.Host<uint32_t>(at);
  const LaunchedStep::Row* before = nullptr;
  for (LaunchedStep::Row& r : step->rows) {
    if (!r.grammar) continue;
    Slot& slot = slots_[static_cast<size_t>(plan.items[static_cast<size_t>(r.item)].slot)];
    const std::span<uint32_t> mask(to, static_cast<size_t>(words));
    std::fill(mask.begin(), mask.end(), 0u);
    // The row before samples no draft that the grammar forbids, so then this row does not count.
    const bool counts = before == nullptr || before->item != r.item || before->advanced;
    if (counts) r.mask_status = slot.history.FillMask(mask);
    r.advanced = counts && r.mask_status == ItemStatus::kOk && r.draft >= 0 && slot.history.Append(r.draft);
    // Sampling needs a token, also in a row that does not count.
    if (!counts || r.mask_status != ItemStatus::kOk) mask[0] = 1;
    before = &r;
    to += words;
  }
  step->masks.Send(*stream_);
  return Status();
}

// Memory for the step's results: tokens and statuses [rows], then logprobs' tokens and values.
Status StepLauncher::PlaceResults(LaunchedStep* step) {
  const int64_t words = 2 * static_cast<int64_t>(step->rows.size()) + 2 * step->logprobs;
  if (words * 4 <= step->out.bytes()) return Status();
  const int64_t bytes = std::max<int64_t>(words * 8, 4096);
  TACTUS_ASSIGN_OR_RETURN(step->out, DeviceMemory::Allocate(bytes, "results of a step"));
  TACTUS_ASSIGN_OR_RETURN(step->host_out, PinnedMemory::Allocate(bytes));
  return Status();
}

void StepLauncher::SampleRows(LaunchedStep* step, const Layout& at) {
  const auto rows = static_cast<int64_t>(step->rows.size());
  if (rows == 0) return;
  const StepBuffer& b = step->inputs;
  auto* const out = step->out.as<int32_t>();
  SampleCall call;
  call.vocab = config_.vocab_size;
  call.counts = counts_.as<uint32_t>();
  call.masks = masks_.as<uint32_t>();
  call.bias_tokens = b.Device<int32_t>(at.bias_tokens);
  call.bias_values = b.Device<float>(at.bias_values);
  call.end_tokens = b.Device<int32_t>(at.ends);
  call.draft_tokens = b.Device<int32_t>(at.drafts);
  call.last_tokens = last_tokens_.as<int32_t>();
  call.logprob_tokens = out + 2 * rows;
  call.logprob_values = reinterpret_cast<float*>(out + 2 * rows + step->logprobs);
  call.scratch = scratch_.as<>();
  for (int64_t first = 0; first < rows; first += decoder_->max_logit_rows()) {
    const int64_t count = std::min(rows - first, decoder_->max_logit_rows());
    call.logits = has_graph_ ? decoder_->logits() : decoder_->Logits(*stream_, first, count);
    if (observer_) Observe(*step, first, count, call.logits);
    call.rows = count;
    call.row = b.Device<SampleRow>(at.sample_rows) + first;
    call.tokens = out + first;
    call.statuses = out + rows + first;
    Sample(*stream_, call);
  }
  call.rows = rows;
  call.row = b.Device<SampleRow>(at.sample_rows);
  call.tokens = out;
  KeepSampled(*stream_, call);
  stream_->CopyToHost(step->host_out.as<>(), out, (2 * rows + 2 * step->logprobs) * 4);
}

std::optional<OverlapTimes> StepLauncher::MeasureOverlap() {
  if (overlap_ == nullptr || ids_.empty()) return std::nullopt;
  if (has_graph_) {  // without the rows that pad it
    all_rows_.resize(decodes_);
    last_rows_.resize(decodes_);
    batch_.all.tokens = batch_.last.tokens = static_cast<int64_t>(decodes_);
  }
  if (!split_.Cut(all_rows_, last_rows_, host_tables_)) return std::nullopt;
  std::vector<AttentionPlan> all(decoder_->shapes().size()), last(all.size());
  PlanWhole(all_rows_, all);
  PlanWhole(last_rows_, last);
  split_.Plan(overlap_->shapes(), partial_slots_);
  StepBuffer b;
  DeviceMemory memory;
  PlacedUnits all_units, last_units;
  all_units.Place(b, all);
  last_units.Place(b, last);
  split_.Place(b);
  if (!b.Reserve(&memory).ok()) return std::nullopt;
  all_units.Fill(b, all);
  last_units.Fill(b, last);
  split_.Fill(b);
  b.Send(*stream_);
  DeviceBatch whole = batch_;
  whole.all.units = all_units.Units(b, all);
  whole.last.units = last_units.Units(b, last);
  return overlap_->Measure(*stream_, whole, split_.Batches(b, whole, overlap_->multiprocessors()), kv_->layers());
}

void StepLauncher::Observe(const LaunchedStep& step, int64_t first, int64_t count, const float* logits) {
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  std::vector<float> host(static_cast<size_t>(count) * vocab);
  stream_->CopyToHost(host.data(), logits, static_cast<int64_t>(host.size() * sizeof(float)));
  stream_->Synchronize();
  for (int64_t i = 0; i < count; ++i) {
    const LaunchedStep::Row& r = step.rows[static_cast<size_t>(first + i)];
    observer_(r.item, r.position, {host.data() + static_cast<size_t>(i) * vocab, vocab});
  }
}

// ---- results ----

void StepLauncher::Finish(LaunchedStep* step, StepResult* result) {
  if (step->launched) {
    step->done->Synchronize();
    step->result.status = DeviceStatus();
    if (step->result.status.ok()) {
      step->result.status = CatchIn(step->result.step, [&] {
        Commit(step);
        return Status();
      });
    }
  }
  step->result.device_failed = !step->result.status.ok() && !DeviceStatus().ok();
  std::swap(*result, step->result);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++finished_steps_;
  }
  finished_.notify_all();
}

void StepLauncher::Commit(LaunchedStep* step) {
  StepResult& result = step->result;
  const auto rows = step->rows.size();
  const auto* const out = step->host_out.as<int32_t>();
  bool right = true;  // the item's drafts before the row are what was sampled
  for (size_t i = 0; i < rows; ++i) {
    const LaunchedStep::Row& r = step->rows[i];
    const LaunchedStep::Row* const before = i > 0 && step->rows[i - 1].item == r.item ? &step->rows[i - 1] : nullptr;
    right = before == nullptr || !before->sample || (right && out[i - 1] == before->draft);
    if (!right) continue;
    ItemResult& item = result.items[static_cast<size_t>(r.item)];
    const bool counts = r.sample || r.prompt_next >= 0;
    ItemStatus status = counts ? static_cast<ItemStatus>(out[rows + i]) : ItemStatus::kOk;
    if (status == ItemStatus::kOk) status = r.mask_status;
    const TokenId token = out[i];
    const StepItem& planned = step->plan->items[static_cast<size_t>(r.item)];
    if (status == ItemStatus::kOk && item.status == ItemStatus::kOk && r.grammar) {
      if (!AdvanceGrammar(r, token, &slots_[static_cast<size_t>(planned.slot)])) status = ItemStatus::kBadGrammar;
    }
    if (item.status == ItemStatus::kOk) item.status = status;
    if (r.logprobs >= 0 && item.status == ItemStatus::kOk) AddLogprobs(*step, i, &result);
    if (!r.sample || item.status != ItemStatus::kOk) continue;
    if (item.num_tokens++ == 0) {
      item.token_offset = static_cast<int32_t>(result.tokens.size());
      item.accepted -= planned.draft_tokens;
    } else {
      ++item.accepted;
    }
    result.tokens.push_back(token);
  }
}

// The row's token is the next of the output. False: the grammar forbids it.
bool StepLauncher::AdvanceGrammar(const LaunchedStep::Row& row, TokenId token, Slot* slot) const {
  slot->output.push_back(token);
  if (!row.advanced) return slot->history.Append(token);
  if (token == row.draft) return true;
  // The state is behind a draft that was wrong, and cannot go back.
  const SamplingSpec rule{
      .max_tokens = slot->spec.max_tokens, .output = slot->output, .grammar = slot->history.spec().grammar};
  slot->history.Start(rule, slot->choice, config_.vocab_size);
  return true;
}

// The row's logprobs, behind those of earlier rows of its item.
void StepLauncher::AddLogprobs(const LaunchedStep& step, size_t row, StepResult* result) const {
  const LaunchedStep::Row& r = step.rows[row];
  const int64_t first = 2 * static_cast<int64_t>(step.rows.size()) + r.first_logprob;
  const auto* const tokens = step.host_out.as<int32_t>() + first;
  const auto* const values = step.host_out.as<float>() + first + step.logprobs;
  auto& list = r.prompt_next >= 0 ? result->prompt_logprobs : result->logprobs;
  if (list.empty() || list.back().item != r.item) list.push_back({r.item, {}});
  std::vector<TokenLogprob>& entry = list.back().per_token.emplace_back();
  for (int32_t k = 0; k <= r.logprobs; ++k) {
    if (tokens[k] >= 0) entry.push_back({tokens[k], values[k]});
  }
}

}  // namespace tactus::compute::cuda
