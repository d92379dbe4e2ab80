// The interface of a quantisation method, and the tensors of one module. Plain data after reading: any thread.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/config/json_fields.h"
#include "compute/weights/tensor_file.h"

namespace tactus::compute {

// The tensors of one quantised weight. Whatever is found counts as used.
class ModuleTensors {
 public:
  ModuleTensors(const TensorSet& set, std::string module) : set_(set), module_(std::move(module)) {}

  const std::string& module() const { return module_; }
  // The tensor `module` + `suffix`; null: absent.
  const TensorEntry* Find(std::string_view suffix);
  // The same; its element is one of `types` (ElementName) and its shape is `shape`, where -1 is any size.
  Result<const TensorEntry*> Get(std::string_view suffix, std::initializer_list<std::string_view> types,
                                 const std::vector<int64_t>& shape);
  // "FILE: tensor 'NAME' is u8 [4, 2]; expected WHAT".
  Status Wrong(std::string_view suffix, const TensorEntry& tensor, const std::string& what) const;
  const std::vector<std::string>& taken() const { return taken_; }
  const std::string& file() const { return file_; }  // of the first tensor found

 private:
  std::string Name(std::string_view suffix) const { return module_ + std::string(suffix); }
  const TensorSet& set_;
  const std::string module_;
  std::string file_;
  std::vector<std::string> taken_;
};

// A weight made of several tensors.
struct MadeWeight {
  std::vector<int64_t> shape;
  DType dtype = DType::kBF16;  // of WeightRows::Stored; its blocks divide the last dimension
  const TensorEntry* codes = nullptr;
  std::shared_ptr<const WeightRows> rows;
};

// The end of the name of a tensor with codes, and of the weight that they make up.
struct CodesName {
  std::string_view codes, weight = ".weight";
};

class QuantMethod {
 public:
  virtual ~QuantMethod() = default;
  virtual std::string text() const = 0;
  virtual std::span<const CodesName> names() const = 0;
  // The weight of the module with a tensor of codes that has this suffix.
  virtual Result<MadeWeight> Make(ModuleTensors& tensors, std::string_view codes_suffix) const = 0;
};

// Readers of the methods' configurations; errors are in `config`'s status or the result.
using QuantReader = Result<std::shared_ptr<const QuantMethod>> (*)(JsonFields& config);
Result<std::shared_ptr<const QuantMethod>> ReadFp8(JsonFields& config);
Result<std::shared_ptr<const QuantMethod>> ReadCompressedTensors(JsonFields& config);
Result<std::shared_ptr<const QuantMethod>> ReadGptq(JsonFields& config);
Result<std::shared_ptr<const QuantMethod>> ReadAwq(JsonFields& config);
Result<std::shared_ptr<const QuantMethod>> ReadMxfp4(JsonFields& config);
Result<std::shared_ptr<const QuantMethod>> ReadModelOpt(JsonFields& config);

}  // namespace tactus::compute
