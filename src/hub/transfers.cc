#include "hub/transfers.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/printable.h"
#include "hub/file_names.h"
#include "hub/size_text.h"
#include "tactus/version.h"

namespace tactus::hub {
namespace {

constexpr long kConnectSeconds = 15, kMostRedirects = 5;
constexpr size_t kMostHeaderBytes = 256 << 10;  // of one response

std::string_view WithoutSpaces(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

int64_t NumberAt(std::string_view text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && number >= 0 ? number : -1;
}

// "https://host:port" of a URL. Paths and queries may carry signatures and stay out of messages.
std::string HostOf(std::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return std::string(url);
  const size_t end = url.find_first_of("/?#", scheme + 3);
  const std::string_view host = url.substr(0, end);
  const size_t user = host.rfind('@');
  return user == std::string_view::npos ? std::string(host)
                                        : std::string(url.substr(0, scheme + 3)) + std::string(host.substr(user + 1));
}

void InitCurl() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  TACTUS_CHECK(code == CURLE_OK);
}

bool IsCertificateError(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_ISSUER_ERROR;
}

}  // namespace

std::string Answer::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "";
}

int64_t Answer::TotalBytes() const {
  if (const std::string range = Header("content-range"); !range.empty()) {
    const size_t slash = range.find('/');
    return slash == std::string::npos ? -1 : NumberAt(std::string_view(range).substr(slash + 1));
  }
  return status == 206 ? -1 : NumberAt(Header("content-length"));
}

int64_t Answer::FirstByte() const {
  const std::string range = Header("content-range");  // bytes 0-1023/4096
  const size_t space = range.find(' ');
  return space == std::string::npos ? 0 : NumberAt(std::string_view(range).substr(space + 1));
}

std::optional<DurationNs> Patience::Next(const Answer& answer, bool expired) {
  const bool again =
      expired || answer.status == 408 || answer.status == 425 || answer.status == 429 || answer.status >= 500;
  if (answer.certificate || (answer.error.empty() && !again)) return std::nullopt;
  if (++failures_ >= settings_->tries) return std::nullopt;
  if (const int64_t seconds = NumberAt(answer.Header("retry-after")); again && seconds >= 0) {
    if (seconds > settings_->longest_wait_ns / kSecond) return std::nullopt;
    return seconds * kSecond;
  }
  return std::min(settings_->first_wait_ns << std::min(failures_ - 1, 20), settings_->longest_wait_ns);
}

struct Transfers::Running {
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  Request request;
  Answer answer;
  size_t header_bytes = 0;
  char error[CURL_ERROR_SIZE] = "";

  ~Running() {
    curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
  }
  void Add(const std::string& header) { headers = curl_slist_append(headers, header.c_str()); }

  static size_t OnHeader(char* data, size_t, size_t size, void* self_pointer) {
    auto* self = static_cast<Running*>(self_pointer);
    const std::string_view line = WithoutSpaces({data, size});
    if (line.starts_with("HTTP/")) {  // another response: a redirect, or 100 Continue before it
      self->answer.headers.clear();
      self->header_bytes = 0;
      const size_t space = line.find(' ');
      const int64_t status = space == std::string_view::npos ? -1 : NumberAt(line.substr(space + 1));
      self->answer.status = static_cast<int>(std::clamp<int64_t>(status, 0, 999));
      const char* url = nullptr;
      curl_easy_getinfo(self->easy, CURLINFO_EFFECTIVE_URL, &url);
      self->answer.host = HostOf(url == nullptr ? self->request.url : url);
      return size;
    }
    self->header_bytes += size;
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && self->header_bytes <= kMostHeaderBytes)
      self->answer.headers.emplace_back(Lower(line.substr(0, colon)), WithoutSpaces(line.substr(colon + 1)));
    return size;
  }

  static size_t OnBody(char* data, size_t, size_t size, void* self_pointer) {
    auto* self = static_cast<Running*>(self_pointer);
    if (!self->answer.ok() || !self->request.on_bytes) return size;  // the text of an error
    if (self->request.on_bytes(self->answer, {data, size})) return size;
    self->answer.stopped = true;
    return 0;
  }
};

Transfers::Transfers(const Settings& settings, Clock& clock) : settings_(settings), clock_(clock) {
  InitCurl();
  multi_ = curl_multi_init();
  TACTUS_CHECK(multi_ != nullptr);
}

Transfers::~Transfers() {
  StopAll();
  curl_multi_cleanup(multi_);
}

size_t Transfers::running() const {
  return running_.size();
}

void Transfers::StopAll() {
  for (const auto& running : running_) curl_multi_remove_handle(multi_, running->easy);
  running_.clear();
}

