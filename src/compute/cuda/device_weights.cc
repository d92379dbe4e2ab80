#include "compute/cuda/device_weights.h"

#include <algorithm>
#include <cstring>

#include "compute/kernels/thread_pool.h"
#include "compute/tensor/dequantize.h"
#include "compute/tensor/float16.h"

namespace tactus::compute::cuda {
namespace {

constexpr int64_t kStageBytes = int64_t{32} << 20;  // of one half of the staging memory, which overlaps with copies

Real TypeOf(Role role, Real type) {
  return IsRouting(role) ? Real::kF32 : type;
}
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
    Half& half = halves_[next_];
    stream_->CopyToDevice(to, half.memory.as<>(), bytes);
    half.copied->Record(*stream_);
    half.used = true;
    next_ ^= 1;
  }
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

class Loader {
 public:
  Loader(const ModelConfig& config, OpenedWeights& opened, Real type, int32_t threads, Clock& clock,
         const std::function<void(int64_t)>& progress)
      : config_(config),
        opened_(opened),
        type_(type),
        pool_(std::max(threads, 1), clock),
        progress_(progress),
        rows_(static_cast<size_t>(std::max(threads, 1))) {}

  Result<DeviceWeights> Load() {
    TACTUS_ASSIGN_OR_RETURN(stage_, Stage::Create());
    ResizeLayers(config_, &weights_);
    ModelWeights& files = opened_.weights;
    for (const MatrixPlace& place : MatrixPlaces(config_, *opened_.names, &files)) {
      TACTUS_RETURN_IF_ERROR(AddMatrix(place.request, *place.view));
    }
    if (config_.tie_embeddings) weights_.lm_head = weights_.embedding;
    for (const ModelTensor& t : config_.Tensors()) {
      if (!IsMatrix(t.role)) TACTUS_RETURN_IF_ERROR(AddVector(t));
    }
    for (DeviceLayer& layer : weights_.layers) TACTUS_RETURN_IF_ERROR(StackExperts(&layer));
    stage_->Finish();
    TACTUS_RETURN_IF_ERROR(DeviceStatus());
    weights_.format = FormatOf();
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

  Status AddMatrix(const TensorRequest& request, const MatrixView& view) {
    const ModelTensor& t = request.tensor;
    DeviceMatrix& m = MatrixAt(weights_, t);
    m.real = TypeOf(t.role, type_);
    m.rows = view.rows;
    m.cols = view.cols;
    const int64_t row_bytes = view.cols * SizeOf(m.real);
    TACTUS_ASSIGN_OR_RETURN(std::byte* const to, PlaceOf(t, view.rows * row_bytes));
    m.data = to;
    if (row_bytes > kStageBytes) {
      return InvalidArgument("a row of " + request.name + " has " + std::to_string(view.cols) + " values; at most " +
                             std::to_string(kStageBytes / SizeOf(m.real)) + " are possible on a GPU");
    }
    ++counts_[view.dtype];
    const int64_t most = kStageBytes / row_bytes;
    for (int64_t first = 0; first < view.rows; first += most) {
      const int64_t count = std::min(most, view.rows - first);
      std::byte* const stage = stage_->Next();
      ConvertRows(request.id, view, first, count, m.real, stage);
      stage_->Copy(to + first * row_bytes, count * row_bytes);
      opened_.source->Release(view, first, count);
      done_ += count * view.row_bytes;
      if (progress_) progress_(done_);
    }
    return DeviceStatus();
  }

  void ConvertRows(const std::string& id, const MatrixView& view, int64_t first, int64_t count, Real type,
                   std::byte* to) {
    constexpr int64_t kRowsPerTask = 8;
    const int64_t row_bytes = view.cols * SizeOf(type);
    pool_.ParallelFor((count + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int32_t thread) {
      Scratch& scratch = rows_[static_cast<size_t>(thread)];
      scratch.file.resize(static_cast<size_t>(view.row_bytes * kRowsPerTask) + 64);
      scratch.values.resize(static_cast<size_t>(view.cols));
      void* aligned = scratch.file.data();
      size_t space = scratch.file.size();
      std::align(64, static_cast<size_t>(view.row_bytes * kRowsPerTask), aligned, space);
      const int64_t begin = task * kRowsPerTask, n = std::min(kRowsPerTask, count - begin);
      const std::byte* const rows = opened_.source->Rows(id, view, first + begin, n, static_cast<std::byte*>(aligned));
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
    const int64_t bytes = t.rows * static_cast<int64_t>(sizeof(float));
    TACTUS_ASSIGN_OR_RETURN(std::byte* const to, PlaceOf(t, bytes));
    for (int64_t at = 0; at < bytes; at += kStageBytes) {
      const int64_t n = std::min(kStageBytes, bytes - at);
      std::memcpy(stage_->Next(), reinterpret_cast<const std::byte*>(host) + at, static_cast<size_t>(n));
      stage_->Copy(to + at, n);
    }
    if (t.rows == 1) weights_.scalars[{t.layer, t.role}] = *host;
    OwnerOf(weights_, t).vector(t.role) = reinterpret_cast<const float*>(to);
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

  std::string FormatOf() const {
    const std::string own = InfoOf(FileType(type_)).name;
    std::vector<std::pair<DType, int64_t>> others;
    for (const auto& [dtype, n] : counts_) {
      if (dtype != FileType(type_)) others.emplace_back(dtype, n);
    }
    return others.empty() ? own : own + " from " + FormatText(others);
  }

  struct Scratch {
    std::vector<std::byte> file;
    std::vector<float> values;
  };
  const ModelConfig& config_;
  OpenedWeights& opened_;
  const Real type_;
  ThreadPool pool_;
  const std::function<void(int64_t)>& progress_;
  std::vector<Scratch> rows_;  // per thread
  std::unique_ptr<Stage> stage_;
  std::map<std::pair<int64_t, Role>, std::byte*> stacks_;
  std::map<DType, int64_t> counts_;
  DeviceWeights weights_;
  int64_t done_ = 0;
};

}  // namespace

int64_t PlanDeviceWeightBytes(const ModelConfig& config, Real type) {
  int64_t bytes = 0;
  for (const ModelTensor& t : config.Tensors()) {
    bytes += t.elements() * (IsMatrix(t.role) ? SizeOf(TypeOf(t.role, type)) : 4);
  }
  return bytes;
}

Result<DeviceWeights> LoadDeviceWeights(const ModelConfig& config, OpenedWeights& opened, Real type, int32_t threads,
                                        Clock& clock, const std::function<void(int64_t)>& progress) {
  return Loader(config, opened, type, threads, clock, progress).Load();
}

}  // namespace tactus::compute::cuda
