// `tactus models list`, `rm MODEL`, `inspect MODEL` and `convert IN OUT`: lists the models on this machine, removes
// one, shows a model's properties and memory needs without loading its weights, or writes it in another format.
#include <fmt/format.h>

#include <cstdio>

#include "base/available_memory.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/commands/commands.h"
#include "cli/commands/model_convert.h"
#include "cli/commands/model_store.h"
#include "cli/commands/remote_model.h"
#include "cli/options/option_binding.h"
#include "compute/exec/model_numerics.h"
#include "compute/model/inspect.h"
#include "engine/start/check_model.h"
#include "engine/start/turn_ends.h"

namespace tactus::cli {
namespace {

struct ModelsOptions {
  std::string verb, model;
  bool json = false;
  int64_t max_model_len = 0, max_num_seqs = 256;
  BytesText kv_cache_memory;
  EngineOptions engine;  // the fields that choose numerics
  template <class V>
  void VisitFields(V& v) {
    v.Group("Models");
    v.Field("json", json, {.help = "print one JSON object on stdout"});
    v.Field("max-model-len", max_model_len,
            {.unit = "tokens", .min = 0, .help = "inspect: plan memory for this context; 0: the model's"});
    v.Field("max-num-seqs", max_num_seqs,
            {.unit = "sequences", .min = 1, .max = 65536, .help = "inspect: plan memory for this number of sequences"});
    v.Field("kv-cache-memory", kv_cache_memory,
            {.unit = "bytes", .help = "inspect: plan with this KV memory; 0: as much as `tactus serve` would use"});
    v.Field("dtype", engine.dtype,
            {.choices = kDtypeChoices, .help = "inspect: plan with this value of the `tactus serve` option"});
    v.Field("activation-dtype", engine.activation_dtype,
            {.choices = kActivationDtypeChoices, .help = "inspect: plan with this value of the `tactus serve` option"});
    v.Field("quantization", engine.quantization,
            {.choices = kQuantizationChoices, .help = "inspect: plan with this value of the `tactus serve` option"});
    v.Field("kv-cache-dtype", engine.kv_cache_dtype,
            {.choices = kKvCacheDtypeChoices, .help = "inspect: plan with this value of the `tactus serve` option"});
    v.Field("chat-template", engine.chat_template,
            {.help = "inspect: use this Jinja file instead of the model's chat template"});
    engine.sampling.VisitFields(v);
  }
};

// Prints the model's properties, then the error with which a start would fail, if any.
Status Inspect(const ModelsOptions& options) {
  TACTUS_ASSIGN_OR_RETURN(const std::string path, LocalModel(options.model));
  TACTUS_ASSIGN_OR_RETURN(compute::ModelDescription description, compute::DescribeModel(path));
  EngineOptions engine = options.engine;
  if (!description.weights_status.ok()) engine.load_format = "dummy";
  TACTUS_ASSIGN_OR_RETURN(const compute::ModelNumerics numerics,
                          compute::ChooseModelNumerics(engine, description, SystemClock()));
  compute::InspectOptions inspect;
  inspect.load = numerics.load;
  inspect.kv_dtype = numerics.numerics.kv_dtype;
  inspect.numerics = compute::NumericsText(numerics.numerics);
  inspect.start = engine::CheckStart(engine, description, SystemClock());
  inspect.sampling = engine.sampling;
  inspect.warnings = description.config.warnings;
  if (const auto text = engine::CheckModel(engine, description); text.ok()) {
    engine::TurnEnds ends = engine::FindTurnEnds(description, *text);
    description.config.stop_ids = ends.ids();
    inspect.ends = std::move(ends.tokens);
    inspect.warnings.insert(inspect.warnings.end(), ends.warnings.begin(), ends.warnings.end());
  }
  inspect.memory.available_bytes = AvailableMemoryBytes();
  inspect.memory.max_model_len = options.max_model_len;
  inspect.memory.max_num_seqs = options.max_num_seqs;
  inspect.memory.kv_memory_bytes = options.kv_cache_memory.bytes;
  const std::string text = options.json ? json_text::JsonText(compute::InspectJson(description, inspect))
                                        : compute::InspectText(description, inspect);
  std::printf("%s%s", text.c_str(), text.ends_with('\n') ? "" : "\n");
  return inspect.start;
}

}  // namespace

int ModelsCommand(const Args& args) {
  if (!args.empty() && args[0] == "convert") return ConvertCommand(Args(args.begin() + 1, args.end()));
  ModelsOptions options;
  CommandLine line(
      "models", "list | inspect [MODEL] | rm MODEL | convert IN OUT [options]",
      "Lists or removes the models on this machine, shows a model's properties and memory needs, or writes "
      "it in another format.");
  line.Add(options);
  line.Positional("VERB", &options.verb, true,
                  "list, inspect, rm or convert, whose options `tactus models convert --help` lists");
  line.Positional("MODEL", &options.model, false,
                  "a GGUF file, a folder, a name of the list, or a model to download; default: the default model");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  if (options.verb == "list" && !options.model.empty()) {
    std::fprintf(stderr, "tactus models list: unexpected argument '%s'; it takes none\n", options.model.c_str());
    return kExitUsage;
  }
  if (options.verb == "list") return ListModels(options.json);
  if (options.verb == "rm") return RemoveModel(options.model);
  if (options.verb != "inspect") {
    std::fprintf(stderr, "tactus models: '%s' is not list, inspect, rm or convert\n", options.verb.c_str());
    return kExitUsage;
  }
  const Status status = Inspect(options);
  if (!status.ok()) std::fprintf(stderr, "tactus models inspect: %s\n", status.message().c_str());
  return status.ok() ? kExitOk : kExitFailed;
}

}  // namespace tactus::cli
