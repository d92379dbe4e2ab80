// numerics_table MODEL CHATS.json|- [TOKENS.txt [MAX_TOKENS]] [--operators] [--only NAME] |
// numerics_table MODEL CHATS.json|- [TOKENS.txt [MAX_TOKENS]] --activations none|q8_0|int8|int4|int4_nearest |
// numerics_table MODEL CHATS.json --dump FILE
//
// How far each arithmetic moves the model's next-token distribution from f32: Kullback-Leibler divergence KL(f32 || x)
// in nats, and how often the most likely token is the same, position by position on given text (teacher forcing), as a
// markdown table. CHATS.json: tests/golden/data/smollm2-135m.json; its answers are scored, and each arithmetic must
// generate its first answer; -: none. TOKENS.txt: token ids (`tactus tokenize MODEL --ids`), one text per line, in
// windows of 512.
// --operators: which linear operators int8 activations affect, instead of the engine's choices.
// --activations: every rounding of activations for these weights, quantised at load or as stored (none), with its
// arithmetic: 8-bit multiplications, relative to 8 bits everywhere, without the output matrix (prompts) and with it
// (decodes). The reference is f32 activations and the same weights; for weights quantised at load: int16 activations
// and f32 KV, whose KL is 4e-8.
// --only: only the arithmetics whose names contain NAME, beside the reference.
// --dump: writes the reference's logits instead, f32 [positions, vocab], of the chat answers and then of TOKENS, for
// llama_cpp_row.py. One arithmetic is in memory at a time; the reference's logits are kept.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/json.h"
#include "numerics_variants.h"

