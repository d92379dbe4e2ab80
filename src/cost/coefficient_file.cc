#include "cost/coefficient_file.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace tactus::cost {
namespace {

constexpr std::string_view kSpace = " \t\r";

// The words of one line; every read that fails sets one error, which the caller asks for at the end.
class Line {
 public:
  Line(std::string_view text, std::string where) : rest_(text), where_(std::move(where)) {}

  bool AtEnd() {
    const size_t begin = rest_.find_first_not_of(kSpace);
    rest_ = begin == std::string_view::npos ? std::string_view() : rest_.substr(begin);
    return rest_.empty();
  }
  std::string_view Word() {
    if (AtEnd()) {
      Fail("the line ends too early");
      return {};
    }
    const size_t end = std::min(rest_.find_first_of(kSpace), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_ = rest_.substr(end);
    return word;
  }
  std::string Text() { return std::string(Word()); }
  std::string Rest() {
    AtEnd();
    return std::string(std::exchange(rest_, {}));
  }
  void Keyword(std::string_view expected) {
    const std::string_view word = Word();
    if (word != expected) Fail(fmt::format("'{}' where '{}' is expected", word, expected));
  }
  double Number(double least, double most) {
    const std::string_view word = Word();
    return Number(word, least, most);
  }
  double Number(std::string_view word, double least, double most) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || !(value >= least && value <= most)) {
      Fail(fmt::format("'{}' is no number between {} and {}", word.substr(0, 40), least, most));
      return least;
    }
    return value;
  }
  // "x:y x:y ..." to the end of the line.
  Knots Pairs() {
    Knots knots;
    while (status_.ok() && !AtEnd()) {
      const std::string_view word = Word();
      const size_t colon = word.find(':');
      if (colon == std::string_view::npos) {
        Fail(fmt::format("'{}' is no pair x:y", word.substr(0, 40)));
        break;
      }
      const double x = Number(word.substr(0, colon), 0, 1e15), y = Number(word.substr(colon + 1), 1e-9, 1e12);
      if (!knots.empty() && x <= knots.back().first)
        Fail(fmt::format("knot {} does not rise above {}", x, knots.back().first));
      knots.emplace_back(x, y);
    }
    if (status_.ok() && knots.empty()) Fail("a curve without knots");
    return knots;
  }
  // The number before a colon that ends a word ("4096:").
  double Label() {
    std::string_view word = Word();
    if (word.empty() || word.back() != ':') {
      Fail(fmt::format("'{}' does not end in a colon", word.substr(0, 40)));
      return 0;
    }
    return Number(word.substr(0, word.size() - 1), 0, 1e12);
  }
  void Fail(const std::string& why) {
    if (status_.ok()) status_ = DataLoss(where_ + ": " + why);
  }
  const Status& Finish() {
    if (status_.ok() && !AtEnd()) Fail(fmt::format("'{}' is too much on this line", rest_.substr(0, 40)));
    return status_;
  }

 private:
  std::string_view rest_;
  std::string where_;
  Status status_;
};

AttentionCurve ReadHeads(Line& line) {
  AttentionCurve c;
  c.q_heads = line.Number(1, 1e5);
  c.kv_heads = line.Number(1, 1e5);
  c.head_dim = line.Number(1, 1e4);
  c.kv_dtype = line.Text();
  return c;
}

AttentionCurve ReadAttention(Line& line) {
  AttentionCurve c = ReadHeads(line);
  c.at = line.Label();
  c.knots = line.Pairs();
  return c;
}

FitError ReadError(Line& line) {
  FitError e;
  e.op = line.Text();
  e.left_out = line.Text();
  line.Keyword("median");
  e.median = line.Number(0, 1e6);
  line.Keyword("p90");
  e.p90 = line.Number(0, 1e6);
  line.Keyword("rows");
  e.rows = static_cast<int64_t>(line.Number(0, 1e12));
  return e;
}

