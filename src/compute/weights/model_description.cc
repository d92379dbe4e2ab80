#include "compute/weights/model_description.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/json.h"
#include "compute/config/architecture.h"
#include "compute/config/hf_config.h"
#include "compute/config/json_fields.h"
#include "compute/weights/gguf_config.h"
#include "compute/weights/gguf_split.h"
#include "compute/weights/quant/quantization.h"
#include "compute/weights/safetensors.h"

namespace tactus::compute {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsGguf(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
}

// An optional file.
Status ReadOptional(const std::string& path, int64_t limit_bytes, std::string* text) {
  if (!Exists(path)) return Status();
  TACTUS_ASSIGN_OR_RETURN(*text, ReadSmallFile(path, limit_bytes));
  return Status();
}

// Keeps the named templates that transformers selects by default.
void TakeTemplate(const std::string& name, const std::string& source, ModelDescription* d) {
  if (name == "default") d->chat_template = source;
  if (name == "tool_use") d->tool_use_template = source;
}

// "chat_template" is a string, a list of {name, template}, or an object of templates by name. It replaces earlier ones.
Status ChatTemplateOf(const std::string& json_text, const std::string& path, ModelDescription* d) {
  if (json_text.empty()) return Status();
  TACTUS_ASSIGN_OR_RETURN(const auto object, ParseJsonObject(json_text, path));
  const auto it = object->find("chat_template");
  if (it == object->end() || it->is_null()) return Status();
  d->chat_template.clear();
  d->tool_use_template.clear();
  if (it->is_string()) {
    d->chat_template = it->get<std::string>();
    return Status();
  }
  if (it->is_object()) {
    for (const auto& [name, source] : it->items()) {
      if (!source.is_string()) return DataLoss(path + ": 'chat_template' has '" + name + "', which is no string");
      TakeTemplate(name, source.get<std::string>(), d);
    }
    return Status();
  }
  if (!it->is_array()) return DataLoss(path + ": 'chat_template' is no string, list or object");
  for (const SortedJson& entry : *it) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") || !entry["name"].is_string() ||
        !entry["template"].is_string()) {
      return DataLoss(path + ": 'chat_template' holds an entry that is not {name, template}");
    }
    TakeTemplate(entry["name"].get<std::string>(), entry["template"].get<std::string>(), d);
  }
  return Status();
}

// In transformers' order of precedence: separate files override JSON files.
Status ReadChatTemplates(const std::string& folder, ModelDescription* d) {
  std::string template_json, jinja, tool_use;
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/chat_template.json", kMaxConfigBytes, &template_json));
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/chat_template.jinja", kMaxConfigBytes, &jinja));
  TACTUS_RETURN_IF_ERROR(
      ReadOptional(folder + "/additional_chat_templates/tool_use.jinja", kMaxConfigBytes, &tool_use));
  TACTUS_RETURN_IF_ERROR(ChatTemplateOf(d->tokenizer_config_json, folder + "/tokenizer_config.json", d));
  TACTUS_RETURN_IF_ERROR(ChatTemplateOf(template_json, folder + "/chat_template.json", d));
  if (!jinja.empty()) d->chat_template = jinja;
  if (!jinja.empty() || !tool_use.empty()) d->tool_use_template = tool_use;
  return Status();
}

// The folder's name; in the Hugging Face cache (models--org--name/snapshots/<commit>) the model's.
std::string NameOfFolder(const std::string& folder) {
  std::error_code error;
  fs::path path = fs::absolute(folder, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  constexpr std::string_view kCachePrefix = "models--";
  const std::string cached = path.parent_path().parent_path().filename().string();
  if (path.parent_path().filename() == "snapshots" && cached.starts_with(kCachePrefix)) {
    std::string name = cached.substr(kCachePrefix.size());
    if (const size_t dashes = name.find("--"); dashes != std::string::npos) name.replace(dashes, 2, "/");
    return name;
  }
  return path.filename().string();
}

void DescribeTensors(const std::map<std::string, TensorEntry, std::less<>>& tensors, ModelDescription* d) {
  std::map<DType, ModelDescription::TensorFormat> formats;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.codes != CodeType::kNone) continue;  // no weight: opening the weights names it
    auto& format = formats[tensor.dtype];
    format.dtype = tensor.dtype;
    ++format.tensors;
    format.bytes += tensor.bytes;
  }
  for (const auto& [dtype, format] : formats) d->tensor_formats.push_back(format);
  std::sort(d->tensor_formats.begin(), d->tensor_formats.end(),
            [](const auto& a, const auto& b) { return a.bytes != b.bytes ? a.bytes > b.bytes : a.dtype < b.dtype; });
}

