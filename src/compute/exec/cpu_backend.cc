#include "compute/exec/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/available_memory.h"
#include "base/check.h"
#include "base/machine_facts.h"
#include "base/plan_limits.h"
#include "compute/exec/cpu_executor.h"
#include "compute/exec/model_numerics.h"
#include "compute/weights/sigbus_guard.h"

namespace tactus::compute {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(ModelDescription description, ModelNumerics chosen, bool cascade_attention, Clock& clock,
             OperatorProfile* profile)
      : description_(std::move(description)),
        chosen_(std::move(chosen)),
        cascade_attention_(cascade_attention),
        clock_(clock),
        profile_(profile) {
    // The tokeniser's data, possibly megabytes, are not used here.
    description_.tokenizer_json.clear();
    description_.tokenizer_config_json.clear();
    description_.tokenizer_model.clear();
    description_.gguf_tokenizer = {};
  }

  BackendInfo Info() const override {
    BackendInfo info;
    const std::string processor = ProcessorName();
    info.devices = {
        {fmt::format("cpu ({})", processor.empty() ? "unknown processor" : processor), AvailableMemoryBytes()}};
    info.workers = chosen_.threads;
    info.kernels = chosen_.ops->name;
    info.arithmetic = NumericsText(chosen_.numerics);
    info.kv_dtype = InfoOf(chosen_.numerics.kv_dtype).name;
    info.summary = fmt::format("numerics {}; kernels {}, {} threads ({})", info.arithmetic, info.kernels, info.workers,
                               chosen_.threads_why);
    info.max_draft_tokens = kMaxDraftTokens;
    info.hint = chosen_.hint;
    info.profile.name = fmt::format("{}t", info.workers);
    info.remarks = {
        {"device", info.devices[0].name}, {"threads", fmt::format("{}", info.workers)}, {"kernels", info.kernels}};
    return info;
  }

  Result<MemoryGrant> PlanMemory(const MemoryDemand& demand) const override {
    MemoryPlanInput input;
    TACTUS_ASSIGN_OR_RETURN(input.weight_bytes, PlanWeightBytes(description_, chosen_.load));
    input.available_bytes = AvailableMemoryBytes();
    if (input.available_bytes < 0) input.available_bytes = int64_t{1} << 50;
    const int64_t beside_bytes = demand.rules_bytes + demand.draft_bytes;  // in the same memory
    input.available_bytes = std::max<int64_t>(0, input.available_bytes - beside_bytes);
    input.kv_memory_bytes = demand.kv_bytes;
    input.swap_bytes = demand.swap_bytes;
    input.front_end_bytes = demand.front_end_bytes;
    input.max_model_len = demand.max_model_len;
    input.max_num_seqs = demand.max_num_seqs;
    input.max_step_tokens = demand.max_step_tokens;
    input.block_size = demand.block_size;
    input.kv_dtype = chosen_.numerics.kv_dtype;
    input.threads = chosen_.threads;
    TACTUS_ASSIGN_OR_RETURN(const MemoryPlan plan, tactus::compute::PlanMemory(description_.config, input));
    const std::string beside =
        beside_bytes > 0
            ? fmt::format("  set aside    {:>8} MiB   for rules of answers and draft models\n", beside_bytes >> 20)
            : "";
    return MemoryGrant{.max_model_len = plan.max_model_len,
                       .num_blocks = plan.num_blocks,
                       .swap_blocks = plan.swap_blocks,
                       .front_end_bytes = plan.front_end_bytes,
                       .kv_bytes = plan.kv_bytes,
                       .total_bytes = plan.total_bytes,
                       .text = plan.ToString() + beside};
  }

  Result<std::string> LoadWeights(const Say& say) override {
    InstallSigbusGuard();
    LoadWeightsOptions load = chosen_.load;
    load.say = say;
    TACTUS_ASSIGN_OR_RETURN(weights_, tactus::compute::LoadWeights(description_, load, clock_));
    return weights_->format;
  }

  Result<std::unique_ptr<Executor>> CreateExecutor(const ExecutorSize& size) override {
    TACTUS_CHECK_MSG(weights_.has_value(), "CreateExecutor before LoadWeights, or twice");
    CpuExecutorOptions exec;
    exec.threads = chosen_.threads;
    exec.ops = chosen_.ops;
    exec.kv_dtype = chosen_.numerics.kv_dtype;
    exec.num_blocks = size.num_blocks;
    exec.block_size = size.block_size;
    exec.swap_blocks = size.swap_blocks;
    exec.max_slots = size.max_slots;
    exec.max_step_tokens = size.max_step_tokens;
    exec.max_step_items = size.max_step_items;
    exec.max_model_len = size.max_model_len;
    exec.cascade_attention = cascade_attention_;
    exec.clock = &clock_;
    exec.profile = profile_;
    CpuWeights weights = std::move(*weights_);
    weights_.reset();
    return MakeCpuExecutor(description_.config, std::move(weights), exec);
  }

 private:
  ModelDescription description_;
  const ModelNumerics chosen_;
  const bool cascade_attention_;
  Clock& clock_;
  OperatorProfile* const profile_;
  std::optional<CpuWeights> weights_;  // set from LoadWeights to CreateExecutor
};

}  // namespace

Result<std::unique_ptr<Backend>> MakeCpuBackend(const EngineOptions& options, const ModelDescription& description,
                                                Clock& clock, const std::string& hint, OperatorProfile* profile) {
  if (options.overlap != "off") {
    return InvalidArgument(
        fmt::format("--overlap {} is not possible on a CPU, which computes one operator after the other{}: leave it "
                    "out, or use --device cuda",
                    options.overlap, hint.empty() ? "" : " (" + hint + ")"),
        "overlap");
  }
  if (options.attention_backend != "tactus") {
    return InvalidArgument(
        fmt::format("--attention-backend {} is not possible on a CPU, it is kernels for GPUs{}: leave it out, or use "
                    "--device cuda",
                    options.attention_backend, hint.empty() ? "" : " (" + hint + ")"),
        "attention-backend");
  }
  TACTUS_ASSIGN_OR_RETURN(ModelNumerics chosen, ChooseModelNumerics(options, description, clock));
  if (!hint.empty()) chosen.hint = chosen.hint.empty() ? hint : hint + "; " + chosen.hint;
  return std::unique_ptr<Backend>(
      std::make_unique<CpuBackend>(description, std::move(chosen), options.cascade_attention, clock, profile));
}

}  // namespace tactus::compute
