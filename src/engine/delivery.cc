#include "engine/delivery.h"
#include "base/memory_shortage.h"
#include "base/thread_role.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace tactus::engine {
namespace {

constexpr std::chrono::milliseconds kMemoryPause{5};  // before the next attempt to allocate

struct Choice {
  Choice(const language::Tokenizer* tokenizer, bool skip_special, bool at_start)
      : detokenizer(tokenizer, skip_special, at_start) {}
  language::Detokenizer detokenizer;
  std::string held;    // generated, not yet delivered: may become a stop string
  bool ended = false;  // its last delta has been delivered
};

struct Subscriber {
  std::shared_ptr<const Request> request;
  std::shared_ptr<ResponseSink> sink;
  std::vector<Choice> choices;
  int32_t prompt_rows_seen = 0;  // a recomputed prompt repeats its logprobs
};

// One event, copied out of the engine thread's spans.
struct Letter {
  enum class Kind : uint8_t { kToken, kPromptLogprobs, kDone } kind = Kind::kToken;
  core::TokenEvent token;
  std::vector<TokenLogprob> logprobs;
  Status error;
  core::PromptLogprobsEvent prompt;
  Usage usage;
  Subscriber* to = nullptr;
};

}  // namespace

size_t WithheldLength(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = std::min(stop.size() - 1, text.size()); n > longest; --n) {
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) longest = n;
    }
  }
  return longest;
}

// The text of `held` and of the last token, `fresh`, that the answer keeps when `stop` ended it.
static std::string TextBeforeStop(const std::string& held, const std::string& fresh, const std::string& stop) {
  const std::string text = held + fresh;
  // The stop string ends in the last token; an occurrence wholly in `held` came before min_tokens and is text.
  const size_t at = text.find(stop, held.size() >= stop.size() ? held.size() - stop.size() + 1 : 0);
  if (at != std::string::npos) return text.substr(0, at);
  // The stop string matched in bytes but not in text (a special token, bytes that form no character): drop the last
  // token and any suffix that may begin the stop string.
  return held.substr(0, held.size() - WithheldLength(held, {stop}));
}

struct Delivery::Impl {
  const language::Tokenizer* tokenizer;
  std::vector<TokenId> ends;
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<Letter> inbox;  // under mutex
  bool stopping = false;      // under mutex
  int64_t registered = 0;     // under mutex
  std::condition_variable empty;
  TokenDelta no_memory;       // used by the delivery thread; built while there is memory
  size_t wanted = 0;          // used by the engine thread
  std::vector<Letter> spare;  // likewise
  std::thread thread;

  void Run() {
    SetThreadRole(ThreadRole::kService, "tactus-text");
    const NeedsMemory needs_memory;
    std::vector<Letter> letters;
    while (true) {
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [this] { return stopping || !inbox.empty(); });
        if (inbox.empty()) return;
        letters.swap(inbox);
      }
      for (Letter& letter : letters) {
        try {
          Deliver(letter);
        } catch (const std::exception&) {  // out of memory
          Fail(letter);
        }
      }
      letters.clear();
    }
  }

  // Copies all events or none. False: no memory for them; `wanted` is set to about the number of letters needed.
  bool Take(const core::StepEvents& events) {
    const NeedsMemory needs_memory(false);  // the threads that free memory need the mutex
    std::lock_guard lock(mutex);
    const size_t before = inbox.size();
    try {
      Copy(events);
      return true;
    } catch (const std::bad_alloc&) {
      inbox.erase(inbox.begin() + static_cast<ptrdiff_t>(before), inbox.end());
      wanted = 2 * (before + events.tokens.size() + events.prompt_logprobs.size() + events.done.size());
      return false;
    }
  }

  void Copy(const core::StepEvents& events) {
    for (const core::PromptLogprobsEvent& p : events.prompt_logprobs) {
      Letter& letter = inbox.emplace_back();
      letter.kind = Letter::Kind::kPromptLogprobs;
      letter.prompt = p;
      letter.to = static_cast<Subscriber*>(p.user);
    }
    for (const core::TokenEvent& t : events.tokens) {
      Letter& letter = inbox.emplace_back();
      letter.token = t;
      if (t.logprobs >= 0) letter.logprobs = events.logprobs[static_cast<size_t>(t.logprobs)];
      if (t.error >= 0) letter.error = events.errors[static_cast<size_t>(t.error)];
      letter.to = static_cast<Subscriber*>(t.user);
    }
    for (const core::RequestDoneEvent& d : events.done) {
      Letter& letter = inbox.emplace_back();
      letter.kind = Letter::Kind::kDone;
      letter.usage = {d.prompt_tokens, d.cached_tokens, d.completion_tokens};
      letter.to = static_cast<Subscriber*>(d.user);
    }
  }

  // Ends the answer with an error in every case, since part of its text is lost. Allocates nothing.
  void Fail(const Letter& letter) noexcept {
    Subscriber& to = *letter.to;
    for (size_t i = 0; i < to.choices.size(); ++i) {
      if (std::exchange(to.choices[i].ended, true)) continue;
      no_memory.choice = static_cast<int32_t>(i);
      try {
        to.sink->OnDelta(no_memory);
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the sink already has the error
      }
    }
    if (letter.kind == Letter::Kind::kDone) Forget(letter.to);
  }

  void Deliver(Letter& letter) {
    Subscriber& to = *letter.to;
    switch (letter.kind) {
      case Letter::Kind::kToken:
        DeliverToken(to, letter);
        break;
      case Letter::Kind::kPromptLogprobs: {
        const int32_t known = to.prompt_rows_seen - letter.prompt.first_row;
        auto& rows = letter.prompt.rows;
        if (known < static_cast<int32_t>(rows.size())) {
          rows.erase(rows.begin(), rows.begin() + std::max(known, 0));
          to.prompt_rows_seen += static_cast<int32_t>(rows.size());
          to.sink->OnPromptLogprobs(rows);
        }
        break;
      }
      case Letter::Kind::kDone:
        to.sink->OnDone(letter.usage);
        Forget(letter.to);
        break;
    }
  }

  void Forget(Subscriber* subscriber) {
    delete subscriber;
    std::lock_guard lock(mutex);
    if (--registered == 0) empty.notify_all();
  }

  void DeliverToken(Subscriber& to, Letter& letter) {
    const core::TokenEvent& event = letter.token;
    Choice& choice = to.choices[static_cast<size_t>(event.choice)];
    if (choice.ended) return;
    const std::vector<std::string>& stops = to.request->stop.stop;
    TokenDelta delta;
    delta.choice = event.choice;
    delta.finish = event.finish;
    std::string fresh;
    if (event.token >= 0) {
      delta.tokens.push_back(event.token);
      if (event.logprobs >= 0) delta.logprobs.push_back(std::move(letter.logprobs));
      // A stop id ends the text before its own token.
      const bool is_stop_id = event.finish == FinishReason::kStop && event.stop_string < 0;
      // With ignore_eos the answer continues after the stop id; with shown_specials that id is not text.
      const bool is_end = event.token == tokenizer->eos_id() || event.token == tokenizer->bos_id() ||
                          std::find(ends.begin(), ends.end(), event.token) != ends.end();
      if (!is_stop_id && !(is_end && to.request->shown_specials)) fresh = choice.detokenizer.Append(event.token);
    }
    if (event.stop_string >= 0) {
      delta.stop_string = stops[static_cast<size_t>(event.stop_string)];
      delta.text = TextBeforeStop(choice.held, fresh, delta.stop_string);
    } else if (event.finish == FinishReason::kMigrated) {
      // The engine that continues the sequence delivers the withheld text.
    } else if (event.finish == FinishReason::kNone) {
      choice.held += fresh;
      const size_t keep = stops.empty() ? 0 : WithheldLength(choice.held, stops);
      delta.text = choice.held.substr(0, choice.held.size() - keep);
      choice.held.erase(0, delta.text.size());
    } else {
      delta.text = choice.held + fresh + choice.detokenizer.Flush();
    }
    delta.error = std::move(letter.error);
    to.sink->OnDelta(delta);
    choice.ended = delta.finish != FinishReason::kNone;
  }
};

