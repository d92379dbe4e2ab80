// Packed weights on disk between starts (--weight-cache): one file per model and form, which the next start maps
// directly.
//
// Nothing in the file is trusted. The expected head follows from the model's files and the requested form: which files
// (path, size, time, hash of their heads), which matrices, in which form, at which offsets. A file is used only if its
// head equals that text byte for byte, its size is the expected one, and its data match its checksum; so a stale,
// truncated or damaged file is never used, and no number in it is ever an offset. Runs on the loading thread; checksums
// use all of its pool.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "compute/packing/pack_weights.h"
#include "compute/weights/mapped_file.h"
#include "compute/weights/tensor_file.h"

namespace tactus::compute {

struct WeightCacheKey {
  std::string path;   // of the cache file; the same for all versions of a model's files, so that a new one replaces a
                      // stale one
  std::string head;   // the expected beginning of the file
  int64_t bytes = 0;  // of packed memory, in the file
};

// `folder` need not exist. kInvalidArgument: the model's files can no longer be read.
Result<WeightCacheKey> MakeWeightCacheKey(const std::string& folder, const std::string& model_path,
                                          const TensorSet& tensors, const PackPlan& plan);

struct CachedWeights {
  std::shared_ptr<const MappedFile> file;
  const std::byte* memory = nullptr;  // [key.bytes], page-aligned, in the mapping
};
// kNotFound: no file. Other codes: a file that cannot be used, with the reason.
Result<CachedWeights> OpenWeightCache(const WeightCacheKey& key, ThreadPool& pool);

// Writes a temporary file beside the target and renames it, so that other processes find a whole file or none.
Status WriteWeightCache(const WeightCacheKey& key, const std::byte* memory, ThreadPool& pool);

}  // namespace tactus::compute
