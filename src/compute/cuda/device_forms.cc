#include "compute/cuda/device_forms.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>

#include "compute/cuda/gemm.h"
#include "compute/cuda/kernels/quantized.h"
#include "compute/tensor/float16.h"

namespace tactus::compute::cuda {
namespace {

constexpr FusedRoles kFused[kFusions] = {
    {{Role::kQ, Role::kK, Role::kV}, {Role::kQBias, Role::kKBias, Role::kVBias}},
    {{Role::kGate, Role::kUp, Role::kNone}, {Role::kGateBias, Role::kUpBias, Role::kNone}},
    {{Role::kSharedGate, Role::kSharedUp, Role::kNone}, {Role::kNone, Role::kNone, Role::kNone}}};

bool IsLookedUp(Role role) {
  return role == Role::kEmbedding || role == Role::kPositions || role == Role::kInputTable;
}

void Put(float value, Real type, int64_t index, std::byte* to) {
  if (type == Real::kF32) {
    std::memcpy(to + index * 4, &value, sizeof value);
    return;
  }
  const uint16_t bits = type == Real::kBF16 ? F32ToBF16(value) : F32ToF16(value);
  std::memcpy(to + index * 2, &bits, sizeof bits);
}
float Rounded(float value, Real type) {
  if (type == Real::kF32) return value;
  return type == Real::kBF16 ? BF16ToF32(F32ToBF16(value)) : F16ToF32(F32ToF16(value));
}

// The width of what later operators read in one piece: heads of 8 values, and vectors of 16 bytes.
constexpr int64_t kFusedRows = 8;

class WeightPlanner {
 public:
  WeightPlanner(const ModelConfig& config, OpenedWeights& opened, const DeviceWeightChoice& choice)
      : config_(config), opened_(opened), choice_(choice) {
    for (const ModelTensor& t : config.Tensors()) {
      if (!IsMatrix(t.role)) vectors_.insert({t.layer, t.role});
    }
  }

  Result<DeviceWeightPlan> Plan() {
    // Null data: the plan describes forms alone.
    TACTUS_ASSIGN_OR_RETURN(plan_.packing, PlanPacking(config_, *opened_.names, choice_.packing, &opened_.weights));
    for (size_t i = 0; i < plan_.packing.slots.size(); ++i) forms_.push_back(FormOfSlot(plan_.packing.slots[i]));
    for (size_t i = 0; i < forms_.size(); ++i) {
      if (Fuse(i)) continue;
      DeviceSlot slot = forms_[i];
      slot.parts = {i};
      Add(std::move(slot));
    }
    for (const ModelTensor& t : config_.Tensors()) {
      if (!IsMatrix(t.role)) plan_.bytes += t.rows * static_cast<int64_t>(sizeof(float));
    }
    for (const Layer& layer : config_.layers) {
      const ExpertsBlock* const e = ExpertsOf(layer);
      if (e != nullptr) plan_.bytes += 3 * e->experts * static_cast<int64_t>(sizeof(DeviceMatrix));
    }
    plan_.format = Format();
    return std::move(plan_);
  }

 private:
  DeviceSlot FormOfSlot(const PackedSlot& slot) {
    const Role role = slot.tensor.role;
    DeviceSlot s;
    s.form.rows = slot.form.rows;
    s.form.cols = slot.form.cols;
    s.form.real = IsRouting(role) ? Real::kF32 : choice_.type;
    if (IsRouting(role) || IsLookedUp(role) || choice_.type == Real::kF32) return s;
    const bool stored = choice_.packing.quantization == Quantization::kNone && !choice_.packing.round_to_bf16;
    if (stored && s.form.cols % 16 == 0 && opened_.source->E4M3(slot.name, 0).codes != nullptr) {
      s.form.format = MatrixFormat::kFp8;
      s.form.group = static_cast<int32_t>(s.form.cols);
      return s;
    }
    s.form = FormOf(slot.form, stored ? opened_.source->ScaleColumns(slot.name) : 0, choice_.type, &s.offsets);
    return s;
  }

