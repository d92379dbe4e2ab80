#include "cli/bench/load_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/json.h"
#include "base/json_text.h"
#include "base/one_line.h"
#include "base/rng.h"

namespace tactus::cli {
namespace {

// Common one-token English words: a text prompt of n words has about n tokens under most vocabularies.
constexpr const char* kWords[] = {
    "time",   "year",    "people", "way",     "day",      "man",     "thing",      "woman",  "life",  "child", "world",
    "school", "state",   "family", "student", "group",    "country", "problem",    "hand",   "part",  "place", "case",
    "week",   "company", "system", "program", "question", "work",    "government", "number", "night", "point"};
constexpr int64_t kTraceBlockTokens = 512;  // tokens per block of a trace's prefix_hash_ids
constexpr int64_t kErrorBytes = 1 << 20;    // limit for the body of an error answer

// Random streams: shared text must not depend on the request that contains it.
enum Stream : uint64_t { kOwn = uint64_t{1} << 40, kPrefix = uint64_t{2} << 40, kBlock = uint64_t{3} << 40 };

int64_t TokenAt(const LoadOptions& o, const sim::WorkloadRequest& r, int64_t index, int64_t position) {
  uint64_t stream = kOwn + static_cast<uint64_t>(index), at = static_cast<uint64_t>(position);
  const int64_t block = position / kTraceBlockTokens;
  // A trace's blocks are shared by id, including the last, partial one (its id stands for the same text).
  if (block < static_cast<int64_t>(r.block_ids.size())) {
    stream = kBlock + static_cast<uint64_t>(r.block_ids[static_cast<size_t>(block)]);
    at = static_cast<uint64_t>(position % kTraceBlockTokens);
  } else if (r.conversation >= 0) {
    stream = kPrefix + static_cast<uint64_t>(r.conversation);  // every turn repeats the conversation so far
  } else if (r.prefix_id >= 0 && position < r.shared_tokens) {
    stream = kPrefix + static_cast<uint64_t>(r.prefix_id);
  }
  const int64_t low = o.vocab_size / 10;
  return low + static_cast<int64_t>(UniformAt(o.seed, stream, at) * static_cast<double>(o.vocab_size - low));
}

std::string TextPrompt(const LoadOptions& o, const sim::WorkloadRequest& r, int64_t index) {
  std::string text;
  for (int64_t i = 0; i < r.prompt_tokens; ++i) {
    if (i > 0) text += ' ';
    text += kWords[static_cast<size_t>(TokenAt(o, r, index, i)) % std::size(kWords)];
  }
  return text;
}

// An answer may have any shape: a field of the wrong type counts as missing.
const Json& Field(const Json& object, const char* key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}
int64_t CountOr(const Json& value, int64_t otherwise) {
  constexpr int64_t kMost = int64_t{1} << 40;  // tokens of an answer
  if (!value.is_number_integer()) return otherwise;
  return value >= 0 && value <= kMost ? value.get<int64_t>() : otherwise;
}
std::string TextOr(const Json& value, const std::string& otherwise) {
  return value.is_string() ? value.get<std::string>() : otherwise;
}
// The message of an OpenAI error object, or the error itself if it is a plain string.
std::string ErrorText(const Json& error, const std::string& otherwise) {
  return TextOr(error, TextOr(Field(error, "message"), otherwise));
}

// The reason under which a failed request is counted: the server's message, cut to one printable line.
std::string ReasonOf(const http::HttpResponse& response) {
  const Result<Json> body = json_text::ParseJson(response.body);
  return fmt::format("HTTP {}: {}", response.status,
                     ErrorText(Field(body.ok() ? *body : Json(), "error"), response.body));
}

void CountReason(std::string reason, std::map<std::string, int64_t>* reasons) {
  constexpr size_t kMostBytes = 200, kMostReasons = 100;
  reason = OneLine(reason, kMostBytes);
  // Each message may contain a different number, so the map is bounded.
  if (reasons->size() >= kMostReasons && !reasons->contains(reason)) reason = "other reasons";
  ++(*reasons)[reason];
}

Json SloField(const Slo& slo, const std::string& slo_class) {
  Json field = Json::object();
  if (slo.ttft_ns > 0) field["ttft_ms"] = static_cast<double>(slo.ttft_ns) * 1e-6;
  if (slo.tbt_ns > 0) field["tbt_ms"] = static_cast<double>(slo.tbt_ns) * 1e-6;
  if (slo.jct_ns > 0) field["jct_ms"] = static_cast<double>(slo.jct_ns) * 1e-6;
  if (!slo_class.empty()) field["class"] = slo_class;
  return field;
}

class Load;

class StreamHandler final : public http::ResponseHandler {
 public:
  StreamHandler(Load* load, int64_t index) : load_(load), index_(index) {}
  void OnEvent(std::string_view data, TimeNs received_ns) override;
  void OnDone(const Status& status, const http::HttpResponse& response, TimeNs received_ns) override;

