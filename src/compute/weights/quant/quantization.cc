#include "compute/weights/quant/quantization.h"

#include <algorithm>

#include "base/json.h"
#include "base/printable.h"
#include "compute/weights/quant/quant_method.h"

namespace tactus::compute {
namespace {

struct NamedMethod {
  std::string_view name;  // quant_method
  QuantReader read;
};
constexpr NamedMethod kMethods[] = {{"awq", ReadAwq},        {"compressed-tensors", ReadCompressedTensors},
                                    {"fbgemm_fp8", ReadFp8}, {"fp8", ReadFp8},
                                    {"gptq", ReadGptq},      {"modelopt", ReadModelOpt},
                                    {"mxfp4", ReadMxfp4}};

// Scales of quantised activations and of KV caches, which this engine rounds in its own way.
constexpr std::string_view kUnused[] = {
    ".input_scale", ".input_scale_ub", ".activation_scale", ".input_zero_point", ".input_global_scale", ".k_scale",
    ".v_scale",     ".q_scale",        ".k_zero_point",     ".v_zero_point",     ".output_scale",       ".kv_scale",
};

// The part of `name` before `suffix`; empty: it has another end.
std::string_view ModuleOf(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string_view();
}

struct Found {
  std::string module;
  CodesName name;
};

std::vector<Found> ModulesOf(const QuantMethod& method, const TensorSet& set) {
  std::vector<Found> modules;
  for (const auto& [tensor, entry] : set.tensors) {
    if (entry.codes == CodeType::kNone) continue;
    for (const CodesName& name : method.names()) {
      const std::string_view module = ModuleOf(tensor, name.codes);
      if (!module.empty()) modules.push_back({std::string(module), name});
    }
  }
  return modules;
}

Status Replace(const QuantMethod& method, const Found& found, TensorSet* set) {
  ModuleTensors tensors(*set, found.module);
  TACTUS_ASSIGN_OR_RETURN(const MadeWeight made, method.Make(tensors, found.name.codes));
  TensorEntry entry;
  entry.dtype = made.dtype;
  entry.shape = made.shape;
  entry.data = made.codes->data;
  entry.file = made.codes->file;
  entry.rows = made.rows;
  for (const std::string& name : tensors.taken()) {
    const auto at = set->tensors.find(name);
    if (at == set->tensors.end()) continue;
    entry.bytes += at->second.bytes;
    set->tensors.erase(at);
  }
  const std::string name = found.module + std::string(found.name.weight);
  const auto [at, inserted] = set->tensors.emplace(name, std::move(entry));
  if (inserted) return Status();
  return DataLoss(at->second.file + ": tensor '" + Printable(name) + "' exists both quantised ('" +
                  Printable(found.module) + std::string(found.name.codes) + "') and as it is");
}

}  // namespace

const TensorEntry* ModuleTensors::Find(std::string_view suffix) {
  const std::string name = Name(suffix);
  const TensorEntry* const found = set_.Find(name);
  if (found == nullptr) return nullptr;
  taken_.push_back(name);
  if (file_.empty()) file_ = found->file;
  return found;
}

Status ModuleTensors::Wrong(std::string_view suffix, const TensorEntry& tensor, const std::string& what) const {
  return DataLoss(tensor.file + ": tensor '" + Printable(Name(suffix)) + "' is " + ElementName(tensor) + " " +
                  ShapeText(tensor.shape) + "; expected " + what);
}

Result<const TensorEntry*> ModuleTensors::Get(std::string_view suffix, std::initializer_list<std::string_view> types,
                                              const std::vector<int64_t>& shape) {
  std::string expected;
  for (const std::string_view type : types) {
    expected += (expected.empty() ? "" : type == *(types.end() - 1) ? " or " : ", ") + std::string(type);
  }
  expected += " [";
  for (size_t i = 0; i < shape.size(); ++i) {
    expected += (i > 0 ? ", " : "") + (shape[i] < 0 ? "any" : std::to_string(shape[i]));
  }
  expected += "]";
  const TensorEntry* const t = Find(suffix);
  if (t == nullptr) {
    return DataLoss(file_ + ": tensor '" + Printable(Name(suffix)) + "' (" + expected +
                    ") is missing beside the other tensors of '" + Printable(module_) + "'");
  }
  const bool fits = std::equal(shape.begin(), shape.end(), t->shape.begin(), t->shape.end(),
                               [](int64_t want, int64_t is) { return want < 0 || want == is; });
  if (t->bytes == 0) return Wrong(suffix, *t, expected + ", not empty");
  if (!fits || std::find(types.begin(), types.end(), ElementName(*t)) == types.end())
    return Wrong(suffix, *t, expected);
  return t;
}

Result<std::shared_ptr<const QuantMethod>> ReadQuantization(std::string_view config_json, const std::string& path) {
  const std::shared_ptr<const QuantMethod> none;
  TACTUS_ASSIGN_OR_RETURN(const auto object, ParseJsonObject(config_json, path));
  JsonFields json(*object, path);
  const SortedJson* config = json.Object("quantization_config|compression_config");
  const SortedJson* const text = json.Object("text_config");
  std::string prefix = "quantization_config.";
  TACTUS_RETURN_IF_ERROR(json.status());
  if (config == nullptr && text != nullptr) {
    JsonFields inner(*text, path, "text_config.");
    config = inner.Object("quantization_config");
    prefix = "text_config." + prefix;
    TACTUS_RETURN_IF_ERROR(inner.status());
  }
  if (config == nullptr) return none;
  JsonFields fields(*config, path, prefix);
  const std::string name = fields.String("quant_method").value_or("");
  TACTUS_RETURN_IF_ERROR(fields.status());
  std::string known;
  for (const NamedMethod& method : kMethods) {
    known += (known.empty() ? "" : ", ") + std::string(method.name);
    if (method.name != name) continue;
    auto read = method.read(fields);
    TACTUS_RETURN_IF_ERROR(fields.status());
    return read;
  }
  return Unimplemented(path + ": '" + prefix + "quant_method' is " +
                       (name.empty() ? std::string("missing") : "'" + Printable(name) + "'") + "; supported are " +
                       known + "; or use the unquantised model or a GGUF file");
}

std::string QuantizationText(const QuantMethod& method) {
  return method.text();
}

Status ApplyQuantization(const QuantMethod& method, TensorSet* set) {
  set->quantization = method.text();
  for (const Found& found : ModulesOf(method, *set)) TACTUS_RETURN_IF_ERROR(Replace(method, found, set));
  std::erase_if(set->tensors, [](const auto& item) {
    return std::any_of(std::begin(kUnused), std::end(kUnused),
                       [&](std::string_view suffix) { return item.first.ends_with(suffix); });
  });
  return Status();
}

}  // namespace tactus::compute
