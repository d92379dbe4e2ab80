// Segments of --kv-cache-dir: with any file contents, opening and reading end, and a block is read as it was written or
// not at all. The input states where the files of a valid segment are overwritten, and where they are cut.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/kv_store/segment.h"

namespace {

constexpr int64_t kBlockBytes = 48;
constexpr int kBlocks = 4;

tactus::Hash128 Key(int i) {
  return {static_cast<uint64_t>(i) + 1, 7};
}
std::string Bytes(int i) {
  return std::string(kBlockBytes, static_cast<char>('a' + i));
}
std::string Whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tactus;
  static const std::string stem =
      (std::filesystem::temp_directory_path() / ("kv_segment_fuzz_" + std::to_string(getpid()))).string();
  const engine::SegmentFormat format{{1, 2}, {3, 4}, kBlockBytes};
  static const auto sound = [&] {
    auto segment = engine::Segment::Create(stem, format);
    if (!segment.ok()) std::abort();
    for (int i = 0; i < kBlocks; ++i) {
      if (!(*segment)->Append(Key(i), reinterpret_cast<const std::byte*>(Bytes(i).data())).ok()) std::abort();
    }
    return std::pair(Whole(stem + ".index"), Whole(stem + ".blocks"));
  }();
  // Pieces of four bytes: file and offset, length, value; some cut the file.
  std::string index = sound.first, blocks = sound.second;
  for (; size >= 4; data += 4, size -= 4) {
    std::string& file = (data[0] & 1) != 0 ? index : blocks;
    const size_t at = (static_cast<size_t>(data[0]) << 7 | data[1]) % (file.size() + 16);
    if (data[2] >= 0xf0) {
      file.resize(at);
    } else {
      if (file.size() < at + data[2] % 64) file.resize(at + data[2] % 64);
      std::memset(file.data() + at, data[3], data[2] % 64);
    }
    if (file.empty()) file.push_back('\0');
  }
  std::ofstream(stem + ".index", std::ios::binary) << index;
  std::ofstream(stem + ".blocks", std::ios::binary) << blocks;
  std::vector<engine::StoredBlock> found;
  int64_t dropped = 0;
  const auto segment = engine::Segment::Open(stem, format, &found, &dropped);
  if (!segment.ok()) return 0;
  std::string bytes(kBlockBytes, '\0');
  for (const engine::StoredBlock& block : found) {
    if (block.place < 0 || block.place >= (*segment)->size()) std::abort();
    if (!(*segment)->Read(block, reinterpret_cast<std::byte*>(bytes.data()))) continue;
    const auto i = static_cast<int>(block.key.low) - 1;
    if (i < 0 || i >= kBlocks || bytes != Bytes(i)) std::abort();
  }
  // New blocks are appended after the valid part.
  const auto stored = (*segment)->Append(Key(9), reinterpret_cast<const std::byte*>(Bytes(9).data()));
  if (!stored.ok() || !(*segment)->Read(*stored, reinterpret_cast<std::byte*>(bytes.data())) || bytes != Bytes(9))
    std::abort();
  return 0;
}
