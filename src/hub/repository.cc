#include "hub/repository.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/json.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "hub/file_names.h"

namespace tactus::hub {
namespace {

constexpr size_t kMostListingBytes = size_t{64} << 20;
constexpr int kMostMoves = 5;

std::string TextIn(const SortedJson& object, const char* name) {
  const auto it = object.is_object() ? object.find(name) : object.end();
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

int64_t SizeIn(const SortedJson& object, const char* name) {
  const auto it = object.is_object() ? object.find(name) : object.end();
  return it != object.end() && it->is_number_integer() && it->get<int64_t>() >= 0 ? it->get<int64_t>() : -1;
}

// A file of the listing: large files have a hash of their content, small ones that of git.
RepositoryFile FileOf(const SortedJson& sibling) {
  RepositoryFile file{TextIn(sibling, "rfilename"), SizeIn(sibling, "size"), TextIn(sibling, "blobId")};
  if (const auto lfs = sibling.find("lfs"); lfs != sibling.end() && lfs->is_object()) {
    file.etag = TextIn(*lfs, "sha256");
    if (const int64_t bytes = SizeIn(*lfs, "size"); bytes >= 0) file.bytes = bytes;
  }
  return file;
}

Result<Revision> ParseRevision(const std::string& body, const std::string& what) {
  const auto json = json_text::ParseSortedJson(body);
  Revision revision;
  if (json.ok()) revision.commit = TextIn(*json, "sha");
  const auto siblings = json.ok() && json->is_object() ? json->find("siblings") : SortedJson::const_iterator();
  if (!json.ok() || !IsHex(revision.commit, 40) || siblings == json->end() || !siblings->is_array())
    return DataLoss(what + ": the answer is not the hub's list of a model's files; is HF_ENDPOINT right?");
  for (const SortedJson& sibling : *siblings) {
    if (!sibling.is_object()) continue;
    RepositoryFile file = FileOf(sibling);
    if (!IsSafePath(file.path))
      return DataLoss(fmt::format("{} lists a file with an unsafe path: '{}'", what, Printable(file.path)));
    revision.files.push_back(std::move(file));
  }
  return revision;
}

// A hash becomes the name of a file.
Status CheckFile(const RepositoryFile& file, const std::string& what) {
  if (file.bytes >= 0 && (IsHex(file.etag, 64) || IsHex(file.etag, 40))) return Status();
  return DataLoss(what + ": the hub gives no size or no hash of the content; is HF_ENDPOINT right?");
}

std::string TokenText(const Settings& settings) {
  return settings.token.empty() ? "no token is set" : "the token in " + settings.token_source + " was sent";
}

Status AccessFault(const Answer& answer, const std::string& what, const std::string& repository,
                   const Settings& settings) {
  const std::string code = answer.Header("x-error-code");
  const std::string page = settings.endpoint + "/" + repository;
  if (code == "GatedRepo") {
    return Status(StatusCode::kUnauthenticated,
                  fmt::format("{} is gated (status {}), and {}. Accept its terms at {}, then set HF_TOKEN to a token "
                              "of that account ({}/settings/tokens)",
                              what, answer.status, TokenText(settings), page, settings.endpoint));
  }
  if (settings.token.empty()) {
    return Status(
        StatusCode::kUnauthenticated,
        fmt::format("{} does not exist or is private (status {}), and no token is set. Check the name, or set "
                    "HF_TOKEN",
                    what, answer.status));
  }
  return Status(
      StatusCode::kUnauthenticated,
      fmt::format("{}: the token in {} is refused (status {}{}). Renew it, give it access to {}, or unset it "
                  "for a public model",
                  what, settings.token_source, answer.status, code.empty() ? "" : ", " + Printable(code), repository));
}

Status NotThere(const Answer& answer, const std::string& what, const std::string& repository) {
  if (answer.Header("x-error-code") == "RevisionNotFound") {
    return NotFound(fmt::format("{}: {} has no such branch, tag or commit (status 404)", what, repository), "model");
  }
  return NotFound(fmt::format("{} does not exist at {} (status 404): check the spelling", what, answer.host), "model");
}

}  // namespace

Status FaultOf(const Answer& answer, const std::string& what, const std::string& repository, const Settings& settings) {
  if (answer.certificate) {
    return Status(
        StatusCode::kUnavailable,
        fmt::format("{}: the certificate of {} is not trusted: {}. SSL_CERT_FILE names a file of trusted ones", what,
                    answer.host, answer.error));
  }
  if (!answer.error.empty()) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("{}: {} {}: {}. Check the connection and the proxy (https_proxy); HF_ENDPOINT names "
                              "another hub, HF_HUB_OFFLINE=1 uses what is in the cache",
                              what, answer.host, answer.status == 0 ? "cannot be reached" : "broke the answer off",
                              Printable(answer.error)));
  }
  if ((answer.status == 401 || answer.status == 403) && !repository.empty())
    return AccessFault(answer, what, repository, settings);
  if (answer.status == 401 || answer.status == 403) {
    return Status(StatusCode::kUnauthenticated,
                  fmt::format("{}: {} denies access (status {})", what, answer.host, answer.status));
  }
  if (answer.status == 404 || answer.status == 410) return NotThere(answer, what, repository);
  if (answer.status == 429) {
    const std::string after = answer.Header("retry-after");
    return Status(StatusCode::kTooManyRequests,
                  fmt::format("{}: {} limits requests (status 429). Try again {}{}", what, answer.host,
                              after.empty() ? "later" : "in " + Printable(after) + " s",
                              settings.token.empty() ? ", or set HF_TOKEN: accounts have higher limits" : ""));
  }
  if (answer.status >= 500) {
    return Status(StatusCode::kUnavailable, fmt::format("{}: {} has a fault (status {}) at each of {} tries. Try again "
                                                        "later: what has arrived is kept",
                                                        what, answer.host, answer.status, settings.tries));
  }
  return DataLoss(
      fmt::format("{}: {} answered with status {}, which is not expected", what, answer.host, answer.status));
}

