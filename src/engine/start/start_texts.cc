#include "engine/start/start_texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/objectives.h"
#include "base/printable.h"
#include "compute/config/sampling_defaults.h"

namespace tactus::engine {

void SayScheduler(const core::Scheduler& scheduler, const EngineOptions& options, const Backend::Say& say) {
  say("scheduler " + scheduler.Describe());
  if (options.tbt_slo.ns > 0)
    say(fmt::format("objective of --tbt-slo: {}", ObjectivesText({.tbt_ns = options.tbt_slo.ns})));
  for (const ServiceClass& c : scheduler.config().limits.classes) {
    if (c.slo.any()) say(fmt::format("objectives of class '{}': {}", Printable(c.name), ObjectivesText(c.slo)));
  }
  if (options.swap_space.bytes > 0 && !scheduler.swaps() && options.kv_secret.empty()) {
    say(fmt::format("--swap-space is not used: preemption {} recomputes; --preemption swap would use it",
                    scheduler.config().preemption));
  }
}

void SaySampling(const compute::ModelDescription& description, const EngineOptions& options, const Backend::Say& say) {
  say("default sampling of requests: " + compute::DefaultSamplingText(options.sampling,
                                                                      description.config.generation_defaults,
                                                                      compute::SamplingSource(description)));
}

void SayCutContext(const compute::ModelConfig& config, const MemoryGrant& memory, const EngineOptions& options,
                   const Backend::Say& say) {
  if (options.max_model_len > 0 || memory.max_model_len >= config.max_position) return;
  const int64_t tokens = std::max<int64_t>(1, memory.num_blocks * options.block_size);
  const double token_bytes = static_cast<double>(memory.kv_bytes) / static_cast<double>(tokens);
  const int64_t blocks = (config.max_position + options.block_size - 1) / options.block_size;
  constexpr double kMiB = 1 << 20;
  const double whole = static_cast<double>(blocks * options.block_size) * token_bytes;
  say(fmt::format(
      "warning: the context is {} tokens (prompt and answer together) instead of the model's {}: {:.1f} MiB of "
      "KV hold no more; --kv-cache-memory {}MiB holds all of it, --max-model-len {} accepts this",
      memory.max_model_len, config.max_position, static_cast<double>(memory.kv_bytes) / kMiB,
      static_cast<int64_t>(whole / kMiB) + 1, memory.max_model_len));
}

}  // namespace tactus::engine
