// Parses workload and arrival texts.
#include "sim/workload/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/unit_text.h"
#include "sim/workload/named_workloads.h"
#include "sim/workload/trace_file.h"

namespace tactus::sim {
namespace {

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

// Parses key=value pairs into the fields that `set` accepts; whole numbers from 1 to 10 million.
Status ReadPairs(const std::string& text, const std::string& pairs,
                 const std::vector<std::pair<const char*, int64_t*>>& fields) {
  std::vector<const char*> given;
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
    if (std::find(given.begin(), given.end(), field->first) != given.end())
      return Bad(text, fmt::format("'{}' twice; give it once", field->first));
    given.push_back(field->first);
    *field->second = static_cast<int64_t>(*value);
  }
  return Status();
}

int32_t NamedIndex(std::string_view name) {
  for (size_t i = 0; i < NamedWorkloads().size(); ++i) {
    if (name == NamedWorkloads()[i].name) return static_cast<int32_t>(i);
  }
  return -1;
}

// Parses name=share pairs; shares above 0 that sum to 1.
Status ReadMix(const std::string& text, const std::string& pairs, std::vector<WorkloadSpec::Part>* parts) {
  double sum = 0;
  for (const std::string& pair : Split(pairs, ',')) {
    const size_t eq = pair.find('=');
    const int32_t named = NamedIndex(std::string_view(pair).substr(0, eq));
    if (named < 0 || eq == std::string::npos) {
      std::string known;
      for (const NamedWorkload& n : NamedWorkloads()) known += fmt::format(" {}=SHARE", n.name);
      return Bad(text, fmt::format("'{}' is not one of{}", pair, known));
    }
    const auto share = ToDouble(pair.substr(eq + 1));
    if (!share || *share <= 0 || *share > 1)
      return Bad(text, fmt::format("'{}' needs a share above 0, at most 1", pair));
    if (std::any_of(parts->begin(), parts->end(), [named](const auto& part) { return part.named == named; }))
      return Bad(text, fmt::format("'{}' twice", pair.substr(0, eq)));
    parts->push_back({named, *share});
    sum += *share;
  }
  if (std::abs(sum - 1) > 1e-6) return Bad(text, fmt::format("the shares sum to {:g}; they must sum to 1", sum));
  return Status();
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
    if (spec.file.empty()) return Bad(text, fmt::format("give a file: {}:FILE", name));
    if (scale != std::string::npos) {
      if (name == "lengths")
        return Bad(text,
                   "scale applies to a file's arrival times, which lengths: ignores; use trace:FILE:scale=X or --rate");
      const auto value = ToDouble(rest.substr(scale + 7));
      spec.scale = value.value_or(0.0);
      if (spec.scale <= 0) return Bad(text, "scale must be a number above 0");
    }
    return spec;
  }
  if (name == "mix") {
    spec.kind = WorkloadSpec::Kind::kMix;
    TACTUS_RETURN_IF_ERROR(ReadMix(text, rest, &spec.parts));
    return spec;
  }
  if (const int32_t named = NamedIndex(name); named >= 0 && rest.empty()) {
    spec.kind = WorkloadSpec::Kind::kNamed;
    spec.parts = {{named}};
    return spec;
  }
  std::string names;
  for (const NamedWorkload& n : NamedWorkloads()) names += std::string(n.name) + ", ";
  return Bad(text,
             "the workloads are random:in=N,out=N, prefix:shared=N,unique=N,out=N, " + names +
                 "mix:NAME=SHARE,NAME=SHARE, multi-turn[:turns=N,in=N,out=N], lengths:FILE and trace:FILE[:scale=X]");
}

Status LoadRows(WorkloadSpec* spec) {
  if (spec->file.empty() || spec->rows != nullptr) return Status();
  TACTUS_ASSIGN_OR_RETURN(spec->rows, TraceFile::Read(spec->file));
  return Status();
}

const std::vector<WorkloadInfo>& KnownWorkloads() {
  static const std::vector<WorkloadInfo> kWorkloads = [] {
    std::vector<WorkloadInfo> all;
    for (const NamedWorkload& n : NamedWorkloads()) all.push_back({n.name, n.help});
    for (const WorkloadInfo& w : std::initializer_list<WorkloadInfo>{
             {"random:in=512,out=128", "fixed lengths"},
             {"prefix:shared=1024,unique=128,out=64", "one shared prefix, then unique text"},
             {"mix:NAME=SHARE,NAME=SHARE", "lengths from one of the distributions above, chosen by share"},
             {"multi-turn:turns=4,in=128,out=128",
              "conversations: each turn repeats the conversation so far and arrives after the previous one ends"},
             {"lengths:FILE", "lengths from a CSV with columns prompt_tokens,output_tokens"},
             {"trace:FILE[:scale=X]", "the same, with the file's arrival_s (rate times X) and shared prefixes"}}) {
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
  if (name == "jitter" && colon != std::string::npos) {
    const std::string typed = text.substr(colon + 1);
    if (const std::string missing = MissingUnit(typed); !missing.empty())
      return InvalidArgument(fmt::format("arrivals '{}': '{}' {}", text, typed, missing), "arrivals");
    if (const auto jitter = ParseDuration(typed); jitter.ok()) {
      spec.kind = ArrivalSpec::Kind::kRecorded;
      spec.jitter_s = static_cast<double>(jitter->ns) * 1e-9;
      return spec;
    }
  }
  return InvalidArgument(
      fmt::format("arrivals '{}': poisson, gamma:CV (CV above 0, at most 100), constant or jitter:DURATION, such as "
                  "jitter:500ms",
                  text),
      "arrivals");
}

}  // namespace tactus::sim
