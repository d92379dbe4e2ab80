#include "cli/commands/sessions.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/cache_folder.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace tactus::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostSessionBytes = int64_t{256} << 20, kMostAttachedBytes = int64_t{4} << 20;
constexpr size_t kMostNameBytes = 100;
constexpr std::string_view kEnding = ".json";

std::string Folder() {
  return CacheFolder() + "/sessions";
}

}  // namespace

Result<std::string> SessionFile(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const bool plain = !name.empty() && name.size() <= kMostNameBytes && name[0] != '.' &&
                     std::all_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) > 0x20; });
  if (plain) return fmt::format("{}/{}{}", Folder(), name, kEnding);
  return InvalidArgument(
      fmt::format("'{}' is not a name of a session: 1 to {} characters without spaces, the first not "
                  "a dot; or give a path with a '/'",
                  Printable(name), kMostNameBytes),
      "session");
}

std::vector<std::string> SessionNames() {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(Folder(), error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == kEnding) names.push_back(at->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<Session> ReadSession(const std::string& file) {
  TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(file, kMostSessionBytes));
  const auto wrong = [&file](const std::string& why) {
    return DataLoss(fmt::format("{} is not a session of tactus run: {}", file, why));
  };
  const auto parsed = json_text::ParseJson(text);
  if (!parsed.ok()) return wrong(parsed.status().message());
  if (!parsed->is_object() || !parsed->contains("messages") || !(*parsed)["messages"].is_array())
    return wrong("it has no list of messages");
  Session session;
  for (const Json& message : (*parsed)["messages"]) {
    const std::string role = json_text::TextOf(message, "role");
    if (!message.is_object() || !message.contains("content") || !message["content"].is_string())
      return wrong("a message has no text");
    std::string content = message["content"].get<std::string>();
    if (role == "system" && session.messages.empty() && session.system.empty()) {
      session.system = std::move(content);
      continue;
    }
    const char* expected = session.messages.size() % 2 == 0 ? "user" : "assistant";
    if (role != expected) return wrong(fmt::format("'{}' where '{}' is due", Printable(role), expected));
    session.messages.push_back({role, std::move(content)});
  }
  if (session.messages.size() % 2 != 0) return wrong("the last message has no answer");
  return session;
}

Status WriteSession(const std::string& file, const Session& session) {
  Json messages = Json::array();
  if (!session.system.empty()) messages.push_back({{"role", "system"}, {"content", session.system}});
  for (const api::ChatMessage& m : session.messages) messages.push_back({{"role", m.role}, {"content", m.content}});
  const mode_t before = umask(0077);
  std::error_code error;  // an error shows in the write
  if (const fs::path folder = fs::path(file).parent_path(); !folder.empty()) fs::create_directories(folder, error);
  const Status written = ReplaceFile(file, json_text::JsonText({{"messages", messages}}, 1) + "\n", "session");
  umask(before);
  return written;
}

Result<std::string> FileForMessage(const std::string& path) {
  std::string file = path;
  if (const char* home = std::getenv("HOME"); home != nullptr && file.starts_with("~/")) file = home + file.substr(1);
  TACTUS_ASSIGN_OR_RETURN(std::string text, ReadInputFile(file, kMostAttachedBytes));
  if (!IsValidUtf8(text) || text.find('\0') != std::string::npos)
    return InvalidArgument(fmt::format("{} is not a text file in UTF-8; convert it, for example with iconv", path));
  if (!text.ends_with('\n')) text += '\n';
  return fmt::format("{}:\n\n{}\n", fs::path(file).filename().string(), text);
}

}  // namespace tactus::cli
