// The seam between an engine and what computes for it: one model on one kind of device, from the memory plan to the
// executor. compute/exec/make_backend.h chooses an implementation, and nothing else does; tests bring their own.
//
// Thread rule: one thread. Info and PlanMemory may be asked before anything is loaded and cost little; then LoadWeights
// once, then CreateExecutor once. The executor may refer to its backend, which therefore outlives it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/executor.h"
#include "tactus/status.h"

namespace tactus {

struct BackendDevice {
  std::string name;           // "cpu (AMD EPYC 9655)"
  int64_t memory_bytes = -1;  // that this process may use; -1: not known
};

struct BackendInfo {
  std::vector<BackendDevice> devices;  // at least one
  int32_t workers = 1;                 // what computes side by side and step times scale with: on a CPU its threads
  std::string kernels;     // operators in use: equal binary, weights and operators give equal tokens for equal seeds
  std::string arithmetic;  // "int16 activations, KV bf16", for people
  std::string kv_dtype;    // "bf16"
  std::string summary;     // all of it in a line of the start-up
  int32_t max_draft_tokens = 0;  // ExecutorTraits' of its executor
  std::string hint;              // a better choice of options than the one that stands; empty: none
  // What step times depend on beside the model, as files of measured ones state it.
  std::map<std::string, std::string> remarks;
};

struct MemoryDemand {
  int64_t max_model_len = 0;    // tokens; 0: the model's, or as many as the KV memory holds
  int64_t max_num_seqs = 0;     // that hold KV at once
  int64_t max_step_tokens = 0;  // of the largest step
  int32_t block_size = 16;      // tokens
  int64_t kv_bytes = 0;         // 0: the backend's share of what is left
  int64_t swap_bytes = 0;       // for sequences that are swapped out
  int64_t front_end_bytes = 0;  // what requests take outside the engine, where it comes from the same memory
  int64_t other_bytes = 0;      // of it, what a draft model and the rules of answers take
};

struct MemoryGrant {
  int64_t max_model_len = 0;
  int64_t num_blocks = 0, swap_blocks = 0;
  int64_t front_end_bytes = 0;            // of those that were asked for
  int64_t kv_bytes = 0, total_bytes = 0;  // of the plan, the second with everything
  std::string text;                       // the plan as a table, for people
};

struct ExecutorSize {
  int64_t num_blocks = 0, swap_blocks = 0;
  int32_t block_size = 16;  // tokens
  int64_t max_model_len = 0;
  int32_t max_slots = 0;  // live sequences, those that wait included
  int64_t max_step_tokens = 0;
  int32_t max_step_items = 0;
};

class Backend {
 public:
  using Say = std::function<void(const std::string& line)>;

  virtual ~Backend() = default;
  virtual BackendInfo Info() const = 0;
  // Context, KV blocks and swap blocks, beside the weights and the largest step. kInvalidArgument with the arithmetic
  // and the flag to change where it does not fit.
  virtual Result<MemoryGrant> PlanMemory(const MemoryDemand& demand) const = 0;
  // Brings the weights to where they are computed with; their format for people and clients ("q4_1 (211), f32 (61)").
  // `say` gets lines of progress; may be empty.
  virtual Result<std::string> LoadWeights(const Say& say) = 0;
  // kResourceExhausted with the size when the memory of the plan is not there.
  virtual Result<std::unique_ptr<Executor>> CreateExecutor(const ExecutorSize& size) = 0;
};

}  // namespace tactus
