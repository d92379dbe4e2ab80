#include "compute/weights/gguf_split.h"

#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/printable.h"

namespace tactus::compute {
namespace {

constexpr int64_t kMostParts = 99999;  // names have five digits

// The place of a file in a split model: split.no and split.count, or by a file's name.
struct Part {
  int64_t index = 0, count = 1;  // index from 0
};

std::string PartSuffix(const Part& part) {
  return fmt::format("-{:05}-of-{:05}.gguf", part.index + 1, part.count);
}

std::optional<Part> PartOfName(const std::string& path) {
  static const size_t kSuffix = PartSuffix({}).size();
  if (path.size() <= kSuffix) return std::nullopt;
  const std::string suffix = path.substr(path.size() - kSuffix);
  Part part;
  for (const auto& [at, number] : {std::pair(1, &part.index), std::pair(10, &part.count)}) {
    const std::string digits = suffix.substr(static_cast<size_t>(at), 5);
    if (digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
    *number = std::stoll(digits);
  }
  --part.index;
  if (part.index < 0 || part.index >= part.count || suffix != PartSuffix(part)) return std::nullopt;
  return part;
}

Result<Part> PartOfMetadata(const GgufFile& file) {
  GgufFields fields(file);
  Part part;
  part.index = fields.Int("split.no").value_or(0);
  part.count = std::max<int64_t>(fields.Int("split.count").value_or(1), 1);
  TACTUS_RETURN_IF_ERROR(fields.status());
  if (part.count > kMostParts || part.index < 0 || part.index >= part.count) {
    return DataLoss(fmt::format("{}: split.no {} and split.count {} name no part of a file of at most {} parts",
                                file.path, part.index, part.count, kMostParts));
  }
  return part;
}

Status TakeTensors(GgufFile from, GgufFile* to) {
  for (auto& [name, tensor] : from.tensors) {
    const auto [at, added] = to->tensors.emplace(name, std::move(tensor));
    if (!added) {
      return DataLoss(from.path + ": tensor '" + Printable(name) + "' is also in " + at->second.file);
    }
  }
  return Status();
}

// Adds the part that follows `first`'s path with `expected` in its name.
Status AddPart(const std::string& path, const Part& expected, GgufModel* model) {
  const std::string& first = model->gguf.path;
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  if (file.status().code() == StatusCode::kNotFound) {
    return NotFound(
        fmt::format("{} is missing: {} has {} parts, and the download is incomplete", path, first, expected.count));
  }
  TACTUS_RETURN_IF_ERROR(file.status());
  TACTUS_ASSIGN_OR_RETURN(GgufFile gguf, ParseGguf((*file)->bytes(), path));
  TACTUS_ASSIGN_OR_RETURN(const Part part, PartOfMetadata(gguf));
  if (part.index != expected.index || part.count != expected.count) {
    return DataLoss(fmt::format("{} says that it is part {} of {}, by its name it is part {} of {}", path,
                                part.index + 1, part.count, expected.index + 1, expected.count));
  }
  model->files.push_back(std::move(*file));
  return TakeTensors(std::move(gguf), &model->gguf);
}

Status AddLaterParts(int64_t count, GgufModel* model) {
  const std::string path = model->gguf.path;
  const Part first = {0, count};
  const std::string prefix = path.substr(0, path.size() - PartSuffix(first).size());
  for (int64_t i = 1; i < count; ++i) {
    const Part part = {i, count};
    TACTUS_RETURN_IF_ERROR(AddPart(prefix + PartSuffix(part), part, model));
  }
  GgufFields fields(model->gguf);
  const auto have = static_cast<int64_t>(model->gguf.tensors.size());
  const int64_t stated = fields.Int("split.tensors.count").value_or(have);
  TACTUS_RETURN_IF_ERROR(fields.status());
  if (stated != have) {
    return DataLoss(
        fmt::format("{}: its {} parts have {} tensors, split.tensors.count is {}", path, count, have, stated));
  }
  return Status();
}

}  // namespace

Result<GgufModel> OpenGguf(std::shared_ptr<const MappedFile> file) {
  const std::string path = file->path();
  GgufModel model;
  TACTUS_ASSIGN_OR_RETURN(model.gguf, ParseGguf(file->bytes(), path));
  TACTUS_ASSIGN_OR_RETURN(const Part part, PartOfMetadata(model.gguf));
  model.files.push_back(std::move(file));
  if (part.count == 1) return model;
  const std::optional<Part> named = PartOfName(path);
  if (!named || named->index != part.index || named->count != part.count) {
    return InvalidArgument(fmt::format("{} is part {} of {} of a model; the parts are found by their names, and this "
                                       "one's must end in {}",
                                       path, part.index + 1, part.count, PartSuffix(part)),
                           "model");
  }
  if (part.index > 0) {
    const std::string first = path.substr(0, path.size() - PartSuffix(part).size()) + PartSuffix({0, part.count});
    return InvalidArgument(
        fmt::format("{} is part {} of {} of a model: give the first, {}", path, part.index + 1, part.count, first),
        "model");
  }
  TACTUS_RETURN_IF_ERROR(AddLaterParts(part.count, &model));
  return model;
}

bool IsLaterGgufPart(const std::string& path) {
  const std::optional<Part> part = PartOfName(path);
  return part && part->index > 0;
}

std::string GgufModelName(const std::string& path) {
  const std::optional<Part> part = PartOfName(path);
  const std::filesystem::path whole = part ? path.substr(0, path.size() - PartSuffix(*part).size()) : path;
  return part ? whole.filename().string() : whole.stem().string();
}

}  // namespace tactus::compute
