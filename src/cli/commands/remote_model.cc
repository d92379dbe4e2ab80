#include "cli/commands/remote_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/available_memory.h"
#include "base/clock.h"
#include "compute/model/catalog.h"
#include "compute/weights/model_description.h"
#include "hub/listed_models.h"
#include "hub/size_text.h"

namespace tactus::cli {
namespace {

constexpr DurationNs kLineTime = 30 * kSecond;  // between lines of progress in a server's log
constexpr double kRateSeconds = 5;              // over which the rate is averaged

std::string ElapsedText(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  return whole < 60     ? fmt::format("{} s", whole)
         : whole < 3600 ? fmt::format("{}:{:02} min", whole / 60, whole % 60)
                        : fmt::format("{}:{:02} h", whole / 3600, whole % 3600 / 60);
}

// Shows progress: on a terminal in one line, in a server's log now and then as a line, elsewhere not at all.
class DownloadProgress {
 public:
  DownloadProgress(std::string name, StartLog* log) : name_(std::move(name)), log_(log) {}

  void Show(const hub::Progress& p) {
    const TimeNs now = SystemClock().NowNs();
    if (start_ns_ == 0) {
      start_ns_ = last_ns_ = line_ns_ = now;
      last_bytes_ = p.done_bytes;
    }
    kept_bytes_ = std::max(kept_bytes_, p.kept_bytes);
    const double seconds = static_cast<double>(now - last_ns_) * 1e-9;
    if (seconds >= 1 && (rate_ >= 0 || p.done_bytes > last_bytes_)) {
      const double rate = static_cast<double>(p.done_bytes - last_bytes_) / seconds;
      const double weight = rate_ < 0 ? 1 : std::min(1.0, seconds / kRateSeconds);
      rate_ = rate_ < 0 ? rate : rate_ + weight * (rate - rate_);
      last_ns_ = now;
      last_bytes_ = p.done_bytes;
    }
    if (log_->terminal()) {
      log_->Passing(Text(p));
    } else if (log_->server_log() && now - line_ns_ >= kLineTime) {
      line_ns_ = now;
      log_->Line(Text(p));
    }
  }

  void End(int64_t downloaded_bytes) const {
    log_->Clear();
    if (downloaded_bytes == 0 || start_ns_ == 0) return;
    const double seconds = static_cast<double>(SystemClock().NowNs() - start_ns_) * 1e-9;
    log_->Line(fmt::format("{}: {} in {}{}", name_, hub::SizeText(downloaded_bytes - kept_bytes_), ElapsedText(seconds),
                           kept_bytes_ > 0 ? ", after " + hub::SizeText(kept_bytes_) + " of an earlier download" : ""));
  }

 private:
  std::string Text(const hub::Progress& p) const {
    if (p.waiting) return name_ + ": waiting for another process";
    std::string text = name_ + ": " + hub::SizeText(p.done_bytes);
    if (p.total_bytes > 0) {
      text = fmt::format("{}: {} % of {}", name_, 100 * p.done_bytes / p.total_bytes, hub::SizeText(p.total_bytes));
    }
    if (rate_ < 0) return text;
    text += fmt::format(", {}/s", hub::SizeText(static_cast<int64_t>(std::max(rate_, 0.0))));
    if (p.total_bytes > 0 && rate_ > 0)
      text += ", " + ElapsedText(static_cast<double>(p.total_bytes - p.done_bytes) / rate_) + " left";
    return text;
  }

