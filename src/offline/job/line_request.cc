#include "offline/job/line_request.h"

#include <fmt/format.h>

#include <utility>

#include "api/chat/response_text.h"
#include "api/request_parser.h"
#include "base/printable.h"

namespace tactus::offline {
namespace {

Result<JobLine> Parse(const Job& job, const LinePlace& place, const std::string& text, std::string_view url,
                      LineRequest* out) {
  if (place.bytes > job.most_line_bytes()) {
    return InvalidArgument(fmt::format("{} bytes are more than {}, the limit of a line (--max-line); shorten it",
                                       place.bytes, job.most_line_bytes()));
  }
  JobLine line;
  const Status parsed = ParseLine(text, place.number, &line);
  out->names.custom_id = line.custom_id;
  TACTUS_RETURN_IF_ERROR(parsed);
  const std::string_view asked = line.api->path;
  out->api = line.api;
  if (!url.empty() && asked != url) {
    return InvalidArgument(
        fmt::format("url: '{}' is not the batch's endpoint, '{}'; put lines of another url into a batch "
                    "for that url",
                    asked, url),
        "url");
  }
  if (place.duplicate_of == 0) return line;
  return InvalidArgument(
      fmt::format("custom_id: '{}' is also that of line {}, which came first; each line needs a unique one",
                  Printable(*line.custom_id), place.duplicate_of),
      "custom_id");
}

Result<api::ParsedRequest> Read(const JobLine& line, const api::RequestLimits& limits) {
  if (line.api == &api::kCompletionsApi) return api::ReadCompletionRequest(*line.body, limits);
  if (line.api == &api::kResponsesApi) return api::ReadResponsesRequest(*line.body, limits);
  return api::ReadChatRequest(*line.body, limits);
}

Result<api::Prepared> Prepare(const Job& job, const JobLine& line, ResultNames* names, Engine* engine,
                              const api::RequestLimits& limits, ReadFor why) {
  TACTUS_ASSIGN_OR_RETURN(api::ParsedRequest request, Read(line, limits));
  if (request.stream) {
    return InvalidArgument("stream: true has no meaning in a batch, whose answers are complete; leave it out",
                           "stream");
  }
  std::string ignored = api::IgnoredText(request.ignored);
  request.base.id = names->request_id();
  const bool seeded = request.base.sampling.has_seed;
  TACTUS_ASSIGN_OR_RETURN(api::Prepared prepared,
                          api::PrepareConversation(std::move(request), *engine, limits, {}, why == ReadFor::kRun));
  for (size_t i = 0; !seeded && i < prepared.requests.size(); ++i) {
    prepared.requests[i].sampling.seed = job.SeedOf(names->line, i);
    prepared.requests[i].sampling.has_seed = true;
  }
  names->ignored = std::move(ignored);  // named in the answer, as in a server's header
  return prepared;
}

}  // namespace

Result<LineRequest> ReadLineRequest(const Job& job, const LinePlace& place, Engine* engine,
                                    const api::RequestLimits& limits, ReadFor why, std::string_view url) {
  LineRequest out;
  out.names = {job.id(), place.number, {}};
  std::string text;
  if (place.bytes <= job.most_line_bytes()) {
    TACTUS_ASSIGN_OR_RETURN(text, job.Read(place));
  }
  const auto line = Parse(job, place, text, url, &out);
  out.status = line.status();
  if (!line.ok()) return out;
  out.asked = true;
  auto prepared = Prepare(job, *line, &out.names, engine, limits, why);
  out.status = prepared.status();
  if (prepared.ok()) out.prepared = std::move(*prepared);
  return out;
}

}  // namespace tactus::offline