  // Adds the fused matrix that slot i is the first of. True: it is a part of one, added now or before.
  bool Fuse(size_t i) {
    if (taken_.contains(i)) return true;
    const ModelTensor& first = plan_.packing.slots[i].tensor;
    if (!choice_.fuse || first.layer < 0 || first.expert >= 0) return false;
    for (size_t f = 0; f < kFusions; ++f) {
      if (first.role != kFused[f].matrices[0]) continue;
      DeviceSlot slot = forms_[i];
      for (const Role role : kFused[f].matrices) {
        for (size_t j = i; j < forms_.size() && plan_.packing.slots[j].tensor.layer == first.layer; ++j) {
          if (plan_.packing.slots[j].tensor.role == role) slot.parts.push_back(j);
        }
      }
      if (!CanFuse(first.layer, f, slot.parts)) return false;
      for (const size_t part : slot.parts) {
        taken_.insert(part);
        if (part != i) slot.form.rows += forms_[part].form.rows;
      }
      slot.fusion = static_cast<Fusion>(f);
      Add(std::move(slot));
      return true;
    }
    return false;
  }

  bool CanFuse(int64_t layer, size_t fusion, const std::vector<size_t>& parts) const {
    size_t biases = 0;
    for (const size_t part : parts) {
      const DeviceSlot &a = forms_[parts[0]], &b = forms_[part];
      if (a.form.format != b.form.format || a.form.group != b.form.group || a.offsets != b.offsets ||
          a.form.cols != b.form.cols || b.form.rows % kFusedRows != 0) {
        return false;
      }
      for (size_t r = 0; r < 3; ++r) {
        const Role bias = kFused[fusion].biases[r];
        if (kFused[fusion].matrices[r] == plan_.packing.slots[part].tensor.role && bias != Role::kNone) {
          biases += vectors_.count({layer, bias});
        }
      }
    }
    if (parts.size() < 2 || (biases != 0 && biases != parts.size())) return false;
    for (const LayerBlock& b : config_.layers[static_cast<size_t>(layer)]) {
      // These two work on rows one after another.
      const auto* const a = std::get_if<AttentionBlock>(&b.block);
      if (static_cast<Fusion>(fusion) == Fusion::kQkv && a != nullptr && a->qk_norm == QkNorm::kWidth) return false;
      const auto* const g = std::get_if<GatedFeedForwardBlock>(&b.block);
      if (static_cast<Fusion>(fusion) == Fusion::kGateUp && g != nullptr && g->cuts()) return false;
    }
    return true;
  }

  void Add(DeviceSlot slot) {
    const DeviceMatrix& m = slot.form;
    if (m.format == MatrixFormat::kReal) {
      slot.bytes = m.rows * m.cols * SizeOf(m.real);
    } else if (m.format == MatrixFormat::kFp8) {
      slot.bytes = m.rows * m.cols + (m.rows * 4 + 15) / 16 * 16;
      const bool routed = plan_.packing.slots[slot.parts[0]].tensor.expert >= 0;
      if (TakesFp8Tokens(m) && !routed) ++plan_.fp8_products;
    } else {
      DeviceMatrix with = m;
      if (slot.offsets) with.offsets = &slot;  // only that there are some
      slot.bytes = RepackedBytes(with);
    }
    plan_.bytes += slot.bytes;
    plan_.slots.push_back(std::move(slot));
  }

  static std::string NameOf(const DeviceMatrix& m) {
    const std::string by = m.group >= m.cols ? "row" : std::to_string(m.group);
    switch (m.format) {
      case MatrixFormat::kInt8:
        return "int8 by " + by;
      case MatrixFormat::kInt4:
        return "int4 by " + by;
      case MatrixFormat::kFp8:
        return "fp8";
      case MatrixFormat::kReal:
        break;
    }
    return m.real == Real::kF32 ? "f32" : m.real == Real::kBF16 ? "bf16" : "f16";
  }

