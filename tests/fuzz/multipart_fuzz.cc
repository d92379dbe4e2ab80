// Forms: all cuts of a body give the same parts or the same error, and the parts are not longer than the body.
#include <cstdint>
#include <cstdlib>

#include "http/multipart.h"

namespace {

using namespace tactus;

void Require(bool holds) {
  if (!holds) std::abort();
}

struct Parts final : http::PartSink {
  Status OnPart(const http::PartHead& head) override {
    Require(!open);
    open = true;
    text += "[" + head.name + "|" + head.filename.value_or("-") + "]";
    return Status();
  }
  Status OnData(std::string_view bytes) override {
    Require(open && !bytes.empty());
    text += bytes;
    data += bytes.size();
    return Status();
  }
  Status OnPartEnd() override {
    Require(open);
    open = false;
    text += "[end]";
    return Status();
  }
  std::string text;
  size_t data = 0;
  bool open = false;
};

Status Read(std::string_view boundary, std::string_view body, size_t piece, Parts* parts) {
  http::MultipartReader reader(boundary, parts);
  for (size_t at = 0; at < body.size(); at += piece) TACTUS_RETURN_IF_ERROR(reader.Feed(body.substr(at, piece)));
  return reader.Finish();
}

}  // namespace

// The first line is a Content-Type, the rest the body.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = input.find('\n');
  if (line == std::string_view::npos) return 0;
  const auto boundary = http::MultipartBoundary(input.substr(0, line));
  if (!boundary.ok()) return 0;
  Require(!boundary->empty() && boundary->size() <= 70);
  const std::string_view body = input.substr(line + 1);
  Parts whole;
  const Status status = Read(*boundary, body, body.size() + 1, &whole);
  Require(whole.data <= body.size());
  for (const size_t piece : {size_t{1}, size_t{5}, size_t{64}}) {
    Parts parts;
    Require(Read(*boundary, body, piece, &parts).code() == status.code());
    if (status.ok()) Require(parts.text == whole.text);
  }
  return 0;
}
