// Identity of computed K, V and tokens: engines with equal fingerprints compute them equal bit for bit. Data that moves
// between engines (docs/concepts/migration.md) or is stored for the next one (docs/concepts/prompt_cache.md) carries
// it.
#pragma once

#include <string>

#include "base/backend.h"
#include "tactus/engine.h"
#include "tactus/status.h"

namespace tactus::engine {

// Names weights, program, kernels and arithmetic; readable by people.
std::string Fingerprint(const ModelInfo& model, const EngineOptions& options, const BackendInfo& computes);

// Digest of the sizes of the files at `path`, and of samples from the beginning, middle and end of each: distinguishes
// models of one shape without reading gigabytes.
std::string WeightsDigest(const std::string& path);

// Everything that stored K and V depend on, for the next start on this machine; lines. Beyond the fingerprint, by which
// the engines of a fleet recognise each other, it has the program's version and a digest of its file, so that no other
// build uses the stored KV, and the times at which the weight files were written, so that weights that differ outside
// WeightsDigest's samples do not use it either. kDataLoss: the program's file cannot be read.
Result<std::string> StoredKvIdentity(const ModelInfo& model, const EngineOptions& options, const BackendInfo& computes);

}  // namespace tactus::engine
