#include "sim/oracle/kept_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/rng.h"
#include "core/sched/scheduler.h"
#include "cost/cost_model.h"
#include "cost/step_tables/step_table.h"
#include "sim/linear_model.h"
#include "sim/oracle/oracle.h"
#include "sim/oracle/packing_bound.h"
#include "sim/oracle/step_floor.h"
#include "sim/workload/trace_file.h"

namespace tactus::sim {
namespace {

TEST(PackingBound, MatchesTheLinearRelaxationByHand) {
  EXPECT_NEAR(BoundPacking({{{1, 1, 1}, 1.5}}, 3).most, 1.5, 1e-9);
  EXPECT_NEAR(BoundPacking({{{1, 2, 4}, 100}}, 3).most, 3, 1e-9);
  EXPECT_NEAR(BoundPacking({{{3, 1, 1}, 2}}, 3).most, 2, 1e-9);
  // Each thing uses 2 of 3 rows, so half of each gives 1.5.
  EXPECT_NEAR(BoundPacking({{{1, 1, 0}, 1}, {{0, 1, 1}, 1}, {{1, 0, 1}, 1}}, 3).most, 1.5, 1e-9);
  EXPECT_NEAR(BoundPacking({{{1, 1}, 0}}, 2).most, 0, 1e-9);
  EXPECT_NEAR(BoundPacking({}, 4).most, 4, 1e-9);
  EXPECT_NEAR(BoundPacking({{{3, 1, 1}, 2}}, 3, [] { return false; }).most, 3, 1e-9) << "still a valid bound";
}

TEST(PackingBound, NoChoiceExceedsTheBound) {
  Rng rng(5, 1);
  for (int i = 0; i < 300; ++i) {
    const size_t things = 1 + i % 9, rows = 1 + i % 7;
    std::vector<PackingRow> packing(rows);
    for (PackingRow& row : packing) {
      for (size_t j = 0; j < things; ++j) row.takes.push_back(double(rng.UniformInt(0, 9)));
      row.there_is = double(rng.UniformInt(0, 30));
    }
    int best = 0;
    for (uint32_t chosen = 0; chosen < 1u << things; ++chosen) {
      const bool keeps = std::all_of(packing.begin(), packing.end(), [&](const PackingRow& row) {
        double taken = 0;
        for (size_t j = 0; j < things; ++j) taken += (chosen >> j & 1) != 0 ? row.takes[j] : 0;
        return taken <= row.there_is;
      });
      if (keeps) best = std::max(best, std::popcount(chosen));
    }
    const PackingBound bound = BoundPacking(packing, things);
    EXPECT_GE(bound.most, best - 1e-9) << "instance " << i;
    double shares = 0;
    for (const double share : bound.shares) shares += share;
    EXPECT_NEAR(bound.most, shares, 1e-6) << "instance " << i << ": the simplex method stopped before the optimum";
  }
}

// A step of any kind: several chunks, decodes, or both; up to the limits.
struct DrawnStep {
  std::vector<ChunkShape> chunks;
  StepShape shape;
  double pairs = 0, chunk_kv = 0;
};

DrawnStep Draw(Rng* rng, const StepLimits& limits) {
  const auto up_to = [&](double most) { return static_cast<int64_t>(std::exp(rng->Uniform() * std::log(most + 1))); };
  DrawnStep step;
  const int64_t chunks = rng->UniformInt(0, 4);
  int64_t held = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t tokens = up_to(double(limits.context) / 2);
    const int64_t context = rng->UniformInt(0, 1) == 0 ? 0 : up_to(double(limits.context - tokens));
    if (held + tokens + context > limits.tokens) break;
    held += tokens + context;
    step.chunks.push_back({static_cast<int32_t>(context), static_cast<int32_t>(tokens)});
    step.pairs += PairsOf(double(tokens), double(context));
    step.chunk_kv += double(tokens + context);
  }
  if (step.chunks.empty() || rng->UniformInt(0, 3) > 0) {
    const int64_t decodes = up_to(double(limits.decodes)), context = up_to(double(limits.context));
    if (held + decodes * context <= limits.tokens) {
      step.shape.decodes = decodes;
      step.shape.decode_context_tokens = decodes * context;
    }
  }
  step.shape.chunks = step.chunks;
  step.shape.logit_rows = step.shape.decodes;
  return step;
}

void ExpectNoStepBelow(const StepTimeModel& times, const StepLimits& limits, const std::string& what) {
  const int32_t stage = SlowestStage(times, limits.tokens);
  const std::vector<StepFloor> floors = FloorsOf(times, stage, limits);
  Rng rng(11, 3);
  for (int i = 0; i < 20000; ++i) {
    const DrawnStep step = Draw(&rng, limits);
    if (step.shape.tokens() == 0) continue;
    const double ns = double(times.StageTimeNs(step.shape, stage)), kv = double(step.shape.decode_context_tokens);
    for (const StepFloor& f : floors) {
      const double tokens = double(step.shape.tokens());
      ASSERT_GE(ns, f.At(tokens, kv, step.pairs)) << what << ": " << tokens << " tokens, " << step.shape.decodes
                                                  << " decodes over " << kv << ", " << step.pairs << " pairs";
      ASSERT_GE(ns, f.At(tokens, kv + step.chunk_kv, 0)) << what << ": chunks that recompute decodes";
    }
  }
  // The floor must also be tight: for a step full of prompts, and for a single decode.
  const auto nearest = [&](const StepShape& shape, double pairs) {
    double most = 0;
    for (const StepFloor& f : floors)
      most = std::max(most, f.At(double(shape.tokens()), double(shape.decode_context_tokens), pairs));
    return most / double(times.StageTimeNs(shape, stage));
  };
  const std::vector<ChunkShape> chunks(8, {0, 256});
  StepShape prompts;
  prompts.chunks = chunks;
  EXPECT_GT(nearest(prompts, 8 * PairsOf(256, 0)), 0.75) << what;
  StepShape decode;
  decode.decodes = decode.decode_context_tokens = decode.logit_rows = 1;
  EXPECT_GT(nearest(decode, 0), 0.6) << what;
}

TEST(StepFloor, NoStepOfACostModelIsFasterThanItsFloor) {
  struct Case {
    const char* model;
    const char* device;
    int32_t tp, pp;
    const char* source;
    const char* backend;
    const char* overlap;
    int64_t kv;
  };
  for (const Case& c : {Case{"llama-3.1-8b", "h100", 1, 1, "auto", "", "off", 400000},
                        Case{"opt-13b", "a100", 1, 1, "auto", "", "off", 14624},
                        Case{"llama-3.1-70b", "a100", 4, 1, "auto", "vllm-ray", "off", 100000},
                        Case{"falcon-180b", "a100", 4, 2, "roofline", "", "off", 60000},
                        Case{"mistral-7b", "a100", 1, 1, "auto", "vllm", "off", 200000},
                        Case{"llama-3.1-8b", "h100", 1, 1, "auto", "", "nano", 400000}}) {
    cost::Deployment d;
    d.model = c.model;
    d.device = c.device;
    d.tp = c.tp;
    d.pp = c.pp;
    d.source = c.source;
    d.backend = c.backend;
    d.overlap = c.overlap;
    const auto times = cost::CostModel::Create(d);
    ASSERT_TRUE(times.ok()) << times.status().ToString();
    ExpectNoStepBelow(**times, {.tokens = c.kv, .decodes = 256, .context = 8192},
                      std::string(c.model) + " on " + c.device + ", overlap " + c.overlap);
  }
}

TEST(StepFloor, NoStepOfAMeasuredProfileIsFasterThanItsFloor) {
  std::string text = "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
  for (const int tokens : {0, 16, 64, 256, 1024}) {
    for (const int decodes : {0, 1, 8, 64}) {
      for (const int context : {64, 512, 2048}) {
        if (tokens + decodes == 0) continue;
        const double ms =
            4 + 0.05 * (tokens + decodes) + 1e-5 * tokens * (context + tokens / 2.0) + 4e-4 * decodes * context;
        text += std::to_string(tokens) + "," + std::to_string(tokens > 0 ? context : 0) + "," +
                std::to_string(decodes) + "," + std::to_string(decodes * context) + "," + std::to_string(ms) + "\n";
      }
    }
  }
  const auto times = cost::ParseStepProfile("drawn.csv", text);
  ASSERT_TRUE(times.ok()) << times.status().ToString();
  ExpectNoStepBelow(**times, {.tokens = 50000, .decodes = 64, .context = 4096}, "a profile");
}

// --- Bound on requests within objectives ---

LinearModel TinySteps() {
  LinearModel model;
  model.base_ns = 1000;
  model.prefill_ns = model.padding_ns = 500;
  model.decode_ns = 700;
  model.context_ns = 100;
  return model;
}

KeptBoundMachine MachineOf(const StepTimeModel& model, int64_t kv_tokens, int32_t max_num_seqs) {
  return {.step_time = &model, .kv_tokens = kv_tokens, .max_num_seqs = max_num_seqs, .context = kv_tokens};
}

// Whether some schedule meets the objectives of all of a few requests, by trying every possible step. A sequence may
// give up its memory and get it back at no cost, which no scheduler can beat.
class EverySchedule {
 public:
  EverySchedule(const KeptBoundMachine& machine, std::vector<AskedRequest> requests)
      : machine_(machine), requests_(std::move(requests)), at_(requests_.size()) {}
  bool KeepsAll() { return From(0); }

