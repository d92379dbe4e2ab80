#include "language/grammar/grammar_engine.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/thread_cpu.h"
#include "base/thread_role.h"
#include "base/worker_pool.h"
#include "language/grammar/deep_calls.h"
#include "language/grammar/library_heap.h"
#include "language/grammar/llg_vocabulary.h"
#include "language/grammar/rule_cache.h"
#include "language/grammar/rule_error.h"
#include "language/grammar/rule_memory.h"
#include "language/grammar/rule_source.h"
#include "language/grammar/trials.h"

namespace tactus::language {
namespace {

// CPU time of one answer's rule, for which other answers of the step would wait. Each token earns kEarnedNs; an answer
// may exceed its earnings by kMostDebtNs. A mask of usual rules takes 10 to 100 us, the first in a string up to 1 ms.
// An ambiguous grammar's cost grows with every token, which the library's limits do not count.
constexpr int64_t kEarnedNs = 1'000'000, kMostDebtNs = 100'000'000;
// For starting over: replays a long answer's tokens, at some us each.
constexpr int64_t kMostReplayNs = 250'000'000;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr size_t kCompileBytes = size_t{4} << 20;  // per compilation, beside twice the compiled rule's size

// A state starts over when it has grown by more than kMostGrowth; where memory is short for all answers, when it has
// grown by kLeastGrowth or more.
constexpr int64_t kMostGrowth = int64_t{16} << 20, kLeastGrowth = int64_t{256} << 10;

class State final : public GrammarState {
 public:
  State(std::shared_ptr<const Matcher> start, std::shared_ptr<RuleMemory> memory)
      : start_(std::move(start)), memory_(std::move(memory)), share_(memory_.get(), /*is_answer=*/true) {
    const HeapCharge heap(&bytes_);
    matcher_ = start_->Clone();
    fresh_bytes_ = bytes_;
    share_.Set(bytes_);
  }
  ~State() override {
    const HeapCharge heap(&bytes_);
    matcher_.reset();
  }

  bool FillMask(std::span<uint32_t> mask) override {
    TACTUS_CHECK(mask.size() == vocabulary().mask_words());
    if (exhausted()) return false;
    const Charge charge(this);
    if (TooLarge() && (!StartOver() || StillTooLarge())) return false;
    return Compute(mask) || (StartOver() && Compute(mask));
  }

  bool Accept(TokenId token) override {
    if (HeapIsShort()) return false;
    const Charge charge(this);
    debt_ns_ -= std::min(debt_ns_, kEarnedNs);
    if (!Consume(token)) {
      // Refused by the rule, or by a library that has reached a limit: computing a mask distinguishes them.
      std::vector<uint32_t> mask(vocabulary().mask_words());
      if (Compute(mask) || !StartOver() || !Consume(token)) return false;
    }
    accepted_.push_back(token);
    return true;
  }

  int32_t CountValid(std::span<const TokenId> tokens) override {
    if (llg().matcher_is_error(matcher_->get()) || exhausted()) return 0;
    const Charge charge(this);
    return Valid(tokens);
  }

  void Forced(int32_t most, std::vector<TokenId>* tokens) override {
    tokens->resize(static_cast<size_t>(exhausted() ? 0 : std::max(0, most)));
    if (tokens->empty()) return;
    const Charge charge(this);
    const int32_t count =
        llg().matcher_compute_ff_tokens(matcher_->get(), reinterpret_cast<uint32_t*>(tokens->data()), tokens->size());
    tokens->resize(static_cast<size_t>(std::max(0, count)));
  }

 private:
  // Adds the CPU time of its scope, and the library's allocations in it.
  class Charge {
   public:
    explicit Charge(State* state) : state_(*state), heap_(&state->bytes_), begin_ns_(ThreadCpuNs()) {}
    ~Charge() {
      state_.debt_ns_ += ThreadCpuNs() - begin_ns_;
      state_.share_.Set(state_.bytes_);
    }
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;

   private:
    State& state_;
    const HeapCharge heap_;
    const int64_t begin_ns_;
  };
  bool exhausted() const { return debt_ns_ > kMostDebtNs || HeapIsShort(); }
  // The state exceeds an answer's memory limit, or all answers together exceed theirs and this state its share: it then
  // starts over, and ends if that does not help.
  bool TooLarge() { return Above(least_growth_); }
  bool StillTooLarge() { return Above(0); }
  bool Above(int64_t least_growth) {
    share_.Set(bytes_);
    const int64_t growth = bytes_ - fresh_bytes_;
    return growth > kMostGrowth || (memory_->left() < 0 && bytes_ > memory_->fair_part() && growth > least_growth);
  }

