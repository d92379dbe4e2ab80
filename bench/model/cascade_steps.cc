// Whole decode steps of sequences behind one prefix, read once for all (on) and once per sequence (off), alternating.
//
//   cascade_steps MODEL [THREADS] [SECONDS] [KV_DTYPE] [SEQUENCES,... PREFIX,...]
//
// Two executors of the same weights execute the same plans; their sampled tokens are compared. One thread is measured
// in thread CPU time, several threads in wall-clock time. Every sequence has 64 tokens behind the prefix at the start
// and grows by one per step.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/clock.h"
#include "base/rng.h"
#include "compute/exec/numerics.h"
#include "compute/exec/step_runner.h"
#include "compute/model/loader.h"

namespace tactus {
namespace {

constexpr int32_t kBlock = 16, kOwn = 64, kGrowth = 192, kChunk = 512;

double Now(bool cpu) {
  timespec t;
  clock_gettime(cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Median(std::vector<double> x, double at = 0.5) {
  std::sort(x.begin(), x.end());
  return x[static_cast<size_t>(at * static_cast<double>(x.size() - 1))];
}

// One executor and its measured times.
struct Engine {
  std::unique_ptr<compute::StepRunner> runner;
  std::unique_ptr<compute::OperatorProfile> profile;
  std::vector<double> seconds, attention;

  void Run(const StepPlan& plan, bool cpu, StepResult* result) {
    profile->Clear();
    const double start = Now(cpu);
    runner->Run(plan, result);
    seconds.push_back(Now(cpu) - start);
    attention.push_back(static_cast<double>(profile->totals(compute::DecoderOperator::kAttention).time_ns) * 1e-9);
    if (result->status.ok()) return;
    std::fprintf(stderr, "%s\n", result->status.ToString().c_str());
    std::exit(1);
  }
};

Engine MakeEngine(const std::string& model, const std::string& kv_dtype, int32_t threads, bool cascade,
                  int32_t sequences, int32_t prefix, int64_t* vocab) {
  auto must = [](auto&& result) {
    if (result.ok()) return std::move(*result);
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    std::exit(1);
  };
  const compute::ModelDescription description = must(compute::DescribeModel(model));
  const compute::Numerics numerics =
      must(compute::ChooseNumerics({"auto", "auto", "none", kv_dtype}, description.config.weight_dtype));
  compute::LoadWeightsOptions load = compute::LoadOptionsFor(numerics);
  load.threads = threads;
  compute::CpuWeights weights = must(compute::LoadWeights(description, load, SystemClock()));
  *vocab = description.config.vocab_size;
  compute::CpuExecutorOptions options;
  options.clock = &SystemClock();
  options.threads = threads;
  options.kv_dtype = numerics.kv_dtype;
  options.block_size = kBlock;
  options.max_slots = options.max_step_items = sequences;
  options.max_step_tokens = std::max(kChunk, sequences);
  options.max_model_len = prefix + kOwn + kGrowth;
  options.num_blocks = (prefix + sequences * (kOwn + kGrowth)) / kBlock;
  options.cascade_attention = cascade;
  Engine engine;
  engine.runner = must(compute::StepRunner::Create(description.config, std::move(weights), options));
  engine.profile = std::make_unique<compute::OperatorProfile>(SystemClock());
  engine.runner->set_operator_profile(engine.profile.get());
  return engine;
}

// The plans for both engines.
class Scene {
 public:
  Scene(const std::string& model, const std::string& kv_dtype, int32_t threads, int32_t sequences, int32_t prefix)
      : sequences_(sequences), prefix_(prefix), cpu_(threads == 1) {
    for (const bool cascade : {false, true}) {
      engines_[cascade] = MakeEngine(model, kv_dtype, threads, cascade, sequences, prefix, &vocab_);
    }
    for (int32_t s = 0; s < sequences; ++s) Start(s);
    for (int32_t p = 0; p < prefix; p += kChunk) {
      Item(0, p, std::min(kChunk, prefix - p), false);
      Step(false);
    }
    for (int32_t s = 0; s < sequences; ++s) {
      Item(s, prefix, kOwn, true);
      Step(false);
    }
  }

  void Measure(double seconds) {
    for (Engine& e : engines_) e.seconds.clear(), e.attention.clear();
    const double end = Now(false) + seconds;
    for (int32_t turn = 0; turn < kGrowth && (turn < 6 || Now(false) < end); ++turn) {
      for (int32_t s = 0; s < sequences_; ++s) Item(s, prefix_ + kOwn + turn, 1, true);
      Step(turn % 2 == 0);
    }
    auto text = [](const std::vector<double>& x) {
      return fmt::format("{:.2f} ({:.2f}-{:.2f})", Median(x) * 1e3, Median(x, 0.25) * 1e3, Median(x, 0.75) * 1e3);
    };
    const Engine &off = engines_[0], &on = engines_[1];
    std::printf("| %d | %d | %s | %s | %.2f | %s | %s | %.2f | %.0f | %.0f | %zu |\n", sequences_, prefix_,
                text(off.attention).c_str(), text(on.attention).c_str(), Median(off.attention) / Median(on.attention),
                text(off.seconds).c_str(), text(on.seconds).c_str(), Median(off.seconds) / Median(on.seconds),
                sequences_ / Median(off.seconds), sequences_ / Median(on.seconds), on.seconds.size());
    std::fflush(stdout);
  }

 private:
  void Start(int32_t s) {
    plan_.starts.emplace_back().slot = s;
    const int32_t shared = prefix_ / kBlock, own = (kOwn + kGrowth) / kBlock;
    plan_.table_updates.push_back({s, 0, shared + own, static_cast<int32_t>(plan_.table_blocks.size())});
    for (int32_t b = 0; b < shared; ++b) plan_.table_blocks.push_back(b);
    for (int32_t b = 0; b < own; ++b) plan_.table_blocks.push_back(shared + s * own + b);
  }
  void Item(int32_t s, int32_t position, int32_t count, bool sample) {
    StepItem item;
    item.slot = s;
    item.first_position = position;
    item.count = count;
    item.sample = sample;
    item.logit_rows = sample ? 1 : 0;
    item.token_offset = static_cast<int32_t>(plan_.tokens.size());
    for (int32_t t = 0; t < count; ++t) plan_.tokens.push_back(static_cast<TokenId>(rng_.UniformInt(0, vocab_ - 1)));
    plan_.items.push_back(item);
    plan_.num_tokens += count;
  }
  void Step(bool on_first) {
    plan_.step = next_step_++;
    StepResult results[2];
    for (const bool on : {on_first, !on_first}) engines_[on].Run(plan_, cpu_, &results[on]);
    if (results[0].tokens != results[1].tokens) {
      std::fprintf(stderr, "on and off sample different tokens\n");
      std::exit(1);
    }
    plan_.Clear();
  }

  const int32_t sequences_, prefix_;
  const bool cpu_;
  int64_t vocab_ = 0;
  Engine engines_[2];  // off, on
  StepPlan plan_;
  StepId next_step_ = 0;
  Rng rng_{5, 0};
};

std::vector<int32_t> Numbers(const std::string& text) {
  std::vector<int32_t> out;
  std::stringstream in(text);
  for (std::string word; std::getline(in, word, ',');) out.push_back(std::stoi(word));
  return out;
}

}  // namespace
}  // namespace tactus

int main(int argc, char** argv) {
  using namespace tactus;
  if (argc < 2) {
    std::fprintf(stderr, "cascade_steps MODEL [THREADS] [SECONDS] [KV_DTYPE] [SEQUENCES,... PREFIX,...]\n");
    return 2;
  }
  const int32_t threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const double seconds = argc > 3 ? std::atof(argv[3]) : 5;
  std::printf(
      "%d threads; ms, medians and quartiles\n\n| sequences | prefix | attention off | on | off / on | step off | on | "
      "off "
      "/ on | tokens/s off | on | steps |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
      threads);
  for (const int32_t prefix : Numbers(argc > 6 ? argv[6] : "512,4096")) {
    for (const int32_t sequences : Numbers(argc > 5 ? argv[5] : "8,32,128")) {
      Scene(argv[1], argc > 4 ? argv[4] : "auto", threads, sequences, prefix).Measure(seconds);
    }
  }
  return 0;
}
