#include "offline/job/answer_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/input_file.h"

namespace tactus::offline {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostTemplateBytes = int64_t{16} << 20;

// All other options change when a token is computed, not which one.
constexpr std::string_view kChangeAnswers[] = {"served-model-name", "dtype",         "load-format",
                                               "activation-dtype",  "quantization",  "seed",
                                               "kv-cache-dtype",    "max-model-len", "default-max-tokens"};

template <class T>
constexpr bool kMayBeUnset = false;
template <class T>
constexpr bool kMayBeUnset<std::optional<T>> = true;

struct Chosen {
  JobSettings settings;
  void Group(const char*) {}
  template <class T>
  void Field(std::string_view name, T& value, const FieldSpec&) {
    if constexpr (kMayBeUnset<T>) {  // the sampling options
      settings.emplace_back("--" + std::string(name), value ? fmt::format("{}", *value) : "not given");
      return;
    }
    if (std::find(std::begin(kChangeAnswers), std::end(kChangeAnswers), name) == std::end(kChangeAnswers)) return;
    if constexpr (std::is_same_v<T, std::string> || std::is_integral_v<T>)
      settings.emplace_back("--" + std::string(name), fmt::format("{}", value));
    else if constexpr (std::is_same_v<T, std::vector<std::string>>)
      settings.emplace_back("--" + std::string(name), fmt::format("{}", fmt::join(value, ",")));
  }
};

std::string Hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

constexpr std::string_view kModelFiles[] = {".safetensors", ".gguf", ".json", ".model", ".jinja"};
constexpr int64_t kSamples = 16, kSampleBytes = int64_t{64} << 10;

// Hash of a file's length and of pieces from all parts of it: detects weights that were replaced under the same name,
// without reading large files completely.
Hash128 SampleFile(const fs::path& path, Hash128 hash) {
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return hash;  // loading the model reports it
  hash = SipHash128(hash, &bytes, sizeof bytes);
  std::string piece(static_cast<size_t>(kSampleBytes), '\0');
  for (int64_t i = 0; i < kSamples; ++i) {
    file.clear();
    file.seekg(std::max<int64_t>(0, bytes - kSampleBytes) / kSamples * i);
    file.read(piece.data(), kSampleBytes);
    hash = SipHash128(hash, piece.data(), static_cast<size_t>(file.gcount()));
  }
  return hash;
}

std::string SampleModel(const fs::path& path) {
  std::vector<fs::path> files;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (const auto& entry : fs::directory_iterator(path, error)) {
      const std::string end = entry.path().extension().string();
      if (std::find(std::begin(kModelFiles), std::end(kModelFiles), end) != std::end(kModelFiles))
        files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  Hash128 hash{1, 2};
  for (const fs::path& file : files) hash = SampleFile(file, hash);
  return Hex(hash);
}

}  // namespace

Result<JobSettings> SettingsOf(const EngineOptions& options, const std::string& model_path) {
  Chosen chosen;
  EngineOptions visited = options;
  visited.VisitFields(chosen);
  std::error_code error;
  const auto canonical = fs::weakly_canonical(model_path, error);
  chosen.settings.emplace_back("model", error ? model_path : canonical.string());
  // By its content, not its path.
  std::string chat_template;
  if (!options.chat_template.empty()) {
    TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(options.chat_template, kMostTemplateBytes));
    const Hash128 hash = SipHash128({1, 2}, text.data(), text.size());
    chat_template = Hex(hash);
  }
  chosen.settings.emplace_back("--chat-template", chat_template);
  chosen.settings.emplace_back("a model of content", SampleModel(model_path));
  return chosen.settings;
}

JobSettings SettingsOf(const ModelInfo& model) {
  return {{"weights", model.weight_format},
          {"kernels", model.kernels},
          {"parameters", fmt::format("{}", model.num_parameters)}};
}

}  // namespace tactus::offline
