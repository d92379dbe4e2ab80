// Runs one plan on the CPU, start to end, on the calling thread and its pool: block tables, copies, forward pass,
// sampling. Keeps each slot's state between steps. cpu_executor.cc adds the thread and the queue.
//
// One thread at a time. A plan that would access memory outside this executor's is refused as a whole (kInternal, with
// the numbers) before any part of it is applied: such a plan is an engine fault, but must not corrupt the cache.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/plan_limits.h"
#include "base/prefix_groups.h"
#include "compute/exec/cpu_executor.h"
#include "compute/exec/kv_memory.h"
#include "compute/model/decoder.h"
#include "compute/model/sampler.h"

namespace tactus::compute {

class StepRunner {
 public:
  static Result<std::unique_ptr<StepRunner>> Create(const ModelConfig& config, CpuWeights weights,
                                                    const CpuExecutorOptions& options);

  // Fills all of *result except the times.
  void Run(const StepPlan& plan, StepResult* result);

  // The KV memory and the swap arena as bytes (base/executor.h). May run beside a step that does not use the block.
  int64_t kv_block_bytes() const { return kv_->block_bytes(); }
  void ReadKvBlock(BlockId block, std::byte* to) const { kv_->ReadBlock(block, to); }
  void WriteHostBlock(BlockId host_block, const std::byte* from) { swap_->WriteBlock(host_block, from); }

  // Receives the raw logits [vocab] of every computed row, with (item of the plan, position of the row's token). Tests
  // and measurements only.
  using LogitsObserver = std::function<void(int32_t item, int32_t position, std::span<const float> logits)>;
  void set_logits_observer(LogitsObserver observer) { observer_ = std::move(observer); }
  int64_t barriers() const { return pool_.barriers(); }
  // Decoder::set_profile. Measurements only.
  void set_operator_profile(OperatorProfile* profile) { decoder_->set_profile(profile); }

 private:
  struct Slot {
    SequenceHistory history;
    TokenId last_token = 0;  // last sampled: the input of a chained item
  };
  struct Row {
    int32_t item = 0;
    int32_t position = 0;
    bool sample = false;
    TokenId draft = -1;        // of a sampling row: the next row counts only if this token is sampled; -1: no next row
    TokenId prompt_next = -1;  // >= 0: the token whose logprob is requested
    SampledToken sampled;      // token -1: not sampled, because an earlier draft was rejected
    std::vector<TokenLogprob>* logprobs = nullptr;
  };

  StepRunner(const ModelConfig& config, CpuWeights weights, const CpuExecutorOptions& options);
  void Apply(const StepPlan& plan);
  void RunCopies(const StepPlan& plan);
  void FillBatch(const StepPlan& plan, StepResult* result);
  void FindPrefixGroups();
  void CollectRows(const StepPlan& plan, StepResult* result);
  void SampleRows(const StepPlan& plan, const StepResult& result);
  void FindRuns(int64_t first, int64_t count);
  void SampleRow(Row* row, const Row* before, std::span<float> logits, Sampler* sampler, SequenceHistory* history);
  void Commit(const StepPlan& plan, StepResult* result);
  BlockId* Table(SlotId slot) { return tables_.get() + static_cast<int64_t>(slot) * blocks_per_slot_; }

  const ModelConfig config_;
  const CpuWeights weights_;
  const CpuExecutorOptions options_;
  const int64_t blocks_per_slot_;
  const PlanLimits limits_;
  ThreadPool pool_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvMemory> kv_;
  std::unique_ptr<KvMemory> swap_;  // null without swap space
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<BlockId[], Free> tables_;  // [max_slots, blocks_per_slot], pages touched as slots are used
  std::vector<Slot> slots_;
  std::vector<Sampler> samplers_;  // one per thread
  LogitsObserver observer_;

  // This step's batch; capacity for the largest step.
  std::vector<int32_t> ids_, positions_;
  std::vector<int64_t> kv_slots_;
  std::vector<AttentionItem> attention_items_;
  std::vector<PrefixGroups::Sequence> sequences_;  // an entry per attention item
  PrefixGroups prefix_groups_;
  std::vector<int32_t> logit_rows_;
  std::vector<Row> rows_;
  std::vector<int64_t> runs_;  // begin of each run of rows that must be sampled in sequence, and the end of the last
};

}  // namespace tactus::compute
