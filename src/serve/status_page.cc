#include <fmt/format.h>

#include "base/markup_text.h"
#include "serve/api_server.h"
#include "tactus/version.h"

namespace tactus::serve {

std::string StatusPage(const Engine* engine, const std::string& scheduler) {
  std::string body;
  if (engine == nullptr) {
    body = "<p>The model is loading.</p>";
  } else {
    const ModelInfo& model = engine->model();
    const EngineStats stats = engine->Stats();
    body = fmt::format(
        "<table><tr><th>model<td>{}<tr><th>architecture<td>{}, {} parameters, {}<tr><th>context<td>{} "
        "tokens<tr><th>scheduler<td>{}"
        "<tr><th>now<td>{} running, {} waiting<tr><th>KV blocks<td>{} of {} in use</table>",
        EscapeMarkup(model.name), EscapeMarkup(model.architecture), model.num_parameters,
        EscapeMarkup(model.weight_format), model.max_model_len, EscapeMarkup(scheduler), stats.running, stats.waiting,
        stats.kv_blocks_in_use, stats.kv_blocks_total);
  }
  return fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
      "content=\"width=device-width\"><title>Tactus</title>"
      "<style>body{{font:16px system-ui;margin:2em auto;max-width:40em;padding:0 "
      "1em}}th{{text-align:left;padding-right:2em}}</style>"
      "<h1>Tactus {}</h1>{}<p><a href=/v1/models>models</a> · <a href=/metrics>metrics</a> · <a "
      "href=/health>health</a> · "
      "<a href=/ready>ready</a> · <a href=/version>version</a></p>\n",
      EscapeMarkup(Version()), body);
}

}  // namespace tactus::serve
