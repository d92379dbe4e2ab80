#include "engine/kv_store/block_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "base/unit_text.h"

namespace tactus::engine {
namespace {

constexpr int64_t kSegmentsOfLimit = 64;            // segments that fill the limit; eviction removes whole segments
constexpr int64_t kLeastBlocks = 16;                // that the limit must allow
constexpr int64_t kMostBlocks = int64_t{1} << 20;   // the index entry of a block takes some 100 bytes of memory
constexpr size_t kForgottenKeys = size_t{1} << 16;  // that are remembered as evicted
constexpr size_t kMostWarnings = 32;

std::string Size(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

BlockStore::BlockStore(std::unique_ptr<KvFolder> folder, const BlockStoreOptions& options)
    : folder_(std::move(folder)), options_(options), forgotten_(kForgottenKeys) {
  format_.identity = SipHash128(folder_->secret(), options_.identity.data(), options_.identity.size());
  format_.secret = folder_->secret();
  format_.block_bytes = options_.block_bytes;
}

Result<std::unique_ptr<BlockStore>> BlockStore::Open(std::unique_ptr<KvFolder> folder, const BlockStoreOptions& options,
                                                     const Say& say) {
  std::unique_ptr<BlockStore> store(new BlockStore(std::move(folder), options));
  const int64_t least = kLeastBlocks * store->BlockAndRecord() + kSegmentHeaderBytes;
  if (options.max_bytes < least) {
    return InvalidArgument(fmt::format("--kv-cache-dir-size {} is too small: {} blocks of {} need {} bytes",
                                       options.max_bytes, kLeastBlocks, Size(options.block_bytes), least),
                           "kv-cache-dir-size");
  }
  TACTUS_ASSIGN_OR_RETURN(store->subfolder_, store->folder_->Subfolder(options.identity));
  TACTUS_RETURN_IF_ERROR(store->Load(say));
  TACTUS_RETURN_IF_ERROR(store->SetLimit(say));
  const BlockStoreStats& s = store->stats_;
  const int64_t bytes = s.blocks * store->BlockAndRecord();
  say(fmt::format("KV cache folder {}: {} blocks of this model ({}); {} of {} used", store->folder_->path(), s.blocks,
                  Size(bytes), Size(s.bytes), Size(s.limit)));
  return store;
}

Status BlockStore::Load(const Say& say) {
  TACTUS_ASSIGN_OR_RETURN(const std::vector<KvFolder::SegmentFiles> files, folder_->Segments());
  const std::string ours = std::filesystem::path(subfolder_).filename().string();
  uint32_t newest_number = 0;
  for (const KvFolder::SegmentFiles& file : files) {
    Held held;
    held.stem = file.stem;
    held.bytes = file.bytes;
    held.used = held.noted = ++uses_;
    const SegmentId id = ++last_id_;
    if (file.subfolder == ours) {
      const std::string name = std::filesystem::path(file.stem).filename().string();
      const auto number = static_cast<uint32_t>(std::stoul(name));
      last_number_ = std::max(last_number_, number);
      std::vector<StoredBlock> blocks;
      int64_t damaged = 0;
      auto segment = Segment::Open(file.stem, format_, &blocks, &damaged);
      if (segment.status().code() == StatusCode::kNotFound) {
        RemoveSegment(file.stem);
        continue;
      }
      if (!segment.ok()) {
        say(fmt::format("warning: KV cache: {}; its blocks are lost and it is removed", segment.status().message()));
        ++stats_.damaged;
        RemoveSegment(file.stem);
        continue;
      }
      if (damaged > 0) {
        say(fmt::format("warning: KV cache: {} records of '{}.index' are damaged or have no block, and are skipped",
                        damaged, file.stem));
        stats_.damaged += damaged;
      }
      held.segment = std::move(*segment);
      held.bytes = held.segment->bytes();
      for (const StoredBlock& block : blocks) {
        held.keys.push_back(block.key);
        const auto [at, is_first] = index_.try_emplace(block.key, Place{id, block});
        if (is_first) continue;
        // The newer segment rewrote the block because the older one was damaged. Segments are loaded by last use, so
        // their numbers decide which is newer.
        const SegmentId other = at->second.segment;
        if (other == id || segments_.at(other).stem < held.stem) at->second = Place{id, block};
      }
      if (number > newest_number) {  // appending continues in the newest segment: numbers keep the order of writing
        newest_number = number;
        active_ = id;
      }
    }
    stats_.bytes += held.bytes;
    segments_.emplace(id, std::move(held));
  }
  stats_.blocks = static_cast<int64_t>(index_.size());
  return Status();
}

Status BlockStore::SetLimit(const Say& say) {
  stats_.limit = options_.max_bytes;
  if (const int64_t most = kMostBlocks * BlockAndRecord(); stats_.limit > most) {
    say(fmt::format("KV cache folder: at most {} blocks are kept, so {} of --kv-cache-dir-size {}", kMostBlocks,
                    Size(most), FormatBytes(options_.max_bytes)));
    stats_.limit = most;
  }
  const int64_t free = folder_->FreeBytes();
  const int64_t allowed = stats_.bytes + free / 2;
  if (free >= 0 && stats_.limit > allowed) {
    say(
        fmt::format("warning: KV cache folder: its disk has {} free, of which half is left free: it uses {} "
                    "instead of --kv-cache-dir-size {}",
                    Size(free), Size(allowed), FormatBytes(options_.max_bytes)));
    stats_.limit = allowed;
  }
  stats_.writing = stats_.limit >= kLeastBlocks * BlockAndRecord() + kSegmentHeaderBytes;
  if (!stats_.writing) say("warning: KV cache folder: too little room; no blocks are written");
  places_of_segment_ = static_cast<int32_t>(std::max<int64_t>(1, stats_.limit / kSegmentsOfLimit / BlockAndRecord()));
  // Reserve now, so that no lock is held while the table grows.
  index_.reserve(static_cast<size_t>(std::min(kMostBlocks, stats_.limit / BlockAndRecord())));
  if (stats_.bytes > stats_.limit) {
    const int64_t before = stats_.bytes;
    Remove(MakeRoom(0));
    say(fmt::format("KV cache folder: {} removed, to stay below {}", Size(before - stats_.bytes), Size(stats_.limit)));
  }
  return Status();
}

bool BlockStore::Has(const Hash128& key) const {
  std::lock_guard lock(mutex_);
  return index_.contains(key);
}

BlockStore::Match BlockStore::Find(std::span<const Hash128> keys) {
  Match match;
  std::lock_guard lock(mutex_);
  ++uses_;
  for (const Hash128& key : keys) {
    const auto found = index_.find(key);
    if (found == index_.end()) {
      match.end = Forgotten(key) == key.high ? CacheEnd::kEvicted : CacheEnd::kUnknown;
      return match;
    }
    ++match.blocks;
    segments_.at(found->second.segment).used = uses_;
  }
  match.end = CacheEnd::kPrompt;
  return match;
}

void BlockStore::NoteUses() {
  std::vector<std::pair<uint64_t, std::shared_ptr<Segment>>> used;
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, held] : segments_) {
      if (held.segment != nullptr && held.noted != held.used) used.emplace_back(held.used, held.segment);
      held.noted = held.used;
    }
  }
  std::sort(used.begin(), used.end());
  for (const auto& [when, segment] : used) segment->Touch();
}