namespace tactus::bench {
namespace {

constexpr int64_t kWindow = 512;

struct Passage {
  std::vector<TokenId> tokens;
  size_t first_scored = 0;  // rows from here on are compared
};

struct Score {
  std::vector<double> kl;
  int64_t same_best = 0;
  double log_likelihood = 0.0;
  int64_t predicted = 0;  // rows with a next token
};

size_t Best(const float* l, size_t n) {
  return static_cast<size_t>(std::max_element(l, l + n) - l);
}

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

compute::CpuExecutorOptions OptionsOf(const LoadedVariant& v) {
  compute::CpuExecutorOptions o;
  o.clock = &SystemClock();
  o.ops = v.ops;
  o.kv_dtype = v.numerics.kv_dtype;
  o.num_blocks = kWindow / 16 + 1;
  o.max_slots = 1;
  o.max_step_tokens = kWindow;
  o.max_step_items = 64;  // rows of logits at once
  o.max_model_len = kWindow + 16;
  return o;
}

// One plan over the tokens at [first, first + count) of slot 0.
StepPlan PlanOf(const std::vector<TokenId>& tokens, int32_t first, int32_t logit_rows) {
  StepPlan plan;
  if (first == 0) {
    plan.starts.emplace_back().slot = 0;  // greedy
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

void RunPassage(compute::StepRunner& runner, const Passage& passage,
                const std::function<void(size_t, std::span<const float>)>& row) {
  runner.set_logits_observer([&](int32_t, int32_t position, std::span<const float> logits) {
    row(static_cast<size_t>(position) - passage.first_scored, logits);
  });
  StepResult result;
  runner.Run(PlanOf(passage.tokens, 0, static_cast<int32_t>(passage.tokens.size() - passage.first_scored)), &result);
  runner.set_logits_observer(nullptr);
  if (!result.status.ok()) throw std::runtime_error(result.status.ToString());
}

// `reference`: one vector of logits per scored row, filled by the first runner of a passage.
void AddScore(compute::StepRunner& runner, const Passage& passage, std::vector<std::vector<float>>* reference,
              Score* score) {
  const size_t rows = passage.tokens.size() - passage.first_scored;
  const bool first = reference->empty();
  reference->resize(rows);
  RunPassage(runner, passage, [&](size_t r, std::span<const float> logits) {
    if (first) (*reference)[r].assign(logits.begin(), logits.end());
    const float* p = (*reference)[r].data();
    score->kl.push_back(first ? 0.0 : Divergence(p, logits.data(), logits.size()));
    score->same_best += Best(p, logits.size()) == Best(logits.data(), logits.size());
    const size_t next = passage.first_scored + r + 1;
    if (next < passage.tokens.size()) {
      score->log_likelihood +=
          logits[static_cast<size_t>(passage.tokens[next])] - LogSumExp(logits.data(), logits.size());
      ++score->predicted;
    }
  });
}

std::vector<TokenId> Greedy(compute::StepRunner& runner, std::vector<TokenId> prompt, size_t count) {
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

double MeanOf(const std::vector<double>& v) {
  double sum = 0.0;
  for (const double x : v) sum += x;
  return sum / static_cast<double>(v.size());
}

double SameBest(const Score& s) {
  return 100.0 * static_cast<double>(s.same_best) / static_cast<double>(s.kl.size());
}

void PrintHeader(const char* title, bool answers) {
  fmt::print(
      "\n{}\n\n| numerics | mean KL | p99 KL | max KL | same best token | perplexity "
      "|{}\n|---|---|---|---|---|---|{}\n",
      title, answers ? " \"... is Paris.\" |" : "", answers ? "---|" : "");
}

std::string RowText(const std::string& name, Score& s) {
  std::sort(s.kl.begin(), s.kl.end());
  const size_t n = s.kl.size();
  return fmt::format("| {} | {:.2e} | {:.2e} | {:.2e} | {:.2f} % | {:.3f} |", name, MeanOf(s.kl),
                     s.kl[std::min(n - 1, n * 99 / 100)], s.kl[n - 1], SameBest(s),
                     std::exp(-s.log_likelihood / static_cast<double>(std::max<int64_t>(s.predicted, 1))));
}

void PrintActivationsHeader(const std::string& weights, bool chats, bool running) {
  const int scores = (chats ? 1 : 0) + (running ? 1 : 0);
  fmt::print("\n{}\n\n| activations | arithmetic of a prompt | of a decode |{}{}\n|---|---|---|", weights,
             chats ? " chat: mean KL | same best token |" : "", running ? " text: mean KL | same best token |" : "");
  for (int i = 0; i < scores; ++i) fmt::print("---|---|");
  fmt::print("\n");
}

// A row of --activations.
void PrintActivations(const std::string& name, const std::optional<Arithmetic>& work, const Score& chats,
                      const Score& running) {
  fmt::print("| {} |", name);
  fmt::print("{}", work ? fmt::format(" {:.3f} | {:.3f} |", work->prompt, work->decode) : " | |");
  for (const Score* s : {&chats, &running}) {
    if (!s->kl.empty()) fmt::print(" {:.2e} | {:.2f} % |", MeanOf(s->kl), SameBest(*s));
  }
  fmt::print("\n");
  std::fflush(stdout);
}

struct Input {
  std::string model, chats, tokens, dump, only, activations;
  size_t max_tokens = 4096;
  bool operators = false;
};

struct Texts {
  std::vector<Passage> chats, running;
  std::vector<TokenId> question, answer;  // the first chat's, with the stop id
};

Texts ReadTexts(const Input& input) {
  Texts texts;
  SortedJson cases = SortedJson::array();
  if (input.chats != "-") {
    std::ifstream chats(input.chats);
    cases = SortedJson::parse(chats).at("cases");
  }
  for (const auto& c : cases) {
    Passage p;
    p.tokens = c.at("prompt").get<std::vector<TokenId>>();
    p.first_scored = p.tokens.size() - 1;
    const auto greedy = c.at("greedy").get<std::vector<TokenId>>();
    if (texts.answer.empty()) {
      texts.question = p.tokens;
      texts.answer.assign(greedy.begin(), greedy.begin() + 8);
    }
    p.tokens.insert(p.tokens.end(), greedy.begin(), greedy.end());
    texts.chats.push_back(std::move(p));
  }
  std::ifstream in(input.tokens);
  size_t left = input.max_tokens;
  for (std::string line; !input.tokens.empty() && std::getline(in, line);) {
    std::istringstream words(line);
    std::vector<TokenId> ids;
    for (TokenId id; left > 0 && words >> id; --left) ids.push_back(id);
    for (size_t at = 0; at < ids.size(); at += kWindow) {
      const size_t end = std::min(ids.size(), at + kWindow);
      texts.running.push_back({{ids.begin() + static_cast<int64_t>(at), ids.begin() + static_cast<int64_t>(end)}, 0});
    }
  }
  return texts;
}

template <class T>
T Need(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).value();
}

int Dump(const Texts& texts, compute::StepRunner& runner, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  for (const auto* passages : {&texts.chats, &texts.running}) {
    for (const Passage& p : *passages) {
      RunPassage(runner, p, [&](size_t, std::span<const float> logits) {
        out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size_bytes()));
      });
    }
  }
  return out.good() ? 0 : 1;
}

std::vector<NumericsVariant> VariantsOf(const Input& input, bool integers) {
  if (!input.activations.empty()) return MakeActivationVariants(integers, input.activations);
  return input.operators ? MakeOperatorVariants() : MakeVariants(integers);
}

int Run(const Input& input) {
  const compute::ModelDescription description = Need(compute::DescribeModel(input.model));
  const Texts texts = ReadTexts(input);
  if (texts.chats.empty() && texts.running.empty()) throw std::runtime_error("no text: give CHATS.json or TOKENS.txt");
  const auto variants = VariantsOf(input, compute::InfoOf(description.config.weight_dtype).block_elements > 1);
  std::vector<std::vector<std::vector<float>>> reference(texts.chats.size() + texts.running.size());
  std::vector<std::string> running_rows;
  for (const NumericsVariant& v : variants) {
    const bool is_reference = &v == &variants.front();
    if (!is_reference && v.name.find(input.only) == std::string::npos) continue;
    LoadedVariant loaded = Need(LoadVariant(description, v));
    const compute::CpuExecutorOptions options = OptionsOf(loaded);
    const std::optional<Arithmetic> work = ArithmeticOf(loaded.weights);
    const std::string format = loaded.weights.format;
    const auto runner = Need(compute::StepRunner::Create(description.config, std::move(loaded.weights), options));
    if (!input.dump.empty()) return Dump(texts, *runner, input.dump);
    if (is_reference && input.activations.empty() && !texts.chats.empty()) PrintHeader("Chat answers", true);
    Score chats, running;
    for (size_t i = 0; i < texts.chats.size(); ++i) AddScore(*runner, texts.chats[i], &reference[i], &chats);
    if (!texts.chats.empty() && input.activations.empty()) {
      const bool answers = Greedy(*runner, texts.question, texts.answer.size()) == texts.answer;
      fmt::print("{} {} |\n", RowText(v.name, chats), answers ? "yes" : "no");
      std::fflush(stdout);
    }
    for (size_t i = 0; i < texts.running.size(); ++i)
      AddScore(*runner, texts.running[i], &reference[texts.chats.size() + i], &running);
    if (!input.activations.empty()) {
      if (is_reference) {
        PrintActivationsHeader(format, !texts.chats.empty(), !texts.running.empty());
      } else {
        PrintActivations(v.name, work, chats, running);
      }
    } else if (!texts.running.empty()) {
      running_rows.push_back(RowText(v.name, running));
    }
  }
  if (running_rows.empty()) return 0;
  PrintHeader("Running text", false);
  for (const std::string& row : running_rows) fmt::print("{}\n", row);
  return 0;
}

}  // namespace
}  // namespace tactus::bench

int main(int argc, char** argv) {
  tactus::bench::Input input;
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--operators") {
      input.operators = true;
    } else if (word == "--dump" && i + 1 < argc) {
      input.dump = argv[++i];
    } else if (word == "--activations" && i + 1 < argc) {
      input.activations = argv[++i];
    } else if (word == "--only" && i + 1 < argc) {
      input.only = argv[++i];
    } else {
      words.push_back(word);
    }
  }
  if (words.size() < 2 || words.size() > 4) {
    std::fprintf(
        stderr,
        "usage: numerics_table MODEL CHATS.json|- [TOKENS.txt [MAX_TOKENS]] [--operators] [--only NAME] [--dump FILE] "
        "[--activations none|q8_0|int8|int4|int4_nearest]\n");
    return 2;
  }
  input.model = words[0];
  input.chats = words[1];
  if (words.size() > 2) input.tokens = words[2];
  if (words.size() > 3) input.max_tokens = std::strtoull(words[3].c_str(), nullptr, 10);
  try {
    return tactus::bench::Run(input);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
