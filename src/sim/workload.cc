#include "sim/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <tuple>

#include "base/rng.h"
#include "sim/trace_file.h"

namespace tactus {
namespace {

// Streams of the one seed, so that changing the arrivals does not change the lengths.
enum Stream : uint64_t { kLengths = 1, kArrivals = 2 };

#define TACTUS_LIST(...) __VA_ARGS__
#define TACTUS_WORKLOAD(...)
#include "sim/named_workloads.def"
#undef TACTUS_WORKLOAD
constexpr double kKnots[] = {TACTUS_WORKLOAD_KNOTS};
constexpr size_t kNumKnots = std::size(kKnots);

struct NamedWorkload {
  const char* name;
  const char* help;
  int32_t prompt[kNumKnots];   // tokens at kKnots
  int32_t output[kNumKnots];
  double correlation;          // of the normal variables behind the two
};
#define TACTUS_WORKLOAD(name, help, prompt, output, correlation) \
  {name, help, TACTUS_LIST prompt, TACTUS_LIST output, correlation},
constexpr NamedWorkload kNamed[] = {
#include "sim/named_workloads.def"
};
#undef TACTUS_WORKLOAD

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::optional<double> ToDouble(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

Status Bad(const std::string& text, const std::string& why) {
  return InvalidArgument(fmt::format("workload '{}': {}", text, why), "workload");
}

// key=value pairs into the fields that `set` knows; whole numbers from 1 to 10 million.
Status ReadPairs(const std::string& text, const std::string& pairs,
                 const std::vector<std::pair<const char*, int64_t*>>& fields) {
  for (const std::string& pair : Split(pairs, ',')) {
    const size_t eq = pair.find('=');
    auto field = std::find_if(fields.begin(), fields.end(), [&](auto& f) { return pair.substr(0, eq) == f.first; });
    if (eq == std::string::npos || field == fields.end()) {
      std::string known;
      for (auto& f : fields) known += fmt::format(" {}=N", f.first);
      return Bad(text, fmt::format("'{}' is not one of{}", pair, known));
    }
    const auto value = ToDouble(pair.substr(eq + 1));
    if (!value || *value < 1 || *value > 1e7 || *value != std::floor(*value)) {
      return Bad(text, fmt::format("'{}' needs a whole number from 1 to 10000000", pair));
    }
    *field->second = static_cast<int64_t>(*value);
  }
  return Status();
}

// The quantile of a uniform `u`: the logarithm is interpolated between knots.
int64_t QuantileAt(const int32_t (&table)[kNumKnots], double u) {
  const size_t above = std::min<size_t>(static_cast<size_t>(std::upper_bound(kKnots, kKnots + kNumKnots, u) - kKnots), kNumKnots - 1);
  const double low = std::log(table[above - 1]), high = std::log(table[above]);
  const double share = (u - kKnots[above - 1]) / (kKnots[above] - kKnots[above - 1]);
  return std::llround(std::exp(low + share * (high - low)));
}

double NormalToUniform(double z) { return std::clamp(0.5 * std::erfc(-z / std::sqrt(2.0)), 0.0, 1.0); }

// Prompt and output through a Gaussian copula.
void DrawLengths(const NamedWorkload& w, Rng& rng, int64_t* prompt, int64_t* output) {
  const double a = rng.Normal();
  const double b = w.correlation * a + std::sqrt(1 - w.correlation * w.correlation) * rng.Normal();
  *prompt = QuantileAt(w.prompt, NormalToUniform(a));
  *output = QuantileAt(w.output, NormalToUniform(b));
}

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

// Arrival times one after the other.
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
    return std::llround(at_s * 1e9);
  }
  TimeNs Jitter() { return std::llround(rng_.Uniform() * spec_.jitter_s * 1e9); }

 private:
  const ArrivalSpec spec_;
  Rng rng_;
  double now_s_ = 0;
};

// Lengths from a distribution or by rule.
class DrawnStream final : public WorkloadStream {
 public:
  DrawnStream(const WorkloadSpec& spec, const ArrivalSpec& arrivals, int64_t count, uint64_t seed)
      : spec_(spec), arrivals_(arrivals, seed), rng_(seed, kLengths), count_(count > 0 ? count : 100),
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
        DrawLengths(kNamed[spec_.named], rng_, &r->prompt_tokens, &r->output_tokens);
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
      default: break;
    }
  }

  const WorkloadSpec spec_;
  ArrivalClock arrivals_;
  Rng rng_;
  const int64_t count_;
  const bool timed_;
  int64_t next_ = 0;
};

