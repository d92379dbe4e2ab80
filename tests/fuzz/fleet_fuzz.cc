// Inputs of a router from replicas and clients: states, metrics, model lists, event streams in any pieces, bodies.
// Nothing crashes; accepted states are consistent; a stream is forwarded unchanged, except for the router's comment and
// an error before the first event.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fleet/router/answer_scan.h"
#include "fleet/router/replica_report.h"
#include "fleet/router/request_view.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tactus::fleet;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const auto& report : {ParseTactusState(text), ParseVllmMetrics(text, 100)}) {
    if (!report.ok()) continue;
    const auto& state = report->state;
    Require(state.running >= 0 && state.waiting_tokens >= 0 && state.kv_tokens >= 0 && state.step_tokens >= 0);
    Require(state.free_kv_tokens >= 0 && state.free_kv_tokens <= state.kv_tokens);
  }
  (void)ParseModelNames(text);
  const auto route = ViewRequest(text, {1, 2}).Route(4);
  Require(route.prompt_tokens >= 1);

  AnswerScan scan;
  std::string passed;
  const size_t piece = 1 + data[0] % 16;
  for (size_t at = 0; at < text.size(); at += piece) passed += scan.Stream(text.substr(at, piece));
  passed += scan.Rest();
  // An error before any event is not forwarded, because another replica may still be tried.
  if (text.find(": migrated ") == std::string_view::npos && scan.first_error().empty()) Require(passed == text);
  return 0;
}