bool BlockStore::Read(const Hash128& key, std::byte* to) {
  std::shared_ptr<Segment> segment;
  StoredBlock block;
  {
    std::lock_guard lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return false;
    block = found->second.block;
    segment = segments_.at(found->second.segment).segment;
  }
  const bool sound = segment->Read(block, to);
  std::lock_guard lock(mutex_);
  if (sound) {
    ++stats_.read;
    return true;
  }
  const auto found = index_.find(key);
  if (found == index_.end() || segments_.at(found->second.segment).segment != segment) return false;  // evicted since
  index_.erase(found);
  --stats_.blocks;
  ++stats_.damaged;
  Warn(fmt::format("KV cache: '{}.blocks' is damaged at byte {}: the block there is skipped", segment->stem(),
                   block.place * options_.block_bytes));
  return false;
}

bool BlockStore::Append(const Hash128& key, const std::byte* bytes) {
  std::vector<Held> victims;
  {
    std::lock_guard lock(mutex_);
    if (!stats_.writing) return false;
    if (index_.contains(key)) return true;
    if (active_ != kNone && segments_.at(active_).segment->size() >= places_of_segment_) active_ = kNone;
    victims = MakeRoom(BlockAndRecord() + (active_ == kNone ? kSegmentHeaderBytes : 0));
  }
  Remove(std::move(victims));
  const Status written = Write(key, bytes);
  if (written.ok()) return true;
  std::lock_guard lock(mutex_);
  stats_.writing = false;
  Warn(fmt::format("KV cache: {}; no more blocks are written", written.message()));
  return false;
}