  // The forms, most matrices first, and the files' formats where they are others. Routing matrices are left out.
  std::string Format() const {
    std::map<std::string, int64_t> names;
    std::map<DType, int64_t> files;
    bool converted = false;
    for (size_t i = 0; i < forms_.size(); ++i) {
      const PackedSlot& slot = plan_.packing.slots[i];
      if (IsRouting(slot.tensor.role)) continue;
      const std::string name = NameOf(forms_[i].form);
      ++names[name];
      ++files[slot.source.dtype];
      converted = converted || (name != InfoOf(slot.source.dtype).name && name != "fp8");
    }
    std::vector<std::pair<int64_t, std::string>> sorted;
    for (const auto& [name, n] : names) sorted.emplace_back(-n, name);
    std::sort(sorted.begin(), sorted.end());
    std::string text;
    for (const auto& [n, name] : sorted) {
      text += (text.empty() ? "" : ", ") + name + (sorted.size() > 1 ? " (" + std::to_string(-n) + ")" : "");
    }
    if (plan_.packing.calibrate) text += " by least squares";
    return converted ? text + " from " + FormatText({files.begin(), files.end()}) : text;
  }

  const ModelConfig& config_;
  OpenedWeights& opened_;
  const DeviceWeightChoice& choice_;
  std::set<std::pair<int64_t, Role>> vectors_;  // by layer, those of experts too
  std::vector<DeviceSlot> forms_;               // of the packing's slots
  std::set<size_t> taken_;                      // those that are parts of a fused matrix
  DeviceWeightPlan plan_;
};

}  // namespace

const FusedRoles& RolesOf(Fusion fusion) {
  return kFused[static_cast<size_t>(fusion)];
}

DeviceMatrix FormOf(const PackedMatrix& p, int64_t scale_columns, Real type, bool* offsets) {
  DeviceMatrix m;
  m.real = type;
  m.rows = p.rows;
  m.cols = p.cols;
  *offsets = false;
  if (!p.integer() || type == Real::kF32) return m;
  const bool wider =
      p.block > 0 && scale_columns > p.block && std::has_single_bit(static_cast<uint64_t>(scale_columns));
  const int64_t block = wider ? scale_columns : p.block, group = block == 0 || block > p.cols ? p.cols : block;
  if (p.cols % 8 != 0 || p.cols % group != 0) return m;
  *offsets = p.has_minimum || p.has_zeros;
  const bool four = p.code == PackedCode::kU4;
  if (four && !*offsets && p.zero != 8) return m;
  m.format = four ? MatrixFormat::kInt4 : MatrixFormat::kInt8;
  m.group = static_cast<int32_t>(group);
  return m;
}

void WriteRow(const PackedMatrix& packed, int64_t row, const DeviceMatrix& form, uint8_t* scratch, std::byte* codes,
              std::byte* scales, std::byte* offsets) {
  UnpackCodes(packed, row, scratch);
  if (form.format == MatrixFormat::kInt4) {
    for (int64_t c = 0; c < form.cols; c += 2) {
      codes[c / 2] = static_cast<std::byte>(scratch[c] | scratch[c + 1] << 4);
    }
  } else {
    for (int64_t c = 0; c < form.cols; ++c) codes[c] = static_cast<std::byte>(scratch[c] - packed.zero);
  }
  const int64_t blocks = packed.block == 0 ? 1 : form.group / packed.block;  // that share a scale
  for (int64_t g = 0; g < form.cols / form.group; ++g) {
    // With zero points a value is scale * (4 * code - zero).
    const float scale = Rounded(ScaleAt(packed, row, g * blocks) * (packed.has_zeros ? 4.0f : 1.0f), form.real);
    Put(scale, form.real, g, scales);
    if (offsets == nullptr) continue;
    const float offset = packed.has_zeros ? scale * -0.25f * static_cast<float>(ZeroAt(packed, row, g * blocks))
                                          : MinimumAt(packed, row, g * blocks);
    Put(offset, form.real, g, offsets);
  }
}

Result<DeviceWeightPlan> PlanDeviceWeights(const ModelConfig& config, OpenedWeights& opened,
                                           const DeviceWeightChoice& choice) {
  return WeightPlanner(config, opened, choice).Plan();
}

Result<int64_t> PlanDeviceWeightBytes(const ModelDescription& description, const DeviceWeightChoice& choice,
                                      const std::optional<DummyWeights>& dummy) {
  TACTUS_ASSIGN_OR_RETURN(const auto opened, OpenWeights(description, MatrixUse::kRows, dummy));
  TACTUS_ASSIGN_OR_RETURN(const DeviceWeightPlan plan, PlanDeviceWeights(description.config, *opened, choice));
  return plan.bytes;
}

}  // namespace tactus::compute::cuda