 private:
  struct At {
    int64_t computed = 0, tokens = 0;  // computed: of the prompt; tokens: of the answer
    int64_t last_ns = 0;
  };
  bool Done(size_t i) const { return at_[i].tokens == requests_[i].output_tokens; }

  bool From(int64_t now) {
    bool all = true;
    int64_t next = -1;
    for (size_t i = 0; i < at_.size(); ++i) {
      const AskedRequest& r = requests_[i];
      if (Done(i)) continue;
      all = false;
      if (at_[i].tokens == 0 && r.slo.ttft_ns > 0 && now > r.arrival_ns + r.slo.ttft_ns) return false;
      if (at_[i].tokens > 0 && r.slo.tbt_ns > 0 && now > at_[i].last_ns + r.slo.tbt_ns) return false;
      if (r.slo.jct_ns > 0 && now > r.arrival_ns + r.slo.jct_ns) return false;
      if (r.arrival_ns > now && (next < 0 || r.arrival_ns < next)) next = r.arrival_ns;
    }
    if (all) return true;
    std::vector<int64_t> shares(at_.size(), 0);
    return Step(now, 0, &shares) || (next >= 0 && From(next));
  }

  // Chooses the share of each request from `i` on, then runs the step.
  bool Step(int64_t now, size_t i, std::vector<int64_t>* shares) {
    if (i == at_.size()) return Run(now, *shares);
    int64_t most = 0;
    if (!Done(i) && requests_[i].arrival_ns <= now)
      most = at_[i].tokens > 0 ? 1 : requests_[i].prompt_tokens - at_[i].computed;
    for (int64_t share = most; share >= 0; --share) {
      (*shares)[i] = share;
      if (Step(now, i + 1, shares)) return true;
    }
    return false;
  }

