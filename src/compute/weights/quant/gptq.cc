// quant_method "gptq" (AutoGPTQ, GPTQModel): `qweight` [in / (32 / bits), out] of words along the inputs, `scales`
// [groups, out], `qzeros` [groups, out / (32 / bits)] less 1 in version 1, `g_idx` [in]: the group of each input
// ("act-order" where they are not in order).
#include "base/json.h"
#include "base/printable.h"
#include "compute/weights/quant/grouped_integers.h"

namespace tactus::compute {
namespace {

class Gptq final : public QuantMethod {
 public:
  int32_t bits = 4;
  int64_t group = 0;  // -1: all inputs
  bool act_order = false, less_one = true;

  std::string text() const override {
    return "GPTQ, " + std::to_string(bits) + " bits, " +
           (group < 0 ? "a group per row" : "groups of " + std::to_string(group)) + (act_order ? ", act-order" : "") +
           (less_one ? "" : ", version 2");
  }
  std::span<const CodesName> names() const override {
    static constexpr CodesName kNames[] = {{".qweight"}};
    return kNames;
  }
  Result<MadeWeight> Make(ModuleTensors& tensors, std::string_view) const override {
    const int64_t each = 32 / bits;
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const codes, tensors.Get(".qweight", {"i32"}, {-1, -1}));
    GroupedIntegers w;
    w.rows = codes->shape[1];
    w.cols = codes->shape[0] * each;
    w.bits = bits;
    w.group = group < 0 ? w.cols : group;
    w.transposed = true;
    w.codes = PackedOf(*codes, bits, PackedIntegers::kDown);
    if (w.rows % each != 0) {
      return tensors.Wrong(".qweight", *codes, "a multiple of " + std::to_string(each) + " outputs");
    }
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const scales,
                            tensors.Get(".scales", {"f16", "bf16", "f32"}, {w.groups(), w.rows}));
    w.scales = Numbers(*scales);
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const zeros,
                            tensors.Get(".qzeros", {"i32"}, {w.groups(), w.rows / each}));
    w.zeros = PackedOf(*zeros, bits, PackedIntegers::kAcross);
    w.zero = less_one ? 1 : 0;
    if (tensors.Find(".g_idx") != nullptr) {
      TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const order, tensors.Get(".g_idx", {"i32"}, {w.cols}));
      w.group_of = reinterpret_cast<const uint8_t*>(order->data);
    }
    TACTUS_RETURN_IF_ERROR(CheckIntegers(tensors, ".qzeros", ".g_idx", &w));
    return MakeIntegers(*codes, w);
  }
};

}  // namespace

Result<std::shared_ptr<const QuantMethod>> ReadGptq(JsonFields& config) {
  auto method = std::make_shared<Gptq>();
  const int64_t bits = config.RequiredInt("bits");
  method->group = config.RequiredInt("group_size");
  method->act_order = config.Bool("desc_act").value_or(false);
  const std::string format = config.String("checkpoint_format").value_or("gptq");
  const SortedJson* const dynamic = config.Object("dynamic");
  TACTUS_RETURN_IF_ERROR(config.status());
  if (bits != 4 && bits != 8) config.Fail("bits", "is " + std::to_string(bits) + "; supported are 4 and 8");
  if (method->group != -1 && method->group < 1) {
    config.Fail("group_size", "is " + std::to_string(method->group) + "; possible are -1 and numbers from 1 on");
  }
  if (format != "gptq" && format != "gptq_v2") {
    config.Fail("checkpoint_format", "is '" + Printable(format) + "'; supported are gptq and gptq_v2");
  }
  if (dynamic != nullptr && !dynamic->empty()) {
    config.Fail("dynamic", "has rules for single modules, which are not supported");
  }
  method->bits = static_cast<int32_t>(bits);
  method->less_one = format == "gptq";
  return std::shared_ptr<const QuantMethod>(method);
}

}  // namespace tactus::compute
