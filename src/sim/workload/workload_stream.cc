// Streams of requests: drawn, or from the rows of a file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "base/rng.h"
#include "sim/workload/named_workloads.h"
#include "sim/workload/trace_file.h"
#include "sim/workload/workload.h"

namespace tactus::sim {
namespace {

constexpr double kMostSeconds = 4e9;  // limit of an arrival, as in a trace; int64 nanoseconds end at 9.2e9 s

// Separate random streams, so that changing the arrivals does not change the lengths.
enum Stream : uint64_t { kLengths = 1, kArrivals = 2 };

// Marsaglia and Tsang (2000); shapes below 1 by the usual power of a uniform.
double DrawGamma(Rng& rng, double shape) {
  if (shape < 1.0) return DrawGamma(rng, shape + 1.0) * std::pow(1.0 - rng.Uniform(), 1.0 / shape);
  const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = rng.Normal(), v = std::pow(1.0 + c * x, 3);
    if (v <= 0) continue;
    const double u = 1.0 - rng.Uniform();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

// Generates arrival times in order.
class ArrivalClock {
 public:
  ArrivalClock(const ArrivalSpec& spec, uint64_t seed) : spec_(spec), rng_(seed, kArrivals) {}
  TimeNs Next() {
    const double at_s = now_s_;
    if (spec_.rate_per_s > 0) {
      const double mean = 1.0 / spec_.rate_per_s;
      if (spec_.kind == ArrivalSpec::Kind::kConstant) {
        now_s_ += mean;
      } else if (spec_.kind == ArrivalSpec::Kind::kPoisson) {
        now_s_ += rng_.Exponential(mean);
      } else {
        now_s_ += DrawGamma(rng_, 1.0 / (spec_.cv * spec_.cv)) * mean * spec_.cv * spec_.cv;
      }
    }
    return std::llround(std::min(at_s, 2 * kMostSeconds) * 1e9);  // the mean stays below half of it (CheckSpan)
  }
  TimeNs Jitter() { return std::llround(rng_.Uniform() * spec_.jitter_s * 1e9); }

 private:
  const ArrivalSpec spec_;
  Rng rng_;
  double now_s_ = 0;
};

// Lengths from a distribution or a rule.
class DrawnStream final : public WorkloadStream {
 public:
  DrawnStream(const WorkloadSpec& spec, const ArrivalSpec& arrivals, int64_t count, uint64_t seed)
      : spec_(spec),
        arrivals_(arrivals, seed),
        rng_(seed, kLengths),
        count_(count > 0 ? count : 100),
        timed_(arrivals.rate_per_s > 0) {}

  int64_t count() const override { return count_; }
  bool has_arrivals() const override { return timed_; }
  bool shares_text() const override {
    return spec_.kind == WorkloadSpec::Kind::kPrefix || spec_.kind == WorkloadSpec::Kind::kMultiTurn;
  }

  bool Next(WorkloadRequest* r) override {
    if (next_ >= count_) return false;
    Make(next_, r);
    next_ += spec_.kind == WorkloadSpec::Kind::kMultiTurn ? spec_.turns : 1;
    r->arrival_ns = arrivals_.Next();
    return true;
  }

  bool NextTurn(const WorkloadRequest& ended, WorkloadRequest* r) override {
    if (ended.conversation < 0 || ended.turn + 1 >= spec_.turns || ended.index + 1 >= count_) return false;
    Make(ended.index + 1, r);
    r->arrival_ns = -1;
    return true;
  }

 private:
  void Make(int64_t i, WorkloadRequest* r) {
    *r = WorkloadRequest();
    r->index = i;
    r->prompt_tokens = spec_.in;
    r->output_tokens = spec_.out;
    switch (spec_.kind) {
      case WorkloadSpec::Kind::kNamed:
        Draw(spec_.parts[0], r);
        break;
      case WorkloadSpec::Kind::kMix:
        DrawPart(r);
        break;
      case WorkloadSpec::Kind::kPrefix:
        r->prompt_tokens = spec_.shared + spec_.unique;
        r->prefix_id = 0;
        r->shared_tokens = spec_.shared;
        break;
      case WorkloadSpec::Kind::kMultiTurn:
        // Turn t repeats the conversation so far: t earlier questions and answers, then a new question.
        r->turn = i % spec_.turns;
        r->conversation = r->prefix_id = i / spec_.turns;
        r->prompt_tokens = (r->turn + 1) * spec_.in + r->turn * spec_.out;
        r->shared_tokens = r->turn * (spec_.in + spec_.out);
        break;
      default:
        break;
    }
  }

  void Draw(const WorkloadSpec::Part& part, WorkloadRequest* r) {
    const Lengths drawn = DrawLengths(NamedWorkloads()[static_cast<size_t>(part.named)], rng_);
    r->prompt_tokens = drawn.prompt;
    r->output_tokens = drawn.output;
  }

  void DrawPart(WorkloadRequest* r) {
    double at = rng_.Uniform();
    size_t i = 0;
    for (; i + 1 < spec_.parts.size() && at >= spec_.parts[i].share; ++i) at -= spec_.parts[i].share;
    Draw(spec_.parts[i], r);
    r->slo_class = NamedWorkloads()[static_cast<size_t>(spec_.parts[i].named)].name;
  }

  const WorkloadSpec spec_;
  ArrivalClock arrivals_;
  Rng rng_;
  const int64_t count_;
  const bool timed_;
  int64_t next_ = 0;
};

// Time from one repetition of a trace to the next, at scale 1; 0: all requests arrive at once, so there is none.
double RoundSeconds(const TraceFile& file) {
  const auto rows = static_cast<double>(file.rows().size());
  const double last_s = static_cast<double>(file.rows().back().arrival_ns) * 1e-9;
  return rows > 1 ? last_s * rows / (rows - 1) : 0;
}

// The rows of a file, with the file's or drawn arrival times.
class FileStream final : public WorkloadStream {
 public:
  FileStream(const WorkloadSpec& spec, const ArrivalSpec& arrivals, std::shared_ptr<const TraceFile> file,
             int64_t count, uint64_t seed)
      : file_(std::move(file)),
        arrivals_(arrivals, seed),
        scale_(spec.scale),
        jitter_ns_(std::llround(arrivals.jitter_s * 1e9)),
        count_(count > 0 ? count : static_cast<int64_t>(file_->rows().size())) {
    // A trace keeps its arrival times unless a rate is given.
    own_times_ = spec.kind == WorkloadSpec::Kind::kTrace && file_->has_arrivals() && arrivals.rate_per_s <= 0;
    timed_ = own_times_ || arrivals.rate_per_s > 0;
    span_ns_ = own_times_ ? std::llround(RoundSeconds(*file_) / scale_ * 1e9) : 0;
  }

  int64_t count() const override { return count_; }
  bool has_arrivals() const override { return timed_; }
  bool shares_text() const override { return file_->shares_text(); }
  int64_t rows_dropped() const override { return file_->dropped(); }
  bool states_objectives() const override { return file_->states_objectives(); }
  bool predicts_lengths() const override { return file_->predicts_lengths(); }
  bool has_high_priority() const override { return file_->has_high_priority(); }
  bool NextTurn(const WorkloadRequest&, WorkloadRequest*) override { return false; }

  bool Next(WorkloadRequest* r) override {
    TimeNs arrival = 0;
    int64_t index = next_;
    if (!own_times_) {
      if (next_ >= count_) return false;
      arrival = arrivals_.Next();
      ++next_;
    } else {
      // Jitter only delays, so queued rows up to the next row's recorded time are in final order.
      while (next_ < count_ && (ahead_.empty() || RecordedNs(next_) <= ahead_.front().first)) {
        ahead_.emplace_back(RecordedNs(next_) + (jitter_ns_ > 0 ? arrivals_.Jitter() : 0), next_);
        std::push_heap(ahead_.begin(), ahead_.end(), std::greater<>());
        ++next_;
      }
      if (ahead_.empty()) return false;
      std::pop_heap(ahead_.begin(), ahead_.end(), std::greater<>());
      std::tie(arrival, index) = ahead_.back();
      ahead_.pop_back();
    }
    const TraceRow& row = Row(index);
    r->arrival_ns = arrival;
    r->prompt_tokens = row.prompt_tokens;
    r->output_tokens = row.output_tokens;
    r->prefix_id = row.prefix_id;
    r->shared_tokens = row.shared_tokens;
    const auto ids = file_->hash_ids(row);
    r->block_ids.assign(ids.begin(), ids.end());
    r->slo = row.slo;
    r->slo_class = file_->text(row.slo_class);
    r->client = file_->text(row.client);
    r->priority = row.priority;
    r->predicted_output_tokens = row.predicted_output_tokens;
    r->conversation = -1;
    r->turn = 0;
    r->index = index;
    return true;
  }

 private:
  const TraceRow& Row(int64_t i) const { return file_->rows()[static_cast<size_t>(i) % file_->rows().size()]; }
  TimeNs Scaled(TimeNs ns) const { return scale_ == 1.0 ? ns : std::llround(static_cast<double>(ns) / scale_); }
  // A repetition starts after the trace's last arrival, delayed by the mean gap between requests.
  TimeNs RecordedNs(int64_t i) const {
    return Scaled(Row(i).arrival_ns) + i / static_cast<int64_t>(file_->rows().size()) * span_ns_;
  }

  const std::shared_ptr<const TraceFile> file_;
  ArrivalClock arrivals_;
  const double scale_;
  const TimeNs jitter_ns_;
  const int64_t count_;
  bool own_times_ = false, timed_ = false;
  TimeNs span_ns_ = 0;
  int64_t next_ = 0;
  std::vector<std::pair<TimeNs, int64_t>> ahead_;  // a heap: candidates for the next row
};

Status CheckSpan(const WorkloadSpec& spec, const ArrivalSpec& arrivals, int64_t count) {
  const TraceFile* file = spec.rows.get();
  const double rows = file == nullptr ? 100 : static_cast<double>(file->rows().size());
  const double requests = count > 0 ? static_cast<double>(count) : rows;
  double last_s = arrivals.jitter_s;
  if (arrivals.rate_per_s > 0) {
    last_s += requests / arrivals.rate_per_s;
  } else if (spec.kind == WorkloadSpec::Kind::kTrace && file->has_arrivals()) {
    if (requests > rows && RoundSeconds(*file) <= 0) {
      return InvalidArgument(
          fmt::format("workload '{}': {:g} requests exceed the {:g} of the file, whose arrival times are all equal, so "
                      "repetitions have no time; use at most {:g}, or give --rate",
                      spec.text, requests, rows, rows),
          "workload");
    }
    const double rounds = std::floor((requests - 1) / rows);
    const auto last = static_cast<size_t>(requests - 1 - rounds * rows);
    const double within_s = static_cast<double>(file->rows()[last].arrival_ns) * 1e-9;
    last_s += (rounds * RoundSeconds(*file) + within_s) / spec.scale;
  }
  if (last_s <= kMostSeconds) return Status();
  return InvalidArgument(fmt::format("workload '{}': {:g} requests would arrive within {:g} s, more than {:g}; use "
                                     "fewer requests, a higher rate or scale, or less jitter",
                                     spec.text, requests, last_s, kMostSeconds),
                         "workload");
}

}  // namespace

Result<std::unique_ptr<WorkloadStream>> WorkloadStream::Open(const WorkloadSpec& spec, const ArrivalSpec& arrivals,
                                                             int64_t count, uint64_t seed) {
  using Kind = WorkloadSpec::Kind;
  if (spec.kind != Kind::kLengths && spec.kind != Kind::kTrace) {
    if (arrivals.kind == ArrivalSpec::Kind::kRecorded) {
      return InvalidArgument(
          fmt::format("arrivals jitter:DURATION shift a trace's arrival times, and workload '{}' has none", spec.text),
          "arrivals");
    }
    TACTUS_RETURN_IF_ERROR(CheckSpan(spec, arrivals, count));
    return std::unique_ptr<WorkloadStream>(std::make_unique<DrawnStream>(spec, arrivals, count, seed));
  }
  WorkloadSpec loaded = spec;
  TACTUS_RETURN_IF_ERROR(LoadRows(&loaded));
  const std::shared_ptr<const TraceFile>& file = loaded.rows;
  if (arrivals.kind == ArrivalSpec::Kind::kRecorded && (spec.kind != Kind::kTrace || !file->has_arrivals())) {
    return InvalidArgument(
        fmt::format("arrivals jitter:DURATION shift a trace's arrival times, and '{}' has none", spec.text),
        "arrivals");
  }
  if (arrivals.kind == ArrivalSpec::Kind::kRecorded && arrivals.rate_per_s > 0) {
    return InvalidArgument("arrivals jitter:DURATION use a trace's arrival times: leave the rate out", "rate");
  }
  TACTUS_RETURN_IF_ERROR(CheckSpan(loaded, arrivals, count));
  return std::unique_ptr<WorkloadStream>(std::make_unique<FileStream>(spec, arrivals, file, count, seed));
}

Result<std::vector<WorkloadRequest>> MakeWorkload(const WorkloadSpec& spec, const ArrivalSpec& arrivals, int64_t count,
                                                  uint64_t seed) {
  TACTUS_ASSIGN_OR_RETURN(const auto stream, WorkloadStream::Open(spec, arrivals, count, seed));
  std::vector<WorkloadRequest> out;
  WorkloadRequest r;
  while (stream->Next(&r)) {
    out.push_back(r);
    for (WorkloadRequest turn; stream->NextTurn(out.back(), &turn);) out.push_back(turn);
  }
  return out;
}

}  // namespace tactus::sim
