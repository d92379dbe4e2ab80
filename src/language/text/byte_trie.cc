#include "language/text/byte_trie.h"

#include <algorithm>
#include <cstddef>

namespace tactus::language {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> texts) {
  std::stable_sort(texts.begin(), texts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    size_t begin, end;  // of texts, which all pass through the node
  };
  std::vector<Range> ranges = {{0, texts.size()}};
  nodes_.emplace_back();
  // Level by level: `depth` bytes lead to each node from `first` to `last`.
  size_t first = 0, last = 1;
  for (size_t depth = 0; first < last; ++depth) {
    for (size_t node = first; node < last; ++node) {
      auto [at, end] = ranges[node];
      nodes_[node].first_child = static_cast<int32_t>(nodes_.size());
      // A text that ends here sorts before those that continue.
      for (; at < end && texts[at].first.size() == depth; ++at) {
        if (depth > 0) nodes_[node].value = texts[at].second;
      }
      while (at < end) {
        const auto byte = static_cast<uint8_t>(texts[at].first[depth]);
        const auto stop = std::partition_point(
            texts.begin() + static_cast<ptrdiff_t>(at), texts.begin() + static_cast<ptrdiff_t>(end),
            [&](const auto& text) { return static_cast<uint8_t>(text.first[depth]) <= byte; });
        const auto next = static_cast<size_t>(stop - texts.begin());
        nodes_.push_back({0, -1, 0, byte});
        ranges.push_back({at, next});
        ++nodes_[node].edges;
        at = next;
      }
    }
    first = std::exchange(last, nodes_.size());
  }
  std::fill(std::begin(root_), std::end(root_), kNone);
  for (int32_t child = nodes_[0].first_child, i = 0; i < nodes_[0].edges; ++i) {
    root_[nodes_[static_cast<size_t>(child + i)].byte] = child + i;
  }
}

int32_t ByteTrie::NextOf(const Node& from, uint8_t byte) const {
  const Node* begin = nodes_.data() + from.first_child;
  const Node* end = begin + from.edges;
  const Node* found = std::lower_bound(begin, end, byte, [](const Node& node, uint8_t b) { return node.byte < b; });
  return found != end && found->byte == byte ? static_cast<int32_t>(found - nodes_.data()) : kNone;
}

}  // namespace tactus::language
