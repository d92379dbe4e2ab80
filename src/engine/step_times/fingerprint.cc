#include "engine/step_times/fingerprint.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/hash.h"
#include "tactus/version.h"

namespace tactus::engine {
namespace {

namespace fs = std::filesystem;

// Sorted by path.
std::vector<fs::path> WeightFiles(const std::string& path) {
  std::error_code ec;
  if (!fs::is_directory(path, ec)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path, ec)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".safetensors" || entry.path().filename() == "config.json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Digest of the files' modification times, to the nanosecond.
std::string TimesDigest(const std::vector<fs::path>& files) {
  Hash128 digest{0x74696d65, 0x73};
  std::error_code ec;
  for (const fs::path& file : files) {
    const auto at = fs::last_write_time(file, ec).time_since_epoch().count();
    digest = SipHash128(digest, &at, sizeof(at));
  }
  return fmt::format("{:016x}", digest.low);
}

// Digest of the whole file that contains this code: the program, or a library that a program has loaded.
Result<std::string> ProgramDigest() {
  static const char kHere = 0;
  Dl_info info{};
  link_map* loaded = nullptr;
  const bool is_library = dladdr1(&kHere, &info, reinterpret_cast<void**>(&loaded), RTLD_DL_LINKMAP) != 0 &&
                          loaded != nullptr && loaded->l_name[0] != '\0';
  const std::string path = is_library ? loaded->l_name : "/proc/self/exe";
  std::ifstream in(path, std::ios::binary);
  std::vector<char> piece(size_t{1} << 20);
  Hash128 digest{0x70726f67, 0x72616d};
  int64_t size = 0;
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0) {
    digest = SipHash128(digest, piece.data(), static_cast<size_t>(in.gcount()));
    size += in.gcount();
  }
  if (size == 0 || in.bad())
    return DataLoss(fmt::format("the program's file '{}' cannot be read: {}", path, std::strerror(errno)));
  return fmt::format("{:016x}", digest.low);
}

}  // namespace

std::string Fingerprint(const ModelInfo& model, const EngineOptions& options, const BackendInfo& computes) {
  return fmt::format("{}, weights {} ({}{}), {}, {}, {}", model.architecture, WeightsDigest(model.path),
                     model.weight_format, options.load_format == "dummy" ? fmt::format(", seed {}", options.seed) : "",
                     computes.kernels, computes.arithmetic, BuildInfo());
}

std::string WeightsDigest(const std::string& path) {
  constexpr int64_t kSample = 64 << 10;
  std::error_code ec;
  Hash128 digest{0x77656967, 0x68747300};
  for (const fs::path& file : WeightFiles(path)) {
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

Result<std::string> StoredKvIdentity(const ModelInfo& model, const EngineOptions& options,
                                     const BackendInfo& computes) {
  static const Result<std::string> program = ProgramDigest();
  if (!program.ok()) return program.status();
  return fmt::format("model {}\n{}\nKV {}\nprogram {} {}\nweights written {}", model.name,
                     Fingerprint(model, options, computes), computes.kv_dtype, Version(), *program,
                     TimesDigest(WeightFiles(model.path)));
}

}  // namespace tactus::engine
