#include "compute/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/available_memory.h"
#include "base/check.h"
#include "base/plan_limits.h"
#include "compute/cuda/cuda_executor.h"
#include "compute/cuda/device_plan.h"
#include "compute/cuda/flashinfer_plan.h"
#include "compute/exec/numerics.h"
#include "compute/kernels/thread_pool.h"
#include "compute/weights/open_weights.h"
#include "compute/weights/sigbus_guard.h"

namespace tactus::compute::cuda {
namespace {

struct Chosen {
  Real type = Real::kBF16;
  DeviceWeightChoice weights;
  KvType kv_type = KvType::kBF16;
  std::optional<DummyWeights> dummy;
  int32_t threads = 1;
  bool cascade_attention = true;
  bool batch_invariant = true;
  bool fp8_tokens = false;
  bool overlap = false;
  AttentionBackend attention = AttentionBackend::kTactus;
};

const char* NameOf(Real type) {
  return type == Real::kF32 ? "float32" : type == Real::kBF16 ? "bfloat16" : "float16";
}

constexpr int64_t kProfileTokens = 8192;  // of the largest step that `tactus profile` measures

// "nvidia-h200" of "NVIDIA H200"
std::string FileNameOf(const std::string& device) {
  std::string name;
  for (const char c : device) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      name += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  if (!name.empty() && name.back() == '-') name.pop_back();
  return name;
}

Status Refuse(const char* flag, const std::string& value, const char* possible) {
  return InvalidArgument(fmt::format("--{} {} is not possible with --device cuda, which has {}", flag, value, possible),
                         flag);
}

// The KV formats by their words.
constexpr std::pair<const char*, KvType> kKvTypes[] = {{"float32", KvType::kF32},
                                                       {"bfloat16", KvType::kBF16},
                                                       {"float16", KvType::kF16},
                                                       {"int8", KvType::kInt8},
                                                       {"fp8", KvType::kFp8}};

Result<KvType> ChooseKv(const std::string& word, Real type) {
  if (word == "auto") {
    return type == Real::kF32 ? KvType::kF32 : type == Real::kBF16 ? KvType::kBF16 : KvType::kF16;
  }
  for (const auto& [name, kv_type] : kKvTypes) {
    if (word == name) return kv_type;
  }
  return Refuse("kv-cache-dtype", word, "auto, float32, bfloat16, float16, int8 and fp8");
}

// Options that leave no weights in FP8.
Status CheckFp8Options(const EngineOptions& o) {
  const auto contradicts = [](const std::string& other, const char* why, const char* fix) {
    return InvalidArgument(fmt::format("--activation-dtype fp8 contradicts {}, {}: {}", other, why, fix),
                           "activation-dtype");
  };
  if (o.dtype == "float32") return contradicts("--dtype float32", "the reference mode", "leave one of them out");
  if (o.dtype == "bfloat16") {
    return contradicts("--dtype bfloat16", "which rounds FP8 weights to bfloat16", "leave --dtype out");
  }
  if (o.quantization != "none" && !o.quantization.empty()) {
    return contradicts("--quantization " + o.quantization, "whose weights are integers", "leave one of them out");
  }
  if (o.load_format == "dummy") {
    return contradicts("--load-format dummy", "whose weights are of 16 bits", "leave one of them out");
  }
  return Status();
}

// Whether the card and the model have products of FP8 values. Reads the files' headers.
Status CheckFp8Tokens(const ModelDescription& description, const Chosen& chosen, const DeviceInfo& device) {
  if (device.capability < kFp8Capability) {
    return InvalidArgument(fmt::format("--activation-dtype fp8 needs a card of compute capability {}.{} or later, and "
                                       "{} has {}.{}: use --activation-dtype auto, which multiplies FP8 weights with "
                                       "tokens of 16 bits",
                                       kFp8Capability / 10, kFp8Capability % 10, device.name, device.capability / 10,
                                       device.capability % 10),
                           "activation-dtype");
  }
  TACTUS_ASSIGN_OR_RETURN(const auto opened, OpenWeights(description, MatrixUse::kRows));
  TACTUS_ASSIGN_OR_RETURN(const DeviceWeightPlan plan, PlanDeviceWeights(description.config, *opened, chosen.weights));
  if (plan.fp8_products > 0) return Status();
  return InvalidArgument(
      fmt::format("--activation-dtype fp8 needs matrices in FP8 with a scale for the tensor or for each row, rows and "
                  "columns that are multiples of 16, outside of routed experts; this model has {} on a GPU: use a "
                  "model with such weights, or --activation-dtype auto",
                  plan.format),
      "activation-dtype");
}

Result<Chosen> Choose(const EngineOptions& o, const ModelConfig& config) {
  DType stored = config.weight_dtype;
  Chosen c;
  if (o.dtype == "float32") {
    c.type = Real::kF32;
  } else if (o.dtype == "float16") {
    c.type = Real::kF16;
  } else if (o.dtype != "auto" && o.dtype != "bfloat16") {
    return Refuse("dtype", o.dtype, "auto, float32, bfloat16 and float16");
  }
  const std::string activations = NameOf(c.type);
  c.fp8_tokens = o.activation_dtype == "fp8";
  if (c.fp8_tokens) {
    TACTUS_RETURN_IF_ERROR(CheckFp8Options(o));
  } else if (o.activation_dtype != "auto" && o.activation_dtype != activations) {
    return Refuse("activation-dtype", o.activation_dtype, "those of --dtype, and fp8");
  }
  if (!o.weight_cache.empty()) return Refuse("weight-cache", o.weight_cache, "none");
  if (!o.kernels.empty()) return Refuse("kernels", o.kernels, "one set");
  TACTUS_ASSIGN_OR_RETURN(c.kv_type, ChooseKv(o.kv_cache_dtype, c.type));
  if (o.load_format == "dummy") {
    const DType dtype = c.type == Real::kF32 ? DType::kF32 : c.type == Real::kBF16 ? DType::kBF16 : DType::kF16;
    c.dummy = DummyWeights{.seed = static_cast<uint64_t>(o.seed), .dtype = dtype};
    stored = dtype;
  }
  // The weights' form is the CPU's choice, for tokens of `type`.
  TACTUS_ASSIGN_OR_RETURN(const Numerics numerics,
                          ChooseNumerics({.dtype = o.dtype == "float16" ? "auto" : o.dtype,
                                          .activation_dtype = c.fp8_tokens ? "auto" : o.activation_dtype,
                                          .quantization = o.quantization},
                                         stored));
  c.weights = {.type = c.type, .packing = numerics.packing};
  c.threads = o.threads > 0 ? static_cast<int32_t>(o.threads) : UsableCores();
  c.cascade_attention = o.cascade_attention;
  c.batch_invariant = o.batch_invariant;
  c.overlap = o.overlap == "nano";
  if (o.attention_backend == "flashinfer") {
    c.attention = AttentionBackend::kFlashInfer;
    TACTUS_RETURN_IF_ERROR(CheckFlashInfer(
        config, {.type = c.type, .kv_type = c.kv_type, .overlap = c.overlap, .built = HasFlashInfer()}));
  }
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
    const char* const activations = chosen_.type == Real::kF32 ? "f32" : chosen_.type == Real::kBF16 ? "bf16" : "f16";
    info.kv_dtype = NameOf(chosen_.kv_type);
    info.arithmetic = fmt::format("{}{} activations, KV {}{}{}", chosen_.fp8_tokens ? "fp8 and " : "", activations,
                                  info.kv_dtype, chosen_.batch_invariant ? "" : ", rounding by the batch",
                                  chosen_.attention == AttentionBackend::kTactus ? "" : ", attention by FlashInfer");
    info.summary = fmt::format("numerics {}; {} with {} multiprocessors, driver {}", info.arithmetic, device_.name,
                               device_.multiprocessors, device_.driver);
    info.remarks = {{"device", device_.name},
                    {"kernels", info.kernels},
                    {"driver", device_.driver},
                    {"arithmetic", info.arithmetic},
                    {"overlap", chosen_.overlap ? "nano" : "off"}};
    info.profile = {
        .name = FileNameOf(device_.name), .max_step_tokens = kProfileTokens, .max_context = 0, .kv_bytes = 0};
    return info;
  }

