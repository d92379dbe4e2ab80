#include "offline/server/objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "api/fields/fields.h"
#include "base/json.h"
#include "base/printable.h"
#include "offline/job/job_line.h"

namespace tactus::offline {
namespace {

constexpr size_t kMostPairs = 16, kMostKeyCharacters = 64, kMostValueCharacters = 512;
constexpr int64_t kLeastLive_s = 3600, kMostLive_s = 30 * 86400;
constexpr int64_t kMostWindow_s = 30 * 86400;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json TimeOrNull(int64_t unix_s) {
  return unix_s > 0 ? Json(unix_s) : Json(nullptr);
}
Json TextOrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json FileJson(const FileRow& f) {
  return {{"id", f.id},
          {"object", "file"},
          {"bytes", f.bytes},
          {"created_at", f.created_s},
          {"expires_at", TimeOrNull(f.expires_s)},
          {"filename", f.name},
          {"purpose", f.purpose},
          {"status", "processed"},
          {"status_details", nullptr}};
}

Json ErrorsJson(const BatchRow& b) {
  if (b.errors.empty()) return nullptr;
  Json data = Json::array();
  for (const BatchError& e : b.errors) {
    data.push_back({{"code", e.code},
                    {"message", e.message},
                    {"param", TextOrNull(e.param)},
                    {"line", e.line > 0 ? Json(e.line) : Json(nullptr)}});
  }
  return {{"object", "list"}, {"data", std::move(data)}};
}

Json BatchJson(const BatchRow& b, std::string_view model) {
  const auto entered = [&b](BatchState s) { return TimeOrNull(b.entered_s[static_cast<size_t>(s)]); };
  Json metadata = nullptr;
  if (!b.metadata.empty()) {
    metadata = Json::object();
    for (const auto& [key, value] : b.metadata) metadata[key] = value;
  }
  Json batch = {
      {"id", b.id},
      {"object", "batch"},
      {"endpoint", b.endpoint},
      {"model", model},
      {"errors", ErrorsJson(b)},
      {"input_file_id", b.input_file_id},
      {"completion_window", b.window},
      {"status", kBatchStateNames[static_cast<size_t>(b.state)]},
      {"output_file_id", b.has_output ? Json(b.output_file_id) : Json(nullptr)},
      {"error_file_id", b.has_errors ? Json(b.error_file_id) : Json(nullptr)},
      {"created_at", b.created_s()},
      {"in_progress_at", entered(BatchState::kInProgress)},
      {"expires_at", TimeOrNull(b.expires_s)},
      {"finalizing_at", entered(BatchState::kFinalizing)},
      {"completed_at", entered(BatchState::kCompleted)},
      {"failed_at", entered(BatchState::kFailed)},
      {"expired_at", entered(BatchState::kExpired)},
      {"cancelling_at", entered(BatchState::kCancelling)},
      {"cancelled_at", entered(BatchState::kCancelled)},
      {"request_counts", {{"total", b.counts.lines}, {"completed", b.counts.out}, {"failed", b.counts.errors}}},
      {"usage", nullptr},
      {"metadata", std::move(metadata)}};
  // Known after the end. The number of cached input tokens is not known, so the details are left out.
  if (Ended(b.state)) {
    batch["usage"] = {{"input_tokens", b.input_tokens},
                      {"output_tokens", b.output_tokens},
                      {"total_tokens", b.input_tokens + b.output_tokens}};
  }
  return batch;
}

std::string ListText(Json data, bool more) {
  const Json first = data.empty() ? Json(nullptr) : data.front()["id"];
  const Json last = data.empty() ? Json(nullptr) : data.back()["id"];
  return Dump(
      {{"object", "list"}, {"data", std::move(data)}, {"first_id", first}, {"last_id", last}, {"has_more", more}});
}

int64_t Characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
}

Status ReadMetadata(const Json* metadata, BatchRow* batch) {
  if (metadata == nullptr) return Status();
  if (!metadata->is_object())
    return InvalidArgument(fmt::format("metadata: {} is not an object of strings", api::Shown(*metadata)), "metadata");
  if (metadata->size() > kMostPairs) {
    return InvalidArgument(fmt::format("metadata: {} pairs; at most {} are accepted", metadata->size(), kMostPairs),
                           "metadata");
  }
  for (const auto& [key, value] : metadata->items()) {
    if (!value.is_string()) {
      return InvalidArgument(
          fmt::format("metadata: the value of '{}' is {}; it must be a string", Printable(key), api::TypeName(value)),
          "metadata");
    }
    const auto text = value.get<std::string>();
    if (Characters(key) > static_cast<int64_t>(kMostKeyCharacters) ||
        Characters(text) > static_cast<int64_t>(kMostValueCharacters)) {
      return InvalidArgument(
          fmt::format("metadata: '{}' has {} characters and its value {}; at most {} and {} are accepted",
                      Printable(key), Characters(key), Characters(text), kMostKeyCharacters, kMostValueCharacters),
          "metadata");
    }
    batch->metadata.emplace_back(key, text);
  }
  return Status();
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// OpenAI accepts only "24h"; here any number of s, m, h or d.
std::optional<int64_t> WindowSeconds(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const auto count = Number(text.substr(0, text.size() - 1));
  const int64_t unit = text.back() == 's'   ? 1
                       : text.back() == 'm' ? 60
                       : text.back() == 'h' ? 3600
                       : text.back() == 'd' ? 86400
                                            : 0;
  if (!count || *count < 1 || unit == 0 || *count > kMostWindow_s / unit) return std::nullopt;
  return *count * unit;
}

// {"anchor": "created_at", "seconds": N}
Status CheckLive(const std::string& name, const std::optional<std::string>& anchor, std::optional<int64_t> seconds) {
  if (anchor != "created_at") return InvalidArgument(fmt::format("{}: its anchor must be 'created_at'", name), name);
  if (seconds && *seconds >= kLeastLive_s && *seconds <= kMostLive_s) return Status();
  return InvalidArgument(fmt::format("{}: its seconds must be {} to {}", name, kLeastLive_s, kMostLive_s), name);
}

}  // namespace

std::string FileText(const FileRow& file) {
  return Dump(FileJson(file));
}

std::string DeletedFileText(std::string_view id) {
  return Dump({{"id", id}, {"object", "file"}, {"deleted", true}});
}

std::string FileListText(const Listed<FileRow>& files) {
  Json data = Json::array();
  for (const FileRow& f : files.rows) data.push_back(FileJson(f));
  return ListText(std::move(data), files.more);
}

std::string BatchText(const BatchRow& batch, std::string_view model) {
  return Dump(BatchJson(batch, model));
}

std::string BatchListText(const Listed<BatchRow>& batches, std::string_view model) {
  Json data = Json::array();
  for (const BatchRow& b : batches.rows) data.push_back(BatchJson(b, model));
  return ListText(std::move(data), batches.more);
}

Result<BatchRow> ParseBatch(std::string_view body, int64_t now_s) {
  TACTUS_ASSIGN_OR_RETURN(const Json object, json_text::ParseJson(body));
  if (!object.is_object())
    return InvalidArgument(fmt::format("the body must be a JSON object, not {}", api::TypeName(object)));
  api::Fields fields(object);
  BatchRow batch;
  const auto input = fields.String("input_file_id", 256);
  const auto endpoint = fields.String("endpoint", 256);
  const auto window = fields.String("completion_window", 32);
  TACTUS_RETURN_IF_ERROR(fields.status());
  if (!input || input->empty())
    return InvalidArgument("input_file_id: missing; pass the id of a file of purpose 'batch'", "input_file_id");
  const api::Api* api = ApiOfUrl(endpoint.value_or(""));
  if (api == nullptr) {
    return InvalidArgument(
        fmt::format("endpoint: '{}' does not accept batches; use {}", Printable(endpoint.value_or("")), kUrls),
        "endpoint");
  }
  const auto window_s = window ? WindowSeconds(*window) : std::nullopt;
  if (!window_s) {
    return InvalidArgument(fmt::format("completion_window: '{}' is not valid; use 24h, or another time from 1s to {}d",
                                       Printable(window.value_or("")), kMostWindow_s / 86400),
                           "completion_window");
  }
  TACTUS_RETURN_IF_ERROR(ReadMetadata(fields.Find("metadata"), &batch));
  if (const Json* live = fields.Find("output_expires_after"); live != nullptr) {
    if (!live->is_object()) fields.FailType("output_expires_after", "an object", *live);
    TACTUS_RETURN_IF_ERROR(fields.status());
    api::Fields inner(*live, "output_expires_after.");
    const auto anchor = inner.String("anchor", 64);
    const auto seconds = inner.Integer("seconds", kLeastLive_s, kMostLive_s);
    TACTUS_RETURN_IF_ERROR(inner.status());
    TACTUS_RETURN_IF_ERROR(CheckLive("output_expires_after", anchor, seconds));
    batch.results_live_s = *seconds;
  }
  batch.input_file_id = *input;
  batch.endpoint = api->path;
  batch.window = *window;
  batch.entered_s[0] = now_s;
  batch.expires_s = now_s + *window_s;
  return batch;
}

Status CheckPurpose(std::string_view purpose) {
  if (purpose == kInputPurpose) return Status();
  return InvalidArgument(fmt::format("purpose: '{}' is not supported; use '{}'", Printable(purpose), kInputPurpose),
                         "purpose");
}

Result<UploadFields> ParseUpload(const std::vector<std::pair<std::string, std::string>>& fields) {
  UploadFields upload;
  std::optional<std::string> purpose, anchor, seconds;
  for (const auto& [name, value] : fields) {
    std::optional<std::string>* known = name == "purpose"                  ? &purpose
                                        : name == "expires_after[anchor]"  ? &anchor
                                        : name == "expires_after[seconds]" ? &seconds
                                                                           : nullptr;
    if (known == nullptr) continue;
    if (*known) return InvalidArgument(fmt::format("{}: given twice", name), name);
    *known = value;
  }
  if (!purpose) return InvalidArgument("purpose: missing; use 'batch'", "purpose");
  TACTUS_RETURN_IF_ERROR(CheckPurpose(*purpose));
  if (!anchor && !seconds) return upload;
  const auto live_s = Number(seconds.value_or(""));
  TACTUS_RETURN_IF_ERROR(CheckLive("expires_after", anchor, live_s));
  upload.live_s = *live_s;
  return upload;
}

Result<Page> ParsePage(std::string_view target, int64_t usual, int64_t most, std::string* purpose) {
  Page page;
  page.limit = usual;
  const size_t mark = target.find('?');
  std::string_view query = mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
  query = query.substr(0, query.find('#'));
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view name = pair.substr(0, equals);
    const std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
    if (name == "after") page.after = value;
    if (name == "purpose" && purpose != nullptr) *purpose = value;
    if (name == "order") {
      if (value != "asc" && value != "desc")
        return InvalidArgument(fmt::format("order: '{}'; use asc or desc", Printable(value)), "order");
      page.ascending = value == "asc";
    }
    if (name == "limit") {
      const auto limit = Number(value);
      if (!limit || *limit < 1 || *limit > most)
        return InvalidArgument(fmt::format("limit: '{}'; use 1 to {}", Printable(value), most), "limit");
      page.limit = *limit;
    }
  }
  return page;
}

}  // namespace tactus::offline
