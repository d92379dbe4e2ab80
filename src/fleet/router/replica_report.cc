#include "fleet/router/replica_report.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "base/json.h"
#include "base/json_text.h"
#include "base/printable.h"

namespace tactus::fleet {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 48;  // of any figure that a replica reports
constexpr size_t kMostNames = 1000;                // models of one replica
constexpr int64_t kVllmStepTokens = 2048;          // vLLM's default; the metrics do not include it

Result<int64_t> Count(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return InvalidArgument(fmt::format("its state has no '{}'", name));
  if (!found->is_number_integer()) return InvalidArgument(fmt::format("its '{}' is not an integer", name));
  if (found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(kMostTokens))
    return InvalidArgument(fmt::format("its '{}' is {}, which is impossible", name, found->get<uint64_t>()));
  const int64_t value = found->get<int64_t>();
  if (value < 0 || value > kMostTokens)
    return InvalidArgument(fmt::format("its '{}' is {}, which is impossible", name, value));
  return value;
}

Result<std::string> Text(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string())
    return InvalidArgument(fmt::format("its state has no text '{}'", name));
  const auto& text = found->get_ref<const std::string&>();
  if (text.size() > 256) return InvalidArgument(fmt::format("its '{}' has {} bytes", name, text.size()));
  return text;
}

// The value of the first sample of a family. A line without its line end may be cut, and show 1 instead of 12.
std::optional<double> Sample(std::string_view text, std::string_view name) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(name) || line.size() <= name.size()) continue;
    const char next = line[name.size()];
    if (next != ' ' && next != '{') continue;
    const size_t value_at = next == '{' ? line.rfind('}') + 1 : name.size();
    const std::string value(line.substr(std::min(line.find_first_not_of(' ', value_at), line.size())));
    char* parsed = nullptr;
    const double number = std::strtod(value.c_str(), &parsed);
    if (parsed == value.c_str() || !std::isfinite(number) || number < 0) return std::nullopt;
    return number;
  }
  return std::nullopt;
}

// A label of vllm:cache_config_info.
std::optional<double> CacheConfig(std::string_view text, std::string_view label) {
  const size_t info = text.find("\nvllm:cache_config_info{");
  if (info == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(info + 1, text.find('\n', info + 1) - info - 1);
  const std::string key = std::string(label) + "=\"";
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view value = line.substr(at + key.size());
  int64_t number = 0;
  if (std::from_chars(value.data(), value.data() + value.size(), number).ec != std::errc()) return std::nullopt;
  return number > 0 && number < kMostTokens ? std::optional<double>(static_cast<double>(number)) : std::nullopt;
}

}  // namespace

const char* NameOf(ReplicaKind kind) {
  switch (kind) {
    case ReplicaKind::kTactus:
      return "tactus";
    case ReplicaKind::kVllm:
      return "vllm";
    case ReplicaKind::kPlain:
      return "plain";
    case ReplicaKind::kUnknown:
      break;
  }
  return "unknown";
}

Result<ReplicaReport> ParseTactusState(std::string_view body) {
  TACTUS_ASSIGN_OR_RETURN(const Json state, json_text::ParseJson(body, {.max_values = 1000}));
  if (!state.is_object()) return InvalidArgument("its state is not a JSON object");
  ReplicaReport report;
  TACTUS_ASSIGN_OR_RETURN(const std::string status, Text(state, "status"));
  TACTUS_ASSIGN_OR_RETURN(report.version, Text(state, "version"));
  report.ready = status == "ready";
  if (!report.ready) {
    report.why = Printable(status);
    return report;  // a loading replica reports nothing else
  }
  TACTUS_ASSIGN_OR_RETURN(report.model, Text(state, "model"));
  if (const auto others = state.find("other_models"); others != state.end() && others->is_array()) {
    for (const Json& name : *others) {
      if (name.is_string() && report.other_models.size() < kMostNames)
        report.other_models.push_back(name.get<std::string>());
    }
  }
  TACTUS_ASSIGN_OR_RETURN(const int64_t running, Count(state, "running"));
  report.state.running = static_cast<int32_t>(std::min<int64_t>(running, 1 << 30));
  TACTUS_ASSIGN_OR_RETURN(report.waiting_requests, Count(state, "waiting"));
  TACTUS_ASSIGN_OR_RETURN(report.state.waiting_tokens, Count(state, "waiting_tokens"));
  TACTUS_ASSIGN_OR_RETURN(report.state.free_kv_tokens, Count(state, "free_kv_tokens"));
  TACTUS_ASSIGN_OR_RETURN(report.state.kv_tokens, Count(state, "kv_tokens"));
  TACTUS_ASSIGN_OR_RETURN(report.state.step_tokens, Count(state, "step_tokens"));
  if (report.state.free_kv_tokens > report.state.kv_tokens) {
    return InvalidArgument(fmt::format("it has {} free KV tokens of {}, which is impossible",
                                       report.state.free_kv_tokens, report.state.kv_tokens));
  }
  return report;
}

Result<ReplicaReport> ParseVllmMetrics(std::string_view body, double prompt_tokens) {
  const auto running = Sample(body, "vllm:num_requests_running");
  const auto waiting = Sample(body, "vllm:num_requests_waiting");
  auto used = Sample(body, "vllm:kv_cache_usage_perc");
  if (!used) used = Sample(body, "vllm:gpu_cache_usage_perc");  // until version 0.10
  if (!running || !waiting || !used) return InvalidArgument("its metrics are not those of a vLLM server");
  const double blocks = CacheConfig(body, "num_gpu_blocks").value_or(0);
  const double block_size = CacheConfig(body, "block_size").value_or(16);
  const double limit = static_cast<double>(kMostTokens);
  ReplicaReport report;
  report.state.running = static_cast<int32_t>(std::min(*running, 1e9));
  report.waiting_requests = static_cast<int64_t>(std::min(*waiting, 1e9));
  report.state.waiting_tokens = static_cast<int64_t>(std::min(*waiting * prompt_tokens, limit));
  report.state.kv_tokens = static_cast<int64_t>(std::min(blocks * block_size, limit));
  report.state.free_kv_tokens =
      static_cast<int64_t>(static_cast<double>(report.state.kv_tokens) * (1 - std::min(*used, 1.0)));
  report.state.step_tokens = kVllmStepTokens;
  return report;
}

Result<std::vector<std::string>> ParseModelNames(std::string_view body) {
  TACTUS_ASSIGN_OR_RETURN(const Json answer, json_text::ParseJson(body, {.max_values = 100'000}));
  std::vector<std::string> names;
  const auto data = answer.is_object() ? answer.find("data") : answer.end();
  if (answer.is_object() && data != answer.end() && data->is_array()) {
    for (const Json& model : *data) {
      if (!model.is_object() || names.size() == kMostNames) break;
      auto name = Text(model, "id");
      if (!name.ok() || name->empty()) break;
      names.push_back(std::move(*name));
    }
  }
  return names.empty() ? Result<std::vector<std::string>>(InvalidArgument("its /v1/models names no model")) : names;
}

}  // namespace tactus::fleet
