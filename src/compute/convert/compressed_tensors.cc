#include "compute/convert/compressed_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace tactus::compute {
namespace {

constexpr IntegerForm kIntegerForms[] = {
    {.name = "w8a16"},
    {.name = "w8a8", .packed = false, .activations = true},
    {.name = "w4a16", .bits = 4, .group = 128, .read_as = DType::kI4_BF16},
};
constexpr int64_t kNarrowestGroup = 32;  // columns; readers have no kernels for narrower ones
constexpr std::string_view kWeight = ".weight";

// Matrices of layers that transformers makes of its class Linear: not the embedding, those of all experts in one
// tensor, or transposed ones (GPT-2). The output matrix and those that choose experts are too sensitive.
bool IsLinear(const PlannedTensor& t) {
  if (!t.is_matrix || t.stacked > 0 || t.transposed || !t.name.ends_with(kWeight)) return false;
  const ModelTensor& of = t.parts[0].to.tensor;
  return of.layer >= 0 && !IsRouting(of.role);
}

std::string ModuleOfTensor(std::string_view name) {
  return std::string(name.substr(0, name.size() - kWeight.size()));
}

bool Fits(const IntegerForm& form, const PlannedTensor& t) {
  return IsLinear(t) && (form.group == 0 || t.cols % kNarrowestGroup == 0);
}

}  // namespace

const IntegerForm* FindIntegerForm(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kIntegerForms), std::end(kIntegerForms),
                                         [name](const IntegerForm& form) { return form.name == name; });
  return found == std::end(kIntegerForms) ? nullptr : found;
}

std::string IntegerFormNames() {
  std::string names;
  for (const IntegerForm& form : kIntegerForms) names += (names.empty() ? "" : ", ") + std::string(form.name);
  return names;
}

Status PlanIntegers(const IntegerForm& form, std::vector<PlannedTensor>* plan, std::vector<std::string>* notes) {
  int64_t group = form.group, narrow = 0, stacked = 0, fitting = 0;
  for (const PlannedTensor& t : *plan) {
    stacked += t.stacked > 0 && t.is_matrix ? 1 : 0;
    if (!Fits(form, t)) {
      narrow += IsLinear(t) ? 1 : 0;
      continue;
    }
    ++fitting;
    while (group > 0 && t.cols % group != 0) group /= 2;
  }
  if (fitting == 0) {
    return Unimplemented(fmt::format(
        "the model has no matrix that can be {}: those are linear layers, not of all experts in one tensor{}; choose "
        "bf16",
        form.name, form.group > 0 ? fmt::format(", with a multiple of {} columns", kNarrowestGroup) : ""));
  }
  for (PlannedTensor& t : *plan) {
    if (!Fits(form, t)) continue;
    t.integers = {form.bits, form.packed, group > 0 ? group : t.cols};
    t.dtype = form.read_as;
  }
  if (narrow > 0)
    notes->push_back(fmt::format("matrices that stay as they are because their columns are no multiple of {}: {}",
                                 kNarrowestGroup, narrow));
  if (stacked > 0) {
    notes->push_back(
        fmt::format("matrices that stay as they are because they have all experts in one tensor: {}", stacked));
  }
  if (group != form.group) {
    notes->push_back(
        fmt::format("a scale is for {} columns: {} do not divide those of all matrices", group, form.group));
  }
  return Status();
}

std::vector<SafetensorsEntry> EntriesOf(const PlannedTensor& t) {
  if (t.integers.bits == 0) return {{t.name, SafetensorsType(t.dtype), t.shape(), t.bytes()}};
  const std::string module = ModuleOfTensor(t.name);
  const bool packed = t.integers.packed;
  const int64_t bytes = t.rows * t.row_bytes();
  std::vector<SafetensorsEntry> entries = {
      {module + (packed ? ".weight_packed" : ".weight"),
       packed ? "I32" : "I8",
       {t.rows, packed ? t.row_bytes() / 4 : t.cols},
       bytes},
      {module + ".weight_scale", "BF16", {t.rows, t.cols / t.integers.group}, t.rows * t.scale_bytes()}};
  if (packed) entries.push_back({module + ".weight_shape", "I64", {2}, 16});
  return entries;
}

Json QuantizationJson(const IntegerForm& form, const std::vector<PlannedTensor>& plan, std::string_view lm_head) {
  Json ignore = SortedJson::array();
  int64_t group = 0;
  bool tied = lm_head.ends_with(kWeight);
  for (const PlannedTensor& t : plan) {
    if (t.integers.bits > 0) {
      group = t.integers.group;
    } else if (t.is_matrix && t.stacked == 0 && t.name.ends_with(kWeight)) {
      ignore.push_back(ModuleOfTensor(t.name));
      tied &= t.name != lm_head;
    }
  }
  if (tied) ignore.push_back(ModuleOfTensor(lm_head));  // the module exists, with the embedding's values
  Json weights = {{"num_bits", form.bits},
                  {"type", "int"},
                  {"symmetric", true},
                  {"dynamic", false},
                  {"strategy", form.group > 0 ? "group" : "channel"},
                  {"group_size", form.group > 0 ? Json(group) : Json(nullptr)}};
  Json activations = nullptr;
  if (form.activations) {
    activations = {{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"dynamic", true}, {"strategy", "token"}};
  }
  const char* const format = form.packed ? "pack-quantized" : "int-quantized";
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"format", format},
              {"weights", weights},
              {"input_activations", activations},
              {"output_activations", nullptr}}}}},
          {"ignore", ignore},
          {"kv_cache_scheme", nullptr}};
}

}  // namespace tactus::compute