 private:
  Load* load_;
  int64_t index_;
  std::string error_;  // an error object within the stream
  bool saw_done_ = false;
};

// One load run. Everything happens on the thread of client_.Run().
class Load {
 public:
  Load(const LoadOptions& options, const std::vector<sim::WorkloadRequest>& workload, Clock& clock, http::Url url,
       const std::function<bool(const LoadProgress&)>& progress)
      : options_(options),
        workload_(workload),
        clock_(clock),
        path_(url.path),
        progress_(progress),
        client_(std::move(url), {.timeout_ns = options.timeout_ns, .max_response_bytes = kErrorBytes}, clock) {
    if (path_ == "/" || path_ == "/v1" || path_ == "/v1/") {
      path_ = options.endpoint == "chat" ? "/v1/chat/completions" : "/v1/completions";
    }
    records_.resize(workload.size());
    next_turn_.assign(workload.size(), -1);
    std::vector<std::pair<int64_t, int64_t>> last_of;  // conversation -> last index seen
    for (size_t i = 0; i < workload.size(); ++i) {
      if (workload[i].conversation < 0) continue;
      auto it =
          std::find_if(last_of.begin(), last_of.end(), [&](auto& p) { return p.first == workload[i].conversation; });
      if (it == last_of.end())
        last_of.emplace_back(workload[i].conversation, static_cast<int64_t>(i));
      else {
        if (workload[i].arrival_ns < 0) next_turn_[static_cast<size_t>(it->second)] = static_cast<int64_t>(i);
        it->second = static_cast<int64_t>(i);
      }
    }
  }

  LoadResult Run() {
    start_ns_ = clock_.NowNs();
    Tick();
    if (options_.warmup > 0) WarmUp();
    if (!stopping_) SendAll();
    LoadResult result;
    result.interrupted = stopping_;
    result.failures = std::move(failures_);
    result.rejections = std::move(rejections_);
    result.warmup_error = std::move(warmup_error_);
    TimeNs first = kNever, last = 0;
    for (RequestRecord& r : records_) {
      if (r.outcome == RequestRecord::Outcome::kPending) continue;  // not sent, or cancelled by the client
      first = std::min(first, r.sent_ns);
      last = std::max(last, r.done_ns);
      result.records.push_back(std::move(r));
    }
    result.duration_ns = result.records.empty() ? 0 : last - first;
    return result;
  }

  void Event(int64_t index, std::string_view data, TimeNs now, std::string* error, bool* saw_done) {
    if (data == "[DONE]") {
      *saw_done = true;
      return;
    }
    const Result<Json> read = json_text::ParseJson(data);
    if (!read.ok() || !read->is_object()) return;
    const Json& chunk = *read;
    if (const Json& failed = Field(chunk, "error"); !failed.is_null()) {
      *error = ErrorText(failed, std::string(data));
      return;
    }
    if (warming_) return;
    RequestRecord& r = records_[static_cast<size_t>(index)];
    if (const Json& usage = Field(chunk, "usage"); usage.is_object()) {
      r.prompt_tokens = CountOr(Field(usage, "prompt_tokens"), r.prompt_tokens);
      r.output_tokens = CountOr(Field(usage, "completion_tokens"), r.output_tokens);
      r.cached_tokens = CountOr(Field(Field(usage, "prompt_tokens_details"), "cached_tokens"), r.cached_tokens);
    }
    bool has_text = false;
    if (const Json& choices = Field(chunk, "choices"); choices.is_array()) {
      for (const Json& choice : choices) {
        has_text |= !TextOr(Field(choice, "text"), TextOr(Field(Field(choice, "delta"), "content"), "")).empty();
      }
    }
    if (!has_text) return;
    ++tokens_;
    ++r.output_tokens;  // replaced by the server's count when usage arrives
    if (r.first_token_ns == 0)
      r.first_token_ns = now;
    else
      r.gaps_ns.push_back(now - r.last_token_ns);
    r.last_token_ns = now;
  }

