// Predicts from past outputs: running averages of output length over all requests, over prompts of about the same
// length, over one client's requests and over the nodes of the prefix tree on the prompt's path.
//
// They are combined from the general to the specific. Each average of n observations is shrunk towards the estimate so
// far, which weighs as kPriorWeight observations: estimate = (n * mean + kPriorWeight * estimate) / (n + kPriorWeight).
// So a client or prefix without observations changes nothing, and one with many decides. n is at most kWindow, so that
// an average follows changes. Prefix nodes are those at depths 1, 2, 4, ... blocks: the node of a system prompt is
// found for any continuation, and a request updates at most kDepths nodes.
//
// Clients and prefixes are stored in tables of limited size. Each has its own entry while there is room. In a full
// table every output of a new owner halves the weight of one entry, round robin, and replaces the entry when its weight
// reaches 0. The replaced entry follows from the order of outputs and not from the keys, whose secret a server draws at
// each start: equal runs give equal predictions. Outputs that were cut off (cancel, error) say little about the length
// and are ignored.
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "base/growing_vector.h"
#include "core/predict/predictor.h"

namespace tactus::core {
namespace {

constexpr double kFirstGuess = 256;  // tokens, before the first observation; capped by the request's max_tokens
constexpr int32_t kPriorWeight = 4;
constexpr int32_t kWindow = 128;
constexpr size_t kClients = size_t{1} << 12;
constexpr size_t kPrefixes = size_t{1} << 15;
constexpr int kDepths = 12;             // up to 2048 blocks deep
constexpr int kLengthClasses = 4 * 32;  // four per octave of prompt length

struct Average {
  uint64_t owner = 0;
  double mean = 0;
  int32_t count = 0;

  void Add(double tokens) {
    count = count < kWindow ? count + 1 : kWindow;
    mean += (tokens - mean) / count;
  }
  double Pull(double estimate) const { return (count * mean + kPriorWeight * estimate) / (count + kPriorWeight); }
};

// Averages by owner; the file comment describes a full table. Most lookups miss: a table of short tags (linear probing,
// backward-shift deletion, at most half full) answers these without reading the entries.
class Table {
 public:
  // `lean`: the tags grow with the owners; else nothing allocates after construction.
  Table(size_t size, bool lean) : most_(size) {
    MakeTags(lean ? kFirstTags : std::bit_ceil(2 * size));
    places_.reserve(size);
  }
  void Add(uint64_t owner, double tokens) {
    if (const size_t at = Find(owner); tags_[at] != kEmpty) return places_[place_at_[at]].Add(tokens);
    size_t place = places_.size();
    if (place < most_) {
      places_.emplace_back();
      if (2 * places_.size() > tags_.size()) Grow();
    } else {
      place = hand_;
      hand_ = hand_ + 1 == most_ ? 0 : hand_ + 1;
      if ((places_[place].count /= 2) > 0) return;
      Erase(places_[place].owner);
    }
    places_[place] = {.owner = owner, .mean = 0, .count = 0};
    places_[place].Add(tokens);
    File(place);
  }
  double Pull(uint64_t owner, double estimate) const {
    const size_t at = Find(owner);
    return tags_[at] != kEmpty ? places_[place_at_[at]].Pull(estimate) : estimate;
  }

 private:
  static constexpr uint16_t kEmpty = 0;
  static constexpr size_t kFirstTags = 128;  // of a lean table; a power of two, which doubles as owners come

  void MakeTags(size_t count) {
    tags_.assign(count, kEmpty);
    place_at_ = std::make_unique_for_overwrite<uint32_t[]>(count);
    mask_ = count - 1;
  }
  void File(size_t place) {
    const uint64_t owner = places_[place].owner;
    const size_t at = Find(owner);
    tags_[at] = TagOf(owner);
    place_at_[at] = static_cast<uint32_t>(place);
  }
  // Doubles the table of tags. The last of places_ is not filed yet.
  void Grow() {
    MakeTags(2 * tags_.size());
    for (size_t place = 0; place + 1 < places_.size(); ++place) File(place);
  }
  static uint64_t Mixed(uint64_t owner) { return owner * 0x9e3779b97f4a7c15; }
  static uint16_t TagOf(uint64_t owner) { return static_cast<uint16_t>(Mixed(owner) >> 48) | 1; }
  size_t Home(uint64_t owner) const { return static_cast<size_t>(Mixed(owner) >> 20) & mask_; }
  // The index of the owner's tag, or of the empty place for it.
  size_t Find(uint64_t owner) const {
    const uint16_t tag = TagOf(owner);
    size_t at = Home(owner);
    while (tags_[at] != kEmpty && (tags_[at] != tag || places_[place_at_[at]].owner != owner)) at = (at + 1) & mask_;
    return at;
  }
  void Erase(uint64_t owner) {
    size_t hole = Find(owner);
    for (size_t at = (hole + 1) & mask_; tags_[at] != kEmpty; at = (at + 1) & mask_) {
      const size_t distance = (at - Home(places_[place_at_[at]].owner)) & mask_;
      if (distance < ((at - hole) & mask_)) continue;
      tags_[hole] = tags_[at];
      place_at_[hole] = place_at_[at];
      hole = at;
    }
    tags_[hole] = kEmpty;
  }

