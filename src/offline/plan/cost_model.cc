#include "offline/plan/cost_model.h"

#include <fmt/format.h>

#include <cmath>

namespace tactus::offline {

Status BatchCostModel::Check() const {
  struct Figure {
    const char* name;
    double value;
    bool may_be_zero;
  };
  for (const Figure& f :
       {Figure{"flops_per_token", flops_per_token, false}, Figure{"attention_flops", attention_flops, true},
        Figure{"kv_bytes_per_token", kv_bytes_per_token, false}, Figure{"flops_per_s", flops_per_s, false},
        Figure{"bytes_per_s", bytes_per_s, false}}) {
    if (std::isfinite(f.value) && (f.value > 0 || (f.may_be_zero && f.value == 0))) continue;
    return InvalidArgument(fmt::format("the cost model's {} is {}; it must be finite and {}", f.name, f.value,
                                       f.may_be_zero ? "at least 0" : "more than 0, or densities cannot be compared"),
                           f.name);
  }
  return Status();
}

}  // namespace tactus::offline
