#include "compute/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/check.h"
#include "base/plan_limits.h"
#include "compute/cuda/cuda_executor.h"
#include "compute/cuda/device_plan.h"
#include "compute/kernels/thread_pool.h"
#include "compute/weights/open_weights.h"
#include "compute/weights/sigbus_guard.h"

namespace tactus::compute::cuda {
namespace {

struct Chosen {
  Real type = Real::kBF16;
  KvType kv_type = KvType::kBF16;
  std::optional<DummyWeights> dummy;
  int32_t threads = 1;
  bool cascade_attention = true;
};

Status Refuse(const char* flag, const std::string& value, const char* possible) {
  return InvalidArgument(fmt::format("--{} {} is not possible with --device cuda, which has {}", flag, value, possible),
                         flag);
}

Result<Chosen> Choose(const EngineOptions& o) {
  Chosen c;
  if (o.dtype == "float32") {
    c.type = Real::kF32;
  } else if (o.dtype != "auto" && o.dtype != "bfloat16") {
    return Refuse("dtype", o.dtype, "auto, float32 and bfloat16");
  }
  const std::string activations = c.type == Real::kF32 ? "float32" : "bfloat16";
  if (o.activation_dtype != "auto" && o.activation_dtype != activations) {
    return Refuse("activation-dtype", o.activation_dtype, "those of --dtype");
  }
  if (o.quantization != "none") return Refuse("quantization", o.quantization, "none");
  if (!o.weight_cache.empty()) return Refuse("weight-cache", o.weight_cache, "none");
  if (!o.kernels.empty()) return Refuse("kernels", o.kernels, "one set");
  if (o.kv_cache_dtype == "auto") {
    c.kv_type = c.type == Real::kF32 ? KvType::kF32 : KvType::kBF16;
  } else if (o.kv_cache_dtype == "float32") {
    c.kv_type = KvType::kF32;
  } else if (o.kv_cache_dtype == "bfloat16") {
    c.kv_type = KvType::kBF16;
  } else if (o.kv_cache_dtype == "int8") {
    c.kv_type = KvType::kInt8;
  } else {
    return Refuse("kv-cache-dtype", o.kv_cache_dtype, "auto, float32, bfloat16 and int8");
  }
  if (o.load_format == "dummy") {
    const DType dtype = c.type == Real::kF32 ? DType::kF32 : DType::kBF16;
    c.dummy = DummyWeights{.seed = static_cast<uint64_t>(o.seed), .dtype = dtype};
  }
  c.threads = o.threads > 0 ? static_cast<int32_t>(o.threads) : UsableCores();
  c.cascade_attention = o.cascade_attention;
  return c;
}

const char* NameOf(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kInt8:
      return "int8";
    case KvType::kF16:
      return "f16";
    case KvType::kFp8:
      return "fp8";
    case KvType::kBF16:
      break;
  }
  return "bf16";
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(ModelDescription description, Chosen chosen, DeviceInfo device, Clock& clock)
      : description_(std::move(description)), chosen_(chosen), device_(std::move(device)), clock_(clock) {
    // The tokeniser's data, possibly megabytes, are not used here.
    description_.tokenizer_json.clear();
    description_.tokenizer_config_json.clear();
    description_.tokenizer_model.clear();
    description_.gguf_tokenizer = {};
  }

  BackendInfo Info() const override {
    BackendInfo info;
    info.devices = {{device_.name, device_.memory_bytes}};
    info.workers = 1;
    info.max_draft_tokens = kMaxDraftTokens;
    info.kernels = fmt::format("cuda sm_{}", device_.capability);
    const char* const activations = chosen_.type == Real::kF32 ? "f32" : "bf16";
    info.kv_dtype = NameOf(chosen_.kv_type);
    info.arithmetic = fmt::format("{} activations, KV {}", activations, info.kv_dtype);
    info.summary = fmt::format("numerics {}; {} with {} multiprocessors, driver {}", info.arithmetic, device_.name,
                               device_.multiprocessors, device_.driver);
    info.remarks = {{"device", device_.name}, {"kernels", info.kernels}, {"driver", device_.driver}};
    return info;
  }

  Result<MemoryGrant> PlanMemory(const MemoryDemand& demand) const override {
    return PlanDeviceMemory(description_.config, {.free_bytes = device_.free_bytes,
                                                  .multiprocessors = device_.multiprocessors,
                                                  .type = chosen_.type,
                                                  .kv_type = chosen_.kv_type,
                                                  .demand = demand});
  }

  Result<std::string> LoadWeights(const Say& say) override {
    InstallSigbusGuard();
    TACTUS_ASSIGN_OR_RETURN(const auto opened, OpenWeights(description_, MatrixUse::kRows, chosen_.dummy));
    const TimeNs start_ns = clock_.NowNs();
    TimeNs said_ns = start_ns;
    const auto progress = [&](int64_t bytes) {
      const TimeNs now_ns = clock_.NowNs();
      if (!say || now_ns - said_ns < 2 * kSecond) return;
      said_ns = now_ns;
      say(fmt::format("weights: {:.2f} GB copied to the GPU", static_cast<double>(bytes) * 1e-9));
    };
    TACTUS_ASSIGN_OR_RETURN(
        weights_, LoadDeviceWeights(description_.config, *opened, chosen_.type, chosen_.threads, clock_, progress));
    if (say) {
      const double seconds = std::max(static_cast<double>(clock_.NowNs() - start_ns) * 1e-9, 1e-6);
      say(fmt::format("{:.2f} GB of weights on the GPU in {:.2f} s", static_cast<double>(weights_->bytes) * 1e-9,
                      seconds));
    }
    return weights_->format;
  }

  Result<std::unique_ptr<Executor>> CreateExecutor(const ExecutorSize& size) override {
    TACTUS_CHECK_MSG(weights_.has_value(), "CreateExecutor before LoadWeights, or twice");
    CudaExecutorOptions options;
    options.type = chosen_.type;
    options.kv_type = chosen_.kv_type;
    options.multiprocessors = device_.multiprocessors;
    options.cascade_attention = chosen_.cascade_attention;
    options.size = size;
    options.clock = &clock_;
    DeviceWeights weights = std::move(*weights_);
    weights_.reset();
    return MakeCudaExecutor(description_.config, std::move(weights), options);
  }

 private:
  ModelDescription description_;
  const Chosen chosen_;
  const DeviceInfo device_;
  Clock& clock_;
  std::optional<DeviceWeights> weights_;  // set from LoadWeights to CreateExecutor
};

}  // namespace

Result<std::unique_ptr<Backend>> MakeCudaBackend(const EngineOptions& options, const ModelDescription& description,
                                                 Clock& clock) {
  TACTUS_ASSIGN_OR_RETURN(const Chosen chosen, Choose(options));
  TACTUS_ASSIGN_OR_RETURN(DeviceInfo device, OpenDevice(0));
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(description, chosen, std::move(device), clock));
}

}  // namespace tactus::compute::cuda