  int32_t Valid(std::span<const TokenId> tokens) {
    if (Ended()) return !tokens.empty() && vocabulary().IsEnd(tokens[0]) ? 1 : 0;
    const auto unknown =
        std::find_if_not(tokens.begin(), tokens.end(), [&](TokenId t) { return vocabulary().InRange(t); });
    static_assert(sizeof(TokenId) == sizeof(uint32_t));
    return std::max(0, llg().matcher_validate_tokens(matcher_->get(), reinterpret_cast<const uint32_t*>(tokens.data()),
                                                     static_cast<size_t>(unknown - tokens.begin())));
  }

  const LlgVocabulary& vocabulary() const { return *start_->vocabulary(); }
  const LlgFunctions& llg() const { return start_->llg(); }
  // Only end tokens are allowed.
  bool Ended() const { return llg().matcher_is_stopped(matcher_->get()); }

  bool Compute(std::span<uint32_t> mask) { return matcher_->FillMask(mask.data(), mask.size()); }
  bool Consume(TokenId token) {
    if (llg().matcher_is_error(matcher_->get()) || Valid({&token, 1}) != 1)
      return false;  // consume_token would put the matcher in error on a refused token
    return Ended() || llg().matcher_consume_token(matcher_->get(), static_cast<uint32_t>(token)) == 0;
  }
  // The lexer keeps every state that a mask has visited, about four per byte of a string with a maximum length, and
  // stops at max_lexer_states. A new lexer that follows only the answer's tokens has room again and needs less memory.
  bool StartOver() {
    const int64_t begin_ns = ThreadCpuNs();
    matcher_.reset();
    matcher_ = start_->Clone();
    const bool same = std::all_of(accepted_.begin(), accepted_.end(), [&](TokenId token) {
      return Consume(token) && ThreadCpuNs() - begin_ns <= kMostReplayNs;
    });
    debt_ns_ -= ThreadCpuNs() - begin_ns;  // not the rule's work
    const int64_t growth = bytes_ - fresh_bytes_;
    least_growth_ = growth + std::max(kLeastGrowth, growth / 4);  // prevents useless repeats
    return same;
  }

  const std::shared_ptr<const Matcher> start_;
  const std::shared_ptr<RuleMemory> memory_;
  RuleMemoryShare share_;
  int64_t bytes_ = 0, fresh_bytes_ = 0;  // held by the library: now, and just after the start
  int64_t least_growth_ = kLeastGrowth;
  std::unique_ptr<Matcher> matcher_;
  std::vector<TokenId> accepted_;
  int64_t debt_ns_ = 0;
};

// Replaces the state of an answer for which no memory is left.
class NoRoom final : public GrammarState {
 public:
  bool FillMask(std::span<uint32_t>) override { return false; }
  bool Accept(TokenId) override { return false; }
  int32_t CountValid(std::span<const TokenId>) override { return 0; }
  void Forced(int32_t, std::vector<TokenId>* tokens) override { tokens->clear(); }
};

class Grammar final : public TokenGrammar {
 public:
  // `start`: at the beginning, with its first mask computed; `bytes`: held by the library.
  Grammar(std::shared_ptr<const Matcher> start, std::shared_ptr<RuleMemory> memory, int64_t bytes)
      : start_(std::move(start)), memory_(std::move(memory)), share_(memory_.get(), /*is_answer=*/false) {
    share_.Set(bytes);
  }

  std::unique_ptr<GrammarState> Start() const override {
    if (!memory_->Take(start_bytes())) return std::make_unique<NoRoom>();
    memory_->Give(start_bytes());  // the state counts its actual size
    return std::make_unique<State>(start_, memory_);
  }
  int64_t vocab_size() const override { return start_->vocabulary()->size(); }
  // Approximate size of a new answer's state.
  int64_t start_bytes() const { return share_.bytes(); }
  const RuleMemory& memory() const { return *memory_; }

