#include "hub/fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/sha256.h"
#include "hub/cache.h"
#include "hub/choose_files.h"
#include "hub/file_names.h"
#include "hub/repository.h"
#include "hub/transfers.h"

namespace tactus::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kUrlDigits = 8;

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

const RepositoryFile* FindFile(const std::vector<RepositoryFile>& files, const std::string& path) {
  const auto it = std::find_if(files.begin(), files.end(), [&path](const auto& f) { return f.path == path; });
  return it == files.end() ? nullptr : &*it;
}

bool HasTokenizer(const ModelFiles& model) {
  return std::any_of(model.texts.begin(), model.texts.end(), [](const std::string& text) {
    return text == "tokenizer.json" || text == "tokenizer.model" || text == "vocab.json" || text == "vocab.txt" ||
           text == "tekken.json" || text.ends_with(".tiktoken");
  });
}

Fetched FetchedFrom(const RepositoryFolder& folder, const std::string& commit, const ModelFiles& model) {
  Fetched fetched;
  fetched.commit = commit;
  fetched.path = model.load.empty() ? folder.Snapshot(commit) : folder.File(commit, model.load);
  std::error_code error;
  for (const auto* files : {&model.texts, &model.weights}) {
    for (const std::string& file : *files) {
      const auto bytes = static_cast<int64_t>(fs::file_size(folder.File(commit, file), error));
      if (!error) fetched.bytes += bytes;
    }
  }
  return fetched;
}

// A fetch from the hub.
class RepositoryFetch {
 public:
  RepositoryFetch(const RemoteName& name, Transfers& transfers, const FetchOptions& options)
      : name_(name), transfers_(transfers), options_(options), folder_(transfers.settings().cache, name.repository) {}

  Result<Fetched> Run() {
    TACTUS_ASSIGN_OR_RETURN(revision_, FindRevision(name_, transfers_));
    TACTUS_ASSIGN_OR_RETURN(ModelFiles model, ChooseFiles(revision_.files, name_.selector, name_.Text()));
    TACTUS_RETURN_IF_ERROR(Get(model.texts));
    TACTUS_RETURN_IF_ERROR(AddWeightsOfIndex(folder_, revision_.commit, &model));
    if (model.load.empty() && options_.before_weights)
      TACTUS_RETURN_IF_ERROR(options_.before_weights(folder_.Snapshot(revision_.commit)));
    TACTUS_RETURN_IF_ERROR(Get(model.weights));
    TACTUS_RETURN_IF_ERROR(folder_.SetReference(name_.revision, revision_.commit));
    Fetched fetched = FetchedFrom(folder_, revision_.commit, model);
    fetched.downloaded_bytes = downloaded_bytes_;
    return fetched;
  }

 private:
  // Downloads what the cache lacks of these files, and links all.
  Status Get(const std::vector<std::string>& paths) {
    std::vector<Download> downloads;
    std::vector<RepositoryFile> missing;
    std::set<std::string> hashes;  // two files of a repository may have the same content
    for (const std::string& path : paths) {
      if (IsThere(folder_.File(revision_.commit, path))) continue;
      const RepositoryFile* listed = FindFile(revision_.files, path);
      if (listed == nullptr)
        return NotFound(fmt::format("{} lacks {}, which its index names", name_.Text(), path), "model");
      RepositoryFile file = *listed;
      TACTUS_RETURN_IF_ERROR(CompleteFile(name_, revision_.commit, transfers_, &file));
      missing.push_back(file);
      if (IsThere(folder_.Blob(file.etag)) || !hashes.insert(file.etag).second) continue;
      downloads.push_back(DownloadOf(file));
      downloaded_bytes_ += file.bytes;
    }
    TACTUS_RETURN_IF_ERROR(DownloadAll(std::move(downloads), transfers_, options_.events));
    for (const RepositoryFile& file : missing)
      TACTUS_RETURN_IF_ERROR(folder_.Link(revision_.commit, file.path, file.etag));
    return Status();
  }

  Download DownloadOf(const RepositoryFile& file) const {
    Download download;
    download.what = "hf:" + name_.repository + "/" + file.path;
    download.url = ContentUrl(transfers_.settings(), name_.repository, revision_.commit, file.path);
    download.repository = name_.repository;
    download.path = folder_.Blob(file.etag);
    download.partial = folder_.Partial(file.etag);
    download.lock = folder_.Lock(file.etag);
    download.hash = file.etag;
    download.bytes = file.bytes;
    return download;
  }

  const RemoteName& name_;
  Transfers& transfers_;
  const FetchOptions& options_;
  const RepositoryFolder folder_;
  Revision revision_;
  int64_t downloaded_bytes_ = 0;
};

// The files of a URL: it, or all parts of its split file.
std::vector<std::string> UrlsOf(const std::string& url) {
  const std::string path = url.substr(0, url.find('?'));
  const auto split = SplitPartOf(path);
  if (!split) return {url};
  std::vector<std::string> urls;
  for (int part = 1; part <= split->parts; ++part) urls.push_back(NameOfPart(*split, part) + url.substr(path.size()));
  return urls;
}

