// A sequence that grows without moving its elements: its peak memory is its size, where a vector's is up to three times
// that. Elements are plain data.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace tactus::offline {

template <class T>
class Chunked {
 public:
  static constexpr size_t kChunkElements = size_t{1} << 14;

  size_t size() const { return size_; }
  T& operator[](size_t i) { return chunks_[i / kChunkElements][i % kChunkElements]; }
  const T& operator[](size_t i) const { return chunks_[i / kChunkElements][i % kChunkElements]; }
  void push_back(const T& value) {
    if (size_ == chunks_.size() * kChunkElements) chunks_.push_back(std::make_unique<T[]>(kChunkElements));
    ++size_;
    (*this)[size_ - 1] = value;
  }
  // Drops the last elements.
  void Truncate(size_t size) {
    size_ = size;
    chunks_.resize((size + kChunkElements - 1) / kChunkElements);
  }
  size_t bytes() const { return chunks_.size() * kChunkElements * sizeof(T); }

 private:
  std::vector<std::unique_ptr<T[]>> chunks_;
  size_t size_ = 0;
};

}  // namespace tactus::offline