// Rows of a file, with its own times or drawn ones.
class FileStream final : public WorkloadStream {
 public:
  FileStream(const WorkloadSpec& spec, const ArrivalSpec& arrivals, std::shared_ptr<const TraceFile> file, int64_t count,
             uint64_t seed)
      : file_(std::move(file)), arrivals_(arrivals, seed), scale_(spec.scale), jitter_ns_(std::llround(arrivals.jitter_s * 1e9)),
        count_(count > 0 ? count : static_cast<int64_t>(file_->rows().size())) {
    // A trace keeps its own times unless a rate is asked for.
    own_times_ = spec.kind == WorkloadSpec::Kind::kTrace && file_->has_arrivals() && arrivals.rate_per_s <= 0;
    timed_ = own_times_ || arrivals.rate_per_s > 0;
    span_ns_ = own_times_ ? Scaled(file_->rows().back().arrival_ns) + 1 : 0;
  }

  int64_t count() const override { return count_; }
  bool has_arrivals() const override { return timed_; }
  bool shares_text() const override { return file_->shares_text(); }
  int64_t rows_dropped() const override { return file_->dropped(); }
  bool NextTurn(const WorkloadRequest&, WorkloadRequest*) override { return false; }

  bool Next(WorkloadRequest* r) override {
    TimeNs arrival = 0;
    int64_t index = next_;
    if (!own_times_) {
      if (next_ >= count_) return false;
      arrival = arrivals_.Next();
      ++next_;
    } else {
      // A jittered time is at or after its own, so what lies before the next row's own time is in order.
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
    r->conversation = -1;
    r->turn = 0;
    r->index = index;
    return true;
  }

 private:
  const TraceRow& Row(int64_t i) const { return file_->rows()[static_cast<size_t>(i) % file_->rows().size()]; }
  TimeNs Scaled(TimeNs ns) const { return scale_ == 1.0 ? ns : std::llround(static_cast<double>(ns) / scale_); }
  // A repeated trace starts again 1 ns after its last arrival.
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
  std::vector<std::pair<TimeNs, int64_t>> ahead_;   // a heap: rows that may come next
};

}  // namespace

Result<WorkloadSpec> ParseWorkload(const std::string& text) {
  WorkloadSpec spec;
  spec.text = text;
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon), rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (name == "random") {
    if (!rest.empty()) TACTUS_RETURN_IF_ERROR(ReadPairs(text, rest, {{"in", &spec.in}, {"out", &spec.out}}));
    return spec;
  }
  if (name == "prefix") {
    spec.kind = WorkloadSpec::Kind::kPrefix;
    spec.out = 64;
    if (!rest.empty()) {
      TACTUS_RETURN_IF_ERROR(
          ReadPairs(text, rest, {{"shared", &spec.shared}, {"unique", &spec.unique}, {"out", &spec.out}}));
    }
    return spec;
  }
  if (name == "multi-turn") {
    spec.kind = WorkloadSpec::Kind::kMultiTurn;
    spec.in = 128;
    spec.out = 128;
    if (!rest.empty()) {
      TACTUS_RETURN_IF_ERROR(ReadPairs(text, rest, {{"turns", &spec.turns}, {"in", &spec.in}, {"out", &spec.out}}));
    }
    return spec;
  }
  if (name == "lengths" || name == "trace") {
    spec.kind = name == "trace" ? WorkloadSpec::Kind::kTrace : WorkloadSpec::Kind::kLengths;
    const size_t scale = rest.rfind(":scale=");
    spec.file = rest.substr(0, scale);
    if (spec.file.empty()) return Bad(text, fmt::format("name a file: {}:FILE", name));
    if (scale != std::string::npos) {
      const auto value = ToDouble(rest.substr(scale + 7));
      spec.scale = value.value_or(0.0);
      if (spec.scale <= 0) return Bad(text, "scale must be a number above 0");
    }
    return spec;
  }
  for (size_t i = 0; i < std::size(kNamed); ++i) {
    if (name != kNamed[i].name || !rest.empty()) continue;
    spec.kind = WorkloadSpec::Kind::kNamed;
    spec.named = static_cast<int32_t>(i);
    return spec;
  }
  std::string names;
  for (const NamedWorkload& n : kNamed) names += std::string(n.name) + ", ";
  return Bad(text, "the workloads are random:in=N,out=N, prefix:shared=N,unique=N,out=N, " + names +
                       "multi-turn[:turns=N,in=N,out=N], lengths:FILE and trace:FILE[:scale=X]");
}