  bool Run(int64_t now, const std::vector<int64_t>& shares) {
    std::vector<ChunkShape> chunks;
    StepShape shape;
    int64_t held = 0, sequences = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i] == 0) continue;
      ++sequences;
      const int64_t context = at_[i].computed + shares[i] + std::max<int64_t>(0, at_[i].tokens - 1);
      held += context;
      if (at_[i].tokens > 0) {
        ++shape.decodes;
        shape.decode_context_tokens += context;
      } else {
        chunks.push_back({static_cast<int32_t>(at_[i].computed), static_cast<int32_t>(shares[i])});
      }
    }
    if (sequences == 0 || sequences > machine_.max_num_seqs || held > machine_.kv_tokens) return false;
    shape.chunks = chunks;
    const int64_t end = now + machine_.step_time->StepTimeNs(shape);
    const std::vector<At> before = at_;
    bool kept = true;
    for (size_t i = 0; i < shares.size() && kept; ++i) {
      if (shares[i] == 0) continue;
      At& at = at_[i];
      const AskedRequest& r = requests_[i];
      const bool first = at.tokens == 0;
      if (first) at.computed += shares[i];
      if (at.computed < r.prompt_tokens) continue;
      ++at.tokens;
      const int64_t gap = end - at.last_ns;
      at.last_ns = end;
      if (first && r.slo.ttft_ns > 0) kept = end <= r.arrival_ns + r.slo.ttft_ns;
      if (!first && r.slo.tbt_ns > 0) kept = gap <= r.slo.tbt_ns;
      if (r.slo.jct_ns > 0) kept = kept && end <= r.arrival_ns + r.slo.jct_ns;
    }
    kept = kept && From(end);
    at_ = before;
    return kept;
  }

  const KeptBoundMachine machine_;
  const std::vector<AskedRequest> requests_;
  std::vector<At> at_;
};