  void Done(int64_t index, const Status& status, const http::HttpResponse& response, const std::string& stream_error,
            bool saw_done, TimeNs now) {
    --in_flight_;
    std::string error;
    RequestRecord::Outcome outcome = RequestRecord::Outcome::kFailed;
    if (!status.ok())
      error = status.message();
    else if (response.status == 503 || response.status == 429)
      outcome = RequestRecord::Outcome::kRejected, error = ReasonOf(response);
    else if (response.status != 200)
      error = ReasonOf(response);
    else if (!stream_error.empty())
      error = stream_error;
    else if (!saw_done)
      error = "the stream ended without [DONE]";
    else
      outcome = RequestRecord::Outcome::kCompleted;
    if (stopping_ && !status.ok()) return;  // cancelled by the client: neither completed nor failed
    if (warming_) {
      if (warmup_error_.empty()) warmup_error_ = error;
      if (in_flight_ == 0) client_.Stop();
      return;
    }
    if (!error.empty())
      CountReason(std::move(error), outcome == RequestRecord::Outcome::kRejected ? &rejections_ : &failures_);
    RequestRecord& r = records_[static_cast<size_t>(index)];
    r.outcome = outcome;
    r.done_ns = now;
    ++done_;
    failed_ += outcome == RequestRecord::Outcome::kFailed;
    rejected_ += outcome == RequestRecord::Outcome::kRejected;
    if (stopping_) return;
    if (const int64_t next = next_turn_[static_cast<size_t>(index)]; next >= 0) {
      if (options_.concurrency > 0)
        ready_.push_front(next);
      else
        Send(next, now);
    }
    if (options_.concurrency > 0 && !ready_.empty()) SendNextReady();
    if (done_ == static_cast<int64_t>(workload_.size())) client_.Stop();
  }

 private:
  bool FollowsAnother(int64_t i) const {
    const sim::WorkloadRequest& r = workload_[static_cast<size_t>(i)];
    return r.conversation >= 0 && r.arrival_ns < 0;
  }

  void SendAll() {
    start_ns_ = clock_.NowNs();
    const auto count = static_cast<int64_t>(workload_.size());
    for (int64_t i = 0; i < count; ++i) {
      if (FollowsAnother(i)) continue;
      if (options_.concurrency > 0) {
        ready_.push_back(i);
        continue;
      }
      const TimeNs due = start_ns_ + workload_[static_cast<size_t>(i)].arrival_ns;
      client_.At(due, [this, i, due] { Send(i, due); });
    }
    for (int64_t i = 0; i < options_.concurrency && !ready_.empty(); ++i) SendNextReady();
    client_.Run();
  }

  void SendNextReady() {
    const int64_t i = ready_.front();
    ready_.pop_front();
    Send(i, clock_.NowNs());
  }

  void Send(int64_t index, TimeNs due_ns) {
    if (stopping_) return;
    http::ClientRequest request;
    request.path = path_;
    request.headers.emplace_back("Content-Type", "application/json");
    if (!options_.api_key.empty()) request.headers.emplace_back("Authorization", "Bearer " + options_.api_key);
    const sim::WorkloadRequest& w = workload_[static_cast<size_t>(index) % workload_.size()];
    request.body = RequestBody(options_, w, warming_ ? -1 - index : index);
    if (!warming_) {
      RequestRecord& r = records_[static_cast<size_t>(index)];
      r.due_ns = due_ns;
      r.sent_ns = clock_.NowNs();
      r.prompt_tokens = w.prompt_tokens;
      r.slo = w.slo;
      r.slo_class = w.slo_class;
      ++sent_;
    }
    ++in_flight_;
    calls_.push_back(client_.Send(std::move(request), std::make_shared<StreamHandler>(this, index)));
  }

  void WarmUp() {
    warming_ = true;
    for (int64_t i = 0; i < options_.warmup; ++i) Send(i, clock_.NowNs());
    client_.Run();
    calls_.clear();
    warming_ = false;
  }

