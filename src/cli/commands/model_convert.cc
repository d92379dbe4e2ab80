#include "cli/commands/model_convert.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/clock.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/commands/converted_text.h"
#include "cli/commands/remote_model.h"
#include "cli/options/interrupt.h"
#include "cli/options/option_binding.h"
#include "compute/convert/convert.h"
#include "compute/kernels/thread_pool.h"
#include "hub/size_text.h"

namespace tactus::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertFlags {
  std::string in, out, quantization;
  bool overwrite = false, json = false;
  int64_t threads = 0;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Conversion");
    v.Field("quantization", quantization,
            {.help = "format of the matrices: for a GGUF file f32, f16, bf16, q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1 "
                     "or q4_0; for a folder f32, f16, bf16, w8a16, w8a8 or w4a16"});
    v.Field("overwrite", overwrite, {.help = "replace OUT if it exists"});
    v.Field("threads", threads, {.unit = "threads", .min = 0, .max = 4096, .help = "0: one for each usable core"});
    v.Field("json", json, {.help = "print one JSON object on stdout"});
  }
};

// Shows bytes, rate and the time that is left, in one line of a terminal.
class ConvertProgress {
 public:
  explicit ConvertProgress(StartLog* log) : log_(log) {}

  Status Show(int64_t done, int64_t total) {
    if (InterruptCount() > 0) return Status(StatusCode::kCancelled, "stopped; no file was written");
    const TimeNs now = SystemClock().NowNs();
    if (start_ns_ == 0) start_ns_ = shown_ns_ = now;
    if (now - shown_ns_ < kPassingTime) return Status();
    shown_ns_ = now;
    const double seconds = static_cast<double>(now - start_ns_) * 1e-9, rate = static_cast<double>(done) / seconds;
    const std::string text =
        fmt::format("{} % of {}, {}/s, {:.0f} s left", 100 * done / std::max<int64_t>(total, 1), hub::SizeText(total),
                    hub::SizeText(static_cast<int64_t>(rate)), static_cast<double>(total - done) / rate);
    log_->Passing(text);
    return Status();
  }
  double Seconds() const { return static_cast<double>(SystemClock().NowNs() - start_ns_) * 1e-9; }

 private:
  static constexpr DurationNs kPassingTime = kSecond / 5;
  StartLog* const log_;
  TimeNs start_ns_ = 0, shown_ns_ = 0;
};

// OUT must not be the model or a folder around it, which --overwrite would remove first.
Status CheckElsewhere(const std::string& in, const std::string& out) {
  std::error_code error;
  const fs::path source = fs::weakly_canonical(in, error), target = fs::weakly_canonical(out, error);
  const auto relative = source.lexically_relative(target);
  if (relative.empty() || *relative.begin() == "..") return Status();
  return InvalidArgument(source == target ? fmt::format("IN and OUT are both {}", out)
                                          : fmt::format("the model {} is inside of OUT, {}", in, out),
                         "OUT");
}

Result<compute::ConvertReport> Convert(const ConvertFlags& flags, StartLog* log, ConvertProgress* progress) {
  compute::ConvertOptions options;
  options.out = flags.out;
  options.format = flags.out.ends_with(".gguf") ? compute::ModelFormat::kGguf : compute::ModelFormat::kSafetensors;
  options.overwrite = flags.overwrite;
  options.threads = flags.threads > 0 ? static_cast<int>(flags.threads) : compute::UsableCores();
  TACTUS_ASSIGN_OR_RETURN(options.matrices, compute::ConvertedFormat(flags.quantization, options.format));
  std::error_code error;
  if (fs::exists(flags.out, error) && !flags.overwrite)
    return InvalidArgument(fmt::format("{} exists; --overwrite replaces it", flags.out), "OUT");
  TACTUS_ASSIGN_OR_RETURN(const std::string path, LocalModel(flags.in));
  TACTUS_RETURN_IF_ERROR(CheckElsewhere(path, flags.out));
  TACTUS_ASSIGN_OR_RETURN(const compute::ModelDescription description, compute::DescribeModel(path));
  TACTUS_RETURN_IF_ERROR(description.weights_status);
  if (options.format == compute::ModelFormat::kSafetensors) {
    TACTUS_ASSIGN_OR_RETURN(options.files, FolderFilesFor(description));
  } else if (description.source != compute::ModelDescription::Source::kGguf) {
    std::string warning;
    auto tokenizer = GgufTokenizerFor(description, &warning);
    if (!tokenizer.ok() && tokenizer.status().code() != StatusCode::kNotFound) return tokenizer.status();
    if (!tokenizer.ok()) log->Line("warning: " + tokenizer.status().message() + ": the file will have none");
    if (!warning.empty()) log->Line("warning: " + warning);
    if (tokenizer.ok()) options.tokenizer = std::move(*tokenizer);
  }
  CatchTermination();  // until here nothing is unfinished, and a signal ends the process
  CatchInterrupt();
  options.progress = [progress](int64_t done, int64_t total) { return progress->Show(done, total); };
  return compute::ConvertModel(description, options);
}

int ExitStatusOf(StatusCode code) {
  if (code == StatusCode::kCancelled) return kExitInterrupted;
  return code == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace

int ConvertCommand(const Args& args) {
  ConvertFlags flags;
  CommandLine line("models convert", "IN OUT --quantization NAME [options]",
                   "Writes a model in another format: a GGUF file, or a folder of safetensors.");
  line.Add(flags);
  line.Positional("IN", &flags.in, true, "a model as for `tactus run`: a GGUF file, a folder, or a name");
  line.Positional("OUT", &flags.out, true, "a file that ends with .gguf, or a folder");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  StartLog log(false);
  ConvertProgress progress(&log);
  const auto report = Convert(flags, &log, &progress);
  log.Clear();
  if (!report.ok()) {
    std::fprintf(stderr, "tactus models convert: %s\n", report.status().message().c_str());
    return ExitStatusOf(report.status().code());
  }
  for (const std::string& note : report->notes) log.Line(note);
  if (flags.json) {
    const Json out = {
        {"path", flags.out}, {"size_bytes", report->bytes}, {"format", report->format}, {"notes", report->notes}};
    std::printf("%s\n", json_text::JsonText(out).c_str());
  } else {
    std::printf("%s: %s, %s, in %.1f s\n", flags.out.c_str(), hub::SizeText(report->bytes).c_str(),
                report->format.c_str(), progress.Seconds());
  }
  return kExitOk;
}

}  // namespace tactus::cli
