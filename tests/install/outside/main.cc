// A program outside the project that uses the installed library: loads a model (random weights here) and streams one
// answer.
#include <tactus/engine.h>
#include <tactus/version.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>

namespace {

class Printer final : public tactus::ResponseSink {
 public:
  void OnDelta(const tactus::TokenDelta& delta) override { tokens_ += static_cast<int>(delta.tokens.size()); }
  void OnDone(const tactus::Usage& usage) override {
    std::lock_guard lock(mutex_);
    usage_ = usage;
    done_ = true;
    changed_.notify_all();
  }
  tactus::Usage Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return usage_;
  }
  int tokens() const { return tokens_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  tactus::Usage usage_;
  bool done_ = false;
  int tokens_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  tactus::EngineOptions options;
  options.model = argv[1];
  options.load_format = "dummy";
  options.kv_cache_memory.bytes = 1 << 24;
  auto engine = tactus::Engine::Create(options);
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    return 1;
  }
  tactus::Request request;
  request.prompt = std::make_shared<const std::vector<tactus::TokenId>>((*engine)->Tokenize("Hello", true));
  request.stop.max_tokens = 8;
  request.stop.ignore_eos = true;
  auto printer = std::make_shared<Printer>();
  auto handle = (*engine)->Submit(std::move(request), printer);
  if (!handle.ok()) {
    std::fprintf(stderr, "%s\n", handle.status().ToString().c_str());
    return 1;
  }
  const tactus::Usage usage = printer->Wait();
  std::printf("tactus %s: %lld prompt tokens, %lld new ones\n", tactus::Version(),
              static_cast<long long>(usage.prompt_tokens), static_cast<long long>(usage.completion_tokens));
  return usage.completion_tokens == 8 && printer->tokens() == 8 ? 0 : 1;
}
