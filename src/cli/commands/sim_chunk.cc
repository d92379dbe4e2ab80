// `tactus sim chunk`: finds the step size (token budget), and so the prompt chunk, that serves equal requests fastest.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/context_room.h"
#include "base/json.h"
#include "cli/commands/sim_commands.h"
#include "cli/search/sim_cases.h"

namespace tactus::cli {
namespace {

constexpr const char* kChunkName = "sim chunk";
constexpr int64_t kMostTokens = 1 << 20, kMostSequences = 1 << 16;
// The sizes tried are multiples of a tile's rows; from 16 tiles on, eight per octave.
constexpr int64_t kTile = 64;
// Sizes within this share of the best throughput are a tie: the step-time model is no more accurate.
constexpr double kTie = 0.01;

struct ChunkOptions : SimCommandOptions {
  int64_t prompt_tokens = 0, answer_tokens = 0, sequence_tokens = 0, sequences = 0;
  double ratio = 0;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Requests");
    v.Field("prompt-tokens", prompt_tokens,
            {.unit = "tokens", .min = 0, .max = kMostTokens, .help = "P, the length of every prompt"});
    v.Field("answer-tokens", answer_tokens,
            {.unit = "tokens", .min = 0, .max = kMostTokens, .help = "D, the length of every answer"});
    v.Field("ratio", ratio,
            {.min = 0,
             .max = kMostTokens,
             .help = "P:D such as 14.2; with --sequence-tokens it replaces the two options above"});
    v.Field("sequence-tokens", sequence_tokens,
            {.unit = "tokens", .min = 0, .max = kMostTokens, .help = "P + D, with --ratio"});
    v.Field(
        "sequences", sequences,
        {.unit = "sequences", .min = 0, .max = kMostSequences, .help = "B, the number of sequences with KV in memory"});
    SimCommandOptions::VisitFields(v);
  }
};

struct Requests {
  int64_t prompt = 0, answer = 0, sequences = 0;
  double ratio() const { return static_cast<double>(prompt) / static_cast<double>(answer); }
};

Result<Requests> RequestsOf(const ChunkOptions& o) {
  Requests r{o.prompt_tokens, o.answer_tokens, o.sequences};
  const bool lengths = o.prompt_tokens > 0 || o.answer_tokens > 0, shares = o.ratio > 0 || o.sequence_tokens > 0;
  if (lengths && shares)
    return InvalidArgument("give --prompt-tokens and --answer-tokens, or --ratio and --sequence-tokens, not both",
                           "ratio");
  if (shares) {
    if (o.ratio <= 0 || o.sequence_tokens < 2)
      return InvalidArgument("--ratio and --sequence-tokens go together, such as --ratio 14 --sequence-tokens 1024",
                             "ratio");
    r.answer = std::max<int64_t>(1, std::llround(static_cast<double>(o.sequence_tokens) / (o.ratio + 1)));
    r.prompt = o.sequence_tokens - r.answer;
  }
  if (r.prompt < 1 || r.answer < 1) {
    return InvalidArgument(
        fmt::format("prompts of {} and answers of {} tokens: give both, at least 1 each, with --prompt-tokens and "
                    "--answer-tokens, or with --ratio and --sequence-tokens",
                    r.prompt, r.answer),
        "prompt-tokens");
  }
  if (r.sequences < 2) {
    return InvalidArgument(
        fmt::format("--sequences is {}; beside a chunk at least one sequence decodes, so at least 2 are needed",
                    r.sequences),
        "sequences");
  }
  return r;
}

// Checks that a request fits into the context and all sequences together into the KV memory.
Status CheckRoom(const sim::SimOptions& o, const Requests& r, const sim::SequenceRoom& room) {
  const int64_t tokens = r.prompt + r.answer;
  const Status fits = room.context > 0
                          ? CheckContext(r.prompt, r.answer, room.context, "prompt-tokens", ContextOverflow::kAnswer)
                          : Status();
  if (!fits.ok()) {
    return InvalidArgument(fmt::format("{}, or raise the context with --{} {}", fits.message(),
                                       room.context == o.max_model_len ? "max-model-len" : "override-context", tokens),
                           "prompt-tokens");
  }
  const int64_t each = (tokens + o.block_size - 1) / o.block_size, most = room.kv_blocks / each;
  if (room.kv_blocks == 0 || r.sequences <= most) return Status();
  return InvalidArgument(
      fmt::format("{} sequences of {} tokens need {} KV blocks of {} tokens and there are {}; {}shorten prompt or "
                  "answer, or raise --kv-blocks",
                  r.sequences, tokens, r.sequences * each, o.block_size, room.kv_blocks,
                  most >= 2 ? fmt::format("give --sequences up to {}, ", most) : ""),
      "sequences");
}

// The steady state with steps of `size` tokens, as cycles of one request: its prompt in `chunks` steps, each with
// `decodes` sequences beside the chunk, then the rest of an answer in steps of decodes only.
struct Candidate {
  int64_t size = 0, chunk = 0, chunks = 0, decodes = 0;
  double alone = 0;  // number of steps of B decodes; may be fractional
  double cycle_ns = 0, tokens_per_s = 0;
};

class Steady {
 public:
  Steady(const StepTimeModel& times, const Requests& r) : times_(times), r_(r) {}

