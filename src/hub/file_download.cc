#include "hub/file_download.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/printable.h"
#include "hub/file_names.h"
#include "hub/repository.h"
#include "hub/size_text.h"

namespace tactus::hub {
namespace {

constexpr DurationNs kLockRetry = kSecond / 5;
constexpr size_t kHashBuffer = size_t{1} << 20;
constexpr int64_t kHashedAtOnce = int64_t{32} << 20;

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// A strong validator: a weak one cannot be used with ranges.
std::string ValidatorOf(const Answer& head) {
  const std::string etag = head.Header("etag");
  return etag.starts_with('"') ? etag : "";
}

}  // namespace

FileDownload::FileDownload(Download download, Transfers& transfers, const Events& events)
    : download_(std::move(download)), transfers_(transfers), events_(events) {}

int64_t FileDownload::done_bytes() const {
  return partial_ ? partial_->done() : finished_bytes_;
}

bool FileDownload::behind() const {
  return partial_ && digest_ != nullptr && hashed_bytes_ < partial_->Contiguous();
}

bool FileDownload::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
  return false;
}

void FileDownload::Save() const {
  if (partial_ && !done_) partial_->Save();
}

bool FileDownload::Open() {
  const TimeNs now = transfers_.clock().NowNs();
  if (now < next_try_) return false;
  next_try_ = now + kLockRetry;
  auto lock = FileLock::Try(download_.lock);
  if (!lock.ok()) return Fail(lock.status());
  waiting_ = *lock == nullptr;
  if (waiting_) {
    if (!noted_) events_.note(fmt::format("{}: another process downloads it; waiting", download_.what));
    noted_ = true;
    return false;
  }
  lock_ = std::move(*lock);
  if (Exists(download_.path)) {  // by another process, since this one looked
    done_ = true;
    finished_bytes_ = std::max<int64_t>(download_.bytes, 0);
    lock_.reset();
    return false;
  }
  auto partial = PartialFile::Open(download_.partial, download_.bytes, transfers_.settings().connections);
  if (!partial.ok()) return Fail(partial.status());
  partial_.emplace(std::move(*partial));
  kept_bytes_ = partial_->done();
  next_save_ = now + kSecond;
  UsePieces();
  return true;
}

void FileDownload::UsePieces() {
  ++generation_;
  states_.assign(partial_->pieces().size(), PieceState(transfers_.settings()));
  hashed_bytes_ = 0;
  digest_ = Digest::ForHash(download_.hash, download_.bytes);
}

// Another content, or a server without ranges: one request for everything.
bool FileDownload::Restart() {
  kept_bytes_ = 0;
  if (Status restarted = partial_->Restart(); !restarted.ok()) return Fail(std::move(restarted));
  UsePieces();
  return true;
}

bool FileDownload::StartNext() {
  if (done_ || !status_.ok() || (!partial_ && !Open())) return false;
  const TimeNs now = transfers_.clock().NowNs();
  for (size_t i = 0; i < states_.size(); ++i) {
    PieceState& state = states_[i];
    if (state.running || partial_->pieces()[i].complete() || now < state.due) continue;
    state.running = true;
    auto ticket = std::make_shared<Ticket>();
    ticket->piece = i;
    ticket->generation = generation_;
    transfers_.Start(RequestFor(ticket));
    return true;
  }
  return false;
}

Request FileDownload::RequestFor(const std::shared_ptr<Ticket>& ticket) {
  const PartialFile::Piece& piece = partial_->pieces()[ticket->piece];
  Request request;
  request.url = download_.url;
  request.token = !download_.repository.empty();
  const int64_t from = piece.begin + piece.done;
  ticket->ranged = from > 0 || (piece.bytes >= 0 && piece.bytes < partial_->bytes());
  if (ticket->ranged) {
    request.range =
        piece.bytes < 0 ? fmt::format("{}-", from) : fmt::format("{}-{}", from, piece.begin + piece.bytes - 1);
    request.if_range = partial_->validator();
  }
  request.on_bytes = [this, ticket](const Answer& head, std::string_view bytes) {
    return TakeBytes(head, bytes, ticket.get());
  };
  request.on_end = [this, ticket](const Answer& answer) { TakeEnd(answer, *ticket); };
  return request;
}

// Whether the answer is the part that was asked for.
bool FileDownload::TakeHead(const Answer& head, Ticket* ticket) {
  ticket->checked = true;
  if (ticket->ranged && head.status != 206) {
    if (!Restart()) return false;
    // This answer is the whole file: it goes on as the only piece.
    *ticket = {0, generation_, false, true};
    states_[0].running = true;
  } else if (ticket->ranged) {
    const PartialFile::Piece& piece = partial_->pieces()[ticket->piece];
    if (head.FirstByte() != piece.begin + piece.done)
      return Fail(
          DataLoss(fmt::format("{}: {} sent another part than the one that was asked for", download_.what, head.host)));
  }
  if (const int64_t total = head.TotalBytes(); download_.bytes >= 0 && total >= 0 && total != download_.bytes) {
    return Fail(DataLoss(fmt::format("{} has {} bytes by the hub's list, and {} at {}", download_.what, download_.bytes,
                                     total, head.host)));
  }
  if (partial_->validator().empty()) partial_->set_validator(ValidatorOf(head));
  return true;
}