 private:
  const std::shared_ptr<const Matcher> start_;  // only cloned
  const std::shared_ptr<RuleMemory> memory_;
  RuleMemoryShare share_;
};

// Result of a compilation: the grammar, or a status with the reason why there is none.
struct Compiled {
  Status status;
  std::shared_ptr<const Grammar> grammar;
};

Status TooMuchForced(OutputRule::Kind kind, int64_t bytes) {
  return InvalidArgument(fmt::format("{}: it forces {} consecutive bytes of text; the limit is {}; use less fixed text",
                                     RuleName(kind), bytes, kMostForcedBytes));
}

Status TooLongToCompile(OutputRule::Kind kind, int64_t ms) {
  return InvalidArgument(fmt::format(
      "{}: compiling it takes longer than {} s, the limit; make it simpler, or try again if the machine was busy",
      RuleName(kind), static_cast<double>(ms) * 1e-3));
}

Status ErrorOf(const RuleSource& source, std::string_view said) {
  return RuleError(source.kind, said, source.schema ? &*source.schema : nullptr, source.changed);
}

// Compiles rules; shared with compilations whose callers have left.
struct Compiler {
  Compiler(const GrammarLimits& given, const Vocabulary& tried_over, const LlgFunctions& llg)
      : limits(given),
        memory(std::make_shared<RuleMemory>(given.memory_bytes)),
        trials(tried_over, llg.path),
        cache(given.kept_rules, given.memory_bytes / 4) {}

  const GrammarLimits limits;
  std::shared_ptr<const LlgVocabulary> vocabulary;
  const std::shared_ptr<RuleMemory> memory;
  Trials trials;
  RuleCache cache;

  // *bytes: size of the compiled rule in the library.
  Status Try(const RuleSource& source, const std::atomic<bool>& left, int64_t* bytes);
  // On a thread with a large stack.
  void Compile(const OutputRule& rule, const std::atomic<bool>& left, Compiled* compiled);
};

// Runs in a process that can be killed, whatever the rule does.
Status Compiler::Try(const RuleSource& source, const std::atomic<bool>& left, int64_t* bytes) {
  TrialTask task;
  task.cpu_ms = std::min(limits.trial_ms, limits.compile_ms);
  task.memory_bytes = limits.trial_bytes;
  task.kind = source.handed_over_as();
  task.text = source.text;
  TACTUS_ASSIGN_OR_RETURN(const TrialVerdict verdict,
                          trials.Run(task, limits.compile_ms, [&left] { return left.load(); }));
  const char* const name = RuleName(source.kind);
  switch (verdict.end) {
    case TrialVerdict::End::kCompiled:
      break;
    case TrialVerdict::End::kRefused:
      return ErrorOf(source, verdict.said);
    case TrialVerdict::End::kForced:
      return TooMuchForced(source.kind, verdict.forced_bytes);
    case TrialVerdict::End::kTooLong:
      return TooLongToCompile(source.kind, task.cpu_ms);
    case TrialVerdict::End::kTooLarge:
      return InvalidArgument(
          fmt::format("{}: compiling it takes more than {} MiB of memory, the limit; make it simpler", name,
                      task.memory_bytes >> 20));
    case TrialVerdict::End::kSlowMask:
      return InvalidArgument(
          fmt::format("{}: computing the allowed next tokens takes {} ms of CPU time; the limit is {}; make it simpler",
                      name, verdict.mask_ns / kNsPerMs, kMostMaskNs / kNsPerMs));
    case TrialVerdict::End::kDied:
    case TrialVerdict::End::kNoProcess:
    case TrialVerdict::End::kNotStarted:
      return InvalidArgument(
          fmt::format("{}: the grammar library fails on this rule ({}); write it in another way", name, verdict.said));
  }
  if (verdict.bytes > memory->limit() / 2) {
    return InvalidArgument(
        fmt::format("{}: one answer needs {} MiB of memory; the rules of all answers have {}; "
                    "make it simpler",
                    name, verdict.bytes >> 20, memory->limit() >> 20));
  }
  *bytes = verdict.bytes;
  return Status();
}

void Compiler::Compile(const OutputRule& rule, const std::atomic<bool>& left, Compiled* compiled) {
  const StopToken stop(&left);
  const auto read = RuleSource::Of(rule, stop);
  compiled->status = read.ok() ? (*read)->Check(stop) : read.status();
  if (!compiled->status.ok()) return;
  const RuleSource& source = **read;
  int64_t tried_bytes = 0;
  // The rule for "any JSON object" is not a client's text.
  if (source.kind != OutputRule::Kind::kJsonObject) compiled->status = Try(source, left, &tried_bytes);
  if (!compiled->status.ok() || left.load()) return;
  if (!HeapHas(static_cast<size_t>(2 * tried_bytes) + kCompileBytes)) {
    compiled->status = Status(
        StatusCode::kResourceExhausted,
        fmt::format("{}: there is no memory to compile it at the moment; try again later", RuleName(source.kind)));
    return;
  }
  int64_t bytes = 0;
  const HeapCharge heap(&bytes);
  auto matcher = Matcher::Of(vocabulary, source.handed_over_as(), source.text);
  // Every answer starts with the first mask; clones inherit it.
  std::vector<uint32_t> mask(vocabulary->mask_words());
  if (matcher->error() == nullptr) (void)matcher->FillMask(mask.data(), mask.size());
  if (matcher->forced_bytes() > kMostForcedBytes) {
    compiled->status = TooMuchForced(source.kind, matcher->forced_bytes());
  } else if (const char* error = matcher->error(); error != nullptr) {
    compiled->status = ErrorOf(source, error);
  } else {
    compiled->grammar = std::make_shared<Grammar>(std::move(matcher), memory, bytes);
  }
}

// Returns memory that many answers have freed to the system: the allocator keeps what threads free.
class Trimmer {
 public:
  explicit Trimmer(std::shared_ptr<RuleMemory> memory)
      : memory_(std::move(memory)), thread_([this] {
          SetThreadRole(ThreadRole::kService, "tactus-trim");
          for (memory_->WaitForMuchGiven(); !stop_; memory_->WaitForMuchGiven()) malloc_trim(0);
        }) {}
  ~Trimmer() {
    stop_ = true;
    memory_->Wake();
    thread_.join();
  }
  Trimmer(const Trimmer&) = delete;
  Trimmer& operator=(const Trimmer&) = delete;

