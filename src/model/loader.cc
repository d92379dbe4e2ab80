#include "model/loader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "kernels/dequantize.h"
#include "model/architecture.h"
#include "model/dummy_weights.h"
#include "model/gguf_config.h"
#include "model/hf_config.h"
#include "model/json_fields.h"
#include "model/safetensors.h"
#include "model/weight_builder.h"
#include "model/weight_storage.h"

namespace tactus {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsGguf(std::span<const std::byte> bytes) { return bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0; }

// A file that need not be there.
Status ReadOptional(const std::string& path, int64_t limit_bytes, std::string* text) {
  if (!Exists(path)) return Status();
  TACTUS_ASSIGN_OR_RETURN(*text, ReadSmallFile(path, limit_bytes));
  return Status();
}

// "chat_template" is a string, or a list of {name, template} of which "default" counts.
Status ChatTemplateOf(const std::string& json_text, const std::string& path, std::string* chat_template) {
  if (json_text.empty()) return Status();
  TACTUS_ASSIGN_OR_RETURN(const auto object, ParseJsonObject(json_text, path));
  const auto it = object->find("chat_template");
  if (it == object->end() || it->is_null()) return Status();
  if (it->is_string()) {
    *chat_template = it->get<std::string>();
    return Status();
  }
  if (!it->is_array()) return DataLoss(path + ": 'chat_template' is neither a string nor a list");
  for (const nlohmann::json& entry : *it) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") || !entry["name"].is_string() ||
        !entry["template"].is_string()) {
      return DataLoss(path + ": 'chat_template' holds an entry that is not {name, template}");
    }
    if (entry["name"] == "default") *chat_template = entry["template"].get<std::string>();
  }
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
    auto& format = formats[tensor.dtype];
    format.dtype = tensor.dtype;
    ++format.tensors;
    format.bytes += tensor.bytes;
  }
  for (const auto& [dtype, format] : formats) d->tensor_formats.push_back(format);
  std::sort(d->tensor_formats.begin(), d->tensor_formats.end(), [](const auto& a, const auto& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.dtype < b.dtype;
  });
}

Result<ModelDescription> DescribeHuggingFace(const std::string& folder, const std::string& config_path) {
  ModelDescription d;
  d.source = ModelDescription::Source::kHuggingFace;
  d.path = fs::path(config_path).filename() == "config.json" ? folder : config_path;
  TACTUS_ASSIGN_OR_RETURN(const std::string config_text, ReadSmallFile(config_path, kMaxConfigBytes));
  TACTUS_ASSIGN_OR_RETURN(d.config, ConfigFromJson(config_text, config_path));
  d.config.name = d.path == folder ? NameOfFolder(folder) : fs::path(config_path).stem().string();
  if (d.path != folder) {
    d.weights_status = NotFound(config_path + " is a configuration without weights; --load-format dummy makes some");
    return d;
  }

  std::string generation, jinja, template_json;
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/generation_config.json", kMaxConfigBytes, &generation));
  if (!generation.empty()) {
    TACTUS_RETURN_IF_ERROR(ApplyGenerationConfig(generation, folder + "/generation_config.json", &d.config));
  }
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/tokenizer.json", kMaxTokenizerBytes, &d.tokenizer_json));
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/tokenizer.model", kMaxTokenizerBytes, &d.tokenizer_model));
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/tokenizer_config.json", kMaxConfigBytes, &d.tokenizer_config_json));
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/chat_template.json", kMaxConfigBytes, &template_json));
  TACTUS_RETURN_IF_ERROR(ReadOptional(folder + "/chat_template.jinja", kMaxConfigBytes, &jinja));
  // In transformers' order of precedence, the last wins.
  TACTUS_RETURN_IF_ERROR(ChatTemplateOf(d.tokenizer_config_json, folder + "/tokenizer_config.json", &d.chat_template));
  TACTUS_RETURN_IF_ERROR(ChatTemplateOf(template_json, folder + "/chat_template.json", &d.chat_template));
  if (!jinja.empty()) d.chat_template = jinja;

  Result<TensorSet> tensors = OpenSafetensorsFolder(folder);
  if (!tensors.ok()) {
    if (tensors.status().code() != StatusCode::kNotFound) return tensors.status();
    d.weights_status = tensors.status();
    return d;
  }
  for (const auto& file : tensors->files) d.weight_file_bytes += static_cast<int64_t>(file->bytes().size());
  DescribeTensors(tensors->tensors, &d);
  if (!d.tensor_formats.empty()) d.config.weight_dtype = d.tensor_formats[0].dtype;   // the files, not what config.json says
  return d;
}