  Result<MemoryGrant> PlanMemory(const MemoryDemand& demand) const override {
    TACTUS_ASSIGN_OR_RETURN(const int64_t weight_bytes,
                            PlanDeviceWeightBytes(description_, chosen_.weights, chosen_.dummy));
    return PlanDeviceMemory(description_.config, {.free_bytes = device_.free_bytes,
                                                  .host_free_bytes = AvailableMemoryBytes(),
                                                  .weight_bytes = weight_bytes,
                                                  .multiprocessors = device_.multiprocessors,
                                                  .type = chosen_.type,
                                                  .kv_type = chosen_.kv_type,
                                                  .fp8_tokens = chosen_.fp8_tokens,
                                                  .overlap = chosen_.overlap,
                                                  .demand = demand});
  }

  Result<std::string> LoadWeights(const Say& say) override {
    InstallSigbusGuard();
    TACTUS_ASSIGN_OR_RETURN(const auto opened, OpenWeights(description_, MatrixUse::kRows, chosen_.dummy));
    const TimeNs start_ns = clock_.NowNs();
    TimeNs said_ns = start_ns;
    DeviceLoadOptions load{.choice = chosen_.weights, .dummy = chosen_.dummy.has_value(), .threads = chosen_.threads};
    const auto say_after_two_seconds = [&](const auto& text) {
      const TimeNs now_ns = clock_.NowNs();
      if (!say || now_ns - said_ns < 2 * kSecond) return;
      said_ns = now_ns;
      say(text());
    };
    load.progress = [&](int64_t bytes) {
      say_after_two_seconds(
          [&] { return fmt::format("weights: {:.2f} GB copied to the GPU", static_cast<double>(bytes) * 1e-9); });
    };
    load.rounded = [&](double part) {
      say_after_two_seconds(
          [&] { return fmt::format("weights: {:.0f} % rounded to int4 by least squares", 100.0 * part); });
    };
    TACTUS_ASSIGN_OR_RETURN(weights_, LoadDeviceWeights(description_.config, *opened, load, clock_));
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
    options.batch_invariant = chosen_.batch_invariant;
    options.fp8_tokens = chosen_.fp8_tokens;
    options.overlap = chosen_.overlap;
    options.attention = chosen_.attention;
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
  TACTUS_ASSIGN_OR_RETURN(const Chosen chosen, Choose(options, description.config));
  TACTUS_ASSIGN_OR_RETURN(DeviceInfo device, OpenDevice(0));
  if (chosen.fp8_tokens) TACTUS_RETURN_IF_ERROR(CheckFp8Tokens(description, chosen, device));
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(description, chosen, std::move(device), clock));
}

}  // namespace tactus::compute::cuda
