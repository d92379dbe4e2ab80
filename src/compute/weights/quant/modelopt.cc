// quant_method "modelopt" (NVIDIA's Model Optimizer): NVFP4 in `weight`, `weight_scale` and `weight_scale_2`, or FP8 in
// `weight` and `weight_scale`.
#include "base/printable.h"
#include "compute/weights/quant/small_floats.h"

namespace tactus::compute {
namespace {

class ModelOpt final : public QuantMethod {
 public:
  std::string text() const override { return "NVFP4 or FP8 of Model Optimizer"; }
  std::span<const CodesName> names() const override {
    static constexpr CodesName kNames[] = {{".weight"}};
    return kNames;
  }
  Result<MadeWeight> Make(ModuleTensors& tensors, std::string_view) const override {
    const TensorEntry* const codes = tensors.Find(".weight");
    if (codes != nullptr && codes->codes == CodeType::kF8E4M3) return MakeFp8Module(tensors, ".weight_scale", {});
    return MakeNvfp4(tensors, {".weight", ".weight_scale", ".weight_scale_2"});
  }
};

}  // namespace

Result<std::shared_ptr<const QuantMethod>> ReadModelOpt(JsonFields& config) {
  const std::string algorithm = config.String("quant_algo").value_or("NVFP4");
  TACTUS_RETURN_IF_ERROR(config.status());
  if (algorithm != "NVFP4" && algorithm != "FP8" && algorithm != "MIXED_PRECISION") {
    config.Fail("quant_algo", "is '" + Printable(algorithm) + "'; supported are NVFP4, FP8 and MIXED_PRECISION");
  }
  return std::shared_ptr<const QuantMethod>(std::make_shared<ModelOpt>());
}

}  // namespace tactus::compute
