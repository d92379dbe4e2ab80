// quant_method "mxfp4" (gpt-oss): the experts' matrices, stacked. `NAME_blocks` [experts, rows, cols / 32, 16] and
// `NAME_scales` [experts, rows, cols / 32] become `NAME` [experts, rows, cols]: rows are outputs, although the same
// model in bf16 has `NAME` as [experts, cols, rows].
#include "compute/weights/quant/small_floats.h"

namespace tactus::compute {
namespace {

class Mxfp4 final : public QuantMethod {
 public:
  std::string text() const override { return "MXFP4"; }
  std::span<const CodesName> names() const override {
    static constexpr CodesName kNames[] = {{"_blocks", ""}};
    return kNames;
  }
  Result<MadeWeight> Make(ModuleTensors& tensors, std::string_view) const override {
    return MakeMxfp4(tensors, "_blocks", "_scales");
  }
};

}  // namespace

Result<std::shared_ptr<const QuantMethod>> ReadMxfp4(JsonFields&) {
  return std::shared_ptr<const QuantMethod>(std::make_shared<Mxfp4>());
}

}  // namespace tactus::compute
