// Chooses the files of a repository that are one model: a safetensors model with its configuration and tokeniser, or
// one GGUF file with all of its parts. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tactus/status.h"

namespace tactus::hub {

struct RepositoryFile {
  std::string path;
  int64_t bytes = -1;  // -1: not known
  std::string etag;    // sha256 of a large file, git's hash of a small one; empty: not known
};

struct ModelFiles {
  std::string format;                // "safetensors" or "gguf"
  std::vector<std::string> texts;    // configuration, tokeniser, templates, index
  std::vector<std::string> weights;  // empty for safetensors with an index, which names them
  std::string index;                 // model.safetensors.index.json, or empty
  std::string load;                  // the file to load; empty: the folder
};

// `selector` is a path, a file's name, a quantisation ("Q4_K_M", without regard to case) or "safetensors"; empty if the
// repository has one model. `model` is its name in messages. kNotFound: nothing matches; kInvalidArgument: several
// match. Both list the models that are there.
Result<ModelFiles> ChooseFiles(const std::vector<RepositoryFile>& files, const std::string& selector,
                               const std::string& model);

// The files that model.safetensors.index.json names, sorted. kDataLoss: not such a text, or an unsafe path.
Result<std::vector<std::string>> WeightsOfIndex(const std::string& text, const std::string& path);

// Each model of a list of files, with the selector that chooses it; empty if it is the only one.
struct ListedChoice {
  std::string selector;
  ModelFiles files;
};
std::vector<ListedChoice> AllModels(const std::vector<RepositoryFile>& files);

}  // namespace tactus::hub
