// quant_method "compressed-tensors" (llm-compressor). The tensors of a module say which of its formats it has:
//   pack-quantized         weight_packed (i32), weight_shape, weight_scale, weight_zero_point and weight_g_idx
//   int-quantized          weight (i8), weight_scale, weight_zero_point
//   float-quantized        weight (f8_e4m3), weight_scale
//   nvfp4-pack-quantized   weight_packed (u8), weight_scale (f8_e4m3), weight_global_scale
//   mxfp4-pack-quantized   weight_packed (u8), weight_scale (powers of two)
#include <algorithm>
#include <array>
#include <set>

#include "base/json.h"
#include "base/printable.h"
#include "compute/tensor/load.h"
#include "compute/weights/quant/grouped_integers.h"
#include "compute/weights/quant/small_floats.h"

namespace tactus::compute {
namespace {

constexpr std::array<std::string_view, 7> kFormats = {
    "pack-quantized",       "int-quantized",        "float-quantized", "naive-quantized",
    "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision",
};

class CompressedTensors final : public QuantMethod {
 public:
  std::string format;
  std::set<int64_t> bits, groups;  // stated, of all modules
  BlockSize block;

  std::string text() const override { return "compressed-tensors, " + format; }
  std::span<const CodesName> names() const override {
    static constexpr CodesName kNames[] = {{".weight_packed"}, {".weight"}};
    return kNames;
  }
  Result<MadeWeight> Make(ModuleTensors& tensors, std::string_view codes_suffix) const override {
    const TensorEntry* const codes = tensors.Find(codes_suffix);
    if (codes->codes == CodeType::kF8E4M3) return Floats(tensors);
    if (codes->codes == CodeType::kI8) return Bytes(tensors);
    if (codes->codes == CodeType::kI32) return Words(tensors);
    const TensorEntry* const scale = tensors.Find(".weight_scale");
    if (scale != nullptr && scale->codes != CodeType::kF8E4M3) {
      return MakeMxfp4(tensors, codes_suffix, ".weight_scale");
    }
    return MakeNvfp4(tensors, {codes_suffix, ".weight_scale", ".weight_global_scale", true});
  }

 private:
  // Older writers add zero points of 0.
  Result<MadeWeight> Floats(ModuleTensors& tensors) const {
    const TensorEntry* const zeros = tensors.Find(".weight_zero_point");
    const std::byte* const end = zeros != nullptr ? zeros->data + zeros->bytes : nullptr;
    if (zeros != nullptr && std::any_of(zeros->data, end, [](std::byte b) { return b != std::byte{0}; })) {
      return tensors.Wrong(".weight_zero_point", *zeros, "zeros beside e4m3");
    }
    return MakeFp8Module(tensors, ".weight_scale", block);
  }

  Result<MadeWeight> Bytes(ModuleTensors& tensors) const {
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const codes, tensors.Get(".weight", {"i8"}, {-1, -1}));
    GroupedIntegers w;
    w.rows = codes->shape[0];
    w.cols = codes->shape[1];
    w.bits = 8;
    w.codes = PackedOf(*codes, 8, PackedIntegers::kAcross);
    TACTUS_RETURN_IF_ERROR(ReadScales(tensors, &w));
    if (tensors.Find(".weight_zero_point") != nullptr) {
      TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const zeros,
                              tensors.Get(".weight_zero_point", {"i8"}, {w.rows, w.groups()}));
      w.zeros = PackedOf(*zeros, 8, PackedIntegers::kAcross);
    }
    return Finish(tensors, *codes, w);
  }

