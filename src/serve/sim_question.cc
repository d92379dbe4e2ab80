#include "serve/sim_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/json.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "serve/child_program.h"

namespace tactus::serve {
namespace {

// Fields that a simulation takes from elsewhere, or that have no meaning there.
constexpr std::string_view kNotPassed[] = {"trace-out", "max-model-len", "speculation", "draft-tokens"};

// Flags as text, each with its values.
struct FlagTexts {
  std::vector<std::pair<std::string, std::vector<std::string>>> flags;
  void Group(const char*) {}
  static std::string Show(bool v) { return v ? "on" : "off"; }
  static std::string Show(const std::string& v) { return v; }
  static std::string Show(const DurationText& v) {
    return v.ns == kAutoDuration ? "auto" : v.ns == 0 ? "none" : fmt::format("{}ns", v.ns);
  }
  static std::string Show(const BytesText& v) { return fmt::format("{}", v.bytes); }
  static std::string Show(double v) { return fmt::format("{}", v); }
  static std::string Show(int64_t v) { return fmt::format("{}", v); }
  template <class T>
  static std::string Show(const std::optional<T>& v) {
    return v ? Show(*v) : "";
  }
  void Field(const char* name, const std::vector<std::string>& value, const FieldSpec&) {
    flags.emplace_back(name, value);
  }
  template <class T>
  void Field(const char* name, const T& value, const FieldSpec&) {
    flags.emplace_back(name, std::vector<std::string>{Show(value)});
  }
};

// The flags that differ from their defaults.
std::vector<std::string> FlagsOf(SchedulingOptions options) {
  FlagTexts given, usual;
  options.VisitFields(given);
  SchedulingOptions().VisitFields(usual);
  std::vector<std::string> args;
  for (size_t i = 0; i < given.flags.size(); ++i) {
    const auto& [name, values] = given.flags[i];
    if (values == usual.flags[i].second) continue;
    if (std::find(std::begin(kNotPassed), std::end(kNotPassed), name) != std::end(kNotPassed)) continue;
    for (const std::string& value : values) args.push_back(fmt::format("--{}={}", name, value));
  }
  return args;
}

std::vector<std::string> ArgsOf(const char* command, const SimBasis& basis, const SchedulingOptions& options) {
  std::vector<std::string> args = {"sim"};
  if (*command != '\0') args.emplace_back(command);
  args.push_back("--cost=" + basis.step_times);
  args.push_back(fmt::format("--max-model-len={}", basis.max_model_len));
  args.push_back(fmt::format("--kv-blocks={}", basis.kv_blocks));
  for (std::string& flag : FlagsOf(options)) args.push_back(std::move(flag));
  args.emplace_back("--json");
  args.emplace_back("--jobs=1");
  return args;
}

// The search is within this factor of the rate in question.
constexpr double kCapacityRange = 20;
// Requests of stated lengths: as many as arrive in this time, so that queues can grow.
constexpr double kLoadS = 60;
constexpr double kLeastRequests = 300, kMostRequests = 20'000;

// A cell of a CSV file.
std::string Cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

std::string MsCell(int64_t ns) {
  return ns > 0 ? fmt::format("{}", static_cast<double>(ns) * 1e-6) : "";
}

// Those that computed something, as a trace.
std::string TraceOf(const std::vector<PastRequest>& past) {
  std::string text =
      "arrival_s,prompt_tokens,output_tokens,slo_ttft_ms,slo_tbt_ms,slo_jct_ms,slo_class,priority,prefix_hash_ids\n";
  std::optional<int64_t> first_ns;
  for (const PastRequest& r : past) {
    if (r.prompt_tokens < 1 || r.completion_tokens < 1) continue;
    if (!first_ns) first_ns = r.arrival_ns;
    std::string ids;
    for (const int64_t id : r.text_ids) ids += fmt::format("{}{}", ids.empty() ? "" : " ", id);
    text += fmt::format("{:.9f},{},{},{},{},{},{},{},{}\n", static_cast<double>(r.arrival_ns - *first_ns) * 1e-9,
                        r.prompt_tokens, r.completion_tokens, MsCell(r.slo.ttft_ns), MsCell(r.slo.tbt_ns),
                        MsCell(r.slo.jct_ns), Cell(r.slo_class), r.priority, ids);
  }
  return first_ns ? text : std::string();
}

double SecondsOf(const std::vector<PastRequest>& past) {
  if (past.empty()) return 0;
  int64_t end_ns = 0;
  for (const PastRequest& r : past) end_ns = std::max(end_ns, r.arrival_ns + r.e2e_ns);
  return static_cast<double>(end_ns - past.front().arrival_ns) * 1e-9;
}

using Kind = SimField::Kind;
constexpr SimField kWhatIfFields[] = {
    {"scheduler", "A preset; this server's by default.", Kind::kText},
    {"token_budget", "Most tokens in one step; 0: the preset's.", Kind::kWhole, 0, 1 << 20},
    {"tbt_slo_ms", "The gap between tokens that steps are sized for; 0: none.", Kind::kNumber, 0, 1e9},
    {"rate_factor", "How many times as fast requests arrive.", Kind::kNumber, 0.01, 100},
    {"replicas", "Servers like this one behind a router.", Kind::kWhole, 1, 64},
};
constexpr SimField kCapacityFields[] = {
    {"rate", "Requests per second; by default those of the last ten minutes.", Kind::kNumber, 1e-6, 1e6},
    {"prompt_tokens", "Of each request; with output_tokens.", Kind::kWhole, 1, 1 << 24},
    {"output_tokens", "Of each request; with prompt_tokens.", Kind::kWhole, 1, 1 << 24},
    {"trace", "A CSV with prompt_tokens and output_tokens, instead of lengths.", Kind::kText},
    {"ttft_ms", "Objective of requests that state none: time to the first token.", Kind::kNumber, 1e-3, 1e9},
    {"tbt_ms", "Objective of requests that state none: time between tokens.", Kind::kNumber, 1e-3, 1e9},
    {"share", "Share of the requests that must keep their objectives; 0.99 by default.", Kind::kNumber, 0.01, 1},
    {"replicas", "Servers like this one behind a router.", Kind::kWhole, 1, 64},
    {"scheduler", "A preset; this server's by default.", Kind::kText},
};

// A limit of a field, in full: 1048576, 0.001.
std::string LimitText(double value) {
  return fmt::format("{:.10g}", value);
}

// The value is there and not null.
Status CheckField(const SimField& field, const Json& value) {
  const auto wrong = [&](const std::string& wanted) {
    return InvalidArgument(
        fmt::format("{} is {}; it must be {}", field.name, Printable(json_text::JsonText(value)), wanted), field.name);
  };
  if (field.kind == Kind::kText) {
    if (!value.is_string()) return wrong("a string");
    return value.get_ref<const std::string&>().empty() ? wrong("a string that is not empty") : Status();
  }
  const bool whole = field.kind == Kind::kWhole;
  const double number = value.is_number() ? value.get<double>() : field.least - 1;
  if (number >= field.least && number <= field.most && (!whole || number == std::floor(number))) return Status();
  return wrong(fmt::format("a {} from {} to {}", whole ? "whole number" : "number", LimitText(field.least),
                           LimitText(field.most)));
}

// The members of a question, checked against its fields.
class Fields {
 public:
  Fields(Json object, std::span<const SimField> fields) : object_(std::move(object)), fields_(fields) {}

