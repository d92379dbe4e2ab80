// Delivery fed with hand-made events: text, stop strings, order, usage. No engine, no model: one token per byte.
#include "engine/delivery.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "base/rng.h"
#include "core/seq/stop_matcher.h"

namespace tactus::engine {
namespace {

constexpr TokenId kEndToken = 256;    // special
constexpr TokenId kFirstPiece = 257;  // and following ids: the given pieces

// Token ids 0 to 255 are bytes, then comes one special token, then pieces of several bytes.
class ByteTokenizer final : public language::Tokenizer {
 public:
  explicit ByteTokenizer(const std::vector<std::string>& pieces = {}, bool strips_leading_space = false)
      : strips_leading_space_(strips_leading_space) {
    for (int b = 0; b < 256; ++b) bytes_.push_back(std::string(1, static_cast<char>(b)));
    bytes_.push_back("<end>");
    bytes_.insert(bytes_.end(), pieces.begin(), pieces.end());
  }
  std::vector<TokenId> Encode(std::string_view text, bool, bool, StopToken) const override {
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  int64_t LeastTokens(std::string_view) const override { return 0; }
  std::string Decode(std::span<const TokenId> ids, bool) const override {
    std::string text;
    for (const TokenId id : ids) text += TokenBytes(id);
    return text;
  }
  std::string_view TokenBytes(TokenId id) const override { return bytes_[static_cast<size_t>(id)]; }
  std::string_view TokenText(TokenId id) const override { return TokenBytes(id); }
  bool IsSpecial(TokenId id) const override { return id == kEndToken; }
  int32_t vocab_size() const override { return static_cast<int32_t>(bytes_.size()); }
  TokenId bos_id() const override { return -1; }
  TokenId eos_id() const override { return kEndToken; }
  TokenId FindToken(std::string_view) const override { return -1; }
  std::string FirstTokenBytes(TokenId id) const override {
    const std::string_view bytes = TokenBytes(id);
    return std::string(bytes.substr(strips_leading_space_ && bytes.starts_with(' ')));
  }

 private:
  std::vector<std::string> bytes_;
  const bool strips_leading_space_;
};

class Recorder : public ResponseSink {
 public:
  void OnDelta(const TokenDelta& delta) override { deltas.push_back(delta); }
  void OnPromptLogprobs(const std::vector<std::vector<TokenLogprob>>& rows) override {
    EXPECT_FALSE(rows.empty());
    prompt_rows.insert(prompt_rows.end(), rows.begin(), rows.end());
  }
  void OnDone(const Usage& u) override {
    usage = u;
    ++done;
  }
  std::string Text(int32_t choice = 0) const {
    std::string text;
    for (const TokenDelta& d : deltas) {
      if (d.choice == choice) text += d.text;
    }
    return text;
  }
  std::vector<TokenDelta> deltas;
  std::vector<std::vector<TokenLogprob>> prompt_rows;
  Usage usage;
  int done = 0;
};

// Plays the step loop's events of a request; read the sinks after Close.
class Feed {
 public:
  explicit Feed(const std::vector<std::string>& pieces = {}, bool strips_leading_space = false)
      : tokenizer_(pieces, strips_leading_space), delivery_(std::make_unique<Delivery>(&tokenizer_)) {}

