#include "offline/server/record.h"

#include "base/json.h"
#include "base/json_text.h"

namespace tactus::offline {
std::string RecordOf(const BatchRow& b) {
  SortedJson errors = SortedJson::array();
  for (const BatchError& e : b.errors)
    errors.push_back({{"code", e.code}, {"message", e.message}, {"param", e.param}, {"line", e.line}});
  const SortedJson record = {{"id", b.id},
                             {"owner", b.owner},
                             {"endpoint", b.endpoint},
                             {"input_file_id", b.input_file_id},
                             {"window", b.window},
                             {"metadata", b.metadata},
                             {"state", static_cast<int>(b.state)},
                             {"entered_s", b.entered_s},
                             {"expires_s", b.expires_s},
                             {"results_live_s", b.results_live_s},
                             {"errors", std::move(errors)},
                             {"output_file_id", b.output_file_id},
                             {"error_file_id", b.error_file_id},
                             {"has_output", b.has_output},
                             {"has_errors", b.has_errors},
                             {"lines", b.counts.lines},
                             {"out", b.counts.out},
                             {"failed", b.counts.errors},
                             {"input_tokens", b.input_tokens},
                             {"output_tokens", b.output_tokens}};
  return record.dump(-1, ' ', false, SortedJson::error_handler_t::replace);
}

Result<BatchRow> BatchOf(std::string_view record) {
  try {
    const Result<SortedJson> read = json_text::ParseSortedJson(record);
    if (!read.ok()) return DataLoss("a batch's record is damaged: " + read.status().message());
    const SortedJson& r = *read;
    BatchRow b;
    b.id = r.at("id");
    b.owner = r.at("owner");
    b.endpoint = r.at("endpoint");
    b.input_file_id = r.at("input_file_id");
    b.window = r.at("window");
    b.metadata = r.at("metadata");
    const auto state = r.at("state").get<size_t>();
    if (state >= kBatchStates) return DataLoss("a batch's record is damaged: its state");
    b.state = static_cast<BatchState>(state);
    b.entered_s = r.at("entered_s");
    b.expires_s = r.at("expires_s");
    b.results_live_s = r.at("results_live_s");
    for (const SortedJson& e : r.at("errors"))
      b.errors.push_back({e.at("code"), e.at("message"), e.at("param"), e.at("line")});
    b.output_file_id = r.at("output_file_id");
    b.error_file_id = r.at("error_file_id");
    b.has_output = r.at("has_output");
    b.has_errors = r.at("has_errors");
    b.counts = {r.at("lines"), r.at("out"), r.at("failed")};
    b.input_tokens = r.at("input_tokens");
    b.output_tokens = r.at("output_tokens");
    return b;
  } catch (const SortedJson::exception& e) {
    return DataLoss(std::string("a batch's record is damaged: ") + e.what());
  }
}

}  // namespace tactus::offline
