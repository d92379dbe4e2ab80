// `tactus doctor`: measures this machine, and with --model a model on it, and says what costs speed.
#include <cstdio>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/output_file.h"
#include "cli/commands/commands.h"
#include "cli/commands/remote_model.h"
#include "cli/options/common_options.h"
#include "cli/options/option_binding.h"
#include "cli/options/start_log.h"
#include "engine/doctor/examine.h"
#include "engine/start/check_options.h"

namespace tactus::cli {
namespace {

struct DoctorOptions {
  EngineOptions engine;
  std::string out;
  bool json = false;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Doctor");
    v.Field("model", engine.model,
            {.help = "also load this model and measure its steps: a GGUF file, a Hugging Face folder, a name of "
                     "`tactus models list`, or a model to download; default: the machine alone"});
    v.Field("json", json, {.help = "print one JSON object on stdout, for bug reports"});
    v.Field("output", out, {.alias = "o", .help = "write the JSON object to this file"});
    engine.VisitFields(v);
  }
};

Status Diagnose(DoctorOptions& o) {
  if (o.engine.device == "cuda") {
    return InvalidArgument("--device cuda: doctor measures CPUs alone; leave it out, `tactus profile` measures a GPU",
                           "device");
  }
  o.engine.device = "cpu";
  TACTUS_RETURN_IF_ERROR(engine::CheckOptions(o.engine));
  if (!o.out.empty()) TACTUS_RETURN_IF_ERROR(CheckWritable(o.out, "output"));
  const bool with_model = !o.engine.model.empty();
  StartLog log(false);
  if (with_model) TACTUS_RETURN_IF_ERROR(FetchModels(&o.engine, &log));
  const auto diagnosis =
      engine::Examine(o.engine, with_model, [&](const std::string& line) { log.Passing(line); }, SystemClock());
  log.Clear();
  if (!diagnosis.ok()) return diagnosis.status();
  const std::string json = json_text::JsonText(engine::DiagnosisJson(*diagnosis));
  if (!o.out.empty()) TACTUS_RETURN_IF_ERROR(ReplaceFile(o.out, json + "\n", "output"));
  if (o.json) {
    std::printf("%s\n", json.c_str());
  } else {
    std::printf("%s", engine::DiagnosisText(*diagnosis).c_str());
  }
  return Status();
}

}  // namespace

int DoctorCommand(const Args& args) {
  DoctorOptions options;
  CommandLine line("doctor", "[--model MODEL] [options]",
                   "Measures this machine, and a model on it, and says what costs speed and what to change. Takes some "
                   "5 seconds, with a model some 30. Findings are no failure: the exit status is 0.");
  line.Add(options);
  line.Common({"model", "json", "output", "threads", "kernels", "quantization", "dtype", "activation-dtype",
               "kv-cache-dtype", "kv-cache-memory", "weight-cache"});
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  const Status status = Diagnose(options);
  if (!status.ok()) std::fprintf(stderr, "tactus doctor: %s\n", status.message().c_str());
  return status.ok() ? kExitOk : status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace tactus::cli