  void* Open(std::vector<std::string> stops, std::shared_ptr<Recorder> sink, int32_t n = 1,
             std::vector<TokenId> prompt = {}) {
    auto request = std::make_shared<Request>();
    if (!prompt.empty()) request->prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
    request->stop.stop = std::move(stops);
    request->n = n;
    request_ = request;
    return delivery_->Register(request, std::move(sink));
  }
  void Token(void* user, TokenId token, FinishReason finish = FinishReason::kNone, int32_t stop_string = -1,
             int32_t choice = 0) {
    core::TokenEvent event;
    event.user = user;
    event.choice = choice;
    event.token = token;
    event.finish = finish;
    event.stop_string = stop_string;
    core::StepEvents events;
    events.tokens = {&event, 1};
    delivery_->OnStep(events);
  }
  // All events of a one-choice answer, ended as the step loop would end it.
  void Answer(void* user, const std::string& bytes, const std::vector<std::string>& stops) {
    std::vector<TokenId> tokens;
    for (const char c : bytes) tokens.push_back(static_cast<unsigned char>(c));
    AnswerTokens(user, tokens, stops);
  }
  void AnswerTokens(void* user, const std::vector<TokenId>& tokens, const std::vector<std::string>& stops,
                    size_t min_tokens = 0) {
    core::StopMatcher matcher(&stops);
    for (size_t i = 0; i < tokens.size(); ++i) {
      int hit = matcher.Append(tokenizer_.TokenBytes(tokens[i]));
      if (i + 1 < min_tokens) hit = -1;
      const bool last = i + 1 == tokens.size();
      Token(user, tokens[i], hit >= 0 ? FinishReason::kStop : last ? FinishReason::kLength : FinishReason::kNone, hit);
      if (hit >= 0) break;
    }
    Done(user);
  }
  void Done(void* user, Usage usage = {}) {
    core::RequestDoneEvent done;
    done.user = user;
    done.prompt_tokens = static_cast<int32_t>(usage.prompt_tokens);
    done.cached_tokens = static_cast<int32_t>(usage.cached_tokens);
    done.completion_tokens = static_cast<int32_t>(usage.completion_tokens);
    core::StepEvents events;
    events.done = {&done, 1};
    delivery_->OnStep(events);
  }
  void Close() { delivery_.reset(); }  // delivers the remaining events
  Delivery& delivery() { return *delivery_; }