void Transfers::Start(Request request) {
  auto running = std::make_unique<Running>();
  Running* r = running.get();
  r->request = std::move(request);
  r->easy = curl_easy_init();
  TACTUS_CHECK(r->easy != nullptr);
  const auto set = [r](CURLoption option, auto value) {
    TACTUS_CHECK(curl_easy_setopt(r->easy, option, value) == CURLE_OK);
  };
  // A redirect may lead from http to https, never back.
  const char* redirects = r->request.url.starts_with("https:") ? "https" : "http,https";
  set(CURLOPT_URL, r->request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, redirects);
  set(CURLOPT_FOLLOWLOCATION, r->request.head ? 0L : 1L);
  set(CURLOPT_MAXREDIRS, kMostRedirects);
  set(CURLOPT_NOBODY, r->request.head ? 1L : 0L);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));  // a connection for each request
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(std::max<int64_t>(settings_.stall_ns / kSecond, 1)));
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  set(CURLOPT_ERRORBUFFER, r->error);
  set(CURLOPT_HEADERFUNCTION, &Running::OnHeader);
  set(CURLOPT_HEADERDATA, static_cast<void*>(r));
  set(CURLOPT_WRITEFUNCTION, &Running::OnBody);
  set(CURLOPT_WRITEDATA, static_cast<void*>(r));
  set(CURLOPT_PRIVATE, static_cast<void*>(r));
  set(CURLOPT_USERAGENT, fmt::format("tactus/{}", Version()).c_str());
  if (!settings_.certificates.empty()) set(CURLOPT_CAINFO, settings_.certificates.c_str());
  if (!r->request.range.empty()) set(CURLOPT_RANGE, r->request.range.c_str());
  r->Add("Accept: " + r->request.accept);
  r->Add("Accept-Encoding: identity");  // hashes and ranges are those of the file
  if (!r->request.if_range.empty()) r->Add("If-Range: " + r->request.if_range);
  // libcurl sends this header to the first host only.
  if (r->request.token && !settings_.token.empty()) r->Add("Authorization: Bearer " + settings_.token);
  set(CURLOPT_HTTPHEADER, r->headers);
  r->answer.host = HostOf(r->request.url);
  TACTUS_CHECK(curl_multi_add_handle(multi_, r->easy) == CURLM_OK);
  running_.push_back(std::move(running));
}

void Transfers::Finish(Running* done, int code) {
  const auto it = std::find_if(running_.begin(), running_.end(), [done](const auto& r) { return r.get() == done; });
  TACTUS_CHECK(it != running_.end());
  const std::unique_ptr<Running> running = std::move(*it);
  running_.erase(it);
  curl_multi_remove_handle(multi_, running->easy);
  const auto curl = static_cast<CURLcode>(code);
  if (curl != CURLE_OK && !running->answer.stopped) {
    running->answer.error = running->error[0] != 0 ? running->error : curl_easy_strerror(curl);
    running->answer.certificate = IsCertificateError(curl);
    // The server's address is not reached: a status of a redirect before it says nothing.
    if (curl == CURLE_COULDNT_CONNECT || curl == CURLE_COULDNT_RESOLVE_HOST) running->answer.status = 0;
  }
  if (running->request.on_end) running->request.on_end(running->answer);
}

void Transfers::Work(DurationNs most_ns) {
  int active = 0;
  curl_multi_perform(multi_, &active);
  if (active == static_cast<int>(running_.size()))  // nothing has ended
    curl_multi_poll(multi_, nullptr, 0, static_cast<int>(std::max<int64_t>(most_ns / kMillisecond, 1)), nullptr);
  curl_multi_perform(multi_, &active);
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    char* running = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &running);
    Finish(reinterpret_cast<Running*>(running), message->data.result);
  }
}

Answer Transfers::Ask(Request request, std::string* body, size_t most_bytes) {
  Patience patience(settings_);
  while (true) {
    std::optional<Answer> end;
    if (body != nullptr) body->clear();
    Request next = request;
    next.on_bytes = [body, most_bytes](const Answer&, std::string_view bytes) {
      if (body == nullptr || body->size() + bytes.size() > most_bytes) return false;
      body->append(bytes);
      return true;
    };
    next.on_end = [&end](const Answer& answer) { end = answer; };
    Start(std::move(next));
    while (!end) Work(kSecond / 10);
    if (end->stopped && body != nullptr) {
      end->error = "an answer above " + SizeText(static_cast<int64_t>(most_bytes));
      return *end;
    }
    const auto wait = patience.Next(*end);
    if (!wait) return *end;
    const TimeNs due = clock_.NowNs() + *wait;
    while (clock_.NowNs() < due) Work(std::min<DurationNs>(due - clock_.NowNs(), kSecond / 10));
  }
}

}  // namespace tactus::hub
