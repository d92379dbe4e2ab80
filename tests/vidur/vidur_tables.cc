#include "vidur/vidur_tables.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/rng.h"

namespace tactus::vidur {
namespace {

// Rows of comma-separated fields under a header line that must match.
class CsvReader {
 public:
  CsvReader(std::string path, std::string_view text) : path_(std::move(path)), rest_(text) {}

  Status Header(std::string_view expected) {
    const std::string_view line = Line();
    return line == expected ? Status() : Fail(fmt::format("the header is '{}', not '{}'", line, expected));
  }
  // False at the end.
  bool Next(std::vector<std::string_view>* fields) {
    if (rest_.empty()) return false;
    fields->clear();
    std::string_view line = Line();
    for (size_t comma; (comma = line.find(',')) != std::string_view::npos; line.remove_prefix(comma + 1)) {
      fields->push_back(line.substr(0, comma));
    }
    fields->push_back(line);
    return true;
  }
  template <class T>
  bool Parse(std::string_view text, T* out) const {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
    return error == std::errc() && end == text.data() + text.size();
  }
  Status Fail(const std::string& what) const { return DataLoss(fmt::format("{}, line {}: {}", path_, line_, what)); }

 private:
  std::string_view Line() {
    ++line_;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }
  std::string path_;
  std::string_view rest_;
  int64_t line_ = 0;
};

// Parses "7:0:512 8:0:3" into triples; the last part of a restart is a letter.
bool ParseShares(const CsvReader& csv, std::string_view text, std::vector<Share>* shares,
                 std::vector<Restart>* restarts) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t first = item.find(':'), second = item.rfind(':');
    if (first == std::string_view::npos || second == first) return false;
    int32_t id = 0, middle = 0, last = 0;
    if (!csv.Parse(item.substr(0, first), &id) || !csv.Parse(item.substr(first + 1, second - first - 1), &middle))
      return false;
    const std::string_view tail = item.substr(second + 1);
    if (restarts != nullptr) {
      if (tail != "d" && tail != "p") return false;
      restarts->push_back({id, middle, tail == "d"});
    } else {
      if (!csv.Parse(tail, &last)) return false;
      shares->push_back({id, middle, last});
    }
  }
  return true;
}

}  // namespace

