#include "compute/cuda/device_weights.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/unit_text.h"
#include "compute/cuda/kernels/quantized.h"
#include "compute/kernels/thread_pool.h"
#include "compute/model/calibrate.h"
#include "compute/tensor/dequantize.h"
#include "compute/tensor/float16.h"

namespace tactus::compute::cuda {
namespace {

constexpr int64_t kVectorBytes = 4;
constexpr int64_t kStageBytes = int64_t{32} << 20;  // of one half of the staging memory, which overlaps with copies

DType FileType(Real type) {
  return type == Real::kF32 ? DType::kF32 : type == Real::kBF16 ? DType::kBF16 : DType::kF16;
}

void Convert(const float* from, int64_t n, Real type, std::byte* to) {
  if (type == Real::kF32) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  auto* const out = reinterpret_cast<uint16_t*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = type == Real::kBF16 ? F32ToBF16(from[i]) : F32ToF16(from[i]);
}

// Copies of rows to the device through two pinned buffers, so that the next rows are converted while a copy runs.
class Stage {
 public:
  static Result<std::unique_ptr<Stage>> Create() {
    auto stage = std::make_unique<Stage>();
    TACTUS_ASSIGN_OR_RETURN(stage->stream_, Stream::Create());
    for (Half& half : stage->halves_) {
      TACTUS_ASSIGN_OR_RETURN(half.memory, PinnedMemory::Allocate(kStageBytes));
      TACTUS_ASSIGN_OR_RETURN(half.copied, Event::Create());
    }
    return stage;
  }
  // Memory of kStageBytes that no copy reads any more.
  std::byte* Next() {
    Half& half = halves_[next_];
    if (half.used) half.copied->Synchronize();
    return half.memory.as<>();
  }
  void Copy(void* to, int64_t bytes) {
    CopyPart(to, 0, bytes);
    EndCopies();
  }
  // Bytes [at, at + bytes) of the memory; after the last part EndCopies.
  void CopyPart(void* to, int64_t at, int64_t bytes) {
    stream_->CopyToDevice(to, halves_[next_].memory.as<>() + at, bytes);
  }
  void EndCopies() {
    Half& half = halves_[next_];
    half.copied->Record(*stream_);
    half.used = true;
    next_ ^= 1;
  }
  Stream& stream() { return *stream_; }  // of the copies
  void Finish() { stream_->Synchronize(); }

