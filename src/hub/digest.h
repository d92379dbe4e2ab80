// The hashes by which the hub names files: SHA-256 of large files, git's hash of small ones. One thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tactus::hub {

// A hash is computed of data in pieces. OpenSSL computes it, several times as fast as base/sha256.h.
class Digest {
 public:
  // The kind follows from the expected text: 64 hexadecimal digits for SHA-256, 40 for git's hash of a file of
  // `file_bytes`. Null: another text, which can be no hash.
  static std::unique_ptr<Digest> ForHash(const std::string& expected, int64_t file_bytes);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Add(const void* data, size_t size);
  std::string Hex();  // ends the computation

 private:
  struct State;
  explicit Digest(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tactus::hub