  Status Check() const {
    for (const auto& item : object_.items()) {
      const std::string& name = item.key();
      const Json& value = item.value();
      const auto field =
          std::find_if(fields_.begin(), fields_.end(), [&name](const SimField& f) { return name == f.name; });
      if (field == fields_.end()) {
        std::string names;
        for (const SimField& f : fields_) names += fmt::format("{}{}", names.empty() ? "" : ", ", f.name);
        return InvalidArgument(fmt::format("unknown field '{}'; the fields are {}", Printable(name), names), name);
      }
      if (value.is_null()) continue;
      TACTUS_RETURN_IF_ERROR(CheckField(*field, value));
    }
    return Status();
  }
  std::optional<double> Number(const char* name) const {
    const auto at = object_.find(name);
    if (at == object_.end() || at->is_null()) return std::nullopt;
    return at->get<double>();
  }
  std::optional<std::string> Text(const char* name) const {
    const auto at = object_.find(name);
    if (at == object_.end() || at->is_null()) return std::nullopt;
    return at->get<std::string>();
  }

 private:
  Json object_;
  std::span<const SimField> fields_;
};

Result<Fields> FieldsOf(std::string_view body, const SimBasis& basis, bool capacity) {
  TACTUS_ASSIGN_OR_RETURN(Json object, json_text::ParseJson(body));
  if (!object.is_object()) return InvalidArgument("the body must be a JSON object");
  Fields fields(std::move(object), SimFields(capacity));
  TACTUS_RETURN_IF_ERROR(fields.Check());
  if (basis.step_times.empty()) {
    return Status(StatusCode::kUnavailable,
                  "this server has no step times to simulate with; measure some with `tactus profile`, or use a "
                  "scheduler that measures them at its start");
  }
  return fields;
}

Status NoRequests() {
  return Status(StatusCode::kUnavailable,
                "no request has ended in the last ten minutes, so there is no load to simulate; send some, or state a "
                "rate and lengths to /capacity");
}

void AddReplicas(std::optional<double> replicas, SimCommand* command) {
  if (!replicas || *replicas <= 1) return;
  command->args.push_back(fmt::format("--replicas={}", static_cast<int64_t>(*replicas)));
  command->args.emplace_back("--balancer=sal");
}

std::string TraceWorkload(double scale) {
  const std::string file = fmt::format("--workload=trace:{}", ChildRun::kInput);
  return scale == 1 ? file : fmt::format("{}:scale={}", file, scale);
}

// The p-th of the sorted values, by nearest rank; null without values.
Json PercentilesOf(std::vector<double> values) {
  if (values.empty()) return nullptr;
  std::sort(values.begin(), values.end());
  Json object;
  for (const auto& [name, share] : {std::pair("p50", 0.5), {"p90", 0.9}, {"p99", 0.99}}) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    object[name] = values[std::max<size_t>(rank, 1) - 1];
  }
  object["max"] = values.back();
  return object;
}

// The value of an end of the search range: the last seed's, if every seed did only the one thing (held the condition,
// or broke it) and never the other; null: some did both.
Json EndOf(const Json& found, const char* did, const char* never) {
  Json end;
  const auto seeds = found.find("seeds");
  if (seeds == found.end() || !seeds->is_array()) return end;
  for (const Json& seed : *seeds) {
    if (!seed.value(never, Json()).is_null() || !seed.value(did, Json()).is_object()) return nullptr;
    end = seed[did].value("value", Json());
  }
  return end;
}

}  // namespace

