// `tactus sim step`: prices one step on given devices, and its parts.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <map>
#include <optional>

#include "base/json.h"
#include "base/printable.h"
#include "cli/commands/sim_commands.h"
#include "cli/search/sim_cases.h"

namespace tactus::cli {
namespace {

constexpr const char* kStepName = "sim step";
constexpr int64_t kMost = 1 << 30;  // tokens in a step, and context before it

struct StepOptions : SimCommandOptions {
  std::vector<std::string> decodes, chunks;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Step");
    v.Field("decodes", decodes,
            {.help = "NxCONTEXT, such as 32x4096: N sequences that decode one token each after CONTEXT tokens; may be "
                     "repeated"});
    v.Field("chunk", chunks,
            {.help = "TOKENS@CONTEXT, such as 512@1024 or 512: a prompt chunk after CONTEXT tokens of the prompt; may "
                     "be repeated"});
    SimCommandOptions::VisitFields(v);
  }
};

// Two whole numbers with `separator` between them, the first above 0.
std::optional<std::pair<int64_t, int64_t>> Pair(const std::string& text, char separator) {
  const auto number = [](std::string_view part) -> std::optional<int64_t> {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || value < 0 || value > kMost) return std::nullopt;
    return value;
  };
  const size_t at = text.find(separator);
  if (at == std::string::npos) return std::nullopt;
  const auto first = number(std::string_view(text).substr(0, at)),
             second = number(std::string_view(text).substr(at + 1));
  if (!first || !second || *first == 0) return std::nullopt;
  return std::pair(*first, *second);
}

// `chunks` stores the chunks that the shape points to.
Result<StepShape> ShapeOf(const StepOptions& o, std::vector<ChunkShape>* chunks) {
  StepShape shape;
  for (const std::string& text : o.decodes) {
    const auto pair = Pair(text, 'x');
    if (!pair) {
      return InvalidArgument(
          fmt::format("--decodes '{}' is not of the form NxCONTEXT, two whole numbers such as 32x4096",
                      Printable(text)),
          "decodes");
    }
    shape.decodes += pair->first;
    if (shape.decodes > kMost) {
      return InvalidArgument(
          fmt::format("--decodes '{}' makes {} decodes in a step; give at most {}", text, shape.decodes, kMost),
          "decodes");
    }
    shape.decode_context_tokens += pair->first * (pair->second + 1);
  }
  for (const std::string& text : o.chunks) {
    const auto pair = Pair(text.find('@') == std::string::npos ? text + "@0" : text, '@');
    if (!pair) {
      return InvalidArgument(
          fmt::format("--chunk '{}' is not of the form TOKENS@CONTEXT, two whole numbers such as 512@1024",
                      Printable(text)),
          "chunk");
    }
    chunks->push_back({static_cast<int32_t>(pair->second), static_cast<int32_t>(pair->first)});
  }
  if (shape.decodes == 0 && chunks->empty())
    return InvalidArgument("the step is empty: give --decodes 32x4096, --chunk 512@1024 or both", "decodes");
  shape.chunks = *chunks;
  if (shape.tokens() > kMost)
    return InvalidArgument(fmt::format("a step of {} tokens; at most {} are priced", shape.tokens(), kMost), "chunk");
  shape.logit_rows = shape.decodes + static_cast<int64_t>(chunks->size());
  return shape;
}

Json StepJson(const sim::SimSetup& setup, const StepShape& shape) {
  const double ns = static_cast<double>(setup.step_time->StepTimeNs(shape));
  Json j = {{"cost", setup.cost_text},
            {"prompt_tokens", shape.prefill_tokens()},
            {"decodes", shape.decodes},
            {"decode_context_tokens", shape.decode_context_tokens},
            {"step_ms", ns * 1e-6}};
  for (const char* name : {"parts", "kinds", "mfu", "mbu"}) j[name] = nullptr;
  if (setup.profile == nullptr) {
    Json parts = Json::array();
    std::map<std::string, double> kinds;
    for (const cost::StepPart& part : setup.cost->StepParts(shape)) {
      parts.push_back({{"name", part.name}, {"kind", part.kind}, {"ms", part.ns * 1e-6}});
      kinds[part.kind] += part.ns * 1e-6;
    }
    j["parts"] = std::move(parts);
    j["kinds"] = kinds;
    j["mfu"] = setup.cost->StepFlops(shape) / (setup.cost->peak_flops() * ns * 1e-9);
    j["mbu"] = setup.cost->StepBytes(shape) / (setup.cost->peak_bandwidth() * ns * 1e-9);
  }
  const std::string beyond = setup.step_time->Extrapolation(shape);
  j["extrapolation"] = beyond.empty() ? Json(nullptr) : Json(beyond);
  return j;
}

void Print(const Json& j) {
  const double step_ms = j["step_ms"].get<double>();
  std::printf("%s\n%lld prompt tokens, %lld decodes: %.3f ms\n", j["cost"].get<std::string>().c_str(),
              static_cast<long long>(j["prompt_tokens"].get<int64_t>()),
              static_cast<long long>(j["decodes"].get<int64_t>()), step_ms);
  if (j["parts"].is_null()) {
    std::printf("measured steps have no parts\n");
  } else {
    const auto row = [step_ms](const std::string& name, const std::string& kind, double ms) {
      std::printf("  %-46s %-14s %10.3f ms %6.1f %%\n", name.c_str(), kind.c_str(), ms, 100 * ms / step_ms);
    };
    for (const Json& part : j["parts"])
      row(part["name"].get<std::string>(), part["kind"].get<std::string>(), part["ms"].get<double>());
    std::printf("by kind\n");
    for (const auto& [kind, ms] : j["kinds"].items()) row("", kind, ms.get<double>());
    std::printf("MFU %.1f %%, MBU %.1f %%\n", 100 * j["mfu"].get<double>(), 100 * j["mbu"].get<double>());
  }
  if (!j["extrapolation"].is_null())
    std::printf("Outside the measured range: %s\n", j["extrapolation"].get<std::string>().c_str());
}

}  // namespace

int SimStepCommand(const Args& args) {
  StepOptions options;
  CommandLine line("sim step", "--model M --device D --decodes NxCONTEXT --chunk TOKENS@CONTEXT [options]",
                   "Prices one step and its parts, by operator.");
  line.Add(options);
  line.Epilog("\nThe options of the load have no effect: a single step is priced.\n");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  std::vector<ChunkShape> chunks;
  const auto shape = ShapeOf(options, &chunks);
  if (!shape.ok()) return FailOf(kStepName, shape.status(), kExitUsage);
  if (const Status status = CheckForMany(options); !status.ok()) return FailOf(kStepName, status, ExitCodeOf(status));
  const auto setup = SetUpStepTimes(options.sim);
  if (!setup.ok()) return FailOf(kStepName, setup.status(), ExitCodeOf(setup.status()));
  const Json j = StepJson(*setup, *shape);
  if (!options.json) Print(j);
  const Status written = WriteResult(j, options.json, options.output);
  return written.ok() ? kExitOk : FailOf(kStepName, written, kExitFailed);
}

}  // namespace tactus::cli
