#include "sim/workload/slo_mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "sim/workload/named_workloads.h"

namespace tactus::sim {
namespace {

// Random streams, apart from those of lengths and arrivals.
enum MixStream : uint64_t { kClass = 16, kTtft, kTbt, kJct };

constexpr double kMostNs = 1e15;  // limit of an objective, as in the API

bool NeedsAlone(const ObjectiveRange& r) {
  return r.high > 0 && r.times_alone;
}

int64_t DrawNs(const ObjectiveRange& range, int64_t alone_ns, double uniform) {
  if (range.high <= 0) return 0;
  double ns = range.low + uniform * (range.high - range.low);
  if (range.times_alone) ns *= static_cast<double>(alone_ns);
  return std::llround(std::clamp(ns, 1.0, kMostNs));
}

class MixedStream final : public WorkloadStream {
 public:
  MixedStream(std::unique_ptr<WorkloadStream> stream, const SloMix& mix, uint64_t seed, const LatencyAlone& alone)
      : stream_(std::move(stream)), mix_(mix), seed_(seed), alone_(alone) {}
  int64_t count() const override { return stream_->count(); }
  bool has_arrivals() const override { return stream_->has_arrivals(); }
  bool shares_text() const override { return stream_->shares_text(); }
  int64_t rows_dropped() const override { return stream_->rows_dropped(); }
  bool states_objectives() const override { return true; }
  bool predicts_lengths() const override { return stream_->predicts_lengths(); }
  bool has_high_priority() const override { return stream_->has_high_priority(); }
  bool Next(WorkloadRequest* request) override {
    if (!stream_->Next(request)) return false;
    DrawObjectives(mix_, seed_, alone_, request);
    return true;
  }
  bool NextTurn(const WorkloadRequest& ended, WorkloadRequest* request) override {
    if (!stream_->NextTurn(ended, request)) return false;
    DrawObjectives(mix_, seed_, alone_, request);
    return true;
  }

 private:
  const std::unique_ptr<WorkloadStream> stream_;
  const SloMix mix_;
  const uint64_t seed_;
  const LatencyAlone alone_;
};

}  // namespace

bool SloMix::needs_latency_alone() const {
  return std::any_of(classes.begin(), classes.end(),
                     [](const SloClass& c) { return NeedsAlone(c.ttft) || NeedsAlone(c.tbt) || NeedsAlone(c.jct); });
}

Slo AloneBy(const StepTimeModel& model, const WorkloadRequest& r) {
  const ChunkShape prompt{0, static_cast<int32_t>(r.prompt_tokens)};
  StepShape first;
  first.chunks = {&prompt, 1};
  first.logit_rows = 1;
  const auto decode_ns = [&](int64_t generated) {
    StepShape s;
    s.decodes = s.logit_rows = 1;
    s.decode_context_tokens = r.prompt_tokens + generated;
    return model.StepTimeNs(s);
  };
  Slo alone;
  alone.ttft_ns = alone.jct_ns = model.StepTimeNs(first);
  // A decode's time is almost linear in its context: 64 pieces of a long answer are enough.
  constexpr int64_t kPieces = 64;
  const int64_t decodes = r.output_tokens - 1, pieces = std::min(decodes, kPieces);
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t from = decodes * i / pieces, to = decodes * (i + 1) / pieces;
    const DurationNs middle_ns = decode_ns((from + to + 1) / 2);
    alone.jct_ns += middle_ns * (to - from);
  }
  alone.tbt_ns = decode_ns(std::max<int64_t>(1, decodes));
  return alone;
}

std::string ObjectivesText(const SloClass& c) {
  std::string text;
  for (const auto& [name, range] : {std::pair{"TTFT", &c.ttft}, {"gap", &c.tbt}, {"total", &c.jct}}) {
    if (range->high <= 0) continue;
    const double unit = range->times_alone ? 1 : 1e6;
    text += fmt::format("{}{} {:.15g}", text.empty() ? "" : ", ", name, range->low / unit);
    if (range->high > range->low) text += fmt::format(" to {:.15g}", range->high / unit);
    text += range->times_alone ? " times the latency alone" : " ms";
  }
  return text.empty() ? "none" : text;
}

Status CheckClasses(const SloMix& mix, const WorkloadSpec& workload) {
  if (!mix.by_workload()) return Status();
  if (workload.kind != WorkloadSpec::Kind::kMix) {
    return InvalidArgument(fmt::format("--slo-mix: class '{}' has no share, so it must be a part of a mix:... "
                                       "workload, and '{}' is not one; give shares, NAME:SHARE:OBJECTIVES",
                                       mix.classes.front().name, workload.text),
                           "slo-mix");
  }
  for (const SloClass& c : mix.classes) {
    const bool part = std::any_of(workload.parts.begin(), workload.parts.end(), [&c](const WorkloadSpec::Part& p) {
      return NamedWorkloads()[static_cast<size_t>(p.named)].name == c.name;
    });
    if (!part) {
      return InvalidArgument(
          fmt::format("--slo-mix: class '{}' has no share, and '{}' has no part of that name; name a part, or give "
                      "every class a share",
                      c.name, workload.text),
          "slo-mix");
    }
  }
  return Status();
}

namespace {

// Null: not in any class.
const SloClass* ClassByWorkload(const SloMix& mix, const std::string& name) {
  const auto at =
      std::find_if(mix.classes.begin(), mix.classes.end(), [&](const SloClass& c) { return c.name == name; });
  return at == mix.classes.end() ? nullptr : &*at;
}

const SloClass* ClassByShare(const SloMix& mix, double uniform) {
  double all = 0;
  for (const SloClass& c : mix.classes) all += c.share;
  double at = all * uniform;
  for (const SloClass& c : mix.classes) {
    if (at < c.share) return &c;
    at -= c.share;
  }
  return &mix.classes.back();
}

}  // namespace

void DrawObjectives(const SloMix& mix, uint64_t seed, const LatencyAlone& alone, WorkloadRequest* r) {
  const auto index = static_cast<uint64_t>(r->index);
  const auto unit = r->conversation >= 0 ? static_cast<uint64_t>(r->conversation) : index;
  const SloClass* drawn =
      mix.by_workload() ? ClassByWorkload(mix, r->slo_class) : ClassByShare(mix, UniformAt(seed, kClass, unit));
  if (drawn == nullptr) return;
  const bool needs = NeedsAlone(drawn->ttft) || NeedsAlone(drawn->tbt) || NeedsAlone(drawn->jct);
  const Slo base = needs ? alone(*r) : Slo();
  r->slo_class = drawn->name;
  r->slo.ttft_ns = DrawNs(drawn->ttft, base.ttft_ns, UniformAt(seed, kTtft, index));
  r->slo.tbt_ns = DrawNs(drawn->tbt, base.tbt_ns, UniformAt(seed, kTbt, index));
  r->slo.jct_ns = DrawNs(drawn->jct, base.jct_ns, UniformAt(seed, kJct, index));
}

std::unique_ptr<WorkloadStream> WithObjectives(std::unique_ptr<WorkloadStream> stream, const SloMix& mix, uint64_t seed,
                                               const LatencyAlone& alone) {
  if (mix.classes.empty()) return stream;
  return std::make_unique<MixedStream>(std::move(stream), mix, seed, alone);
}

}  // namespace tactus::sim
