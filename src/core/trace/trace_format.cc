#include "core/trace/trace_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "base/printable.h"
#include "tactus/version.h"

namespace tactus::core {
namespace {

constexpr int64_t kMax32 = std::numeric_limits<int32_t>::max();

// Durations that all formats store in seconds, because the options once were numbers of seconds.
constexpr std::string_view kInSeconds[] = {"accelgen-ttft", "accelgen-tbt", "accelgen-gamma"};
constexpr double kMostSeconds = 9e9;  // the maximum of int64 nanoseconds is 9.2e9 s

// The knobs of the policies, under the names of their flags. Real numbers are stored as text that reads back to the
// same bits.
template <class Visitor>
struct PolicyFields {
  Visitor& v;
  void Group(const char*) {}
  void Field(const char* name, int64_t& value, const FieldSpec&) {
    v.Number(name, &value, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  }
  void Field(const char* name, bool& value, const FieldSpec& spec) {
    int64_t number = value ? 1 : 0;
    Field(name, number, spec);
    value = number != 0;
  }
  void Field(const char* name, DurationText& value, const FieldSpec& spec) {
    const auto in_seconds = [name](std::string_view knob) { return knob == name; };
    if (std::none_of(std::begin(kInSeconds), std::end(kInSeconds), in_seconds)) return Field(name, value.ns, spec);
    double seconds = static_cast<double>(value.ns) * 1e-9;
    Field(name, seconds, spec);
    value.ns = std::llround(std::clamp(seconds, -kMostSeconds, kMostSeconds) * 1e9);
  }
  void Field(const char* name, std::string& value, const FieldSpec&) { v.Text(name, &value); }
  void Field(const char* name, double& value, const FieldSpec&) {
    std::string text = fmt::format("{:.17g}", value);
    v.Text(name, &text);
    value = std::strtod(text.c_str(), nullptr);
  }
};

// The list of names for both writing and reading. `Visitor` has Number(name, int64&) and Text(name, string&).
template <class Visitor>
void VisitHeader(TraceHeader& h, Visitor& v, uint64_t version) {
  const auto number = [&v](const char* name, auto& field, int64_t low, int64_t high) {
    int64_t value = static_cast<int64_t>(field);
    v.Number(name, &value, low, high);
    field = static_cast<std::remove_reference_t<decltype(field)>>(value);
  };
  v.Text("version", &h.version);
  v.Text("started-with", &h.started_with);
  v.Text("scheduler", &h.scheduler.preset);
  v.Text("order", &h.scheduler.order);
  v.Text("admission", &h.scheduler.admission);
  v.Text("composition", &h.scheduler.composition);
  v.Text("budget", &h.scheduler.budget);
  v.Text("preemption", &h.scheduler.preemption);
  if (version >= 5) v.Text("gate", &h.scheduler.gate);
  v.Text("predictor", &h.scheduler.predictor);
  SchedulerLimits& s = h.scheduler.limits;
  number("max-num-seqs", s.max_num_seqs, 1, 1 << 20);
  number("pipeline-steps", s.pipeline_steps, 1, 1024);
  number("max-model-len", s.max_model_len, 2, kMax32);
  number("scheduler-slots", s.slot_capacity, 1, 1 << 20);
  number("token-budget", s.token_budget, 0, int64_t{1} << 40);
  number("tbt-slo-ns", s.tbt_slo_ns, kAutoDuration, std::numeric_limits<int64_t>::max());
  int64_t watermark_ppb = static_cast<int64_t>(s.watermark * 1e9 + 0.5);
  v.Number("watermark-ppb", &watermark_ppb, 0, 1000000000);
  s.watermark = static_cast<double>(watermark_ppb) / 1e9;
  number("reserve-full", s.reserve_full, 0, 1);
  number("unlimited-steps", s.unlimited_steps, 0, 1);
  if (version >= 4) v.Classes("service-classes", &s.classes);
  v.Knobs(&s.policy);
  number("kv-blocks", h.kv.num_blocks, 1, 1 << 24);
  number("block-size", h.kv.block_size, 1, 1 << 20);
  number("kv-slots", h.kv.max_slots, 1, 1 << 20);
  number("kv-blocks-per-slot", h.kv.max_blocks_per_slot, 1, kMax32);
  number("prefix-caching", h.kv.prefix_caching, 0, 1);
  number("swap-blocks", h.kv.swap_blocks, 0, 1 << 24);
  if (version >= 8) number("import-blocks", h.kv.import_blocks, 0, 1 << 24);
  number("slot-capacity", h.slot_capacity, 1, 1 << 20);
  number("max-errors-in-a-row", h.max_errors_in_a_row, 1, kMax32);
  number("max-in-flight", h.max_in_flight, 1, 255);
  number("can-chain", h.can_chain, 0, 1);
  if (version >= 3) number("max-draft-tokens", h.max_draft_tokens, 0, 1 << 10);
  if (version >= 10) number("guesses", h.guesses, 0, 1);
  number("step-tile-tokens", h.step_tile_tokens, 0, 1 << 20);
  v.Durations("step-times", &h.step_times);
}

struct Writer {
  TraceBytes* out;
  int64_t count = 0;
  void Number(const char* name, const int64_t* value, int64_t, int64_t) {
    PutString(name, out);
    PutSigned(*value, out);
    ++count;
  }
  void Durations(const char* name, const std::vector<DurationNs>* values) {
    PutString(name, out);
    PutVarint(values->size(), out);
    for (const DurationNs value : *values) PutSigned(value, out);
    ++count;
  }
  void Text(const char* name, const std::string* value) {
    PutString(name, out);
    PutString(*value, out);
    ++count;
  }
  void Classes(const char* name, const std::vector<ServiceClass>* classes) {
    PutString(name, out);
    PutVarint(classes->size(), out);
    for (const ServiceClass& c : *classes) PutString(TextOf(c), out);
    ++count;
  }
  void Knobs(PolicyOptions* policy) {
    PolicyFields<Writer> fields{*this};
    policy->VisitFields(fields);
  }
};

// Integer knobs that policies no longer have. Recordings with them stay readable: those of other policies replay
// identically, those of the policy itself report a difference.
constexpr std::string_view kRetiredKnobs[] = {"mlfq-queues"};

// The names are in the order of VisitHeader. The format's version fixes the list except for the knobs, which are those
// of the recording program, in any order. Knobs that it lacked get their default.
struct Reader {
  TraceCursor* in;
  Status status;
  std::string next;  // name that was read ahead; empty: none
  const std::string& Next() {
    if (next.empty()) next = in->String(64);
    return next;
  }
  bool Name(const char* name) {
    if (!status.ok()) return false;
    const std::string found = Next();
    next.clear();
    if (in->ok() && found == name) return true;
    status = DataLoss(fmt::format("trace header: expected '{}' at byte {}{}", name, in->offset(),
                                  in->ok() ? fmt::format(", found '{}'", Printable(found)) : ""));
    return false;
  }
  void Number(const char* name, int64_t* value, int64_t low, int64_t high) {
    if (!Name(name)) return;
    *value = in->Signed();
    if (!in->ok() || *value < low || *value > high) {
      status = DataLoss(fmt::format("trace header: {} is {}, outside [{}, {}]", name, *value, low, high));
      *value = low;
    }
  }
  void Durations(const char* name, std::vector<DurationNs>* values) {
    if (!Name(name)) return;
    const int64_t count = in->Bounded(0, 1 << 24);
    for (int64_t i = 0; i < count && in->ok(); ++i) values->push_back(in->Signed());
    if (!in->ok()) status = DataLoss(fmt::format("trace header: {} is cut off", name));
  }
  void Text(const char* name, std::string* value) {
    if (!Name(name)) return;
    *value = in->String(1 << 20);
    if (!in->ok()) status = DataLoss(fmt::format("trace header: {} is cut off", name));
  }
  void Classes(const char* name, std::vector<ServiceClass>* classes) {
    if (!Name(name)) return;
    std::vector<std::string> texts;
    const int64_t count = in->Bounded(0, kMostServiceClasses);
    for (int64_t i = 0; i < count && in->ok(); ++i) texts.push_back(in->String(512));
    auto parsed = ParseServiceClasses(texts);
    if (in->ok() && parsed.ok())
      *classes = std::move(parsed).value();
    else
      status = DataLoss(fmt::format("trace header: {}: {}", name, in->ok() ? parsed.status().message() : "cut off"));
  }
  void Knobs(PolicyOptions* policy) {
    KnobReader one{*this};
    do {
      one.found = false;
      policy->VisitFields(one);
      if (!one.found) one.found = SkipRetired();
    } while (one.found && status.ok());
  }
  bool SkipRetired() {
    if (!status.ok() ||
        std::find(std::begin(kRetiredKnobs), std::end(kRetiredKnobs), Next()) == std::end(kRetiredKnobs))
      return false;
    int64_t value = 0;
    const std::string name = Next();
    Number(name.c_str(), &value, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
    return true;
  }
  // Reads the value of the knob with the next name.
  struct KnobReader {
    Reader& reader;
    bool found = false;
    void Group(const char*) {}
    template <class T>
    void Field(const char* name, T& value, const FieldSpec& spec) {
      if (found || !reader.status.ok() || reader.Next() != name) return;
      found = true;
      PolicyFields<Reader> fields{reader};
      fields.Field(name, value, spec);
    }
  };
};

}  // namespace

TraceHeader MakeTraceHeader(Replica& replica, const ExecutorTraits& traits, std::string started_with) {
  TraceHeader h;
  h.version = Version();
  h.started_with = std::move(started_with);
  h.scheduler = replica.scheduler().config();
  h.scheduler.limits.predictor = nullptr;
  h.scheduler.limits.step_time = nullptr;
  if (RecordingStepTimes* step_times = replica.step_times(); step_times != nullptr) {
    h.step_tile_tokens = std::max(1, step_times->tile_tokens());
    h.step_times = step_times->answers();
    step_times->Clear();
  }
  h.kv = replica.kv_config();
  h.limits = replica.limits();
  h.slot_capacity = replica.config().slots();
  h.max_errors_in_a_row = replica.config().max_errors_in_a_row;
  h.max_in_flight = traits.max_in_flight;
  h.can_chain = traits.can_chain;
  h.max_draft_tokens = replica.config().max_draft_tokens;
  h.guesses = replica.config().guesses;
  return h;
}

ReplicaConfig ReplicaOf(const TraceHeader& header) {
  ReplicaConfig config;
  config.scheduler = header.scheduler;
  config.max_queue = std::numeric_limits<int32_t>::max() / 2;
  config.slot_capacity = header.slot_capacity;
  config.prefix_caching = header.kv.prefix_caching;
  config.import_blocks = std::min(header.kv.import_blocks, header.kv.swap_blocks);
  config.remember_evicted = true;
  config.max_errors_in_a_row = header.max_errors_in_a_row;
  config.max_draft_tokens = header.max_draft_tokens;
  config.guesses = header.guesses;
  return config;
}

void PutHeader(const TraceHeader& header, TraceBytes* out) {
  out->insert(out->end(), kTraceMagic, kTraceMagic + sizeof(kTraceMagic));
  PutVarint(kTraceVersion, out);
  TraceHeader copy = header;
  Writer writer{out};
  VisitHeader(copy, writer, kTraceVersion);
}

Result<TraceHeader> ReadHeader(TraceCursor* cursor) {
  char magic[8] = {};
  for (char& c : magic) c = static_cast<char>(cursor->Byte());
  if (!cursor->ok() || std::memcmp(magic, kTraceMagic, sizeof(magic)) != 0) return DataLoss("not a step trace");
  const uint64_t version = cursor->Varint();
  if (version < kOldestTraceVersion || version > kTraceVersion) {
    return DataLoss(fmt::format("trace format {}, this program reads formats {} to {}", version, kOldestTraceVersion,
                                kTraceVersion));
  }
  TraceHeader h;
  Reader reader{cursor, Status()};
  VisitHeader(h, reader, version);
  TACTUS_RETURN_IF_ERROR(reader.status);
  h.scheduler.limits.blocks_total = h.kv.num_blocks;
  h.scheduler.limits.swap_blocks = std::max<int64_t>(0, h.kv.swap_blocks - h.kv.import_blocks);
  h.scheduler.limits.block_size = h.kv.block_size;
  h.limits.max_model_len = h.scheduler.limits.max_model_len;
  h.limits.max_num_seqs = h.scheduler.limits.max_num_seqs;
  h.limits.block_size = h.kv.block_size;
  h.limits.blocks_total = h.kv.num_blocks;
  h.limits.prefix_caching = h.kv.prefix_caching;
  return h;
}

uint64_t TraceCursor::Varint() {
  uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t b = Byte();
    v |= static_cast<uint64_t>(b & 0x7f) << shift;
    if ((b & 0x80) == 0) return v;
  }
  Fail();
  return 0;
}

int64_t TraceCursor::Bounded(int64_t low, int64_t high) {
  const auto v = static_cast<int64_t>(Varint());
  if (v >= low && v <= high) return v;
  Fail();
  return low;
}

uint64_t TraceCursor::Fixed64() {
  uint64_t v = 0;
  if (!Has(8)) return 0;
  for (int i = 0; i < 8; ++i) v |= static_cast<uint64_t>(*at_++) << (8 * i);
  return v;
}

std::string TraceCursor::String(size_t limit) {
  const uint64_t size = Varint();
  if (size > limit || !Has(size)) {
    Fail();
    return {};
  }
  std::string s(reinterpret_cast<const char*>(at_), size);
  at_ += size;
  return s;
}

}  // namespace tactus::core
