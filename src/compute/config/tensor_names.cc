#include "compute/config/tensor_names.h"

namespace tactus::compute {

std::string TensorSource::NameOf(std::string_view pattern, int64_t layer) {
  const size_t at = pattern.find("{}");
  if (at == std::string_view::npos) return std::string(pattern);
  std::string name(pattern.substr(0, at));
  name += std::to_string(layer);
  name += pattern.substr(at + 2);
  return name;
}

}  // namespace tactus::compute