// The format of most bytes; of a quantised model among the quantised weights, which may be fewer than the embedding.
DType MostBytes(const TensorSet& set, DType otherwise) {
  std::map<DType, int64_t> bytes[2];
  for (const auto& [name, tensor] : set.tensors) {
    if (tensor.codes == CodeType::kNone) bytes[tensor.rows != nullptr ? 1 : 0][tensor.dtype] += tensor.bytes;
  }
  const auto& of = bytes[1].empty() ? bytes[0] : bytes[1];
  const auto most =
      std::max_element(of.begin(), of.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == of.end() ? otherwise : most->first;
}

Result<ModelDescription> DescribeHuggingFace(const std::string& folder, const std::string& config_path) {
  ModelDescription d;
  d.source = ModelDescription::Source::kHuggingFace;
  d.path = fs::path(config_path).filename() == "config.json" ? folder : config_path;
  TACTUS_ASSIGN_OR_RETURN(const std::string config_text, ReadSmallFile(config_path, kMaxConfigBytes));
  TACTUS_ASSIGN_OR_RETURN(d.config, ConfigFromJson(config_text, config_path));
  TACTUS_ASSIGN_OR_RETURN(d.quantization, ReadQuantization(config_text, config_path));
  d.config.name = d.path == folder ? NameOfFolder(folder) : fs::path(config_path).stem().string();
  if (d.path != folder) {
    d.weights_status = NotFound(config_path + " is a configuration without weights; --load-format dummy makes some");
    return d;
  }

  std::string generation;
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/generation_config.json", kMaxConfigBytes, &generation));
  if (!generation.empty()) {
    TACTUS_RETURN_IF_ERROR(ApplyGenerationConfig(generation, folder + "/generation_config.json", &d.config));
  }
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/tokenizer.json", kMaxTokenizerBytes, &d.tokenizer_json));
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/tokenizer.model", kMaxTokenizerBytes, &d.tokenizer_model));
  if (d.tokenizer_json.empty() && d.tokenizer_model.empty()) {
    TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/tekken.json", kMaxTokenizerBytes, &d.tekken_json));
  }
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/tokenizer_config.json", kMaxConfigBytes, &d.tokenizer_config_json));
  TACTUS_RETURN_IF_ERROR(ReadChatTemplates(folder, &d));

  Result<TensorSet> tensors = OpenSafetensorsFolder(folder);
  if (!tensors.ok()) {
    if (tensors.status().code() != StatusCode::kNotFound) return tensors.status();
    d.weights_status = tensors.status();
    return d;
  }
  if (d.config.text_part) {
    tensors->KeepText();
    // What the whole states of its output matrix is often a default.
    const std::string output = FindArchitecture(d.config.architecture)->hf_names->Name(Role::kLmHead);
    if (tensors->Find(output) != nullptr) d.config.tie_embeddings = false;
  }
  for (const auto& file : tensors->files) d.weight_file_bytes += static_cast<int64_t>(file->bytes().size());
  if (d.quantization != nullptr) TACTUS_RETURN_IF_ERROR(ApplyQuantization(*d.quantization, &*tensors));
  DescribeTensors(tensors->tensors, &d);
  d.config.weight_dtype = MostBytes(*tensors, d.config.weight_dtype);  // not config.json's
  return d;
}

Result<ModelDescription> DescribeGguf(const std::string& path, std::shared_ptr<const MappedFile> file) {
  TACTUS_ASSIGN_OR_RETURN(const GgufModel model, OpenGguf(std::move(file)));
  const GgufFile& gguf = model.gguf;
  ModelDescription d;
  d.source = ModelDescription::Source::kGguf;
  d.path = path;
  for (const auto& part : model.files) d.weight_file_bytes += static_cast<int64_t>(part->bytes().size());
  TACTUS_ASSIGN_OR_RETURN(d.config, ConfigFromGguf(gguf));
  if (d.config.name.empty()) d.config.name = GgufModelName(path);
  TACTUS_RETURN_IF_ERROR(TokenizerFromGguf(gguf, d.config.vocab_size, &d));
  DescribeTensors(gguf.tensors, &d);
  return d;
}

Result<ModelDescription> DescribeFolder(const std::string& folder) {
  const std::string config = folder + "/config.json";
  if (Exists(config)) return DescribeHuggingFace(folder, config);
  std::vector<std::string> gguf_files;
  std::string later_part;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string path = it->path().string();
    if (it->path().extension() != ".gguf") continue;
    if (IsLaterGgufPart(path)) {
      later_part = path;
    } else {
      gguf_files.push_back(path);
    }
  }
  if (error) return InvalidArgument("cannot read folder " + folder + ": " + error.message());
  if (gguf_files.size() == 1) return DescribeModel(gguf_files[0]);
  if (gguf_files.empty() && !later_part.empty()) return DescribeModel(later_part);  // names the first part
  if (gguf_files.empty())
    return NotFound(folder + " holds neither config.json nor a .gguf file; name the folder or the file of a model");
  return InvalidArgument(folder + " holds " + std::to_string(gguf_files.size()) + " .gguf files; name one of them");
}

}  // namespace

Result<ModelDescription> DescribeModel(const std::string& path) {
  std::error_code error;
  if (path.empty())
    return InvalidArgument("the model's path is empty; name a .gguf file or a Hugging Face folder", "model");
  if (fs::is_directory(path, error)) {
    std::string folder = path;
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    return DescribeFolder(folder);
  }
  TACTUS_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  if (IsGguf(file->bytes())) return DescribeGguf(path, file);
  if (path.ends_with(".json")) {
    const std::string parent = fs::path(path).parent_path().string();
    return DescribeHuggingFace(parent.empty() ? "." : parent, path);
  }
  if (path.ends_with(".gguf")) return DescribeGguf(path, file);  // reports the error in the file
  return InvalidArgument(path + " is neither a GGUF file, a config.json nor a Hugging Face folder; name one of these",
                         "model");
}

}  // namespace tactus::compute