Result<ModelDescription> DescribeGguf(const std::string& path, const MappedFile& file) {
  TACTUS_ASSIGN_OR_RETURN(const GgufFile gguf, ParseGguf(file.bytes(), path));
  ModelDescription d;
  d.source = ModelDescription::Source::kGguf;
  d.path = path;
  d.weight_file_bytes = static_cast<int64_t>(file.bytes().size());
  TACTUS_ASSIGN_OR_RETURN(d.config, ConfigFromGguf(gguf));
  if (d.config.name.empty()) d.config.name = fs::path(path).stem().string();
  TACTUS_RETURN_IF_ERROR(TokenizerFromGguf(gguf, d.config.vocab_size, &d));
  DescribeTensors(gguf.tensors, &d);
  return d;
}

Result<ModelDescription> DescribeFolder(const std::string& folder) {
  const std::string config = folder + "/config.json";
  if (Exists(config)) return DescribeHuggingFace(folder, config);
  std::vector<std::string> gguf_files;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    if (it->path().extension() == ".gguf") gguf_files.push_back(it->path().string());
  }
  if (error) return InvalidArgument("cannot read folder " + folder + ": " + error.message());
  if (gguf_files.size() == 1) return DescribeModel(gguf_files[0]);
  if (gguf_files.empty()) return NotFound(folder + " holds neither config.json nor a .gguf file");
  return InvalidArgument(folder + " holds " + std::to_string(gguf_files.size()) + " .gguf files; name one of them");
}

// Weights out of files: checks each tensor against the config, views or converts it, and knows which were used.
class FileSource final : public WeightSource {
 public:
  FileSource(const TensorSet& tensors, const std::string& path, bool dequantize)
      : tensors_(tensors), path_(path), dequantize_(dequantize), storage_(std::make_shared<WeightStorage>()) {
    if (dequantize_) return;   // everything is copied: the mapping may go
    for (const auto& file : tensors.files) storage_->Keep(file);
  }

  Result<MatrixView> Matrix(const std::string& name, int64_t rows, int64_t cols) override {
    const int64_t shape[] = {rows, cols};
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const t, Take(name, shape));
    MatrixView view{t->data, t->dtype, rows, cols, RowBytes(t->dtype, cols)};
    if (dequantize_) {
      TACTUS_ASSIGN_OR_RETURN(float* const values, ToF32(name, *t, rows * cols));
      view = {values, DType::kF32, rows, cols, cols * 4};
    } else if (reinterpret_cast<uintptr_t>(t->data) % AlignmentOf(t->dtype) != 0) {
      std::byte* copy = storage_->Allocate(t->bytes);   // safetensors promises no alignment
      if (copy == nullptr) return NoMemory(name, t->bytes);
      std::memcpy(copy, t->data, static_cast<size_t>(t->bytes));
      view.data = copy;
    }
    bytes_ += rows * view.row_bytes;
    return view;
  }

  Result<const float*> Vector(const std::string& name, int64_t size, bool) override {
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const t, Take(name, {&size, 1}));
    if (InfoOf(t->dtype).block_elements != 1) {
      return DataLoss(t->file + ": tensor '" + name + "' is " + InfoOf(t->dtype).name +
                      "; norms and biases are f32, f16 or bf16");
    }
    TACTUS_ASSIGN_OR_RETURN(float* const values, ToF32(name, *t, size));
    bytes_ += size * 4;
    return static_cast<const float*>(values);
  }

  // A tensor that nothing reads means that the model is not what its config says: a wrong answer, if it were ignored.
  Status CheckAllUsed(const TensorNames& names, bool tied) const {
    for (const auto& [name, tensor] : tensors_.tensors) {
      if (used_.contains(name) || (tied && name == names.lm_head)) continue;
      const bool ignored = std::any_of(names.ignored.begin(), names.ignored.end(),
                                       [&](std::string_view suffix) { return std::string_view(name).ends_with(suffix); });
      if (ignored) continue;
      return DataLoss(tensor.file + ": tensor '" + Printable(name) + "' " + ShapeText(tensor.shape) +
                      " has no place in the architecture and shape that the configuration describes");
    }
    return Status();
  }

  void Finish(ModelWeights* weights) {
    weights->bytes = bytes_;
    weights->format = FormatText({counts_.begin(), counts_.end()});
    if (dequantize_) weights->format = "f32 from " + weights->format;
    weights->storage = storage_;
  }

 private:
  static size_t AlignmentOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }   // block formats hold f16 scales

  static Status NoMemory(const std::string& name, int64_t bytes) {
    return Status(StatusCode::kResourceExhausted,
                  "no memory for tensor '" + Printable(name) + "' (" + std::to_string(bytes) + " bytes)");
  }

  Result<const TensorEntry*> Take(const std::string& name, std::span<const int64_t> shape) {
    const TensorEntry* t = tensors_.Find(name);
    if (t == nullptr) {
      return DataLoss(path_ + ": tensor '" + name + "' " + ShapeText(shape) + " is missing");
    }
    if (!std::equal(shape.begin(), shape.end(), t->shape.begin(), t->shape.end())) {
      return DataLoss(t->file + ": tensor '" + name + "' is " + InfoOf(t->dtype).name + " " + ShapeText(t->shape) +
                      ", the configuration expects " + ShapeText(shape));
    }
    if (used_.insert(name).second) ++counts_[t->dtype];
    return t;
  }

  Result<float*> ToF32(const std::string& name, const TensorEntry& t, int64_t elements) {
    auto* values = reinterpret_cast<float*>(storage_->Allocate(elements * 4));
    if (values == nullptr) return NoMemory(name, elements * 4);
    kernels::Dequantize(t.dtype, t.data, elements, values);
    return values;
  }

  const TensorSet& tensors_;
  const std::string& path_;
  bool dequantize_;
  std::shared_ptr<WeightStorage> storage_;
  std::set<std::string, std::less<>> used_;
  std::map<DType, int64_t> counts_;
  int64_t bytes_ = 0;
};

