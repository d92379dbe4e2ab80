#include "golden/golden_case.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/json.h"
#include "support/step_driver.h"

namespace tactus::test {

namespace {

Status ReadLogits(const std::string& path, size_t count, std::vector<float>* logits) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return NotFound("no logits at " + path);
  if (count == 0 || size != count * sizeof(float)) {
    return InvalidArgument(path + " has " + std::to_string(size) + " bytes, but its case has " + std::to_string(count) +
                           " logits");
  }
  logits->resize(count);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(logits->data()), static_cast<std::streamsize>(size));
  return file.good() ? Status() : Internal("cannot read " + path);
}

Status CheckCase(const GoldenCase& g) {
  const auto refuse = [&](const std::string& what) { return InvalidArgument("golden case '" + g.name + "': " + what); };
  if (g.prompt.empty() || g.greedy.empty()) return refuse("no prompt or no output");
  if (g.greedy_margin.size() != g.greedy.size()) {
    return refuse(std::to_string(g.greedy_margin.size()) + " margins for " + std::to_string(g.greedy.size()) +
                  " tokens");
  }
  if (g.logits.empty() && g.top_logits.empty()) return refuse("no logits");
  for (const int32_t p : g.logit_positions) {
    if (p < 0 || static_cast<size_t>(p) >= g.prompt.size()) return refuse("logits of position " + std::to_string(p));
  }
  const auto finite = [](double v) { return std::isfinite(v); };
  if (!std::all_of(g.logits.begin(), g.logits.end(), finite) ||
      !std::all_of(g.greedy_margin.begin(), g.greedy_margin.end(), finite) ||
      !std::all_of(g.top_logits.begin(), g.top_logits.end(), [&](const auto& top) { return finite(top.second); })) {
    return refuse("the reference itself is not finite");
  }
  return Status();
}

// exp of the mean negative log-likelihood of tokens[1, n), by the logits of each position before.
double PerplexityOf(const std::vector<TokenId>& tokens, const std::map<int32_t, std::vector<float>>& logits) {
  double sum = 0.0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const std::vector<float>& row = logits.at(static_cast<int32_t>(i));
    const double most = *std::max_element(row.begin(), row.end());
    double total = 0.0;
    for (const float l : row) total += std::exp(l - most);
    sum += most + std::log(total) - row[static_cast<size_t>(tokens[i + 1])];
  }
  return std::exp(sum / static_cast<double>(tokens.size() - 1));
}

}  // namespace

Result<std::vector<GoldenCase>> ReadGoldenCases(const std::string& json_path) {
  std::ifstream in(json_path);
  if (!in) return NotFound("no golden data at " + json_path);
  const auto json = SortedJson::parse(in, nullptr, false);
  if (!json.is_object() || !json.contains("cases") || json["cases"].empty())
    return InvalidArgument(json_path + " has no cases");
  std::vector<GoldenCase> cases;
  for (const auto& c : json["cases"]) {
    GoldenCase g;
    g.name = c.at("name");
    g.max_model_len = c.at("max_model_len");
    g.prompt = c.at("prompt").get<std::vector<TokenId>>();
    g.greedy = c.at("greedy").get<std::vector<TokenId>>();
    g.greedy_margin = c.at("greedy_margin").get<std::vector<float>>();
    if (c.contains("logits_file")) {
      g.logit_positions = c.at("logit_positions").get<std::vector<int32_t>>();
      const auto path = std::filesystem::path(json_path).parent_path() / c.at("logits_file").get<std::string>();
      TACTUS_RETURN_IF_ERROR(
          ReadLogits(path.string(), g.logit_positions.size() * json.at("vocab_size").get<size_t>(), &g.logits));
    }
    if (c.contains("top_logits")) g.top_logits = c.at("top_logits").get<std::vector<std::pair<TokenId, float>>>();
    g.perplexity = c.value("perplexity", 0.0);
    TACTUS_RETURN_IF_ERROR(CheckCase(g));
    cases.push_back(std::move(g));
  }
  return cases;
}

Status CompareLogit(double ours, double reference, int32_t position, size_t token, double* error) {
  const double difference = std::abs(ours - reference);
  if (!std::isfinite(ours) || !std::isfinite(reference)) {
    return Internal("the logit of token " + std::to_string(token) + " at position " + std::to_string(position) +
                    " is " + std::to_string(ours) + ", the reference has " + std::to_string(reference));
  }
  *error = std::max(*error, difference);
  return Status();
}

