// The sources and the folders of downloaded models, from the environment variables that other tools of the hub read
// too (docs/how-to/models.md). Pure functions of the environment and of the token's file.
#pragma once

#include <functional>
#include <string>

#include "base/units.h"
#include "tactus/status.h"

namespace tactus::hub {

struct Settings {
  std::string endpoint = "https://huggingface.co";  // without '/' at the end
  std::string cache;                                // folder of models--org--name
  std::string url_folder;                           // models of plain URLs, a folder each
  std::string token;                                // empty: none
  std::string token_source;                         // for messages: the variable or file that has the token
  std::string certificates;                         // file of trusted certificates; empty: the system's
  bool offline = false;
  int connections = 8;                        // requests at a time
  int tries = 6;                              // in a row without any progress
  DurationNs first_wait_ns = kSecond / 2;     // before the second try; doubles with each further one
  DurationNs longest_wait_ns = 60 * kSecond;  // a server that asks for more is reported instead
  DurationNs stall_ns = 30 * kSecond;         // without a byte, after which a request counts as cut
};

// The value of a variable; empty: not set.
using Environment = std::function<std::string(const char*)>;
std::string ProcessEnvironment(const char* name);

// kInvalidArgument: a value that can never work, named with its variable or file.
Result<Settings> SettingsFrom(const Environment& environment);

}  // namespace tactus::hub