 private:
  const std::shared_ptr<RuleMemory> memory_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // last: it uses the other members
};

class LlguidanceEngine final : public GrammarEngine {
 public:
  LlguidanceEngine(std::shared_ptr<Compiler> compiler)
      : compiler_(std::move(compiler)),
        calls_(compiler_->limits.compiles_at_once, kCompileStackBytes),
        trimmer_(compiler_->memory) {}
  ~LlguidanceEngine() override {
    compiler_->vocabulary->Close();
    compiler_->trials.Close();
  }

  Result<std::shared_ptr<const TokenGrammar>> Compile(const OutputRule& rule, StopToken stop,
                                                      RuleWait* given_wait) override {
    if (static_cast<int64_t>(rule.text.size()) > limits().text_bytes) {
      return Status(StatusCode::kTooLarge, fmt::format("{}: {} bytes; the limit is {}", RuleName(rule.kind),
                                                       rule.text.size(), limits().text_bytes));
    }
    RuleCache& cache = compiler_->cache;
    std::shared_ptr<const TokenGrammar> kept;
    std::optional<Status> refused;
    const auto is_known = [&] {
      kept = cache.Find(rule);
      if (kept == nullptr) refused = cache.FindRefused(rule);
      return kept != nullptr || refused;
    };
    if (is_known()) return Known(std::move(kept), refused);
    RuleWait alone;
    RuleWait& wait = given_wait != nullptr ? *given_wait : alone;
    if (wait.waited_ms >= limits().compile_ms) {
      wait.over = true;
      return TooLongToCompile(rule.kind, limits().compile_ms);
    }
    const auto compiled = std::make_shared<Compiled>();
    const auto left = std::make_shared<std::atomic<bool>>(false);
    const auto call = [compiled, left, compiler = compiler_, rule] {
      compiler->Compile(rule, *left, compiled.get());
      // A rule whose caller has stopped waiting is not cached: it took too long and may be as large.
      if (left->load()) return;
      if (const auto& grammar = compiled->grammar; grammar != nullptr)
        compiler->cache.Keep(rule, grammar, static_cast<int64_t>(rule.text.size()) + grammar->start_bytes());
      else if (compiled->status.code() == StatusCode::kInvalidArgument)
        compiler->cache.KeepRefused(rule, compiled->status);
    };
    DeepCalls::Terms terms;
    terms.timeout_ms = limits().compile_ms - wait.waited_ms;
    terms.stop = stop;
    terms.needless = is_known;  // when several calls wait with the same new rule, the others reuse the first one's
                                // result
    terms.client = wait.client;
    terms.waited_ms = &wait.waited_ms;
    const WorkerPool::Waiting waiting;
    TACTUS_ASSIGN_OR_RETURN(const DeepCalls::End end, calls_.Run(call, terms));
    left->store(end == DeepCalls::End::kStopped || end == DeepCalls::End::kTooLong);
    wait.over = wait.waited_ms >= limits().compile_ms;
    switch (end) {
      case DeepCalls::End::kDone:
        break;
      case DeepCalls::End::kNeedless:
        return Known(std::move(kept), refused);
      case DeepCalls::End::kStopped:
        return Status(StatusCode::kCancelled, "stopped");
      case DeepCalls::End::kNoPlace:
        return Status(StatusCode::kResourceExhausted,
                      fmt::format("{}: other rules were being compiled for {} s; try again later", RuleName(rule.kind),
                                  limits().compile_ms / 1000));
      case DeepCalls::End::kTooLong:
        return TooLongToCompile(rule.kind, limits().compile_ms);
    }
    if (!compiled->status.ok()) return compiled->status;
    return std::shared_ptr<const TokenGrammar>(compiled->grammar);
  }