  const size_t most_;
  size_t mask_ = 0;
  size_t hand_ = 0;  // the next entry to halve
  std::vector<Average> places_;
  std::vector<uint16_t> tags_;            // kEmpty: none
  std::unique_ptr<uint32_t[]> place_at_;  // index in places_, where there is a tag
};

int LengthClass(int32_t prompt_tokens) {
  const auto n = static_cast<uint32_t>(prompt_tokens < 1 ? 1 : prompt_tokens);
  int octave = 31;
  while ((n >> octave) == 0) --octave;
  const uint32_t quarter = octave >= 2 ? (n >> (octave - 2)) & 3 : (n << (2 - octave)) & 3;
  return octave * 4 + static_cast<int>(quarter);
}

class History final : public LengthPredictor {
 public:
  explicit History(const PredictorOptions& options)
      : slots_(RoomFor<std::vector<Features>>(static_cast<size_t>(options.slot_capacity))),
        by_length_(kLengthClasses),
        clients_(kClients, options.lean),
        prefixes_(kPrefixes, options.lean) {}
  const char* name() const override { return kUsualPredictor; }
  bool learns() const override { return true; }

  void Bind(SlotId slot, const PredictionFeatures& features) override {
    MakeUpTo(&slots_, static_cast<size_t>(slot));
    Features& f = slots_[static_cast<size_t>(slot)];
    f.length_class = LengthClass(features.prompt_tokens);
    f.most = features.max_output_tokens;
    f.client = features.client;
    f.estimated_after = -1;
    f.depths = 0;
    for (size_t depth = 1; depth <= features.prefix_keys.size() && f.depths < kDepths; depth *= 2) {
      f.prefix[f.depths++] = features.prefix_keys[depth - 1].low;
    }
  }

  void Ended(SlotId slot, int32_t output_tokens, bool cut_off) override {
    if (cut_off) return;
    const Features& f = slots_[static_cast<size_t>(slot)];
    const auto tokens = static_cast<double>(output_tokens);
    ++answers_;
    all_.Add(tokens);
    by_length_[static_cast<size_t>(f.length_class)].Add(tokens);
    if (f.client != 0) clients_.Add(f.client, tokens);
    for (int i = 0; i < f.depths; ++i) prefixes_.Add(f.prefix[i], tokens);
  }

  int32_t PredictOutputTokens(SlotId slot, int32_t attempt) const override {
    const Features& f = slots_[static_cast<size_t>(slot)];
    if (f.estimated_after != answers_) {
      f.estimate = std::llround(Estimate(f));
      f.estimated_after = answers_;
    }
    return GrownPrediction(f.estimate, attempt, f.most);
  }

 private:
  struct Features {
    int length_class = 0;
    int32_t most = 1;
    uint64_t client = 0;
    int depths = 0;
    uint64_t prefix[kDepths] = {};  // shallow first
    // Cached, because policies predict for the same sequence many times between two outputs.
    mutable int64_t estimate = 0;
    mutable int64_t estimated_after = -1;  // answers_ at the estimate; -1: none yet
  };
  double Estimate(const Features& f) const {
    double estimate = by_length_[static_cast<size_t>(f.length_class)].Pull(all_.Pull(kFirstGuess));
    if (f.client != 0) estimate = clients_.Pull(f.client, estimate);
    for (int i = 0; i < f.depths; ++i) estimate = prefixes_.Pull(f.prefix[i], estimate);
    return estimate;
  }

  std::vector<Features> slots_;  // up to the highest slot that was ever bound, with room for all
  int64_t answers_ = 0;          // counted so far
  Average all_;
  std::vector<Average> by_length_;  // [kLengthClasses]
  Table clients_, prefixes_;
};

}  // namespace

std::unique_ptr<LengthPredictor> MakeHistory(const PredictorOptions& options) {
  return std::make_unique<History>(options);
}

}  // namespace tactus::core
