// Texts by their bytes, to find those that begin at a place of a text. Immutable once built: any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tactus::language {

class ByteTrie {
 public:
  static constexpr int32_t kRoot = 0, kNone = -1;
  ByteTrie() : ByteTrie(std::vector<std::pair<std::string_view, int32_t>>()) {}
  // Texts with their values, at least 0. Of equal texts the last one counts; empty ones never match.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> texts);
  // The node after `byte`; kNone: no text continues so.
  int32_t Next(int32_t node, char byte) const {
    if (node == kRoot) return root_[static_cast<uint8_t>(byte)];
    const Node& from = nodes_[static_cast<size_t>(node)];
    return from.edges == 0 ? kNone : NextOf(from, static_cast<uint8_t>(byte));
  }
  // The value of the text that ends at `node`; -1: none does.
  int32_t Value(int32_t node) const { return nodes_[static_cast<size_t>(node)].value; }
  bool empty() const { return nodes_.size() == 1; }

 private:
  // The children of a node are consecutive, in the order of their bytes.
  struct Node {
    int32_t first_child = 0;
    int32_t value = -1;
    uint16_t edges = 0;
    uint8_t byte = 0;  // that leads here
  };
  int32_t NextOf(const Node& from, uint8_t byte) const;
  std::vector<Node> nodes_;
  int32_t root_[256];  // children of the root, so that ordinary text costs one look-up
};

}  // namespace tactus::language
