#include "cli/slo_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/option_binding.h"

namespace tactus::cli {

Result<Slo> ParseSlo(const std::string& text) {
  Slo slo;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size()), eq = text.find('=', at);
    const std::string name = text.substr(at, eq == std::string::npos ? comma - at : eq - at);
    int64_t* field = name == "ttft"  ? &slo.ttft_ns
                     : name == "tbt" ? &slo.tbt_ns
                     : name == "jct" ? &slo.jct_ns
                                     : nullptr;
    auto value = eq < comma ? ParseDuration(text.substr(eq + 1, comma - eq - 1)) : InvalidArgument("none");
    if (!field || !value.ok() || value->ns <= 0) {
      return InvalidArgument(fmt::format("--slo: '{}' is not of the form ttft=500ms,tbt=100ms,jct=10s", text), "slo");
    }
    *field = value->ns;
    at = comma + 1;
  }
  return slo;
}

}  // namespace tactus::cli