// A name from the file's, so that `tactus models list` shows it, and from the URL, so that no two are the same.
std::string FolderOfUrl(const Settings& settings, const std::string& url) {
  const std::string file = FileOfUrl(url);
  const auto split = SplitPartOf(file);
  const std::string stem = split ? split->stem : file.substr(0, file.size() - 5);
  std::string digits;
  for (const uint8_t byte : Sha256(UrlsOf(url).front())) digits += fmt::format("{:02x}", byte);
  return settings.url_folder + "/" + stem + "-" + digits.substr(0, kUrlDigits);
}

Fetched FetchedFromUrl(const std::string& folder, const std::vector<std::string>& urls) {
  Fetched fetched;
  fetched.path = folder + "/" + FileOfUrl(urls.front());
  std::error_code error;
  for (const std::string& url : urls) {
    const auto bytes = static_cast<int64_t>(fs::file_size(folder + "/" + FileOfUrl(url), error));
    if (!error) fetched.bytes += bytes;
  }
  return fetched;
}

Result<Fetched> FetchUrl(const RemoteName& name, Transfers& transfers, const FetchOptions& options) {
  const std::string folder = FolderOfUrl(transfers.settings(), name.url);
  const std::vector<std::string> urls = UrlsOf(name.url);
  if (!name.sha256.empty() && urls.size() > 1)
    return InvalidArgument(name.url + ": one hash is given for a file in several parts; leave #sha256 out", "model");
  std::vector<Download> downloads;
  for (const std::string& url : urls) {
    Download download;
    download.what = FileOfUrl(url);
    download.url = url;
    download.path = folder + "/" + download.what;
    download.partial = download.path + ".tactus";
    download.lock = download.path + ".lock";
    download.hash = name.sha256;
    Request head;  // the first byte, whose answer has the size
    head.url = url;
    head.range = "0-0";
    const Answer answer = transfers.Ask(std::move(head));
    if (!answer.ok()) return FaultOf(answer, download.what, "", transfers.settings());
    download.bytes = answer.TotalBytes();
    downloads.push_back(std::move(download));
  }
  TACTUS_RETURN_IF_ERROR(DownloadAll(std::move(downloads), transfers, options.events));
  std::error_code error;
  for (const std::string& url : urls) fs::remove(folder + "/" + FileOfUrl(url) + ".lock", error);
  Fetched fetched = FetchedFromUrl(folder, urls);
  fetched.downloaded_bytes = fetched.bytes;
  return fetched;
}

Result<Fetched> FindUrl(const RemoteName& name, const Settings& settings) {
  const std::string folder = FolderOfUrl(settings, name.url);
  const std::vector<std::string> urls = UrlsOf(name.url);
  for (const std::string& url : urls) {
    if (!IsThere(folder + "/" + FileOfUrl(url)))
      return NotFound(name.url + " is not in " + settings.url_folder, "model");
  }
  return FetchedFromUrl(folder, urls);
}

}  // namespace

Result<Fetched> FindCached(const RemoteName& name, const Settings& settings) {
  if (name.repository.empty()) return FindUrl(name, settings);
  const RepositoryFolder folder(settings.cache, name.repository);
  const std::string commit = folder.CommitOf(name.revision);
  const std::vector<RepositoryFile> files = commit.empty() ? std::vector<RepositoryFile>() : folder.Files(commit);
  if (files.empty()) return NotFound(fmt::format("{} is not in the cache {}", name.Text(), settings.cache), "model");
  TACTUS_ASSIGN_OR_RETURN(ModelFiles model, ChooseFiles(files, name.selector, name.Text() + " in the cache"));
  TACTUS_RETURN_IF_ERROR(AddWeightsOfIndex(folder, commit, &model));
  const auto missing = std::find_if(model.weights.begin(), model.weights.end(),
                                    [&files](const std::string& path) { return FindFile(files, path) == nullptr; });
  if (missing != model.weights.end() || (model.load.empty() && !HasTokenizer(model))) {
    return NotFound(fmt::format("{} is not complete in the cache {}: {} is missing", name.Text(), settings.cache,
                                missing != model.weights.end() ? *missing : "the tokeniser"),
                    "model");
  }
  return FetchedFrom(folder, commit, model);
}

Result<Fetched> Fetch(const RemoteName& name, const Settings& settings, Clock& clock, const FetchOptions& options) {
  const Result<Fetched> cached = FindCached(name, settings);
  if (cached.ok() && (!options.update || settings.offline || name.repository.empty())) return cached;
  if (settings.offline) {
    return Status(cached.status().code(),
                  cached.status().message() + "; HF_HUB_OFFLINE forbids downloads: unset it, or give a path", "model");
  }
  Transfers transfers(settings, clock);
  Result<Fetched> fetched =
      name.repository.empty() ? FetchUrl(name, transfers, options) : RepositoryFetch(name, transfers, options).Run();
  if (fetched.ok() || !cached.ok() || fetched.status().code() != StatusCode::kUnavailable) return fetched;
  options.events.note("warning: the model in the cache is used as it is: " + fetched.status().message());
  return cached;
}

}  // namespace tactus::hub