 private:
  struct Half {
    PinnedMemory memory;
    std::unique_ptr<Event> copied;
    bool used = false;
  };
  std::unique_ptr<Stream> stream_;
  Half halves_[2];
  size_t next_ = 0;
};

struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};

int64_t Aligned(int64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

// Where a piece of a matrix of codes has its parts: codes, then scales, then offsets.
struct Piece {
  Piece(const DeviceMatrix& m, bool has_offsets)
      : code_bytes(m.format == MatrixFormat::kInt4 ? m.cols / 2 : m.cols),
        factor_bytes(m.format == MatrixFormat::kFp8 ? 4 : m.cols / m.group * SizeOf(m.real)),
        offsets(has_offsets) {}
  int64_t Scales(int64_t rows) const { return Aligned(rows * code_bytes); }
  int64_t Offsets(int64_t rows) const { return Scales(rows) + Aligned(rows * factor_bytes); }
  int64_t Bytes(int64_t rows) const { return Offsets(rows) + (offsets ? Aligned(rows * factor_bytes) : 0); }

  int64_t code_bytes, factor_bytes;  // of a row
  bool offsets;
};

class Loader {
 public:
  Loader(const ModelConfig& config, OpenedWeights& opened, const DeviceLoadOptions& options, Clock& clock)
      : config_(config),
        opened_(opened),
        options_(options),
        pool_(std::max(options.threads, 1), clock),
        rows_(static_cast<size_t>(std::max(options.threads, 1))) {}

  Result<DeviceWeights> Load() {
    TACTUS_ASSIGN_OR_RETURN(plan_, PlanDeviceWeights(config_, opened_, options_.choice));
    TACTUS_ASSIGN_OR_RETURN(stage_, Stage::Create());
    ResizeLayers(config_, &weights_);
    if (plan_.packing.calibrate && !options_.dummy) TACTUS_RETURN_IF_ERROR(PackOnHost());
    for (const DeviceSlot& slot : plan_.slots) TACTUS_RETURN_IF_ERROR(AddMatrix(slot));
    packed_.reset();
    if (config_.tie_embeddings) weights_.lm_head = weights_.embedding;
    for (const ModelTensor& t : config_.Tensors()) {
      if (!IsMatrix(t.role) && !IsFusedBias(t)) TACTUS_RETURN_IF_ERROR(AddVector(t));
    }
    for (DeviceLayer& layer : weights_.layers) TACTUS_RETURN_IF_ERROR(StackExperts(&layer));
    stage_->Finish();
    TACTUS_RETURN_IF_ERROR(DeviceStatus());
    weights_.format = plan_.format;
    return std::move(weights_);
  }

 private:
  // A matrix of an expert is a part of the memory of all experts of its layer and role.
  Result<std::byte*> PlaceOf(const ModelTensor& t, int64_t bytes) {
    const ExpertsBlock* const experts = t.layer >= 0 && t.expert >= 0 && !IsRouting(t.role)
                                            ? ExpertsOf(config_.layers[static_cast<size_t>(t.layer)])
                                            : nullptr;
    if (experts == nullptr) return Allocate(bytes);
    std::byte*& base = stacks_[{t.layer, t.role}];
    if (base == nullptr) {
      TACTUS_ASSIGN_OR_RETURN(base, Allocate(bytes * experts->experts));
    }
    return base + t.expert * bytes;
  }
  Result<std::byte*> Allocate(int64_t bytes) {
    TACTUS_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(bytes, "weights"));
    auto* const data = memory.as<>();
    weights_.bytes += bytes;
    weights_.memory.push_back(std::move(memory));
    return data;
  }

  // All packed matrices in the host's memory: least squares read the model from its first layer to its last.
  Status PackOnHost() {
    const PackPlan& plan = plan_.packing;
    packed_.reset(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>((plan.bytes + 63) / 64 * 64))));
    if (packed_ == nullptr) {
      return Status(StatusCode::kResourceExhausted,
                    "int4 by least squares needs " + FormatBytes(plan.bytes) +
                        " of the host's memory while weights are loaded: use --quantization int4_nearest",
                    "quantization");
    }
    TACTUS_RETURN_IF_ERROR(PackAll(plan, *opened_.source, pool_, packed_.get(), nullptr));
    return PackCalibrated(plan, config_, *opened_.names, *opened_.source, opened_.weights, pool_, packed_.get(),
                          [&](double part) {
                            if (options_.rounded) options_.rounded(part);
                          });
  }

  Status AddMatrix(const DeviceSlot& slot) {
    const PackedSlot& first = plan_.packing.slots[slot.parts[0]];
    DeviceMatrix m = slot.form;
    TACTUS_ASSIGN_OR_RETURN(std::byte* const to, PlaceOf(first.tensor, slot.bytes));
    switch (m.format) {
      case MatrixFormat::kReal: {
        m.data = to;
        std::byte* at = to;
        for (const size_t part : slot.parts) {
          const PackedSlot& from = plan_.packing.slots[part];
          TACTUS_RETURN_IF_ERROR(CopyReal(from, m.real, at));
          at += from.source.rows * m.cols * SizeOf(m.real);
        }
        break;
      }
      case MatrixFormat::kFp8:
        m.data = to;
        m.scales = to + m.rows * m.cols;
        TACTUS_RETURN_IF_ERROR(CopyCodes(slot, m));
        break;
      case MatrixFormat::kInt8:
      case MatrixFormat::kInt4:
        if (slot.offsets) m.offsets = to;
        m = PlaceRepacked(m, to);
        TACTUS_RETURN_IF_ERROR(CopyCodes(slot, m));
        break;
    }
    if (slot.fusion) {
      FusedProduct& product = OwnerOf(weights_, first.tensor).fused[static_cast<size_t>(*slot.fusion)];
      product.matrix = m;
      return AddFusedBias(*slot.fusion, first.tensor, &product);
    }
    MatrixAt(weights_, first.tensor) = m;
    return DeviceStatus();
  }

  Status TooWide(const PackedSlot& slot, int64_t most) const {
    return InvalidArgument("a row of " + slot.name + " has " + std::to_string(slot.source.cols) + " values; at most " +
                           std::to_string(most) + " are possible on a GPU: use --device cpu");
  }

  void Report(int64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(done_);
  }

  Status CopyReal(const PackedSlot& slot, Real type, std::byte* to) {
    const MatrixView& view = slot.source;
    const int64_t row_bytes = view.cols * SizeOf(type);
    if (row_bytes > kStageBytes) return TooWide(slot, kStageBytes / SizeOf(type));
    const int64_t most = kStageBytes / row_bytes;
    for (int64_t first = 0; first < view.rows; first += most) {
      const int64_t count = std::min(most, view.rows - first);
      std::byte* const stage = stage_->Next();
      ConvertRows(slot.name, view, first, count, type, stage);
      stage_->Copy(to + first * row_bytes, count * row_bytes);
      opened_.source->Release(view, first, count);
      Report(count * view.row_bytes);
    }
    return DeviceStatus();
  }

  // Codes go to scratch on the device, from where Repack brings them into the order of products; e4m3 to its place.
  Status CopyCodes(const DeviceSlot& slot, const DeviceMatrix& m) {
    const Piece piece(m, slot.offsets);
    const int64_t most = kStageBytes / (piece.Bytes(kPanelRows) + 64) * kPanelRows;
    if (most < kPanelRows) {
      return TooWide(plan_.packing.slots[slot.parts[0]], kStageBytes / kPanelRows / 8);
    }
    const bool packs = m.format != MatrixFormat::kFp8;
    if (packs && scratch_.bytes() == 0) {
      TACTUS_ASSIGN_OR_RETURN(scratch_, DeviceMemory::Allocate(kStageBytes, "scratch of loading"));
    }
    for (int64_t first = 0; first < m.rows; first += most) {
      const int64_t count = std::min(most, m.rows - first);
      std::byte* const stage = stage_->Next();
      WriteCodes(slot, piece, first, count, stage);
      if (!packs) {
        auto* const codes = static_cast<std::byte*>(const_cast<void*>(m.data));
        auto* const scales = static_cast<std::byte*>(const_cast<void*>(m.scales));
        stage_->CopyPart(codes + first * m.cols, 0, count * m.cols);
        stage_->CopyPart(scales + first * 4, piece.Scales(count), count * 4);
        stage_->EndCopies();
        continue;
      }
      std::byte* const raw = scratch_.as<>();
      stage_->Copy(raw, piece.Bytes(count));
      DeviceMatrix part = m;
      part.rows = count;
      part.data = raw;
      part.scales = raw + piece.Scales(count);
      if (slot.offsets) part.offsets = raw + piece.Offsets(count);
      RepackRows(stage_->stream(), part, first, m);
    }
    return DeviceStatus();
  }

  // Rows [first, first + count) of a matrix of codes, which are rows of one or of several of the model's matrices.
  void WriteCodes(const DeviceSlot& slot, const Piece& piece, int64_t first, int64_t count, std::byte* to) {
    int64_t begin = 0;  // of the part's rows in the matrix
    for (const size_t part : slot.parts) {
      const PackedSlot& from = plan_.packing.slots[part];
      const int64_t rows = from.source.rows, low = std::max(first - begin, int64_t{0}),
                    high = std::min(first + count - begin, rows);
      begin += rows;
      if (low >= high) continue;
      pool_.ParallelFor((high - low + kPanelRows - 1) / kPanelRows, [&](int64_t task, int32_t thread) {
        const int64_t row = low + task * kPanelRows, n = std::min(kPanelRows, high - row);
        const int64_t at = begin - rows + row - first;
        std::byte* const offsets = to + piece.Offsets(count) + at * piece.factor_bytes;
        WritePanel(slot, from, row, n, rows_[static_cast<size_t>(thread)], piece, to + at * piece.code_bytes,
                   to + piece.Scales(count) + at * piece.factor_bytes, piece.offsets ? offsets : nullptr);
      });
      opened_.source->Release(from.source, low, high - low);
      Report((high - low) * from.source.row_bytes);
    }
  }

  struct Scratch {
    std::vector<std::byte> file, panel;
    std::vector<float> values;
    std::vector<uint8_t> codes;
  };

  // At most kPanelRows rows of one of the model's matrices.
  void WritePanel(const DeviceSlot& slot, const PackedSlot& from, int64_t first, int64_t n, Scratch& scratch,
                  const Piece& piece, std::byte* codes, std::byte* scales, std::byte* offsets) {
    if (slot.form.format == MatrixFormat::kFp8) {
      for (int64_t r = 0; r < n; ++r) {
        const E4M3Row row = opened_.source->E4M3(from.name, first + r);
        std::memcpy(codes + r * piece.code_bytes, row.codes, static_cast<size_t>(piece.code_bytes));
        std::memcpy(scales + r * 4, &row.scale, sizeof row.scale);
      }
      return;
    }
    PackedMatrix packed = from.form;
    int64_t in_packed = first;
    if (packed_ != nullptr) {
      packed.data = packed_.get() + from.offset;
    } else {
      MatrixView rows = from.source;
      rows.data = opened_.source->Rows(from.name, from.source, first, n, FileScratch(from.source, n, scratch));
      rows.rows = packed.rows = n;
      scratch.panel.resize(static_cast<size_t>(packed.panel_bytes + 64));
      std::byte* const panel = AlignTo64(scratch.panel, packed.panel_bytes);
      PackPanels(rows, packed, 0, 1, panel);
      packed.data = panel;
      in_packed = 0;
    }
    scratch.codes.resize(static_cast<size_t>(from.source.cols + kTokenBlock));
    for (int64_t r = 0; r < n; ++r) {
      WriteRow(packed, in_packed + r, slot.form, scratch.codes.data(), codes + r * piece.code_bytes,
               scales + r * piece.factor_bytes, offsets == nullptr ? nullptr : offsets + r * piece.factor_bytes);
    }
  }

  static std::byte* AlignTo64(std::vector<std::byte>& memory, int64_t bytes) {
    void* aligned = memory.data();
    size_t space = memory.size();
    return static_cast<std::byte*>(std::align(64, static_cast<size_t>(bytes), aligned, space));
  }
  static std::byte* FileScratch(const MatrixView& view, int64_t rows, Scratch& scratch) {
    scratch.file.resize(static_cast<size_t>(view.row_bytes * rows) + 64);
    return AlignTo64(scratch.file, view.row_bytes * rows);
  }

  void ConvertRows(const std::string& id, const MatrixView& view, int64_t first, int64_t count, Real type,
                   std::byte* to) {
    constexpr int64_t kRowsPerTask = 8;
    const int64_t row_bytes = view.cols * SizeOf(type);
    pool_.ParallelFor((count + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int32_t thread) {
      Scratch& scratch = rows_[static_cast<size_t>(thread)];
      std::byte* const file = FileScratch(view, kRowsPerTask, scratch);
      scratch.values.resize(static_cast<size_t>(view.cols));
      const int64_t begin = task * kRowsPerTask, n = std::min(kRowsPerTask, count - begin);
      const std::byte* const rows = opened_.source->Rows(id, view, first + begin, n, file);
      for (int64_t i = 0; i < n; ++i) {
        const std::byte* const row = rows + i * view.row_bytes;
        std::byte* const out = to + (begin + i) * row_bytes;
        if (view.dtype == FileType(type)) {
          std::memcpy(out, row, static_cast<size_t>(row_bytes));
        } else {
          Dequantize(view.dtype, row, view.cols, scratch.values.data());
          Convert(scratch.values.data(), view.cols, type, out);
        }
      }
    });
  }

  Status AddVector(const ModelTensor& t) {
    const float* const host = OwnerOf(opened_.weights, t).vector(t.role);
    TACTUS_ASSIGN_OR_RETURN(std::byte* const to, PlaceOf(t, t.rows * kVectorBytes));
    CopyVector(host, t.rows, to);
    if (t.rows == 1) weights_.scalars[{t.layer, t.role}] = *host;
    OwnerOf(weights_, t).vector(t.role) = reinterpret_cast<const float*>(to);
    return DeviceStatus();
  }
  void CopyVector(const float* host, int64_t values, std::byte* to) {
    for (int64_t at = 0; at < values * kVectorBytes; at += kStageBytes) {
      const int64_t n = std::min(kStageBytes, values * kVectorBytes - at);
      std::memcpy(stage_->Next(), reinterpret_cast<const std::byte*>(host) + at, static_cast<size_t>(n));
      stage_->Copy(to + at, n);
    }
  }

  bool IsFusedBias(const ModelTensor& t) const { return t.expert < 0 && fused_biases_.contains({t.layer, t.role}); }
  // The biases of a fused product's matrices, all of them or none.
  Status AddFusedBias(Fusion fusion, const ModelTensor& first, FusedProduct* product) {
    const FusedRoles& roles = RolesOf(fusion);
    const LayerWeights& host = OwnerOf(opened_.weights, first);
    if (host.vector(roles.biases[0]) == nullptr) return DeviceStatus();
    TACTUS_ASSIGN_OR_RETURN(std::byte * at, Allocate(product->matrix.rows * kVectorBytes));
    product->bias = reinterpret_cast<const float*>(at);
    for (size_t i = 0; i < roles.biases.size(); ++i) {
      const float* const bias = host.vector(roles.biases[i]);
      if (bias == nullptr) continue;
      const int64_t rows = host[roles.matrices[i]].rows;
      CopyVector(bias, rows, at);
      at += rows * kVectorBytes;
      fused_biases_.insert({first.layer, roles.biases[i]});
    }
    return DeviceStatus();
  }

  // Makes the arrays that kernels read: the experts' matrices of each role.
  Status StackExperts(DeviceLayer* layer) {
    if (layer->experts.empty()) return Status();
    for (const Role role : {Role::kExpertGate, Role::kExpertUp, Role::kExpertDown}) {
      const int64_t bytes = static_cast<int64_t>(layer->experts.size() * sizeof(DeviceMatrix));
      TACTUS_ASSIGN_OR_RETURN(std::byte* const to, Allocate(bytes));
      auto* const matrices = reinterpret_cast<DeviceMatrix*>(stage_->Next());
      for (size_t e = 0; e < layer->experts.size(); ++e) matrices[e] = layer->experts[e][role];
      stage_->Copy(to, bytes);
      layer->set_stacked(role, reinterpret_cast<const DeviceMatrix*>(to));
    }
    return Status();
  }

  const ModelConfig& config_;
  OpenedWeights& opened_;
  const DeviceLoadOptions& options_;
  ThreadPool pool_;
  DeviceWeightPlan plan_;
  std::vector<Scratch> rows_;  // per thread
  std::unique_ptr<Stage> stage_;
  DeviceMemory scratch_;                      // codes before Repack
  std::unique_ptr<std::byte, Freed> packed_;  // all packed matrices, under int4 by least squares
  std::map<std::pair<int64_t, Role>, std::byte*> stacks_;
  std::set<std::pair<int64_t, Role>> fused_biases_;
  DeviceWeights weights_;
  int64_t done_ = 0;
};

}  // namespace

Result<DeviceWeights> LoadDeviceWeights(const ModelConfig& config, OpenedWeights& opened,
                                        const DeviceLoadOptions& options, Clock& clock) {
  return Loader(config, opened, options, clock).Load();
}

}  // namespace tactus::compute::cuda
