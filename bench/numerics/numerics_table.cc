// numerics_table MODEL CHATS.json [TOKENS.txt [MAX_TOKENS]] | numerics_table MODEL CHATS.json --dump FILE
//
// How far each arithmetic moves the model's next-token distribution from f32: Kullback-Leibler divergence KL(f32 || x) in nats and
// how often the most likely token is the same, position by position on given text (teacher forcing), as a markdown
// table. CHATS.json: tests/golden/data/smollm2-135m.json, whose answers are scored, and whose first answer each arithmetic
// must give by itself. TOKENS.txt: token ids of a text (`tactus tokenize MODEL --ids`), in windows of 512.
// --dump: writes the reference's logits of the chat answers instead, f32 [positions, vocab], for llama_cpp_row.py.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "numerics_variants.h"

namespace tactus::bench {
namespace {

constexpr int64_t kWindow = 512;

struct Passage {
  std::vector<TokenId> tokens;
  size_t first_scored = 0;        // rows from here on are compared
};

struct Score {
  std::vector<double> kl;
  int64_t same_best = 0;
  double log_likelihood = 0.0;
  int64_t predicted = 0;          // rows with a next token
};

size_t Best(const float* l, size_t n) { return static_cast<size_t>(std::max_element(l, l + n) - l); }

double LogSumExp(const float* l, size_t n) {
  const double max = *std::max_element(l, l + n);
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(l[i] - max);
  return max + std::log(sum);
}

double Divergence(const float* p, const float* q, size_t n) {
  const double zp = LogSumExp(p, n), zq = LogSumExp(q, n);
  double kl = 0.0;
  for (size_t i = 0; i < n; ++i) {
    const double lp = p[i] - zp;
    kl += std::exp(lp) * (lp - (q[i] - zq));
  }
  return std::max(kl, 0.0);
}

CpuExecutorOptions OptionsOf(const NumericsVariant& v) {
  CpuExecutorOptions o;
  o.ops = v.ops;
  o.linear_mode = v.linear_mode;
  o.kv_dtype = v.kv_dtype;
  o.num_blocks = kWindow / 16 + 1;
  o.max_slots = 1;
  o.max_step_tokens = kWindow;
  o.max_step_items = 64;          // rows of logits at a time
  o.max_model_len = kWindow + 16;
  return o;
}

// One plan over the tokens at [first, first + count) of slot 0.
StepPlan PlanOf(const std::vector<TokenId>& tokens, int32_t first, int32_t logit_rows) {
  StepPlan plan;
  if (first == 0) {
    plan.starts.push_back({0, 0, nullptr, {}});   // no request: greedy
    for (BlockId b = 0; b < static_cast<BlockId>(kWindow / 16 + 1); ++b) plan.table_blocks.push_back(b);
    plan.table_updates.push_back({0, 0, static_cast<int32_t>(plan.table_blocks.size()), 0});
  }
  StepItem item;
  item.slot = 0;
  item.first_position = first;
  item.count = static_cast<int32_t>(tokens.size());
  item.logit_rows = logit_rows;
  item.sample = logit_rows == 1;
  plan.items.push_back(item);
  plan.tokens = tokens;
  return plan;
}

void RunPassage(StepRunner& runner, const Passage& passage, const std::function<void(size_t, std::span<const float>)>& row) {
  runner.set_logits_observer([&](int32_t, int32_t position, std::span<const float> logits) {
    row(static_cast<size_t>(position) - passage.first_scored, logits);
  });
  StepResult result;
  runner.Run(PlanOf(passage.tokens, 0, static_cast<int32_t>(passage.tokens.size() - passage.first_scored)), &result);
  runner.set_logits_observer(nullptr);
  if (!result.status.ok()) throw std::runtime_error(result.status.ToString());
}

void AddScores(const std::vector<std::unique_ptr<StepRunner>>& runners, const Passage& passage, std::vector<Score>* scores) {
  std::vector<std::vector<float>> reference(passage.tokens.size() - passage.first_scored);
  for (size_t v = 0; v < runners.size(); ++v) {
    Score& score = (*scores)[v];
    RunPassage(*runners[v], passage, [&](size_t r, std::span<const float> logits) {
      if (v == 0) reference[r].assign(logits.begin(), logits.end());
      const float* p = reference[r].data();
      score.kl.push_back(v == 0 ? 0.0 : Divergence(p, logits.data(), logits.size()));
      score.same_best += Best(p, logits.size()) == Best(logits.data(), logits.size());
      const size_t next = passage.first_scored + r + 1;
      if (next < passage.tokens.size()) {
        score.log_likelihood += logits[static_cast<size_t>(passage.tokens[next])] - LogSumExp(logits.data(), logits.size());
        ++score.predicted;
      }
    });
  }
}

std::vector<TokenId> Greedy(StepRunner& runner, std::vector<TokenId> prompt, size_t count) {
  std::vector<TokenId> answer;
  int32_t first = 0;
  while (answer.size() < count) {
    StepResult result;
    const auto n = static_cast<int32_t>(prompt.size());
    runner.Run(PlanOf(prompt, first, 1), &result);
    if (!result.status.ok()) throw std::runtime_error(result.status.ToString());
    answer.push_back(result.tokens.at(0));
    first += n;
    prompt = {answer.back()};
  }
  return answer;
}

void PrintTable(const char* title, const std::vector<NumericsVariant>& variants, std::vector<Score>& scores,
                const std::vector<bool>* answers) {
  fmt::print("\n{} ({} positions)\n\n| numerics | mean KL | p99 KL | max KL | same best token | perplexity |{}\n|---|---|---|---|---|---|{}\n",
             title, scores[0].kl.size(), answers != nullptr ? " \"... is Paris.\" |" : "", answers != nullptr ? "---|" : "");
  for (size_t v = 0; v < variants.size(); ++v) {
    Score& s = scores[v];
    std::sort(s.kl.begin(), s.kl.end());
    double sum = 0.0;
    for (const double k : s.kl) sum += k;
    const size_t n = s.kl.size();
    fmt::print("| {} | {:.2e} | {:.2e} | {:.2e} | {:.2f} % | {:.3f} |", variants[v].name, sum / static_cast<double>(n),
               s.kl[std::min(n - 1, n * 99 / 100)], s.kl[n - 1], 100.0 * static_cast<double>(s.same_best) / static_cast<double>(n),
               std::exp(-s.log_likelihood / static_cast<double>(std::max<int64_t>(s.predicted, 1))));
    fmt::print("{}\n", answers == nullptr ? "" : (*answers)[v] ? " yes |" : " no |");
  }
  std::fflush(stdout);
}

int Run(int argc, char** argv) {
  auto description = DescribeModel(argv[1]);
  if (!description.ok()) throw std::runtime_error(description.status().ToString());
  auto variants = MakeVariants(*description);
  if (!variants.ok()) throw std::runtime_error(variants.status().ToString());
  std::vector<std::unique_ptr<StepRunner>> runners;
  for (const NumericsVariant& v : *variants) {
    auto runner = StepRunner::Create(description->config, v.weights, OptionsOf(v));
    if (!runner.ok()) throw std::runtime_error(runner.status().ToString());
    runners.push_back(std::move(*runner));
  }
  const bool dump = argc > 4 && std::string_view(argv[3]) == "--dump";
  std::ofstream dumped;
  if (dump) {
    dumped.open(argv[4], std::ios::binary);
    runners.resize(1);
    variants->resize(1);
  }
  std::ifstream chats(argv[2]);
  const auto json = nlohmann::json::parse(chats);
  std::vector<Score> scores(variants->size());
  std::vector<bool> answers;
  for (const auto& c : json.at("cases")) {
    Passage p;
    p.tokens = c.at("prompt").get<std::vector<TokenId>>();
    p.first_scored = p.tokens.size() - 1;
    auto greedy = c.at("greedy").get<std::vector<TokenId>>();
    if (answers.empty()) {
      const std::vector<TokenId> expected(greedy.begin(), greedy.begin() + 8);   // with the stop id
      for (const auto& runner : runners) answers.push_back(Greedy(*runner, p.tokens, 8) == expected);
    }
    p.tokens.insert(p.tokens.end(), greedy.begin(), greedy.end());
    if (dump) {
      RunPassage(*runners[0], p, [&](size_t, std::span<const float> logits) {
        dumped.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size_bytes()));
      });
      continue;
    }
    AddScores(runners, p, &scores);
  }
  if (dump) return dumped.good() ? 0 : 1;
  PrintTable("Chat answers", *variants, scores, &answers);
  if (argc > 3) {
    std::ifstream in(argv[3]);
    const size_t limit = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 4096;
    std::vector<TokenId> ids;
    for (TokenId id; ids.size() < limit && in >> id;) ids.push_back(id);
    scores.assign(variants->size(), {});
    for (size_t at = 0; at < ids.size(); at += kWindow) {
      const size_t end = std::min(ids.size(), at + kWindow);
      AddScores(runners, {{ids.begin() + static_cast<int64_t>(at), ids.begin() + static_cast<int64_t>(end)}, 0}, &scores);
    }
    PrintTable("Running text", *variants, scores, nullptr);
  }
  return 0;
}

}  // namespace
}  // namespace tactus::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: numerics_table MODEL CHATS.json [TOKENS.txt [MAX_TOKENS]]\n");
    return 2;
  }
  try {
    return tactus::bench::Run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
