// Whose K, V and tokens are equal bit for bit: engines with one fingerprint. What moves between engines
// (docs/migration.md) or is kept for the next one (docs/prompt_cache.md) states it.
#pragma once

#include <string>

#include "base/backend.h"
#include "tactus/engine.h"

namespace tactus {

// Of weights, program, kernels and arithmetic, for people too.
std::string Fingerprint(const ModelInfo& model, const EngineOptions& options, const BackendInfo& computes);

// Of the files at `path`: their sizes, and some of their bytes from beginning, middle and end. So two models of one
// shape are told apart, and nobody waits for gigabytes.
std::string WeightsDigest(const std::string& path);

}  // namespace tactus