  Candidate At(int64_t size) const {
    Candidate c;
    c.size = size;
    // Limited by the number of sequences and by the answers' tokens.
    for (c.decodes = std::min(r_.sequences - 1, size - 1);; --c.decodes) {
      c.chunk = std::min(r_.prompt, size - c.decodes);
      c.chunks = (r_.prompt + c.chunk - 1) / c.chunk;
      if (c.decodes <= (r_.answer + c.chunks - 1) / c.chunks) break;
    }
    double beside = 0;
    for (int64_t done = 0; done < r_.prompt; done += c.chunk) {
      c.cycle_ns += StepNs(done, std::min(c.chunk, r_.prompt - done), c.decodes);
      beside += static_cast<double>(c.decodes);
    }
    c.alone = std::max(0.0, static_cast<double>(r_.answer) - beside) / static_cast<double>(r_.sequences);
    c.cycle_ns += c.alone * StepNs(0, 0, r_.sequences);
    return Rated(c);
  }
  // The baseline: whole prompts and decodes in separate steps.
  Candidate Apart() const {
    Candidate c;
    c.alone = static_cast<double>(r_.answer) / static_cast<double>(r_.sequences);
    c.cycle_ns = StepNs(0, r_.prompt, 0) + c.alone * StepNs(0, 0, r_.sequences);
    return Rated(c);
  }

 private:
  Candidate Rated(Candidate c) const {
    c.tokens_per_s = static_cast<double>(r_.prompt + r_.answer) / (c.cycle_ns * 1e-9);
    return c;
  }
  double StepNs(int64_t before, int64_t chunk, int64_t decodes) const {
    const ChunkShape one{static_cast<int32_t>(before), static_cast<int32_t>(chunk)};
    StepShape shape;
    if (chunk > 0) shape.chunks = {&one, 1};
    shape.decodes = decodes;
    // On average half of an answer is decoded.
    shape.decode_context_tokens = decodes * (r_.prompt + (r_.answer + 1) / 2);
    shape.logit_rows = decodes + (chunk > 0 ? 1 : 0);
    return static_cast<double>(times_.StepTimeNs(shape));
  }

  const StepTimeModel& times_;
  const Requests r_;
};

// Up to the first size that holds a whole prompt beside all decodes.
std::vector<int64_t> Sizes(const Requests& r) {
  std::vector<int64_t> sizes;
  int64_t step = kTile;
  for (int64_t size = kTile;; size += step) {
    if (size >= 16 * step) step *= 2;
    if (size < r.sequences) continue;  // no room for a chunk
    sizes.push_back(size);
    if (size >= r.prompt + r.sequences - 1) return sizes;
  }
}

Json RowOf(const Candidate& c, const Candidate& apart, double best) {
  return {{"step_tokens", c.size},
          {"chunk_tokens", c.chunk},
          {"chunks", c.chunks},
          {"decodes_beside", c.decodes},
          {"steps_of_decodes", c.alone},
          {"tokens_per_s", c.tokens_per_s},
          {"gain", c.tokens_per_s / apart.tokens_per_s},
          {"ties_with_best", c.tokens_per_s >= (1 - kTie) * best}};
}

Json ChunkJson(const sim::SimSetup& setup, const Requests& r) {
  const Steady steady(*setup.step_time, r);
  const Candidate apart = steady.Apart();
  std::vector<Candidate> found;
  for (const int64_t size : Sizes(r)) found.push_back(steady.At(size));
  const auto best = std::max_element(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return a.tokens_per_s < b.tokens_per_s;
  });
  Json rows = Json::array();
  for (const Candidate& c : found) rows.push_back(RowOf(c, apart, best->tokens_per_s));
  return {{"cost", setup.cost_text},
          {"prompt_tokens", r.prompt},
          {"answer_tokens", r.answer},
          {"sequences", r.sequences},
          {"ratio", r.ratio()},
          {"best", RowOf(*best, apart, best->tokens_per_s)},
          // Sarathi (2023), 5.1.3: P:D = C / (B - 1).
          {"balanced_step_tokens", r.ratio() * static_cast<double>(r.sequences - 1)},
          {"apart_tokens_per_s", apart.tokens_per_s},
          {"candidates", std::move(rows)}};
}

