// The interface between an engine and its compute backend: one model on one kind of device, from the memory plan to the
// executor. Only compute/exec/make_backend.h chooses an implementation; tests have their own.
//
// Thread rule: one thread. Info and PlanMemory may be called before anything is loaded and are cheap; then LoadWeights
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
  int64_t memory_bytes = -1;  // usable by this process; -1: unknown
};

// What `tactus profile` measures on a device, unless its options say otherwise.
struct ProfileDefaults {
  std::string name;                     // of the device, in the name of the file: "2t", "nvidia-h200"
  int64_t max_step_tokens = 1024;       // of the largest step
  int64_t max_context = 4096;           // of the longest sequence; 0: the model's
  int64_t kv_bytes = int64_t{1} << 30;  // 0: as much as a server has
};

struct BackendInfo {
  std::vector<BackendDevice> devices;  // at least one
  int32_t workers = 1;                 // parallel workers, which step times depend on; on a CPU its threads
  std::string kernels;     // operators in use: equal binary, weights and operators give equal tokens for equal seeds
  std::string arithmetic;  // "int16 activations, KV bf16", for people
  std::string kv_dtype;    // "bf16"
  std::string summary;     // one line of the above for the start-up log
  int32_t max_draft_tokens = 0;  // ExecutorTraits::max_draft_tokens of its executor
  std::string hint;              // advice for better options; empty: none
  // Facts besides the model that step times depend on, as written into files of measured step times.
  std::map<std::string, std::string> remarks;
  ProfileDefaults profile;
};

// What a plan leaves for requests outside the engine at least, if they may use more: a few typical ones and their
// threads.
inline constexpr int64_t kLeastFrontEndBytes = int64_t{48} << 20;

struct MemoryDemand {
  int64_t max_model_len = 0;    // tokens; 0: the model's limit, or as many as fit the KV memory
  int64_t max_num_seqs = 0;     // sequences with KV at the same time
  int32_t max_slots = 0;        // live sequences, including waiting ones; 0: max_num_seqs
  int64_t max_step_tokens = 0;  // of the largest step
  int32_t block_size = 16;      // tokens
  int64_t kv_bytes = 0;         // 0: the backend's share of the remaining memory
  int64_t swap_bytes = 0;       // for sequences that are swapped out
  int64_t front_end_bytes = 0;  // of the host, used by requests outside the engine
  int64_t rules_bytes = 0;      // of the host, used by output rules
  int64_t draft_bytes = 0;      // of the device, used by a draft model
};

struct MemoryGrant {
  int64_t max_model_len = 0;
  int64_t num_blocks = 0, swap_blocks = 0;
  int64_t front_end_bytes = 0;            // granted part of the demand
  int64_t kv_bytes = 0, total_bytes = 0;  // of the plan; total_bytes includes everything
  std::string text;                       // the plan as a table, for people
};

struct ExecutorSize {
  int64_t num_blocks = 0, swap_blocks = 0;
  int32_t block_size = 16;  // tokens
  int64_t max_model_len = 0;
  int32_t max_slots = 0;  // live sequences, including waiting ones
  int64_t max_step_tokens = 0;
  int32_t max_step_items = 0;
  int64_t least_split_tokens = kLeastSplitTokens;  // with --overlap nano: of a step that runs in two parts
};

class Backend {
 public:
  using Say = std::function<void(const std::string& line)>;

  virtual ~Backend() = default;
  virtual BackendInfo Info() const = 0;
  // Plans context, KV blocks and swap blocks, besides the weights and the largest step. If they do not fit:
  // kInvalidArgument with the arithmetic and the flag to change.
  virtual Result<MemoryGrant> PlanMemory(const MemoryDemand& demand) const = 0;
  // Loads the weights to the device. Returns their format for people and clients ("q4_1 (211), f32 (61)"). `say` gets
  // lines of progress; may be empty.
  virtual Result<std::string> LoadWeights(const Say& say) = 0;
  // kResourceExhausted with the size if the memory of the plan is not available.
  virtual Result<std::unique_ptr<Executor>> CreateExecutor(const ExecutorSize& size) = 0;
};

}  // namespace tactus
