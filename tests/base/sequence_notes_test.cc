#include "core/interfaces/sequence_notes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace tactus {
namespace {

struct Small {
  uint8_t value;
};
struct Wide {
  int64_t value, other;
};
struct Odd {
  uint8_t bytes[3];
};

TEST(NoteLayout, AnEmptyLayoutHasNoStride) {
  EXPECT_EQ(core::NoteLayout().stride(), 0u);
  EXPECT_FALSE(core::NoteLayout().Find<Small>());
}

// The columns use bytes 0, 8 to 23, and 24 to 26; the stride is rounded up to the widest alignment.
TEST(NoteLayout, ColumnsLieSideBySideAligned) {
  core::NoteLayout layout;
  const auto small = layout.Column<Small>();
  const auto wide = layout.Column<Wide>();
  const auto odd = layout.Column<Odd>();
  ASSERT_EQ(layout.stride(), 32u);
  std::vector<std::byte> bytes(3 * layout.stride());
  const core::SequenceNotes notes{bytes.data(), layout.stride()};
  std::set<const void*> places;
  for (SlotId s = 0; s < 3; ++s) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(&wide.At(notes, s)) % alignof(Wide), 0u) << "slot " << s;
    small.At(notes, s).value = static_cast<uint8_t>(s + 1);
    wide.At(notes, s) = {s + 10, s + 20};
    odd.At(notes, s) = {{static_cast<uint8_t>(s), 7, static_cast<uint8_t>(s + 2)}};
  }
  for (SlotId s = 0; s < 3; ++s) {
    EXPECT_EQ(small.At(notes, s).value, s + 1);
    EXPECT_EQ(wide.At(notes, s).value, s + 10);
    EXPECT_EQ(wide.At(notes, s).other, s + 20);
    EXPECT_EQ(odd.At(notes, s).bytes[2], s + 2);
  }
}

TEST(NoteLayout, TheSameStructSharesAColumn) {
  core::NoteLayout layout;
  const auto first = layout.Column<Wide>();
  layout.Column<Small>();
  const size_t stride = layout.stride();
  const auto second = layout.Column<Wide>();
  EXPECT_EQ(layout.stride(), stride);
  std::vector<std::byte> bytes(stride);
  const core::SequenceNotes notes{bytes.data(), stride};
  first.At(notes, 0).value = 5;
  EXPECT_EQ(second.At(notes, 0).value, 5);
  ASSERT_TRUE(layout.Find<Wide>());
  EXPECT_EQ(&layout.Find<Wide>()->At(notes, 0), &first.At(notes, 0));
  EXPECT_FALSE(layout.Find<Odd>());
}

}  // namespace
}  // namespace tactus