  Result<MadeWeight> Words(ModuleTensors& tensors) const {
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const codes, tensors.Get(".weight_packed", {"i32"}, {-1, -1}));
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const shape, tensors.Get(".weight_shape", {"i64", "i32"}, {2}));
    const auto* const sizes = reinterpret_cast<const uint8_t*>(shape->data);
    const bool wide = shape->codes == CodeType::kI64;
    GroupedIntegers w;
    w.rows = SizeAt(sizes, 0, wide);
    w.cols = SizeAt(sizes, 1, wide);
    const int64_t words = codes->shape[1];
    w.bits = words == (w.cols + 7) / 8 ? 4 : words == (w.cols + 3) / 4 ? 8 : 0;
    if (w.rows != codes->shape[0] || w.cols < 1 || w.bits == 0) {
      return tensors.Wrong(
          ".weight_packed", *codes,
          "words of 4 or 8 bits each for " + ShapeText(std::vector<int64_t>{w.rows, w.cols}) + ", the weight_shape");
    }
    w.codes = PackedOf(*codes, w.bits, PackedIntegers::kAcross);
    TACTUS_RETURN_IF_ERROR(ReadScales(tensors, &w));
    if (tensors.Find(".weight_zero_point") != nullptr) {
      const int64_t each = 32 / w.bits;
      TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const zeros,
                              tensors.Get(".weight_zero_point", {"i32"}, {(w.rows + each - 1) / each, w.groups()}));
      w.zeros = PackedOf(*zeros, w.bits, PackedIntegers::kDown);
    }
    if (tensors.Find(".weight_g_idx") != nullptr) {
      TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const order, tensors.Get(".weight_g_idx", {"i32"}, {w.cols}));
      const auto* const group_of = reinterpret_cast<const uint8_t*>(order->data);
      if (Load32(group_of) != UINT32_MAX) w.group_of = group_of;  // -1: not set
    }
    return Finish(tensors, *codes, w);
  }

  static int64_t SizeAt(const uint8_t* sizes, int64_t i, bool wide) {
    const uint64_t low = Load32(sizes + i * (wide ? 8 : 4)), high = wide ? Load32(sizes + i * 8 + 4) : 0;
    return high >> 8 != 0 ? -1 : static_cast<int64_t>(high << 32 | low);  // above 2^40 in no file
  }

  // Scales for the tensor, for rows, or for groups of a row's columns.
  Status ReadScales(ModuleTensors& tensors, GroupedIntegers* w) const {
    TACTUS_ASSIGN_OR_RETURN(const NumberGrid grid, GridOf(tensors, ".weight_scale", w->rows, w->cols, {}));
    w->scales = grid.numbers;
    w->one_scale = grid.rows_each == w->rows && w->rows > 1;
    w->group = grid.cols_each;
    w->zero = 1 << (w->bits - 1);
    const auto stated = [](const std::set<int64_t>& values, int64_t is) {
      return values.empty() || values.contains(is);
    };
    if (stated(bits, w->bits) && (grid.cols_each == w->cols || stated(groups, grid.cols_each))) return Status();
    return tensors.Wrong(".weight_scale", *tensors.Find(".weight_scale"),
                         "what 'config_groups' state: these are groups of " + std::to_string(w->group) +
                             " columns of " + std::to_string(w->bits) + " bits");
  }

  static Result<MadeWeight> Finish(const ModuleTensors& tensors, const TensorEntry& codes, GroupedIntegers w) {
    if (w.zeros) w.zero = 0;
    TACTUS_RETURN_IF_ERROR(CheckIntegers(tensors, ".weight_zero_point", ".weight_g_idx", &w));
    return MakeIntegers(codes, w);
  }
};

Status CheckFormat(const std::string& format, JsonFields& fields) {
  if (std::find(kFormats.begin(), kFormats.end(), format) != kFormats.end()) return Status();
  std::string known;
  for (const std::string_view name : kFormats) known += (known.empty() ? "" : ", ") + std::string(name);
  fields.Fail("format", "is '" + Printable(format) + "'; supported are " + known);
  return fields.status();
}

Status ReadGroup(const SortedJson& group, const std::string& name, JsonFields& config, CompressedTensors* method) {
  const std::string prefix = "quantization_config.config_groups." + Printable(name) + ".";
  JsonFields fields(group, config.path(), prefix);
  if (const auto format = fields.String("format")) TACTUS_RETURN_IF_ERROR(CheckFormat(*format, fields));
  const SortedJson* const weights = fields.Object("weights");
  TACTUS_RETURN_IF_ERROR(fields.status());
  if (weights == nullptr) return Status();
  JsonFields w(*weights, config.path(), prefix + "weights.");
  const std::optional<int64_t> bits = w.Int("num_bits"), size = w.Int("group_size");
  const std::vector<int64_t> block = w.IntOrInts("block_structure");
  if (bits.has_value() && *bits != 4 && *bits != 8) {
    w.Fail("num_bits", "is " + std::to_string(*bits) + "; supported are 4 and 8");
  }
  if (bits.has_value()) method->bits.insert(*bits);
  if (size.has_value() && *size > 0) method->groups.insert(*size);
  if (block.size() == 2 && block[0] > 0 && block[1] > 0) method->block = {block[0], block[1]};
  return w.status();
}

}  // namespace

Result<std::shared_ptr<const QuantMethod>> ReadCompressedTensors(JsonFields& config) {
  auto method = std::make_shared<CompressedTensors>();
  method->format = config.String("format").value_or("pack-quantized");
  const SortedJson* const groups = config.Object("config_groups");
  const SortedJson* const sparsity = config.Object("sparsity_config");
  TACTUS_RETURN_IF_ERROR(config.status());
  TACTUS_RETURN_IF_ERROR(CheckFormat(method->format, config));
  if (sparsity != nullptr && !sparsity->empty()) {
    JsonFields fields(*sparsity, config.path(), "quantization_config.sparsity_config.");
    const std::string format = fields.String("format").value_or("dense");
    if (format != "dense") fields.Fail("format", "is '" + Printable(format) + "'; supported is dense");
    TACTUS_RETURN_IF_ERROR(fields.status());
  }
  if (groups == nullptr) return std::shared_ptr<const QuantMethod>(method);
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object()) config.Fail("config_groups", "has '" + Printable(name) + "', which is no object");
    TACTUS_RETURN_IF_ERROR(config.status());
    TACTUS_RETURN_IF_ERROR(ReadGroup(group, name, config, method.get()));
  }
  return std::shared_ptr<const QuantMethod>(method);
}

}  // namespace tactus::compute
