#include "golden/golden_case.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/step_driver.h"

namespace tactus::test {

std::vector<GoldenCase> ReadGoldenCases(const std::string& json_path) {
  std::ifstream in(json_path);
  const auto json = nlohmann::json::parse(in);
  std::vector<GoldenCase> cases;
  for (const auto& c : json.at("cases")) {
    GoldenCase g;
    g.name = c.at("name");
    g.max_model_len = c.at("max_model_len");
    g.prompt = c.at("prompt").get<std::vector<TokenId>>();
    g.greedy = c.at("greedy").get<std::vector<TokenId>>();
    g.greedy_margin = c.at("greedy_margin").get<std::vector<float>>();
    if (c.contains("logits_file")) {
      g.logit_positions = c.at("logit_positions").get<std::vector<int32_t>>();
      g.logits.resize(g.logit_positions.size() * json.at("vocab_size").get<size_t>());
      const auto path = std::filesystem::path(json_path).parent_path() / c.at("logits_file").get<std::string>();
      std::ifstream file(path, std::ios::binary);
      file.read(reinterpret_cast<char*>(g.logits.data()), static_cast<std::streamsize>(g.logits.size() * sizeof(float)));
      if (file.gcount() != static_cast<std::streamsize>(g.logits.size() * sizeof(float))) g.logits.clear();
    }
    if (c.contains("top_logits")) g.top_logits = c.at("top_logits").get<std::vector<std::pair<TokenId, float>>>();
    cases.push_back(std::move(g));
  }
  return cases;
}

Result<GoldenRun> RunGoldenCase(const ModelConfig& config, const ModelWeights& weights, const GoldenCase& golden,
                                const Numerics& numerics, const kernels::Ops* ops) {
  const auto length = static_cast<int64_t>(golden.prompt.size() + golden.greedy.size());
  CpuExecutorOptions options;
  options.ops = ops;
  options.linear_mode = numerics.linear_mode;
  options.kv_dtype = numerics.kv_dtype;
  options.num_blocks = length / 16 + 2;
  options.max_slots = 1;
  options.max_step_tokens = length;
  options.max_step_items = static_cast<int32_t>(length);
  options.max_model_len = std::max(golden.max_model_len, length);
  // Dynamic scaling: the base follows from the length the reference was run with, the block table may be longer.
  if (config.rope.scaling == RopeScaling::kDynamic) options.max_model_len = golden.max_model_len;
  TACTUS_ASSIGN_OR_RETURN(auto runner, StepRunner::Create(config, weights, options));
  StepDriver driver(*runner, options.num_blocks, options.block_size, true);
  const int32_t s = driver.Add(MakeRequest(golden.prompt, Greedy(), static_cast<int64_t>(golden.greedy.size())));
  const StepResult first = driver.Step({{s, driver.at(s).pending()}}, !golden.logits.empty());
  if (!first.status.ok()) return first.status;
  GoldenRun run;
  const auto& rows = driver.at(s).logits;
  const auto vocab = static_cast<size_t>(config.vocab_size);
  for (size_t r = 0; r < golden.logit_positions.size() && !golden.logits.empty(); ++r) {
    const std::vector<float>& ours = rows.at(golden.logit_positions[r]);
    for (size_t v = 0; v < vocab; ++v) {
      run.logits_error = std::max(run.logits_error, std::abs(double{ours[v]} - golden.logits[r * vocab + v]));
    }
  }
  const std::vector<float>& last = rows.at(static_cast<int32_t>(golden.prompt.size()) - 1);
  for (const auto& [token, logit] : golden.top_logits) {
    run.logits_error = std::max(run.logits_error, std::abs(double{last[static_cast<size_t>(token)]} - logit));
  }
  driver.Generate(s, static_cast<int32_t>(golden.greedy.size()));
  run.greedy = driver.at(s).output();
  while (run.equal_tokens < golden.greedy.size() && run.greedy[run.equal_tokens] == golden.greedy[run.equal_tokens]) {
    ++run.equal_tokens;
  }
  return run;
}

}  // namespace tactus::test