std::string ContentUrl(const Settings& settings, const std::string& repository, const std::string& commit,
                       const std::string& path) {
  return fmt::format("{}/{}/resolve/{}/{}", settings.endpoint, repository, commit, UrlQuoted(path, true));
}

Result<Revision> FindRevision(const RemoteName& name, Transfers& transfers) {
  const Settings& settings = transfers.settings();
  const std::string what = "hf:" + name.repository + (name.revision == "main" ? "" : "@" + Printable(name.revision));
  Request request;
  request.url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", settings.endpoint, name.repository,
                            UrlQuoted(name.revision, false));
  request.token = true;
  request.accept = "application/json";
  std::string body;
  const Answer answer = transfers.Ask(std::move(request), &body, kMostListingBytes);
  if (!answer.ok()) return FaultOf(answer, what, name.repository, settings);
  return ParseRevision(body, what);
}

Status CompleteFile(const RemoteName& name, const std::string& commit, Transfers& transfers, RepositoryFile* file) {
  const Settings& settings = transfers.settings();
  const std::string what = "hf:" + name.repository + "/" + Printable(file->path);
  if (file->bytes >= 0 && !file->etag.empty()) return CheckFile(*file, what);
  std::string url = ContentUrl(settings, name.repository, commit, file->path);
  for (int moves = 0; moves < kMostMoves; ++moves) {
    Request request;
    request.url = url;
    request.token = true;
    request.head = true;
    const Answer answer = transfers.Ask(std::move(request));
    const bool moved = answer.error.empty() && answer.status >= 300 && answer.status < 400;
    const std::string target = answer.Header("location");
    std::string etag = answer.Header("x-linked-etag");
    // A renamed repository: the answer of its new place has the hash. A redirect to another host has it already.
    if (moved && etag.empty() && target.starts_with('/')) {
      url = answer.host + target;
      continue;
    }
    if (!answer.ok() && !moved) return FaultOf(answer, what, name.repository, settings);
    if (etag.empty()) etag = answer.Header("etag");
    if (etag.starts_with("W/")) etag.erase(0, 2);
    std::erase(etag, '"');
    const std::string size = answer.Header("x-linked-size");
    file->etag = etag;
    file->bytes = size.empty() ? (moved ? -1 : answer.TotalBytes()) : std::strtoll(size.c_str(), nullptr, 10);
    return CheckFile(*file, what);
  }
  return DataLoss(what + " is redirected again and again");
}

}  // namespace tactus::hub
