#include "hub/remote_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/printable.h"
#include "hub/file_names.h"

namespace tactus::hub {
namespace {

using Parsed = Result<std::optional<RemoteName>>;

bool IsRepositoryPart(std::string_view part) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  return !part.empty() && part.size() <= 96 && std::all_of(part.begin(), part.end(), allowed) && part.front() != '.' &&
         part.front() != '-' && part.back() != '.' && part.back() != '-' && part.find("..") == std::string_view::npos &&
         part.find("--") == std::string_view::npos;
}

bool IsRevision(std::string_view text) {
  const auto allowed = [](unsigned char c) { return c > ' ' && c < 0x7f && c != '\\' && c != ':'; };
  return std::all_of(text.begin(), text.end(), allowed) && IsSafePath(text);
}

Status CheckParts(const RemoteName& name, std::string_view text) {
  const std::string shown = Printable(text);
  const size_t slash = name.repository.find('/');
  const std::string_view repository = name.repository;
  if (!IsRepositoryPart(repository.substr(0, slash)) ||
      (slash != std::string::npos && !IsRepositoryPart(repository.substr(slash + 1)))) {
    return InvalidArgument(
        fmt::format("'{}' names no repository: write hf:ORGANISATION/NAME, with letters, digits, '-', '_' and '.'",
                    shown),
        "model");
  }
  if (!IsRevision(name.revision))
    return InvalidArgument(fmt::format("'{}': after '@' a branch, tag or commit is expected", shown), "model");
  if (!name.selector.empty() && !IsSafePath(name.selector)) {
    return InvalidArgument(fmt::format("'{}': after ':' a file of the repository or a quantisation is expected", shown),
                           "model");
  }
  return Status();
}

// "org/name[@revision][:selector]"
Parsed OfRepository(std::string_view rest, std::string_view text) {
  RemoteName name;
  const size_t colon = rest.find(':');
  if (colon != std::string_view::npos) {
    name.selector = rest.substr(colon + 1);
    if (name.selector.empty())
      return InvalidArgument(
          fmt::format("'{}': after ':' nothing follows; name a quantisation such as Q4_K_M, or leave ':' out",
                      Printable(text)),
          "model");
    rest = rest.substr(0, colon);
  }
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    name.revision = rest.substr(at + 1);
    if (name.revision.empty())
      return InvalidArgument(
          fmt::format("'{}': after '@' nothing follows; name a branch, tag or commit, or leave '@' out",
                      Printable(text)),
          "model");
    rest = rest.substr(0, at);
  }
  name.repository = rest;
  TACTUS_RETURN_IF_ERROR(CheckParts(name, text));
  return std::optional(std::move(name));
}

// The path of a page of the hub: org/name[/(tree|blob|resolve)/revision[/file]].
Parsed OfPage(std::string_view path, std::string_view text) {
  path = path.substr(0, path.find_first_of("?#"));
  while (path.ends_with('/')) path.remove_suffix(1);
  std::vector<std::string> parts = {""};  // five at most; the last has the rest
  for (const char c : path) {
    if (c == '/' && parts.size() < 5) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (parts.size() < 3) return OfRepository(path, text);
  if (parts[2] != "tree" && parts[2] != "blob" && parts[2] != "resolve")
    return InvalidArgument(
        fmt::format("'{}' is no page of a model's repository; give hf:ORGANISATION/NAME", Printable(text)), "model");
  RemoteName name;
  name.repository = parts[0] + "/" + parts[1];
  if (parts.size() > 3) name.revision = parts[3];
  if (parts.size() > 4 && parts[2] != "tree") name.selector = parts[4];
  TACTUS_RETURN_IF_ERROR(CheckParts(name, text));
  return std::optional(std::move(name));
}

// Any URL: the file's name must be that of a GGUF file; "#sha256=..." has the expected hash.
Parsed OfUrl(std::string_view text) {
  RemoteName name;
  name.url = text.substr(0, text.find('#'));
  if (const size_t hash = text.find('#'); hash != std::string_view::npos) {
    const std::string_view fragment = text.substr(hash + 1);
    constexpr std::string_view kKey = "sha256=";
    if (!fragment.starts_with(kKey) || !IsHex(fragment.substr(kKey.size()), 64)) {
      return InvalidArgument(
          fmt::format("'{}': after '#' only sha256= with 64 hexadecimal digits is expected", Printable(text)), "model");
    }
    name.sha256 = Lower(fragment.substr(kKey.size()));
  }
  const std::string file = FileOfUrl(name.url);
  if (!Lower(file).ends_with(".gguf") || !IsSafePath(file)) {
    return InvalidArgument(
        fmt::format("'{}' is not the URL of a .gguf file; a repository of Hugging Face is hf:ORGANISATION/NAME",
                    Printable(text)),
        "model");
  }
  return std::optional(std::move(name));
}

}  // namespace

std::string RemoteName::Text() const {
  if (repository.empty()) return url;
  return "hf:" + repository + (revision == "main" ? "" : "@" + revision) + (selector.empty() ? "" : ":" + selector);
}

Result<std::optional<RemoteName>> ParseRemoteName(std::string_view text, const std::string& endpoint) {
  constexpr std::string_view kScheme = "hf:";
  if (text.starts_with(kScheme)) {
    std::string_view rest = text.substr(kScheme.size());
    while (rest.starts_with('/')) rest.remove_prefix(1);  // hf://
    return OfRepository(rest, text);
  }
  for (const std::string_view host :
       {std::string_view(endpoint), std::string_view("https://huggingface.co"), std::string_view("https://hf.co")}) {
    if (text.starts_with(host) && text.substr(host.size()).starts_with('/'))
      return OfPage(text.substr(host.size() + 1), text);
  }
  for (const std::string_view host : {"huggingface.co/", "hf.co/"}) {
    if (text.starts_with(host)) return OfRepository(text.substr(host.size()), text);
  }
  if (text.starts_with("https://") || text.starts_with("http://")) return OfUrl(text);
  return std::optional<RemoteName>();
}

}  // namespace tactus::hub