void PrintSizes(const Json& j) {
  const Json& best = j["best"];
  std::printf("%s\nprompts of %lld tokens, answers of %lld (P:D %.3g), %lld sequences\n",
              j["cost"].get<std::string>().c_str(), static_cast<long long>(j["prompt_tokens"].get<int64_t>()),
              static_cast<long long>(j["answer_tokens"].get<int64_t>()), j["ratio"].get<double>(),
              static_cast<long long>(j["sequences"].get<int64_t>()));
  std::printf("best: --token-budget %lld, %.1f tokens/s, %.2f times prompts and decodes apart\n",
              static_cast<long long>(best["step_tokens"].get<int64_t>()), best["tokens_per_s"].get<double>(),
              best["gain"].get<double>());
  std::printf("where chunks and decodes last equally long, C = P:D x (B - 1): %.0f\n",
              j["balanced_step_tokens"].get<double>());
  std::printf("%12s %8s %8s %8s %18s %12s %8s\n", "step tokens", "chunk", "chunks", "decodes", "steps of decodes",
              "tokens/s", "gain");
  for (const Json& c : j["candidates"]) {
    const char* remark = c["step_tokens"] == best["step_tokens"] ? "  best"
                         : c["ties_with_best"].get<bool>()       ? "  within 1 %"
                                                                 : "";
    std::printf(
        "%12lld %8lld %8lld %8lld %18.1f %12.1f %8.3f%s\n", static_cast<long long>(c["step_tokens"].get<int64_t>()),
        static_cast<long long>(c["chunk_tokens"].get<int64_t>()), static_cast<long long>(c["chunks"].get<int64_t>()),
        static_cast<long long>(c["decodes_beside"].get<int64_t>()), c["steps_of_decodes"].get<double>(),
        c["tokens_per_s"].get<double>(), c["gain"].get<double>(), remark);
  }
}

}  // namespace

int SimChunkCommand(const Args& args) {
  ChunkOptions options;
  CommandLine line(
      "sim chunk", "--model M --device D --prompt-tokens P --answer-tokens D --sequences B [options]",
      "Picks the tokens of a step (--token-budget) with which equal requests are served fastest, by step times.");
  line.Add(options);
  line.Epilog("\nThe load's options do not count: requests are equal, and as many as --sequences are always there.\n");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  const auto requests = RequestsOf(options);
  if (!requests.ok()) return FailOf(kChunkName, requests.status(), kExitUsage);
  if (const Status status = CheckForMany(options); !status.ok()) return FailOf(kChunkName, status, ExitCodeOf(status));
  auto setup = SetUpStepTimes(options.sim);
  if (!setup.ok()) return FailOf(kChunkName, setup.status(), ExitCodeOf(setup.status()));
  const auto room = sim::PlanRoom(options.sim, &*setup);
  if (!room.ok()) return FailOf(kChunkName, room.status(), ExitCodeOf(room.status()));
  if (const Status fits = CheckRoom(options.sim, *requests, *room); !fits.ok())
    return FailOf(kChunkName, fits, kExitUsage);
  const Json j = ChunkJson(*setup, *requests);
  if (!options.json) PrintSizes(j);
  const Status written = WriteResult(j, options.json, options.output);
  return written.ok() ? kExitOk : FailOf(kChunkName, written, kExitFailed);
}

}  // namespace tactus::cli
