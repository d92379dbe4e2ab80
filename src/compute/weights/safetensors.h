// Reads safetensors files (format: an 8-byte little-endian header length, a JSON header, the data) and sharded sets of
// them through model.safetensors.index.json. Hostile input: lengths, offsets, dtypes and shapes are all checked.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "compute/weights/tensor_file.h"

namespace tactus::compute {

// Adds the file's tensors to `set`. `bytes` must outlive them. `path` is used in messages.
Status ParseSafetensors(std::span<const std::byte> bytes, const std::string& path, TensorSet* set);

// The weights of a Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json names.
// Refuses a missing shard, a tensor that its shard lacks, and a shard outside the folder. kNotFound: no weights.
Result<TensorSet> OpenSafetensorsFolder(const std::string& folder);

}  // namespace tactus::compute
