#include "engine/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/hash.h"
#include "tactus/version.h"

namespace tactus {

std::string Fingerprint(const ModelInfo& model, const EngineOptions& options, const BackendInfo& computes) {
  return fmt::format("{}, weights {} ({}{}), {}, {}, {}", model.architecture, WeightsDigest(model.path),
                     model.weight_format, options.load_format == "dummy" ? fmt::format(", seed {}", options.seed) : "",
                     computes.kernels, computes.arithmetic, BuildInfo());
}

std::string WeightsDigest(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int64_t kSample = 64 << 10;
  std::vector<fs::path> files;
  std::error_code ec;
  if (fs::is_directory(path, ec)) {
    for (const auto& entry : fs::directory_iterator(path, ec)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".safetensors" || entry.path().filename() == "config.json") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  } else {
    files.emplace_back(path);
  }
  Hash128 digest{0x77656967, 0x68747300};
  for (const fs::path& file : files) {
    const auto size = static_cast<int64_t>(fs::file_size(file, ec));
    digest = SipHash128(digest, &size, sizeof(size));
    std::ifstream in(file, std::ios::binary);
    for (const int64_t at : {int64_t{0}, size / 2, std::max<int64_t>(0, size - kSample)}) {
      std::string sample(static_cast<size_t>(kSample), '\0');
      in.clear();
      in.seekg(at);
      in.read(sample.data(), kSample);
      digest = SipHash128(digest, sample.data(), static_cast<size_t>(in.gcount()));
    }
  }
  return fmt::format("{:016x}", digest.low);
}

}  // namespace tactus
