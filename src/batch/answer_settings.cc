#include "batch/answer_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/hash.h"
#include "base/input_file.h"

namespace tactus::batch {
namespace {

constexpr int64_t kMostTemplateBytes = int64_t{16} << 20;

// The others decide when a token is computed, and not which.
constexpr std::string_view kChangeAnswers[] = {"served-model-name", "dtype",         "load-format",
                                               "activation-dtype",  "quantization",  "seed",
                                               "kv-cache-dtype",    "max-model-len", "default-max-tokens"};

struct Chosen {
  JobSettings settings;
  void Group(const char*) {}
  template <class T>
  void Field(std::string_view name, T& value, const FieldSpec&) {
    if (std::find(std::begin(kChangeAnswers), std::end(kChangeAnswers), name) == std::end(kChangeAnswers)) return;
    if constexpr (std::is_same_v<T, std::string> || std::is_integral_v<T>)
      settings.emplace_back("--" + std::string(name), fmt::format("{}", value));
  }
};

}  // namespace

Result<JobSettings> SettingsOf(const EngineOptions& options, const std::string& model_path) {
  Chosen chosen;
  EngineOptions visited = options;
  visited.VisitFields(chosen);
  std::error_code error;
  const auto canonical = std::filesystem::weakly_canonical(model_path, error);
  chosen.settings.emplace_back("model", error ? model_path : canonical.string());
  // By what it says, not where it lies.
  std::string chat_template;
  if (!options.chat_template.empty()) {
    TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(options.chat_template, kMostTemplateBytes));
    const Hash128 hash = SipHash128({1, 2}, text.data(), text.size());
    chat_template = fmt::format("{:016x}{:016x}", hash.high, hash.low);
  }
  chosen.settings.emplace_back("--chat-template", chat_template);
  return chosen.settings;
}

JobSettings SettingsOf(const ModelInfo& model) {
  return {{"weights", model.weight_format},
          {"kernels", model.kernels},
          {"parameters", fmt::format("{}", model.num_parameters)}};
}

}  // namespace tactus::batch
