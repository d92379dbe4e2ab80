// quant_method "fp8" (DeepSeek, Qwen, Ministral, transformers' FineGrainedFP8) and "fbgemm_fp8": `weight` in e4m3, its
// scales in `weight_scale_inv` or `weight_scale`, for blocks of `weight_block_size`, for rows, or for the tensor.
// Either name is a factor of the codes.
#include "base/printable.h"
#include "compute/weights/quant/small_floats.h"

namespace tactus::compute {
namespace {

class Fp8 final : public QuantMethod {
 public:
  explicit Fp8(BlockSize block) : block_(block) {}

  std::string text() const override {
    if (block_.rows == 0) return "FP8 (e4m3)";
    return "FP8 (e4m3), blocks of " + std::to_string(block_.rows) + " x " + std::to_string(block_.cols);
  }
  std::span<const CodesName> names() const override {
    static constexpr CodesName kNames[] = {{".weight"}};
    return kNames;
  }
  Result<MadeWeight> Make(ModuleTensors& tensors, std::string_view) const override {
    const bool plain = tensors.Find(".weight_scale_inv") == nullptr && tensors.Find(".weight_scale") != nullptr;
    return MakeFp8Module(tensors, plain ? ".weight_scale" : ".weight_scale_inv", block_);
  }

 private:
  const BlockSize block_;
};

}  // namespace

Result<std::shared_ptr<const QuantMethod>> ReadFp8(JsonFields& config) {
  const std::string format = config.String("fmt").value_or("e4m3");
  const std::vector<int64_t> size = config.IntOrInts("weight_block_size");
  if (format != "e4m3" && format != "float8_e4m3fn") {
    config.Fail("fmt", "is '" + Printable(format) + "'; supported is e4m3");
  }
  if (!size.empty() && (size.size() != 2 || size[0] < 1 || size[1] < 1)) {
    config.Fail("weight_block_size", "is not two numbers from 1 on: rows and columns of a block");
  }
  TACTUS_RETURN_IF_ERROR(config.status());
  const BlockSize block = size.empty() ? BlockSize{} : BlockSize{size[0], size[1]};
  return std::shared_ptr<const QuantMethod>(std::make_shared<Fp8>(block));
}

}  // namespace tactus::compute
