// Decompresses gzip piece by piece; only one piece of the content is in memory. One thread per object.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tactus/status.h"

namespace tactus {

// Whether a file that begins with these bytes is gzipped. Two bytes are enough.
bool IsGzip(std::string_view begin);

class Gunzip {
 public:
  // `name`: the file's name, for messages.
  explicit Gunzip(std::string name);
  ~Gunzip();
  Gunzip(Gunzip&&) noexcept;
  Gunzip& operator=(Gunzip&&) = delete;

  // Unpacks until `out` has grown by `most_bytes` or `in` is empty; consumed bytes are removed from `in`. kDataLoss:
  // damaged input.
  Status Take(std::string_view* in, size_t most_bytes, std::string* out);
  // Call after the last input. kDataLoss: truncated input.
  Status End() const;

 private:
  struct Stream;
  const std::string name_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace tactus
