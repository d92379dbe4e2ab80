#include "http/client_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tactus::http {

int64_t ClientLimit(int64_t max_streams_per_client, int64_t max_queue) {
  return max_streams_per_client > 0 ? max_streams_per_client : std::max<int64_t>(1, max_queue * 3 / 4);
}

// `held`: places that this request already has; they are part of it and do not count as other open sequences.
Status ClientCounts::State::Add(const std::string& client, int64_t held, int64_t more) {
  if (held + more > limit) {
    return InvalidArgument(fmt::format("n: a request of {} sequences (prompts times n) is beyond {}, the limit of one "
                                       "client (--max-streams-per-client)",
                                       held + more, limit),
                           "n");
  }
  std::lock_guard lock(mutex);
  const auto found = open.find(client);
  const int64_t now = found == open.end() ? 0 : found->second;
  if (now + more > limit) {
    return Status(StatusCode::kTooManyRequests,
                  fmt::format("{} sequences of this client are open and this request has {}: more than {}, the limit "
                              "(--max-streams-per-client); try again when some have ended",
                              now - held, held + more, limit));
  }
  open[client] = now + more;
  return Status();
}

void ClientCounts::State::Release(const std::string& client, int64_t places) {
  std::lock_guard lock(mutex);
  const auto found = open.find(client);
  found->second -= places;
  if (found->second == 0) open.erase(found);
}

ClientCounts::ClientCounts(int64_t limit) : state_(std::make_shared<State>(limit)) {}

Result<ClientCounts::Places> ClientCounts::Enter(const std::string& client, int64_t places) {
  Places entered;
  entered.state_ = state_;
  entered.client_ = client;
  TACTUS_RETURN_IF_ERROR(entered.Add(places));
  return entered;
}

int64_t ClientCounts::open(const std::string& client) const {
  std::lock_guard lock(state_->mutex);
  const auto found = state_->open.find(client);
  return found == state_->open.end() ? 0 : found->second;
}

int64_t ClientCounts::limit() const {
  return state_->limit;
}

ClientCounts::Places& ClientCounts::Places::operator=(Places&& other) noexcept {
  if (this == &other) return *this;
  ReleaseAll();
  state_ = std::move(other.state_);
  client_ = std::move(other.client_);
  count_ = std::exchange(other.count_, 0);
  return *this;
}

Status ClientCounts::Places::Add(int64_t more) {
  TACTUS_RETURN_IF_ERROR(state_->Add(client_, count_, more));
  count_ += more;
  return Status();
}

void ClientCounts::Places::Release(int64_t places) {
  places = std::min(places, count_);
  if (places <= 0) return;
  state_->Release(client_, places);
  count_ -= places;
}

ClientCounts::Places ClientCounts::Places::Split(int64_t places) {
  Places part;
  part.state_ = state_;
  part.client_ = client_;
  part.count_ = std::min(places, count_);
  count_ -= part.count_;
  return part;
}

}  // namespace tactus::http