std::span<const SimField> SimFields(bool capacity) {
  if (capacity) return kCapacityFields;
  return kWhatIfFields;
}

Result<WhatIfQuestion> ParseWhatIf(std::string_view body, const SimBasis& basis) {
  TACTUS_ASSIGN_OR_RETURN(const Fields fields, FieldsOf(body, basis, false));
  SchedulingOptions changed = basis.options;
  if (const auto name = fields.Text("scheduler")) changed.scheduler = *name;
  if (const auto tokens = fields.Number("token_budget")) {
    changed.token_budget = static_cast<int64_t>(*tokens);
  }
  if (const auto ms = fields.Number("tbt_slo_ms")) changed.tbt_slo.ns = static_cast<int64_t>(*ms * 1e6);
  const double factor = fields.Number("rate_factor").value_or(1);
  const auto replicas = fields.Number("replicas");
  const std::string load = TraceOf(basis.past);
  if (load.empty()) return NoRequests();
  WhatIfQuestion question;
  question.same = {ArgsOf("", basis, basis.options), load, false, basis.step_times};
  question.same.args.push_back(TraceWorkload(1));
  question.changed = {ArgsOf("", basis, changed), load, false, basis.step_times};
  question.changed.args.push_back(TraceWorkload(factor));
  AddReplicas(replicas, &question.changed);
  return question;
}