int BestOfEverySchedule(const KeptBoundMachine& machine, const std::vector<AskedRequest>& requests) {
  int best = 0;
  for (uint32_t chosen = 0; chosen < 1u << requests.size(); ++chosen) {
    if (std::popcount(chosen) <= best) continue;
    std::vector<AskedRequest> some;
    for (size_t i = 0; i < requests.size(); ++i) {
      if ((chosen >> i & 1) != 0) some.push_back(requests[i]);
    }
    if (EverySchedule(machine, some).KeepsAll()) best = std::popcount(chosen);
  }
  return best;
}

TEST(MostKept, NoScheduleOfAFewRequestsExceedsTheBound) {
  const LinearModel model = TinySteps();
  Rng rng(3, 9);
  int exact = 0, below_all = 0;
  constexpr int kInstances = 250;
  for (int i = 0; i < kInstances; ++i) {
    const KeptBoundMachine machine =
        MachineOf(model, rng.UniformInt(4, 10), static_cast<int32_t>(rng.UniformInt(1, 3)));
    std::vector<AskedRequest> requests;
    const int64_t count = rng.UniformInt(2, 4);
    for (int64_t j = 0; j < count; ++j) {
      AskedRequest r;
      r.arrival_ns = rng.UniformInt(0, 4) * 1000;
      r.prompt_tokens = rng.UniformInt(1, 3);
      r.output_tokens = rng.UniformInt(1, 3);
      if (rng.UniformInt(0, 3) > 0) r.slo.ttft_ns = rng.UniformInt(15, 60) * 100;
      if (rng.UniformInt(0, 1) > 0) r.slo.tbt_ns = rng.UniformInt(17, 40) * 100;
      if (r.slo.ttft_ns == 0 || rng.UniformInt(0, 2) == 0) r.slo.jct_ns = r.slo.ttft_ns + rng.UniformInt(17, 80) * 100;
      requests.push_back(r);
    }
    const int best = BestOfEverySchedule(machine, requests);
    const int64_t most = *MostKept(requests, machine);
    ASSERT_GE(most, best) << "instance " << i << ": a schedule exceeds the bound";
    exact += most == best;
    below_all += most < count;
  }
  // The bound must be useful: often exact, and often less than all.
  EXPECT_GT(exact, kInstances / 3);
  EXPECT_GT(below_all, kInstances / 4);
}

// Ten prompts of 100 tokens at once, 1 ms each, with 4.5 ms to the first token: with the fixed millisecond three are
// possible.
TEST(MostKept, BoundIsNearValuesComputedByHand) {
  LinearModel model;
  model.padding_ns = model.prefill_ns;
  std::vector<AskedRequest> requests(10, {.prompt_tokens = 100, .slo = {.ttft_ns = 4'500'000}});
  const int64_t many = *MostKept(requests, MachineOf(model, 100000, 8));
  EXPECT_GE(many, 3);
  EXPECT_LE(many, 4);
  // A request that can never meet its objective is not counted: its prompt takes 10 ms.
  requests.assign(3, {.prompt_tokens = 1000, .slo = {.ttft_ns = 9'000'000}});
  EXPECT_EQ(*MostKept(requests, MachineOf(model, 100000, 8)), 0);
  // Shared text may be computed by another request and is not charged.
  for (AskedRequest& r : requests) r.shared_tokens = 990;
  EXPECT_EQ(*MostKept(requests, MachineOf(model, 100000, 8)), 3);
  EXPECT_EQ(*MostKept({}, MachineOf(model, 100000, 8)), 0);
}

// Answers of 101 tokens within 300 ms, each of which fills the memory: a step of 1 ms serves only one.
TEST(MostKept, MemoryLimitsTheBound) {
  LinearModel model;
  model.padding_ns = model.prefill_ns = model.decode_ns = 1000;
  const std::vector<AskedRequest> requests(
      10, {.prompt_tokens = 900, .output_tokens = 101, .slo = {.jct_ns = 300'000'000}});
  EXPECT_EQ(*MostKept(requests, MachineOf(model, 100000, 256)), 10);
  const int64_t few = *MostKept(requests, MachineOf(model, 1000, 256));
  EXPECT_GE(few, 2);
  EXPECT_LE(few, 3);
  KeptBoundMachine two = MachineOf(model, 1000, 256);
  two.replicas = 2;
  EXPECT_GE(*MostKept(requests, two), 4);
}

