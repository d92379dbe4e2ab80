#include "compute/config/tensor_names.h"

namespace tactus::compute {

std::string TensorSource::NameOf(std::string_view pattern, int64_t layer, int64_t expert) {
  std::string name(pattern);
  for (const int64_t number : {layer, expert}) {
    if (number < 0) continue;
    const size_t at = name.find("{}");
    if (at == std::string::npos) break;
    name.replace(at, 2, std::to_string(number));
  }
  return name;
}

}  // namespace tactus::compute
