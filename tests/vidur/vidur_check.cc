// Runs the engine on a Vidur log with given parameters and prints the first difference, if any.
//   vidur_check --data DIR --run sarathi --policy sarathi --blocks 27904
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "vidur/vidur_engine.h"
#include "vidur/vidur_replay.h"

int main(int argc, char** argv) {
  using namespace tactus::vidur;
  std::string data, run, requests_file = "requests.csv";
  Rules rules;
  int32_t layers = 48;
  bool stock = false;
  double tolerance_us = 1;
  CLI::App app("Compare our engine with a step log of the Vidur simulator");
  const std::map<std::string, Policy> policies{
      {"sarathi", Policy::kSarathi}, {"vllm", Policy::kVllm}, {"orca", Policy::kOrca}};
  app.add_option("--data", data, "folder with the tables and logs")->required();
  app.add_option("--run", run, "steps_<run>.csv.gz and requests_<run>.csv.gz")->required();
  app.add_option("--requests", requests_file, "arrivals and lengths, in the folder");
  app.add_option("--policy", rules.policy, "sarathi, vllm or orca")
      ->required()
      ->transform(CLI::CheckedTransformer(policies));
  app.add_option("--blocks", rules.blocks, "KV blocks")->required();
  app.add_option("--chunk", rules.chunk, "sarathi: tokens of a step");
  app.add_option("--max-tokens-in-batch", rules.max_tokens_in_batch, "vllm: padded prompt tokens of a step");
  app.add_option("--batch-cap", rules.batch_cap, "sequences of a step");
  app.add_option("--block-size", rules.block_size, "tokens of a block");
  app.add_option("--watermark", rules.watermark, "share of the blocks that admission leaves free");
  app.add_option("--max-request-tokens", rules.max_request_tokens, "longest request; orca reserves this much");
  app.add_option("--layers", layers, "layers of the tables' model");
  app.add_option("--tolerance-us", tolerance_us, "largest accepted time difference");
  app.add_flag("--stock", stock, "use our preset without an injected composition");
  CLI11_PARSE(app, argc, argv);

  const auto fail = [](const tactus::Status& status) {
    fmt::print(stderr, "{}\n", status.ToString());
    return 1;
  };
  const auto requests = LoadRequests(data + "/" + requests_file);
  if (!requests.ok()) return fail(requests.status());
  const auto tables = Tables::Load(data, layers);
  if (!tables.ok()) return fail(tables.status());
  auto logged = LoadRun(data + "/steps_" + run + ".csv.gz", data + "/requests_" + run + ".csv.gz");
  if (!logged.ok()) return fail(logged.status());
  const auto ours = RunEngine(rules, stock ? Choices::kStock : Choices::kVidur, *requests, *tables);
  if (!ours.ok()) return fail(ours.status());
  const Difference engine = Compare(*logged, ours->run);
  const Difference replay = Compare(*logged, ReplayRules(rules, *requests, *tables));
  fmt::print("{}: {} of {} steps equal, largest time difference {:.3f} us ({})\n", run, engine.rows_compared,
             logged->steps.size(), engine.max_time_error_s * 1e6, ours->scheduler);
  if (!engine.first.empty()) fmt::print("first difference: {}\n", engine.first);
  if (!replay.first.empty()) fmt::print("the rules alone differ too: {}\n", replay.first);
  if (!tables->covered()) fmt::print("some steps are beyond the tables\n");
  return engine.ok(tolerance_us * 1e-6) && tables->covered() ? 0 : 1;
}