bool FileDownload::TakeBytes(const Answer& head, std::string_view bytes, Ticket* ticket) {
  if (!status_.ok() || ticket->generation != generation_) return false;
  if (!ticket->checked && !TakeHead(head, ticket)) return false;
  states_[ticket->piece].patience.Reset();
  if (Status written = partial_->Write(ticket->piece, bytes); !written.ok()) return Fail(std::move(written));
  return true;
}

void FileDownload::TakeEnd(const Answer& answer, const Ticket& ticket) {
  if (ticket.generation != generation_ || !status_.ok()) return;
  PieceState& state = states_[ticket.piece];
  const PartialFile::Piece& piece = partial_->pieces()[ticket.piece];
  state.running = false;
  if (piece.complete()) return;
  if (answer.status == 416 && answer.error.empty() && ticket.ranged) {
    Restart();
  } else if (answer.ok() && piece.bytes < 0) {
    partial_->EndAt(piece.done);
  } else {
    TakeFailure(answer, ticket);
  }
}

void FileDownload::TakeFailure(const Answer& answer, const Ticket& ticket) {
  Answer failure = answer;
  if (failure.ok()) failure.error = "the answer ended early";
  // The address of a redirect is signed for some time: the hub gives a new one.
  const bool elsewhere = !download_.url.starts_with(failure.host + "/");
  const bool expired = elsewhere && failure.error.empty() && (failure.status == 401 || failure.status == 403);
  PieceState& state = states_[ticket.piece];
  const auto wait = state.patience.Next(failure, expired);
  if (!wait) {
    Fail(FaultOf(failure, download_.what, elsewhere ? "" : download_.repository, transfers_.settings()));
    return;
  }
  state.due = transfers_.clock().NowNs() + *wait;
  if (state.patience.failures() < 2) return;  // one cut is nothing unusual
  events_.note(fmt::format("{}: {}; try {} of {} in {:.1f} s", download_.what,
                           failure.error.empty() ? fmt::format("status {}", failure.status) : Printable(failure.error),
                           state.patience.failures() + 1, transfers_.settings().tries,
                           static_cast<double>(*wait) / static_cast<double>(kSecond)));
}

void FileDownload::Hash(int64_t most_bytes) {
  if (digest_ == nullptr) return;
  buffer_.resize(kHashBuffer);
  const int64_t end = std::min(partial_->Contiguous(), hashed_bytes_ + most_bytes);
  while (hashed_bytes_ < end) {
    const auto size = static_cast<size_t>(std::min<int64_t>(end - hashed_bytes_, kHashBuffer));
    const auto got = partial_->Read(hashed_bytes_, buffer_.data(), size);
    if (!got.ok() || *got == 0) {
      Fail(got.ok() ? DataLoss(download_.partial + " became shorter while it was written") : got.status());
      return;
    }
    digest_->Add(buffer_.data(), *got);
    hashed_bytes_ += static_cast<int64_t>(*got);
  }
}

void FileDownload::Advance() {
  if (done_ || !partial_ || !status_.ok()) return;
  Hash(kHashedAtOnce);
  const bool running = std::any_of(states_.begin(), states_.end(), [](const PieceState& s) { return s.running; });
  if (partial_->complete() && !running && (digest_ == nullptr || hashed_bytes_ >= partial_->bytes())) {
    Complete();
  } else if (const TimeNs now = transfers_.clock().NowNs(); now >= next_save_) {
    partial_->Save();
    next_save_ = now + kSecond;
  }
}

void FileDownload::Complete() {
  const std::string found = digest_ == nullptr ? "" : digest_->Hex();
  if (found != download_.hash) {
    if (kept_bytes_ > 0) {
      events_.note(download_.what + ": the part of an earlier download was damaged; once more from the beginning");
      Restart();
      return;
    }
    partial_->Remove();
    partial_.reset();
    Fail(
        DataLoss(fmt::format("{}: the content has the hash {} instead of {}, and was removed. Try again; if it stays "
                             "so, the hub or a proxy on the way changes the file",
                             download_.what, found, download_.hash)));
    return;
  }
  if (Status moved = partial_->MoveTo(download_.path); !moved.ok()) {
    Fail(std::move(moved));
    return;
  }
  done_ = true;
  finished_bytes_ = partial_->bytes();
  partial_.reset();
  lock_.reset();
}

}  // namespace tactus::hub