  const std::string name_;
  StartLog* log_;
  TimeNs start_ns_ = 0, last_ns_ = 0, line_ns_ = 0;
  int64_t last_bytes_ = 0, kept_bytes_ = 0;
  double rate_ = -1;  // bytes per second; below 0: not known yet
};

// A path, a name of the catalogue, or empty: the default model or none.
bool IsLocal(const std::string& model) {
  return model.empty() || compute::ResolveModel(model).ok();
}

// A name that is nearly a remote one: without "hf:", or of a listed family in another size.
Status Meant(const std::string& model) {
  const std::string family = model.substr(0, model.find(':'));
  std::string sizes;
  for (const std::string& listed : hub::ListedNames()) {
    if (listed == family || listed.starts_with(family + ":")) sizes += (sizes.empty() ? "" : ", ") + listed;
  }
  if (!sizes.empty()) return NotFound(fmt::format("there is no model '{}'; known: {}", model, sizes), "model");
  const bool looks = std::count(model.begin(), model.end(), '/') == 1 && model.front() != '/' && model.front() != '.';
  const auto remote = hub::ParseRemoteName("hf:" + model, "");
  if (!looks || !remote.ok() || !*remote || model.ends_with(".gguf")) return Status();
  return NotFound(compute::ResolveModel(model).status().message() +
                      fmt::format("; the model of Hugging Face would be hf:{}", model),
                  "model");
}

// The name for clients: as huggingface_hub's users know it.
std::string NameForClients(const std::string& typed, const hub::RemoteName& remote) {
  if (remote.repository.empty()) return "";
  if (remote.Text() != typed && typed.find('/') == std::string::npos) return typed;  // a listed name
  return remote.repository + (remote.selector.empty() ? "" : ":" + remote.selector);
}

}  // namespace

bool IsRemote(const std::string& model) {
  const auto settings = hub::SettingsFrom(hub::ProcessEnvironment);
  if (!settings.ok()) return false;
  const auto remote = RemoteModel(model, *settings);
  return remote.ok() && *remote;
}

Result<std::optional<hub::RemoteName>> RemoteModel(const std::string& model, const hub::Settings& settings) {
  if (IsLocal(model)) return std::optional<hub::RemoteName>();
  TACTUS_ASSIGN_OR_RETURN(auto remote, hub::ParseRemoteName(model, settings.endpoint));
  if (remote) return remote;
  const hub::ListedModel* listed =
      hub::ChooseListed(hub::ListedModels(), model, AvailableMemoryBytes(),
                        [&settings](const hub::RemoteName& name) { return hub::FindCached(name, settings).ok(); });
  if (listed != nullptr) return std::optional(listed->remote);
  TACTUS_RETURN_IF_ERROR(Meant(model));
  return remote;
}

Result<hub::Fetched> FetchModel(const hub::RemoteName& name, const hub::Settings& settings, bool update,
                                StartLog* log) {
  DownloadProgress progress(name.Text(), log);
  hub::FetchOptions options;
  options.update = update;
  options.events.progress = [&progress](const hub::Progress& p) { progress.Show(p); };
  options.events.note = [log](std::string_view text) { log->Line(text); };
  options.before_weights = [update, log](const std::string& folder) {
    const auto description = compute::DescribeModel(folder + "/config.json");
    if (description.ok() || !update) return description.status();
    log->Line("warning: Tactus cannot load this model: " + description.status().message());
    return Status();
  };
  auto fetched = hub::Fetch(name, settings, SystemClock(), options);
  progress.End(fetched.ok() ? fetched->downloaded_bytes : 0);
  return fetched;
}

Status FetchModels(EngineOptions* options, StartLog* log) {
  for (std::string* model : {&options->model, &options->draft_model}) {
    if (IsLocal(*model)) continue;
    TACTUS_ASSIGN_OR_RETURN(const hub::Settings settings, hub::SettingsFrom(hub::ProcessEnvironment));
    TACTUS_ASSIGN_OR_RETURN(const auto remote, RemoteModel(*model, settings));
    if (!remote) continue;  // ResolveModel reports it
    TACTUS_ASSIGN_OR_RETURN(const hub::Fetched fetched, FetchModel(*remote, settings, false, log));
    const std::string name = NameForClients(*model, *remote);
    if (model == &options->model && options->served_model_name.empty() && !name.empty())
      options->served_model_name = {name};
    *model = fetched.path;
  }
  return Status();
}

Result<std::string> LocalModel(const std::string& model) {
  EngineOptions options;
  options.model = model;
  StartLog log(false);
  TACTUS_RETURN_IF_ERROR(FetchModels(&options, &log));
  return compute::ResolveModel(options.model);
}

}  // namespace tactus::cli
