#include "language/grammar/trial.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace tactus::language {
namespace {

constexpr uint64_t kMostTaskBytes = uint64_t{64} << 20;
constexpr size_t kMostSaid = 8 << 20;  // an error may quote the rule several times before its reason

struct TaskHead {
  int64_t cpu_ms, memory_bytes;
  uint64_t kind_bytes, text_bytes;
};

struct VerdictHead {
  uint32_t end, said_bytes;
  int64_t forced_bytes, bytes, mask_ns;
};

struct VocabularyHead {
  int64_t size;
  uint64_t tokens, ends, bytes;
};

template <class T>
void Put(const T* values, size_t count, std::string* out) {
  out->append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

template <class T>
bool Get(std::string_view* from, size_t count, T* values) {
  const size_t size = count * sizeof(T);
  if (from->size() < size) return false;
  if (size > 0) std::memcpy(values, from->data(), size);
  from->remove_prefix(size);
  return true;
}

}  // namespace

bool WriteTask(int fd, const TrialTask& task, int look_ms, const std::function<bool()>& go_on) {
  const TaskHead head{task.cpu_ms, task.memory_bytes, task.kind.size(), task.text.size()};
  std::string bytes;
  Put(&head, 1, &bytes);
  bytes += task.kind;
  bytes += task.text;
  return WriteAll(fd, bytes.data(), bytes.size(), look_ms, go_on);
}

bool ReadTask(int fd, TrialTask* task) {
  TaskHead head{};
  if (!ReadAll(fd, &head, sizeof head) || std::max(head.kind_bytes, head.text_bytes) > kMostTaskBytes) return false;
  task->cpu_ms = head.cpu_ms;
  task->memory_bytes = head.memory_bytes;
  task->kind.resize(head.kind_bytes);
  task->text.resize(head.text_bytes);
  return ReadAll(fd, task->kind.data(), task->kind.size()) && ReadAll(fd, task->text.data(), task->text.size());
}

bool WriteVerdict(int fd, const TrialVerdict& verdict) {
  const std::string_view said = std::string_view(verdict.said).substr(0, kMostSaid);
  const VerdictHead head{static_cast<uint32_t>(verdict.end), static_cast<uint32_t>(said.size()), verdict.forced_bytes,
                         verdict.bytes, verdict.mask_ns};
  std::string bytes;
  Put(&head, 1, &bytes);
  bytes += said;
  return WriteAll(fd, bytes.data(), bytes.size());
}

bool ReadVerdict(int fd, TrialVerdict* verdict, int timeout_ms) {
  VerdictHead head{};
  if (!ReadAll(fd, &head, sizeof head, timeout_ms) || head.said_bytes > kMostSaid ||
      head.end > static_cast<uint32_t>(TrialVerdict::End::kNotStarted)) {
    return false;
  }
  verdict->end = static_cast<TrialVerdict::End>(head.end);
  verdict->forced_bytes = head.forced_bytes;
  verdict->bytes = head.bytes;
  verdict->mask_ns = head.mask_ns;
  verdict->said.resize(head.said_bytes);
  return ReadAll(fd, verdict->said.data(), verdict->said.size(), timeout_ms);
}

std::string VocabularyBytes(const Vocabulary& v) {
  std::string bytes;
  std::vector<uint32_t> lengths;
  std::vector<uint8_t> special;
  uint64_t all = 0;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    lengths.push_back(static_cast<uint32_t>(v.tokens[i].size()));
    special.push_back(v.special[i] ? 1 : 0);
    all += v.tokens[i].size();
  }
  const VocabularyHead head{v.size, v.tokens.size(), v.end_ids.size(), all};
  bytes.reserve(sizeof head + lengths.size() * 5 + v.end_ids.size() * sizeof(TokenId) + all);
  Put(&head, 1, &bytes);
  Put(lengths.data(), lengths.size(), &bytes);
  Put(special.data(), special.size(), &bytes);
  Put(v.end_ids.data(), v.end_ids.size(), &bytes);
  for (const std::string& token : v.tokens) bytes += token;
  return bytes;
}

Result<Vocabulary> ReadVocabulary(std::string_view bytes) {
  VocabularyHead head{};
  const Status damaged = DataLoss("the vocabulary that a helper was started with is damaged");
  if (!Get(&bytes, 1, &head) || head.tokens > bytes.size() || head.ends > bytes.size() || head.size < 0) return damaged;
  Vocabulary v;
  v.size = head.size;
  std::vector<uint32_t> lengths(head.tokens);
  std::vector<uint8_t> special(head.tokens);
  v.end_ids.resize(head.ends);
  if (!Get(&bytes, lengths.size(), lengths.data()) || !Get(&bytes, special.size(), special.data()) ||
      !Get(&bytes, v.end_ids.size(), v.end_ids.data()) || bytes.size() != head.bytes) {
    return damaged;
  }
  v.special.assign(special.begin(), special.end());
  v.tokens.reserve(head.tokens);
  for (const uint32_t length : lengths) {
    if (length > bytes.size()) return damaged;
    v.tokens.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return v;
}

}  // namespace tactus::language