Delivery::Delivery(const language::Tokenizer* tokenizer, std::vector<TokenId> ends) : impl_(std::make_unique<Impl>()) {
  impl_->tokenizer = tokenizer;
  impl_->ends = std::move(ends);
  impl_->no_memory.finish = FinishReason::kError;
  impl_->no_memory.error =
      Status(StatusCode::kResourceExhausted, "there is no memory for this answer; try again later");
  impl_->thread = std::thread([this] { impl_->Run(); });
}

Delivery::~Delivery() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_one();
  impl_->thread.join();
}

void* Delivery::Register(std::shared_ptr<const Request> request, std::shared_ptr<ResponseSink> sink) {
  auto* subscriber = new Subscriber;  // freed by Forget or after its done event
  // An answer continues its prompt's text: a SentencePiece space at its front is kept, unless only special tokens
  // precede it.
  const auto is_special = [this](TokenId id) { return impl_->tokenizer->IsSpecial(id); };
  const bool at_start = !request->prompt || std::all_of(request->prompt->begin(), request->prompt->end(), is_special);
  subscriber->choices.reserve(static_cast<size_t>(request->n));
  for (int32_t i = 0; i < request->n; ++i)
    subscriber->choices.emplace_back(impl_->tokenizer, !request->shown_specials, at_start);
  subscriber->request = std::move(request);
  subscriber->sink = std::move(sink);
  std::lock_guard lock(impl_->mutex);
  ++impl_->registered;
  return subscriber;
}

void Delivery::Forget(void* user) {
  impl_->Forget(static_cast<Subscriber*>(user));
}

Result<RequestHandle> Delivery::TellAgain(void* user, std::span<const TokenId> tokens,
                                          std::vector<std::vector<TokenLogprob>> logprobs,
                                          const std::function<Result<RequestHandle>()>& submit) {
  // The mutex is held so that no event of the loop is queued before these tokens.
  std::unique_lock lock(impl_->mutex);
  Result<RequestHandle> handle = submit();
  if (!handle.ok()) return handle;
  for (size_t i = 0; i < tokens.size(); ++i) {
    Letter& letter = impl_->inbox.emplace_back();
    letter.token.token = tokens[i];
    if (i < logprobs.size() && !logprobs[i].empty()) {
      letter.token.logprobs = 0;
      letter.logprobs = std::move(logprobs[i]);
    }
    letter.to = static_cast<Subscriber*>(user);
  }
  lock.unlock();
  impl_->wake.notify_one();
  return handle;
}

void Delivery::WaitUntilEmpty() {
  std::unique_lock lock(impl_->mutex);
  impl_->empty.wait(lock, [this] { return impl_->registered == 0; });
}

void Delivery::OnStep(const core::StepEvents& events) {
  if (events.tokens.empty() && events.prompt_logprobs.empty() && events.done.empty()) return;
  while (!impl_->Take(events)) {
    // Without the mutex: waits until other threads have freed memory, as the engine thread does elsewhere.
    impl_->spare.reserve(impl_->wanted);
    std::vector<Letter>().swap(impl_->spare);
    std::this_thread::sleep_for(kMemoryPause);
  }
  impl_->wake.notify_one();
}

}  // namespace tactus::engine
