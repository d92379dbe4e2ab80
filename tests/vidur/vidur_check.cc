// Runs the engine on a Vidur log with given parameters and prints the first difference, if any.
//   vidur_check --data DIR --run sarathi --policy sarathi --blocks 27904
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cli/options/option_binding.h"
#include "vidur/vidur_engine.h"
#include "vidur/vidur_replay.h"

namespace tactus::vidur {
namespace {

struct CheckOptions {
  std::string data, run, requests = "requests.csv", policy = "sarathi";
  int64_t blocks = 0, chunk = Rules{}.chunk, max_tokens_in_batch = Rules{}.max_tokens_in_batch;
  int64_t batch_cap = Rules{}.batch_cap, block_size = Rules{}.block_size;
  int64_t max_request_tokens = Rules{}.max_request_tokens, layers = 48;
  double watermark = Rules{}.watermark, tolerance_us = 1;
  bool stock = false;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Check");
    v.Field("data", data, {.help = "folder with the tables and logs"});
    v.Field("run", run, {.help = "steps_<run>.csv.gz and requests_<run>.csv.gz"});
    v.Field("requests", requests, {.help = "arrivals and lengths, in the folder"});
    v.Field("policy", policy, {.choices = "sarathi|vllm|orca", .help = "the rules of the log"});
    v.Field("blocks", blocks, {.min = 0, .max = 1e9, .help = "KV blocks"});
    v.Field("chunk", chunk, {.min = 0, .max = 1e9, .help = "sarathi: tokens of a step"});
    v.Field("max-tokens-in-batch", max_tokens_in_batch,
            {.min = 0, .max = 1e9, .help = "vllm: padded prompt tokens of a step"});
    v.Field("batch-cap", batch_cap, {.min = 0, .max = 1e9, .help = "sequences of a step"});
    v.Field("block-size", block_size, {.min = 1, .max = 1e9, .help = "tokens of a block"});
    v.Field("watermark", watermark, {.min = 0, .max = 1, .help = "share of the blocks that admission leaves free"});
    v.Field("max-request-tokens", max_request_tokens,
            {.min = 0, .max = 1e9, .help = "longest request; orca reserves this much"});
    v.Field("layers", layers, {.min = 1, .max = 1e6, .help = "layers of the tables' model"});
    v.Field("tolerance-us", tolerance_us, {.min = 0, .help = "largest accepted time difference"});
    v.Field("stock", stock, {.help = "use our preset without an injected composition"});
  }
};

Rules RulesOf(const CheckOptions& o) {
  Rules rules;
  rules.policy = o.policy == "vllm" ? Policy::kVllm : o.policy == "orca" ? Policy::kOrca : Policy::kSarathi;
  rules.blocks = static_cast<decltype(rules.blocks)>(o.blocks);
  rules.chunk = static_cast<decltype(rules.chunk)>(o.chunk);
  rules.max_tokens_in_batch = static_cast<decltype(rules.max_tokens_in_batch)>(o.max_tokens_in_batch);
  rules.batch_cap = static_cast<decltype(rules.batch_cap)>(o.batch_cap);
  rules.block_size = static_cast<decltype(rules.block_size)>(o.block_size);
  rules.max_request_tokens = static_cast<decltype(rules.max_request_tokens)>(o.max_request_tokens);
  rules.watermark = o.watermark;
  return rules;
}

}  // namespace
}  // namespace tactus::vidur

int main(int argc, char** argv) {
  using namespace tactus::vidur;
  CheckOptions options;
  tactus::cli::CommandLine line("vidur_check", "--data DIR --run RUN --policy POLICY --blocks N [options]",
                                "Compares our engine with a step log of the Vidur simulator.");
  line.Add(options);
  if (const auto exit = line.ParseOrExit(std::vector<std::string>(argv + 1, argv + argc))) return *exit;
  const Rules rules = RulesOf(options);
  const std::string &data = options.data, &run = options.run, &requests_file = options.requests;

  const auto fail = [](const tactus::Status& status) {
    fmt::print(stderr, "{}\n", status.ToString());
    return 1;
  };
  const auto requests = LoadRequests(data + "/" + requests_file);
  if (!requests.ok()) return fail(requests.status());
  const auto tables = Tables::Load(data, static_cast<int32_t>(options.layers));
  if (!tables.ok()) return fail(tables.status());
  auto logged = LoadRun(data + "/steps_" + run + ".csv.gz", data + "/requests_" + run + ".csv.gz");
  if (!logged.ok()) return fail(logged.status());
  const auto ours = RunEngine(rules, options.stock ? Choices::kStock : Choices::kVidur, *requests, *tables);
  if (!ours.ok()) return fail(ours.status());
  const Difference engine = Compare(*logged, ours->run);
  const Difference replay = Compare(*logged, ReplayRules(rules, *requests, *tables));
  fmt::print("{}: {} of {} steps equal, largest time difference {:.3f} us ({})\n", run, engine.rows_compared,
             logged->steps.size(), engine.max_time_error_s * 1e6, ours->scheduler);
  if (!engine.first.empty()) fmt::print("first difference: {}\n", engine.first);
  if (!replay.first.empty()) fmt::print("the rules alone differ too: {}\n", replay.first);
  if (!tables->covered()) fmt::print("some steps are beyond the tables\n");
  return engine.ok(options.tolerance_us * 1e-6) && tables->covered() ? 0 : 1;
}
