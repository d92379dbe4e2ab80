#include "engine/prompt_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <span>
#include <utility>

#include "base/thread_role.h"

namespace tactus::engine {
namespace {

constexpr DurationNs kLongestWaitNs = 5 * kSecond;  // that a request waits for its blocks
constexpr DurationNs kLongestWaitForRoomNs = 100 * kMillisecond;
constexpr DurationNs kBetweenNotesNs = kSecond;     // between records of block uses on the disk
constexpr DurationNs kLastWritesNs = 10 * kSecond;  // limit on writing the remaining blocks at the end

}  // namespace

Result<std::unique_ptr<PromptCache>> PromptCache::Open(std::unique_ptr<KvFolder> folder, int64_t max_bytes,
                                                       const PromptCacheParts& parts, const BlockStore::Say& say) {
  BlockStoreOptions store;
  store.block_bytes = parts.executor->kv_block_bytes();
  store.max_bytes = max_bytes;
  if (store.block_bytes == 0) {
    return InvalidArgument("--kv-cache-dir: this model's executor cannot export KV blocks; leave the option out",
                           "kv-cache-dir");
  }
  // Keys made with another secret are never looked up: their blocks are useless.
  constexpr std::string_view kUse = "identity";
  const Hash128 keys = SipHash128(parts.replica->secret, kUse.data(), kUse.size());
  store.identity = fmt::format("{}\nblocks of {} tokens, {} bytes\nkeys {:016x}\n", parts.identity,
                               parts.replica->scheduler.limits.block_size, store.block_bytes, keys.low);
  TACTUS_ASSIGN_OR_RETURN(auto blocks, BlockStore::Open(std::move(folder), store, say));
  return std::unique_ptr<PromptCache>(new PromptCache(std::move(blocks), parts));
}

PromptCache::PromptCache(std::unique_ptr<BlockStore> store, const PromptCacheParts& parts)
    : store_(std::move(store)), parts_(parts) {
  writer_ = std::thread([this] {
    SetThreadRole(ThreadRole::kService, "tactus-kv-write");
    Write();
  });
  reader_ = std::thread([this] {
    SetThreadRole(ThreadRole::kService, "tactus-kv-read");
    ReadJobs();
  });
  timer_ = std::thread([this] {
    SetThreadRole(ThreadRole::kService, "tactus-kv-wait");
    EndWaits();
  });
}

PromptCache::~PromptCache() {
  EndThreads();
}

void PromptCache::EndThreads() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread* thread : {&writer_, &reader_, &timer_}) {
    if (thread->joinable()) thread->join();
  }
}

Result<RequestHandle> PromptCache::Submit(core::PreparedRequest prepared) {
  Look(&prepared);
  if (prepared.stored_blocks == 0) return parts_.loop->Submit(std::move(prepared));
  // Allocate first: after the loop has accepted the request, no exception may be thrown.
  const auto job = std::make_shared<Job>();
  const auto begin = prepared.choices[0].keys.begin();
  job->keys.assign(begin, begin + prepared.stored_blocks);
  job->end = prepared.stored_end;
  core::TransferCommand reserve = ReserveFor(job);
  const TimeNs now_ns = parts_.clock->NowNs();
  std::multimap<TimeNs, Wait> waits;
  const auto for_room = waits.emplace(now_ns + kLongestWaitForRoomNs, Wait{.for_room = true});
  const auto for_all = waits.emplace(now_ns + kLongestWaitNs, Wait{});
  Result<RequestHandle> handle = parts_.loop->Submit(std::move(prepared));
  if (!handle.ok()) return handle;
  job->handle = reserve.handle = for_room->second.handle = for_all->second.handle = *handle;
  {
    std::lock_guard lock(mutex_);
    waits_.merge(waits);
  }
  changed_.notify_all();
  try {
    parts_.loop->Transfer(std::move(reserve));
  } catch (const std::bad_alloc&) {  // no blocks come; the timer ends the wait
  }
  return handle;
}

void PromptCache::Look(core::PreparedRequest* prepared) {
  if (!prepared->has_keys || prepared->imported != nullptr) return;
  const std::vector<Hash128>& keys = prepared->choices[0].keys;
  const auto shareable = std::min(
      keys.size(), static_cast<size_t>((prepared->prompt_tokens - 1) / parts_.replica->scheduler.limits.block_size));
  const BlockStore::Match match = store_->Find(std::span(keys).first(shareable));
  prepared->stored_blocks = match.blocks;
  prepared->stored_end = match.end == CacheEnd::kPrompt ? CacheEnd::kUnknown : match.end;
  if (match.blocks > parts_.replica->import_blocks) {
    prepared->stored_blocks = static_cast<int32_t>(parts_.replica->import_blocks);
    prepared->stored_end = CacheEnd::kNoRoom;
  }
}

core::TransferCommand PromptCache::ReserveFor(const std::shared_ptr<Job>& job) {
  core::TransferCommand reserve{.kind = core::TransferKind::kReserve};
  reserve.blocks = static_cast<int32_t>(job->keys.size());
  reserve.answer = [this, job](core::TransferAnswer answer) {
    if (answer.status.code() == StatusCode::kResourceExhausted) return Tell(job->handle, 0, 0, CacheEnd::kNoRoom);
    if (!answer.status.ok()) return;  // the request does not wait: it has ended, or the prefix cache had its blocks
    job->reservation = answer.import;
    job->host_blocks = std::move(answer.host_blocks);
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(job);
    }
    changed_.notify_all();
  };
  return reserve;
}