  // Runs until the load ends, through the warm-up too.

  void Tick() {
    const LoadProgress p{
        static_cast<int64_t>(workload_.size()), sent_, done_, failed_, rejected_, tokens_, clock_.NowNs() - start_ns_};
    if (!progress_(p) && !stopping_) {
      stopping_ = true;
      for (const auto id : calls_) client_.Cancel(id);
      client_.Stop();
      return;
    }
    if (done_ < p.total) client_.At(clock_.NowNs() + 200 * kMillisecond, [this] { Tick(); });
  }

  const LoadOptions& options_;
  const std::vector<sim::WorkloadRequest>& workload_;
  Clock& clock_;
  std::string path_;
  const std::function<bool(const LoadProgress&)>& progress_;
  http::Client client_;
  std::vector<RequestRecord> records_;
  std::vector<int64_t> next_turn_;  // index of the conversation's next turn, sent after this one ends; -1: none
  std::deque<int64_t> ready_;       // closed loop: ready but not sent
  std::vector<http::Client::CallId> calls_;
  std::map<std::string, int64_t> failures_, rejections_;
  std::string warmup_error_;
  TimeNs start_ns_ = 0;
  int64_t sent_ = 0, done_ = 0, failed_ = 0, rejected_ = 0, tokens_ = 0, in_flight_ = 0;
  bool warming_ = false, stopping_ = false;
};

void StreamHandler::OnEvent(std::string_view data, TimeNs received_ns) {
  load_->Event(index_, data, received_ns, &error_, &saw_done_);
}

void StreamHandler::OnDone(const Status& status, const http::HttpResponse& response, TimeNs received_ns) {
  load_->Done(index_, status, response, error_, saw_done_, received_ns);
}

}  // namespace

std::string RequestBody(const LoadOptions& o, const sim::WorkloadRequest& r, int64_t index) {
  Json body = {{"model", o.model}, {"max_tokens", r.output_tokens}, {"temperature", o.temperature},
               {"stream", true},   {"ignore_eos", o.ignore_eos},    {"stream_options", {{"include_usage", true}}}};
  if (o.endpoint == "chat") {
    body["messages"] = Json::array({{{"role", "user"}, {"content", TextPrompt(o, r, index)}}});
  } else if (o.prompt_format == "text") {
    body["prompt"] = TextPrompt(o, r, index);
  } else {
    Json ids = Json::array();
    for (int64_t i = 0; i < r.prompt_tokens; ++i) ids.push_back(TokenAt(o, r, index, i));
    body["prompt"] = std::move(ids);
  }
  if (r.priority != 0) body["priority"] = r.priority;
  if (!r.client.empty()) body["user"] = r.client;
  if (o.send_slo) body["slo"] = SloField(r.slo.any() ? r.slo : o.slo, r.slo_class.empty() ? o.slo_class : r.slo_class);
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);  // a model name may be invalid UTF-8
}

std::string ReasonsText(const std::map<std::string, int64_t>& reasons, const std::string& what, int64_t of) {
  constexpr size_t kMostShown = 3;
  std::vector<std::pair<int64_t, std::string>> ordered;
  int64_t sum = 0;
  for (const auto& [reason, count] : reasons) {
    ordered.emplace_back(-count, reason);
    sum += count;
  }
  if (sum == 0) return "";
  std::sort(ordered.begin(), ordered.end());
  std::string text = fmt::format("{} of {} requests {}", sum, of, what);
  for (size_t i = 0; i < std::min(ordered.size(), kMostShown); ++i) {
    text += fmt::format("{}{} x {}", i == 0 ? ": " : "; ", -ordered[i].first, ordered[i].second);
  }
  if (ordered.size() > kMostShown) text += fmt::format("; and {} other reasons", ordered.size() - kMostShown);
  return text;
}

Result<LoadResult> RunLoad(const LoadOptions& options, const std::vector<sim::WorkloadRequest>& workload, Clock& clock,
                           const std::function<bool(const LoadProgress&)>& progress) {
  TACTUS_ASSIGN_OR_RETURN(http::Url url, http::ParseUrl(options.url));
  Load load(options, workload, clock, std::move(url), progress);
  return load.Run();
}

}  // namespace tactus::cli
