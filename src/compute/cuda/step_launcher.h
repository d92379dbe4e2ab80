// Runs plans on the device: Launch enqueues a step's work without waiting for the steps before it, Finish waits for its
// results. Chained inputs stay on the device; the host's part of sampling is only grammars. The forward pass of a step
// of decodes runs as a CUDA graph (step_graphs.h).
//
// Two threads: one launches, one finishes, both in the order of the steps. A step with a grammar, or one that starts or
// forgets a sequence that had one, waits in Launch until the steps before it have finished.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "base/backend.h"
#include "base/plan_limits.h"
#include "base/prefix_groups.h"
#include "compute/cuda/attention_plan.h"
#include "compute/cuda/decoder.h"
#include "compute/cuda/decoder_overlap.h"
#include "compute/cuda/device_kv.h"
#include "compute/cuda/flashinfer_plan.h"
#include "compute/cuda/kernels/sample.h"
#include "compute/cuda/step_buffer.h"
#include "compute/cuda/step_graphs.h"
#include "compute/cuda/step_split.h"
#include "compute/model/sampler.h"

namespace tactus::compute::cuda {

struct CudaExecutorOptions {
  Real type = Real::kBF16;
  KvType kv_type = KvType::kBF16;
  bool batch_invariant = true;
  bool cascade_attention = true;  // reads a prefix that decodes share once for all of them; changes no bit
  AttentionBackend attention = AttentionBackend::kTactus;  // kFlashInfer: CheckFlashInfer, no cascade
  bool fp8_tokens = false;                                 // DecoderOptions::fp8_tokens
  bool overlap = false;          // large steps run in two parts; changes no bit, with batch_invariant
  double attention_share = 0.5;  // of the multiprocessors, for the attention of a part beside the other's products
  bool graphs = true;            // changes no bit where batch_invariant is true
  int32_t multiprocessors = 1;
  int32_t max_in_flight = 2;
  ExecutorSize size;
  Clock* clock = nullptr;  // outlives the executor
};

// The decoder of an executor of this size, also for the memory plan.
DecoderOptions DecoderOptionsOf(const ModelConfig& config, const CudaExecutorOptions& options);

// What a step leaves for Finish. Belongs to the launching thread until Launch returns, then to the finishing one.
struct LaunchedStep {
  struct Row {
    int32_t item = 0;
    int32_t position = 0;
    bool sample = false;
    int32_t logprobs = -1;  // as SampleRow's
    int32_t first_logprob = 0;
    int32_t prompt_next = -1;
    TokenId draft = -1;  // of a sampling row: the next row counts only if this token is sampled; -1: no next row
    bool grammar = false;
    bool advanced = false;  // the grammar's state is behind `draft`
    ItemStatus mask_status = ItemStatus::kOk;
  };
  StepBuffer inputs;  // before the forward pass
  StepBuffer masks;   // grammars' masks, sent before sampling
  DeviceMemory out;   // tokens, statuses, logprobs
  PinnedMemory host_out;
  std::vector<Row> rows;
  // By Decoder::shapes(); those of the other attention are empty.
  std::vector<AttentionPlan> all_plans, last_plans;
  std::vector<FlashInferPlan> all_flashinfer, last_flashinfer;
  std::unique_ptr<Event> done;
  StepResult result;  // without tokens
  const StepPlan* plan = nullptr;
  bool launched = false;  // else the result is complete
  int64_t logprobs = 0;   // entries of the step
};

class StepLauncher {
 public:
  static Result<std::unique_ptr<StepLauncher>> Create(const ModelConfig& config, DeviceWeights weights,
                                                      const CudaExecutorOptions& options);
  std::unique_ptr<LaunchedStep> NewStep();

  void Launch(const StepPlan& plan, LaunchedStep* step);
  // Waits for the step and moves its result to *result.
  void Finish(LaunchedStep* step, StepResult* result);

  // As StepRunner's (compute/exec/step_runner.h): the step waits for a copy of the logits. Tests and measurements only.
  using LogitsObserver = std::function<void(int32_t item, int32_t position, std::span<const float> logits)>;
  void set_logits_observer(LogitsObserver observer) { observer_ = std::move(observer); }
  const StepGraphs& graphs() const { return graphs_; }

  // As Executor's. Not beside Launch.
  std::optional<OverlapTimes> MeasureOverlap();
  void SplitStepsFrom(int64_t tokens) { least_split_tokens_ = tokens; }

  int64_t kv_block_bytes() const { return kv_->block_bytes(); }
  void ReadKvBlock(BlockId block, std::byte* to) const { kv_->Read(*copies_, block, to); }
  void WriteHostBlock(BlockId host_block, const std::byte* from) { kv_->WriteHost(host_block, from); }

