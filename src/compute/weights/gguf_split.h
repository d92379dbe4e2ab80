// Opens a GGUF model that is one file, or several as llama-gguf-split makes them ("name-00001-of-00003.gguf"): the
// first has the metadata, all have tensors. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compute/weights/gguf.h"
#include "compute/weights/mapped_file.h"

namespace tactus::compute {

struct GgufModel {
  GgufFile gguf;                                         // of the first file, with the tensors of all
  std::vector<std::shared_ptr<const MappedFile>> files;  // keep the data of `gguf` alive
};

// `file`: the only file or the first part. kNotFound: a part is missing. kInvalidArgument: it is a later part, or its
// name is not a part's. kDataLoss: a file is damaged, or the parts are not of one model.
Result<GgufModel> OpenGguf(std::shared_ptr<const MappedFile> file);

// By its name alone: "name-00002-of-00003.gguf" and on. Listings leave such files out.
bool IsLaterGgufPart(const std::string& path);
// "name" of "name-00001-of-00003.gguf"; other names without their extension.
std::string GgufModelName(const std::string& path);

}  // namespace tactus::compute
