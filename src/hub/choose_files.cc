#include "hub/choose_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "base/json.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "hub/file_names.h"
#include "hub/size_text.h"

namespace tactus::hub {
namespace {

constexpr const char* kSafetensors = "safetensors";
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kMostListed = 40;

// A GGUF model: one file, or the parts of a split one.
struct GgufModel {
  std::string stem;  // path without part number and ".gguf"
  int parts = 1;     // as the names say
  std::vector<std::string> files;
  int64_t bytes = 0;  // -1: not known
};

bool IsGgufModel(std::string_view path) {
  const std::string name = Lower(FileName(path));
  return name.ends_with(".gguf") && name.find("mmproj") == std::string::npos &&
         name.find("imatrix") == std::string::npos;
}

std::vector<GgufModel> GgufModels(const std::vector<RepositoryFile>& files) {
  std::map<std::string, GgufModel> models;
  for (const RepositoryFile& file : files) {
    if (!IsGgufModel(file.path)) continue;
    const auto split = SplitPartOf(file.path);
    const std::string stem = split ? split->stem : file.path.substr(0, file.path.size() - 5);
    GgufModel& model = models[split ? fmt::format("{}/{}", stem, split->parts) : stem];
    model.stem = stem;
    model.parts = split ? split->parts : 1;
    model.files.push_back(file.path);
    model.bytes = file.bytes < 0 || model.bytes < 0 ? -1 : model.bytes + file.bytes;
  }
  std::vector<GgufModel> found;
  for (auto& [key, model] : models) {
    std::sort(model.files.begin(), model.files.end());
    found.push_back(std::move(model));
  }
  return found;
}

bool Has(const std::vector<RepositoryFile>& files, std::string_view path) {
  return std::any_of(files.begin(), files.end(), [path](const RepositoryFile& f) { return f.path == path; });
}

bool HasSafetensors(const std::vector<RepositoryFile>& files) {
  return Has(files, "config.json") && (Has(files, kSingleFile) || Has(files, kIndexFile));
}

bool IsTextOfModel(const std::string& path) {
  static const std::set<std::string, std::less<>> kNames = {"config.json",
                                                            "generation_config.json",
                                                            "special_tokens_map.json",
                                                            "added_tokens.json",
                                                            "vocab.json",
                                                            "vocab.txt",
                                                            "merges.txt",
                                                            "tekken.json",
                                                            kIndexFile};
  if (path.starts_with("additional_chat_templates/")) return path.ends_with(".jinja");
  if (path.find('/') != std::string::npos) return false;
  return kNames.count(path) > 0 || path.starts_with("tokenizer") || path.starts_with("chat_template") ||
         path.ends_with(".tiktoken");
}

ModelFiles SafetensorsFiles(const std::vector<RepositoryFile>& files) {
  ModelFiles chosen;
  chosen.format = kSafetensors;
  for (const RepositoryFile& file : files) {
    if (IsTextOfModel(file.path)) chosen.texts.push_back(file.path);
  }
  // As the reader of weights: the single file comes first.
  if (Has(files, kSingleFile)) {
    chosen.weights = {kSingleFile};
    std::erase(chosen.texts, kIndexFile);
  } else {
    chosen.index = kIndexFile;
  }
  return chosen;
}

Result<ModelFiles> GgufFiles(const GgufModel& model, const std::string& name) {
  ModelFiles chosen;
  chosen.format = "gguf";
  chosen.weights = model.files;
  chosen.load = model.files.front();
  if (model.parts == 1 && model.files.size() == 1) return chosen;
  for (int part = 1; part <= model.parts; ++part) {
    const std::string wanted = NameOfPart({model.stem, part, model.parts}, part);
    if (std::find(model.files.begin(), model.files.end(), wanted) == model.files.end()) {
      return NotFound(fmt::format("{} lacks {}: its model has {} parts", name, Printable(wanted), model.parts),
                      "model");
    }
  }
  return chosen;
}

bool IsQuantisation(const std::string& low) {
  if (low == "f16" || low == "f32" || low == "bf16" || low.starts_with("mxfp4") || low.starts_with("nvfp4"))
    return true;
  const size_t q = low[0] == 'i' || low[0] == 't' ? 1 : 0;  // q4_k_m, iq4_xs, tq1_0
  return low.size() > q + 1 && low[q] == 'q' && std::isdigit(static_cast<unsigned char>(low[q + 1])) != 0;
}

// "Q4_K_M" of "model-Q4_K_M" and "UD-Q4_K_XL" of "model-UD-Q4_K_XL"; empty: the name ends in no quantisation.
std::string QuantisationOf(std::string_view stem) {
  const size_t at = stem.find_last_of("-./");
  if (at == std::string_view::npos || at + 1 == stem.size()) return "";
  std::string_view last = stem.substr(at + 1);
  if (!IsQuantisation(Lower(last))) return "";
  constexpr std::string_view kDynamic = "-UD";
  if (stem.substr(0, at).ends_with(kDynamic)) last = stem.substr(at - kDynamic.size() + 1);
  return std::string(last);
}

bool EndsInWord(const std::string& text, const std::string& word) {
  if (!text.ends_with(word)) return false;
  return text.size() == word.size() ||
         std::string_view("-._/").find(text[text.size() - word.size() - 1]) != std::string_view::npos;
}

// How well a selector names the model: 4 its path or a part's, 3 its name, 2 its quantisation or folder, 1 the last
// words of its name, 0 not at all.
int Match(const GgufModel& model, const std::string& selector) {
  const std::string wanted = Lower(selector), stem = Lower(model.stem);
  for (const std::string& file : model.files) {
    if (Lower(file) == wanted) return 4;
    if (Lower(FileName(file)) == wanted) return 3;
  }
  if (stem == wanted) return 4;
  if (FileName(stem) == wanted) return 3;
  const size_t slash = stem.rfind('/');
  if (Lower(QuantisationOf(model.stem)) == wanted) return 2;
  if (slash != std::string::npos && stem.substr(0, slash) == wanted) return 2;
  return EndsInWord(stem, wanted) ? 1 : 0;
}

std::vector<GgufModel> BestMatches(const std::vector<GgufModel>& models, const std::string& selector) {
  int best = 1;
  for (const GgufModel& model : models) best = std::max(best, Match(model, selector));
  std::vector<GgufModel> matches;
  for (const GgufModel& model : models) {
    if (Match(model, selector) == best) matches.push_back(model);
  }
  return matches;
}

// The selector of each model: its quantisation where that is enough, else its path.
std::vector<std::string> SelectorsOf(const std::vector<GgufModel>& models) {
  std::vector<std::string> selectors;
  for (const GgufModel& model : models) {
    const std::string quantisation = QuantisationOf(model.stem);
    const bool enough = !quantisation.empty() && BestMatches(models, quantisation).size() == 1;
    selectors.push_back(enough ? quantisation : model.files.front());
  }
  return selectors;
}

std::string ListOf(const std::vector<GgufModel>& models, bool safetensors) {
  std::string text = safetensors ? "safetensors" : "";
  const std::vector<std::string> selectors = SelectorsOf(models);
  for (size_t i = 0; i < models.size(); ++i) {
    if (i == kMostListed) return text + fmt::format(" and {} more", models.size() - i);
    text += (text.empty() ? "" : ", ") + Printable(selectors[i]);
    if (models[i].bytes >= 0) text += " (" + SizeText(models[i].bytes) + ")";
  }
  return text;
}

Status NoWeights(const std::vector<RepositoryFile>& files, const std::string& model) {
  std::string others;
  for (const RepositoryFile& file : files) {
    const std::string name = Lower(file.path);
    const bool weights = name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth") ||
                         name.ends_with(".safetensors") || name.ends_with(".onnx");
    if (weights && others.size() < 200) others += (others.empty() ? "" : ", ") + Printable(file.path);
  }
  return NotFound(
      fmt::format("{} has no model that can be loaded: neither a .gguf file nor config.json with {} or {}{}", model,
                  kSingleFile, kIndexFile, others.empty() ? "" : "; it has " + others),
      "model");
}

}  // namespace

Result<ModelFiles> ChooseFiles(const std::vector<RepositoryFile>& files, const std::string& selector,
                               const std::string& model) {
  const std::vector<GgufModel> models = GgufModels(files);
  const bool safetensors = HasSafetensors(files);
  if (models.empty() && !safetensors) return NoWeights(files, model);
  const std::string wanted = Lower(selector);
  if (safetensors && (wanted == kSafetensors || wanted == kSingleFile || (selector.empty() && models.empty())))
    return SafetensorsFiles(files);
  if (selector.empty()) {
    if (models.size() == 1 && !safetensors) return GgufFiles(models[0], model);
    return InvalidArgument(
        fmt::format("{} has several models: add one of these after a ':': {}", model, ListOf(models, safetensors)),
        "model");
  }
  const std::vector<GgufModel> matches = BestMatches(models, selector);
  if (matches.size() == 1) return GgufFiles(matches[0], model);
  if (matches.empty()) {
    return NotFound(fmt::format("{} has nothing that '{}' names; it has {}", model, Printable(selector),
                                ListOf(models, safetensors)),
                    "model");
  }
  return InvalidArgument(
      fmt::format("in {} '{}' names several models: {}", model, Printable(selector), ListOf(matches, false)), "model");
}

Result<std::vector<std::string>> WeightsOfIndex(const std::string& text, const std::string& path) {
  const auto json = json_text::ParseSortedJson(text);
  if (!json.ok()) return DataLoss(path + ": " + json.status().message());
  const auto map = json->is_object() ? json->find("weight_map") : json->end();
  if (map == json->end() || !map->is_object()) return DataLoss(path + " has no object 'weight_map'");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !IsSafePath(file.get<std::string>())) {
      return DataLoss(fmt::format("{}: the file of tensor '{}' is no path in the repository", path, Printable(tensor)));
    }
    names.insert(file.get<std::string>());
  }
  if (names.empty()) return DataLoss(path + " names no file of weights");
  return std::vector<std::string>(names.begin(), names.end());
}

std::vector<ListedChoice> AllModels(const std::vector<RepositoryFile>& files) {
  std::vector<ListedChoice> all;
  const std::vector<GgufModel> models = GgufModels(files);
  const std::vector<std::string> selectors = SelectorsOf(models);
  if (HasSafetensors(files)) all.push_back({models.empty() ? "" : kSafetensors, SafetensorsFiles(files)});
  for (size_t i = 0; i < models.size(); ++i) {
    ModelFiles chosen;
    chosen.format = "gguf";
    chosen.weights = models[i].files;
    chosen.load = models[i].files.front();
    all.push_back({selectors[i], std::move(chosen)});
  }
  return all;
}

}  // namespace tactus::hub