Result<TensorSet> OpenTensors(const ModelDescription& d) {
  if (d.source == ModelDescription::Source::kHuggingFace) return OpenSafetensorsFolder(d.path);
  TACTUS_ASSIGN_OR_RETURN(auto file, MappedFile::Open(d.path));
  TACTUS_ASSIGN_OR_RETURN(GgufFile gguf, ParseGguf(file->bytes(), d.path));
  TensorSet set;
  set.files.push_back(std::move(file));
  set.tensors = std::move(gguf.tensors);
  return set;
}

}  // namespace

Result<ModelDescription> DescribeModel(const std::string& path) {
  std::error_code error;
  if (path.empty()) return InvalidArgument("the model's path is empty", "model");
  if (fs::is_directory(path, error)) {
    std::string folder = path;
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    return DescribeFolder(folder);
  }
  TACTUS_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  if (IsGguf(file->bytes())) return DescribeGguf(path, *file);
  if (path.ends_with(".json")) {
    const std::string parent = fs::path(path).parent_path().string();
    return DescribeHuggingFace(parent.empty() ? "." : parent, path);
  }
  if (path.ends_with(".gguf")) return DescribeGguf(path, *file);   // says what is wrong with it
  return InvalidArgument(path + " is neither a GGUF file, a config.json nor a Hugging Face folder", "model");
}

Result<ModelWeights> LoadWeights(const ModelDescription& d, const LoadWeightsOptions& options) {
  if (options.dummy) {
    return MakeDummyWeights(d.config, options.seed, options.dequantize_to_f32 ? DType::kF32 : options.dummy_dtype);
  }
  TACTUS_RETURN_IF_ERROR(d.weights_status);
  TACTUS_RETURN_IF_ERROR(ValidateConfig(d.config));
  const Architecture* a = FindArchitecture(d.config.architecture);
  if (a == nullptr) return Unimplemented("architecture '" + d.config.architecture + "' is not supported");
  const TensorNames& names = d.source == ModelDescription::Source::kGguf ? *a->gguf_names : *a->hf_names;
  TACTUS_ASSIGN_OR_RETURN(const TensorSet tensors, OpenTensors(d));

  FileSource source(tensors, d.path, options.dequantize_to_f32);
  ModelWeights weights;
  TACTUS_RETURN_IF_ERROR(BuildWeights(d.config, names, source, &weights));
  TACTUS_RETURN_IF_ERROR(source.CheckAllUsed(names, d.config.tie_embeddings));
  source.Finish(&weights);
  return weights;
}

}  // namespace tactus
