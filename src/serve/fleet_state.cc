#include <fmt/format.h>

#include <utility>

#include "base/json_text.h"
#include "serve/api_server.h"
#include "tactus/version.h"

namespace tactus::serve {

std::string FleetStateText(const Engine* engine, std::string_view state) {
  std::string text = fmt::format("{{\"status\":\"{}\",\"version\":\"{}\"", state, Version());
  if (engine != nullptr && state == "ready") {
    const EngineStats stats = engine->Stats();
    text += ",\"model\":";
    json_text::AppendJsonString(&text, engine->model().name);
    const char* before = ",\"other_models\":[";
    for (const std::string& name : engine->model().other_names) {
      text += std::exchange(before, ",");
      json_text::AppendJsonString(&text, name);
    }
    if (!engine->model().other_names.empty()) text += "]";
    text += fmt::format(
        ",\"running\":{},\"waiting\":{},\"waiting_tokens\":{},\"free_kv_tokens\":{},\"kv_tokens\":{},\"step_tokens\":{"
        "}",
        stats.running, stats.waiting, stats.waiting_tokens,
        (stats.kv_blocks_total - stats.kv_blocks_in_use) * stats.block_size, stats.kv_blocks_total * stats.block_size,
        stats.step_tokens);
  }
  return text + "}";
}

}  // namespace tactus::serve