Result<CapacityQuestion> ParseCapacity(std::string_view body, const SimBasis& basis) {
  TACTUS_ASSIGN_OR_RETURN(const Fields fields, FieldsOf(body, basis, true));
  SchedulingOptions options = basis.options;
  const auto rate = fields.Number("rate");
  const auto prompt = fields.Number("prompt_tokens");
  const auto output = fields.Number("output_tokens");
  const auto trace = fields.Text("trace");
  const auto ttft = fields.Number("ttft_ms");
  const auto tbt = fields.Number("tbt_ms");
  const double share = fields.Number("share").value_or(0.99);
  const auto replicas = fields.Number("replicas");
  if (const auto name = fields.Text("scheduler")) options.scheduler = *name;
  if (prompt.has_value() != output.has_value())
    return InvalidArgument(fmt::format("{} is missing; give both prompt_tokens and output_tokens, or neither",
                                       prompt ? "output_tokens" : "prompt_tokens"),
                           "prompt_tokens");
  if (trace && prompt) return InvalidArgument("a trace states its own lengths; leave prompt_tokens out", "trace");

  CapacityQuestion question;
  question.command.args = ArgsOf("capacity", basis, options);
  question.command.step_times = basis.step_times;
  std::vector<std::string>& args = question.command.args;
  bool stated = ttft || tbt;
  if (prompt) {
    args.push_back(
        fmt::format("--workload=random:in={},out={}", static_cast<int64_t>(*prompt), static_cast<int64_t>(*output)));
    if (!rate) return InvalidArgument("rate is missing; give the requests per second", "rate");
    args.push_back(fmt::format(
        "--requests={}", static_cast<int64_t>(std::clamp(std::ceil(*rate * kLoadS), kLeastRequests, kMostRequests))));
  } else {
    question.command.load = trace ? *trace : TraceOf(basis.past);
    if (question.command.load.empty()) return NoRequests();
    args.push_back(TraceWorkload(1));
    if (!trace) {
      stated = stated || std::any_of(basis.past.begin(), basis.past.end(), [](const PastRequest& r) {
                 return r.slo.ttft_ns > 0 || r.slo.tbt_ns > 0 || r.slo.jct_ns > 0;
               });
    }
    if (!rate && trace) return InvalidArgument("rate is missing; give the requests per second", "rate");
  }
  const double seconds = SecondsOf(basis.past);
  question.rate = rate ? *rate : (seconds > 0 ? static_cast<double>(basis.past.size()) / seconds : 0);
  std::string slo;
  if (ttft) slo += fmt::format("ttft={}ms", *ttft);
  if (tbt) slo += fmt::format("{}tbt={}ms", slo.empty() ? "" : ",", *tbt);
  if (!stated && !trace) slo = "ttft=2000ms,tbt=187.5ms";  // reading speed
  if (!slo.empty()) args.push_back("--slo=" + slo);
  args.push_back(fmt::format("--until=attainment>={}% and rejected==0", 100 * share));
  args.emplace_back("--tolerance=5");
  if (question.rate > 0) {
    args.push_back(fmt::format("--from={:.6g}", question.rate / kCapacityRange));
    args.push_back(fmt::format("--to={:.6g}", question.rate * kCapacityRange));
  }
  question.command.negative_result = true;
  AddReplicas(replicas, &question.command);
  return question;
}

std::string HappenedText(const std::vector<PastRequest>& past) {
  if (past.empty()) return "null";
  const double seconds = SecondsOf(past);
  std::vector<double> ttft, e2e, longest;
  int64_t tokens = 0, stated = 0, kept = 0, completed = 0, refused = 0;
  for (const PastRequest& r : past) {
    if (r.ttft_ns >= 0) ttft.push_back(static_cast<double>(r.ttft_ns) * 1e-6);
    if (r.longest_gap_ns >= 0) longest.push_back(static_cast<double>(r.longest_gap_ns) * 1e-6);
    const bool whole = r.finish == FinishReason::kStop || r.finish == FinishReason::kLength;
    if (whole) e2e.push_back(static_cast<double>(r.e2e_ns) * 1e-6);
    completed += whole ? 1 : 0;
    refused += r.refused ? 1 : 0;
    tokens += r.completion_tokens;
    if (r.slo.ttft_ns <= 0 && r.slo.tbt_ns <= 0 && r.slo.jct_ns <= 0) continue;
    ++stated;
    kept += r.late ? 0 : 1;
  }
  Json figures;
  figures["duration_s"] = seconds;
  figures["requests"] = {{"completed", completed}, {"rejected", refused}};
  figures["request_throughput"] = seconds > 0 ? static_cast<double>(completed) / seconds : 0;
  figures["output_token_throughput"] = seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  figures["slo_attainment"] = stated > 0 ? Json(static_cast<double>(kept) / static_cast<double>(stated)) : Json();
  figures["ttft_ms"] = PercentilesOf(std::move(ttft));
  figures["e2e_ms"] = PercentilesOf(std::move(e2e));
  figures["longest_gap_ms"] = PercentilesOf(std::move(longest));
  return json_text::JsonText(figures);
}

