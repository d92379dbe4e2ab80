#include "hub/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "base/cache_folder.h"
#include "base/input_file.h"
#include "base/printable.h"

namespace tactus::hub {
namespace {

constexpr int64_t kMostTokenBytes = 64 << 10;

// The first of the variables that is set.
std::string FirstOf(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = environment(name); !value.empty()) return value;
  }
  return "";
}

bool IsOn(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

std::string WithHome(const std::string& path, const std::string& home) {
  return path == "~" || path.starts_with("~/") ? home + path.substr(1) : path;
}

std::string WithoutSpace(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

Status TakeToken(const Environment& environment, const std::string& hf_home, const std::string& home, Settings* s) {
  if (IsOn(environment("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return Status();
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (!s->token.empty()) break;
    s->token = WithoutSpace(environment(name));
    s->token_source = name;
  }
  if (s->token.empty()) {
    const std::string named = WithHome(environment("HF_TOKEN_PATH"), home);
    const std::string path = named.empty() ? hf_home + "/token" : named;
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) {
      s->token_source.clear();
      return Status();
    }
    TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(path, kMostTokenBytes));
    s->token = WithoutSpace(text);
    s->token_source = path;
  }
  const bool printable =
      std::all_of(s->token.begin(), s->token.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
  if (!printable)
    return InvalidArgument("the token in " + s->token_source + " has a character that no token has: write it again");
  return Status();
}

// Seconds; a value that is no number is an error.
Status TakeStallTime(const std::string& text, Settings* s) {
  if (text.empty()) return Status();
  char* end = nullptr;
  const long seconds = std::strtol(text.c_str(), &end, 10);
  if (*end != 0 || seconds < 1 || seconds > 86400) {
    return InvalidArgument(
        fmt::format("HF_HUB_DOWNLOAD_TIMEOUT is '{}': give whole seconds from 1 to 86400", Printable(text)));
  }
  s->stall_ns = seconds * kSecond;
  return Status();
}

}  // namespace

std::string ProcessEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<Settings> SettingsFrom(const Environment& environment) {
  Settings s;
  const std::string home = FirstOf(environment, {"HOME"});
  const std::string xdg = FirstOf(environment, {"XDG_CACHE_HOME"});
  std::string hf_home = WithHome(environment("HF_HOME"), home);
  if (hf_home.empty()) hf_home = (xdg.empty() ? (home.empty() ? "." : home) + "/.cache" : xdg) + "/huggingface";
  s.cache = WithHome(FirstOf(environment, {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}), home);
  if (s.cache.empty()) s.cache = hf_home + "/hub";
  s.url_folder = CacheFolder() + "/models";
  if (std::string endpoint = WithoutSpace(environment("HF_ENDPOINT")); !endpoint.empty()) {
    while (endpoint.ends_with('/')) endpoint.pop_back();
    if (!endpoint.starts_with("https://") && !endpoint.starts_with("http://")) {
      return InvalidArgument(
          fmt::format("HF_ENDPOINT is '{}': give a URL that begins with https://", Printable(endpoint)));
    }
    s.endpoint = endpoint;
  }
  s.offline = IsOn(FirstOf(environment, {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}));
  s.certificates = FirstOf(environment, {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"});
  TACTUS_RETURN_IF_ERROR(TakeStallTime(environment("HF_HUB_DOWNLOAD_TIMEOUT"), &s));
  TACTUS_RETURN_IF_ERROR(TakeToken(environment, hf_home, home, &s));
  return s;
}

}  // namespace tactus::hub
