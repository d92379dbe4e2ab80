#include "compute/exec/model_numerics.h"

#include <cstdlib>

namespace tactus::compute {
namespace {

Result<const Ops*> ChooseKernels(const std::string& name) {
  if (const Ops* ops = SelectOps(name); ops != nullptr) return ops;
  const char* forced = std::getenv("TACTUS_KERNELS");
  std::string runnable;
  for (const Ops* ops : RunnableOps()) runnable += (runnable.empty() ? "" : ", ") + std::string(ops->name);
  return InvalidArgument("--kernels " + (name.empty() && forced != nullptr ? std::string(forced) : name) +
                             ": this program runs " + runnable +
                             " here; leave --kernels and TACTUS_KERNELS out to get the fastest; a first build has this "
                             "machine's sets only, and `scripts/build.sh release programs` builds all",
                         "kernels");
}

}  // namespace

Status CheckKernels(const EngineOptions& options) {
  return ChooseKernels(options.kernels).status();
}

Result<ModelNumerics> ChooseModelNumerics(const EngineOptions& options, const ModelDescription& description) {
  ModelNumerics m;
  std::optional<DummyWeights> dummy;
  if (options.load_format == "dummy") dummy = {.seed = static_cast<uint64_t>(options.seed)};
  const DType stored = dummy ? dummy->dtype : description.config.weight_dtype;
  TACTUS_ASSIGN_OR_RETURN(
      m.numerics,
      ChooseNumerics({options.dtype, options.activation_dtype, options.quantization, options.kv_cache_dtype}, stored));
  TACTUS_ASSIGN_OR_RETURN(m.ops, ChooseKernels(options.kernels));
  m.threads = options.threads > 0 ? static_cast<int32_t>(options.threads) : UsableCores();
  m.load = LoadOptionsFor(m.numerics);
  m.load.dummy = dummy;
  m.load.threads = m.threads;
  m.load.cache_folder = options.weight_cache;
  if (m.numerics.tokens == Numerics::Tokens::kF32 && !m.numerics.dequantize_to_f32 &&
      options.activation_dtype != "float32") {
    m.hint = std::string(InfoOf(stored).name) +
             " weights are used exactly as stored, which is slow: --dtype bfloat16 or --quantization int8 "
             "is several times faster";
  }
  if (m.load.packing.quantization != Quantization::kNone && InfoOf(stored).block_elements > 1) {
    m.hint = std::string("the weights are ") + InfoOf(stored).name +
             " already and are quantised again, at a loss: without --quantization they are used as they are";
  }
  return m;
}

}  // namespace tactus::compute
