#include "sim/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>

#include "base/rng.h"

namespace tactus {
namespace {

// Streams of the one seed, so that changing the arrivals does not change the lengths.
enum Stream : uint64_t { kLengths = 1, kArrivals = 2 };

constexpr double kZ90 = 1.2815515655446004;  // 90 % quantile of the normal distribution

struct NamedWorkload {
  const char* name;
  double in_median, in_p90, out_median, out_p90;
};
// Medians and 90th percentiles of azure2023_conv, azure2023_code, arxiv_summarization_4k, bwb_4k (docs/workloads.md).
constexpr NamedWorkload kNamed[] = {
    {"chat", 1014, 3840, 115, 421},
    {"code", 1463, 5185, 13, 55},
    {"summarize", 2720, 3701, 167, 374},
    {"long-output", 1038, 1456, 1605, 2150},
};

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

int64_t DrawLogNormal(Rng& rng, double median, double p90, int64_t max) {
  const double sigma = std::log(p90 / median) / kZ90;
  const double value = median * std::exp(sigma * rng.Normal());
  return std::clamp<int64_t>(std::llround(value), 1, max);
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

// A CSV with a header that names arrival_s (may be empty), prompt_tokens, output_tokens and perhaps prefix_hash_ids.
Result<std::vector<WorkloadRequest>> ReadTrace(const WorkloadSpec& spec) {
  std::ifstream in(spec.file);
  if (!in) return NotFound(fmt::format("workload '{}': cannot open {}", spec.text, spec.file), "workload");
  std::string line;
  std::getline(in, line);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  const auto header = Split(line, ',');
  auto column = [&](const char* name) {
    const auto it = std::find(header.begin(), header.end(), name);
    return it == header.end() ? -1 : static_cast<int>(it - header.begin());
  };
  const int arrival = column("arrival_s"), prompt = column("prompt_tokens"), output = column("output_tokens"),
            hashes = column("prefix_hash_ids");
  if (prompt < 0 || output < 0) {
    return Bad(spec.text,
               fmt::format("{} has no columns prompt_tokens and output_tokens in its first line", spec.file));
  }
  std::vector<WorkloadRequest> rows;
  for (int64_t number = 2; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const auto cells = Split(line, ',');
    auto cell = [&](int i) {
      return i >= 0 && i < static_cast<int>(cells.size()) ? cells[static_cast<size_t>(i)] : std::string();
    };
    WorkloadRequest r;
    const auto p = ToDouble(cell(prompt)), o = ToDouble(cell(output));
    if (!p || !o || *p < 0 || *o < 0 || *p > 1e9 || *o > 1e9) {
      return Bad(spec.text, fmt::format("{}:{}: prompt_tokens '{}' and output_tokens '{}' must be numbers", spec.file,
                                        number, cell(prompt), cell(output)));
    }
    if (*p < 1 || *o < 1) continue;  // a few public traces have empty rows
    r.prompt_tokens = static_cast<int64_t>(*p);
    r.output_tokens = static_cast<int64_t>(*o);
    if (const auto t = ToDouble(cell(arrival)))
      r.arrival_ns = std::llround(*t / spec.scale * 1e9);
    else
      r.arrival_ns = -1;
    for (const std::string& id : Split(cell(hashes), ' ')) {
      if (const auto v = ToDouble(id)) r.block_ids.push_back(static_cast<int64_t>(*v));
    }
    rows.push_back(std::move(r));
  }
  if (rows.empty()) return Bad(spec.text, fmt::format("{} has no rows", spec.file));
  return rows;
}

void DrawArrivals(const ArrivalSpec& spec, uint64_t seed, std::vector<WorkloadRequest>* requests) {
  Rng rng(seed, kArrivals);
  if (spec.kind == ArrivalSpec::Kind::kRecorded) {
    for (auto& r : *requests) {
      r.arrival_ns = std::max<TimeNs>(r.arrival_ns, 0) + std::llround(rng.Uniform() * spec.jitter_s * 1e9);
    }
    return;
  }
  double now_s = 0;
  for (auto& r : *requests) {
    if (r.arrival_ns < 0 && r.conversation >= 0) continue;  // follows the turn before it
    r.arrival_ns = std::llround(now_s * 1e9);
    if (spec.rate_per_s <= 0) continue;
    const double mean = 1.0 / spec.rate_per_s;
    if (spec.kind == ArrivalSpec::Kind::kConstant)
      now_s += mean;
    else if (spec.kind == ArrivalSpec::Kind::kPoisson)
      now_s += rng.Exponential(mean);
    else
      now_s += DrawGamma(rng, 1.0 / (spec.cv * spec.cv)) * mean * spec.cv * spec.cv;
  }
}

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
  for (const NamedWorkload& n : kNamed) {
    if (name != n.name || !rest.empty()) continue;
    spec.kind = WorkloadSpec::Kind::kLogNormal;
    spec.in_median = n.in_median;
    spec.in_p90 = n.in_p90;
    spec.out_median = n.out_median;
    spec.out_p90 = n.out_p90;
    return spec;
  }
  return Bad(text,
             "the workloads are random:in=N,out=N, prefix:shared=N,unique=N,out=N, chat, code, summarize, long-output, "
             "multi-turn[:turns=N,in=N,out=N], lengths:FILE and trace:FILE[:scale=X]");
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

Result<std::vector<WorkloadRequest>> MakeWorkload(const WorkloadSpec& spec, const ArrivalSpec& arrivals, int64_t count,
                                                  uint64_t seed) {
  Rng rng(seed, kLengths);
  std::vector<WorkloadRequest> out;
  ArrivalSpec use = arrivals;
  using Kind = WorkloadSpec::Kind;
  if (spec.kind == Kind::kLengths || spec.kind == Kind::kTrace) {
    TACTUS_ASSIGN_OR_RETURN(auto rows, ReadTrace(spec));
    if (count <= 0) count = static_cast<int64_t>(rows.size());
    const TimeNs span = rows.back().arrival_ns + 1;
    for (int64_t i = 0; i < count; ++i) {
      WorkloadRequest r = rows[static_cast<size_t>(i) % rows.size()];
      if (r.arrival_ns >= 0) r.arrival_ns += i / static_cast<int64_t>(rows.size()) * span;
      out.push_back(std::move(r));
    }
    // A trace keeps its own times unless a rate is asked for or it has none.
    if (spec.kind == Kind::kTrace && out.front().arrival_ns >= 0 && arrivals.rate_per_s <= 0) {
      use.kind = ArrivalSpec::Kind::kRecorded;
    }
  } else {
    if (count <= 0) count = 100;
    for (int64_t i = 0; i < count; ++i) {
      WorkloadRequest r;
      if (spec.kind == Kind::kLogNormal) {
        r.prompt_tokens = DrawLogNormal(rng, spec.in_median, spec.in_p90, spec.max_tokens);
        r.output_tokens = DrawLogNormal(rng, spec.out_median, spec.out_p90, spec.max_tokens);
      } else if (spec.kind == Kind::kPrefix) {
        r.prompt_tokens = spec.shared + spec.unique;
        r.output_tokens = spec.out;
        r.prefix_id = 0;
        r.shared_tokens = spec.shared;
      } else if (spec.kind == Kind::kMultiTurn) {
        // Turn t repeats the conversation so far: t earlier questions and answers, then a new question.
        const int64_t turn = i % spec.turns;
        r.conversation = r.prefix_id = i / spec.turns;
        r.prompt_tokens = (turn + 1) * spec.in + turn * spec.out;
        r.output_tokens = spec.out;
        r.shared_tokens = turn * (spec.in + spec.out);
        r.arrival_ns = turn == 0 ? 0 : -1;
      } else {
        r.prompt_tokens = spec.in;
        r.output_tokens = spec.out;
      }
      out.push_back(std::move(r));
    }
  }
  DrawArrivals(use, seed, &out);
  if (use.kind == ArrivalSpec::Kind::kRecorded) {
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.arrival_ns < b.arrival_ns; });
  }
  return out;
}

}  // namespace tactus