Status LoadRows(WorkloadSpec* spec) {
  if (spec->file.empty() || spec->rows != nullptr) return Status();
  TACTUS_ASSIGN_OR_RETURN(spec->rows, TraceFile::Read(spec->file));
  return Status();
}

const std::vector<WorkloadInfo>& KnownWorkloads() {
  static const std::vector<WorkloadInfo> kWorkloads = [] {
    std::vector<WorkloadInfo> all;
    for (const NamedWorkload& n : kNamed) all.push_back({n.name, n.help});
    for (const WorkloadInfo& w : std::initializer_list<WorkloadInfo>{
      {"random:in=512,out=128", "fixed lengths"},
      {"prefix:shared=1024,unique=128,out=64", "one shared prefix, then unique text"},
      {"multi-turn:turns=4,in=128,out=128", "conversations: each turn repeats what came before and follows its end"},
      {"lengths:FILE", "lengths from a CSV with columns prompt_tokens,output_tokens"},
      {"trace:FILE[:scale=X]", "the same with the file's own arrival_s (rate times X) and shared prefixes"}}) {
      all.push_back(w);
    }
    return all;
  }();
  return kWorkloads;
}

Result<ArrivalSpec> ParseArrivals(const std::string& text, double rate_per_s) {
  ArrivalSpec spec;
  spec.rate_per_s = rate_per_s;
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const double value = colon == std::string::npos ? -1.0 : ToDouble(text.substr(colon + 1)).value_or(-1.0);
  if (text == "poisson") return spec;
  if (text == "constant") return spec.kind = ArrivalSpec::Kind::kConstant, spec;
  if (name == "gamma" && value > 0 && value <= 100) {
    spec.kind = ArrivalSpec::Kind::kGamma;
    spec.cv = value;
    return spec;
  }
  if (name == "jitter" && value >= 0) {
    spec.kind = ArrivalSpec::Kind::kRecorded;
    spec.jitter_s = value;
    return spec;
  }
  return InvalidArgument(
      fmt::format("arrivals '{}': poisson, gamma:CV (CV above 0, at most 100), constant or jitter:SECONDS", text),
      "arrivals");
}

Result<std::unique_ptr<WorkloadStream>> WorkloadStream::Open(const WorkloadSpec& spec, const ArrivalSpec& arrivals,
                                                             int64_t count, uint64_t seed) {
  using Kind = WorkloadSpec::Kind;
  if (spec.kind != Kind::kLengths && spec.kind != Kind::kTrace) {
    if (arrivals.kind == ArrivalSpec::Kind::kRecorded) {
      return InvalidArgument(fmt::format("arrivals jitter:S move a trace's own times, and workload '{}' has none", spec.text), "arrivals");
    }
    return std::unique_ptr<WorkloadStream>(std::make_unique<DrawnStream>(spec, arrivals, count, seed));
  }
  WorkloadSpec loaded = spec;
  TACTUS_RETURN_IF_ERROR(LoadRows(&loaded));
  const std::shared_ptr<const TraceFile>& file = loaded.rows;
  if (arrivals.kind == ArrivalSpec::Kind::kRecorded && (spec.kind != Kind::kTrace || !file->has_arrivals())) {
    return InvalidArgument(fmt::format("arrivals jitter:S move a trace's own times, and '{}' has none", spec.text), "arrivals");
  }
  if (arrivals.kind == ArrivalSpec::Kind::kRecorded && arrivals.rate_per_s > 0) {
    return InvalidArgument("arrivals jitter:S keep a trace's own times, so no rate can be asked for", "rate");
  }
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

}  // namespace tactus