 private:
  ByteTokenizer tokenizer_;
  std::unique_ptr<Delivery> delivery_;
  std::shared_ptr<const Request> request_;
};

TEST(Delivery, TextIsWholeCharactersOnly) {
  Feed feed;
  auto sink = std::make_shared<Recorder>();
  feed.Answer(feed.Open({}, sink), "a\xc3\xa9\xf0\x9f\x98\x80z", {});
  feed.Close();
  ASSERT_EQ(sink->deltas.size(), 8u);
  EXPECT_EQ(sink->deltas[1].text, "");
  EXPECT_EQ(sink->deltas[2].text, "\xc3\xa9");
  EXPECT_EQ(sink->deltas[6].text, "\xf0\x9f\x98\x80");
  EXPECT_EQ(sink->Text(), "a\xc3\xa9\xf0\x9f\x98\x80z");
  EXPECT_EQ(sink->done, 1);
}

TEST(Delivery, AnUnfinishedCharacterEndsAsReplacement) {
  Feed feed;
  auto sink = std::make_shared<Recorder>();
  feed.Answer(feed.Open({}, sink), "a\xf0\x9f", {});
  feed.Close();
  EXPECT_EQ(sink->Text(), "a\xef\xbf\xbd");
}

TEST(Delivery, WithholdsWhatMayBecomeAStopString) {
  Feed feed;
  auto sink = std::make_shared<Recorder>();
  const std::vector<std::string> stops = {"END"};
  feed.Answer(feed.Open(stops, sink), "xENxEND", stops);
  feed.Close();
  EXPECT_EQ(sink->deltas[0].text, "x");
  EXPECT_EQ(sink->deltas[1].text, "");     // E
  EXPECT_EQ(sink->deltas[2].text, "");     // EN
  EXPECT_EQ(sink->deltas[3].text, "ENx");  // no stop after all
  EXPECT_EQ(sink->Text(), "xENx");
  EXPECT_EQ(sink->deltas.back().stop_string, "END");
  EXPECT_EQ(sink->deltas.back().finish, FinishReason::kStop);
}

TEST(Delivery, WithheldTextIsDeliveredWhenTheAnswerEndsOtherwise) {
  Feed feed;
  auto sink = std::make_shared<Recorder>();
  const std::vector<std::string> stops = {"END"};
  feed.Answer(feed.Open(stops, sink), "theEN", stops);
  feed.Close();
  EXPECT_EQ(sink->Text(), "theEN");
  EXPECT_EQ(sink->deltas.back().finish, FinishReason::kLength);
}

TEST(Delivery, AStopTokenAddsNoText) {
  Feed feed;
  auto sink = std::make_shared<Recorder>();
  void* user = feed.Open({}, sink);
  feed.Token(user, 'h');
  feed.Token(user, '!', FinishReason::kStop);
  feed.Done(user);
  feed.Close();
  EXPECT_EQ(sink->Text(), "h");
  EXPECT_EQ(sink->deltas.back().tokens, std::vector<TokenId>{'!'});
}

// A part of the text is lost, so later tokens must not be delivered.
TEST(Delivery, AnAnswerThatRunsOutOfMemoryEndsWithAnError) {
  struct Short final : Recorder {
    void OnDelta(const TokenDelta& delta) override {
      if (deltas.size() == 1) {
        deltas.push_back({});
        throw std::bad_alloc();
      }
      Recorder::OnDelta(delta);
    }
  };
  Feed feed;
  const auto sink = std::make_shared<Short>();
  const auto other = std::make_shared<Recorder>();
  void* const user = feed.Open({}, sink, 2);
  void* const beside = feed.Open({}, other);
  feed.Token(user, 'a');
  feed.Token(user, 'b');
  feed.Token(user, 'c', FinishReason::kLength);
  feed.Token(user, 'd', FinishReason::kLength, -1, 1);
  feed.Done(user);
  feed.Token(beside, 'e', FinishReason::kLength);
  feed.Done(beside);
  feed.Close();
  ASSERT_EQ(sink->deltas.size(), 4u) << "a token, the lost delta, and an error for each choice";
  for (const int i : {0, 1}) {
    const TokenDelta& last = sink->deltas[static_cast<size_t>(2 + i)];
    EXPECT_EQ(last.choice, i);
    EXPECT_EQ(last.finish, FinishReason::kError);
    EXPECT_EQ(last.error.message(), "there is no memory for this answer; try again later");
  }
  EXPECT_EQ(sink->done, 1);
  EXPECT_EQ(other->Text(), "e");
  EXPECT_EQ(other->done, 1);
}

TEST(Delivery, ChoicesKeepTheirOwnTextAndOrder) {
  Feed feed;
  auto sink = std::make_shared<Recorder>();
  void* user = feed.Open({"!!"}, sink, 2);
  for (const char* step : {"ab", "c!", "!d"}) {  // byte i is choice i's; neither sees the other's "!"
    feed.Token(user, static_cast<unsigned char>(step[0]), FinishReason::kNone, -1, 0);
    feed.Token(user, static_cast<unsigned char>(step[1]), FinishReason::kNone, -1, 1);
  }
  feed.Token(user, 'x', FinishReason::kLength, -1, 1);
  feed.Token(user, 'y', FinishReason::kLength, -1, 0);
  feed.Done(user, {5, 4, 8});
  feed.Close();
  EXPECT_EQ(sink->Text(0), "ac!y");
  EXPECT_EQ(sink->Text(1), "b!dx");
  EXPECT_EQ(sink->usage.prompt_tokens, 5);
  EXPECT_EQ(sink->usage.cached_tokens, 4);
  EXPECT_EQ(sink->usage.completion_tokens, 8);
}

TEST(Delivery, RepeatedPromptRowsAreDeliveredOnce) {
  Feed feed;
  auto sink = std::make_shared<Recorder>();
  void* user = feed.Open({}, sink);
  const auto rows = [](int32_t first, int32_t count) {
    core::PromptLogprobsEvent event;
    event.first_row = first;
    for (int32_t i = 0; i < count; ++i) event.rows.push_back({{first + i, -1.0f}});
    return event;
  };
  for (core::PromptLogprobsEvent event :
       {rows(0, 3), rows(0, 2), rows(0, 3), rows(2, 4), rows(6, 1)}) {  // preempted after 3
    event.user = user;
    core::StepEvents events;
    events.prompt_logprobs = {&event, 1};
    feed.delivery().OnStep(events);
  }
  feed.Token(user, 'a', FinishReason::kLength);
  feed.Done(user);
  feed.Close();
  ASSERT_EQ(sink->prompt_rows.size(), 7u);
  for (int32_t i = 0; i < 7; ++i) EXPECT_EQ(sink->prompt_rows[static_cast<size_t>(i)][0].token, i);
}

TEST(Delivery, AForgottenRequestIsNeverCalled) {
  auto sink = std::make_shared<Recorder>();
  {
    Feed feed;
    feed.delivery().Forget(feed.Open({}, sink));
  }
  EXPECT_EQ(sink.use_count(), 1);
  EXPECT_EQ(sink->done, 0);
}

// For random texts and stops: the delivered text is the text before the first stop to end, and nothing was delivered
// that would have had to be withdrawn.
TEST(Delivery, NoStopStringEverLeaks) {
  Rng rng(3);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::string> stops;
    for (int64_t i = rng.UniformInt(1, 3); i > 0; --i) {
      std::string stop;
      for (int64_t k = rng.UniformInt(1, 4); k > 0; --k)
        stop += rng.UniformInt(0, 3) == 0 ? "\xc3\xa9" : rng.UniformInt(0, 1) ? "a" : "b";
      stops.push_back(stop);
    }
    std::string text;
    for (int64_t k = rng.UniformInt(1, 30); k > 0; --k)
      text += rng.UniformInt(0, 4) == 0 ? "\xc3\xa9" : rng.UniformInt(0, 1) ? "a" : "b";
    size_t end = std::string::npos, begin = text.size();
    for (const std::string& stop : stops) {  // the first to end; of those, the first to begin
      const size_t at = text.find(stop);
      if (at == std::string::npos) continue;
      if (at + stop.size() < end || (at + stop.size() == end && at < begin)) {
        end = at + stop.size();
        begin = at;
      }
    }
    Feed feed;
    auto sink = std::make_shared<Recorder>();
    feed.Answer(feed.Open(stops, sink), text, stops);
    feed.Close();
    EXPECT_EQ(sink->Text(), text.substr(0, begin)) << text << " round " << round;
    if (HasFailure()) break;
  }
}

// The sink of an answer of these tokens.
std::shared_ptr<Recorder> Answered(const std::vector<std::string>& pieces, const std::vector<TokenId>& tokens,
                                   const std::vector<std::string>& stops, size_t min_tokens = 0) {
  Feed feed(pieces);
  auto sink = std::make_shared<Recorder>();
  feed.AnswerTokens(feed.Open(stops, sink), tokens, stops, min_tokens);
  feed.Close();
  return sink;
}

// "xxENDyy" cut into tokens in every way, with every min_tokens: the text ends before the stop if the token that
// completes the stop is the min_tokens-th or later, even if the stop began earlier; otherwise no text is lost.
TEST(Delivery, AStopThatBeganBeforeMinTokensDoesNotLeak) {
  const std::string text = "xxENDyy";
  for (unsigned cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    std::vector<std::string> pieces(1);
    size_t stop_token = 0;  // number of the token in which the stop ends, from 1
    for (size_t i = 0; i < text.size(); ++i) {
      pieces.back() += text[i];
      if (i == 4) stop_token = pieces.size();
      if ((cuts >> i & 1) != 0 && i + 1 < text.size()) pieces.emplace_back();
    }
    std::vector<TokenId> tokens;
    for (size_t i = 0; i < pieces.size(); ++i) tokens.push_back(kFirstPiece + static_cast<TokenId>(i));
    for (size_t min_tokens = 0; min_tokens <= pieces.size(); ++min_tokens) {
      const auto sink = Answered(pieces, tokens, {"END"}, min_tokens);
      const bool stops = stop_token >= min_tokens;
      ASSERT_EQ(sink->Text(), stops ? "xx" : text) << "cuts " << cuts << ", min_tokens " << min_tokens;
      ASSERT_EQ(sink->deltas.back().stop_string, stops ? "END" : "")
          << "cuts " << cuts << ", min_tokens " << min_tokens;
    }
  }
}

// The first END comes before min_tokens and is withheld as the beginning of ENDLESS: it is text.
TEST(Delivery, AStopBeforeMinTokensIsTextEvenWhileItIsHeldBack) {
  const std::vector<TokenId> tokens = {'a', 'E', 'N', 'D', 'E', 'N', 'D', 'z'};
  EXPECT_EQ(Answered({}, tokens, {"END", "ENDLESS"}, 6)->Text(), "aEND");
  EXPECT_EQ(Answered({}, tokens, {"END", "ENDLESS"}, 4)->Text(), "a");
  EXPECT_EQ(Answered({}, tokens, {"END", "ENDLESS"}, 8)->Text(), "aENDENDz");
  EXPECT_EQ(Answered({}, {'a', 'a', 'a', 'b'}, {"aa"}, 3)->Text(), "a");  // overlaps the occurrence that did not count
  // The first "b" is withheld as the beginning of "abbc", and is text.
  EXPECT_EQ(Answered({}, {'a', 'b', 'b'}, {"b", "abbc"}, 3)->Text(), "ab");
}

// The special token is not text, but its bytes end a stop string: the withheld part of that stop must not be delivered,
// but text withheld for another stop must.
TEST(Delivery, AStopInBytesThatAreNoTextLeaksNothing) {
  EXPECT_EQ(Answered({}, {'h', 'i', 'd', kEndToken}, {"d<end>"})->Text(), "hi");
  EXPECT_EQ(Answered({}, {'h', 'i', 'd', kEndToken}, {"d<end>"})->deltas.back().stop_string, "d<end>");
  EXPECT_EQ(Answered({}, {'h', 'i', kEndToken}, {"<end>"})->Text(), "hi");
  EXPECT_EQ(Answered({}, {'h', '\n', kEndToken}, {"<end>", "\n\n"})->Text(), "h\n");
}

TEST(Delivery, AStopAfterBytesThatAreNoCharacterIsFound) {
  EXPECT_EQ(Answered({}, {'a', 0xf0, 'E', 'N', 'D'}, {"END"})->Text(), "a\xef\xbf\xbd");
  EXPECT_EQ(Answered({"\xf0\x9f"
                      "EN"},
                     {'a', kFirstPiece, 'D'}, {"END"})
                ->Text(),
            "a\xef\xbf\xbd");
  EXPECT_EQ(Answered({}, {'a', 0xe2, 0xc3, 0xa9}, {"\xc3\xa9"})->Text(), "a\xef\xbf\xbd");
  // The stop is not text itself: no text of the last token is delivered.
  EXPECT_EQ(Answered({}, {'a', 'b', 0xff}, {"b\xff"})->Text(), "a");
}

TEST(Delivery, AnAnswerContinuesItsPromptsText) {
  for (const bool strips : {true, false}) {
    struct Case {
      std::vector<TokenId> prompt;
      bool at_start;
    };
    for (const Case& c : {Case{{'p'}, false}, Case{{kEndToken, 'p'}, false}, Case{{'p', kEndToken}, false},
                          Case{{kEndToken}, true}, Case{{kEndToken, kEndToken}, true}, Case{{}, true}}) {
      Feed feed({" hi", " you"}, strips);
      auto sink = std::make_shared<Recorder>();
      feed.AnswerTokens(feed.Open({}, sink, 1, c.prompt), {kFirstPiece, kFirstPiece + 1}, {});
      feed.Close();
      EXPECT_EQ(sink->Text(), strips && c.at_start ? "hi you" : " hi you") << c.prompt.size() << " prompt tokens";
    }
  }
}

TEST(Delivery, AStopThatBeginsWithTheSpaceThatIsNoTextLeaksNothing) {
  Feed feed({" hi", "x"}, true);
  auto sink = std::make_shared<Recorder>();
  feed.AnswerTokens(feed.Open({" hi"}, sink, 1, {kEndToken}), {kFirstPiece}, {" hi"});
  feed.Close();
  EXPECT_EQ(sink->Text(), "");
  EXPECT_EQ(sink->deltas.back().finish, FinishReason::kStop);
}

TEST(Delivery, AStopIdsLogprobsAndErrorsGoWithTheirToken) {
  Feed feed;
  auto sink = std::make_shared<Recorder>();
  void* user = feed.Open({}, sink);
  core::TokenEvent tokens[2];
  tokens[0].user = tokens[1].user = user;
  tokens[0].token = 'a';
  tokens[0].logprobs = 0;
  tokens[1].finish = FinishReason::kError;
  tokens[1].error = 0;
  const std::vector<TokenLogprob> row = {{'a', -0.25f}, {'b', -2.0f}};
  const Status error = Internal("broken");
  core::StepEvents events;
  std::vector<std::vector<TokenLogprob>> rows = {row};
  std::vector<Status> errors = {error};
  events.tokens = tokens;
  events.logprobs = rows;
  events.errors = errors;
  feed.delivery().OnStep(events);
  feed.Done(user);
  feed.Close();
  ASSERT_EQ(sink->deltas.size(), 2u);
  ASSERT_EQ(sink->deltas[0].logprobs.size(), 1u);
  ASSERT_EQ(sink->deltas[0].logprobs[0].size(), 2u);
  EXPECT_EQ(sink->deltas[0].logprobs[0][1].token, 'b');
  EXPECT_TRUE(sink->deltas[0].error.ok());
  EXPECT_TRUE(sink->deltas[1].logprobs.empty());
  EXPECT_TRUE(sink->deltas[1].tokens.empty());  // an end without a token
  EXPECT_EQ(sink->deltas[1].error.message(), "broken");
  EXPECT_EQ(sink->deltas[1].finish, FinishReason::kError);
}

TEST(Delivery, AnEndWithoutATokenDeliversWithheldText) {
  Feed feed;
  auto sink = std::make_shared<Recorder>();
  void* user = feed.Open({"END"}, sink);
  feed.Token(user, 'E');
  feed.Token(user, 0xf0);
  feed.Token(user, -1, FinishReason::kCancelled);
  feed.Done(user);
  feed.Close();
  EXPECT_EQ(sink->Text(), "E\xef\xbf\xbd");
  EXPECT_EQ(sink->deltas.back().finish, FinishReason::kCancelled);
}

TEST(Delivery, WaitUntilEmptyReturnsAtOnceWithoutRequests) {
  ByteTokenizer tokenizer;
  Delivery delivery(&tokenizer);
  delivery.OnStep(core::StepEvents());
  delivery.WaitUntilEmpty();
}

TEST(Delivery, WithheldLengthIsTheLongestProperPrefixOfAStop) {
  EXPECT_EQ(WithheldLength("abcab", {"abd"}), 2u);
  EXPECT_EQ(WithheldLength("aaa", {"aaaa", "ab"}), 3u);
  EXPECT_EQ(WithheldLength("abd", {"abd"}), 0u);  // a complete stop is decided elsewhere
  EXPECT_EQ(WithheldLength("", {"abd"}), 0u);
  EXPECT_EQ(WithheldLength("xyz", {"abd"}), 0u);
}

}  // namespace
}  // namespace tactus::engine
