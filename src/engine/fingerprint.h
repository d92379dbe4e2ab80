// Whose K, V and tokens are equal bit for bit: engines with one fingerprint. What moves between engines
// (docs/migration.md) or is kept for the next one (docs/prompt_cache.md) states it.
#pragma once

#include <string>

#include "base/backend.h"
#include "tactus/engine.h"
#include "tactus/status.h"

namespace tactus::engine {

// Of weights, program, kernels and arithmetic, for people too.
std::string Fingerprint(const ModelInfo& model, const EngineOptions& options, const BackendInfo& computes);

// Of the files at `path`: their sizes, and some of their bytes from beginning, middle and end. So two models of one
// shape are told apart, and no gigabytes are read.
std::string WeightsDigest(const std::string& path);

// What K and V depend on that are kept for the next start on this machine; lines. Beyond the fingerprint, by which the
// engines of a fleet know each other, it has the program's version and a digest of its file, so that no other build
// takes them, and when the weights' files were written, so that no others take them that differ where WeightsDigest
// does not look. kDataLoss: the program's file cannot be read.
Result<std::string> StoredKvIdentity(const ModelInfo& model, const EngineOptions& options, const BackendInfo& computes);

}  // namespace tactus::engine