  Status CheckRoom(const TokenGrammar& grammar, int64_t answers) const override {
    const auto* const own = dynamic_cast<const Grammar*>(&grammar);
    if (own == nullptr) return Status();
    const RuleMemory& memory = own->memory();
    const int64_t bytes = own->start_bytes() * answers;
    if (bytes <= memory.left()) return Status();
    // The compiled rule itself keeps its memory beside them.
    const int64_t ever = memory.limit() - own->start_bytes();
    const bool never = bytes > ever;
    return Status(
        never ? StatusCode::kInvalidArgument : StatusCode::kResourceExhausted,
        fmt::format(
            "{} states of this rule take {:.1f} MiB of memory, and the rules of all answers have {:.1f}{}; {}", answers,
            static_cast<double>(bytes) / kMiB,
            static_cast<double>(never ? std::max<int64_t>(0, ever) : std::max<int64_t>(0, memory.left())) / kMiB,
            never ? "" : " left",
            never ? "ask for fewer choices (n), or make it simpler" : "try again later, or ask for fewer choices"),
        never ? "n" : "");
  }

  pid_t helper() const override { return compiler_->trials.helper(); }
  int64_t memory_in_use() const override { return compiler_->memory->used(); }

 private:
  static Result<std::shared_ptr<const TokenGrammar>> Known(std::shared_ptr<const TokenGrammar> kept,
                                                           const std::optional<Status>& refused) {
    if (kept != nullptr) return kept;
    return *refused;
  }

  static constexpr double kMiB = 1 << 20;
  const GrammarLimits& limits() const { return compiler_->limits; }

  const std::shared_ptr<Compiler> compiler_;  // shared with abandoned compilations
  DeepCalls calls_;
  Trimmer trimmer_;
};

}  // namespace

const char* RuleName(OutputRule::Kind kind) {
  switch (kind) {
    case OutputRule::Kind::kNone:
      break;
    case OutputRule::Kind::kJsonObject:
      return "json_object";
    case OutputRule::Kind::kJsonSchema:
      return "json_schema";
    case OutputRule::Kind::kRegex:
      return "regex";
    case OutputRule::Kind::kLark:
      return "lark";
  }
  TACTUS_CHECK(false);
}

Result<std::unique_ptr<GrammarEngine>> GrammarEngine::Create(Vocabulary vocabulary, const GrammarLimits& limits) {
  TACTUS_ASSIGN_OR_RETURN(const LlgFunctions* llg, LoadLlguidance());
  auto compiler = std::make_shared<Compiler>(limits, vocabulary, *llg);
  (void)compiler->trials.Start();  // each rule reports a failure; the process prepares in parallel with the following
  TACTUS_ASSIGN_OR_RETURN(compiler->vocabulary, LlgVocabulary::Make(llg, std::move(vocabulary)));
  return std::unique_ptr<GrammarEngine>(std::make_unique<LlguidanceEngine>(std::move(compiler)));
}

}  // namespace tactus::language