GemmCurve ReadGemm(Line& line) {
  GemmCurve g;
  g.dtype = line.Text();
  g.n = line.Number(1, 1e8);
  g.k = line.Number(1, 1e8);
  g.efficiency = line.Pairs();
  return g;
}

void ReadRecord(std::string_view kind, Line& line, Coefficients* c) {
  if (kind == "device") {
    c->device = line.Text();
  } else if (kind == "backend") {
    c->backend = line.Text();
  } else if (kind == "source") {
    c->source += (c->source.empty() ? "" : "; ") + line.Rest();
  } else if (kind == "error") {
    c->errors.push_back(ReadError(line));
  } else if (kind == "floor_us") {
    c->floor_us = line.Number(0, 1e6);
  } else if (kind == "gemm") {
    c->gemm.push_back(ReadGemm(line));
  } else if (kind == "prefill") {
    c->prefill.push_back(ReadAttention(line));
  } else if (kind == "prefill_alone") {
    c->prefill_alone.push_back(ReadAttention(line));
  } else if (kind == "decode") {
    c->decode.push_back(ReadAttention(line));
  } else if (kind == "elementwise") {
    ElementwiseFit e;
    e.op = line.Text();
    e.overhead_us = line.Number(0, 1e6);
    e.efficiency = line.Number(1e-4, 1e3);
    c->elementwise.push_back(e);
  } else if (kind == "allreduce") {
    AllReduceCurve a;
    a.gpus = static_cast<int32_t>(line.Number(2, 1e5));
    a.us = line.Pairs();
    c->all_reduce.push_back(std::move(a));
  } else if (kind == "sendrecv") {
    c->send_us = line.Pairs();
  } else if (kind == "optional") {
    line.Rest();  // a record of a later version that older readers may do without
  } else {
    line.Fail(fmt::format("record '{}' is not known", kind.substr(0, 40)));
  }
}

// Calls read(kind, line) for every line that is neither empty nor a comment, and checks that it used the line up.
template <class Read>
Status ForEachRecord(std::string_view text, const std::string& name, const Read& read) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view content = text.substr(0, end);
    text = text.substr(std::min(end + 1, text.size()));
    // Free text may hold a '#'; elsewhere it starts a comment.
    if (content.substr(0, 7) != "source ") content = content.substr(0, content.find('#'));
    Line line(content, fmt::format("{}:{}", name, number));
    if (line.AtEnd()) continue;
    read(line.Text(), line);
    const Status status = line.Finish();
    if (!status.ok()) return status;
  }
  return Status();
}

}  // namespace

Result<Coefficients> ParseCoefficients(std::string_view text, const std::string& name) {
  Coefficients c;
  bool versioned = false;
  TACTUS_RETURN_IF_ERROR(ForEachRecord(text, name, [&](const std::string& kind, Line& line) {
    if (versioned) return ReadRecord(kind, line, &c);
    if (kind != "tactus-cost") return line.Fail("a coefficient file starts with 'tactus-cost 1'");
    line.Number(1, 1);
    versioned = true;
  }));
  if (!versioned) return DataLoss(name + ": an empty coefficient file");
  return c;
}

Result<std::vector<BesideChunk>> ParseBesideChunk(std::string_view text, const std::string& name) {
  std::vector<BesideChunk> rows;
  TACTUS_RETURN_IF_ERROR(ForEachRecord(text, name, [&](const std::string& kind, Line& line) {
    if (kind == "error") {
      ReadError(line);  // for people
    } else if (kind == "beside") {
      BesideChunk row;
      row.fit = line.Text();
      row.factor = ReadHeads(line);
      row.factor.knots = line.Pairs();
      rows.push_back(std::move(row));
    } else {
      line.Fail(fmt::format("record '{}' is not known", kind.substr(0, 40)));
    }
  }));
  return rows;
}

}  // namespace tactus::cost