// Only Append's thread changes active_, so that it may be read here without the lock.
Status BlockStore::Write(const Hash128& key, const std::byte* bytes) {
  std::shared_ptr<Segment> segment;
  if (active_ == kNone) {
    if (last_number_ >= 99'999'999) return Status(StatusCode::kResourceExhausted, "no more segments can be numbered");
    Held held;
    held.stem = fmt::format("{}/{:08}", subfolder_, ++last_number_);
    TACTUS_ASSIGN_OR_RETURN(held.segment, Segment::Create(held.stem, format_));
    held.bytes = held.segment->bytes();
    segment = held.segment;
    std::lock_guard lock(mutex_);
    stats_.bytes += held.bytes;
    segments_.emplace(active_ = ++last_id_, std::move(held));
  } else {
    std::lock_guard lock(mutex_);
    segment = segments_.at(active_).segment;
  }
  TACTUS_ASSIGN_OR_RETURN(const StoredBlock stored, segment->Append(key, bytes));
  std::lock_guard lock(mutex_);
  Held& held = segments_.at(active_);
  held.keys.push_back(key);
  held.used = ++uses_;
  held.bytes += BlockAndRecord();
  stats_.bytes += BlockAndRecord();
  index_.emplace(key, Place{active_, stored});
  ++stats_.blocks;
  ++stats_.written;
  return Status();
}

// Removes the least recently used segments from the tables until there is room for `bytes` more. The caller removes
// their files.
std::vector<BlockStore::Held> BlockStore::MakeRoom(int64_t bytes) {
  std::vector<Held> victims;
  while (stats_.bytes + bytes > stats_.limit && !segments_.empty()) {
    const auto oldest = std::min_element(segments_.begin(), segments_.end(), [this](const auto& a, const auto& b) {
      const bool a_last = a.first == active_, b_last = b.first == active_;
      return a_last != b_last ? b_last : a.second.used < b.second.used;
    });
    for (const Hash128& key : oldest->second.keys) {
      const auto found = index_.find(key);
      if (found == index_.end() || found->second.segment != oldest->first) continue;
      index_.erase(found);
      Forgotten(key) = key.high;
      --stats_.blocks;
      ++stats_.evicted;
    }
    stats_.bytes -= oldest->second.bytes;
    if (active_ == oldest->first) active_ = kNone;
    victims.push_back(std::move(oldest->second));
    segments_.erase(oldest);
  }
  return victims;
}

void BlockStore::Remove(std::vector<Held> victims) {
  for (const Held& victim : victims) {
    if (RemoveSegment(victim.stem)) continue;
    std::lock_guard lock(mutex_);
    Warn(fmt::format("KV cache: '{}' cannot be removed; the folder exceeds --kv-cache-dir-size", victim.stem));
  }
}

void BlockStore::Warn(std::string line) {
  if (warnings_.size() < kMostWarnings) warnings_.push_back(std::move(line));
}

BlockStoreStats BlockStore::Stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

std::vector<std::string> BlockStore::TakeWarnings() {
  std::lock_guard lock(mutex_);
  return std::exchange(warnings_, {});
}

}  // namespace tactus::engine
