// Gzipped input, a piece at a time: never more than a piece of the content is in memory. One thread per object.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tactus/status.h"

namespace tactus {

// Whether a file that begins so is gzipped. Two bytes are enough.
bool IsGzip(std::string_view begin);

class Gunzip {
 public:
  // `name`: of the file, for messages.
  explicit Gunzip(std::string name);
  ~Gunzip();
  Gunzip(Gunzip&&) noexcept;
  Gunzip& operator=(Gunzip&&) = delete;

  // Unpacks until `out` has grown by `most_bytes` or `in` is used up, and takes what was used off `in`. kDataLoss: it
  // is damaged.
  Status Take(std::string_view* in, size_t most_bytes, std::string* out);
  // Once there is no more input. kDataLoss: it is cut off.
  Status End() const;

 private:
  struct Stream;
  const std::string name_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace tactus