Result<std::string> FiguresText(std::string_view result) {
  const auto parsed = json_text::ParseJson(result);
  if (!parsed.ok() || !parsed->is_object()) return Status(StatusCode::kDataLoss, "the simulation printed no result");
  Json figures;
  for (const char* name : {"duration_s", "requests", "request_throughput", "output_token_throughput", "slo_attainment",
                           "ttft_ms", "tbt_ms", "e2e_ms", "preemptions", "kv_utilization", "prefix_sharing",
                           "scheduler", "extrapolation", "wall_s"}) {
    if (const auto at = parsed->find(name); at != parsed->end()) figures[name] = *at;
  }
  return json_text::JsonText(figures);
}

Result<std::string> CapacityText(std::string_view result, const CapacityQuestion& question) {
  const auto parsed = json_text::ParseJson(result);
  if (!parsed.ok() || !parsed->is_object() || !parsed->contains("configurations") ||
      (*parsed)["configurations"].empty()) {
    return Status(StatusCode::kDataLoss, "the simulation printed no result");
  }
  const Json& found = (*parsed)["configurations"][0];
  Json answer;
  answer["rate"] = question.rate;
  answer["capacity"] = found.value("capacity", Json());
  answer["why_none"] = found.value("why_none", Json());
  answer["until"] = (*parsed).value("until", Json());
  answer["holds"] = nullptr;
  answer["at_least"] = EndOf(found, "held", "broke");
  answer["below"] = EndOf(found, "broke", "held");
  if (answer["capacity"].is_null()) {
    if (answer["at_least"].is_null() && answer["below"].is_null()) {
      return InvalidArgument(answer["why_none"].is_string() ? answer["why_none"].get<std::string>() : "no result");
    }
    answer["holds"] = answer["below"].is_null() ? "yes" : "no";
  }
  if (const Json& capacity = answer["capacity"]; capacity.is_object()) {
    const double low = capacity.value("low", 0.0), high = capacity.value("high", 0.0);
    answer["holds"] = question.rate <= low ? "yes" : question.rate > high ? "no" : "uncertain";
  }
  answer["command"] = CommandText(question.command);
  return json_text::JsonText(answer);
}

namespace {

void ReplaceAll(std::string_view from, std::string_view to, std::string* text) {
  for (size_t at = 0; !from.empty() && (at = text->find(from, at)) != std::string::npos; at += to.size())
    text->replace(at, from.size(), to);
}

// The text with the names of files as a user would see them.
std::string WithoutFolders(std::string text, const SimCommand& command) {
  ReplaceAll(ChildRun::kInput, "load.csv", &text);
  ReplaceAll(command.step_times, command.step_times.substr(command.step_times.rfind('/') + 1), &text);
  return text;
}

}  // namespace

Status ErrorOf(const Status& failed, const SimCommand& command) {
  const bool of_server = !command.step_times.empty() && failed.message().find(command.step_times) != std::string::npos;
  return Status(of_server ? StatusCode::kInternal : failed.code(), WithoutFolders(failed.message(), command),
                failed.param());
}

std::string CommandText(const SimCommand& command) {
  std::string text = "tactus";
  for (std::string arg : command.args) {
    arg = WithoutFolders(std::move(arg), command);
    constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,@%+-";
    if (arg.find_first_not_of(kPlain) == std::string::npos) {
      text += " " + arg;
      continue;
    }
    text += " '";
    for (const char c : arg) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += "'";
  }
  return text;
}

}  // namespace tactus::serve