 private:
  struct Slot {
    SequenceHistory history;  // its grammar changes in Finish; see above
    SamplingSpec spec;        // without prompt and output
    int32_t choice = 0;
    int32_t counts = -1;     // row of counts_; -1: none
    int32_t first_row = -1;  // position of the first row that was sampled since the start
    bool grammar = false;
    std::vector<TokenId> output;  // if it has a grammar; changes in Finish
  };
  struct Layout;
  StepLauncher(const ModelConfig& config, DeviceWeights weights, const CudaExecutorOptions& options);
  // The result of work() -> Status, or an error: an exception would end the process with the executor's thread.
  template <class Work>
  static Status CatchIn(StepId step, Work work) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return Status(StatusCode::kResourceExhausted, "out of memory in step " + std::to_string(step));
    } catch (const std::exception& e) {
      return Internal("step " + std::to_string(step) + ": " + e.what());
    }
  }
  void WaitForEarlier();
  void Apply(const StepPlan& plan);
  void FillItems(const StepPlan& plan, LaunchedStep* step);
  void CollectRows(const StepPlan& plan, LaunchedStep* step);
  void FindPrefixGroups();
  void PlanStep(LaunchedStep* step);
  void PlanWhole(std::span<const AttentionRow> rows, std::span<AttentionPlan> plans) const;
  void PlanForFlashInfer(std::span<const AttentionRow> rows, std::span<FlashInferPlan> plans) const;
  void Move(const StepPlan& plan, const Layout& at, const StepBuffer& b);
  bool WritesSwappedOut(const StepPlan& plan);
  void AwaitSwapOuts();
  bool PadToGraph(const StepPlan& plan, LaunchedStep* step);
  DeviceBatch BatchOf(const LaunchedStep& step, const Layout& at) const;
  StepGraphs::Key KeyOf(const LaunchedStep& step) const;
  Status Forward(const LaunchedStep& step, const Layout& at);
  Status Enqueue(const StepPlan& plan, LaunchedStep* step);
  Status StartSequences(const StepPlan& plan, const LaunchedStep& step, const Layout& at);
  Status PlaceResults(LaunchedStep* step);
  void SampleRows(LaunchedStep* step, const Layout& at);
  void Observe(const LaunchedStep& step, int64_t first, int64_t count, const float* logits);
  void Commit(LaunchedStep* step);
  Status FillMasks(const StepPlan& plan, LaunchedStep* step);
  Result<int32_t> TakeCounts();
  bool AdvanceGrammar(const LaunchedStep::Row& row, TokenId token, Slot* slot) const;
  void AddLogprobs(const LaunchedStep& step, size_t row, StepResult* result) const;

  const ModelConfig config_;
  const DeviceWeights weights_;
  const CudaExecutorOptions options_;
  const int64_t blocks_per_slot_;
  const int64_t partial_slots_;  // partial results of attention that a plan may use
  const PlanLimits limits_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<DecoderOverlap> overlap_;  // null: off
  StepSplit split_;
  int64_t least_split_tokens_;  // ExecutorSize's, or SplitStepsFrom's
  bool splits_ = false;         // the step that is being launched
  size_t decodes_ = 0;          // with a graph: its rows without those that pad it
  DeviceBatch batch_;           // its data
  std::unique_ptr<DeviceKv> kv_;
  std::unique_ptr<Stream> stream_, copies_;  // copies_: of ReadKvBlock
  std::unique_ptr<Stream> swaps_;            // of swap-outs, beside the step's items
  std::unique_ptr<Event> earlier_, swapped_out_;
  bool swapping_out_ = false;         // stream_ has not waited for swapped_out_
  DeviceMemory inputs_, masks_;       // those of LaunchedStep
  DeviceMemory tables_;               // [max_slots, blocks_per_slot]
  DeviceMemory last_tokens_;          // [max_slots]
  DeviceMemory counts_;               // [count rows, vocab]
  DeviceMemory scratch_;              // of sampling
  std::vector<BlockId> host_tables_;  // as tables_
  bool tables_differ_ = false;        // a step failed whose updates tables_ may lack
  std::vector<Slot> slots_;
  std::vector<int32_t> free_counts_;

  StepGraphs graphs_;
  std::vector<bool> leaving_;  // by block, scratch of WritesSwappedOut

  // The step that is being launched, and later the last one that was (MeasureOverlap).
  bool has_graph_ = false;  // then its arrays are padded, except sample_rows_
  std::vector<int32_t> ids_, positions_, logit_rows_, last_positions_;
  std::vector<int64_t> kv_slots_;
  std::vector<AttentionRow> all_rows_, last_rows_;
  std::vector<PrefixGroups::Sequence> sequences_;
  PrefixGroups prefix_groups_;
  std::vector<SampleRow> sample_rows_;
  std::vector<int64_t> table_entries_;
  std::vector<int32_t> table_values_, copy_pairs_, bias_tokens_, ends_, drafts_;
  std::vector<float> bias_values_;

  LogitsObserver observer_;
  std::mutex mutex_;
  std::condition_variable finished_;
  int64_t launched_steps_ = 0, finished_steps_ = 0;
};

}  // namespace tactus::compute::cuda
