#include "compute/exec/model_numerics.h"

namespace tactus::compute {
namespace {

// Adds a sentence to the advice of a start.
void AddHint(const std::string& sentence, std::string* hint) {
  *hint += (hint->empty() ? "" : "; ") + sentence;
}

}  // namespace

Status CheckKernels(const EngineOptions& options) {
  return ChooseKernels(options.kernels).status();
}

Result<ModelNumerics> ChooseModelNumerics(const EngineOptions& options, const ModelDescription& description,
                                          Clock& clock) {
  ModelNumerics m;
  std::optional<DummyWeights> dummy;
  if (options.load_format == "dummy") dummy = {.seed = static_cast<uint64_t>(options.seed)};
  const DType stored = dummy ? dummy->dtype : description.config.weight_dtype;
  TACTUS_ASSIGN_OR_RETURN(
      m.numerics,
      ChooseNumerics({options.dtype, options.activation_dtype, options.quantization, options.kv_cache_dtype}, stored));
  TACTUS_ASSIGN_OR_RETURN(const MachineChoice machine, ChooseForMachine(options, clock));
  m.ops = machine.kernels.ops;
  m.threads = machine.threads.threads;
  m.threads_why = machine.threads.why;
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
  if (!machine.pages.advice.empty())
    AddHint(machine.pages.why + ", so that weights and KV are read more slowly: " + machine.pages.advice, &m.hint);
  return m;
}

}  // namespace tactus::compute
