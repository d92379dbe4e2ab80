#include "base/gunzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tactus {
namespace {

constexpr int kGzip = 16 + MAX_WBITS;  // zlib's code for gzip format with checksums

}  // namespace

struct Gunzip::Stream {
  z_stream z{};
  bool within = false;  // a gzip member has begun and not ended
  Stream() { TACTUS_CHECK(inflateInit2(&z, kGzip) == Z_OK); }
  ~Stream() { inflateEnd(&z); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

bool IsGzip(std::string_view begin) {
  return begin.starts_with("\x1f\x8b");
}

Gunzip::Gunzip(std::string name) : name_(std::move(name)), stream_(std::make_unique<Stream>()) {}
Gunzip::~Gunzip() = default;
Gunzip::Gunzip(Gunzip&&) noexcept = default;

Status Gunzip::Take(std::string_view* in, size_t most_bytes, std::string* out) {
  constexpr size_t kMostAtOnce = std::numeric_limits<uInt>::max() / 2;
  z_stream& z = stream_->z;
  const size_t before = out->size();
  out->resize(before + most_bytes);
  size_t made = 0;
  Status status;
  while (made < most_bytes && !in->empty()) {
    const size_t offered = std::min(in->size(), kMostAtOnce), room = std::min(most_bytes - made, kMostAtOnce);
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in->data()));  // zlib does not write it
    z.avail_in = static_cast<uInt>(offered);
    z.next_out = reinterpret_cast<Bytef*>(out->data() + before + made);
    z.avail_out = static_cast<uInt>(room);
    stream_->within = true;
    const int code = inflate(&z, Z_NO_FLUSH);
    in->remove_prefix(offered - z.avail_in);
    made += room - z.avail_out;
    if (code == Z_STREAM_END) {  // another member may follow
      stream_->within = false;
      TACTUS_CHECK(inflateReset(&z) == Z_OK);
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      status =
          DataLoss(fmt::format("'{}' is gzipped and damaged: {}", name_, z.msg != nullptr ? z.msg : "zlib failed"));
      break;
    }
  }
  out->resize(before + made);
  return status;
}

Status Gunzip::End() const {
  return stream_->within ? DataLoss(fmt::format("'{}' is gzipped and cut off", name_)) : Status();
}

}  // namespace tactus
