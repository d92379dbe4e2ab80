// What comes from replicas and clients through a router: states, metrics, model lists, event streams in any pieces,
// bodies. Nothing crashes; a state that is taken can be; a stream without the router's comment goes through unchanged.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "router/answer_scan.h"
#include "router/replica_report.h"
#include "router/request_view.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tactus::router;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const auto& report : {ParseTactusState(text), ParseVllmMetrics(text, 100)}) {
    if (!report.ok()) continue;
    const auto& state = report->state;
    Require(state.running >= 0 && state.waiting_tokens >= 0 && state.kv_tokens >= 0 && state.step_tokens >= 0);
    Require(state.free_kv_tokens >= 0 && state.free_kv_tokens <= state.kv_tokens);
  }
  (void)ParseModelName(text);
  const auto route = ViewRequest(text, {1, 2}).Route(4);
  Require(route.prompt_tokens >= 1);

  AnswerScan scan;
  std::string passed;
  const size_t piece = 1 + data[0] % 16;
  for (size_t at = 0; at < text.size(); at += piece) passed += scan.Stream(text.substr(at, piece));
  if (text.find(": migrated ") == std::string_view::npos) {
    // A comment that has not ended is still held.
    Require(text.substr(0, passed.size()) == passed);
    const size_t line = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
    Require(passed.size() >= line || text.size() == passed.size());
  }
  return 0;
}
