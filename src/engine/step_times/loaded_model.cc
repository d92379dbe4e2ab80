#include "engine/step_times/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/shortage.h"
#include "compute/exec/make_backend.h"
#include "compute/model/catalog.h"
#include "compute/weights/model_description.h"
#include "tactus/version.h"

namespace tactus::engine {
namespace {

// max_context is 0 where neither options nor the device limit it: the KV memory does.
ProfileLimits LimitsOf(const EngineOptions& o, const compute::ModelConfig& config, const ProfileDefaults& device,
                       int64_t max_context) {
  ProfileLimits limits;
  limits.block_size = static_cast<int32_t>(o.block_size);
  limits.vocab_size = config.vocab_size;
  limits.max_decodes = static_cast<int32_t>(o.max_num_seqs);
  limits.max_step_tokens = o.token_budget > 0 ? o.token_budget : device.max_step_tokens;
  int64_t longest = config.max_position;
  bool limited = false;
  for (const int64_t limit : {o.max_model_len, max_context > 0 ? max_context : device.max_context}) {
    if (limit > 0) longest = std::min(longest, limit), limited = true;
  }
  limits.max_context = limited ? static_cast<int32_t>(longest) : 0;
  return limits;
}

Result<LoadedModel> Load(const EngineOptions& o, int64_t max_context, const Backend::Say& say, Clock& clock,
                         compute::OperatorProfile* profile) {
  TACTUS_ASSIGN_OR_RETURN(const std::string path, compute::ResolveModel(o.model));
  TACTUS_ASSIGN_OR_RETURN(const compute::ModelDescription description, compute::DescribeModel(path));
  const compute::ModelConfig& config = description.config;
  TACTUS_RETURN_IF_ERROR(compute::ValidateConfig(config));
  LoadedModel loaded;
  auto backend = profile != nullptr ? compute::MakeCountingBackend(o, description, clock, profile)
                                    : compute::MakeBackend(o, description, clock);
  TACTUS_RETURN_IF_ERROR(backend.status());
  loaded.backend = std::move(*backend);
  const BackendInfo info = loaded.backend->Info();
  ProfileLimits& limits = loaded.limits;
  limits = LimitsOf(o, config, info.profile, max_context);

  MemoryDemand demand;
  demand.max_model_len = limits.max_context;
  demand.max_num_seqs = o.max_num_seqs;
  demand.max_slots = limits.max_decodes + 1;
  demand.max_step_tokens = limits.max_step_tokens;
  demand.block_size = limits.block_size;
  demand.kv_bytes = o.kv_cache_memory.bytes > 0 ? o.kv_cache_memory.bytes : info.profile.kv_bytes;
  TACTUS_ASSIGN_OR_RETURN(const MemoryGrant memory, loaded.backend->PlanMemory(demand));
  limits.num_blocks = memory.num_blocks;
  limits.max_context = static_cast<int32_t>(memory.max_model_len);
  TACTUS_ASSIGN_OR_RETURN(const std::string format, loaded.backend->LoadWeights(say));

  loaded.remarks = info.remarks;
  loaded.remarks["model"] = std::filesystem::path(path).filename().string();
  loaded.remarks["dtype"] = fmt::format("weights {}, {}", format, info.arithmetic);
  loaded.remarks["version"] = Version();
  loaded.remarks["seconds since 1970"] = fmt::format("{}", UnixSeconds());
  if (say) {
    say(fmt::format("model {} ({:.1f} M parameters), weights {}; {}", config.name,
                    static_cast<double>(config.NumParameters()) * 1e-6, format, info.summary));
  }

  loaded.architecture = config.architecture;
  loaded.parameters = config.NumParameters();
  loaded.weight_format = format;

  ExecutorSize size;
  size.num_blocks = limits.num_blocks;
  size.block_size = limits.block_size;
  size.max_model_len = limits.max_context;
  size.max_slots = limits.max_decodes + 1;
  size.max_step_tokens = limits.max_step_tokens;
  size.max_step_items = limits.max_decodes + 1;
  TACTUS_ASSIGN_OR_RETURN(loaded.executor, loaded.backend->CreateExecutor(size));
  return loaded;
}

}  // namespace

Result<LoadedModel> LoadForSteps(const EngineOptions& options, int64_t max_context, const Backend::Say& say,
                                 Clock& clock, compute::OperatorProfile* profile) {
  return CatchShortage([&] { return Load(options, max_context, say, clock, profile); });
}

}  // namespace tactus::engine
