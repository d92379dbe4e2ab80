// quant_method "awq" (AutoAWQ, version "gemm"): `qweight` [in, out / 8] of words along the outputs in AutoAWQ's order,
// `scales` [groups, out], `qzeros` [groups, out / 8].
#include <algorithm>

#include "base/printable.h"
#include "compute/weights/quant/grouped_integers.h"

namespace tactus::compute {
namespace {

constexpr int32_t kBits = 4, kEach = 32 / kBits;

class Awq final : public QuantMethod {
 public:
  int64_t group = 0;  // -1: all inputs

  std::string text() const override {
    return "AWQ, 4 bits, " + (group < 0 ? std::string("a group per row") : "groups of " + std::to_string(group));
  }
  std::span<const CodesName> names() const override {
    static constexpr CodesName kNames[] = {{".qweight"}};
    return kNames;
  }
  Result<MadeWeight> Make(ModuleTensors& tensors, std::string_view) const override {
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const codes, tensors.Get(".qweight", {"i32"}, {-1, -1}));
    GroupedIntegers w;
    w.rows = codes->shape[1] * kEach;
    w.cols = codes->shape[0];
    w.group = group < 0 ? w.cols : group;
    w.transposed = true;
    w.codes = PackedOf(*codes, kBits, PackedIntegers::kAwq);
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const scales,
                            tensors.Get(".scales", {"f16", "bf16", "f32"}, {w.groups(), w.rows}));
    w.scales = Numbers(*scales);
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const zeros,
                            tensors.Get(".qzeros", {"i32"}, {w.groups(), codes->shape[1]}));
    w.zeros = PackedOf(*zeros, kBits, PackedIntegers::kAwq);
    TACTUS_RETURN_IF_ERROR(CheckIntegers(tensors, ".qzeros", "", &w));
    return MakeIntegers(*codes, w);
  }
};

}  // namespace

Result<std::shared_ptr<const QuantMethod>> ReadAwq(JsonFields& config) {
  auto method = std::make_shared<Awq>();
  const int64_t bits = config.Int("bits|w_bit").value_or(4);
  method->group = config.Int("group_size|q_group_size").value_or(128);
  std::string version = config.String("version").value_or("gemm");
  std::transform(version.begin(), version.end(), version.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  TACTUS_RETURN_IF_ERROR(config.status());
  if (bits != kBits) config.Fail("bits", "is " + std::to_string(bits) + "; supported is 4");
  if (method->group != -1 && method->group < 1) {
    config.Fail("group_size", "is " + std::to_string(method->group) + "; possible are -1 and numbers from 1 on");
  }
  if (version != "gemm") config.Fail("version", "is '" + Printable(version) + "'; supported is gemm");
  return std::shared_ptr<const QuantMethod>(method);
}

}  // namespace tactus::compute