ExecutorSize GoldenSize(const compute::ModelConfig& config, const GoldenCase& golden) {
  const auto length = static_cast<int64_t>(golden.prompt.size() + golden.greedy.size());
  ExecutorSize size;
  size.num_blocks = length / size.block_size + 2;
  size.max_slots = 1;
  size.max_step_tokens = length;
  size.max_step_items = static_cast<int32_t>(length);
  size.max_model_len = std::max(golden.max_model_len, length);
  // Frequencies depend on max_model_len of the reference run, although the block table may be longer.
  if (config.rope.scaling == compute::RopeScaling::kDynamic || config.rope.scaling == compute::RopeScaling::kLongRope) {
    size.max_model_len = golden.max_model_len;
  }
  return size;
}

Result<GoldenRun> RunGoldenCase(const compute::ModelConfig& config, const compute::CpuWeights& weights,
                                const GoldenCase& golden, const compute::Numerics& numerics, const compute::Ops* ops) {
  const ExecutorSize size = GoldenSize(config, golden);
  compute::CpuExecutorOptions options;
  options.clock = &SystemClock();
  options.ops = ops;
  options.kv_dtype = numerics.kv_dtype;
  options.num_blocks = size.num_blocks;
  options.max_slots = size.max_slots;
  options.max_step_tokens = size.max_step_tokens;
  options.max_step_items = size.max_step_items;
  options.max_model_len = size.max_model_len;
  TACTUS_ASSIGN_OR_RETURN(auto runner, compute::StepRunner::Create(config, weights, options));
  StepDriver driver(*runner, options.num_blocks, options.block_size, true);
  return DriveGoldenCase(config, golden, driver);
}

Result<GoldenRun> DriveGoldenCase(const compute::ModelConfig& config, const GoldenCase& golden, StepDriver& driver) {
  const int32_t s = driver.Add(MakeRequest(golden.prompt, Greedy(), static_cast<int64_t>(golden.greedy.size())));
  const StepResult first =
      driver.Step({{s, driver.at(s).pending()}}, !golden.logits.empty() || golden.perplexity > 0.0);
  if (!first.status.ok()) return first.status;
  GoldenRun run;
  const auto& rows = driver.at(s).logits;
  const auto vocab = static_cast<size_t>(config.vocab_size);
  std::vector<double> errors(golden.logit_positions.size());
  for (size_t r = 0; r < golden.logit_positions.size() && !golden.logits.empty(); ++r) {
    const std::vector<float>& ours = rows.at(golden.logit_positions[r]);
    for (size_t v = 0; v < vocab; ++v) {
      TACTUS_RETURN_IF_ERROR(
          CompareLogit(ours[v], golden.logits[r * vocab + v], golden.logit_positions[r], v, &errors[r]));
    }
    run.logits_error = std::max(run.logits_error, errors[r]);
  }
  std::sort(errors.begin(), errors.end());
  if (!golden.logits.empty()) run.median_error = errors[errors.size() / 2];
  if (golden.perplexity > 0.0) run.perplexity = PerplexityOf(golden.prompt, rows);
  const auto last_position = static_cast<int32_t>(golden.prompt.size()) - 1;
  const std::vector<float>& last = rows.at(last_position);
  for (const auto& [token, logit] : golden.top_logits) {
    const auto t = static_cast<size_t>(token);
    TACTUS_RETURN_IF_ERROR(CompareLogit(last.at(t), logit, last_position, t, &run.logits_error));
  }
  driver.Generate(s, static_cast<int32_t>(golden.greedy.size()));
  run.greedy = driver.at(s).output();
  if (run.greedy.size() < golden.greedy.size()) {
    return Internal("the output ended after " + std::to_string(run.greedy.size()) + " of " +
                    std::to_string(golden.greedy.size()) + " tokens" +
                    (driver.at(s).status == ItemStatus::kBadLogits ? ": logits are not finite" : ""));
  }
  while (run.equal_tokens < golden.greedy.size() && run.greedy[run.equal_tokens] == golden.greedy[run.equal_tokens]) {
    ++run.equal_tokens;
  }
  return run;
}

}  // namespace tactus::test
