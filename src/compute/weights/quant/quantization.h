// Quantised weights of Hugging Face folders. config.json states a method in `quantization_config`; a method says which
// tensors of a file make up one weight, checks them, and gives the weight's rows.
//
// A method is a file here and a row of kMethods (quantization.cc). Readers of families know no method: they find each
// weight under its usual name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "compute/weights/tensor_file.h"

namespace tactus::compute {

class QuantMethod;

// Null: the configuration states none. Errors name the field, its value and what is supported. `path` is for messages.
Result<std::shared_ptr<const QuantMethod>> ReadQuantization(std::string_view config_json, const std::string& path);

std::string QuantizationText(const QuantMethod& method);  // "GPTQ, 4 bits, groups of 128"

// Replaces the tensors that make up a weight by the weight (TensorEntry::rows), and drops what belongs to quantised
// activations and KV caches, which are not used. Errors name the tensor, its shape and what was expected. The set's
// files outlive the rows. Modules without codes, as those in a method's list of exceptions, stay as they are.
Status ApplyQuantization(const QuantMethod& method, TensorSet* set);

}  // namespace tactus::compute