Result<std::string> ReadText(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");  // reads plain files as they are
  if (file == nullptr) return NotFound(fmt::format("cannot read '{}'", path));
  std::string text;
  char buffer[1 << 16];
  int got = 0;
  while ((got = gzread(file, buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(got));
  const bool closed = gzclose(file) == Z_OK;
  if (got < 0 || !closed) return DataLoss(fmt::format("'{}' is cut off or corrupt", path));
  return text;
}

Result<Tables> Tables::Load(const std::string& folder, int32_t layers) {
  Tables t;
  t.layers_ = layers;
  std::vector<std::string_view> f;
  {
    const std::string path = folder + "/table_ops_by_tokens.csv.gz";
    TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
    CsvReader csv(path, text);
    TACTUS_RETURN_IF_ERROR(
        csv.Header("tokens,input_layernorm,attn_pre_proj,attn_rope,attn_kv_cache_save,attn_post_proj,"
                   "post_attention_layernorm,mlp_up_proj,mlp_act,mlp_down_proj,add,all_reduce"));
    while (csv.Next(&f)) {
      int64_t tokens = 0;
      Operators o;
      double* const fields[] = {&o.input_layernorm, &o.attn_pre_proj,
                                &o.attn_rope,       &o.attn_kv_cache_save,
                                &o.attn_post_proj,  &o.post_attention_layernorm,
                                &o.mlp_up_proj,     &o.mlp_act,
                                &o.mlp_down_proj,   &o.add,
                                &o.all_reduce};
      bool ok =
          f.size() == 12 && csv.Parse(f[0], &tokens) && tokens == 8 * (static_cast<int64_t>(t.operators_.size()) + 1);
      for (size_t i = 0; ok && i < 11; ++i) ok = csv.Parse(f[i + 1], fields[i]);
      if (!ok) return csv.Fail("expected 8, 16, ... tokens and 11 times");
      t.operators_.push_back(o);
    }
  }
  {
    const std::string path = folder + "/table_attn_decode.csv.gz";
    TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
    CsvReader csv(path, text);
    TACTUS_RETURN_IF_ERROR(csv.Header("batch,kv,ms"));
    int64_t batch = 1, kv = 0;
    while (csv.Next(&f)) {
      int64_t b = 0, k = 0;
      double ms = 0;
      if (f.size() != 3 || !csv.Parse(f[0], &b) || !csv.Parse(f[1], &k) || !csv.Parse(f[2], &ms))
        return csv.Fail("expected batch,kv,ms");
      if (b == batch + 1) {
        if (batch == 1) t.decode_columns_ = t.decode_.size();
        batch = b;
        kv = 0;
      }
      if (b != batch || k != kv) return csv.Fail("rows are not complete and in order");
      kv += kStride;
      t.decode_.push_back(ms);
    }
    if (t.decode_columns_ == 0) t.decode_columns_ = t.decode_.size();
    if (t.decode_.size() != static_cast<size_t>(batch) * t.decode_columns_)
      return csv.Fail("the last batch is cut off");
  }
  {
    const std::string path = folder + "/table_attn_prefill.csv.gz";
    TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
    CsvReader csv(path, text);
    TACTUS_RETURN_IF_ERROR(csv.Header("kv,chunk_from,chunk_to,ms"));
    int64_t kv = 0, next = 1;
    while (csv.Next(&f)) {
      int64_t k = 0, from = 0, to = 0;
      double ms = 0;
      if (f.size() != 4 || !csv.Parse(f[0], &k) || !csv.Parse(f[1], &from) || !csv.Parse(f[2], &to) ||
          !csv.Parse(f[3], &ms)) {
        return csv.Fail("expected kv,chunk_from,chunk_to,ms");
      }
      if (k == kv + kStride) {
        if (kv == 0) t.prefill_columns_ = t.prefill_.size();
        kv = k;
        next = 1;
      }
      if (k != kv || from != next || to < from || to > (1 << 20)) return csv.Fail("rows are not complete and in order");
      next = to + 1;
      t.prefill_.insert(t.prefill_.end(), static_cast<size_t>(to - from + 1), ms);
    }
    if (t.prefill_columns_ == 0) t.prefill_columns_ = t.prefill_.size();
    if (t.prefill_.size() != static_cast<size_t>(kv / kStride + 1) * t.prefill_columns_)
      return csv.Fail("the last context is cut off");
  }
  return t;
}

Tables Tables::Synthetic(uint64_t seed) {
  Tables t;
  t.layers_ = 4;
  Rng rng(seed, 77);
  const auto jitter = [&rng](double ms) { return ms * (0.9 + 0.2 * rng.Uniform()); };
  for (int32_t tokens = 8; tokens <= 16384; tokens += 8) {
    Operators o;
    double* const fields[] = {&o.input_layernorm, &o.attn_pre_proj,
                              &o.attn_rope,       &o.attn_kv_cache_save,
                              &o.attn_post_proj,  &o.post_attention_layernorm,
                              &o.mlp_up_proj,     &o.mlp_act,
                              &o.mlp_down_proj,   &o.add,
                              &o.all_reduce};
    for (double* field : fields) *field = jitter(0.02 + 1e-4 * tokens);
    t.operators_.push_back(o);
  }
  t.decode_columns_ = 65;
  for (int32_t batch = 1; batch <= 128; ++batch) {
    for (int32_t kv = 0; kv <= 4096; kv += kStride) t.decode_.push_back(jitter(0.01 + 1e-6 * batch * kv));
  }
  t.prefill_columns_ = 8192;
  for (int32_t kv = 0; kv <= 4096; kv += kStride) {
    double ms = 0;
    for (int32_t chunk = 1; chunk <= 8192; ++chunk) {
      if (chunk % 8 == 1) ms = jitter(0.01 + 1e-7 * chunk * (kv + chunk));
      t.prefill_.push_back(ms);
    }
  }
  return t;
}

double Tables::At(const std::vector<double>& table, size_t row_size, int64_t row, int64_t column) const {
  const auto rows = static_cast<int64_t>(table.size() / row_size);
  const auto columns = static_cast<int64_t>(row_size);
  covered_ = covered_ && row < rows && column < columns;
  row = std::min(row, rows - 1);
  column = std::min(column, columns - 1);
  return table[static_cast<size_t>(row) * row_size + static_cast<size_t>(column)];
}

double Tables::Seconds(std::span<const ChunkShape> chunks, int64_t decodes, int64_t decode_context) const {
  int64_t n = decodes, squares = 0, context = 0;  // contexts in strides of 64, each rounded up
  for (const ChunkShape& c : chunks) {
    n += c.tokens;
    squares += int64_t{c.tokens} * c.tokens;
    context += (c.context_tokens + kStride - 1) / kStride;
  }
  const int64_t row = (n + 7) / 8 - 1;
  covered_ = covered_ && row < static_cast<int64_t>(operators_.size());
  const Operators& o =
      operators_[static_cast<size_t>(std::min<int64_t>(row, static_cast<int64_t>(operators_.size()) - 1))];
  const double many = 1 + 0.1;
  const double decode =
      decodes == 0 ? 0
                   : At(decode_, decode_columns_, decodes - 1, (decode_context / decodes + kStride - 1) / kStride) *
                         (decodes > 1 ? many : 1);
  const double prefill = chunks.empty() ? 0
                                        : At(prefill_, prefill_columns_, context,
                                             std::llround(std::sqrt(static_cast<double>(squares))) - 1) *
                                              (chunks.size() > 1 ? many : 1);
  const double ar = o.all_reduce + 0.02;
  const double attn = o.attn_pre_proj + o.attn_post_proj + o.attn_rope + o.attn_kv_cache_save + decode + prefill + ar +
                      o.input_layernorm;
  const double mlp = o.mlp_up_proj + o.mlp_down_proj + o.mlp_act + ar + o.post_attention_layernorm;
  return ((attn + mlp + o.add) * layers_) * 1e-3;
}

DurationNs TableStepTime::StepTimeNs(const StepShape& shape) const {
  const double exact_ns = tables_.Seconds(shape.chunks, shape.decodes, shape.decode_context_tokens) * 1e9 + owed_ns_;
  const DurationNs ns = std::llround(exact_ns);
  owed_ns_ = exact_ns - static_cast<double>(ns);
  return ns;
}

Result<std::vector<TraceRequest>> LoadRequests(const std::string& path) {
  TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  CsvReader csv(path, text);
  TACTUS_RETURN_IF_ERROR(csv.Header("arrival_s,prompt_tokens,output_tokens"));
  std::vector<TraceRequest> requests;
  std::vector<std::string_view> f;
  while (csv.Next(&f)) {
    TraceRequest r;
    if (f.size() != 3 || !csv.Parse(f[0], &r.arrival_s) || !csv.Parse(f[1], &r.prompt_tokens) ||
        !csv.Parse(f[2], &r.output_tokens)) {
      return csv.Fail("expected arrival_s,prompt_tokens,output_tokens");
    }
    if (r.prompt_tokens < 1 || r.output_tokens < 1 || (!requests.empty() && r.arrival_s < requests.back().arrival_s)) {
      return csv.Fail("lengths must be positive and arrivals ascending");
    }
    requests.push_back(r);
  }
  return requests;
}

Result<Log> LoadRun(const std::string& steps_path, const std::string& requests_path) {
  Log run;
  std::vector<std::string_view> f;
  {
    TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadText(steps_path));
    CsvReader csv(steps_path, text);
    TACTUS_RETURN_IF_ERROR(
        csv.Header("start_s,end_s,sequences,prefill_tokens,decode_tokens,decode_context_sum,decode_id_sum,"
                   "blocks_used,waiting,prefills,restarted"));
    while (csv.Next(&f)) {
      StepRow r;
      if (f.size() != 11 || !csv.Parse(f[0], &r.start_s) || !csv.Parse(f[1], &r.end_s) ||
          !csv.Parse(f[2], &r.sequences) || !csv.Parse(f[3], &r.prefill_tokens) || !csv.Parse(f[4], &r.decode_tokens) ||
          !csv.Parse(f[5], &r.decode_context_sum) || !csv.Parse(f[6], &r.decode_id_sum) ||
          !csv.Parse(f[7], &r.blocks_used) || !csv.Parse(f[8], &r.waiting) ||
          !ParseShares(csv, f[9], &r.prefills, nullptr) || !ParseShares(csv, f[10], nullptr, &r.restarted)) {
        return csv.Fail("not a step row");
      }
      run.steps.push_back(std::move(r));
    }
  }
  TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadText(requests_path));
  CsvReader csv(requests_path, text);
  TACTUS_RETURN_IF_ERROR(
      csv.Header("id,scheduled_s,first_token_s,completed_s,restarts,restarts_in_prefill,tokens_emitted"));
  while (csv.Next(&f)) {
    RequestRow r;
    int64_t id = 0, in_prefill = 0;
    if (f.size() != 7 || !csv.Parse(f[0], &id) || id != static_cast<int64_t>(run.requests.size()) ||
        !csv.Parse(f[1], &r.scheduled_s) || !csv.Parse(f[2], &r.first_token_s) || !csv.Parse(f[3], &r.completed_s) ||
        !csv.Parse(f[4], &r.restarts) || !csv.Parse(f[5], &in_prefill) || !csv.Parse(f[6], &r.tokens_emitted)) {
      return csv.Fail("not a request row");
    }
    run.requests.push_back(r);
  }
  return run;
}

}  // namespace tactus::vidur
