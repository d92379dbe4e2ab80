// Folders of weights as small integers, as llm-compressor writes them (`quant_method` compressed-tensors). Pure
// functions: any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "compute/convert/safetensors_header.h"
#include "compute/convert/tensor_plan.h"

namespace tactus::compute {

// Symmetric integers of the linear layers of a folder's model.
struct IntegerForm {
  std::string_view name;     // "w4a16"
  int32_t bits = 8;          // of a weight
  bool packed = true;        // in words of 32 bits; else bytes
  int64_t group = 0;         // columns with one scale, or an even part of them; 0: a row
  bool activations = false;  // readers round a token's activations to int8
  DType read_as = DType::kI8_ROW;
};

// Null: no such form.
const IntegerForm* FindIntegerForm(std::string_view name);
std::string IntegerFormNames();  // "w8a16, w8a8, w4a16"

// Gives the linear layers of a plan integers; all other matrices stay as planned. Groups are the widest that divide the
// columns of all of them. `notes` gets what stays, and groups that are narrower than usual. kUnimplemented: the plan
// has no linear layer of which this form can be.
Status PlanIntegers(const IntegerForm& form, std::vector<PlannedTensor>* plan, std::vector<std::string>* notes);

// The tensors of a folder that make up a planned one: itself, or its codes, their scales and the shape of packed ones.
std::vector<SafetensorsEntry> EntriesOf(const PlannedTensor& tensor);

// `quantization_config` of config.json for a plan after PlanIntegers. `lm_head`: the tensor's name in this family.
Json QuantizationJson(const IntegerForm& form, const std::vector<PlannedTensor>& plan, std::string_view lm_head);

}  // namespace tactus::compute
