// Packed weights on disk between starts (--weight-cache): one file per model and form, mapped as it is by the next
// start.
//
// Nothing in the file is believed. What its head must say follows from the model's files and the form that is asked
// for: which files (path, size, time, hash of their heads), which matrices, in which form, where. A file is used if its
// head is that text byte for byte, its size is that size, and its data have the checksum that it names; so a stale,
// truncated or damaged file is never used, and no number in it is ever an offset. The loading thread; checksums use all
// of its pool.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "compute/weights/mapped_file.h"
#include "compute/weights/pack_weights.h"
#include "compute/weights/tensor_file.h"

namespace tactus::compute {

struct WeightCacheKey {
  std::string path;  // of the cache file: the same for all versions of a model's files, so that a stale one is replaced
  std::string head;  // what it must begin with
  int64_t bytes = 0;  // of packed memory
};

// `folder` need not exist. kInvalidArgument: the model's files cannot be looked at any more.
Result<WeightCacheKey> MakeWeightCacheKey(const std::string& folder, const std::string& model_path,
                                          const TensorSet& tensors, const PackPlan& plan);

struct CachedWeights {
  std::shared_ptr<const MappedFile> file;
  const std::byte* memory = nullptr;  // [key.bytes], page-aligned, in the mapping
};
// kNotFound: there is none. Anything else: there is one that cannot be used, and why.
Result<CachedWeights> OpenWeightCache(const WeightCacheKey& key, ThreadPool& pool);

// Writes beside the place and renames, so that another process sees a whole file or none.
Status WriteWeightCache(const WeightCacheKey& key, const std::byte* memory, ThreadPool& pool);

}  // namespace tactus::compute
