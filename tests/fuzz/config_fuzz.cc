// config.json and generation_config.json: an accepted configuration must be valid and usable for memory planning.
#include <cstdint>
#include <cstdlib>

#include "compute/config/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tactus;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  compute::ModelConfig generation;
  generation.vocab_size = 1000;
  static_cast<void>(compute::ApplyGenerationConfig(text, "fuzz.json", &generation));
  const auto config = compute::ConfigFromJson(text, "fuzz.json");
  if (!config.ok()) return 0;
  if (!compute::ValidateConfig(*config).ok() || config->NumParameters() <= 0) std::abort();
  compute::MemoryPlanInput input;
  input.available_bytes = int64_t{1} << 36;
  static_cast<void>(compute::PlanMemory(*config, input));
  return 0;
}