void PromptCache::EndWaits() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (waits_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto [end_ns, wait] = *waits_.begin();
    const DurationNs left_ns = end_ns - parts_.clock->NowNs();
    if (left_ns > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
      continue;
    }
    waits_.erase(waits_.begin());
    lock.unlock();
    // Most requests have had their reservation or blocks long since; the loop ignores these commands.
    if (wait.for_room)
      parts_.loop->Transfer({.kind = core::TransferKind::kWithdraw, .handle = wait.handle});
    else
      Tell(wait.handle, 0, 0, CacheEnd::kLate);
    lock.lock();
  }
}

void PromptCache::Tell(RequestHandle handle, core::ImportId reservation, int32_t blocks, CacheEnd end) {
  core::TransferCommand fetched{.kind = core::TransferKind::kFetched, .handle = handle, .import = reservation};
  fetched.blocks = blocks;
  fetched.end = end;
  parts_.loop->Transfer(std::move(fetched));
}

void PromptCache::ReadJobs() {
  std::vector<std::byte> block(static_cast<size_t>(store_->block_bytes()));
  for (;;) {
    std::shared_ptr<const Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
      if (ending_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    ReadOne(*job, &block);
  }
}

void PromptCache::ReadOne(const Job& job, std::vector<std::byte>* block) {
  int32_t blocks = 0;
  CacheEnd end = job.end;
  for (; static_cast<size_t>(blocks) < job.keys.size(); ++blocks) {
    const auto i = static_cast<size_t>(blocks);
    if (!store_->Read(job.keys[i], block->data())) {
      end =
          store_->Find(std::span(&job.keys[i], 1)).end == CacheEnd::kEvicted ? CacheEnd::kEvicted : CacheEnd::kDamaged;
      break;
    }
    parts_.executor->WriteHostBlock(job.host_blocks[i], block->data());
  }
  if (blocks > 0) {
    std::lock_guard lock(mutex_);
    ++fetched_requests_;
  }
  Tell(job.handle, job.reservation, blocks, end);
}

void PromptCache::Write() {
  const auto wanted = [this](const Hash128& key) { return !store_->Has(key); };
  for (;;) {
    core::TransferCommand read{.kind = core::TransferKind::kReadEntered};
    read.blocks = std::numeric_limits<int32_t>::max();  // as many as a pass may read
    read.wanted = wanted;
    read.answer = [this](core::TransferAnswer answer) {
      {
        std::lock_guard lock(mutex_);
        entered_.push_back(std::move(answer));
      }
      changed_.notify_all();
    };
    parts_.loop->Transfer(std::move(read));
    core::TransferAnswer entered;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !entered_.empty(); });
      if (entered_.empty()) return;
      entered = std::move(entered_.front());
      entered_.pop_front();
    }
    if (!Store(entered)) return;
    if (const TimeNs now_ns = parts_.clock->NowNs(); now_ns >= next_note_ns_) {
      next_note_ns_ = now_ns + kBetweenNotesNs;
      store_->NoteUses();
    }
  }
}

bool PromptCache::Store(const core::TransferAnswer& entered) {
  const auto size = static_cast<size_t>(store_->block_bytes());
  for (size_t i = 0; i < entered.keys.size(); ++i) {
    if (!store_->Append(entered.keys[i], entered.bytes.data() + i * size)) return false;
  }
  return true;
}

void PromptCache::Finish() {
  EndThreads();
  store_->NoteUses();
  const TimeNs end_ns = parts_.clock->NowNs() + kLastWritesNs;
  while (parts_.clock->NowNs() < end_ns) {
    const core::TransferAnswer entered = parts_.loop->ReadEntered(
        std::numeric_limits<int32_t>::max(), [this](const Hash128& key) { return !store_->Has(key); });
    if ((entered.keys.empty() && !entered.more) || !Store(entered)) return;
  }
}

std::string PromptCache::MetricsText(const results::Labels& labels) const {
  const BlockStoreStats s = store_->Stats();
  const auto value = [](int64_t v) { return static_cast<double>(v); };
  const int64_t fetched = [this] {
    std::lock_guard lock(mutex_);
    return fetched_requests_;
  }();
  results::PrometheusText t(labels);
  t.Gauge("tactus_disk_kv_blocks", "KV blocks of this model in --kv-cache-dir.", value(s.blocks));
  t.Gauge("tactus_disk_kv_bytes", "Bytes of all files in --kv-cache-dir.", value(s.bytes));
  t.Gauge("tactus_disk_kv_bytes_limit", "Limit on tactus_disk_kv_bytes.", value(s.limit));
  t.Gauge("tactus_disk_kv_writing", "0: writing has stopped: the disk lacks room or failed.", s.writing ? 1 : 0);
  t.Counter("tactus_disk_kv_requests_total", "Requests with KV of their prompt read from there.", value(fetched));
  t.Counter("tactus_disk_kv_read_blocks_total", "KV blocks read from there.", value(s.read));
  t.Counter("tactus_disk_kv_written_blocks_total", "KV blocks written there.", value(s.written));
  t.Counter("tactus_disk_kv_evicted_blocks_total", "KV blocks removed to make room for others.", value(s.evicted));
  t.Counter("tactus_disk_kv_damaged_blocks_total", "Damaged KV blocks and records, which were skipped.",
            value(s.damaged));
  return t.Take();
}

}  // namespace tactus::engine
