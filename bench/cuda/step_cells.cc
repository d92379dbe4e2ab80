// Step times of one model in the cells that scripts/gpu.sh reports: decodes by batch and context, prompts by length,
// and prompts beside decodes. Prints one JSON object.
//
//   step_cells MODEL DEVICE [SHRINK [SECONDS [ATTENTION]]]
//       MODEL: a folder, a GGUF file, or a config.json with dummy weights; DEVICE: of --device
//       SHRINK divides all sizes, for a try on a small model
//       SECONDS after the start cells are left out, the later ones in the list; ATTENTION: of --attention-backend
//
// `step_ms` is a step alone: launched, run, and its tokens read. `chained_ms` is a decode step of a run in which each
// step takes its tokens from the one before on the device, so the next is launched before these are known. `gap_us` is
// the median time from the end of a step to the launch of the next in that run; 0: it was launched before.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "compute/exec/make_backend.h"
#include "compute/model/catalog.h"
#include "engine/step_times/step_profiler.h"

namespace tactus {
namespace {

using engine::ProfilePoint;

constexpr int32_t kBlock = 16;
constexpr DurationNs kEnoughNs = 60 * kMillisecond;

// What SHRINK divides.
struct Sizes {
  int32_t shrink = 1;
  int32_t Of(int32_t n) const { return std::max(1, n / shrink); }
  int32_t chain() const { return std::max(8, 40 / shrink); }  // steps
  int32_t chain_warmup() const { return chain() / 5; }
  DurationNs enough_ns() const { return kEnoughNs / shrink; }
};

template <class T>
T Must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "step_cells: %s\n", result.status().message().c_str());
  std::exit(1);
}

struct Cell {
  const char* kind;
  ProfilePoint point;
};

// What matters most comes first.
std::vector<Cell> Cells(const Sizes& sizes) {
  std::vector<Cell> cells;
  const auto add = [&](const char* kind, int32_t prompt, int32_t decodes, int32_t context) {
    const ProfilePoint point = {prompt, 0, decodes, context};
    const bool known = std::any_of(cells.begin(), cells.end(), [&](const Cell& c) { return c.point == point; });
    if (!known) cells.push_back({kind, point});
  };
  const auto decodes_with = [&](int32_t context) {
    for (const int32_t decodes : {1, 8, 32, 128, 256}) add("decode", 0, sizes.Of(decodes), sizes.Of(context));
  };
  decodes_with(1024);
  for (const int32_t prompt : {512, 1024, 2048, 4096, 8192}) add("prefill", sizes.Of(prompt), 0, 0);
  decodes_with(4096);
  for (const int32_t decodes : {32, 128}) {
    for (const int32_t prompt : {512, 2048}) add("hybrid", sizes.Of(prompt), sizes.Of(decodes), sizes.Of(1024));
  }
  return cells;
}

struct Subject {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executor> executor;
  engine::ProfileLimits limits;
  nlohmann::ordered_json facts;
};

Subject Load(const std::string& model, const std::string& device, const std::string& attention, const Sizes& sizes) {
  Subject s;
  EngineOptions options;
  options.model = model;
  options.device = device;
  options.attention_backend = attention;
  const auto description = Must(compute::DescribeModel(Must(compute::ResolveModel(model))));
  if (!description.weights_status.ok()) options.load_format = "dummy";
  s.backend = Must(compute::MakeBackend(options, description, SystemClock()));
  s.limits.max_decodes = sizes.Of(256);
  s.limits.max_context =
      static_cast<int32_t>(std::min<int64_t>(description.config.max_position, sizes.Of(8192) + sizes.chain()));
  s.limits.max_step_tokens = sizes.Of(8192) + sizes.Of(256);
  s.limits.vocab_size = description.config.vocab_size;
  MemoryDemand demand;
  demand.max_model_len = s.limits.max_context;
  demand.max_num_seqs = s.limits.max_decodes + 1;
  demand.max_step_tokens = s.limits.max_step_tokens;
  demand.block_size = kBlock;
  const MemoryGrant memory = Must(s.backend->PlanMemory(demand));
  s.limits.num_blocks = memory.num_blocks;
  const auto say = [](const std::string& line) { std::fprintf(stderr, "step_cells: %s\n", line.c_str()); };
  const std::string weights = Must(s.backend->LoadWeights(say));
  ExecutorSize size;
  size.num_blocks = memory.num_blocks;
  size.block_size = kBlock;
  size.max_model_len = s.limits.max_context;
  size.max_slots = size.max_step_items = s.limits.max_decodes + 1;
  size.max_step_tokens = s.limits.max_step_tokens;
  s.executor = Must(s.backend->CreateExecutor(size));
  const BackendInfo info = s.backend->Info();
  s.facts["model"] = description.config.name;
  s.facts["device"] = info.devices[0].name;
  s.facts["backend"] = info.summary;
  s.facts["weights"] = weights;
  s.facts["kv_dtype"] = info.kv_dtype;
  s.facts["kv_blocks"] = memory.num_blocks;
  return s;
}

// A run of chained decode steps. The KV of the blocks that it reads is there already (StepProfiler).
class ChainedRun {
 public:
  ChainedRun(Executor* executor, const Sizes& sizes, int32_t decodes, int32_t context)
      : executor_(*executor),
        chain_(sizes.chain()),
        warmup_(sizes.chain_warmup()),
        decodes_(decodes),
        context_(context),
        plans_(static_cast<size_t>(chain_)) {}

