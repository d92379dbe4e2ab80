// Names of models that are not on this machine: a repository of the hub, or the URL of a file. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tactus/status.h"

namespace tactus::hub {

struct RemoteName {
  std::string repository;         // "org/name"; empty: `url` is the model
  std::string revision = "main";  // branch, tag or commit
  std::string selector;           // a file or a quantisation of the repository; empty: its only model
  std::string url, sha256;        // of a file; sha256 may be empty

  // As the commands accept it: "hf:org/name@revision:selector", or the URL.
  std::string Text() const;
};

// hf:org/name[@revision][:selector], hf.co/org/name[:selector], the URL of a page or file of the hub at `endpoint` (or
// huggingface.co), any other URL of a .gguf file. Nothing: the text has none of these forms. kInvalidArgument: it has,
// with a fault that the message names.
Result<std::optional<RemoteName>> ParseRemoteName(std::string_view text, const std::string& endpoint);

}  // namespace tactus::hub