// Ten at once are too many, so rows are violated and the simplex method runs.
TEST(MostKept, StopsAtAnyCallOfKeepGoing) {
  LinearModel model;
  model.padding_ns = model.prefill_ns;
  const std::vector<AskedRequest> requests(10, {.prompt_tokens = 100, .slo = {.ttft_ns = 4'500'000}});
  const KeptBoundMachine machine = MachineOf(model, 100000, 8);
  int asked = 0, last_round = 0;
  const auto whole = MostKept(requests, machine, [&](const KeptBoundProgress& p) {
    ++asked;
    EXPECT_GE(p.round, last_round);
    EXPECT_LT(p.round, p.most_rounds);
    last_round = p.round;
    return true;
  });
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(*whole, *MostKept(requests, machine));
  EXPECT_GT(last_round, 0);
  EXPECT_GT(asked, 3);
  const int times = asked;
  for (int stop = 1; stop <= times; ++stop) {
    asked = 0;
    EXPECT_FALSE(MostKept(requests, machine, [&](const KeptBoundProgress&) { return ++asked < stop; }).has_value());
    EXPECT_EQ(asked, stop) << "it continued, or called keep_going again";
  }
}

// Longer and shorter requests with all kinds of objectives, too many for the machine.
WorkloadSpec Crowd(uint64_t seed, bool shares) {
  Rng rng(seed, 4);
  std::string text = "arrival_s,prompt_tokens,output_tokens,slo_ttft_ms,slo_tbt_ms,slo_jct_ms,prefix_hash_ids\n";
  double at = 0;
  for (int i = 0; i < 40; ++i) {
    at += rng.Uniform() * 0.01;
    const int64_t kind = rng.UniformInt(0, 3);
    const bool jobs = kind == 0;
    text += std::to_string(at) + "," + std::to_string(rng.UniformInt(600, 2500)) + "," +
            std::to_string(rng.UniformInt(1, 40)) + "," + (jobs ? "" : std::to_string(rng.UniformInt(15, 90))) + "," +
            (kind < 2 ? "" : std::to_string(rng.UniformInt(5, 40))) + "," + (jobs ? "150" : "") + "," +
            (shares && i % 2 == 0 ? "7" : std::to_string(100 + i)) + "\n";
  }
  WorkloadSpec spec;
  spec.kind = WorkloadSpec::Kind::kTrace;
  spec.text = spec.file = "crowd.csv";
  const auto rows = TraceFile::Parse("crowd.csv", text);
  EXPECT_TRUE(rows.ok()) << rows.status().ToString();
  spec.rows = *rows;
  return spec;
}

TEST(MostKept, NoPresetAndNoOracleExceedsTheBound) {
  LinearModel model;
  model.context_ns = 20;
  model.padding_ns = model.prefill_ns;
  int64_t below_all = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SimulationJob job;
    job.config.step_time = &model;
    job.config.scheduler.limits.max_num_seqs = 8;
    job.config.scheduler.limits.max_model_len = 4096;
    job.config.scheduler.limits.blocks_total = seed % 2 == 0 ? 1000 : 300;
    job.config.swap_blocks = 100;
    job.config.replicas = seed % 3 == 0 ? 2 : 1;
    job.config.seed = seed;
    job.open = [seed] { return WorkloadStream::Open(Crowd(seed, seed > 3), {}, 0, 1); };
    const auto oracle = RunOracle(job, {.without = {"tactus"}, .swaps = 24, .threads = 1});
    ASSERT_TRUE(oracle.ok()) << oracle.status().ToString();
    ASSERT_TRUE(oracle->most_kept.has_value()) << oracle->unbounded;
    EXPECT_LE(oracle->run.objectives.kept, *oracle->most_kept) << "the oracle, seed " << seed;
    below_all += *oracle->most_kept < oracle->run.objectives.stated;
    std::vector<SimulationJob> jobs;
    for (const core::PresetInfo& preset : core::Presets()) {
      jobs.push_back(job);
      jobs.back().config.scheduler.preset = preset.name;
    }
    const auto results = RunSimulations(jobs, 1);
    for (size_t i = 0; i < results.size(); ++i) {
      ASSERT_TRUE(results[i].ok()) << core::Presets()[i].name << ": " << results[i].status().ToString();
      EXPECT_LE(results[i]->objectives.kept, *oracle->most_kept) << core::Presets()[i].name << ", seed " << seed;
    }
  }
  EXPECT_GE(below_all, 3) << "the bound allows all requests";
}

}  // namespace
}  // namespace tactus::sim