  // Adds chained_ms and gap_us.
  void Measure(nlohmann::ordered_json* cell) {
    const int32_t most = executor_.traits().max_in_flight;
    std::vector<DurationNs> gaps;
    TimeNs first_ns = 0, before_ns = 0;
    StepResult result;
    for (int32_t submitted = 0, polled = 0; polled < chain_; ++polled) {
      for (; submitted < chain_ && submitted - polled < most; ++submitted) executor_.Submit(Plan(submitted));
      while (!executor_.Poll(&result)) std::this_thread::yield();
      if (!result.status.ok()) Must(Result<int>(result.status));
      if (polled == warmup_) first_ns = SystemClock().NowNs();
      if (polled > warmup_) gaps.push_back(std::max<DurationNs>(0, result.start_ns - before_ns));
      before_ns = result.end_ns;
    }
    const double all_ns = static_cast<double>(SystemClock().NowNs() - first_ns);
    std::nth_element(gaps.begin(), gaps.begin() + static_cast<ptrdiff_t>(gaps.size() / 2), gaps.end());
    (*cell)["chained_ms"] = all_ns * 1e-6 / (chain_ - 1 - warmup_);
    (*cell)["gap_us"] = static_cast<double>(gaps[gaps.size() / 2]) * 1e-3;
  }

 private:
  const StepPlan& Plan(int32_t step) {
    StepPlan& plan = plans_[static_cast<size_t>(step)];
    const int32_t blocks = (context_ + chain_ + kBlock - 1) / kBlock;
    plan.step = 1'000'000 + step;
    for (int32_t d = 0; d < decodes_; ++d) {
      if (step == 0) {
        plan.starts.emplace_back().slot = d;
        plan.table_updates.push_back({d, 0, blocks, static_cast<int32_t>(plan.table_blocks.size())});
        for (int32_t b = 0; b < blocks; ++b) plan.table_blocks.push_back(d * blocks + b);
        plan.tokens.push_back(1);
      }
      plan.items.push_back({.slot = d,
                            .first_position = context_ - 1 + step,
                            .count = 1,
                            .logit_rows = 1,
                            .sample = true,
                            .input = step == 0 ? InputSource::kHost : InputSource::kChained,
                            .token_offset = step == 0 ? d : 0});
    }
    plan.num_tokens = plan.num_decodes = decodes_;
    plan.logit_rows = decodes_;
    plan.decode_context_tokens = int64_t{decodes_} * (context_ + step);
    return plan;
  }

  Executor& executor_;
  const int32_t chain_, warmup_, decodes_, context_;
  std::vector<StepPlan> plans_;
};

bool Fits(const engine::ProfileLimits& limits, const Sizes& sizes, const ProfilePoint& p) {
  const auto blocks = [](int64_t tokens) { return (tokens + kBlock - 1) / kBlock; };
  return p.decodes <= limits.max_decodes && p.prefill_tokens <= limits.max_context &&
         p.decode_context + sizes.chain() <= limits.max_context &&
         blocks(p.prefill_tokens) + p.decodes * blocks(p.decode_context + sizes.chain()) <= limits.num_blocks;
}

int Run(const std::string& model, const std::string& device, const std::string& attention, const Sizes& sizes,
        DurationNs limit_ns) {
  const TimeNs start_ns = SystemClock().NowNs();
  Subject s = Load(model, device, attention, sizes);
  s.facts["load_s"] = static_cast<double>(SystemClock().NowNs() - start_ns) * 1e-9;
  engine::StepProfiler profiler(s.executor.get(), s.limits);
  nlohmann::ordered_json cells = nlohmann::ordered_json::array();
  for (const auto& [kind, point] : Cells(sizes)) {
    nlohmann::ordered_json cell = {{"kind", kind},
                                   {"prompt", point.prefill_tokens},
                                   {"decodes", point.decodes},
                                   {"context", point.decode_context}};
    if (SystemClock().NowNs() - start_ns > limit_ns) {
      cell["left_out"] = "no time was left";
    } else if (!Fits(s.limits, sizes, point)) {
      cell["left_out"] = "its KV does not fit";
    } else {
      cell["step_ms"] = Must(profiler.Measure(point, sizes.enough_ns())).step_ms;
      if (point.prefill_tokens == 0 && s.executor->traits().can_chain) {
        ProfilePoint longer = point;  // so that all blocks of the run hold KV
        longer.decode_context += sizes.chain();
        Must(profiler.Measure(longer, 1));
        ChainedRun(s.executor.get(), sizes, point.decodes, point.decode_context).Measure(&cell);
      }
    }
    std::fprintf(stderr, "step_cells: %s\n", cell.dump().c_str());
    cells.push_back(std::move(cell));
  }
  s.facts["cells"] = std::move(cells);
  std::printf("%s\n", s.facts.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace tactus

int main(int argc, char** argv) {
  if (argc < 3 || argc > 6) {
    std::fprintf(stderr, "usage: step_cells MODEL DEVICE [SHRINK [SECONDS [ATTENTION]]]\n");
    return 2;
  }
  const tactus::Sizes sizes = {.shrink = argc > 3 ? std::max(1, std::atoi(argv[3])) : 1};
  const int seconds = argc > 4 ? std::max(1, std::atoi(argv[4])) : 600;
  return tactus::Run(argv[1], argv[2], argc > 5 ? argv[5] : "tactus", sizes, seconds * tactus::kSecond);
}
